# SPDX-License-Identifier: MIT
"""Prints what scripts/bench measured beside what was promised, as one table.

Instruction counts are the same on every run: exceeding such a budget is an error. Times depend on
what else the machine does: exceeding one is a warning.
"""

import pathlib
import sys

from measured import benchmarks, matches, medians

rows = []  # (what, goal, measured, verdict)
failed = False


WITHOUT_A_GPU = "no CUDA GPU"
WITHOUT_TORCH = "no torch in Python"
LEFT_OUT = "its benchmark did not run"


def at_most(what, measured, goal, unit, is_counted=False):
    global failed
    holds = measured <= goal
    failed |= is_counted and not holds
    verdict = "holds" if holds else "MISSED" if is_counted else "missed, by the clock"
    rows.append((what, f"at most {goal:g} {unit}", f"{measured:.1f} {unit}", verdict))


def at_least(what, measured, goal):
    rows.append((what, f"at least {goal:g}x", f"{measured:.2f}x",
                 "holds" if measured >= goal else "missed, by the clock"))


def not_measured(what, goal, why):
    rows.append((what, goal, "-", f"not measured: {why}"))


counts = matches("instructions.txt",
                 r"^(.+?) +\d+ +\d+ +([-+][\d.]+) (%|instructions) \(at most ([\d.]+)\)")
for what, more, unit, budget in counts:
    at_most(f"instructions: {what}", float(more), float(budget), unit, is_counted=True)
if not counts:
    not_measured("instructions of each checked function", "at most 1 %", "no valgrind")

fronts = matches("compile_time.txt", r"^(\S+) +[\d.]+ +([\d.]+)x$")
for what, ratio in fronts:
    if what != "torch/torch.h":
        goal = 20 if what == "device.hpp" else 5
        at_least(f"compile time: torch/torch.h over {what}", float(ratio), goal)
if not fronts:
    not_measured("compile time of the headers", "at least 5x", "left out by --quick")

starts = medians("start_time.txt")
has_driver = pathlib.Path("/proc/driver/nvidia/version").exists()
if "python" in starts:
    # To open a driver takes tens of milliseconds, which nvidia-smi needs too.
    at_least(f"start {'with' if has_driver else 'without'} a driver: `import torch` in Python over 01_nvidia_smi",
             starts["python"] / starts["01_nvidia_smi"], 10 if has_driver else 50)
else:
    not_measured("start: `import torch` in Python over 01_nvidia_smi", "at least 50x", WITHOUT_TORCH)
if "nvidia-smi" in starts:
    at_least("start with a driver: nvidia-smi over 01_nvidia_smi",
             starts["nvidia-smi"] / starts["01_nvidia_smi"], 1)
else:
    not_measured("start with a driver: nvidia-smi over 01_nvidia_smi", "at least 1x", "no nvidia-smi that works")

small = medians("small_operations.txt")
for name in [name.removeprefix("C++ ") for name in small if name.startswith("C++ ")]:
    ratio = small[f"Python {name}"] / small[f"C++ {name}"]
    at_least(f"small operations: {name}, Python over C++", ratio, 1.8)
if not small:
    not_measured("small operations: Python over C++", "at least 1.8x", WITHOUT_TORCH)

two_gpus, _ = benchmarks("two_gpus")
for (device, n, way), times in two_gpus.items():
    if way == "parallel_on" and n != "16":
        what = f"two products of {n} on {device}"
        if not {(device, n, "bare threads"), (device, n, "in sequence")} <= two_gpus.keys():
            not_measured(what, "-", "a result was wrong")
            failed = True
            continue
        bare, alone = two_gpus[device, n, "bare threads"], two_gpus[device, n, "in sequence"]
        at_least(f"{what}: bare threads over parallel_on", bare.median / times.median, 0.95)
        if device.startswith("cuda") and " and " in device:
            at_least(f"{what}: one over both", alone.median / times.median, 1.9)
if not two_gpus:
    not_measured("two products on cpu: bare threads over parallel_on", "at least 0.95x", LEFT_OUT)
if not any(device.startswith("cuda") and " and " in device for device, _, _ in two_gpus):
    not_measured("two products of 8192 on two GPUs: one over both", "at least 1.9x", "fewer than two CUDA GPUs")

norm_log, _ = benchmarks("norm_log")
for device in dict.fromkeys(device for device, _ in norm_log):
    ways = {way: times.median for (where, way), times in norm_log.items() if where == device}
    needed = {"one result at a time", "MetricLog", "select and copy_ by hand", "no log", "batched",
              "memory traffic alone"}
    if not needed | ({"CUDA graph"} if device.startswith("cuda") else set()) <= ways.keys():
        not_measured(f"norms on {device}", "-", "a result was wrong")
        failed = True
        continue
    log, by_hand, alone = (ways[way] for way in ("MetricLog", "select and copy_ by hand", "one result at a time"))
    if device == "cpu":
        more = 100 * (log / alone - 1)
        at_most("norms on cpu: MetricLog over one at a time", more, 3, "%")
    elif device.startswith("cuda"):
        at_most(f"norms on {device}: MetricLog over select and copy_ by hand", 100 * (log / by_hand - 1), 5, "%")
        # A step launches a product, a norm, and for the log one copy more.
        at_most(f"norms on {device}: MetricLog over no log", 100 * (log / ways["no log"] - 1), 50, "%")
        for way, time in (("MetricLog::push", log), ("select and copy_ by hand", by_hand)):
            rows.append((f"norms on {device}: {way}, each", "-",
                         f"{1e6 * (time - ways['no log']) / 1000:.2f} us", "for comparison"))
        at_least(f"norms on {device}: one at a time over batched", alone / ways["batched"], 200)
        at_most(f"norms on {device}: batched over its memory traffic alone",
                ways["batched"] / ways["memory traffic alone"], 3, "x")
        # A replay still runs the kernels one after the other; it saves their launches and waits.
        at_least(f"norms on {device}: one at a time over a graph", alone / ways["CUDA graph"], 3)
if not norm_log:
    not_measured("norms on cpu: MetricLog over one at a time", "at most 3 %", LEFT_OUT)
if not any(device.startswith("cuda") for device, _ in norm_log):
    for what, goal in (("MetricLog over select and copy_ by hand", "at most 5 %"),
                       ("MetricLog over no log", "at most 50 %"),
                       ("one at a time over batched", "at least 200x"),
                       ("batched over its memory traffic alone", "at most 3 x"),
                       ("one at a time over a graph", "at least 3x")):
        not_measured(f"norms on a GPU: {what}", goal, WITHOUT_A_GPU)

parameters, _ = benchmarks("parameters")
for where, size in dict.fromkeys((where, size) for where, _, _, size in parameters):
    time = {what: {way: parameters[where, what, way, size].median for way in ways}
            for what, ways in (("load", ("use_gpu", "torch")),
                               ("save", ("use_gpu", "torch", "torch and fsync")))}
    for what, way, goal in (("load", "torch", 1.5), ("save", "torch", 0.9),
                            ("save", "torch and fsync", 0.9)):
        at_least(f"{what} {size} on {where}: {way} over ours", time[what][way] / time[what]["use_gpu"],
                 goal)
if not parameters:
    not_measured("load and save: torch over ours", "at least 1.5x, 0.9x", LEFT_OUT)

apart = {what: float(time) for what, time in
         matches("communicator.txt", r"^(.+): median ([\d.e+-]+) ms")}
if apart:
    (where,), = matches("communicator.txt", r"^\d+ processes on (.+?), ")
    at_least(f"1,000 gradients, two processes on {where}: 1,000 all_reduces over average_gradients",
             apart["1,000 all_reduces"] / apart["average_gradients"], 5)
else:
    not_measured("1,000 gradients, two processes: 1,000 all_reduces over average_gradients", "at least 5x",
                 WITHOUT_TORCH)

steps = medians("data_parallel.txt")
if steps:
    what = "a training step, two processes on the CPU"
    at_least(f"{what}: Python's DistributedDataParallel over C++'s", steps["Python"] / steps["C++"], 0.95)
    at_least(f"{what}: average_gradients over DistributedDataParallel", steps["average_gradients"] / steps["C++"], 1)
else:
    not_measured("a training step, two processes: Python's DistributedDataParallel over C++'s", "at least 0.95x",
                 WITHOUT_TORCH)

matmul, _ = benchmarks("matmul")
for (where, n), times in matmul.items():
    ours = matmul.get((where.removesuffix(" cublasLt"), n))
    if where.endswith("bf16 cublasLt") and ours:
        at_least(f"product of {n} in bf16: bare cublasLt over ours", times.median / ours.median, 0.95)
if not any(where.endswith("bf16 cublasLt") for where, _ in matmul):
    not_measured("product of 8192 in bf16: bare cublasLt over ours", "at least 0.95x", WITHOUT_A_GPU)

widths = [max(len(row[i]) for row in rows) for i in range(3)]
print(f"{'budget':{widths[0]}}  {'goal':{widths[1]}}  {'measured':>{widths[2]}}")
for what, goal, measured, verdict in rows:
    print(f"{what:{widths[0]}}  {goal:{widths[1]}}  {measured:>{widths[2]}}  {verdict}")
sys.exit(failed)
