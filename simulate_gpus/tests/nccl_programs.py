# SPDX-License-Identifier: MIT
"""What trains networks on several GPUs in Python, on simulated ones: the same numbers as on the CPU.

Usage: simulate_gpus N python3 nccl_programs.py              DataParallel, in one process
       simulate_gpus N torchrun --nproc-per-node N nccl_programs.py
"""
import copy
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", torch.cuda.device_count()))
GPU = torch.device("cuda", RANK)


def check(what, ours, reference, most=1e-5):
    """Compares tensors, which may be of any device."""
    pairs = list(zip(ours, reference, strict=True))
    worst = max((a.detach().cpu().double() - b.detach().cpu().double()).abs().max().item() for a, b in pairs)
    if not worst <= most:
        sys.exit(f"rank {RANK}: {what} is off by {worst}")
    if RANK == 0:
        print(f"{what}: off by {worst:.1e} at most", flush=True)


def batches(count, *shape):
    numbers = torch.Generator().manual_seed(7)
    return [torch.randn(SIZE * 2, *shape, generator=numbers) for _ in range(count)]


def own_part(batch):
    return batch.chunk(SIZE)[RANK].to(GPU)


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def train(net, optimizer, inputs):
    for x in inputs:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def parameters_of(net):
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters()]


def compare_with_the_whole_batch(what, shard, most=1e-5):
    """shard(net) on each rank, trained with its part of each batch, against the network with all of it. By SGD: Adam
    makes a whole step of the smallest difference."""
    reference = encoder()
    net = shard(encoder().to(GPU))
    inputs = batches(4, 5, 16)
    train(reference, torch.optim.SGD(reference.parameters(), 0.1), inputs)
    train(net, torch.optim.SGD(net.parameters(), 0.1), [own_part(x) for x in inputs])
    check(what, [p.float() for p in parameters_of(net)], reference.parameters(), most)


def data_parallel():
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    net = nn.DataParallel(copy.deepcopy(reference).cuda())
    inputs = batches(3, 8)
    train(reference, torch.optim.SGD(reference.parameters(), 0.1), inputs)
    train(net, torch.optim.SGD(net.parameters(), 0.1), [x.cuda() for x in inputs])
    check("DataParallel", net.parameters(), reference.parameters())


def collectives():
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                  torch.float64, torch.complex64):
        x = torch.full((5,), RANK + 1, device=GPU).to(dtype)
        dist.all_reduce(x)
        check(f"all_reduce of {dtype}", [x.real], [torch.full((5,), SIZE * (SIZE + 1) / 2)], 0)
    own, everything = torch.full((3,), float(RANK), device=GPU), torch.zeros(3 * SIZE, device=GPU)
    dist.all_gather_into_tensor(everything, own)
    check("all_gather", [everything], [torch.arange(float(SIZE)).repeat_interleave(3)], 0)
    dist.reduce_scatter_tensor(own, everything, op=dist.ReduceOp.AVG)
    check("reduce_scatter", [own], [torch.full((3,), float(RANK))], 0)
    received = torch.zeros(SIZE, device=GPU)
    dist.all_to_all_single(received, torch.arange(float(SIZE), device=GPU) + 10 * RANK)
    check("all_to_all", [received], [torch.arange(float(SIZE)) * 10 + RANK], 0)
    moved = torch.zeros(3, device=GPU)
    ring = [dist.P2POp(dist.isend, torch.full((3,), float(RANK), device=GPU), (RANK + 1) % SIZE),
            dist.P2POp(dist.irecv, moved, (RANK - 1) % SIZE)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    check("send and receive", [moved], [torch.full((3,), float((RANK - 1) % SIZE))], 0)
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * RANK})
    if objects != [{"rank": rank, "text": "x" * rank} for rank in range(SIZE)]:
        sys.exit(f"rank {RANK}: all_gather_object gave {objects}")


def graph():
    x, y = torch.ones(4, device=GPU), torch.zeros(4, device=GPU)
    dist.all_reduce(x.clone())
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        z = x * 2
        dist.all_reduce(z)
        y.copy_(z + 1)
    for value in (3.0, RANK + 1.0):
        x.fill_(value)
        recorded.replay()
    check("all_reduce in a graph", [y], [torch.full((4,), SIZE * (SIZE + 1) + 1.0)], 0)


def data_parallel_of_processes():
    from torch.nn.parallel import DistributedDataParallel
    compare_with_the_whole_batch("DistributedDataParallel",
                                 lambda net: DistributedDataParallel(net, device_ids=[RANK], bucket_cap_mb=0.01))


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
    mesh = init_device_mesh("cuda", (SIZE,))

    def fully(net, **options):
        for layer in net.layers:
            fully_shard(layer, mesh=mesh, **options)
        return fully_shard(net, mesh=mesh, **options)

    compare_with_the_whole_batch("fully_shard", fully)
    narrow = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    compare_with_the_whole_batch("fully_shard in bfloat16", lambda net: fully(net, mp_policy=narrow), 1e-2)

    reference, inputs = encoder(), batches(3, 5, 16)
    net = FullyShardedDataParallel(encoder().to(GPU), device_id=RANK, use_orig_params=True)
    train(reference, torch.optim.SGD(reference.parameters(), 1e-2), inputs)
    train(net, torch.optim.SGD(net.parameters(), 1e-2), [own_part(x) for x in inputs])
    with FullyShardedDataParallel.summon_full_params(net):
        check("FSDP", net.parameters(), reference.parameters())


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cuda", (SIZE,))
    torch.manual_seed(1)
    a, b = torch.randn(8, 12), torch.randn(12, 4)
    product = distribute_tensor(a.to(GPU), mesh, [Shard(1)]) @ distribute_tensor(b.to(GPU), mesh, [Shard(0)])
    check("DTensor", [product.full_tensor()], [a @ b])
    moved = distribute_tensor(a.to(GPU), mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
    check("DTensor in other shards", [moved.full_tensor()], [a], 0)
    reference = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    net = parallelize_module(copy.deepcopy(reference).to(GPU), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(3, 8)
    reference(x).square().sum().backward()
    net(x.to(GPU)).square().sum().backward()
    check("tensor parallel", [p.grad.full_tensor() for p in net.parameters()], [p.grad for p in reference.parameters()])


def pipelines():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    torch.manual_seed(2)
    whole = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(SIZE)))
    x, wanted = torch.randn(8, 16), torch.randn(8, 16)
    nn.functional.mse_loss(whole(x), wanted).backward()
    for schedule in (ScheduleGPipe, Schedule1F1B):
        stage = copy.deepcopy(whole[RANK]).to(GPU)
        stage.zero_grad()
        steps = schedule(PipelineStage(stage, RANK, SIZE, GPU), n_microbatches=4, loss_fn=nn.functional.mse_loss)
        first = (x.to(GPU),) if RANK == 0 else ()
        last = {"target": wanted.to(GPU)} if RANK == SIZE - 1 else {}
        steps.step(*first, **last)
        check(schedule.__name__, [p.grad for p in stage.parameters()], [p.grad for p in whole[RANK].parameters()])


def main():
    if "RANK" not in os.environ:
        return data_parallel()
    torch.cuda.set_device(GPU)
    dist.init_process_group("nccl", timeout=timedelta(seconds=60), device_id=GPU)
    for run in (collectives, graph, data_parallel_of_processes, sharded, tensor_parallel, pipelines):
        run()
    dist.destroy_process_group()


main()
