# SPDX-License-Identifier: MIT
"""The wheel: built by pip, installed into an environment of its own, beside this Python's torch; what the page says of
it, and its plugin for pytest.

Usage: wheel.py FOLDER [--network ADDRESS]
       --network  does all that the page's recipe does, in an empty environment: ADDRESS is the repository's for git
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SUITE = """
import pytest, torch

@pytest.mark.gpus(2)
def test_second_gpu():
    assert torch.ones(3, device="cuda:1").sum().item() == 3

def test_count(pytestconfig):
    assert torch.cuda.device_count() == (pytestconfig.getoption("--simulate-gpus") or 0)
"""


def check(condition, *what):
    if not condition:
        sys.exit("failed: " + "\n".join(map(str, what)))


def run(*command, status=0, **more):
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
    check(ran.returncode == status, command, f"exit status {ran.returncode}:", ran.stdout, ran.stderr)
    return ran.stdout + ran.stderr


def recipe():
    """The shell lines of the page's recipe for GitHub."""
    block = re.search(r"```yaml\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)[1]
    return re.findall(r"- run: (.*)", block)


folder = Path(sys.argv[1]).resolve()
shutil.rmtree(folder, ignore_errors=True)
environment = folder / "environment"
python = environment / "bin/python"
launcher = environment / "bin/simulate_gpus"
(folder / "suite").mkdir(parents=True)
(folder / "suite/test_gpus.py").write_text(SUITE)
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
os.environ["PATH"] = f"{environment / 'bin'}:{os.environ['PATH']}"

if "--network" in sys.argv:
    venv.create(environment, with_pip=True)
    for line in recipe():
        print("$", line, flush=True)
        shell = line.replace("<address of this repository>", sys.argv[sys.argv.index("--network") + 1])
        print(run("sh", "-ec", shell, cwd=folder / "suite").splitlines()[-1], flush=True)
    sys.exit()
if not all(map(importlib.util.find_spec, ("scikit_build_core", "pytest", "torch"))):
    print("SKIPPED: this Python lacks scikit_build_core, pytest or torch")
    sys.exit(77)

run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder,
    "--config-settings", f"build-dir={folder}/build", PROJECT)
wheel = next(folder.glob("*.whl"))
check(wheel.stat().st_size <= 10 << 20, f"{wheel} has {wheel.stat().st_size} bytes")

venv.create(environment)
packages = next(environment.glob("lib/python3*/site-packages"))
beside = Path(importlib.util.find_spec("torch").origin).parents[1]
pytest = Path(importlib.util.find_spec("pytest").origin).parents[1]
(packages / "beside.pth").write_text(f"{beside}\n{pytest}\n")
run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)

count = "import torch; print(torch.cuda.device_count())"
check(run(launcher, 2, python, "-c", count).splitlines()[-1] == "2")
version = run(python, "-c", "import simulate_gpus; print(simulate_gpus.version)").strip()
check(f"-{version}-" in wheel.name, version, wheel.name)

suite = [python, "-m", "pytest", "-q", folder / "suite"]
check("2 passed" in run(*suite, "--simulate-gpus", 2))
check("1 passed, 1 skipped" in run(*suite, "--simulate-gpus=1"))
check("1 passed, 1 skipped" in run(*suite, "--simulate-gpus", 0))
without = run(*suite, "-rs", env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
check("2 GPUs needed, 0 found; pytest --simulate-gpus 2 has them" in without, without)
check("expected 0 to 16" in run(*suite, "--simulate-gpus", 17, status=2))
check("2 passed" in run(launcher, "--memory", "1GiB", 2, *suite, "--simulate-gpus", 2))
(folder / "suite/test_wrong.py").write_text("import pytest\n@pytest.mark.gpus('2')\ndef test_it(): pass\n")
check("expected @pytest.mark.gpus(COUNT)" in run(*suite, "--simulate-gpus", 1, status=1))
(folder / "suite/test_wrong.py").unlink()
check("2 passed" in run("sh", "-ec", f"{python} -m {recipe()[-1]}", cwd=folder / "suite"))

# A torch that pip would take for the right one: the same version, for the CPU.
torch = version.partition("+torch")[2]
other = packages / "torch/version.py"
other.parent.mkdir()
for text, said in [
    (f"__version__ = '{torch}+cpu'\ncuda: Optional[str] = None\n", f"torch {torch} without CUDA"),
    (f"__version__ = '{torch}+cu126'\ncuda: Optional[str] = '12.6'\n", f"torch {torch} for CUDA 12.6"),
    ("__version__ = '2.10.0+cu130'\ncuda: Optional[str] = '13.0'\n", "torch 2.10.0 for CUDA 13.0"),
]:
    other.write_text(text)
    refusal = run(launcher, 2, "true", status=2)
    check(said in refusal and refusal.count("\n") == 1 and len(refusal) <= 400, refusal)
print("The wheel was built, installed and used.")
