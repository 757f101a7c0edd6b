# SPDX-License-Identifier: MIT
"""What torch.profiler shows of simulated GPUs: its records against what the program did, and against an H100's.

Usage: simulate_gpus [--dry-run] 2 python profiler_test.py
"""
import collections
import contextlib
import ctypes
import gzip
import io
import json
import os
import re
import runpy
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule

IS_DRY = os.environ.get("SIMULATE_GPUS_DRY_RUN") is not None
CARD = Path(__file__).parents[1] / "card"
BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
IS_CARDS_VERSION = torch.__version__.startswith("2.11.")
of_the_cards_version = unittest.skipUnless(IS_CARDS_VERSION, "the card's profile is of LibTorch 2.11")


class Trace:
    """Chrome's trace, as a profile exports it."""

    def __init__(self, text):
        self.all = json.loads(text)
        self.events = [event for event in self.all["traceEvents"] if event["ph"] == "X"]
        self.operations = {event["args"]["External id"]: event for event in self.of("cpu_op")}
        self.calls = {event["args"]["correlation"]: event for event in self.of("cuda_runtime", "cuda_driver")}

    def of(self, *categories):
        return sorted((event for event in self.events if event["cat"] in categories), key=lambda event: event["ts"])

    def operation(self, event):
        """The one that has launched it; None for a launch of the program."""
        return self.operations.get(event["args"].get("External id"), {}).get("name")

    def call(self, event):
        return self.calls[event["args"]["correlation"]]["name"]


def short(name):
    """reduce_kernel of void at::native::reduce_kernel<512, 1, ...>(...)."""
    template = re.match(r"void [\w:() ]*?(\w+)<", name)
    return template[1] if template else name


def profile_of_card_program(folder):
    argv, sys.argv = sys.argv, ["profile.py", folder + "/here"]
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(CARD / "runtime/profile.py"))
    sys.argv = argv
    return Trace(Path(folder, "here.json").read_text())


def profile_of_card():
    return Trace(gzip.decompress((CARD / "h100/profile.json.gz").read_bytes()))


def record(action, **options):
    with profile(activities=BOTH, **options) as recorded:
        action()
    return recorded


def exported(recorded):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        recorded.export_chrome_trace(str(file))
        return Trace(file.read_text())


def end(event):
    return event["ts"] + event["dur"]


def threads():
    return {task.name for task in Path("/proc/self/task").iterdir()}


def sleeps(thread):
    with contextlib.suppress(OSError):  # it has ended
        return Path("/proc/self/task", thread, "stat").read_text().rpartition(")")[2].split()[0] == "S"


def wait_until_torn_down(begun):
    """One of these threads of Kineto's does it and ends. It waits for a call of CUDA, of which it is told only while it sleeps."""
    while begun <= threads():
        if all(map(sleeps, begun)):
            torch.cuda.synchronize()


class Base(unittest.TestCase):
    maxDiff = None

    def trace(self, recorded):
        return self.check(exported(recorded))

    def check(self, trace):
        """In each trace calls launch, in operations; rows have one piece of work at a time."""
        self.assertEqual({device["name"] for device in trace.all["deviceProperties"]}, {"Simulated GPU"})
        rows = collections.defaultdict(list)
        for event in trace.of(*GPU_CATEGORIES):
            call = trace.calls[event["args"]["correlation"]]
            self.assertLessEqual(call["ts"], event["ts"], (call, event))
            self.assertEqual(call["args"].get("External id"), event["args"].get("External id"))
            if (operation := trace.operations.get(event["args"].get("External id"))) is not None:
                self.assertTrue(operation["ts"] <= call["ts"] and end(call) <= end(operation), (call, operation))
            device = event["args"].get("device", event["args"].get("inDevice"))  # of a copy between devices
            self.assertEqual((device, event["args"]["stream"]), (event["pid"], event["tid"]))
            rows[event["pid"], event["tid"]].append(event)
        for row in rows.values():
            for earlier, later in zip(row, row[1:]):
                self.assertLessEqual(end(earlier), later["ts"] + .0015, (earlier, later))  # exported in microseconds
        starts, ends = ([event["id"] for event in trace.all["traceEvents"] if (event.get("cat"), event["ph"]) == ("ac2g", phase)]
                        for phase in "sf")
        launching = {event["args"]["correlation"] for event in trace.of(*GPU_CATEGORIES)}
        self.assertEqual(launching - set(starts), set())
        self.assertEqual(launching - set(ends), set())
        return trace


@unittest.skipIf(IS_DRY, "there LibTorch launches its own kernels")
class Profiler(Base):
    def test_has_a_kernel_for_each_operation_and_all_copies(self):
        weight = torch.ones(32, 16, device="cuda", requires_grad=True)
        pinned, pageable = torch.ones(8, 32).pin_memory(), torch.ones(1 << 15)

        def step():
            x = pinned.to("cuda", non_blocking=True)
            (x @ weight).relu().sum().backward()
            pageable.cuda()
            x.clone()
            return x.cpu()

        step()
        weight.grad = None
        trace = self.trace(record(step))
        kernels = collections.Counter((trace.operation(event), short(event["name"])) for event in trace.of("kernel"))
        self.assertEqual(kernels, {
            ("aten::mm", "aten::mm gemm (simulated)"): 2, ("aten::relu", "vectorized_elementwise_kernel"): 1,
            ("aten::sum", "reduce_kernel"): 1, ("aten::fill_", "vectorized_elementwise_kernel"): 1,
            ("aten::threshold_backward", "elementwise_kernel"): 1})
        self.assertEqual({trace.call(event) for event in trace.of("kernel")}, {"cudaLaunchKernel"})
        copies = [(event["name"], event["args"]["bytes"]) for event in trace.of("gpu_memcpy")]
        self.assertEqual(copies, [
            ("Memcpy HtoD (Pinned -> Device)", 1024), ("Memcpy HtoD (Pageable -> Device)", 4 << 15),
            ("Memcpy DtoD (Device -> Device)", 1024), ("Memcpy DtoH (Device -> Pageable)", 1024)])
        self.assertEqual({trace.call(event) for event in trace.of("gpu_memcpy")}, {"cudaMemcpyAsync"})

    @of_the_cards_version
    def test_has_the_kernels_that_a_card_recorded(self):
        """Of the program of card/runtime/profile.py: LibTorch's, with grids and blocks; but for a graph's, captured before."""
        def kernels(trace):
            return [(event["name"], event["args"]["grid"], event["args"]["block"]) for event in trace.of("kernel")
                    if "at::native::" in event["name"] and trace.call(event) != "cudaGraphLaunch"]

        with tempfile.TemporaryDirectory() as folder:
            here = self.check(profile_of_card_program(folder))
        self.assertEqual(kernels(here), kernels(profile_of_card()))

    def test_tells_a_fused_step_from_single_ones(self):
        tensors = [torch.rand(4, 4, device="cuda") for _ in range(100)]
        fused = self.trace(record(lambda: torch._foreach_mul_(tensors, 2.)))
        self.assertEqual([short(event["name"]) for event in fused.of("kernel")], ["multi_tensor_apply_kernel"])
        mixed = tensors[:2] + [tensors[2].t()]  # strides that differ
        single = self.trace(record(lambda: torch._foreach_mul_(mixed, mixed[::-1])))
        self.assertEqual([short(event["name"]) for event in single.of("kernel")],
                         ["elementwise_kernel", "vectorized_elementwise_kernel", "elementwise_kernel"])

    def test_leaves_values_and_random_numbers_as_they_are(self):
        def step(x):
            torch.manual_seed(3)
            places = torch.tensor([1, 1], device="cuda")
            return [x.clone().normal_(), F.dropout(x, .5), x.sort().values, x[x > 0],
                    x.clone().index_add_(0, places, x[:2]), torch.linalg.qr(x).R, x.double().cumsum(1), torch.randperm(9, device="cuda"), x.half() @ x.half()]

        x = torch.rand(8, 8, device="cuda") - .5
        wanted, found = step(x), []
        record(lambda: found.extend(step(x)))
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)

    def test_leaves_the_numbers_of_two_threads_and_the_last_error(self):
        drawn, cuda = [], ctypes.CDLL(None)

        def draw():
            drawn.extend(torch.rand(4, device="cuda") for _ in range(300))

        def run():
            threads = [threading.Thread(target=draw) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(cuda.cudaSetDevice(99), 101)
            drawn[0] + 1
            self.assertEqual(cuda.cudaGetLastError(), 101)

        record(run)
        self.assertEqual(len({tuple(row.tolist()) for row in drawn}), 600)

    def test_sums_up_by_operation(self):
        x = torch.rand(256, 256, device="cuda")
        averages = record(lambda: [(x @ x, x * 2) for _ in range(3)]).key_averages()
        rows = {row.key: row for row in averages}
        self.assertEqual((rows["aten::mm"].count, rows["aten::mm gemm (simulated)"].count), (3, 3))
        self.assertGreater(rows["aten::mm"].device_time_total, 0)
        self.assertEqual(rows["aten::mm"].self_device_time_total, rows["aten::mm gemm (simulated)"].self_device_time_total)
        table = averages.table(sort_by="cuda_time_total", row_limit=-1)
        times = [row.self_device_time_total for row in averages]
        self.assertGreater(sum(times), 0)
        self.assertIn("aten::mm gemm (simulated)", table)
        self.assertIn("Self CUDA time total", table)

    def test_is_there_in_the_active_steps_of_a_schedule(self):
        seen = []
        with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
                     on_trace_ready=lambda recorded: seen.append(self.trace(recorded))) as recorded:
            for step in range(9):
                torch.ones(step + 1, device="cuda").mul_(2)
                recorded.step()
        self.assertEqual([len(trace.of("kernel")) for trace in seen], [4, 4])
        steps = [sorted(event["name"] for event in trace.of("user_annotation")) for trace in seen]
        self.assertEqual(steps, [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]])
        annotations = [event for event in seen[0].of("gpu_user_annotation")]  # the scopes on the GPU's row
        self.assertEqual({event["name"] for event in annotations}, {"ProfilerStep#2", "ProfilerStep#3"})

    def test_has_rows_for_streams_and_devices(self):
        side, second = torch.cuda.Stream(), torch.ones(8, device="cuda:1")

        def run():
            first = torch.ones(8, device="cuda:0")
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                first * 2
            second.add_(1)
            return second.to("cuda:0")

        trace = self.trace(record(run))
        rows = [(trace.operation(event), event["pid"]) for event in trace.of("kernel")]
        self.assertEqual(rows, [("aten::fill_", 0), ("aten::mul", 0), ("aten::add_", 1)])
        streams = [event["tid"] for event in trace.of("kernel")]
        self.assertEqual((streams[0], streams[1] == streams[0]), (7, False))
        copy, = trace.of("gpu_memcpy")
        self.assertEqual((copy["name"], copy["args"]["bytes"]), ("Memcpy PtoP (Device -> Device)", 32))
        self.assertEqual((copy["args"]["fromDevice"], copy["args"]["toDevice"]), (1, 0))

    def test_has_the_kernels_of_graphs_at_each_launch(self):
        x, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
        x.add_(1)

        def capture():
            with torch.cuda.graph(graph):
                y = x * 2
                y += 1
                x.copy_(y)

        trace = self.trace(record(capture))  # LibTorch 2.11 prepares its generator
        prepared = {"aten::fill_"} if IS_CARDS_VERSION else set()
        self.assertEqual({trace.operation(event) for event in trace.of(*GPU_CATEGORIES)}, prepared)

        def replay():
            graph.replay()
            graph.replay()

        trace = self.trace(record(replay))
        work = [(event["cat"], event["name"]) for event in trace.of(*GPU_CATEGORIES)]
        self.assertEqual(work, 2 * [("kernel", "aten::mul (simulated)"), ("kernel", "aten::add_ (simulated)"),
                                    ("gpu_memcpy", "Memcpy DtoD (Device -> Device)")])
        self.assertEqual([trace.call(event) for event in trace.of(*GPU_CATEGORIES)], 6 * ["cudaGraphLaunch"])

    def test_has_waits_and_events_on_request(self):
        side, event = torch.cuda.Stream(), torch.cuda.Event()

        def run():
            torch.ones(8, device="cuda")
            event.record()
            side.wait_event(event)
            with torch.cuda.stream(side):
                torch.ones(8, device="cuda")
            event.synchronize()
            side.synchronize()
            torch.cuda.synchronize()

        sync = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
        trace = self.trace(record(run, experimental_config=sync))
        waits = {event["name"]: event for event in trace.of("cuda_sync")}
        self.assertEqual(set(waits), {"Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync"})
        recording, = (event for event in trace.calls.values() if event["name"] == "cudaEventRecordWithFlags")
        for name in ("Stream Wait Event", "Event Sync"):
            self.assertEqual(waits[name]["args"]["wait_on_stream"], 7)
            self.assertEqual(waits[name]["args"]["wait_on_cuda_event_record_corr_id"], recording["args"]["correlation"])
        self.assertEqual(waits["Stream Wait Event"]["args"]["stream"], waits["Stream Sync"]["args"]["stream"])

    def test_has_collectives_as_kernels(self):
        if not torch.cuda.nccl.is_available([torch.ones(1, device="cuda")]):
            self.skipTest("there is no NCCL")
        parts = [torch.ones(64, device=f"cuda:{i}") for i in range(2)]
        trace = self.trace(record(lambda: torch.cuda.nccl.all_reduce(parts)))
        kernels = [(event["name"], event["pid"], trace.call(event)) for event in trace.of("kernel")]
        self.assertEqual(sorted(kernels), [("ncclDevKernel_AllReduce (simulated)", i, "cudaLaunchKernelExC") for i in range(2)])
        self.assertEqual(parts[1].tolist(), 64 * [2.])

    def test_follows_memory_and_the_stack(self):
        def run():
            with record_function("my scope"):
                return torch.ones(1 << 18, device="cuda")

        recorded = record(run, profile_memory=True, with_stack=True, record_shapes=True)
        rows = {row.key: row for row in recorded.key_averages()}
        self.assertEqual(rows["aten::ones"].device_memory_usage, 4 << 18)
        self.assertTrue(any("run" in event["name"] for event in exported(recorded).of("python_function")))

    def test_works_as_autograds_profiler_and_beside_nvtx(self):
        x = torch.ones(8, device="cuda")
        with torch.autograd.profiler.profile(use_device="cuda") as recorded:
            x.mul(2)
        timed, = (event for event in recorded.function_events if event.kernels)  # by CUDA's events
        self.assertEqual((timed.name, timed.kernels[0].name), ("aten::mul", "aten::mul"))
        with torch.autograd.profiler.emit_nvtx():
            self.assertEqual(x.mul(2).tolist(), 8 * [2.])

    def test_lets_dataloaders_fork(self):
        loader = torch.utils.data.DataLoader(torch.arange(6.), batch_size=2, num_workers=1)
        sums = []
        trace = self.trace(record(lambda: sums.extend(batch.cuda().sum().item() for batch in loader)))
        self.assertEqual(sums, [1., 5., 9.])
        self.assertEqual([short(event["name"]) for event in trace.of("kernel")], 3 * ["reduce_kernel"])


@unittest.skipUnless(IS_DRY, "--dry-run was not given")
class DryRun(Base):
    def test_has_libtorchs_kernels_with_their_sizes(self):
        x = torch.ones(1 << 20, device="cuda")

        def run():
            x.mul_(2)
            return x.view(1024, 1024) @ x.view(1024, 1024)

        trace = self.trace(record(run))
        kernels = {trace.operation(event): event for event in trace.of("kernel")}
        self.assertEqual(set(kernels), {"aten::mul_", "aten::mm"})
        self.assertTrue(kernels["aten::mul_"]["name"].startswith("void at::native::vectorized_elementwise_kernel<"), kernels)
        self.assertEqual(kernels["aten::mul_"]["args"]["block"], [128, 1, 1])
        self.assertGreaterEqual(128 * 16 * kernels["aten::mul_"]["args"]["grid"][0], 1 << 20)
        self.assertEqual(kernels["aten::mm"]["name"], "aten::mm gemm (simulated)")

    @of_the_cards_version
    def test_has_what_a_card_recorded(self):
        """The program of card/runtime/profile.py. Copies, waits and LibTorch's kernels are those of an H100, with their
        names, grids, blocks and operations. What NVIDIA's libraries launch there is one kernel here."""
        with tempfile.TemporaryDirectory() as folder:
            here = self.check(profile_of_card_program(folder))
        there = profile_of_card()

        def copies(trace):
            return [(event["name"], event["args"]["bytes"], trace.operation(event), trace.call(event))
                    for event in trace.of("gpu_memcpy")]

        def kernels_of_libtorch(trace):
            return [(trace.operation(event), trace.call(event), event["name"], event["args"]["grid"], event["args"]["block"])
                    for event in trace.of("kernel") if "at::native::" in event["name"]]

        def of_libraries(trace):
            found = {event["args"]["External id"]: trace.operation(event)
                     for event in trace.of("kernel") if "at::native::" not in event["name"]}
            return [name for _, name in sorted(found.items())]

        def calls(trace):
            return collections.Counter((call["name"], call["args"]["cbid"]) for call in trace.calls.values() if call["name"] in (
                "cudaDeviceSynchronize", "cudaEventRecordWithFlags", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaStreamSynchronize",
                "cudaStreamWaitEvent"))

        for what in (copies, kernels_of_libtorch, of_libraries, calls):
            self.assertEqual(what(here), what(there), what.__name__)
        self.assertEqual({event["cat"] for event in there.events} - {event["cat"] for event in here.events},
                         {"overhead", "cuda_driver", "gpu_memset"})  # of NVIDIA's libraries

    def test_has_kernels_of_the_program(self):
        square = torch.cuda.jiterator._create_jit_fn("template <typename T> T my_square(T x) { return x * x; }")
        x = torch.ones(1000, device="cuda")
        square(x)
        trace = self.trace(record(lambda: square(x)))
        kernel, = trace.of("kernel")
        self.assertIn("my_square", kernel["name"])
        self.assertEqual((trace.call(kernel), kernel["args"]["grid"][1:]), ("cuLaunchKernel", [1, 1]))
        self.assertGreater(kernel["args"]["grid"][0] * kernel["args"]["block"][0], 0)

    def test_can_be_torn_down_and_begin_again(self):
        """The first profiles of the process: what one without TEARDOWN_CUPTI has left, Kineto tears down in the next one."""
        os.environ["TEARDOWN_CUPTI"] = "1"
        x = torch.ones(8, device="cuda")
        for _ in range(3):
            before = threads()
            trace = self.trace(record(lambda: x.mul_(2)))
            self.assertEqual([trace.operation(event) for event in trace.of("kernel")], ["aten::mul_"])
            wait_until_torn_down(threads() - before)
        del os.environ["TEARDOWN_CUPTI"]


if __name__ == "__main__":
    unittest.main()
