# SPDX-License-Identifier: MIT
"""pytest --simulate-gpus 2 runs the tests on simulated GPUs; @pytest.mark.gpus(2) asks for GPUs, real or simulated."""

import os
import sys
from importlib.metadata import files

import pytest


def pytest_addoption(parser):
    parser.getgroup("simulate_gpus").addoption(
        "--simulate-gpus",
        type=int,
        metavar="COUNT",
        help="run the tests on that many simulated GPUs (0 to 16; 0 hides real ones)",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "gpus(count): skips the test where fewer CUDA GPUs are there"
    )


# Before pytest captures output and before any conftest is read: the process begins again.
@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_load_initial_conftests(early_config):
    count = early_config.known_args_namespace.simulate_gpus
    if count is not None and os.environ.get("SIMULATE_GPUS") != str(count):
        program = next(
            file.locate() for file in files("simulate_gpus") if file.match("bin/simulate_gpus")
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(program, [program, str(count), sys.executable, *sys.orig_argv[1:]])
    yield


def pytest_runtest_setup(item):
    for mark in item.iter_markers("gpus"):
        if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], int):
            raise pytest.UsageError(
                f"{item.nodeid}: expected @pytest.mark.gpus(COUNT), found {mark}"
            )
        import torch

        found = torch.cuda.device_count()
        if found < mark.args[0]:
            pytest.skip(
                f"{mark.args[0]} GPUs needed, {found} found; "
                f"pytest --simulate-gpus {mark.args[0]} has them"
            )
