# SPDX-License-Identifier: MIT
"""torch.multiprocessing with tensors of simulated GPUs: what a process puts into a queue is the same memory in another.

Usage: simulate_gpus 2 sharing_test.py [unittest's options]
"""
import os
import signal
import unittest

import torch
import torch.multiprocessing as mp

SERVER = mp.get_context("forkserver")  # of processes that need not import torch


# What the other process is told to do.
def add_one(tensor):
    tensor += 1
    torch.cuda.synchronize()
    return tensor.device.index


def total(*tensors):
    return [x.to_dense().sum().item() if x.is_sparse else x.sum().item() for x in tensors]


def kind(tensor):
    return type(tensor).__name__, tensor.requires_grad, tensor.dtype, tuple(tensor.shape), tensor.stride()


def wait_and_add(event, tensor):
    with torch.cuda.stream(torch.cuda.Stream()):
        event.wait()
        tensor += 1
        event.record()


def peek(tensor):
    return tensor.tolist()


def record_by_handle(handle, tensor):
    global kept  # as memory is closed when the work on it is done
    kept = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), handle), tensor
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor.copy_(torch.full((4,), 7.0).pin_memory(), non_blocking=True)
        kept[0].record()


def make(value):
    global kept
    kept = torch.full((1000,), value, device="cuda")
    return kept


def reserved():
    return torch.cuda.memory_reserved()


def serve(requests, replies, environment):
    os.environ.update(environment)
    while True:
        function, *arguments = requests.get()
        try:
            reply = globals()[function](*arguments)
        except Exception as error:  # for the process that has asked
            reply = error
        del arguments
        replies.put(reply)
        del reply


class Other:
    """Another process."""

    def __init__(self, **environment):
        self.requests, self.replies = SERVER.SimpleQueue(), SERVER.SimpleQueue()
        self.process = SERVER.Process(target=serve, args=(self.requests, self.replies, environment), daemon=True)
        self.process.start()

    def __call__(self, function, *arguments):
        self.requests.put((function.__name__, *arguments))
        del arguments
        reply = self.replies.get()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def end(self, how=signal.SIGTERM):
        os.kill(self.process.pid, how)
        self.process.join()


class Sharing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hides = Other(CUDA_VISIBLE_DEVICES="1")  # starts meanwhile
        cls.other = Other()

    @classmethod
    def tearDownClass(cls):
        cls.other.end()
        cls.hides.end()

    def test_both_write_the_same_memory(self):
        for device in ("cuda:0", "cuda:1"):
            tensor = torch.arange(12.0, device=device).view(3, 4)
            self.assertEqual(self.other(add_one, tensor[1:, 2:]), tensor.device.index)
            expected = torch.arange(12.0).view(3, 4)
            expected[1:, 2:] += 1
            self.assertEqual(tensor.tolist(), expected.tolist())

    def test_everything_that_can_be_sent_arrives_as_it_is(self):
        big = torch.arange(8.0, device="cuda")
        small = torch.ones(3, dtype=torch.int16, device="cuda")
        sparse = torch.eye(4, device="cuda").to_sparse()
        self.assertEqual(self.other(total, big, big[4:], small, sparse, torch.empty(0, device="cuda")), [28, 22, 3, 4, 0])
        for tensor in (torch.nn.Parameter(big), torch.nn.Parameter(big, requires_grad=False), big.view(2, 4).t(), small,
                       torch.ones(2, device="cuda", requires_grad=True), torch.empty(0, 3, device="cuda")):
            self.assertEqual(self.other(kind, tensor), kind(tensor))
        network = torch.nn.Linear(3, 2, device="cuda")
        after = (network.bias + 1).tolist()
        self.other(add_one, network.bias.detach())
        self.assertEqual(network.bias.tolist(), after)

    def test_what_is_sent_is_computed_first(self):
        pinned = torch.full((4,), 5.0).pin_memory()
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor = torch.zeros(4, device="cuda")
            tensor.copy_(pinned, non_blocking=True)  # which stays in its stream
            tensor *= 2
            self.assertEqual(self.other(total, tensor), [40])

    def test_an_event_orders_the_work_of_both(self):
        event = torch.cuda.Event(interprocess=True)
        tensor = torch.ones(4, device="cuda")
        self.other(peek, tensor)  # its address is known there from now on
        pinned = torch.full((4,), 5.0).pin_memory()
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor.copy_(pinned, non_blocking=True)
            event.record()
            self.assertFalse(event.query())
            self.other(wait_and_add, event, tensor)
            event.wait()
            self.assertEqual(tensor.tolist(), [6] * 4)
        self.assertTrue(event.query())

    def test_an_event_by_its_handle(self):
        event = torch.cuda.Event(enable_timing=False, interprocess=True)
        tensor = torch.ones(4, device="cuda")
        self.other(record_by_handle, event.ipc_handle(), tensor)
        self.assertFalse(event.query())
        event.synchronize()
        self.assertTrue(event.query())
        self.assertEqual(tensor.tolist(), [7] * 4)

    def test_a_process_that_hides_the_card(self):
        tensor = torch.ones(4, device="cuda:0")
        self.assertEqual(self.hides(add_one, tensor), 0)
        self.assertEqual(tensor.tolist(), [2] * 4)

    def test_memory_is_counted_by_its_owner(self):
        self.other(peek, torch.ones(2, device="cuda"))
        before = self.other(reserved)
        tensor = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
        self.assertEqual(self.other(peek, tensor[:2]), [1, 1])
        self.assertLess(self.other(reserved) - before, 32 << 20)

    def test_memory_of_a_killed_process_stays_where_it_is_open(self):
        killed = Other()
        tensor = killed(make, 3.0)
        killed.end(signal.SIGKILL)
        self.assertEqual(tensor.sum().item(), 3000)
        tensor += 1
        self.assertEqual(tensor.sum().item(), 4000)

    def test_expandable_segments_are_shared_by_files(self):
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        try:
            tensor = torch.ones(32 << 20, device="cuda")[:4]  # of a new segment
        finally:
            torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
        self.assertEqual(self.other(add_one, tensor), 0)
        self.assertEqual(tensor.tolist(), [2] * 4)

    def test_what_libtorch_refuses(self):
        received = self.other(make, 1.0)
        with self.assertRaisesRegex(RuntimeError, "Attempted to send CUDA tensor received from another process"):
            self.other(total, received)


if __name__ == "__main__":
    SERVER.set_forkserver_preload(["torch"])
    unittest.main()
