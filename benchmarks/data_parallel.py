# SPDX-License-Identifier: MIT
"""What a training step takes by Python's DistributedDataParallel: the same as data_parallel.cpp.

    torchrun --standalone --nproc-per-node 2 data_parallel.py [STEPS]
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

LAYERS, WIDTH, ROWS = 50, 256, 32
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60


def make_net():
    modules = []
    for _ in range(LAYERS):
        modules += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
    net = torch.nn.Sequential(*modules[:-1])
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.linspace(-0.1, 0.1, p.numel()).sin().view(p.shape))
    return net


rank = int(os.environ["RANK"])
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")
net = make_net().to(device)
parallel = torch.nn.parallel.DistributedDataParallel(net)
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.full((ROWS, WIDTH), 1.0 + rank, device=device)
wait = torch.cuda.synchronize if on_gpu else lambda: None
microseconds = []
for step in range(steps):
    dist.barrier()
    wait()
    start = time.perf_counter()
    sgd.zero_grad()
    loss = parallel(x).square().mean()
    loss.backward()
    sgd.step()
    wait()
    microseconds.append((time.perf_counter() - start) * 1e6)
if rank == 0:
    if not on_gpu:
        print(f"Python {statistics.median(microseconds):.0f}")
    print(f"loss {loss.item():.6f}")
dist.destroy_process_group()
