# SPDX-License-Identifier: MIT
"""Compares C++'s DistributedDataParallel with Python's: equal bits of every gradient, buffer and parameter.

Usage: python distributed_data_parallel.py PROGRAM GPUS        PROGRAM: distributed_data_parallel_worker
       GPUS  how many this process sees: with any, a rank for each, by NCCL; else 3 and 4 ranks, by Gloo
Each rank trains in Python first (this script, under torchrun) and writes what it saw; then it becomes PROGRAM.
Exits with 77, which CTest shows as "Skipped", where this Python has no torch or no safetensors.
"""
import importlib.util
import os
import subprocess
import sys
import tempfile

CASES = ["plain", "unused", "no_sync", "frozen", "tied", "bfloat16"]  # and "sparse", by Gloo
STEPS = 10


def network(case):
    """The same as in distributed_data_parallel_worker.cpp, registered in the same order."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            if case == "sparse":
                self.words = nn.Embedding(4, 8, sparse=True)
            self.first = nn.Linear(8, 16)
            self.norm = nn.BatchNorm1d(16)
            self.left = nn.Linear(16, 16)
            self.right = nn.Linear(16, 16)
            self.last = nn.Linear(16, 4)

        def forward(self, x, branch):
            if case == "sparse":
                x = x + self.words(torch.arange(len(x)) % 4)
            x = torch.relu(self.norm(self.first(x)))
            sides = [self.left, self.right] if branch < 0 else [[self.left, self.right][branch]]
            for side in sides:
                x = torch.tanh(side(x))
            return self.last(x)

    torch.manual_seed(0)
    net = Net()
    if case == "frozen":
        net.first.weight.requires_grad_(False)
    if case == "tied":
        net.right.weight = net.left.weight
    return net.to(torch.bfloat16) if case == "bfloat16" else net


def train(case, folder):
    """One rank. Writes its inputs, and what it has after each step."""
    import contextlib
    import torch
    import torch.distributed as dist
    from safetensors.torch import save_file

    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    net = network(case).to(device)
    seen = {f"start.{name}": x.detach().cpu().clone() for name, x in net.state_dict().items()}
    parallel = torch.nn.parallel.DistributedDataParallel(
        net, device_ids=[device.index] if device.type == "cuda" else None, bucket_cap_mb=1024 / 2**20,
        find_unused_parameters=case == "unused")
    sgd = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
    numbers = torch.Generator().manual_seed(rank)
    micro_batches = 3 if case == "no_sync" else 1
    for step in range(STEPS):
        sgd.zero_grad()
        for part in range(micro_batches):
            x = torch.randn(6, 8, generator=numbers).to(net.last.weight.dtype)
            seen[f"input.{step}.{part}"] = x
            branch = (step + rank) % 2 if case == "unused" else -1
            alone = parallel.no_sync() if part + 1 < micro_batches else contextlib.nullcontext()
            with alone:
                parallel(x.to(device), branch).square().mean().backward()
        for name, p in net.named_parameters(remove_duplicate=False):
            if p.grad is not None:
                seen[f"gradient.{step}.{name}"] = (p.grad.to_dense() if p.grad.is_sparse else p.grad).cpu().clone()
        sgd.step()
        for name, x in net.state_dict().items():
            seen[f"state.{step}.{name}"] = x.detach().cpu().clone()
    save_file(seen, os.path.join(folder, f"{case}.{size}.{rank}.safetensors"))


def train_all(folder, program):
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(seconds=60))
    for case in CASES if torch.cuda.is_available() else [*CASES, "sparse"]:
        train(case, folder)
    dist.destroy_process_group()
    os.execve(program, [program, "--gtest_filter=*Python.*"], dict(os.environ, FOLDER=folder))


def main():
    program, gpus = sys.argv[1], int(sys.argv[2])
    for module in ("torch", "safetensors"):
        if not importlib.util.find_spec(module):
            print(f"SKIPPED: {sys.executable} has no {module}")
            sys.exit(77)
    own = dict(os.environ, OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in [gpus] if gpus else [3, 4]:
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
                            os.path.abspath(__file__), "--train", folder, program], env=own, check=True)


if sys.argv[1] == "--train":
    train_all(*sys.argv[2:])
else:
    main()
