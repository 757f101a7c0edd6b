# SPDX-License-Identifier: MIT
"""Starts the ranks of a group, most with the real torchrun, and looks at how they end.

Usage: python communicator_torchrun.py SCENARIO PROGRAM GPUS, one of the functions below, the path of
communicator_worker (for `many_processes`: of that example), and how many GPUs this process sees: with
any, each rank has one of its own, and tensors go by NCCL.
Exits with 77, which CTest shows as "Skipped", where this Python has no torch, which has torchrun.
"""
import importlib.util
import os
import re
import socket
import subprocess
import sys

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LIMIT_S = 100  # far more than anything takes, and longer than every tested time-out
scenario, program, GPUS = *sys.argv[1:3], int(sys.argv[3])
RANKS = GPUS or 3
# Until a lost rank is noticed: by Gloo usually at once, by NCCL never earlier. Less than the 30 s after which
# torchrun kills whoever is left.
TIMEOUT_S = 20


def environment(**more):
    """Without what an outer torchrun may have set."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "TORCHELASTIC_", "USE_GPU_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    own = {"BACKEND": "nccl" if GPUS > 1 else "gloo", "TIMEOUT_S": str(TIMEOUT_S), "OMP_NUM_THREADS": "1",
           "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000",  # for which the watchdog waits before it ends the process
           "PYTHONWARNINGS": "ignore:Failed to initialize NumPy"}
    return kept | own | more


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command, **more):
    return subprocess.Popen(command, env=environment(**more), text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def finish(processes, limit_s=LIMIT_S):
    """The exit statuses and outputs; fails if one does not end."""
    statuses, outputs = [], []
    for process in processes:
        try:
            outputs.append(process.communicate(timeout=limit_s)[0])
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            output = process.communicate()[0]
            sys.exit(f"FAILED: still running after {limit_s} s; it printed:\n{output}")
        statuses.append(process.returncode)
        print(f"--- exit status {statuses[-1]}:\n{outputs[-1]}")
    return statuses, outputs


def torchrun(*arguments, tests, **more):
    return start([*TORCHRUN, *arguments, "--no-python", program, f"--gtest_filter={tests}"], **more)


def start_ranks(tests, count=RANKS, victim=None, port=None, visible=(), twice=(), **sizes):
    """Without torchrun: rank 0 serves the store. rank_2=4 tells rank 2 that it is one of 4.
    visible=("0", "1"): rank 0 sees the first GPU alone, rank 1 the second. twice=[1]: two
    processes have rank 1."""
    same = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port or free_port()),
            "VICTIM": str(victim)}
    hidden = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in visible] or [{}] * count
    return [start([program, f"--gtest_filter={tests}"], RANK=str(rank), LOCAL_RANK=str(rank),
                  WORLD_SIZE=str(sizes.get(f"rank_{rank}", count)), **same, **hidden[rank])
            for rank in [*range(count), *twice]]


def ranks(*arguments, limit_s=LIMIT_S, **more):
    return finish(start_ranks(*arguments, **more), limit_s)


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def expect_said(output, *parts):
    """One line has all parts."""
    lines = [line for line in output.splitlines() if line.startswith("SAID")]
    expect(any(all(part in line for part in parts) for line in lines), f"no line has {parts}")


def expect_lost(output, rank, *parts):
    """That rank said which connection was closed, with these parts; or, as c10d does not always
    notice that, that the time-out is over."""
    own = "\n".join(line for line in output.splitlines() if f"rank {rank}: " in line)
    if f"{TIMEOUT_S}000" not in own:
        expect_said(own, "127.0.0.1", *parts)


def expect_survivors(statuses, victim):
    expected = [-9 if rank == victim else 0 for rank in range(RANKS)]
    expect(statuses == expected, f"exit statuses {statuses}")


def group(count):
    [status], _ = finish([torchrun("--standalone", f"--nproc-per-node={count}", tests="Group.*")])
    expect(status == 0, "a test failed")


def group_of_1(): group(1)
def group_of_2(): group(2)
def group_of_4(): group(4)


def local_rank_past_the_gpus():
    [status], [output] = finish([torchrun("--standalone", "--nproc-per-node=3",
                                          tests="Group.KnowsRankSizeAndDevice")])
    expect(status != 0 and "LOCAL_RANK 2" in output, "rank 2 was not refused")


def one_visible_gpu_each():
    """As launchers show them that give each process its own."""
    statuses, _ = ranks("Group.*", visible=("0", "1"))
    expect(statuses == [0, 0], "a test failed")


def one_visible_gpu_for_two():
    statuses, outputs = ranks("Group.KnowsRankSizeAndDevice", visible=("1", "1"))
    expect(0 not in statuses, "a rank was not refused")
    for output in outputs:
        expect("ranks 0, 1 all see only the same GPU" in output, "the reason")


def agents(tests, **more):
    """Two agents, as on two machines: each of the first two or the last two GPUs, if there are four;
    otherwise both of the same, so that Gloo is used."""
    visible = [{"CUDA_VISIBLE_DEVICES": gpus} if GPUS == 4 else {} for gpus in ("0,1", "2,3")]
    if GPUS == 2:
        more["BACKEND"] = "gloo"
    endpoint = f"--rdzv-endpoint=localhost:{free_port()}"
    return finish([torchrun("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", endpoint,
                            "--rdzv-id=test", "--local-addr=127.0.0.1", "--max-restarts=2",
                            tests=tests, **more, **seen)
                   for seen in visible])


def two_agents():
    statuses, _ = agents("Group.*")
    expect(statuses == [0, 0], "a test failed")


def restarted_on_two_agents():
    statuses, outputs = agents("Fault.KilledOnceThenRestarted", VICTIM="3")
    expect(statuses == [0, 0], "the second start failed")
    for rank in range(4):
        expect_said("\n".join(outputs), f"rank {rank}: joined again")


def restarted(tests="Fault.KilledOnceThenRestarted", said="joined again"):
    """With an address given, torchrun serves one store for all starts."""
    [status], [output] = finish([torchrun(
        "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}",
        "--max-restarts=1", tests=tests, VICTIM="0")])
    expect(status == 0, "the second start failed")
    for rank in range(2):
        expect_said(output, f"rank {rank}: {said}")


def restarted_while_joining():
    restarted("Fault.KilledWhileJoiningThenRestarted", "joined, restart 1")


def same_rank_twice():
    statuses, outputs = ranks("Fault.JoinsUnlessAnotherHasItsRank", count=2, twice=[1])
    expect(statuses == [0, 0, 0], "exit statuses")
    expect_said(outputs[0], "joined")
    expect_said(outputs[1] + outputs[2], "joined")
    expect_said(outputs[1] + outputs[2], "refused")


def killed_before_joining():
    statuses, outputs = ranks("Fault.CannotJoin", victim=1)
    expect_survivors(statuses, victim=1)
    expect_said(outputs[0], "ranks joined in time: 0")
    expect("joined in time: 0, 1" not in outputs[0], "rank 1 did not join")


def killed_server_before_joining():
    statuses, outputs = ranks("Fault.CannotJoin", victim=0)
    expect_survivors(statuses, victim=0)
    for output in outputs[1:]:
        expect_said(output, "rank 0 is not")


def killed_during_all_reduce():
    [status], [output] = finish([torchrun("--standalone", f"--nproc-per-node={RANKS}",
                                          tests="Fault.KilledDuringAllReduce", VICTIM="1")])
    expect(status != 0, "torchrun did not report the killed rank")
    for rank in range(RANKS):
        if rank != 1:
            expect_lost(output, rank)
    expect("[  FAILED  ]" not in output, "a survivor got another error")


def killed_server_during_all_reduce():
    statuses, outputs = ranks("Fault.KilledDuringAllReduce", count=2, victim=0)
    expect(statuses == [-9, 0], "exit statuses")
    expect_lost(outputs[1], 1, "(there: rank 0)")


def stopped(tests, *parts):
    """The last rank's connections stay open: only the time-out detects it. The rank that reaches it
    leaves, and another may see that first."""
    processes = start_ranks(tests, victim=RANKS - 1)
    statuses, outputs = finish(processes[:-1])
    processes[-1].kill()
    expect(statuses == [0] * (RANKS - 1), "exit statuses")
    expect_said("".join(outputs), *parts)


def stopped_before_all_reduce(): stopped("Fault.StoppedBeforeAllReduce", "6000ms")
def stopped_before_a_call_of_the_backend(): stopped("Fault.StoppedBeforeACallOfTheBackend", "6000")


def continued_after_the_time_out():
    """It then sends what the others wait for no more."""
    statuses, _ = ranks("Fault.ContinuesAfterTheTimeOut", victim=RANKS - 1)
    expect(statuses == [0] * RANKS, "exit statuses")


def out_of_memory_between_two_buckets():
    statuses, outputs = ranks("Fault.OutOfMemoryBetweenTwoBuckets", victim=1)
    expect(statuses == [0] * RANKS, "exit statuses")
    for rank in range(RANKS):
        if rank != 1:
            expect_lost(outputs[rank], rank)


def killed_at_the_end():
    statuses, outputs = ranks("Fault.KilledAtTheEnd", victim=0)
    expect_survivors(statuses, victim=0)
    for output in outputs[1:]:
        expect_said(output, "left")


def wrong_world_size():
    statuses, outputs = ranks("Fault.CannotJoin", rank_1=5)
    expect(statuses == [0] * RANKS, "exit statuses")
    for output in outputs:
        expect_said(output, f"rank 1 was started with WORLD_SIZE 5, rank 0 with {RANKS}")


def taken_port():
    """By a program that accepts but never replies."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        statuses, outputs = ranks("Fault.CannotJoin", count=2, port=server.getsockname()[1])
    expect(statuses == [0, 0], "exit statuses")
    expect_said(outputs[0], "cannot listen there (Address already in use)")
    expect_said(outputs[1], "has not answered")


def data_parallel_together():
    """DistributedDataParallel."""
    [status], _ = finish([torchrun("--standalone", f"--nproc-per-node={GPUS or 2}", tests="Together.*")])
    expect(status == 0, "a test failed")


def data_parallel_of_one():
    [status], _ = finish([torchrun("--standalone", "--nproc-per-node=1", tests="Together.*")])
    expect(status == 0, "a test failed")


def data_parallel_two_agents():
    """GPU tensors by Gloo."""
    statuses, _ = agents("Together.*")
    expect(statuses == [0, 0], "a test failed")


def data_parallel_lost(test, status):
    """Rank 1 is lost, and ends with that status. By Gloo the others throw; by NCCL c10d's watchdog ends them."""
    statuses, outputs = ranks(test, victim=1, limit_s=200)
    expect(statuses[1] == status, "the exit status of rank 1")
    for rank in {*range(RANKS)} - {1}:
        if GPUS:
            expect(statuses[rank] == -6 and f"[Rank {rank}] Watchdog caught collective operation timeout" in outputs[rank],
                   f"rank {rank} was not ended by the watchdog")
        else:
            expect(statuses[rank] == 0, f"the exit status of rank {rank}")
            expect_said(outputs[rank], f"DistributedDataParallel on rank {rank} of {RANKS}")


def data_parallel_killed(): data_parallel_lost("Fault.KilledDuringBackward", -9)
def data_parallel_skips_a_step(): data_parallel_lost("Fault.SkipsAStep", 0)
def data_parallel_batch_raises(): data_parallel_lost("Fault.BatchRaises", 0)
def data_parallel_returns_no_tensor(): data_parallel_lost("Fault.ReturnsNoTensor", 0)


def data_parallel_unknown_output():
    statuses, _ = ranks("Fault.ReturnsAnUnknownType", count=2)
    expect(statuses == [0, 0], "exit statuses")


def data_parallel_unused():
    statuses, outputs = ranks("Fault.DoesNotUseAParameter", victim=1)
    expect(statuses == [0] * RANKS, "exit statuses")
    expect_said(outputs[1], "2 of 10 parameters had no gradient in the last step: right.weight, ...")


def many_processes():
    """The example ends where it does alone, to the tolerance that it states."""
    def numbers(*command):
        [status], [output] = finish([start([*command, program])])
        expect(status == 0, "exit status")
        return [float(x) for x in re.findall(r"-?\d+\.\d+", output)]

    alone = numbers()
    expect(len(alone) > 3, "it prints losses and parameters")
    for count in (GPUS,) if GPUS else (2, 4):
        together = numbers(*TORCHRUN, "--standalone", f"--nproc-per-node={count}", "--no-python")
        expect(len(together) == len(alone), "the output differs")
        close = all(abs(a - b) <= 1e-6 * max(1, abs(a)) for a, b in zip(alone, together))
        expect(close, f"{count} processes end elsewhere")


if not importlib.util.find_spec("torch"):
    print(f"SKIPPED: {sys.executable} has no torch")
    sys.exit(77)
globals()[scenario]()
