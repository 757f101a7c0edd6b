# SPDX-License-Identifier: MIT
"""A plugin for pytest, in each process of a run: draws tests of a file, or takes those that it is told, runs them, and
writes what becomes of each to a file, line by line."""
import fnmatch
import json
import os
import random
import time

import pytest

import pytorch_2_6

ORDER, OUTCOMES = (os.environ.get(f"CONFORMANCE_{name}") for name in ("ORDER", "OUTCOMES"))
started = {}


def pytest_configure(config):
    if "test_cuda_nvml_based_avail.py" not in config.args:  # it needs nothing, and must be the first to use CUDA
        pytorch_2_6.give_back()


def name_of(nodeid):
    return nodeid.split("::", 1)[1]


def tell(**what):
    with open(OUTCOMES, "a") as file:
        file.write(json.dumps(what) + "\n")


def drawn(names, of, most, seed, patterns):
    """At most so many of the names that contain one of the words, and match one of the patterns. More of them are these, and
    others."""
    names = sorted(x for x in names if not of or any(word in x.lower() for word in of.split()))
    tell(count=len(names))
    names = [x for x in names if any(fnmatch.fnmatchcase(x, pattern) for pattern in patterns)]
    random.Random(seed).shuffle(names)
    return names[:most]


def pytest_collection_modifyitems(session, items):
    if session.testsfailed:  # the file cannot be read
        return
    with open(ORDER) as file:
        order = json.load(file)
    of_name = {name_of(item.nodeid): item for item in items}
    names = order["tests"] if "tests" in order else drawn(of_name, **order["draw"])
    names = [x for x in names if x in of_name and x not in order["done"]]
    tell(tests=names)
    items[:] = [of_name[x] for x in names]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid):
    started[nodeid] = time.monotonic()
    tell(test=name_of(nodeid), outcome="started")


def pytest_runtest_logreport(report):
    if isinstance(report, pytest.SubtestReport) and report.passed:  # the test goes on
        return
    if report.when == "call" or not report.passed:
        text = "" if report.passed else str(report.longrepr)[-2000:]
        tell(test=name_of(report.nodeid), outcome="pass" if report.passed else "skip" if report.skipped else "fail",
             seconds=round(time.monotonic() - started[report.nodeid], 1), text=text)
