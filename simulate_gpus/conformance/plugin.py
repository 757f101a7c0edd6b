# SPDX-License-Identifier: MIT
"""A plugin for pytest, in each process of a run: lists the tests of a file that use CUDA, or runs those that it is
told to, and writes what becomes of each to a file, line by line."""
import json
import os
import time

import pytest

import pytorch_2_6

LIST, TESTS, OUTCOMES = (os.environ.get(f"CONFORMANCE_{name}") for name in ("LIST", "TESTS", "OUTCOMES"))


def pytest_configure():
    pytorch_2_6.give_back()


def name_of(item):
    return item.nodeid.split("::", 1)[1]


def pytest_collection_modifyitems(items):
    if LIST:
        with open(LIST, "w") as file:
            json.dump([name_of(item) for item in items], file)
    if TESTS:
        with open(TESTS) as file:
            wanted = {name: place for place, name in enumerate(json.load(file))}
        items[:] = sorted((item for item in items if name_of(item) in wanted), key=lambda item: wanted[name_of(item)])


def tell(**what):
    with open(OUTCOMES, "a") as file:
        file.write(json.dumps(what) + "\n")


if OUTCOMES:
    started = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(nodeid):
        started[nodeid] = time.monotonic()
        tell(test=nodeid.split("::", 1)[1], outcome="started")

    def pytest_runtest_logreport(report):
        if report.when == "call" or not report.passed:
            text = "" if report.passed else str(report.longrepr)[-2000:]
            tell(test=report.nodeid.split("::", 1)[1], outcome="pass" if report.passed else "skip" if report.skipped else "fail",
                 seconds=round(time.monotonic() - started[report.nodeid], 1), text=text)
