"""How many instructions of the host a small operation or a step takes on a simulated GPU beside the CPU, counted by callgrind:
the counts are the same on every run.

    operation_instructions.py SIMULATE_GPUS PROGRAM VERSION

PROGRAM is operation_instructions.cpp's, VERSION its LibTorch's.
"""

import sys

import callgrind_counts

# So many more than on the CPU. Those with a result call LibTorch's allocator of GPU memory, which takes 3,500.
budgets = {"add_": 5400, "add": 6100, "relu": 5400, "mm": 5400, "sum": 5400, "_foreach_add_ of 100": 107000}
if sys.argv[3] >= "2.15":  # whose allocator and streams take more
    budgets = {name: budget + 1000 for name, budget in budgets.items()}
# So many times the CPU's.
ratios = {"cat of 100": 0.6, "AdamW over lists of 100": 1.5, "AdamW of 100": 2, "forward, backward": 2,
          "LSTM of 50 steps": 2, "LSTM, backward too": 2}

counts = callgrind_counts.counts(sys.argv[2], launcher=(sys.argv[1], "1"))
status = 0


def row(name, budget, cost):
    global status
    cpu, simulated = (counts[f"{name} {device}"] // 4 for device in ("cpu", "cuda"))
    found = cost(cpu, simulated)
    status |= found > budget
    print(f"{name:24} {cpu:10,} {simulated:10,} {found:8,} {budget:8,}{'  OVER' if found > budget else ''}")


print(f"{'operation':24} {'CPU':>10} {'simulated':>10} {'more':>8} {'at most':>8}")
for name, budget in budgets.items():
    row(name, budget, lambda cpu, simulated: simulated - cpu)
print(f"{'':24} {'CPU':>10} {'simulated':>10} {'times':>8} {'at most':>8}")
for name, budget in ratios.items():
    row(name, budget, lambda cpu, simulated: round(simulated / cpu, 2))
sys.exit(status)
