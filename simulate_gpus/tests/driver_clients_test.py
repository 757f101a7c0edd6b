# SPDX-License-Identifier: MIT
"""Programs that call the driver themselves: Numba, and CUDA runtimes that a program links statically, as nvcc does where
nothing is said.

Usage: driver_clients_test.py SIMULATE_GPUS CXX CUDA_INCLUDE_FOLDER
"""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SIMULATE_GPUS, CXX, INCLUDE = sys.argv[1:4]
del sys.argv[1:4]

PROGRAM = r"""
#include <cstdio>
#include <cuda_runtime_api.h>
int main() {
  int count = -1;
  void* memory = nullptr;
  std::printf("%d ", cudaGetDeviceCount(&count));
  std::printf("%d\n", cudaMalloc(&memory, 64));
}
"""


class DriverClients(unittest.TestCase):
    def test_a_static_runtime_is_named_once_and_returns_its_error(self):
        found = [x for x in Path(INCLUDE).parent.glob("lib*/libcudart_static.a")]
        if not found:
            self.skipTest(f"beside {INCLUDE} there is no libcudart_static.a")
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder, "own_runtime.cpp"), Path(folder, "own_runtime")
            source.write_text(PROGRAM)
            subprocess.run([CXX, "-isystem", INCLUDE, source, found[0], "-o", program, "-ldl", "-lrt", "-lpthread"], check=True)
            ran = subprocess.run([SIMULATE_GPUS, "1", program], text=True, capture_output=True)
        self.assertEqual((ran.returncode, ran.stdout), (0, "801 801\n"))
        self.assertRegex(ran.stderr, r"\Asimulate_gpus: own_runtime has a CUDA runtime of its own .*--cudart shared.*\n\Z")
        self.assertLess(len(ran.stderr), 400)

    def test_contexts_and_memory(self):
        ran = subprocess.run([SIMULATE_GPUS, "2", sys.executable, "-c", DRIVER], text=True, capture_output=True)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(ran.stdout, "0 0 0 0 0\n1 0\n0 True 4096\n0 0 b'12345678'\n0 201\n")


# Calls of Numba's, before it launches a kernel.
DRIVER = """
import ctypes
driver, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t
context, device, free, total = ctypes.c_void_p(), ctypes.c_int(), size(), size()
memory, begin, bytes_ = ctypes.c_uint64(), ctypes.c_uint64(), size()
print(driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1), driver.cuCtxPushCurrent_v2(context),
      driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), driver.cuMemAlloc_v2(ctypes.byref(memory), size(4096)))
driver.cuCtxGetDevice(ctypes.byref(device))
after = size()
driver.cuMemGetInfo_v2(ctypes.byref(after), None)
print(device.value, free.value - after.value - 4096)
print(driver.cuMemGetAddressRange_v2(ctypes.byref(begin), ctypes.byref(bytes_), ctypes.c_uint64(memory.value + 8)),
      begin.value == memory.value, bytes_.value)
back = ctypes.create_string_buffer(9)
print(driver.cuMemcpyHtoD_v2(memory, b"12345678", size(8)), driver.cuMemcpyDtoH_v2(back, memory, size(8)), back.value)
print(driver.cuMemFree_v2(memory), driver.cuCtxPushCurrent_v2(None))
"""

unittest.main()
