# SPDX-License-Identifier: MIT
"""Runs the Python of docs/chapter.md and docs/cookbook.md, all steps of a page in order, as one program; with it the
steps must leave the devices that the pages speak of.

Usage: chapter_python.py GPUS
"""
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"SKIPPED: {missing}; scripts/setup --dev installs it")
    sys.exit(77)

DOCS = Path(__file__).resolve().parents[2] / "docs"
STEP = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_page(page):
    """What the steps define, and what they print."""
    names, printed = {}, io.StringIO()
    text = (DOCS / page).read_text()
    for step in STEP.finditer(text):
        above = text.count("\n", 0, step.start(1))  # so that an error names the page's line
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * above + step[1], page, "exec"), names)
    return names, printed.getvalue()


gpus = int(sys.argv[1])
assert torch.cuda.device_count() == gpus, torch.cuda.device_count()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    names, printed = run_page("chapter.md")
    devices = [torch.device("cuda", i) for i in range(gpus)] or [torch.device("cpu")]
    second = devices[1] if gpus > 1 else torch.device("cpu")
    assert names["try_all_gpus"]() == devices
    assert names["try_gpu"](10).type == "cpu"
    assert (names["X"].device, names["Z"].device, names["Y"].device) == (devices[0], second, second)
    assert names["trainer"].model.weight.device == devices[0]
    assert [part.tolist() for part in names["data"]] == [[[3, 3]]] * 2
    assert all(abs(a - b) < 4e-6 * a for a, b in zip(names["slow"], names["fast"].tolist()))
    assert ("Expected all tensors to be on the same device" in printed) == (devices[0] != second), printed

    net = torch.nn.Linear(2, 2)
    net.bias = torch.nn.Parameter(net.weight[0])
    torch.save(net.state_dict(), "net.pt")
    names, _ = run_page("cookbook.md")
    assert all(torch.equal(load_file("net.safetensors")[name], x) for name, x in net.state_dict().items())
print(f"the Python of the pages ran with {gpus} GPUs")
