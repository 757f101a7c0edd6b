# SPDX-License-Identifier: MIT
"""Draws what scripts/bench measured into docs/plots/."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from measured import KERNELS, PEERS, ROOT, TO_GPU, TO_HOST, WAITS, benchmarks, tables

plt.rcParams.update({"font.size": 13, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
                     "lines.linewidth": 2, "figure.figsize": (8, 5.4), "savefig.dpi": 150})

# One colour has one meaning in all plots: a device, a way for bytes to travel.
DEVICES = {"cpu": "C0", "cuda:0": "C1", "cuda:1": "C5"}
WAYS = ["C2", "C6", "C8", "C9"]


def color_of(where):
    """where: begins with a device's name."""
    return next((color for device, color in DEVICES.items() if where.startswith(device)), "C7")


def start(title, context):
    """A figure with its title, and where and when it was measured."""
    figure, axes = plt.subplots(layout="constrained")
    figure.suptitle(title, fontsize=16)
    axes.set_title(f"{context['machine']}\n{context['date'][:10]}; medians and the middle half of all runs",
                   fontsize=12, loc="right")
    return figure, axes


def line(axes, points, label, **style):
    """points: (x, middle, one edge, the other edge)"""
    x, middle, one, other = zip(*sorted(points))
    drawn, = axes.plot(x, middle, **{"marker": "o", "markersize": 5, "label": label, **style})
    axes.fill_between(x, one, other, alpha=0.2, color=drawn.get_color())


def matmul(times, context):
    figure, axes = start("Small products take as long as a call, large ones grow with n³", context)
    for where in dict.fromkeys(where for where, _ in times):
        points = [(int(n), *(1e6 * seconds for seconds in time))
                  for (w, n), time in times.items() if w == where]
        style = "--" if "tf32" in where else "-." if "cublasLt" in where else ":" if "bf16" in where else "-"
        line(axes, points, where, color=color_of(where), linestyle=style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set(xlabel="rows and columns, n (logarithmic)", ylabel="time of one product (µs, logarithmic)")
    axes.legend()
    return figure


def transfer(times, context):
    figure, axes = start("One large copy is faster than a thousand small ones", context)
    cross = {"markersize": 12, "markeredgecolor": "black"}
    for color, way in enumerate(dict.fromkeys(way for _, way, _, _ in times)):
        one, many = {}, {}
        for (_, w, count, size), time in times.items():
            if w == way:
                total = int(count) * int(size)
                (one if count == "1" else many)[total] = [total / seconds / 1e9 for seconds in time]
        line(axes, [(total, *rates) for total, rates in one.items()], way, color=WAYS[color],
             linestyle=["-", "--", ":", "-."][color % 4])
        for total, rates in many.items():
            axes.plot(total, rates[0], "X", color=WAYS[color], **cross)
    axes.plot([], [], "X", color="white", label="1000 copies of 4 KiB", **cross)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = {2: "4 B", 10: "1 KiB", 20: "1 MiB", 30: "1 GiB"}
    axes.set_xticks([2**power for power in ticks], ticks.values())
    axes.set(xlabel="bytes in all (logarithmic)", ylabel="bandwidth (GB/s, logarithmic)")
    axes.legend(loc="lower right")
    return figure


def bars(figure, axes, rows, text):
    """rows: (label, (value, low, high), color)"""
    figure.set_figheight(2 + 0.5 * len(rows))
    for place, (_, (value, low, high), color) in enumerate(rows):
        errors = [[value - low], [high - value]]
        drawn = axes.barh(place, value, color=color, xerr=errors, capsize=3)
        axes.bar_label(drawn, [text.format(value)], padding=6)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.25)


def norm_log(times, context):
    figure, axes = start("A log costs nothing where nothing waits, on the CPU" if {device for device, _ in times} == {"cpu"}
                         else "A log saves the waits for 1000 norms", context)
    rows = [(f"{way}\n{device}", [1e3 * seconds for seconds in time], color_of(device))
            for (device, way), time in times.items()]
    bars(figure, axes, rows, "{:.3g} ms")
    axes.set(xlabel="time of 1000 products of 100 x 100, and their norms (ms)")
    return figure


def two_gpus(times, context):
    figure, axes = start("Two products at once, by parallel_on and by bare threads", context)
    rows = []
    for (device, n, way), time in times.items():
        if way != "in sequence":
            alone = times[device, n, "in sequence"].median
            speedups = [alone / seconds for seconds in (time.median, time.high, time.low)]
            rows.append((f"{way}, n = {n}\n{device}", speedups, color_of(device)))
    bars(figure, axes, rows, "{:.2f}")
    axes.axvline(1, color="gray", zorder=0)
    axes.set(xlabel="speed-up of two products over one after the other")
    return figure


def calls(title, rows):
    """rows: (way, {column of benchmarks/calls: how many}); the same on every machine."""
    columns = {"kernels, and copies on the GPU": (KERNELS, "kernels", "on device"), "copies to the GPU": (TO_GPU, "to device"),
               "copies to the host": (TO_HOST, "to host"), "copies between GPUs": (PEERS, "peers"),
               "waits of the host": (WAITS, "waits")}
    drawn = {name: [sum(counts[column] for column in those) for _, counts in rows]
             for name, (_, *those) in columns.items()}
    drawn = {name: numbers for name, numbers in drawn.items() if any(numbers)}
    figure, axes = plt.subplots(layout="constrained", figsize=(8, 2.4 + 0.75 * len(rows)))
    figure.suptitle(title, fontsize=16)
    axes.set_title("counted on a simulated GPU, for which times mean nothing", fontsize=12, loc="right")
    height = 0.8 / len(drawn)
    for i, (name, numbers) in enumerate(drawn.items()):
        places = [row + (i - (len(drawn) - 1) / 2) * height for row in range(len(rows))]
        bars_of_all = axes.barh(places, numbers, height, label=name, color=columns[name][0])
        axes.bar_label(bars_of_all, [str(number or "") for number in numbers], padding=4, fontsize=10)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
    axes.set_xlim(0, 10000)
    axes.set_xlabel("how many (logarithmic from 1 on)")
    axes.set_yticks(range(len(rows)), [way for way, _ in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower right", ncols=2)
    return figure


folder = ROOT / "docs/plots"
folder.mkdir(parents=True, exist_ok=True)
for draw in (matmul, norm_log, transfer, two_gpus):  # the last two are about GPUs: none of a CPU alone
    times, context = benchmarks(draw.__name__)
    if times and (draw in (matmul, norm_log) or any("cuda" in part for name in times for part in name)):
        draw(times, context).savefig(folder / f"{draw.__name__}.png")
        print(f"drawn: docs/plots/{draw.__name__}.png")

FINDINGS = {"Exercise 2": "1000 parameters of 8 x 8: one copy and one wait",
            "Several devices": "1000 parameters of 8 x 8 to other devices: few copies",
            "Exercise 3": "1000 norms: a log waits 4 times, item() 1000 times"}
for title, rows in tables("calls.txt").items():
    exercise = title.split(":")[0]
    if exercise not in FINDINGS:
        continue
    name = "calls_" + exercise.lower().replace(" ", "_")
    calls(FINDINGS[exercise], rows).savefig(folder / f"{name}.png")
    print(f"drawn: docs/plots/{name}.png")
