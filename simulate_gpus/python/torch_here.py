# SPDX-License-Identifier: MIT
"""The wheel's version and dependency, which name the torch of the environment that builds it."""

import importlib.metadata
import re
from pathlib import Path


def dynamic_metadata(settings, project):
    del settings, project
    try:
        torch = importlib.metadata.version("torch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(
            "simulate_gpus is built against the torch of your environment, and there is none. "
            "Install torch, then: pip install --no-build-isolation simulate_gpus"
        ) from None
    lists = Path(__file__).parent.parent / "CMakeLists.txt"
    version = re.search(r"project\(simulate_gpus VERSION (\S+)", lists.read_text())[1]
    return {"version": f"{version}+torch{torch}", "dependencies": [f"torch=={torch}"]}
