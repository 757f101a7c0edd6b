# SPDX-License-Identifier: MIT
"""Two ranks that make different calls: c10d's watchdog ends both, and its text has both calls.

Usage: simulate_gpus 2 torchrun --nproc-per-node 2 nccl_mismatch.py
"""
import os
import time

os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] = "1000"  # before the watchdog ends the process: else 15 seconds
import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
if rank == 0:
    dist.all_gather_into_tensor(torch.empty(8, device="cuda"), x)
else:
    dist.all_reduce(x)
time.sleep(200)
