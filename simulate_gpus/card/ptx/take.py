"""Runs all cases on a GPU and stores what it gave: take.py OUTDIR writes OUTDIR/ptx.npz and ptx.json.

Child processes run modules, one after the other, and report each result at once through a pipe. A fault ends
its child's context, so the child stops and another one goes on behind the case that failed; a child that says
nothing for MODULE_SECONDS is killed. The parent never calls the driver: it cannot hang in it.
"""

import argparse
import collections
import ctypes
import datetime
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import sys
import time
import traceback
import zlib

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: its threads and fork do not go together

import numpy as np

import cases

PROCESSES = 12
MODULE_SECONDS = 20  # without a word from a child
TOTAL_SECONDS = 100  # what is there by then is written
START_ATTEMPTS = 3  # of a child that cannot make a context

ERROR_LOG, ERROR_LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
LOG_BYTES = 16384
COMPUTE_MAJOR, COMPUTE_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


# ------------------------------------------------------------------------------------------------ the driver

class DriverError(Exception):
    def __init__(self, function, code, text=""):
        super().__init__(f"{function}: error {code} {text}".strip())
        self.code = code


POINTER, WORD, SIZE, HANDLE = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_uint64
FUNCTIONS = {  # with the names that the headers' macros stand for
    "cuInit": [WORD],
    "cuDriverGetVersion": [POINTER],
    "cuDeviceGet": [POINTER, ctypes.c_int],
    "cuDeviceGetName": [ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
    "cuDeviceGetAttribute": [POINTER, ctypes.c_int, ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [POINTER, ctypes.c_int],
    "cuCtxSetCurrent": [POINTER],
    "cuCtxSynchronize": [],
    "cuModuleLoadDataEx": [POINTER, ctypes.c_char_p, WORD, POINTER, POINTER],
    "cuModuleUnload": [POINTER],
    "cuModuleGetFunction": [POINTER, POINTER, ctypes.c_char_p],
    "cuMemAlloc_v2": [POINTER, SIZE],
    "cuMemFree_v2": [HANDLE],
    "cuMemsetD8_v2": [HANDLE, ctypes.c_ubyte, SIZE],
    "cuMemcpyHtoD_v2": [HANDLE, POINTER, SIZE],
    "cuMemcpyDtoH_v2": [POINTER, HANDLE, SIZE],
    "cuLaunchKernel": [POINTER, WORD, WORD, WORD, WORD, WORD, WORD, WORD, POINTER, POINTER, POINTER],
}


class Driver:
    """libcuda.so.1 with a context on device 0."""

    def __init__(self, library="libcuda.so.1"):
        self.library = ctypes.CDLL(library)
        for name, arguments in FUNCTIONS.items():  # a missing name fails here, before anything runs
            function = getattr(self.library, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
        self.call("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.device = device.value
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise DriverError(name, code)

    def number(self, name, *arguments):
        result = ctypes.c_int()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value

    def about(self):
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, self.device)
        capability = [self.number("cuDeviceGetAttribute", part, self.device) for part in (COMPUTE_MAJOR, COMPUTE_MINOR)]
        return {"device": name.value.decode(), "compute_capability": "{}.{}".format(*capability),
                "cuda_version_of_driver": self.number("cuDriverGetVersion"), "driver": kernel_driver_version()}

    def load(self, text):
        """A module of PTX; the JIT's log is in the error that it raises."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        code = self.library.cuModuleLoadDataEx(ctypes.byref(module), text.encode(), 2, options, values)
        if code:
            raise DriverError("cuModuleLoadDataEx", code, log.value.decode(errors="replace").strip())
        return module

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        return address.value

    def run(self, module, case, inputs_at, outputs_at):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, case.name.encode())
        inputs = np.ascontiguousarray(case.inputs, dtype="<u8")
        if inputs.nbytes:
            self.call("cuMemcpyHtoD_v2", inputs_at, inputs.ctypes.data, inputs.nbytes)
        self.call("cuMemsetD8_v2", outputs_at, 0, case.result_bytes)
        parameters = [ctypes.c_uint64(inputs_at), ctypes.c_uint64(outputs_at), ctypes.c_uint32(case.lanes)]
        addresses = (ctypes.c_void_p * 3)(*(ctypes.addressof(parameter) for parameter in parameters))
        self.call("cuLaunchKernel", function, *case.grid, *case.block, case.shared_bytes, None, addresses, None)
        self.call("cuCtxSynchronize")
        raw = np.empty(case.result_bytes, dtype=np.uint8)
        self.call("cuMemcpyDtoH_v2", raw.ctypes.data, outputs_at, raw.nbytes)
        return cases.compact(case, raw.tobytes())


def kernel_driver_version():
    path = pathlib.Path("/proc/driver/nvidia/version")
    text = path.read_text() if path.exists() else ""
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    return found.group(1) if found else "unknown"


# ----------------------------------------------------------------------------------------------- child process
# Messages to the parent: ("about", facts), ("begin", name), ("result", name, bytes), ("refused", name, text),
# ("fault", name, text) after which the child ends, ("idle",) when it wants a module, ("unable", text).

def load_or_split(driver, kernels, send):
    """Pairs of a module and its cases. One kernel that the JIT refuses must not take the others with it."""
    try:
        return [(driver.load(cases.module_text(kernels)), kernels)]
    except DriverError as error:
        if len(kernels) == 1:
            send(("refused", kernels[0].name, str(error)))
            return []
    middle = len(kernels) // 2
    return load_or_split(driver, kernels[:middle], send) + load_or_split(driver, kernels[middle:], send)


def run_kernels(driver, kernels, buffers, send):
    """False after a fault: the context is of no more use."""
    for module, loaded in load_or_split(driver, kernels, send):
        for case in loaded:
            send(("begin", case.name))
            try:
                send(("result", case.name, driver.run(module, case, *buffers)))
            except DriverError as error:
                send(("fault", case.name, str(error)))
                return False
        driver.call("cuModuleUnload", module)
    return True


def child(connection, all_cases, make_driver):
    try:
        driver = make_driver()
        buffers = [driver.allocate(max(case.inputs.nbytes for case in all_cases.values()) + 4096),
                   driver.allocate(max(case.result_bytes for case in all_cases.values()) + 4096)]
        connection.send(("about", driver.about()))
        while True:
            connection.send(("idle",))
            names = connection.recv()
            if not names or not run_kernels(driver, [all_cases[name] for name in names], buffers, connection.send):
                break
    except DriverError as error:
        connection.send(("unable", str(error)))
    except (OSError, AttributeError):  # no libcuda, or one without a function
        connection.send(("unable", traceback.format_exc()))
    finally:
        connection.close()
        os._exit(0)  # without the driver's own end, which may hang after a fault


# ---------------------------------------------------------------------------------------------- parent process

class Child:
    """A process, and which cases of its module are still to come."""

    def __init__(self, all_cases, make_driver):
        self.connection, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=child, args=(other, all_cases, make_driver), daemon=True)
        self.process.start()
        other.close()
        self.open, self.running, self.faulted = [], None, False
        self.hear()

    def hear(self):
        self.deadline = time.monotonic() + MODULE_SECONDS

    def give(self, names):
        self.open, self.running = list(names), None
        self.connection.send(names)

    def done(self, name):
        self.open.remove(name)
        self.running = None

    def kill(self):
        self.process.kill()
        self.process.join(2)  # and no longer: a process that hangs in the driver may not end
        self.connection.close()


class Run:
    """Gives modules to children until all are done, and collects what they report."""

    def __init__(self, groups, make_driver, processes):
        self.all_cases = {case.name: case for group in groups for case in group}
        self.waiting = collections.deque([case.name for case in group] for group in groups)
        self.make_driver, self.processes = make_driver, processes
        self.children, self.failed_starts, self.about = [], 0, {}
        self.results, self.refused, self.faults, self.problems = {}, {}, {}, []

    def take(self):
        end = time.monotonic() + TOTAL_SECONDS
        while time.monotonic() < end:
            self.start_children()
            if not self.children:
                break
            self.wait()
        for member in self.children:
            member.kill()
        found = {**self.results, **self.refused, **self.faults}
        self.faults.update({name: "not run" for name in self.all_cases if name not in found})

    def start_children(self):
        idle = sum(not member.open for member in self.children)
        while len(self.children) < self.processes and idle < len(self.waiting) and self.failed_starts < START_ATTEMPTS * self.processes:
            self.children.append(Child(self.all_cases, self.make_driver))
            idle += 1

    def wait(self):
        """Handles what has arrived, then children that are silent for too long."""
        connections = {member.connection: member for member in self.children}
        for connection in multiprocessing.connection.wait(list(connections), timeout=0.5):
            self.receive(connections[connection])
        for member in list(self.children):
            if time.monotonic() > member.deadline:
                self.lose(member, f"no answer in {MODULE_SECONDS} s")

    def receive(self, member):
        try:
            kind, *rest = member.connection.recv()
        except (EOFError, OSError):
            self.lose(member, "its process ended")
            return
        member.hear()
        if kind == "idle":
            self.next_module(member)
        elif kind == "about":
            self.about = rest[0]
        elif kind == "begin":
            member.running = rest[0]
        elif kind == "unable":
            self.failed_starts += 1
            self.problems.append(rest[0])
            self.lose(member, rest[0])
        else:
            name, value = rest
            {"result": self.results, "refused": self.refused, "fault": self.faults}[kind][name] = value
            member.done(name)
            member.faulted = kind == "fault"

    def next_module(self, member):
        if self.waiting:
            try:
                member.give(self.waiting.popleft())
            except OSError:
                self.lose(member, "its process ended")
            return
        member.kill()
        self.children.remove(member)

    def lose(self, member, reason):
        """The child is of no more use: what it ran is a fault, what it had not begun goes to another one."""
        member.kill()
        self.children.remove(member)
        if member.running:
            self.faults[member.running] = reason
            member.done(member.running)
        elif member.open and not member.faulted:  # it ended while it loaded: smaller modules find the kernel
            self.split(member.open, reason)
            return
        if member.open:
            self.waiting.append(member.open)

    def split(self, names, reason):
        if len(names) == 1:
            self.faults[names[0]] = f"while it was loaded: {reason}"
            return
        self.waiting.extend((names[:len(names) // 2], names[len(names) // 2:]))


# ------------------------------------------------------------------------------------------------------ output

def digest(case):
    """Says whether a case is still the one whose result was taken."""
    launch = f"{case.grid}{case.block}{case.shared_bytes}{case.results}"
    return zlib.crc32(np.ascontiguousarray(case.inputs).tobytes(), zlib.crc32((case.text() + launch).encode()))


def describe(case):
    facts = {"form": case.form, "compare": case.compare, "lanes": case.lanes, "results": " ".join(case.results),
             "minimum_sm": case.minimum_sm, "digest": digest(case)}
    return {**facts, "bound": case.bound} if case.bound else facts


def write(folder, run, seconds):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "ptx.npz", **{name: run.results[name] for name in sorted(run.results)})
    facts = {**run.about, "date": datetime.date.today().isoformat(), "seconds": round(seconds, 1),
             "refused": run.refused, "faults": run.faults, "problems": sorted(set(run.problems)),
             "cases": {name: describe(case) for name, case in sorted(run.all_cases.items()) if name in run.results}}
    (folder / "ptx.json").write_text(json.dumps(facts, separators=(",", ":")) + "\n")


def main(make_driver=Driver):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args()
    os.environ.setdefault("CUDA_CACHE_DISABLE", "1")
    multiprocessing.set_start_method("fork")  # children inherit the cases; the parent has not called the driver
    start = time.monotonic()
    groups = list(cases.modules())
    generated = time.monotonic()
    run = Run(groups, make_driver, options.processes)
    run.take()
    ran = time.monotonic()
    write(options.folder, run, ran - start)
    lanes = sum(run.all_cases[name].lanes for name in run.results)
    print(run.about)
    print(f"{len(run.all_cases)} cases in {len(groups)} modules: {len(run.results)} results of {lanes} lanes, {len(run.refused)} refused, "
          f"{len(run.faults)} faults")
    for what, found in (("refused", run.refused), ("fault", run.faults)):
        for name, text in list(found.items())[:40]:
            print(f"  {what}: {name}: {' '.join(text.split())[:200]}")
    for problem in sorted(set(run.problems)):
        print(f"  problem: {problem}")
    print(f"{generated - start:.1f} s to make the cases, {ran - generated:.1f} s to run them, {time.monotonic() - ran:.1f} s to write; "
          f"ptx.npz has {(options.folder / 'ptx.npz').stat().st_size} bytes")
    sys.stdout.flush()
    os._exit(0 if len(run.results) == len(run.all_cases) else 1)  # at once, even if a child hangs in the driver


if __name__ == "__main__":
    main()
