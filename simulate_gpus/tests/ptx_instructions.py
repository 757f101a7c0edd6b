"""How many instructions of the host a kernel takes, counted by callgrind beside those of a plain loop: the counts are the
same on every run.

    ptx_instructions.py PROGRAM [--avx2]

PROGRAM is ptx_instructions.cpp's. With --avx2 the engine for such CPUs is counted, which LD_PRELOAD names.
"""

import pathlib
import sys

import callgrind_counts

# At most so many instructions of a kernel for one of the loop: without AVX2, and with it.
budgets = {"vector_add": (18, 11), "product": (11, 6), "softmax": (11, 7), "reduction": (13, 7)}

kernels = pathlib.Path(__file__).resolve().parent / "instructions" / "kernels.ptx"
counts = callgrind_counts.counts(sys.argv[1], kernels)

status = 0
for name, budget in budgets.items():
    kernel, loop = counts[f"{name} kernel"], counts[f"{name} loop"]
    most = budget["--avx2" in sys.argv]
    is_over = kernel > most * loop
    status |= is_over
    print(f"{name:10} {kernel:11,} {loop:10,}  {kernel / loop:5.1f} (at most {most}){'  OVER' if is_over else ''}")
sys.exit(status)
