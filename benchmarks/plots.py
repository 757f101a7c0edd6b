# SPDX-License-Identifier: MIT
"""Draws what scripts/bench measured into docs/plots/."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from measured import ROOT, benchmarks, tables

plt.rcParams.update({"font.size": 13, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
                     "lines.linewidth": 2, "figure.figsize": (8, 5.4), "savefig.dpi": 150})


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
    figure, axes = start("Product of two n x n matrices", context)
    for where in dict.fromkeys(where for where, _ in times):
        points = [(int(n), *(1e6 * seconds for seconds in time))
                  for (w, n), time in times.items() if w == where]
        line(axes, points, where)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set(xlabel="n", ylabel="time of one product (µs)")
    axes.legend()
    return figure


def transfer(times, context):
    figure, axes = start(f"Copies between host memory and {list(times)[0][0]}", context)
    cross = {"markersize": 12, "markeredgecolor": "black"}
    for color, way in enumerate(dict.fromkeys(way for _, way, _, _ in times)):
        one, many = {}, {}
        for (_, w, count, size), time in times.items():
            if w == way:
                total = int(count) * int(size)
                (one if count == "1" else many)[total] = [total / seconds / 1e9 for seconds in time]
        line(axes, [(total, *rates) for total, rates in one.items()], way, color=f"C{color}",
             linestyle=["-", "--", ":", "-."][color % 4])
        for total, rates in many.items():
            axes.plot(total, rates[0], "X", color=f"C{color}", **cross)
    axes.plot([], [], "X", color="white", label="1000 copies of 4 KiB", **cross)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = {2: "4 B", 10: "1 KiB", 20: "1 MiB", 30: "1 GiB"}
    axes.set_xticks([2**power for power in ticks], ticks.values())
    axes.set(xlabel="bytes in all", ylabel="bandwidth (GB/s)")
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
    figure, axes = start("1000 products of 100 x 100, and the norm of each", context)
    devices = list(dict.fromkeys(device for device, _ in times))
    rows = [(f"{way}\n{device}", [1e3 * seconds for seconds in time], f"C{devices.index(device)}")
            for (device, way), time in times.items()]
    bars(figure, axes, rows, "{:.3g} ms")
    axes.set(xlabel="time of all 1000 (ms)")
    return figure


def two_gpus(times, context):
    figure, axes = start("Two products at the same time", context)
    rows = []
    for (device, n, way), time in times.items():
        if way != "in sequence":
            alone = times[device, n, "in sequence"].median
            speedups = [alone / seconds for seconds in (time.median, time.high, time.low)]
            color = "C1" if way == "parallel_on" else "C0"
            rows.append((f"{way}, n = {n}\n{device}", speedups, color))
    bars(figure, axes, rows, "{:.2f}")
    axes.axvline(1, color="gray", zorder=0)
    axes.set(xlabel="speed-up over one after the other")
    return figure


def calls(title, rows):
    """rows: (way, {column of benchmarks/calls: how many}); the same on every machine."""
    columns = {"kernels, and copies on the GPU": ("kernels", "on device"), "copies to the GPU": ("to device",),
               "copies to the host": ("to host",), "copies between GPUs": ("peers",),
               "waits of the host": ("waits",)}
    drawn = {name: [sum(counts[column] for column in those) for _, counts in rows]
             for name, those in columns.items()}
    drawn = {name: numbers for name, numbers in drawn.items() if any(numbers)}
    figure, axes = plt.subplots(layout="constrained", figsize=(8, 2.4 + 0.75 * len(rows)))
    figure.suptitle(title, fontsize=16)
    axes.set_title("counted on a simulated GPU, for which times mean nothing", fontsize=12, loc="right")
    height = 0.8 / len(drawn)
    for i, (name, numbers) in enumerate(drawn.items()):
        places = [row + (i - (len(drawn) - 1) / 2) * height for row in range(len(rows))]
        bars_of_all = axes.barh(places, numbers, height, label=name)
        axes.bar_label(bars_of_all, [str(number or "") for number in numbers], padding=4, fontsize=10)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
    axes.set_xlim(0, 10000)
    axes.set_yticks(range(len(rows)), [way for way, _ in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower right", ncols=2)
    return figure


folder = ROOT / "docs/plots"
folder.mkdir(parents=True, exist_ok=True)
for draw in (matmul, norm_log, transfer, two_gpus):
    times, context = benchmarks(draw.__name__)
    if times:
        draw(times, context).savefig(folder / f"{draw.__name__}.png")
        print(f"drawn: docs/plots/{draw.__name__}.png")

for title, rows in tables("calls.txt").items():
    if ":" not in title:
        continue
    name = "calls_" + title.split(":")[0].lower().replace(" ", "_")
    calls(title, rows).savefig(folder / f"{name}.png")
    print(f"drawn: docs/plots/{name}.png")
