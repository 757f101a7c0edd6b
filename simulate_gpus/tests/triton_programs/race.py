# SPDX-License-Identifier: MIT
"""A kernel of Triton's reads what another stream copies. Usage: race.py [wait]"""
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i))


x, out = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
loads = torch.cuda.Stream()
loads.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(loads):
    x.copy_(torch.ones(64).pin_memory(), non_blocking=True)
if "wait" in sys.argv:
    torch.cuda.current_stream().wait_stream(loads)
double_kernel[(1,)](x, out, BLOCK=64)
print(out.sum().item())
