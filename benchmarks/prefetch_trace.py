# SPDX-License-Identifier: MIT
"""Draws docs/plots/prefetch_trace.png from two traces: a training loop without and with prefetch on a simulated GPU.

Usage: prefetch_trace.py SIMULATE_GPUS        (build/release/simulate_gpus/bin/simulate_gpus)
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from measured import KERNELS, ROOT, TO_GPU, WAITS

PROGRAM = """
import sys, torch
net = torch.nn.Sequential(torch.nn.Linear(48, 48), torch.nn.ReLU(), torch.nn.Linear(48, 1)).cuda()
side, compute = torch.cuda.Stream(), torch.cuda.current_stream()
def batches():
    for i in range(4):
        yield torch.rand(64, 48)
def prefetched():  # one batch ahead
    ready = None
    for host in [*batches(), None]:
        done, ready = ready, None
        if host is not None:
            with torch.cuda.stream(side):
                ready = host.pin_memory().to("cuda", non_blocking=True), side.record_event()
        if done:
            compute.wait_event(done[1])
            done[0].record_stream(compute)
            yield done[0]
torch.cuda.synchronize()
for x in prefetched() if "prefetch" in sys.argv else (host.cuda() for host in batches()):
    net(x).square().mean().backward()
torch.cuda.synchronize()
"""

COLORS = {"copy": TO_GPU, "operation": KERNELS, "wait": WAITS}


def trace(*arguments):
    """The slices and arrows between the two synchronizations, and how many units those are apart."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        subprocess.run([sys.argv[1], f"--trace={file}", "1", sys.executable, "-c", PROGRAM, *arguments], check=True)
        events = json.loads(file.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    begin, end = (e["ts"] + e["dur"] for e in events if e.get("args", {}).get("kind") == "device synchronization")
    return [dict(e, ts=e["ts"] - begin, row=names[e["pid"], e["tid"]]) for e in events
            if e["ph"] in "Xsf" and begin <= e["ts"] < end], end - begin


def draw(axes, title, drawn):
    height = {row: -place for place, row in enumerate(["thread 0", "stream 0", "stream 1"])
              if any(e["row"] == row for e in drawn)}
    for piece in drawn:
        if piece["ph"] == "X" and piece["cat"] in COLORS and piece["row"] in height:
            axes.barh(height[piece["row"]], piece["dur"], 0.7, piece["ts"], color=COLORS[piece["cat"]],
                      edgecolor="white", linewidth=0.4)
    ends = {e["id"]: e for e in drawn if e["ph"] == "f"}
    for start in drawn:
        if start["ph"] == "s" and start["id"] in ends:
            end = ends[start["id"]]
            axes.annotate("", (end["ts"], height[end["row"]] - 0.35), (start["ts"], height[start["row"]] + 0.35),
                          arrowprops={"arrowstyle": "->", "linewidth": 1.2})
    axes.set_yticks([*height.values()], [row.replace("thread 0", "host") for row in height])
    axes.set_title(title, fontsize=12, loc="left")
    axes.grid(axis="y", visible=False)


plt.rcParams.update({"font.size": 11, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True, "savefig.dpi": 130})
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(9, 4), height_ratios=[2, 3], layout="constrained")
for axes, title, arguments in ((above, "each batch is copied when it is needed", ()),
                               (below, "prefetch: the next batch travels in a stream of its own", ("prefetch",))):
    drawn, length = trace(*arguments)
    draw(axes, f"{title}: {length:,} units", drawn)
    axes.axvline(length, color="black", linewidth=1)
below.set_xlabel("units, not times: a byte of a copy is 1, any other operation 1,000")
below.xaxis.set_major_formatter("{x:,.0f}")
below.set_xlim(0)
marks = [plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS.values()]
figure.legend(marks, ["copy", "operation", "wait"], loc="outside upper right", ncols=3)
figure.savefig(ROOT / "docs/plots/prefetch_trace.png")
print("drawn: docs/plots/prefetch_trace.png")
