# SPDX-License-Identifier: MIT
"""The file of simulate_gpus --trace=FILE: Chrome's trace format, and the counts of --summary.

Usage: as simulate_gpus_test.py
"""
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from simulate_gpus_test import SIMULATE_GPUS, TRAIN, needs_torch, rows, run

HOST, FIRST_ROW = 16, 1000  # the host's process, and stream 0 or thread 0 of each; a GPU's process has its number
FIELDS = {  # by phase
    "M": {"name": str, "args": dict},
    "X": {"ts": int, "dur": int, "cat": str, "name": str, "args": dict},
    "s": {"ts": int, "id": int, "cat": str, "name": str},
    "f": {"ts": int, "id": int, "cat": str, "name": str, "bp": str},
    "C": {"ts": int, "name": str, "args": dict},
}

# Batches are copied in a stream of their own while the network computes; then a graph with a branch, and all waits.
STREAMS = """
import ctypes, torch
runtime = ctypes.CDLL("libcudart.so.13")
def zero(x, stream):
    assert runtime.cudaMemsetAsync(ctypes.c_void_p(x.data_ptr()), 0, ctypes.c_size_t(x.nbytes), ctypes.c_void_p(stream.cuda_stream)) == 0
compute, side = torch.cuda.current_stream(), torch.cuda.Stream()
weight = torch.rand(64, 64, device="cuda", requires_grad=True)
arrived = []
for host in torch.rand(3, 64, 64).pin_memory():
    with torch.cuda.stream(side):
        arrived.append((host.to("cuda", non_blocking=True), side.record_event()))
for batch, event in arrived:
    compute.wait_event(event)
    batch.record_stream(compute)
    (batch @ weight).sum().backward()
small, large = torch.rand(4, device="cuda"), torch.rand(1 << 16).to("cuda")  # staged; waited for
graph, branch = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph):
    own = torch.cuda.current_stream()
    doubled = large * 2
    branch.wait_stream(own)
    with torch.cuda.stream(branch):
        more = small + 1
    own.wait_stream(branch)
    zero(doubled, own)
    kept = doubled[:4].clone() + more
for launch in range(3):
    graph.replay()
zero(small, compute)
event = torch.cuda.Event()
event.record()
event.synchronize()
side.synchronize()
large.to("cuda:1").cpu()
torch.cuda.nccl.all_reduce([torch.ones(4, device=device) for device in range(2)])
torch.cuda.synchronize()
"""

# On two ranks: a collective, the same in a graph, and a message.
RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
x, graph = torch.ones(1000, device="cuda"), torch.cuda.CUDAGraph()
dist.all_reduce(x)
with torch.cuda.graph(graph):
    dist.all_reduce(x)
for launch in range(3):
    graph.replay()
(dist.recv if dist.get_rank() else dist.send)(x, 1 - dist.get_rank())
torch.cuda.synchronize()
del graph  # LibTorch 2.15 keeps in it a pointer to its process group
dist.destroy_process_group()
"""

# Without LibTorch, in another folder: blocking streams, which wait for the default stream, and it for them.
BLOCKING = """
import ctypes, os, sys
runtime, stream, memory = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p(), ctypes.c_void_p()
os.chdir("/")
runtime.cudaStreamCreate(ctypes.byref(stream))
runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096))
for to in (stream, None, stream):
    runtime.cudaMemsetAsync(memory, 0, ctypes.c_size_t(4096), to)
runtime.cudaStreamSynchronize(stream)
runtime.cudaMemsetAsync(memory, 0, ctypes.c_size_t(64), None)
if "kill" in sys.argv: os.kill(os.getpid(), 9)
runtime.cudaFree(memory)
"""


# Children of fork, which the parent makes before it uses a GPU itself.
FORKED = """
import os, torch
assert torch.cuda.device_count() == 1
for child in range(2):
    if os.fork() == 0:
        torch.ones(4, device="cuda")
        raise SystemExit
assert [os.wait()[1] for child in range(2)] == [0, 0]
"""


def end(piece):
    return piece["ts"] + piece["dur"]


def number(text):
    return int(text.replace(",", ""))


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def trace(self, *arguments):
        """The events of the program's own process, and what the run printed to stderr."""
        ran = run("--summary", f"--trace={self.folder / 'trace.json'}", *arguments)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return self.read("trace.json"), ran.stderr

    def read(self, name):
        trace = json.loads((self.folder / name).read_text())
        self.assertIn("units, not times", trace["otherData"]["units"])
        events = trace["traceEvents"]
        self.check(events)
        return events

    def check(self, events):
        """That viewers understand it, and that nothing begins or ends where it cannot."""
        slices, named, ends, heads = {}, set(), {}, []
        for event in events:
            fields = FIELDS[event["ph"]]
            self.assertEqual(set(event), {"ph", "pid", "tid", *fields}, event)
            for name, kind in fields.items():
                self.assertIs(type(event[name]), kind, event)
            place = event["pid"], event["tid"]
            if event["ph"] == "M":
                named.add((event["name"], *place))
            if event["ph"] != "X":
                continue
            self.assertIn(event["cat"], ("operation", "copy", "event", "wait", "collective", "graph", "arrow"))
            self.assertGreater(event["dur"], 0)
            if event["cat"] == "arrow":  # an arrow's head, within a wait
                heads.append((*place, event["ts"]))
                continue
            slices.setdefault(place, []).append(event)
            if event["cat"] == "copy":
                self.assertEqual(event["dur"], event["args"]["bytes"])
            waits = re.fullmatch(r"waits for cuda:(\d+)(?: stream (\d+))?", event["name"])
            if event["pid"] == HOST and waits:  # for all that this stream, or device, was given by then
                self.assertGreaterEqual(end(event), max((last for (pid, tid), last in ends.items() if pid == int(waits[1])
                                                         and waits[2] in (None, str(tid - FIRST_ROW))), default=0), event)
            ends[place] = max(ends.get(place, 0), end(event))
        for place, row in slices.items():
            self.assertIn(("thread_name", *place), named)
            self.assertIn(("process_name", place[0], FIRST_ROW), named)
            self.assertGreaterEqual(place[1], FIRST_ROW)
            free = around = 0
            for piece in sorted(row, key=lambda piece: piece["ts"]):
                self.assertGreaterEqual(piece["ts"], free, piece)
                if piece["cat"] == "graph":  # its work is inside
                    free, around = piece["ts"], end(piece)
                else:
                    free = end(piece)
                    self.assertTrue(free <= around or piece["ts"] >= around, piece)
        starts, arrows = {e["id"]: e for e in events if e["ph"] == "s"}, [e for e in events if e["ph"] == "f"]
        self.assertEqual(set(starts), {arrow["id"] for arrow in arrows})
        self.assertEqual(sorted(heads), sorted((arrow["pid"], arrow["tid"], arrow["ts"]) for arrow in arrows))
        for arrow in arrows:
            self.assertLess(starts[arrow["id"]]["ts"], arrow["ts"])
            found = []
            for place, category in ((starts[arrow["id"]], "event"), (arrow, "wait")):
                found += [piece for piece in slices[place["pid"], place["tid"]]
                          if piece["cat"] == category and piece["ts"] <= place["ts"] < end(piece)]
            event, wait = found
            self.assertGreaterEqual(end(wait), end(event))

    def compare(self, events, summary):
        pieces = [event for event in events if event["ph"] == "X"]
        counts = rows(summary)

        def count(category, name=None, **arguments):
            those = [piece for piece in pieces if piece["cat"] == category and name in (None, piece["name"])
                     and arguments.items() <= piece["args"].items()]
            return len(those), sum(piece["args"].get("bytes", 0) for piece in those)

        for row in ("host to device", "device to host", "device to device", "within a device"):
            self.assertEqual([*count("copy", "copy " + row)], counts[row], summary)
        for row, *numbers in re.findall(r"^  (\w+ to \w+) .*?  ([\d,]+) \(([\d,]+) bytes\); ([\d,]+) \(([\d,]+) bytes\)",
                                        summary, re.MULTILINE):
            self.assertEqual([*count("copy", "copy " + row, pinned=True), *count("copy", "copy " + row, pinned=False)],
                             [*map(number, numbers)], summary)
        sets = count("operation", "memory set")[0]
        self.assertEqual([sets], counts["memory sets"], summary)
        self.assertEqual([count("operation")[0] - sets], counts.get("operations") or counts["kernels"], summary)
        self.assertEqual([count("graph")[0]], counts["graph launches"], summary)
        for kind in ("stream", "event", "device"):
            self.assertEqual([count("wait", kind=f"{kind} synchronization")[0]], counts[f"{kind} synchronizations"], summary)
        collectives = {piece["name"] for piece in pieces if piece["cat"] == "collective"}
        for name in collectives:
            self.assertEqual([*count("collective", name)], counts[name], summary)
        self.assertEqual(len(re.findall(r"^  (?:AllReduce|Send|Recv) ", summary, re.MULTILINE)), len(collectives))
        for device, *peaks in re.findall(r"^  cuda:(\d+) +(?:yes|no) +([\d,]+) +([\d,]+)", summary, re.MULTILINE):
            for name, peak in zip(("tensors", "allocated by cudaMalloc"), peaks):
                self.assertEqual(max((event["args"]["bytes"] for event in events if event["ph"] == "C"
                                      and (event["name"], event["pid"]) == (name, int(device))), default=0), number(peak), summary)

    def test_has_what_a_training_program_does_each_time_the_same(self):
        events, summary = self.trace("1", TRAIN, "1")
        self.compare(events, summary)
        again = self.trace("1", TRAIN, "1")[0]
        for phase in "MXsf":  # which thread frees a tensor first, counters show
            self.assertEqual([e for e in again if e["ph"] == phase], [e for e in events if e["ph"] == phase])

    @needs_torch
    def test_has_streams_and_graphs_computed_and_dry(self):
        for mode in ([], ["--dry-run"]):
            events, summary = self.trace(*mode, "2", sys.executable, "-W", "ignore", "-c", STREAMS)
            self.compare(events, summary)
            pieces = [event for event in events if event["ph"] == "X"]
            copies = [piece for piece in pieces if piece["name"] == "copy host to device" and piece["args"]["pinned"]]
            self.assertEqual(len(copies), 3)
            # The second batch travels while the first is used, and is used after it has arrived.
            first = [piece for piece in pieces if piece["cat"] == "operation" and piece["pid"] == 0 and piece["tid"] == FIRST_ROW
                     and end(copies[0]) < piece["ts"] < end(copies[1])]
            self.assertGreater(len(first), 3)
            launches = [piece for piece in pieces if piece["cat"] == "graph"]
            branches = [piece for piece in pieces if piece["tid"] > 2 * FIRST_ROW and piece["cat"] == "operation"]
            self.assertEqual((len(launches), len(branches)), (3, 3))
            for launch, inside in zip(launches, branches):
                self.assertTrue(launch["ts"] < inside["ts"] and end(inside) < end(launch))

    @needs_torch
    def test_has_a_file_for_each_rank(self):
        (self.folder / "ranks.py").write_text(RANKS)
        ran = run("--summary", f"--trace={self.folder / 'trace.json'}", "2", sys.executable, "-m", "torch.distributed.run",
                  "--standalone", "--nproc-per-node", "2", "--log-dir", self.folder / "logs", "--redirects", "2",
                  self.folder / "ranks.py")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual((self.folder / "trace.json").read_text(), "[]\n")  # the starter uses no GPU
        calls = set()
        for log in self.folder.glob("logs/**/stderr.log"):
            process = re.search(r"^simulate_gpus: .*process (\d+)", log.read_text(), re.MULTILINE)[1]
            events = self.read(f"trace.{process}.json")
            self.compare(events, log.read_text())
            calls |= {event["args"]["call"] for event in events if event.get("cat") == "collective"}
        self.assertEqual(calls, {"ncclAllReduce of 1000 float32, sum", "ncclSend of 1000 float32", "ncclRecv of 1000 float32"})

    @needs_torch
    def test_has_a_file_for_each_child_of_fork(self):
        ran = run(f"--trace={self.folder / 'trace.json'}", "1", sys.executable, "-c", FORKED)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        files = [*self.folder.glob("trace.*.json")]
        self.assertEqual(len(files), 2)
        for file in files:
            self.assertEqual([event["name"] for event in self.read(file.name) if event["ph"] == "X"], ["aten::fill_"])

    def test_orders_blocking_streams(self):
        relative = subprocess.run([SIMULATE_GPUS, "--trace=trace.json", "1", sys.executable, "-c", BLOCKING], cwd=self.folder,
                                  text=True, capture_output=True)
        self.assertEqual((relative.returncode, relative.stderr), (0, ""))
        sets = [event for event in self.read("trace.json") if event["name"] == "memory set"]
        self.assertEqual([event["tid"] - FIRST_ROW for event in sets], [1, 0, 1, 0])
        for earlier, later in zip(sets, sets[1:]):
            self.assertGreaterEqual(later["ts"], end(earlier))

    def test_of_a_killed_child_has_whole_events(self):
        ran = run(f"--trace={self.folder / 'trace.json'}", "1", "sh", "-c", '"$0" -c "$1" kill', sys.executable, BLOCKING)
        self.assertEqual(ran.returncode, 128 + 9, ran.stderr)
        file, = self.folder.glob("trace.*.json")
        events = json.loads(file.read_text() + "]")  # the end that viewers add
        self.check(events)
        self.assertEqual(events[-1]["args"], {"kind": "stream synchronization"})

    def test_refuses_a_file_that_cannot_be_written(self):
        for file, why in (("/no/such/folder/trace.json", "No such file or directory"), (self.folder, "Is a directory"), ("", "no file")):
            ran = run(f"--trace={file}", "1", "true")
            self.assertEqual((ran.returncode, ran.stderr.count("\n")), (2, 1), ran.stderr)
            self.assertIn(why, ran.stderr)


if __name__ == "__main__":
    unittest.main()
