# SPDX-License-Identifier: MIT
"""Files of tensors by Python's safetensors: the same as tensor_files.cpp. Usage: tensor_files.py FILE"""

import os
import statistics
import sys
import time

import torch
from safetensors.torch import load_file, save_file

TENSORS, FLOATS = 128, 1 << 20
file = sys.argv[1]
wrong = False


def timed(name, work):
    global wrong
    wrong |= not work()
    rounds = []
    for _ in range(9):
        start = time.perf_counter()
        wrong |= not work()
        rounds.append((time.perf_counter() - start) * 1e3)
    print(f"{name:28} {statistics.median(rounds):8.1f}")


def save(tensors):
    save_file(tensors, file)
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return True


def all_there(tensors):
    return len(tensors) == TENSORS and tensors["t100"].reshape(-1)[5].item() == 100


def sums_are_right(tensors):
    return sum(x.sum().item() for x in tensors.values()) == FLOATS * TENSORS * (TENSORS - 1) / 2


made = {f"t{i}": torch.full((1024, 1024), float(i)) for i in range(TENSORS)}
timed("save_file and fsync", lambda: save(made))
timed("load_file", lambda: all_there(load_file(file)))
timed("load_file, sum", lambda: sums_are_right(load_file(file)))
if torch.cuda.is_available():
    timed("load_file, cuda:0", lambda: all_there(load_file(file, device="cuda")))
    on_gpu = load_file(file, device="cuda")
    timed("save_file and fsync, cuda:0", lambda: save(on_gpu))
if wrong:
    sys.exit("tensor_files: WRONG RESULT")
