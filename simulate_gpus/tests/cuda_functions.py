# SPDX-License-Identifier: MIT
"""Every function of CUDA's runtime, every one of NCCL and CUPTI that LibTorch links to, and every function of the driver that it,
NVIDIA's libraries and Triton look up, is defined by the simulated GPUs or refused in an error that names it. The first refusal
of each function is told on stderr.

Usage: cuda_functions.py LIBTORCH_FOLDER LIBRARIES_FOLDER
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RUNTIME = re.compile(r"(__)?cuda[A-Z]\w+")
NCCL = re.compile(r"nccl[A-Z]\w+")
CUPTI = re.compile(r"cupti[A-Z]\w+")
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


# What real cards lack too; see simulate_gpus/nvml/not_offered.cpp.
LACKED_BY_CARDS = ["nvmlDevice" + name for name in """
GetBoardPartNumber GetComputeInstanceId GetConfComputeMemSizeInfo GetDeviceHandleFromMigDeviceHandle GetDriverModel
GetDriverModel_v2 GetFanSpeed GetFanSpeed_v2 GetGpuFabricInfo GetGpuFabricInfoV GetGpuInstanceId
GetMigDeviceHandleByIndex GetMigMode GetNvLinkCapability GetNvLinkRemoteDeviceType GetNvLinkRemotePciInfo
GetNvLinkRemotePciInfo_v2 GetNvLinkState GetNvLinkVersion GetSerial""".split()]


class Runtime:
    """Asked in a process that sees a GPU: else all functions fail, as there is none."""

    def __init__(self, simulated):
        self.library = ctypes.CDLL(next(simulated.glob("libcudart.so.*")), mode=ctypes.RTLD_GLOBAL)
        self.library.cudaGetErrorString.restype = ctypes.c_char_p

    def refuses(self, name):
        code = self.library[name]()
        return code == 801 and self.library.cudaGetErrorString(code).decode().endswith(f": {name} is not offered by simulated GPUs")


class Nvml:
    def __init__(self, simulated):
        self.library = ctypes.CDLL(simulated / "libnvidia-ml.so.1")

    def refuses(self, name):
        return self.library[name]() == 3


class Nccl:
    def __init__(self, simulated):
        self.library = ctypes.CDLL(simulated / "libnccl.so.2")
        self.library.ncclGetLastError.restype = ctypes.c_char_p

    def refuses(self, name):
        code = self.library[name]()
        return code == 5 and self.library.ncclGetLastError(None).decode() == f"{name} is not offered by simulated GPUs"


class Cupti:
    def __init__(self, simulated):
        self.library = ctypes.CDLL(next(simulated.glob("libcupti.so.*")))

    def refuses(self, name):
        return self.library[name]() == 27


class Driver:
    def __init__(self, simulated):
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


class Said:
    """What this process has on stderr while it is open."""

    def __enter__(self):
        self.file, self.before = tempfile.TemporaryFile(), os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        os.dup2(self.before, 2)
        self.file.seek(0)
        self.lines = self.file.read().decode().splitlines()


def version(runtime):
    number = ctypes.c_int()
    ctypes.CDLL(runtime).cudaRuntimeGetVersion(ctypes.byref(number))
    return number.value


def check_refusals(library, names, simulated, least, silent=()):
    """Twice: the second time nothing is said."""
    with Said() as said:
        check(f"{library} refuses by name", names, simulated.refuses, least)
        check(f"{library} refuses again", names, simulated.refuses, least)
    expected = [f"simulate_gpus: {name} is not offered by simulated GPUs" for name in names if name not in silent]
    if sorted(said.lines) != sorted(expected):
        sys.exit(f"{library} does not say once: {sorted(set(said.lines) ^ set(expected)) or 'some'}")


def main(libtorch, simulated):
    called = set()
    for library in libtorch.glob("*.so"):
        called |= symbols(library, "--undefined-only")
    defined = set()
    for library in simulated.glob("lib*.so.*"):
        defined |= symbols(library, "--defined-only")
    wanted = {name for name in called if RUNTIME.fullmatch(name) or
              (DRIVER.fullmatch(name) and not OF_OTHERS.match(name))}
    check("LibTorch calls: defined", wanted, defined.__contains__, 80)
    for library in libtorch.parents[1].glob("nvidia/**/libcudart.so.*"):
        wanted = {name for name in symbols(library, "--defined-only") if RUNTIME.fullmatch(name)}
        if version(next(simulated.glob("libcudart.so.*"))) < version(library):
            print("built with the headers of an older CUDA: newer functions are not asked for")
            continue
        check("NVIDIA's runtime has: defined (else into simulate_gpus/runtime/not_offered.cpp)", wanted, defined.__contains__, 400)

    runtime, driver = Runtime(simulated), Driver(simulated)
    check("are looked up: defined, or the look-up's error names them", looked_up(libtorch), driver.is_served, 200)
    check_refusals("the runtime", refused(runtime.library._name, "(?:__)?cuda"), runtime, 150)
    check_refusals("the driver", refused(simulated / "libcuda.so.1", "cu"), driver, 300, silent=["cuGetExportTable", "cuLogsRegisterCallback"])
    check_refusals("NVML", refused(simulated / "libnvidia-ml.so.1", "nvml"), Nvml(simulated), 250, silent=LACKED_BY_CARDS)
    if (simulated / "libnccl.so.2").exists():
        wanted = {name for name in called if NCCL.fullmatch(name)}
        check("LibTorch calls of NCCL: defined", wanted, defined.__contains__, 30)
        check_refusals("NCCL", refused(simulated / "libnccl.so.2", "nccl"), Nccl(simulated), 4)
    if next(simulated.glob("libcupti.so.*"), None):
        wanted = {name for name in called if CUPTI.fullmatch(name)}
        check("LibTorch calls of CUPTI: defined", wanted, defined.__contains__, 20)
        cupti = Cupti(simulated)
        check_refusals("CUPTI", refused(cupti.library._name, "cupti"), cupti, 120)


os.environ.setdefault("SIMULATE_GPUS", "1")
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
