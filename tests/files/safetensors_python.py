# SPDX-License-Identifier: MIT
"""Our files load in Python's safetensors, and Python's load here: networks, tensors, sharded models.

Usage: python safetensors_python.py [SIMULATE_GPUS COUNT] SAFETENSORS_EXCHANGE. Exits with 77, which CTest
shows as "Skipped", where requirements/dev.txt is not installed.
"""
import json
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

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
MORE_DTYPES = ["float8_e8m0fnu", "float4_e2m1fn_x2"]


def pattern(dtype, shape):
    """The values that safetensors_exchange.cpp has under the same name."""
    numbers = torch.arange(math.prod(shape) * dtype.itemsize)
    values = numbers % 2 if dtype == torch.bool else numbers * 7 % 251
    return values.to(torch.uint8).view(dtype).view(shape)


def values_of(dtypes, entries):
    values = {f"entry_{i}": torch.full((2,), float(i)) for i in range(entries)}
    for name in dtypes:
        for suffix, shape in (("", (2, 3)), ("_scalar", ()), ("_empty", (3, 0))):
            if name in DTYPES or suffix != "_scalar":  # the packed dtype has none
                values[name + suffix] = pattern(getattr(torch, name), shape)
    return values


def exchange(*arguments, **options):
    return subprocess.run([*sys.argv[1:], *map(str, arguments)], stdout=subprocess.PIPE, text=True, **options)


def checked(*arguments):
    done = exchange(*arguments)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def assert_same(found, expected):
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, x in expected.items():
        y = found[name]
        assert y.dtype == x.dtype and y.shape == x.shape, (name, x.dtype, x.shape, y.dtype, y.shape)
        assert torch.equal(y.flatten().view(torch.uint8), x.flatten().view(torch.uint8)), name


def test_networks(folder):
    expected = values_of(DTYPES, 2000)
    ours = folder / "ours.safetensors"
    checked("write", ours)
    assert_same(load_file(ours), expected)
    with safe_open(ours, "pt") as file:
        checksums = {key for key in file.metadata() if key.startswith("xxh3:")}
    assert checksums == {"xxh3:" + name for name in expected}

    theirs = folder / "theirs.safetensors"
    save_file(expected, theirs, metadata={"format": "pt"})
    checked("check", theirs)
    save_file({**expected, "entry_7": torch.zeros(2)}, theirs)
    assert exchange("check", theirs).returncode == 1


def test_tensors(folder):
    """Names as they are, every dtype, 10,000 tensors; and a file whose data begins at an odd address."""
    expected = {**values_of(DTYPES + MORE_DTYPES, 10_000), "": torch.ones(1), "é \"\n": torch.ones(1)}
    theirs, ours = folder / "tensors.safetensors", folder / "copy.safetensors"
    save_file(expected, theirs)
    checked("copy", theirs, ours)
    assert_same(load_file(ours), expected)

    data = theirs.read_bytes()
    length = int.from_bytes(data[:8], "little")
    theirs.write_bytes((length + 1).to_bytes(8, "little") + data[8:8 + length] + b" " + data[8 + length:])
    checked("copy", theirs, ours)
    assert_same(load_file(ours), expected)


def test_copied_metadata(folder):
    """Other values with the metadata of a file of ours: its checksums are doubted, and the values loaded."""
    ours, theirs, again = (folder / f"{name}.safetensors" for name in ("ours", "theirs", "again"))
    checked("write", ours)
    for names in [["entry_1"], ["entry_1", "entry_2"], list(values_of(DTYPES, 2000))]:
        with safe_open(ours, "pt") as file:
            changed = {name: file.get_tensor(name) for name in names}
            metadata = file.metadata()
        changed["entry_1"] = torch.full((2,), -1.0)
        save_file(changed, theirs, metadata=metadata)
        done = exchange("copy", theirs, again, stderr=subprocess.PIPE)
        assert done.returncode == 0 and "[warning] load_tensors" in done.stderr, done
        assert_same(load_file(again), changed)


def test_sharded_model(folder):
    expected = values_of(DTYPES, 300)
    names = list(expected)
    index = {"metadata": {"total_size": 7}, "weight_map": {}}
    for i in range(3):
        shard = f"model-{i + 1:05}-of-00003.safetensors"
        save_file({**{name: expected[name] for name in names[i::3]}, "unlisted": torch.ones(1)}, folder / shard)
        index["weight_map"].update({name: shard for name in names[i::3]})
    file = folder / "model.safetensors.index.json"
    file.write_text(json.dumps(index))
    ours = folder / "whole.safetensors"
    checked("copy", file, ours)
    assert_same(load_file(ours), expected)


def test_transformer(folder):
    """Under other names, with one tensor of another dtype, one more and one less."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        encoder.layers[1].norm2.bias.zero_()  # as it is where nobody writes it
        x = torch.randn(5, 3, 16)
        y = encoder(x)
    values = {"model.encoder." + name: value.clone() for name, value in encoder.state_dict().items()}
    del values["model.encoder.layers.1.norm2.bias"]
    converted = "model.encoder.layers.0.linear1.weight"
    values[converted] = values[converted].double()
    file = folder / "transformer.safetensors"
    save_file({**values, "input": x, "output": y, "head.weight": torch.ones(2)}, file)
    missing, unexpected, found, count, distance = checked("transformer", file).splitlines()
    assert missing == "missing: layers.1.norm2.bias", missing
    assert unexpected == "unexpected: head.weight", unexpected
    assert found == "converted: layers.0.linear1.weight", found
    assert count == f"{len(values)} loaded", count
    assert float(distance) < 2e-6, distance


def test_large_file(folder):
    """512 MB in one tensor of 256 MB and many smaller ones: what is needed beyond the tensors is bounded."""
    file = folder / "large.safetensors"
    values = {f"small_{i}": torch.zeros(1 << 18) for i in range(128)}
    values.update({f"middle_{i}": torch.zeros(1 << 24, dtype=torch.bfloat16) for i in range(4)})
    save_file({**values, "large": torch.zeros(1 << 26)}, file)
    loaded, most = map(int, checked("memory", file).split())
    assert loaded == 512 << 20, loaded
    assert most - loaded < 75e6, (loaded, most)
    print(f"512 MB loaded with {(most - loaded) / 1e6:.0f} MB of host memory besides")


TESTS = [test_networks, test_tensors, test_copied_metadata, test_sharded_model, test_transformer, test_large_file]
for test in TESTS:
    with tempfile.TemporaryDirectory() as folder:
        test(Path(folder))
    print(test.__name__, "passed")
