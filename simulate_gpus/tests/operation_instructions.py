"""How many instructions of the host a small operation takes on a simulated GPU beside the CPU, counted by callgrind: the
counts are the same on every run.

    operation_instructions.py SIMULATE_GPUS PROGRAM

PROGRAM is operation_instructions.cpp's.
"""

import sys

import callgrind_counts

# So many more than on the CPU. Those with a result call LibTorch's allocator of GPU memory, which takes 5,000.
budgets = {"add_": 6500, "relu": 9950, "mm": 11200, "sum": 11550, "cat of 100": 90000, "_foreach_add_ of 100": 138000}

counts = callgrind_counts.counts(sys.argv[2], launcher=(sys.argv[1], "1"))
status = 0
print(f"{'operation':20} {'CPU':>9} {'simulated':>9} {'more':>8} {'at most':>8}")
for name, budget in budgets.items():
    cpu, simulated = (counts[f"{name} {device}"] // 10 for device in ("cpu", "cuda"))
    more = simulated - cpu
    status |= more > budget
    print(f"{name:20} {cpu:9,} {simulated:9,} {more:8,} {budget:8,}{'  OVER' if more > budget else ''}")
sys.exit(status)
