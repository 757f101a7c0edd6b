# SPDX-License-Identifier: MIT
"""Every function of CUDA's runtime and driver that this LibTorch links to is defined by the simulated GPUs.

Usage: cuda_functions.py LIBTORCH_FOLDER SIMULATED_LIBRARIES_FOLDER
"""
import re
import subprocess
import sys
from pathlib import Path

RUNTIME = re.compile(r"(__)?cuda[A-Z]\w+")
# Functions of NVIDIA's other libraries begin with "cu" too (cublasCreate); the driver's go on with a capital (cuInit).
DRIVER = re.compile(r"cu[A-Z]\w+")
OF_OTHERS = re.compile(r"cu(pti|blas|dnn|fft|rand|solver|sparse|File|dss)")


def symbols(library, *which):
    listed = subprocess.run(["nm", "--dynamic", *which, library], check=True, text=True, capture_output=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines()}


def main(libtorch, simulated):
    called = set()
    for library in Path(libtorch).glob("*.so"):
        called |= symbols(library, "--undefined-only")
    defined = set()
    for library in Path(simulated).glob("lib*.so.*"):
        defined |= symbols(library, "--defined-only")
    wanted = {name for name in called if RUNTIME.fullmatch(name) or
              (DRIVER.fullmatch(name) and not OF_OTHERS.match(name))}
    missing = sorted(wanted - defined)
    if len(wanted) < 80 or missing:
        sys.exit(f"LibTorch calls {len(wanted)} functions; not defined: {', '.join(missing) or 'none'}. What cannot be "
                 "simulated belongs into src/simulated_cuda/runtime/not_offered.cpp or driver_not_offered.cpp")
    print(f"{len(wanted)} functions that LibTorch calls, all defined")


main(*sys.argv[1:])
