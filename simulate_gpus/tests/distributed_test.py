# SPDX-License-Identifier: MIT
"""LibTorch's own tests of torch.distributed by NCCL, which are in its wheel: each with a rank for each GPU.

Usage: simulate_gpus N python3 distributed_test.py [NAME...]
Without names a tenth of them; all, if TEST_SEED is set (sampling.py).
"""
import multiprocessing
import os
import sys
import tempfile
import time
import unittest
from collections import Counter

import torch

from sampling import sampled

SIZE = int(os.environ["SIMULATE_GPUS"])
FOLDER = tempfile.TemporaryDirectory(prefix="distributed_test.")
for folder in ("barrier", "test_dir", "init_dir"):
    os.mkdir(os.path.join(FOLDER.name, folder))
# What LibTorch's tests read when they are imported. A rank is a fork, before which nothing may initialize CUDA.
os.environ |= {"BACKEND": "nccl", "WORLD_SIZE": str(SIZE), "TEMP_DIR": FOLDER.name,
               "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "100", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
from torch.testing._internal import common_distributed  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

# It trains large convolutions: seconds on GPUs, here more than half an hour for each rank and core. Only by its name.
common_distributed.TIMEOUT_OVERRIDE["test_ddp_uneven_inputs"] = 6 * 3600
# Tests that are made for one number of ranks, and fail with another on real GPUs too.
MADE_FOR = {"test_ddp_profiling_execution_trace": 2}


class NcclTest(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)


class Result(unittest.TestResult):
    """Prints a line for each test, and what those said that failed."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()
        self.started = 0

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def tell(self, test, outcome, text=""):
        self.counts[outcome] += 1
        print(f"{outcome:8} {time.monotonic() - self.started:5.1f} s  {test._testMethodName}", flush=True)
        if text:
            print(text, flush=True)

    def addSuccess(self, test):
        self.tell(test, "passed")

    def addExpectedFailure(self, test, error):
        self.tell(test, "passed")

    def addSkip(self, test, reason):
        self.tell(test, "skipped")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.tell(test, "failed", self._exc_info_to_string(error, test))

    addError = addFailure


def main():
    names = unittest.defaultTestLoader.getTestCaseNames(NcclTest)
    names = [name for name in names if MADE_FOR.get(name, SIZE) == SIZE and name != "test_ddp_uneven_inputs"]
    names = sys.argv[1:] or sampled(names, 10)
    result = Result()
    unittest.TestSuite(NcclTest(name) for name in names).run(result)
    print(f"LibTorch {torch.__version__}, {SIZE} ranks:",
          ", ".join(f"{count} {outcome}" for outcome, count in sorted(result.counts.items())))
    sys.exit(0 if result.counts["passed"] and not result.counts["failed"] else 1)


main()
