# SPDX-License-Identifier: MIT
"""Will it fit? Peaks of memory against sums by hand, dry runs of models that no machine holds, and real cards.

Usage: planning_test.py SIMULATE_GPUS [unittest's options]
"""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SIMULATE_GPUS = sys.argv[1]
del sys.argv[1]

# Networks whose operations take no memory but for their results; each on a GPU of its own, with the sum by hand.
BY_HAND = """
import ctypes, torch
from torch import nn
batch, width, depth = 512, 64, 3
values, weight = batch * width * 4, width * width * 4  # bytes of one activation, of one weight
def inputs(i): return torch.ones(batch, width, device=i)

def optimizer(i):
    # Parameters, gradients, two averages; the step takes the root of one for all parameters at once.
    net = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(i)
    adam, x = torch.optim.AdamW(net.parameters()), inputs(i)[:2]
    for step in range(2):
        net(x).sum().backward()
        adam.step()
        adam.zero_grad()
    return 5 * depth * (weight + width * 4) + values

def forward(i):
    # The last layer's input and result, while one weight moves: nothing is kept.
    net = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth))).to(i)
    with torch.no_grad():
        net(inputs(i))
    return depth * weight + 3 * values

def backward(i):
    # All results are kept. The last product's backward pass has the gradients of its result, input and weight, and those
    # of the sum and its seed; the last result is no longer needed.
    net = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width, bias=False), nn.ReLU()))).to(i)
    net(inputs(i)).sum().backward()
    return depth * weight + values + (depth + 1) * values + weight + 2 * 4

def elementwise(i):
    # x * 2, then its exponential, then the difference of both.
    x = inputs(i)
    y = x * 2
    z = y - y.exp()
    return 4 * values

def norm(i):
    # The result, and a mean and a deviation of each row in float32.
    x, layer = inputs(i), nn.LayerNorm(width, device=i)
    with torch.no_grad():
        layer(x)
    return 2 * values + 2 * width * 4 + 2 * batch * 4

for i, network in enumerate((optimizer, forward, backward, elementwise, norm)):
    print(f"cuda:{i}", network(i))
print("cuBLAS", ctypes.CDLL("libtorch_cuda.so")._ZN2at4cuda22getChosenWorkspaceSizeEv())
"""

# More than this machine has: 51 GB of parameters, gradients and averages, and copies of all kinds.
BIG = """
import torch
from torch import nn
def kibibytes(row):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(row))
net = nn.TransformerEncoderLayer(64, 2, 128, batch_first=True, device="cuda")  # what Python loads at the first step
torch.optim.AdamW(net.parameters()).step()
before = kibibytes("VmHWM")
net = nn.TransformerEncoderLayer(16384, 128, 65536, batch_first=True, device="cuda")
adam = torch.optim.AdamW(net.parameters())
x = torch.randn(4, 1024, 16384, device="cuda")
for step in range(2):
    net(x).sum().backward()
    adam.step()
    adam.zero_grad()
del net, adam
host = torch.full((1 << 24,), 7.0)  # 64 MiB
on_gpu = host.cuda()
pinned = torch.full((1 << 24,), 7.0, pin_memory=True)
pinned.copy_(on_gpu.clone().zero_(), non_blocking=True)
host.copy_(on_gpu)
torch.cuda.synchronize()
print(host.eq(7).all().item(), pinned.eq(7).all().item())
print(torch.arange(5).cuda().clone().tolist(), torch.linalg.inv(torch.eye(5000, device="cuda")).shape[0])
print(kibibytes("VmHWM") - before, kibibytes("RssShmem"))
"""

# The page's program, run by torchrun; then what its ranks know, by collectives that are done, and DistributedDataParallel.
PAGE = Path(__file__).parent.parent.joinpath("README.md").read_text()
SHARDED = re.search(r"```python\n(# plan.py.*?)```", PAGE, re.DOTALL)[1] + """
held = sum(p.to_local().nbytes for p in net.parameters()) >> 20
both = [torch.empty(2, dtype=torch.long, device="cuda") for rank in range(2)]
dist.all_gather(both, torch.tensor([dist.get_rank(), held]).cuda())
ddp = nn.parallel.DistributedDataParallel(nn.Linear(8, 8, device="cuda"))  # compares the ranks' shapes
ddp(torch.ones(2, 8, device="cuda")).sum().backward()
shared = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssShmem"))
rank, held = both[1 - dist.get_rank()].tolist()
os.write(1, f"\\nrank {rank} {held} {shared}\\n".encode())  # in one piece: print() writes several, between those of the other rank
dist.destroy_process_group()
# Past the end of Python's interpreter, which ends LibTorch's threads of the backward pass (sampling.leave), but with a summary.
import ctypes, sys
sys.stdout.flush()
ctypes.PyDLL(None).exit(0)
"""

# What CUDA and NVML say of a card.
CARD = """
import ctypes
runtime, nvml = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL("libnvidia-ml.so.1")
value, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
def attribute(number):
    return runtime.cudaDeviceGetAttribute(ctypes.byref(value), number, 0) or value.value
card, name, memory = ctypes.c_void_p(), ctypes.create_string_buffer(96), (ctypes.c_ulonglong * 3)()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card))
nvml.nvmlDeviceGetName(card, name, 96)
nvml.nvmlDeviceGetMemoryInfo(card, memory)
runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
print(name.value.decode(), total.value >> 20, memory[0] >> 20, sep="|", end="|")
# capability, multiprocessors, L2; threads, blocks and shared memory of a multiprocessor, that of a block
print(attribute(75), attribute(76), attribute(16), attribute(38) >> 20, *map(attribute, (39, 106)), attribute(81) >> 10, attribute(97) >> 10)
"""

CARDS = {
    "t4": ("Tesla T4", 15360, "7 5 40 4 1024 16 64 64"),
    "v100": ("Tesla V100-SXM2-16GB", 16384, "7 0 80 6 2048 32 96 96"),
    "v100-32": ("Tesla V100-SXM2-32GB", 32768, "7 0 80 6 2048 32 96 96"),
    "a10": ("NVIDIA A10", 23028, "8 6 72 6 1536 16 100 99"),
    "a100-40": ("NVIDIA A100-SXM4-40GB", 40960, "8 0 108 40 2048 32 164 163"),
    "a100-80": ("NVIDIA A100-SXM4-80GB", 81920, "8 0 108 40 2048 32 164 163"),
    "l4": ("NVIDIA L4", 23034, "8 9 58 48 1536 24 100 99"),
    "l40s": ("NVIDIA L40S", 46068, "8 9 142 96 1536 24 100 99"),
    "rtx3090": ("NVIDIA GeForce RTX 3090", 24576, "8 6 82 6 1536 16 100 99"),
    "rtx4090": ("NVIDIA GeForce RTX 4090", 24564, "8 9 128 72 1536 24 100 99"),
    "rtx5090": ("NVIDIA GeForce RTX 5090", 32607, "12 0 170 96 1536 24 100 99"),
    "h100": ("NVIDIA H100 80GB HBM3", 81559, "9 0 132 50 2048 32 228 227"),
    "h200": ("NVIDIA H200", 143771, "9 0 132 60 2048 32 228 227"),
    "b200": ("NVIDIA B200", 183359, "10 0 148 126 2048 32 228 227"),
}


def run(*arguments):
    return subprocess.run([SIMULATE_GPUS, *arguments], text=True, capture_output=True)


def peaks(summary):
    """Of each GPU that was used: the peak of its tensors, what LibTorch reserved, and the operation."""
    found = re.findall(r"^  (cuda:\d+) +yes +([\d,]+) +([\d,]+)  (.*)$", summary, re.MULTILINE)
    return {gpu: (int(peak.replace(",", "")), int(reserved.replace(",", "")), operation)
            for gpu, peak, reserved, operation in found}


class WillItFit(unittest.TestCase):
    def test_peak_is_the_sum_by_hand(self):
        for mode, workspace in ((["--gpu", "h200", "--dry-run"], "32"), (["--gpu", "l4"], "8.1")):
            ran = run("--summary", *mode, "5", sys.executable, "-c", BY_HAND)
            *expected, cublas = (line.split() for line in ran.stdout.splitlines())
            found = peaks(ran.stderr)
            self.assertEqual(len(found), 5, ran.stderr)
            for gpu, bytes in expected:
                self.assertEqual(found[gpu][0], int(bytes), ran.stderr)
                self.assertEqual(found[gpu][1], 2 << 20)  # the least that LibTorch takes
            self.assertEqual([found[f"cuda:{i}"][2] for i in range(5)],
                             ["aten::_foreach_sqrt in Optimizer.step#AdamW.step", "aten::mm in aten::linear",
                              "aten::mm in MmBackward0", "aten::sub", "aten::native_layer_norm in aten::layer_norm"])
            # What LibTorch says that it gives to cuBLAS is what the summary says.
            self.assertEqual(f"{int(cublas[1]) / (1 << 20):.3g}", f"{float(workspace):.3g}".replace("8.1", "8.12"))
            self.assertIn(f"keeps about 1 GiB for its driver and a context (so does --gpu), and LibTorch {workspace} MiB for each stream that uses cuBLAS", ran.stderr)

    def test_peak_has_the_tensor_that_first_used_the_gpu(self):
        make = "torch.ops.aten.ones.default([1000], device=torch.device('cuda'))"  # as in C++: without torch.cuda's look before
        ran = run("--summary", "1", sys.executable, "-c", f"import torch; x = {make}; y = {make}; del x; z = {make}")
        self.assertEqual(peaks(ran.stderr)["cuda:0"][0], 2 * 4000, ran.stderr)

    def test_a_dry_run_touches_no_memory(self):
        ran = run("--summary", "--dry-run", "--gpu", "h200", "1", sys.executable, "-W", "ignore", "-c", BIG)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        kept, small, used = ran.stdout.splitlines()
        self.assertEqual((kept, small), ("True True", "[0, 1, 2, 3, 4] 5000"))
        more, of_gpu = (int(kibibytes) >> 10 for kibibytes in used.split())
        self.assertLess(more, 500)  # of these 128 are `host` and `pinned`
        self.assertLess(of_gpu, 32)
        self.assertGreater(peaks(ran.stderr)["cuda:0"][0], 50 << 30)

    def test_ranks_share_what_no_machine_holds(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "program.py")
            program.write_text(SHARDED)
            ran = run("--summary", "--dry-run", "--gpu", "h100", "2", sys.executable, "-W", "ignore", "-m",
                      "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program, "4", "16384")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stdout.count("13.9 G parameters"), 2)
        ranks = sorted(re.findall(r"^rank (\d) (\d+) (\d+)$", ran.stdout, re.MULTILINE))
        width = 16384
        half = 4 * (12 * width * width + 13 * width) + 2 * 32000 * width  # of the parameters, of two bytes each
        self.assertEqual([(rank, int(mebibytes)) for rank, mebibytes, _ in ranks], [("0", half >> 20), ("1", half >> 20)])
        self.assertTrue(all(int(shared) >> 10 < 32 for _, _, shared in ranks), ran.stdout)
        self.assertEqual(sorted(peaks(ran.stderr)), ["cuda:0", "cuda:1"])

    def test_gpus_are_like_real_cards(self):
        for card, (name, mebibytes, limits) in CARDS.items():
            shown = run("--gpu", card, "1", sys.executable, "-c", CARD)
            seen = mebibytes - (480 if card == "h100" else 0)  # what the driver of a measured card hides from CUDA
            self.assertEqual(shown.stdout.strip(), f"Simulated {name}|{seen}|{mebibytes}|{limits}", shown.stderr)

    def test_refuses_a_card_that_it_does_not_know(self):
        for arguments, part in ((["--gpu", "h300"], "--gpu h300: expected one of " + ", ".join(CARDS)),
                                (["--gpu=t4", "--memory=1GiB"], "--gpu brings its memory: --memory cannot be given too"),
                                (["--gpu"], "no name after --gpu")):
            ran = run(*arguments, *(["1", "true"] if len(arguments) > 1 or arguments == ["--gpu", "h300"] else []))
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr.count("\n")), (2, "", 1), ran.stderr)
            self.assertIn(part, ran.stderr)
            self.assertLess(len(ran.stderr), 400)


if __name__ == "__main__":
    unittest.main()
