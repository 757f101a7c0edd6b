# SPDX-License-Identifier: MIT
"""Files of save_parameters load in Python's safetensors, and Python's load in load_parameters.

Usage: python safetensors_python.py PATH_OF_safetensors_exchange. Exits with 77, which CTest shows as
"Skipped", where requirements/dev.txt is not installed.
"""
import math
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 float32 float64 bfloat16 complex64 uint16 uint32 uint64 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz"
).split()


def pattern(dtype, shape):
    """The values that safetensors_exchange.cpp has under the same name."""
    numbers = torch.arange(math.prod(shape) * dtype.itemsize)
    values = numbers % 2 if dtype == torch.bool else numbers * 7 % 251
    return values.to(torch.uint8).view(dtype).view(shape)


def all_values():
    values = {f"entry_{i}": torch.full((2,), float(i)) for i in range(2000)}
    for name in DTYPES:
        for suffix, shape in (("", (2, 3)), ("_scalar", ()), ("_empty", (3, 0))):
            values[name + suffix] = pattern(getattr(torch, name), shape)
    return values


def as_bytes(x):
    return x.flatten().view(torch.uint8)


exchange = sys.argv[1]
expected = all_values()
with tempfile.TemporaryDirectory() as folder:
    ours = folder + "/ours.safetensors"
    subprocess.run([exchange, "write", ours], check=True)
    found = load_file(ours)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, x in expected.items():
        assert found[name].dtype == x.dtype and found[name].shape == x.shape, name
        assert torch.equal(as_bytes(found[name]), as_bytes(x)), name
    with safe_open(ours, "pt") as file:
        checksums = {key for key in file.metadata() if key.startswith("xxh3:")}
    assert checksums == {"xxh3:" + name for name in expected}

    theirs = folder + "/theirs.safetensors"
    save_file(expected, theirs, metadata={"format": "pt"})
    subprocess.run([exchange, "check", theirs], check=True)
    save_file({**expected, "entry_7": torch.zeros(2)}, theirs)
    assert subprocess.run([exchange, "check", theirs], stdout=subprocess.PIPE).returncode == 1
print(f"{len(expected)} tensors of {len(DTYPES)} dtypes, both ways: the same")
