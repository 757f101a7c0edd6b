#!/usr/bin/env python3
"""What a GPU (real or simulated) is given for the operations of LibTorch's database, as torch.profiler shows it: kernels with their grids
and blocks, copies, memory sets.

Usage: kernels.py OUT.json.xz             stores it: of each operation the first sample in four dtypes, by the second call
       kernels.py --compare OUT.json.xz   asks this GPU too, and compares. What a simulated GPU does not know, of NVIDIA's libraries, of
                                          random operations, behind a value that is read back, has the operation's name, and stands
                                          for anything. The exit status is 1 if anything differs
"""
import collections
import fnmatch
import json
import lzma
import os
import random
import sys
import tempfile
import warnings
import zlib

import numpy as np
import torch

warnings.filterwarnings("ignore")
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
import torch.testing._internal.common_methods_invocations as core  # noqa: E402: it forbids the line above
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as tree

DTYPES = (torch.float32, torch.int64, torch.float16, torch.bool)
# Other kernels by intention: batch normalization does without cuDNN, and attention is computed as a whole.
KNOWN = ("_batch_norm_with_update", "nn.functional.batch_norm*", "nn.functional.instance_norm", "torch.ops.aten._*_attention_forward")
# The grid depends on how many blocks a multiprocessor holds, which the machine code tells.
BY_OCCUPANCY = "DeviceRadixSortHistogramKernel"


def given_for(operation):
    """What the streams are given while it runs, in the order of time."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        operation()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        profiled.export_chrome_trace(trace)
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
    events = [x for x in events if x.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return [[x["name"]] + ([x["args"]["grid"], x["args"]["block"]] if x["cat"] == "kernel" else [])
            for x in sorted(events, key=lambda x: x["ts"])]


def given_for_all():
    x = torch.ones(3, device="cuda")
    given_for(lambda: (x * x).sum().item())  # the first profile is not complete
    found = {}
    for op in core.op_db:
        for dtype in DTYPES:
            key = f"{op.full_name} {str(dtype)[6:]}"
            if key in found or dtype not in op.dtypesIfCUDA:
                continue
            torch.manual_seed(zlib.crc32(f"{op.full_name}|{dtype}".encode()))
            random.seed(1)
            np.random.seed(1)
            try:
                sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=False)))
                args, kwargs = tree.tree_map(lambda x: x.cuda() if isinstance(x, torch.Tensor) else x,
                                             ((sample.input, *sample.args), sample.kwargs))
                if "device" in kwargs:
                    kwargs["device"] = "cuda"
                op(*args, **kwargs)
                found[key] = given_for(lambda: op(*args, **kwargs))
            except Exception as error:
                found[key] = type(error).__name__
    return found


def compared(card, here):
    """"the same", "a part": all that is known is there, in the card's order; or "different"."""
    card, here = ([x[:1] if BY_OCCUPANCY in x[0] else x for x in given] for given in (card, here))
    if card == here:
        return "the same"
    known = [x for x in here if not x[0].endswith("(simulated)")]
    rest = iter(card)
    is_part = len(known) < len(here) and all(x in rest for x in known)
    return "a part" if is_part else "different"


def main():
    if sys.argv[1] != "--compare":
        with lzma.open(sys.argv[1], "wt") as file:
            json.dump(given_for_all(), file, separators=(",", ":"))
        return
    with lzma.open(sys.argv[2], "rt") as file:
        card = json.load(file)
    counts, differences = collections.Counter(), []
    for key, here in given_for_all().items():
        if key not in card or str in (type(card[key]), type(here)):
            continue
        result = compared(card[key], here)
        operation = key.split()[0]
        if result == "different" and any(fnmatch.fnmatchcase(operation, x) for x in KNOWN):
            result = "known to be different"
        counts[result] += 1
        if result == "different":
            differences += [f"{key}:", *(f"  card {x}" for x in card[key]), *(f"  here {x}" for x in here)]
    print(*differences, sep="\n")
    print(f"kernels of {sum(counts.values())} operations: {dict(counts)}")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
