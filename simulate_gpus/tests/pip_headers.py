# SPDX-License-Identifier: MIT
"""That the simulator includes no header of a CUDA Toolkit that an installation by pip lacks (CCCL's, for one).

Usage: pip_headers.py BUILD_FOLDER, which Ninja has built against a CUDA Toolkit and a torch from PyPI.
"""
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

build = Path(sys.argv[1])
torch = importlib.util.find_spec("torch")
folders = list((Path(torch.origin).parents[1] / "nvidia").glob("*/include")) if torch else []
deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
checked, lacking = set(), []
for entry in deps.split("\n\n"):
    source, *headers = entry.splitlines() or [""]
    if re.match(r"(simulate_gpus/|CMakeFiles/simulate_gpus)(?!.*tests/)", source):
        for header in headers:
            found = re.search(r"/cuda[^/]*/(?:targets/[^/]*/)?include/(.*)", str((build / header.strip()).resolve()))
            # The command of the README asks for the package cuda-toolkit[crt], which has these.
            if found and not found[1].startswith("crt/"):
                checked.add(found[1])
                if not any((folder / found[1]).exists() for folder in folders):
                    lacking.append(f"{source.split(':')[0]} includes {found[1]}")
if not folders or not checked:
    print("SKIPPED: no torch from PyPI with CUDA, or no CUDA Toolkit")
    sys.exit(77)
print(f"{len(checked)} headers of CUDA are included")
sys.exit("\n".join(sorted(set(lacking))) or 0)
