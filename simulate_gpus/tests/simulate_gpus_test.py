# SPDX-License-Identifier: MIT
"""simulate_gpus as a user types it, with programs in Python and C++.

Usage: simulate_gpus_test.py SIMULATE_GPUS CXX TRAIN launcher|program [unittest's options]        TRAIN: the program train.cpp
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SIMULATE_GPUS, CXX, TRAIN = sys.argv[1:4]
del sys.argv[1:4]

# A program that asks CUDA's runtime and NVML, without LibTorch.
COUNT = """
import ctypes, sys
count, cards = ctypes.c_int(-1), ctypes.c_uint(99)
code = ctypes.CDLL("libcudart.so.13").cudaGetDeviceCount(ctypes.byref(count))
ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetCount_v2(ctypes.byref(cards))
print(code, count.value, cards.value)
"""

# A program that loads and launches a kernel of its own through the driver, and asks what it knows of a card.
DRIVER = """
import ctypes
driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
def text(code):
    found = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(found))
    return found.value.decode()
uuid, memory, device = (ctypes.c_ubyte * 16)(), ctypes.c_void_p(), ctypes.c_int(-1)
print(driver.cuDeviceGetUuid(uuid, 1), bytes(uuid).hex())
runtime.cudaSetDevice(1)
runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(64))
print(driver.cuPointerGetAttribute(ctypes.byref(device), 9, memory), device.value, driver.cuPointerGetAttribute(ctypes.byref(device), 9, uuid))
module, function = ctypes.c_void_p(), ctypes.c_void_p()
print(driver.cuModuleLoadData(ctypes.byref(module), b"\\177ELF, unread"), driver.cuModuleGetFunction(ctypes.byref(function), module, b"my_kernel"))
code = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
print(code, text(code))
found = ctypes.c_void_p()  # not cuCtxGetDevice_v2, another function
driver.cuGetProcAddress_v2(b"cuCtxGetDevice", ctypes.byref(found), 13000, ctypes.c_uint64(0), None)
print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(found.value)(ctypes.addressof(device)), device.value)
"""

# What torch.cuda.utilization, temperature, power_draw, clock_rate, memory_usage, device_memory_used and
# list_gpu_processes ask, through the package pynvml.
CARD = """
import ctypes, os
nvml, runtime = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.CDLL("libcudart.so.13")
card, number, count = ctypes.c_void_p(), ctypes.c_uint(99), ctypes.c_uint(0)
load, memory = (ctypes.c_uint * 2)(99, 99), (ctypes.c_ulonglong * 3)()
print(nvml.nvmlInitWithFlags(0), nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(card)))
print(nvml.nvmlDeviceGetUtilizationRates(card, load), *load)
for name, *argument in (("Temperature", 0), ("PowerUsage",), ("EnforcedPowerLimit",), ("ClockInfo", 1), ("MaxClockInfo", 1)):
    print(name, nvml["nvmlDeviceGet" + name](card, *argument, ctypes.byref(number)), number.value)
def show():
    used = nvml.nvmlDeviceGetMemoryInfo(card, memory), memory[2] >> 20
    count.value = 4
    processes = (ctypes.c_ulonglong * 16)()  # four of them: a process number, its bytes, two more
    print(*used, nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), processes), count.value,
          count.value and (processes[0] & 0xFFFFFFFF) == os.getpid(), count.value and processes[1] >> 20)
show()
runtime.cudaSetDevice(1)
runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(32 << 20))
show()
"""

# What nvidia-smi and nvitop show of a card.
SHOWN = """
import ctypes
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = c_char_p
card, other, by_uuid, text = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(1, byref(card)), nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(other))
nvml.nvmlDeviceGetUUID(card, text, 96)
print("uuid", nvml.nvmlDeviceGetHandleByUUID(text, byref(by_uuid)), by_uuid.value == card.value)
nvml.nvmlSystemGetDriverVersion(text, 96)
print("driver", text.value.decode())
def show(name, *arguments, kinds=(c_uint,), of="Device"):
    found = [kind(77) for kind in kinds]
    code = nvml[f"nvml{of}Get{name}"](*([card] if of == "Device" else []), *arguments, *map(byref, found))
    print(name, nvml.nvmlErrorString(code).decode() if code else " ".join(str(value.value) for value in found))
show("CudaDriverVersion", of="System")
for name in ("PowerManagementLimit PersistenceMode PerformanceState ComputeMode DisplayActive MinorNumber MemoryBusWidth Architecture "
             "Brand NumGpuCores CurrPcieLinkGeneration CurrPcieLinkWidth FanSpeed").split():
    show(name)
for name, *kinds in (("MigMode", c_uint, c_uint), ("CudaComputeCapability", c_int, c_int), ("EncoderUtilization", c_uint, c_uint)):
    show(name, kinds=kinds)
show("TotalEccErrors", 0, 0, kinds=[c_ulonglong])
show("MaxClockInfo", 2)
show("MaxClockInfo", 3)
show("Serial", text, 96, kinds=())
show("NvLinkState", 0)
show("TopologyCommonAncestor", other)
show("P2PStatus", other, 0)
show("ProcessUtilization", None, kinds=[c_uint])
show("GraphicsRunningProcesses_v3", kinds=[c_uint])
fabric = (c_uint * 9)(2 << 24 | 36, *[77] * 8)
print("Fabric", nvml.nvmlDeviceGetGpuFabricInfoV(card, fabric), *fabric[1:])
bits, bar1, energy = (ctypes.c_ulong * 16)(), (c_ulonglong * 3)(), c_ulonglong()
print(nvml.nvmlDeviceGetCpuAffinity(card, 16, bits), sum(bin(word).count("1") for word in bits))
print(nvml.nvmlDeviceGetBAR1MemoryInfo(card, bar1), *bar1)
print(nvml.nvmlDeviceGetTotalEnergyConsumption(card, byref(energy)), energy.value > 0)
"""

# A kernel that the program registers before it uses a GPU, and one that it registers later.
OVERRIDES = """
import torch
library = torch.library.Library("aten", "IMPL")
library.impl("relu", lambda x: x * 0 + 7, "CUDA")
x = torch.ones(2, device="cuda")
library.impl("abs", lambda x: x * 0 + 5, "CUDA")
print(x.relu().tolist(), x.abs().tolist(), x.neg().tolist())
"""

# A device is reset while the program uses two.
RESET = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
memory, free, total = (ctypes.c_void_p * 2)(), ctypes.c_size_t(), ctypes.c_size_t()
def used():
    runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value - (16 << 20) >> 20
for device in (0, 1):
    runtime.cudaSetDevice(device)
    runtime.cudaMalloc(ctypes.byref(memory, 8 * device), ctypes.c_size_t(32 << 20))
print(used(), runtime.cudaDeviceReset(), [runtime.simulated_cuda_has_context(device) for device in (0, 1)])
print(used(), runtime.cudaMemset(ctypes.c_void_p(memory[1]), 0, ctypes.c_size_t(8)), runtime.cudaMemset(ctypes.c_void_p(memory[0]), 0, ctypes.c_size_t(8)))
print(runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(32 << 20)), used(), runtime.cudaSetDevice(0), used())
"""

# Functions of which NVIDIA's runtime says that there is no device. (Measured: its static library on this driver.)
NO_DEVICE = """
import ctypes
runtime, out, text = ctypes.CDLL("libcudart.so.13"), ctypes.byref((ctypes.c_longlong * 200)()), ctypes.create_string_buffer(64)
for name, *arguments in (("cudaMalloc", out, 64), ("cudaFree", None), ("cudaHostAlloc", out, 64, 0), ("cudaMallocHost", out, 64),
                         ("cudaHostRegister", text, 64, 0), ("cudaEventCreate", out), ("cudaEventCreateWithFlags", out, 0),
                         ("cudaStreamCreate", out), ("cudaStreamCreateWithPriority", out, 1, 0), ("cudaDeviceSynchronize",),
                         ("cudaMemcpy", text, text, 8, 4), ("cudaMemset", text, 0, 8), ("cudaGetDeviceProperties", out, 0),
                         ("cudaPointerGetAttributes", out, text), ("cudaDriverGetVersion", out), ("cudaRuntimeGetVersion", out)):
    print(name, runtime[name](*arguments))
"""

# Kernels that LibTorch has NVRTC compile while the program runs; the last one fails.
COMPILED = """
import torch
x = torch.arange(4., device="cuda")
add = torch.cuda.jiterator._create_jit_fn("template <typename T> T my_add(T x, T y) { return x + y; }")
fill = torch.cuda._compile_kernel('extern "C" __global__ void my_fill(float* x) { x[0] = 7; }', "my_fill")
miss = torch.cuda._compile_kernel('extern "C" __global__ void my_miss(float* x) { x[1ll << 40] = 7; }', "my_miss")
print(add(x, x).tolist())
fill(grid=(1, 1, 1), block=(1, 1, 1), args=[x])
print(x.tolist())
miss(grid=(1, 1, 1), block=(1, 1, 1), args=[x])
for _ in range(2):
    try:
        print(x.tolist())
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""

# What a program, and LibTorch for it, ask of cuDNN.
CUDNN = """
import torch
from torch.nn import functional as F
torch.zeros(1, device="cuda")
print(torch.backends.cudnn.enabled)
for wanted in True, False:
    torch.backends.cudnn.enabled = wanted
    x = torch.rand(2, 3, 4, 4, device="cuda", requires_grad=True)
    lstm, norm = torch.nn.LSTM(4, 3).cuda(), torch.nn.BatchNorm2d(3).cuda()
    grid = F.affine_grid(torch.eye(2, 3, device="cuda").expand(2, 2, 3), (2, 3, 4, 4), align_corners=True)
    (lstm(x[0])[0].sum() + F.grid_sample(norm(x), grid, align_corners=True).sum()).backward()
    torch.cuda.synchronize()
    memories = {weight.untyped_storage().data_ptr() for weight in lstm.parameters()}
    print(torch.backends.cudnn.enabled, len(memories), x.grad.shape == x.shape)
"""

# A replay that is done while the thread has the lock of Python, by a query.
POLLED_REPLAY = """
import torch
gru = torch.nn.GRU(4, 3, 2).cuda()
x = torch.rand(5, 2, 4, device="cuda", requires_grad=True)
def gradients():
    return torch.autograd.grad(gru(x)[0].square().sum(), [x, *gru.parameters()])
stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
with torch.cuda.stream(stream):
    gradients()
    with torch.cuda.graph(graph, stream=stream):
        replayed = gradients()
    with torch.no_grad():
        x.add_(1)
    graph.replay()
    while not stream.query():
        pass
    print(all(map(torch.allclose, replayed, gradients())))
"""

# Two processes: one sends the other a tensor on its GPU, and gets twice that back.
RPC = """
import sys, torch, torch.distributed.rpc as rpc
def twice(x):
    return x * 2
def work(rank):
    options = rpc.TensorPipeRpcBackendOptions(init_method="file://" + sys.argv[1])
    options.set_device_map(f"worker{1 - rank}", {0: 0})
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0: print(rpc.rpc_sync("worker1", twice, (torch.ones(3, device="cuda"),)))
    rpc.shutdown()
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=2)
"""

needs_torch = unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no torch")


def run(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return subprocess.run([SIMULATE_GPUS, *arguments], env=dict(kept, **environment), text=True, capture_output=True)


def rows(text):
    """The numbers of each row of a summary."""
    found = re.findall(r"^  (\w[\w :]*?)  +([\d,]+)(?:  +([\d,]+))?", text, re.MULTILINE)
    return {name: [int(number.replace(",", "")) for number in numbers if number] for name, *numbers in found}

# What eager code on the CPU gives, by ways that only GPUs have, or that once gave other values.
WAYS = """
import torch
torch.manual_seed(0)
def ways(device):
    x, weight = torch.rand(2, 3, 6, 6, device=device), torch.rand(4, 3, 3, 3, device=device)
    traced = torch.jit.trace(lambda x: torch.conv2d(x, weight), x, check_trace=False)
    yield "traced convolution", traced(x * 5), torch.conv2d(x * 5, weight)
    @torch.jit.script
    def fused(x):
        return (x * x + x).relu().tanh()
    for call in range(3):
        yield f"script, call {call}", fused(x), (x * x + x).relu().tanh()
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).to(device).eval()
    words, mask = torch.rand(2, 6, 16, device=device), torch.arange(6, device=device).expand(2, 6) > 3
    with torch.no_grad():
        found = encoder(words, src_key_padding_mask=mask)[:, :4]  # by nested tensors
    yield "encoder", found, encoder(words, src_key_padding_mask=mask)[:, :4]
    half = torch.rand(3, 8, device=device).half().requires_grad_()
    wide = half.detach().float().requires_grad_()
    softmax, expected = half.softmax(1, dtype=torch.float32), wide.softmax(1)
    yield "softmax", softmax, expected
    softmax.square().sum().backward()
    expected.square().sum().backward()
    yield "softmax backward", half.grad, wide.grad.half()
    matrix = torch.rand(5, 3, device=device)
    for driver in ("gesvd", "gesvdj", "gesvda"):
        yield driver, torch.linalg.svdvals(matrix, driver=driver), torch.linalg.svdvals(matrix)
    numbers = torch.tensor([[1 + 2j, complex("nan")], [3, 1j]], device=device)
    yield "nansum", numbers.nansum(1), torch.tensor([1 + 2j, 3 + 1j], device=device)
    yield "ldexp", torch.ldexp(matrix, torch.arange(3, device=device)), matrix * torch.tensor([1, 2, 4], device=device)
for name, found, expected in ways("cuda"):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=lambda text: name + ": " + text)
print("equal")
"""


class Launcher(unittest.TestCase):
    def refused(self, part, *arguments):
        ran = run(*arguments)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr.count("\n")), (2, "", 1), ran.stderr)
        self.assertTrue(ran.stderr.startswith("simulate_gpus: "), ran.stderr)
        self.assertIn(part, ran.stderr)

    def test_refuses_wrong_arguments(self):
        self.refused("no number of GPUs")
        self.refused("no program", "2")
        self.refused('"17", expected 0 to 16', "17", "true")
        self.refused("unknown option -1", "-1", "true")
        self.refused('"two", expected 0 to 16', "two", "true")
        self.refused("unknown option --gpus", "--gpus", "2", "true")
        self.refused("no size after --memory", "--memory")
        for size in ("1GB", "GiB", "16MiB", "99999999999999GiB", "-1GiB"):
            self.refused("expected a size", "--memory", size, "1", "true")

    def test_refuses_a_program_that_is_not_there(self):
        self.refused('cannot run "/no/such/program": No such file or directory', "1", "/no/such/program")

    def test_helps(self):
        ran = run("--help")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        for option in ("--memory", "--gpu", "--summary", "--trace", "--dry-run", "COUNT PROGRAM"):
            self.assertIn(option, ran.stdout)

    def test_is_the_program_and_ends_as_it_does(self):
        ran = run("2", "sh", "-c", 'echo "$1"; exit 7', "sh", "a b")
        self.assertEqual((ran.returncode, ran.stdout), (7, "a b\n"))
        self.assertEqual(run("2", "sh", "-c", "kill -9 $$").returncode, -9)

    def test_loads_no_libtorch(self):
        self.assertNotIn("torch", run("2", "cat", "/proc/self/maps").stdout)

    def count(self, gpus, *prefix, **environment):
        return run(*prefix, gpus, sys.executable, "-c", COUNT, **environment).stdout.split()

    def test_shows_as_many_as_it_was_told(self):
        self.assertEqual(self.count("0"), ["100", "0", "0"])
        self.assertEqual(self.count("1"), ["0", "1", "1"])
        self.assertEqual(self.count("16"), ["0", "16", "16"])
        # the inner one counts; a process that the program starts has its GPUs too
        self.assertEqual(self.count("1", "2", SIMULATE_GPUS), ["0", "1", "1"])
        nested = run("3", "sh", "-c", '"$0" -c "$1"', sys.executable, COUNT)
        self.assertEqual(nested.stdout.split(), ["0", "3", "3"])

    def test_says_that_it_was_asked_for_none(self):
        self.assertIn("0 GPUs were asked for", run("0", "true").stderr)
        self.assertEqual(run("1", "true").stderr, "")

    def test_honours_cuda_visible_devices(self):
        uuid = "GPU-02"  # as nvmlDeviceGetUUID begins for the third card
        for visible, seen in (("1", 1), ("1,0", 2), ("", 0), ("-1", 0), ("0,9,1", 1), ("0,0", 0), (uuid, 1), ("2, 1", 2)):
            self.assertEqual(self.count("3", CUDA_VISIBLE_DEVICES=visible)[1:], [str(seen), "3"], visible)

    def test_refuses_another_libtorch(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("libtorch_cpu.so", 'extern "C" unsigned long long aoti_torch_abi_version() { return 1ull << 56 | 7ull << 48; }'),
                               ("libtorch_cuda.so", "int nothing;")):
                source = Path(folder, "source.cpp")
                source.write_text(text)
                subprocess.run([CXX, "-shared", "-fPIC", source, "-o", Path(folder, name), f"-Wl,-soname,{name}"], check=True)
            load = f"import ctypes\nfor name in ('libtorch_cpu.so', 'libtorch_cuda.so'): ctypes.CDLL('{folder}/' + name)\n"
            self.refused("the program has LibTorch 1.7.0, and this simulate_gpus was built with", "1", sys.executable, "-c", load + COUNT)

    def test_fails_the_call_that_it_was_told(self):
        self.assertEqual(self.count("2", SIMULATE_GPUS_FAULTS="cudaGetDeviceCount:1:35")[0], "35")
        for fault in ("cudaMaloc:1:2", "cudaMalloc", "cudaMalloc:x:2", "cudaMalloc:1:"):
            ran = run("1", sys.executable, "-c", COUNT, SIMULATE_GPUS_FAULTS=fault)
            self.assertEqual((ran.returncode, ran.stderr.count("\n")), (2, 1), ran.stderr)
            self.assertIn(f'has "{fault}"', ran.stderr)

    def test_refuses_kernels_by_name(self):
        ran = run("2", sys.executable, "-c", DRIVER)
        uuid, pointer, loaded, launched, looked_up = ran.stdout.splitlines()
        self.assertEqual(looked_up, "0 1", ran.stderr)
        self.assertRegex(uuid, "^0 01")  # as NVML's begins with the card's number
        self.assertEqual((pointer, loaded), ("0 1 1", "0 0"), ran.stderr)
        self.assertRegex(launched, "^801 operation not supported: the CUDA kernel my_kernel was launched, which simulated GPUs cannot run")
        counted = run("--summary", "--dry-run", "2", sys.executable, "-c", DRIVER)
        self.assertEqual(counted.stdout.splitlines()[-2], "0 no error", counted.stderr)
        self.assertEqual(rows(counted.stderr)["kernels"], [1])

    def test_shows_cards_as_nvidia_smi_does(self):
        ran = run("2", sys.executable, "-c", CARD)
        self.assertEqual(ran.stdout.splitlines(), [
            "0 0", "0 0 0", "Temperature 0 30", "PowerUsage 0 70000", "EnforcedPowerLimit 0 700000", "ClockInfo 0 1980",
            "MaxClockInfo 0 1980", "0 16 0 0 0 0", "0 48 0 1 True 32"], ran.stderr)

    def shown(self, *options):
        ran = run(*options, "2", sys.executable, "-c", SHOWN)
        self.assertEqual(ran.stderr, "")  # nothing of it is news
        return dict(line.split(" ", 1) for line in ran.stdout.splitlines() if "MaxClock" not in line), ran.stdout

    def test_shows_what_monitors_ask_for(self):
        found, text = self.shown()
        self.assertEqual(found["uuid"], "0 True", text)
        self.assertRegex(found["driver"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(found["CudaDriverVersion"], r"^13\d\d0$")
        lacking = {name for name, value in found.items() if value == "Not Supported"}
        self.assertEqual(lacking, {"FanSpeed", "MigMode", "Serial", "NvLinkState"}, text)
        self.assertEqual(found["ProcessUtilization"], "Not Found")
        for name, value in (("PowerManagementLimit", "700000"), ("PersistenceMode", "0"), ("PerformanceState", "0"),
                            ("ComputeMode", "0"), ("DisplayActive", "0"), ("MinorNumber", "1"), ("MemoryBusWidth", "5120"),
                            ("Architecture", "9"), ("Brand", "14"), ("NumGpuCores", "16896"), ("CurrPcieLinkGeneration", "5"),
                            ("CurrPcieLinkWidth", "16"), ("CudaComputeCapability", "9 0"), ("EncoderUtilization", "0 167000"),
                            ("TotalEccErrors", "0"), ("TopologyCommonAncestor", "50"), ("P2PStatus", "0"),
                            ("GraphicsRunningProcesses_v3", "0"), ("Fabric", "0" + 8 * " 0")):
            self.assertEqual(found[name], value, name)
        self.assertIn("MaxClockInfo 2619\nMaxClockInfo Not Supported\n", text)
        self.assertEqual(text.splitlines()[-3:], [f"0 {os.cpu_count()}", f"0 {8 << 30} {8 << 30} 0", "0 True"])

    def test_shows_the_card_that_it_is_like(self):
        found, text = self.shown("--gpu", "t4")
        for name, value in (("PowerManagementLimit", "70000"), ("MemoryBusWidth", "256"), ("Architecture", "6"), ("Brand", "2"),
                            ("NumGpuCores", "2560"), ("CurrPcieLinkGeneration", "3"), ("CudaComputeCapability", "7 5"),
                            ("Fabric", "3" + 8 * " 77")):
            self.assertEqual(found[name], value, name)
        self.assertIn("MaxClockInfo 5001\n", text)

    def test_matches_the_driver_to_its_cuda(self):
        program = SHOWN.split("def show")[0]
        for cuda, driver in (("12040", "550.54.14"), ("13000", "580.65.06"), ("13010", "590.44.01"), ("13020", "595.45.04")):
            ran = run("2", sys.executable, "-c", program, SIMULATE_GPUS_DRIVER_VERSION=cuda)
            self.assertIn(f"driver {driver}\n", ran.stdout, ran.stderr)

    def test_resets_a_device(self):
        ran = run("2", sys.executable, "-c", RESET)
        self.assertEqual(ran.stdout.splitlines(), ["32 0 [1, 0]", "0 1 0", "0 32 0 32"], ran.stderr)
        reset = "import ctypes; runtime = ctypes.CDLL('libcudart.so.13'); runtime.cudaFree(None); runtime.cudaDeviceReset()"
        self.assertIn("cuda:0", run("--summary", "1", sys.executable, "-c", reset).stderr)  # it was used

    def test_makes_contexts_only_on_devices_that_are_used(self):
        program = ("import torch; x = torch.randn(1, device='cuda:1') + 1; "
                   "print([torch._C._cuda_hasPrimaryContext(device) for device in (0, 1)])")
        self.assertEqual(run("2", sys.executable, "-c", program).stdout, "[False, True]\n")

    def test_has_no_device_where_there_is_none(self):
        ran = run("0", sys.executable, "-c", NO_DEVICE)
        codes = dict(line.split() for line in ran.stdout.splitlines())
        self.assertEqual(codes.pop("cudaDriverGetVersion"), "0", ran.stderr)
        self.assertEqual(codes.pop("cudaRuntimeGetVersion"), "0")
        self.assertEqual(len(codes), 14)
        self.assertEqual(set(codes.values()), {"100"}, codes)
        # of a driver that is too old, all say so
        ran = run("2", sys.executable, "-c", NO_DEVICE, SIMULATE_GPUS_DRIVER_VERSION="12040")
        self.assertEqual(ran.stdout.split().count("35"), 14, ran.stdout)

    def test_tells_triton_where_the_driver_is(self):
        folder = run("1", "sh", "-c", "echo $TRITON_LIBCUDA_PATH").stdout.strip()
        self.assertTrue(Path(folder, "libcuda.so.1").exists(), folder)

    def test_keeps_the_kernels_that_a_program_registers(self):
        ran = run("1", sys.executable, "-W", "ignore", "-c", OVERRIDES)
        self.assertEqual(ran.stdout, "[7.0, 7.0] [5.0, 5.0] [-1.0, -1.0]\n", ran.stderr)

    def test_leaves_out_the_kernels_that_pytorch_brings_in_python(self):
        ran = run("1", "sh", "-c", "echo $TORCH_DISABLE_NATIVE_JIT", TORCH_DISABLE_NATIVE_JIT="0")
        self.assertEqual(ran.stdout, "1\n")


class Program(unittest.TestCase):
    """train.cpp, which knows LibTorch alone."""

    def losses(self, *command):
        ran = subprocess.run(command, env=dict(os.environ, CUDA_VISIBLE_DEVICES="0"), text=True, capture_output=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return re.search(r"device (\w+)", ran.stdout)[1], [float(loss) for loss in re.findall(r"loss (\S+)", ran.stdout)]

    def compare(self, *program):
        device, losses = self.losses(SIMULATE_GPUS, "1", *program)
        of_cpu, expected = self.losses(SIMULATE_GPUS, "0", *program)
        self.assertEqual((device, of_cpu), ("cuda", "cpu"))
        self.assertEqual(len(losses), 16)
        for loss, right in zip(losses, expected):
            self.assertAlmostEqual(loss, right, delta=1e-5)

    def test_trains_as_on_the_cpu(self):
        self.compare(TRAIN)

    @needs_torch
    def test_gives_the_values_of_eager_code(self):
        with tempfile.TemporaryDirectory() as folder:  # TorchScript reads its functions' source
            Path(folder, "program.py").write_text(WAYS)
            ran = run("1", sys.executable, "-W", "ignore", Path(folder, "program.py"))
        self.assertEqual(ran.stdout, "equal\n", ran.stderr)

    @needs_torch
    def test_says_nothing_where_libtorch_only_looks(self):
        program = ("import torch\nwith torch.profiler.profile(): torch.ones(3, device='cuda').sum().item()\n"
                   "torch.cuda.graphs.CUDAGraph(), torch.cuda.mem_get_info(), torch.cuda.Stream(), torch.cuda.ipc_collect()")
        self.assertNotIn("not offered", run("1", sys.executable, "-c", program).stderr)

    @needs_torch
    def test_runs_what_nvrtc_compiled(self):
        ran = run("1", sys.executable, "-c", COMPILED)
        added, filled, failed, still_failed = ran.stdout.splitlines()
        self.assertEqual(added, "[0.0, 2.0, 4.0, 6.0]", ran.stderr)
        self.assertEqual(filled, "[7.0, 1.0, 2.0, 3.0]")
        for error in failed, still_failed:
            self.assertRegex(error, "an illegal memory access was encountered.*my_miss")
        self.assertRegex(ran.stderr, "simulate_gpus: .*my_miss")

    @needs_torch
    def test_counts_what_nvrtc_compiled_in_a_dry_run(self):
        ran = run("--summary", "--dry-run", "1", sys.executable, "-c",
                  "import torch; torch.ones(4, device='cuda', dtype=torch.cfloat).exp()")
        self.assertEqual(rows(ran.stderr)["kernels"], [2], ran.stderr)  # that of ones, and exp's

    @needs_torch
    def test_sends_tensors_by_rpc(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "program.py").write_text(RPC)
            ran = run("1", sys.executable, "-W", "ignore", Path(folder, "program.py"), Path(folder, "rendezvous"))
        self.assertEqual(ran.stdout, "tensor([2., 2., 2.], device='cuda:0')\n", ran.stderr)

    @needs_torch
    def test_trains_in_python(self):
        script = Path(__file__).with_name("train.py")
        self.compare(sys.executable, "-W", "ignore", script)

    def test_is_summed_up(self):
        ran = run("--summary", "2", TRAIN, "1")
        found = rows(ran.stderr)
        # 8 batches of images and labels, 8 parameters, 3 buffers of batch norm
        self.assertEqual(found["host to device"][0], 16 + 8 + 3, ran.stderr)
        self.assertEqual(found["device to host"], [8, 8 * 4])  # the losses
        self.assertEqual(found["device to device"], [0, 0])
        self.assertIn("operations", found)
        self.assertRegex(ran.stderr, r"cuda:0 +yes")
        self.assertRegex(ran.stderr, r"cuda:1 +no +0")
        self.assertNotIn("simulate_gpus", run("--summary", "2", "true").stderr)  # no GPU was used

    def test_traces(self):
        for option in ([], ["--dry-run"]):
            ran = run("--trace", *option, "1", TRAIN, "1")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            lines = ran.stderr.splitlines()
            for line in lines:
                self.assertRegex(line, r"^simulate_gpus: (cuda:0 stream \d+|host) +\S")
            at = {part: [i for i, line in enumerate(lines) if re.search(part, line)] for part in
                  ("copy host to device, pageable, 200704 bytes", "aten::_convolution", "copy device to host, pinned, 4 bytes",
                   "host +waits for cuda:0 stream 0")}
            images, convolutions, losses, waits = at.values()
            self.assertEqual((len(images), len(losses)), (8, 8))
            # Each batch is copied, the network computes, the loss is read, and the program waits for it.
            for image, loss in zip(images, losses):
                self.assertTrue(any(image < i < loss for i in convolutions), lines)
                self.assertIn(loss + 1, waits)

    def test_runs_dry(self):
        ran = run("--summary", "--dry-run", "2", TRAIN, "1")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        found = rows(ran.stderr)
        self.assertGreater(found["kernels"][0], 100)
        self.assertEqual(found["host to device"][0], 16 + 8 + 3)

    def test_counts_and_traces_collectives(self):
        program = "import torch; torch.cuda.nccl.all_reduce([torch.ones(4, device=i) for i in range(2)])"
        for mode in (["--dry-run"], []):
            ran = run("--summary", "--trace", *mode, "2", sys.executable, "-c", program)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(rows(ran.stderr)["AllReduce"], [2, 32])
            self.assertEqual(len(re.findall("stream .*ncclAllReduce of 4 float32, sum$", ran.stderr, re.MULTILINE)), 2,
                             ran.stderr)

    def test_checks(self):
        program = ("import torch; x, s = torch.ones(3, device='cuda'), torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())\n"
                   "with torch.cuda.stream(s): x.exp_()\n"
                   "for _ in range(3): x.sum()")
        race = re.compile(r"^simulate_gpus: race: aten::exp_ in cuda:0 stream \d+ at <string>:2 \(<module>\) and aten::sum in "
                          r"cuda:0 stream 0 at <string>:3 \(<module>\) write and read the same memory of cuda:0", re.MULTILINE)
        found = run("--check", "1", sys.executable, "-c", program)
        self.assertEqual((found.returncode, len(race.findall(found.stderr))), (3, 1), found.stderr)
        self.assertIn("--check found 1 bug\n", found.stderr)
        ignored = run("--check", "--ignore", "aten::sum", "1", sys.executable, "-c", program)
        self.assertEqual((ignored.returncode, ignored.stderr), (0, "simulate_gpus: --check found nothing (ignored: 3)\n"))
        ordered = run("--check", "1", TRAIN, "1")
        self.assertEqual((ordered.returncode, ordered.stderr), (0, "simulate_gpus: --check found nothing\n"))
        self.assertEqual(run("--check", "--dry-run", "1", "true").returncode, 2)

    def test_leaves_cudnn_as_the_program_wants_it(self):
        for option in ([], ["--dry-run"]):
            ran = run(*option, "1", sys.executable, "-c", CUDNN)
            self.assertEqual(ran.stdout, "True\nTrue 1 True\nFalse 4 True\n", ran.stderr)

    def test_replays_a_backward_pass_while_polled(self):
        ran = run("1", sys.executable, "-c", POLLED_REPLAY)
        self.assertEqual(ran.stdout, "True\n", ran.stderr)

    def test_runs_out_of_memory(self):
        ran = run("--memory", "18MiB", "1", TRAIN, "1")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("out of memory", ran.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], sys.argv[1].capitalize(), *sys.argv[2:]])
