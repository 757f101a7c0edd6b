# SPDX-License-Identifier: MIT
"""Every function of CUDA and NCCL that LibTorch links to, and every function of the driver that it, NVIDIA's libraries and
Triton look up, is defined by the simulated GPUs or refused in an error that names it.

Usage: cuda_functions.py LIBTORCH_FOLDER LIBRARIES_FOLDER
"""
import ctypes
import re
import subprocess
import sys
from pathlib import Path

RUNTIME = re.compile(r"(__)?cuda[A-Z]\w+")
NCCL = re.compile(r"nccl[A-Z]\w+")
# Functions of NVIDIA's other libraries begin with "cu" too (cublasCreate); the driver's go on with a capital (cuInit).
DRIVER = re.compile(r"cu[A-Z]\w+")
OF_OTHERS = re.compile(r"cu(pti|blas|dnn|fft|rand|solver|sparse|File|dss)")


def symbols(library, *which):
    listed = subprocess.run(["nm", "--dynamic", *which, library], check=True, text=True, capture_output=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines()}


# What a look-up asks for is a string. Other strings are made of the same letters, but do not go on with a noun of the
# driver. "_fn", "_t" end the names of types and variables.
LOOKED_UP = re.compile(rb"\0(cu(?:Array|Ctx|DevSm|DevResource|Device|Driver|Event|Func|Get|GreenCtx|Graph|Init|Ipc|Kernel|"
                       rb"Launch|Library|Link|Mem[A-Z]|Mipmapped|Module|Multicast|Occupancy|Pointer|Profiler|Stream|Surf|Tensor|"
                       rb"Tex)\w*)(?=\0)")
NO_FUNCTION = re.compile(r".*_(fn|t|st|params|ptsz|ptds)")
# Triton 3.6's, which is not in LibTorch's wheel: triton/backends/nvidia/driver.{c,py}
OF_TRITON = """cuCtxGetCurrent cuCtxGetLimit cuCtxSetCurrent cuCtxSetLimit cuDeviceGet cuDeviceGetAttribute
cuDevicePrimaryCtxRetain cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig cuGetErrorString cuLaunchKernelEx
cuModuleGetFunction cuModuleLoadData cuOccupancyMaxActiveClusters cuPointerGetAttribute cuTensorMapEncodeTiled""".split()


def looked_up(libtorch):
    names = set(OF_TRITON)
    for library in [*libtorch.glob("*.so"), *libtorch.parents[1].glob("nvidia/**/lib*.so.*")]:
        if "cupti" not in library.name:  # a profiler, which knows the functions of all systems
            names |= {name.decode() for name in LOOKED_UP.findall(library.read_bytes())}
    return {name for name in names if not NO_FUNCTION.fullmatch(name)}


class Nccl:
    def __init__(self, simulated):
        self.library = ctypes.CDLL(simulated / "libnccl.so.2")
        self.library.ncclGetLastError.restype = ctypes.c_char_p

    def refuses(self, name):
        code = self.library[name]()
        return code == 5 and self.library.ncclGetLastError(None).decode() == f"{name} is not offered by simulated GPUs"


class Driver:
    def __init__(self, simulated):
        for runtime in simulated.glob("libcudart.so.*"):
            ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(simulated / "libcuda.so.1")

    def text(self, code):
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(code, ctypes.byref(text))
        return (text.value or b"").decode()

    def is_served(self, name):
        """Whether it can be called, or the look-up's error names it."""
        function = ctypes.c_void_p()
        code = self.library.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), 13000, ctypes.c_uint64(0), None)
        return bool(function) if code == 0 else code == 500 and name in self.text(code)

    def refuses(self, name):
        code = self.library[name]()
        return code == 801 and f": {name} is not offered by simulated GPUs" in self.text(code)


def check(what, names, is_right, least):
    wrong = sorted(name for name in names if not is_right(name))
    if wrong or len(names) < least:
        sys.exit(f"{len(names)} functions that {what}; wrong: {', '.join(wrong) or 'none'}")
    print(f"{len(names)} functions that {what}")


def refused(library, prefix):
    # Weak is what no source but not_offered.cpp defines.
    listed = subprocess.run(["nm", "--dynamic", library], check=True, text=True, capture_output=True).stdout
    return re.findall(rf" W ({prefix}\w+)", listed)


def main(libtorch, simulated):
    called = set()
    for library in libtorch.glob("*.so"):
        called |= symbols(library, "--undefined-only")
    defined = set()
    for library in simulated.glob("lib*.so.*"):
        defined |= symbols(library, "--defined-only")
    wanted = {name for name in called if RUNTIME.fullmatch(name) or
              (DRIVER.fullmatch(name) and not OF_OTHERS.match(name))}
    check("LibTorch calls: defined (else into simulate_gpus/runtime/not_offered.cpp)", wanted, defined.__contains__, 80)

    driver = Driver(simulated)
    check("are looked up: defined, or the look-up's error names them", looked_up(libtorch), driver.is_served, 200)
    check("are refused by name", refused(simulated / "libcuda.so.1", "cu"), driver.refuses, 400)
    if (simulated / "libnccl.so.2").exists():
        wanted = {name for name in called if NCCL.fullmatch(name)}
        check("LibTorch calls of NCCL: defined", wanted, defined.__contains__, 30)
        check("of NCCL are refused by name", refused(simulated / "libnccl.so.2", "nccl"), Nccl(simulated).refuses, 4)


main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
