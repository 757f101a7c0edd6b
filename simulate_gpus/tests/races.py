# SPDX-License-Identifier: MIT
"""Programs with a race each, and the same without: simulate_gpus --check finds the former and is silent on the latter.

Each function is run twice: with `ordered` it does what orders its two uses of memory. Their lines end in "# first" and
"# second", and the report must name both.
Usage: simulate_gpus --check 2 python races.py LOG      where LOG is the file to which stderr goes
"""
import inspect
import os
import sys

import torch
import torch.distributed as dist

HOST = torch.cuda.current_stream
SIDE, OTHER = torch.cuda.Stream(), torch.cuda.Stream()
N = 1000


def ones(**options):
    return torch.ones(N, device="cuda", **options)


def result_of_another_stream(ordered):
    x = ones()
    SIDE.wait_stream(HOST())
    with torch.cuda.stream(SIDE):
        x.add_(1)  # first
    if ordered:
        HOST().wait_stream(SIDE)
    x.sum()  # second


def input_of_another_stream(ordered):
    x = torch.zeros(N, device="cuda")  # first
    if ordered:
        SIDE.wait_stream(HOST())
    with torch.cuda.stream(SIDE):
        x.exp()  # second


def two_writers(ordered):
    x = ones()
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        x.mul_(2)  # first
    if ordered:
        OTHER.wait_event(SIDE.record_event())
    with torch.cuda.stream(OTHER):
        x.fill_(3)  # second


def write_after_read(ordered):
    x = ones()
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        y = x.cos()  # first
    if ordered:
        SIDE.synchronize()
    x.add_(1)  # second
    return y


def event_too_early(ordered):
    x = ones()
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        event = SIDE.record_event()
        x.add_(1)  # first
        if ordered:
            event = SIDE.record_event()
    HOST().wait_event(event)
    x.sin()  # second


def wait_in_the_wrong_stream(ordered):
    x = ones()
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        x.add_(1)  # first
    (HOST() if ordered else OTHER).wait_stream(SIDE)
    x.tan()  # second


def early_read_by_the_host(ordered):
    x, host = ones(), torch.empty(N, pin_memory=True)
    host.copy_(x, non_blocking=True)  # first
    if ordered:
        HOST().synchronize()
    return float(host[7])  # second


def early_read_by_numpy(ordered):
    x, host = ones(), torch.empty(N, pin_memory=True)
    values = host.numpy()
    host.copy_(x, non_blocking=True)  # first
    if ordered:
        torch.cuda.synchronize()
    return values.sum()  # second


def pinned_memory_rewritten(ordered):
    host = torch.ones(N, pin_memory=True)
    x = host.to("cuda", non_blocking=True)  # first
    if ordered:
        HOST().record_event().synchronize()
    host.fill_(2)  # second
    return x


def pinned_memory_of_two_copies(ordered):
    x, host = ones(), torch.empty(N, pin_memory=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        host.copy_(x, non_blocking=True)  # first
    if ordered:
        HOST().wait_stream(SIDE)
    host.copy_(x, non_blocking=True)  # second
    torch.cuda.synchronize()


def pinned_memory_passed_on(ordered):
    x, y, host = ones(), ones(), torch.empty(N, pin_memory=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        host.copy_(x, non_blocking=True)  # first
    if ordered:
        HOST().wait_stream(SIDE)
    y.copy_(host, non_blocking=True)  # second
    torch.cuda.synchronize()


def memory_used_again(ordered):
    x = torch.rand(N * N, device="cuda")
    SIDE.wait_stream(HOST())
    with torch.cuda.stream(SIDE):
        y = x.sqrt()  # first
        if ordered:
            x.record_stream(SIDE)
    del x
    torch.rand(N * N, device="cuda")  # second
    return y


def prefetched_batch_used_again(ordered):
    host = torch.ones(N * N, pin_memory=True)
    with torch.cuda.stream(SIDE):
        x = host.to("cuda", non_blocking=True)
    HOST().wait_stream(SIDE)
    y = x.exp()  # first
    if ordered:
        x.record_stream(HOST())
    del x
    with torch.cuda.stream(SIDE):
        host.to("cuda", non_blocking=True)  # second
    torch.cuda.synchronize()
    return y


def copy_to_another_gpu(ordered):
    x = ones()
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        x.add_(1)  # first
    if ordered:
        HOST().wait_stream(SIDE)
    x.to("cuda:1")  # second


def copy_from_another_gpu(ordered):
    x, y = ones(), torch.zeros(N, device="cuda:1")
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    there = torch.cuda.Stream("cuda:1")
    y.copy_(x, non_blocking=True)  # first
    if ordered:
        there.wait_stream(torch.cuda.current_stream(1))
    with torch.cuda.stream(there):
        y.mul(2)  # second


def input_of_a_graph_freed(ordered):
    x = ones()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x.neg()  # first
    if not ordered:
        del x
    graph.replay()  # second
    torch.cuda.synchronize()
    return y


def input_of_a_graph_written(ordered):
    x = ones()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x.neg()  # second
    with torch.cuda.stream(SIDE):
        x.add_(1)  # first
    if ordered:
        HOST().wait_stream(SIDE)
    graph.replay()
    torch.cuda.synchronize()
    return y


def overlapping_columns(ordered):
    x = torch.ones(40, 25, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(SIDE):
        x[:, :13].add_(1)  # first
    x[:, 13 if ordered else 12:].add_(1)  # second


def gradients_in_another_stream(ordered):
    weight = torch.ones(8, 8, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    (weight * weight).sum().backward()
    if ordered:
        SIDE.wait_stream(HOST())
    with torch.cuda.stream(SIDE):
        weight.grad.clone()  # second


def unfinished_collective(ordered):
    x = ones()
    work = dist.all_reduce(x, async_op=True)  # first
    if ordered:
        work.wait()
    x.mul(2)  # second
    work.wait()


# LibTorch's allocators look by themselves whether work is done: nobody has waited for it.
def batch_copied_ahead(ordered):
    current = None
    for _ in range(3):
        with torch.cuda.stream(SIDE):
            following = torch.ones(N).pin_memory().to("cuda", non_blocking=True)  # first
        if ordered:
            HOST().wait_stream(SIDE)
        if current is not None:
            current.sum().item()  # second
        current = following


def result_after_allocations(ordered):
    x = ones()
    SIDE.wait_stream(HOST())
    with torch.cuda.stream(SIDE):
        y = x.sqrt()  # first
    x.record_stream(SIDE)
    del x
    ones(), ones(), ones()
    if ordered:
        HOST().wait_stream(SIDE)
    return y + 1  # second


def half_of_pinned_memory_rewritten(ordered):
    host = torch.ones(2, 10 * N, pin_memory=True)
    x = host[0].to("cuda", non_blocking=True)  # first
    host[1].fill_(2)
    if ordered:
        HOST().synchronize()
    host[0].fill_(2)  # second
    return x


ADD_ONE = torch.cuda._compile_kernel(
    'extern "C" __global__ void add_one(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }', "add_one")


def kernel_of_the_program(ordered):
    x, near = ones(), ones()
    torch.cuda.synchronize()
    with torch.cuda.stream(OTHER):
        near.mul_(2)  # another tensor, though of the same allocation
    with torch.cuda.stream(SIDE):
        ADD_ONE(grid=(10, 1, 1), block=(100, 1, 1), args=[x])  # first
    if ordered:
        HOST().wait_stream(SIDE)
    HOST().wait_stream(OTHER)
    near.add_(1)
    x.sum()  # second


RACES = [value for value in list(globals().values())
         if inspect.isfunction(value) and value.__module__ == __name__ and value is not ones]


def places(race):
    """Those that the report must name."""
    lines, start = inspect.getsourcelines(race)
    return [f"races.py:{start + number} ({race.__name__})" for mark in ("first", "second")
            for number, line in enumerate(lines) if line.endswith(f"# {mark}\n")]


def reports(log, race, ordered):
    """What is reported while it runs."""
    sys.stderr.flush()
    before = os.path.getsize(log)
    race(ordered)
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    with open(log) as file:
        file.seek(before)
        return [line for line in file if line.startswith("simulate_gpus: ")]


def main():
    log = sys.argv[1]
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    wrong = 0
    for race in RACES:
        silent, found = reports(log, race, True), reports(log, race, False)
        missing = [place for place in places(race) if not any(place in line for line in found)]
        is_right = not silent and len(found) == 1 and not missing and all(len(line) <= 400 for line in found)
        print(f"{race.__name__}: {'found' if is_right else f'WRONG: ordered: {silent}, unordered: {found}, missing: {missing}'}")
        wrong += not is_right
    dist.destroy_process_group()
    sys.exit(f"{wrong} of {len(RACES)} were not" if wrong else print(f"All {len(RACES)} races were found."))


main()
