# SPDX-License-Identifier: MIT
"""Runs what mixed_precision_test.cpp's Python.* compare with: torch.amp.GradScaler, and each operation of
LibTorch's own autocast lists under torch.autocast.

Usage: python mixed_precision.py PROGRAM        PROGRAM: the tests; sees the same GPUs as this process
Exits with 77, which CTest shows as "Skipped", where this Python lacks torch, safetensors or expecttest.
"""
import importlib.util
import itertools
import os
import random
import subprocess
import sys
import tempfile

for module in ("torch", "safetensors", "expecttest"):  # the last: for torch.testing._internal
    if not importlib.util.find_spec(module):
        print(f"SKIPPED: {sys.executable} has no {module}")
        sys.exit(77)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists, AutocastTestLists  # noqa: E402

STEPS = 1000
GPUS = torch.cuda.device_count()
NAMES = {torch.float16: "Half", torch.bfloat16: "BFloat16", torch.float32: "Float", torch.float64: "Double",
         torch.bool: "Bool", torch.int64: "Long", torch.int32: "Int", torch.uint8: "Byte"}


def scales(plan, growth_interval, injected):
    """Parameters on each device; now and then an inf or a nan in one gradient; or none, until the scale itself
    makes gradients overflow."""
    numbers = random.Random(1)
    parameters = [torch.linspace(-1, 1, 5 + i, device=torch.device("cuda", i % GPUS) if GPUS else "cpu")
                  .requires_grad_() for i in range(3)]
    seen = {f"start.{i}": p.detach().cpu().clone() for i, p in enumerate(parameters)}
    sgd = torch.optim.SGD(parameters, lr=0.001)
    steps = []
    sgd.register_step_post_hook(lambda *_: steps.append(True))
    scaler = torch.amp.GradScaler("cuda" if GPUS else "cpu", growth_interval=growth_interval)
    which, what, skipped, factors = [], [], [], []
    for _ in range(STEPS):
        sgd.zero_grad()
        for p in parameters:
            scaler.scale(50 * (p * p).sum()).backward()
        which.append(numbers.randrange(3) if numbers.random() < injected else -1)
        what.append(numbers.choice([float("inf"), float("-inf"), float("nan")]))
        if which[-1] >= 0:
            parameters[which[-1]].grad[0] = what[-1]
        steps.clear()
        scaler.step(sgd)
        scaler.update()
        skipped.append(not steps)
        factors.append(scaler.get_scale())
    seen |= {f"end.{i}": p.detach().cpu() for i, p in enumerate(parameters)}
    seen |= {"growth_interval": torch.tensor(growth_interval), "which": torch.tensor(which),
             "what": torch.tensor(what), "skipped": torch.tensor(skipped),
             "scales": torch.tensor(factors, dtype=torch.float64)}
    print(f"{plan}: {sum(skipped)} of {STEPS} steps skipped, scales {min(factors):g} to {max(factors):g}")
    save_file(seen, os.path.join(FOLDER, f"{plan}.safetensors"))


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)


def operations():
    """(name, the scope's dtype, arguments, those by name, dtypes of the results) of each that computes here."""
    device = "cuda" if GPUS else "cpu"
    lists = vars(AutocastTestLists("cuda") if GPUS else AutocastCPUTestLists(torch.device("cpu")))
    table, refused = [], []
    for kind, cases in lists.items():
        if not kind.startswith(("torch_", "nn_", "methods_")):
            continue
        for name, *rest in cases:
            owner = torch._C._nn if kind.startswith("nn_") else torch.Tensor if kind.startswith("methods_") else torch
            named = next((x for x in rest if isinstance(x, dict)), {})
            ways = [x for x in rest if isinstance(x, (list, tuple, torch.Tensor))]
            if name == "norm" and "dim" in named:
                named = {"p": 2, **named}
            if name == "einsum":  # the list's equation does not fit its matrices
                ways = [("ij,jk->ik", list(rest[-1]))]
            for way, dtype in itertools.product(ways, (torch.float16, torch.bfloat16)):
                arguments = (way,) if isinstance(way, torch.Tensor) else way
                try:
                    with torch.autocast(device, dtype):
                        result = getattr(owner, name)(*arguments, **named)
                except Exception as error:  # not on simulated GPUs, or not of these dtypes
                    refused.append(f"{name} in {NAMES[dtype]}: {str(error).splitlines()[0][:80]}")
                    continue
                # Tuples, as the elements of a TorchScript list are of one type; of sizes and tensors it has lists.
                if name == "chain_matmul":  # these two are other functions in C++
                    arguments = (arguments,)
                if name == "tensordot":
                    arguments = (*arguments, [-2, -1], [0, 1])
                plain = tuple(list(x) if isinstance(x, tuple) else x for x in arguments)
                by_name = tuple((key, list(x) if isinstance(x, tuple) else x) for key, x in named.items())
                aten = name[2:-2] if name.startswith("__") else name
                table.append(("aten::" + aten, NAMES[dtype], plain, by_name,
                              tuple(NAMES[x.dtype] for x in tensors_in(result))))
    print(f"{len(table)} operations, and refused in Python too:", *refused, sep="\n  ")
    with open(os.path.join(FOLDER, "operations"), "wb") as file:
        file.write(torch._C._pickle_save(tuple(table)))


with tempfile.TemporaryDirectory() as FOLDER:
    scales("injected", growth_interval=20, injected=0.03)
    scales("overflowing", growth_interval=2, injected=0)
    operations()
    sys.stdout.flush()
    subprocess.run([sys.argv[1], "--gtest_filter=Python.*"], env=dict(os.environ, FOLDER=FOLDER), check=True)
