# SPDX-License-Identifier: MIT
"""Which operands operations take: on several devices, in memory that overlaps or that lazy copies share, in TorchScript.

Usage: simulate_gpus [--dry-run] 2 python operands.py        with --dry-run, LibTorch's own kernels refuse what is refused
"""
import itertools
import os
import unittest

import torch

IS_DRY = os.environ.get("SIMULATE_GPUS_DRY_RUN") is not None
FIRST, SECOND = "cuda:0", "cuda:1"
INDEX = torch.tensor([0, 1])
EXPANDED, PARTIAL = "more than one element of the written-to tensor refers to a single memory location", (
    "some elements of the input tensor and the written-to tensor refer to a single memory location")


def floats(size, device=FIRST):
    return torch.arange(float(size), device=device)


def expanded():
    return torch.ones(1, device=FIRST).expand(3)


def index_on(device):
    return (INDEX.to(device),)


def two_devices(first, second):
    return f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!"


def foreign_index(device):
    return f"indices should be either on cpu or on the same device as the indexed tensor ({device})"


# What LibTorch refuses before it launches a kernel, and its text.
REFUSED = {
    "a convolution by another GPU's weights": (lambda: torch.conv2d(image(), torch.ones(1, 1, 2, 2, device=SECOND)), "device"),
    "with another GPU's bias": (lambda: torch.conv2d(image(), torch.ones(1, 1, 2, 2, device=FIRST), torch.ones(1, device=SECOND)), "device"),
    "transposed": (lambda: torch.conv_transpose2d(image(), torch.ones(1, 1, 2, 2, device=SECOND)), "device"),
    "a CPU tensor by a GPU's index": (lambda: floats(3, "cpu")[INDEX.to(FIRST)], foreign_index("cpu")),
    "a CPU tensor by a GPU's mask": (lambda: floats(3, "cpu")[floats(3) > 0], foreign_index("cpu")),
    "by another GPU's index": (lambda: floats(3)[INDEX.to(SECOND)], foreign_index(FIRST)),
    "by another GPU's mask": (lambda: floats(3)[floats(3, SECOND) > 0], foreign_index(FIRST)),
    "index to the host": (lambda: torch.ops.aten.index.Tensor_out(floats(3), [INDEX.to(FIRST)], out=torch.zeros(2)),
                          two_devices(FIRST, "cpu")),
    "index from the host": (lambda: torch.ops.aten.index.Tensor_out(floats(3, "cpu"), [INDEX], out=floats(2)),
                            two_devices(FIRST, "cpu")),
    "values on the host": (lambda: floats(3).index_put_(index_on("cpu"), floats(2, "cpu")), two_devices(FIRST, "cpu")),
    "one value on the host": (lambda: floats(3).index_put_(index_on(FIRST), floats(1, "cpu")), two_devices(FIRST, "cpu")),
    "values on another GPU": (lambda: floats(3).index_put_(index_on(FIRST), floats(2, SECOND)), two_devices(FIRST, SECOND)),
    "values on a GPU": (lambda: floats(3, "cpu").index_put_(index_on("cpu"), floats(2)), two_devices(FIRST, "cpu")),
    "values to be added": (lambda: floats(3).index_put_(index_on(FIRST), floats(2, SECOND), accumulate=True),
                           "expected device cuda:0 but got device cuda:1 for value tensor"),
    "add_ to a number on the host": (lambda: torch.zeros(()).add_(torch.zeros((), device=FIRST)), "same device"),
    "add to a number on the host": (lambda: torch.add(floats(3), 1, out=torch.zeros(())), "same device"),
    "sum to a number on the host": (lambda: torch.sum(floats(3), 0, out=torch.zeros(())), "device"),
    "max to a number on the host": (lambda: torch.max(floats(3), out=torch.zeros(())), "device"),
    "dot to a number on the host": (lambda: torch.dot(floats(3), floats(3), out=torch.zeros(())), "device"),
    "nonzero to a number on the host": (lambda: torch.nonzero(floats(3), out=torch.zeros((), dtype=torch.long)), "device"),
    "targets on the host": (lambda: torch._ctc_loss(floats(40).view(5, 2, 4), torch.ones(2, 2, dtype=torch.long), [5, 5], [2, 2]),
                            "targets"),
    "dropout of integers": (lambda: torch.nn.functional.dropout(INDEX.to(FIRST)), "\"fused_dropout\" not implemented for 'Long'"),
    "eigenvalues of float16": (lambda: torch.linalg.eigvals(torch.ones(2, 2, device=FIRST, dtype=torch.half)), "Half"),
    "sparse float16": (lambda: torch.eye(2, device=FIRST, dtype=torch.half).to_sparse_csr().angle(), "\"angle_cuda\" not implemented for 'Half'"),
    "sparse uint16": (lambda: torch.sparse_csr_tensor(
        INDEX.to(FIRST), INDEX[:1].to(FIRST), torch.ones(1, dtype=torch.uint16, device=FIRST), (1, 1)) * 2, "\"mul_cuda\" not implemented for 'UInt16'"),
    "lists in one another": (lambda: torch._foreach_add([floats(2)], [floats(2, SECOND)]), two_devices(FIRST, SECOND)),
    "expanded: add_": (lambda: expanded().add_(1), EXPANDED),
    "expanded: copy_": (lambda: expanded().copy_(floats(3)), EXPANDED),
    "expanded: uniform_": (lambda: expanded().uniform_(), EXPANDED),
    "expanded: fill_ by a tensor": (lambda: expanded().fill_(floats(1)[0]), EXPANDED),
    "expanded: put_": (lambda: expanded().put_(INDEX.to(FIRST), floats(2)), EXPANDED),
    "expanded: scatter_add_": (lambda: expanded().scatter_add_(0, INDEX.to(FIRST), floats(2)), EXPANDED),
    "expanded: masked_scatter_": (lambda: expanded().masked_scatter_(floats(3) > 0, floats(3)), EXPANDED),
    "expanded: _foreach_add_": (lambda: torch._foreach_add_([expanded()], 1), EXPANDED),
    "overlapping: add_": (lambda: (lambda x: x[1:].add_(x[:-1]))(floats(5)), PARTIAL),
    "overlapping: mul": (lambda: (lambda x: torch.mul(x[1:], 2, out=x[:-1]))(floats(5)), PARTIAL),
    "overlapping: cat": (lambda: (lambda x: torch.cat([x[:2], x[3:]], out=x[1:]))(floats(5)), PARTIAL),
    "overlapping: transposed": (lambda: (lambda x: torch.add(x, 1, out=x.t()))(floats(4).view(2, 2)), PARTIAL),
    "overlapping: index_copy_": (lambda: (lambda x: x.index_copy_(0, INDEX.to(FIRST), x[1:3]))(floats(5)), PARTIAL),
    "overlapping: index_put_": (lambda: (lambda x: x.index_put_(index_on(FIRST), x[1:3]))(floats(5)), PARTIAL),
    "overlapping: scatter_": (lambda: (lambda x: x.scatter_(0, INDEX.to(FIRST), x[1:3]))(floats(5)), PARTIAL),
}


def matrix():
    return floats(6).view(2, 3)


def image():
    return torch.ones(1, 1, 3, 3, device=FIRST)


def changed(x, change):
    change(x)
    return x


if torch.__version__ >= "2.15":  # which takes it
    del REFUSED["sparse float16"]

# What a GPU takes, and the result.
TAKEN = {
    "sparse in half": (lambda: torch.ones(2, device=FIRST, dtype=torch.half).add_(
        torch.sparse_coo_tensor([[1]], [2.0], (2,), device=FIRST, dtype=torch.half)), [1, 3]),
    "a singular factor": (lambda: torch.cholesky_inverse(torch.zeros(1, 1, device=FIRST)).isfinite().flatten(), [False]),
    "float16 and a complex number": (lambda: (floats(2).half() / 2j).to(torch.complex64), [0, -.5j]),
    "indices that are added are appended": (lambda: changed([torch.sparse_coo_tensor([[1]], [2.0], (2,), device=FIRST)], lambda x: x[0].add_(x[0]))[
        0]._values(), [2, 2]),
    "a number times float16": (lambda: torch.hamming_window(50, dtype=torch.half, device=FIRST)[41:42], [0.34423828125]),
    "rows in half": (lambda: (torch.eye(2, dtype=torch.half).to_sparse_csr().to(FIRST) @ floats(2).half()), [0, 1]),
    "a triangle of blocks": (lambda: torch.triangular_solve(torch.ones(4, 1, device=FIRST), torch.diag(torch.tensor(
        [1.0, 2, 4, 8])).to_sparse_bsr((2, 2)).to(FIRST)).solution.flatten(), [1, .5, .25, .125]),
    "the identity in uint16": (lambda: torch.eye(2, dtype=torch.uint16, device=FIRST), [[1, 0], [0, 1]]),
    "integers, unpooled": (lambda: torch.nn.functional.max_unpool1d(torch.tensor([[7, -9]], device=FIRST), torch.tensor([[1, 2]], device=FIRST), 2),
                           [[0, 7, -9, 0]]),
    "a median of float8": (lambda: floats(2)[1].to(torch.float8_e4m3fn).median().float(), 1),
    "a trace of uint32": (lambda: torch.tensor([[2**32 - 1, 0], [0, 3]], dtype=torch.uint32, device=FIRST).trace(), 2**32 + 2),
    "uint64, counted": (lambda: torch.tensor([2**63, 0], dtype=torch.uint64, device=FIRST).count_nonzero(), 1),
    "uint64 that is not there, padded": (lambda: torch.nn.functional.pad(torch.zeros(0, 1, 1, dtype=torch.uint64, device=FIRST), (1, 0), "replicate"), []),
    "integers that are not there, normalized": (lambda: torch.nn.functional.layer_norm(INDEX.to(FIRST)[:0].view(0, 2), (2,)), []),
    "the log of a sum of one integer": (lambda: INDEX.to(FIRST)[1].logcumsumexp(0), 1),
    "a mode, written": (lambda: torch.mode(floats(3), out=(floats(1), INDEX.to(FIRST)))[0], 0),
    "a median of bools": (lambda: torch.tensor([True, False, True], device=FIRST).median(), True),
    "complex32, masked": (lambda: torch.masked.sum(torch.tensor([1 + 2j, 3], dtype=torch.complex32, device=FIRST)).to(torch.complex64), 4 + 2j),
    "distances in float16": (lambda: torch.nn.functional.pdist(torch.zeros(1, 2, dtype=torch.half, device=FIRST)), []),
    "a mask of the host": (lambda: floats(3)[torch.tensor([True, False, True])], [0, 2]),
    "indices of another GPU": (lambda: floats(3).index_put_(index_on(SECOND), floats(2)), [0, 1, 2]),
    "a number of another GPU": (lambda: floats(3).index_put_(index_on(FIRST), torch.tensor(5., device=SECOND)), [5, 5, 2]),
    "a CPU tensor, by a GPU's index": (lambda: floats(3, "cpu").index_put_(index_on(FIRST), floats(2, "cpu") + 7), [7, 8, 2]),
    "_foreach_add": (lambda: torch._foreach_add([floats(2), floats(2, SECOND), floats(2, "cpu")], 1)[1], [1, 2]),
    "_foreach_mul_": (lambda: changed([floats(2), floats(2, SECOND)], lambda x: torch._foreach_mul_(x, x))[1], [0, 1]),
    "_foreach_copy_": (lambda: changed([floats(2), floats(2, SECOND)],
                                       lambda x: torch._foreach_copy_(x, [torch.ones(2), torch.ones(2)]))[1], [1, 1]),
    "_foreach_norm": (lambda: torch._foreach_norm([floats(2), floats(2, SECOND)])[1], 1),
    "expanded: fill_": (lambda: expanded().fill_(2), [2, 2, 2]),
    "expanded: zero_": (lambda: expanded().zero_(), [0, 0, 0]),
    "expanded: index_put_": (lambda: expanded().index_put_(index_on(FIRST), torch.full((1,), 4., device=FIRST)), [4, 4, 4]),
    "expanded: masked_fill_": (lambda: expanded().masked_fill_(floats(3) >= 0, 3), [3, 3, 3]),
    "expanded: index_fill_": (lambda: expanded().index_fill_(0, INDEX.to(FIRST), 5), [5, 5, 5]),
    "expanded: _foreach_zero_": (lambda: changed([expanded()], torch._foreach_zero_)[0], [0, 0, 0]),
    "in two dimensions": (lambda: torch.ones(2, 1, 1, device=FIRST).expand(2, 2, 2).fill_(3), [[[3, 3]] * 2] * 2),
    "the same: add_": (lambda: changed(floats(3), lambda x: x.add_(x)), [0, 2, 4]),
    "the same: out": (lambda: changed(floats(3), lambda x: torch.add(x, x, out=x)), [0, 2, 4]),
    "columns of a matrix": (lambda: changed(matrix(), lambda x: x[:, 0].add_(x[:, 1])), [[1, 1, 2], [7, 4, 5]]),
    "rows of a matrix": (lambda: changed(matrix(), lambda x: x[1].sub_(x[0])), [[0, 1, 2], [3, 3, 3]]),
    "parts of one buffer": (lambda: changed(floats(6), lambda x: torch._foreach_add_([x[:2], x[2:4]], [x[4:], x[4:]])),
                            [4, 6, 6, 8, 4, 5]),
}


class Refusals(unittest.TestCase):
    def test_texts(self):
        for name, (action, text) in REFUSED.items():
            with self.subTest(name):
                with self.assertRaises(RuntimeError) as raised:
                    action()
                self.assertIn(text, str(raised.exception))
        torch.cuda.synchronize()


@unittest.skipIf(IS_DRY, "nothing is computed")
class Values(unittest.TestCase):
    def test_taken(self):
        for name, (action, expected) in TAKEN.items():
            with self.subTest(name):
                result = action()
                torch.cuda.synchronize()
                self.assertEqual(result.tolist(), expected)

    def test_replays_writes_to_expanded_memory(self):
        x, graph = expanded(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.fill_(7)
        self.assertEqual(x.tolist(), [1, 1, 1])
        graph.replay()
        self.assertEqual(x.tolist(), [7, 7, 7])

    def test_replays_what_the_cpu_lacks(self):
        x, none = torch.full((2, 2), 3, dtype=torch.uint16, device=FIRST), torch.zeros(0, 2, dtype=torch.int64, device=FIRST)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            nothing = torch.nn.functional.layer_norm(none, (2,))
            y = x.trace()
        x.fill_(4)
        graph.replay()
        self.assertEqual((nothing.tolist(), y.item()), ([], 8))

    def test_replays_an_index(self):
        x, index, graph = torch.arange(3.0, device=FIRST), torch.tensor([2, 0], device=FIRST), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x[index]
        index.fill_(1)
        graph.replay()
        self.assertEqual(y.tolist(), [1, 1])

    def test_tells_what_waits(self):
        x = torch.tensor([1.0, 0.0], device=FIRST)
        waits = {"nonzero": x.nonzero, "unique": lambda: torch.unique(x), "equal": lambda: x.equal(x), "item": lambda: x[0].item(),
                 "mask": lambda: x[x > 0]}
        works = {"index": lambda: x[torch.zeros(2, dtype=torch.int64, device=FIRST)], "sum": x.sum,
                 "fill": lambda: x.masked_fill(x > 0, 2)}
        torch.cuda.set_sync_debug_mode("error")
        try:
            for name, call in waits.items():
                with self.subTest(name), self.assertRaisesRegex(RuntimeError, "called a synchronizing CUDA operation"):
                    call()
            for name, call in works.items():
                with self.subTest(name):
                    call()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_outputs_that_grow(self):
        for dtype in (torch.float32, torch.float16, torch.int64):
            for name in ("first", "second"):  # a first use is rehearsed
                with self.subTest(f"{dtype}, {name} use"):
                    out = torch.full((2,), 9, dtype=dtype, device=FIRST)
                    torch.add(torch.ones(6, dtype=dtype, device=FIRST), 1, out=out)
                    self.assertEqual(out.tolist(), [2] * 6)
                    whole = torch.arange(4, dtype=dtype, device=FIRST)
                    torch.mul(torch.full((10,), 3, dtype=dtype, device=FIRST), 2, out=whole[2:])
                    self.assertEqual(whole.tolist(), [0, 1, 6, 6])

    def test_is_not_rounded_once_where_cuda_rounds_often(self):
        x = torch.tensor([100.0, 1.2345, 1234], device=FIRST, dtype=torch.half)
        self.assertEqual(x.round(decimals=3).tolist(), [float("inf"), 1.234375, float("inf")])
        self.assertEqual(x.round(decimals=-2).tolist(), [100, 0, 1200])

    @unittest.skipIf(torch.__version__ >= "2.15", "newer ones take them")
    def test_transforms_of_bfloat16(self):
        with self.assertRaisesRegex(RuntimeError, "cuFFT doesn't support tensor of type: BFloat16"):
            torch.stft(torch.ones(16, device=FIRST, dtype=torch.bfloat16), 4, return_complex=True)

    def test_sums_of_16_bits_are_rounded_once(self):
        weight = torch.zeros(2, 3, dtype=torch.bfloat16, device=FIRST, requires_grad=True)
        torch.nn.functional.embedding(torch.zeros(8192, dtype=torch.int64, device=FIRST), weight).sum().backward()
        self.assertEqual(weight.grad[0, 0].item(), 8192)
        x = torch.full((20,), 10, dtype=torch.float16, device=FIRST)
        self.assertEqual((x.prod().item(), x[:4].prod().item()), (float("inf"), 10000))
        self.assertEqual(str(x.prod(dtype=torch.float32)), str(torch.tensor(1e20, device=FIRST)))
        norm = torch.native_layer_norm(x, [20], None, None, 1e-5)
        self.assertEqual([y.dtype for y in norm], [torch.float16, torch.float32, torch.float32])

    def test_16_bits_are_computed_in_float32(self):
        torch.manual_seed(0)
        x, y, matrix = torch.randn(6, 6), torch.randn(6, 6), torch.randn(6, 40)
        maps, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
        functional = torch.nn.functional
        cases = {"add": (torch.add, x, y, {"alpha": 0.37}), "number": (torch.add, x, 0.37, {}),
                 "sub": (torch.sub, x, y, {"alpha": 1e-3}), "rsub": (torch.rsub, x, 0.1, {}),
                 "list": (lambda a, b: torch._foreach_add([a], [b], alpha=0.37)[0], x, y, {}),
                 "numbers": (lambda a: torch._foreach_add([a, a], [0.37, 1e-3])[1], x, {}),
                 "products": (lambda a: torch._foreach_mul([a], [0.37])[0], x, {}), "powers": (lambda a: torch._foreach_pow([a], 0.37)[0], x.exp(), {}),
                 "quotients": (lambda a: torch._foreach_div([a], 0.37)[0], x, {}),
                 "polygamma": (lambda a: torch.polygamma(2, a), x.exp(), {}), "product into": (lambda a, b: torch.mm(a, b, out=torch.empty_like(x).to(a)), matrix, matrix.t(), {}),
                 "nested": (lambda a: torch.nested.nested_tensor([a, a[:2]]).add_(0.37)[1], x, {}),
                 "logit": (torch.logit, x.sigmoid(), {}),
                 "mm": (torch.mm, matrix, matrix.t(), {}), "mm by columns": (torch.mm, matrix, matrix.t().contiguous(), {}),
                 "addmm": (torch.addmm, x, matrix, matrix.t(), {"alpha": 0.37, "beta": 0.1}),
                 "gelu": (torch._addmm_activation, x, matrix, matrix.t(), {"use_gelu": True}),
                 "bmm": (torch.bmm, maps[0], maps[1], {}),
                 "convolution": (functional.conv2d, maps, weight, {}),
                 "linear": (functional.interpolate, maps[0], {"scale_factor": 1.7, "mode": "linear"}),
                 "bicubic": (functional.interpolate, maps, {"scale_factor": 1.7, "mode": "bicubic"})}
        for name, dtype in itertools.product(cases, (torch.float16, torch.bfloat16)):
            with self.subTest(name, dtype=dtype):
                function, *operands, options = cases[name]
                narrow = [a.to(FIRST, dtype) if isinstance(a, torch.Tensor) else a for a in operands]
                wide = [a.float() if isinstance(a, torch.Tensor) else a for a in narrow]
                found, expected = function(*narrow, **options), function(*wide, **options).to(dtype)
                self.assertEqual(found.dtype, dtype)
                # A sum in another order may be rounded to the other side.
                self.assertLessEqual((found != expected).sum().item(), 0.05 * found.numel())
                torch.testing.assert_close(found, expected, rtol=torch.finfo(dtype).eps, atol=1e-6)

    def test_results_keep_their_dtypes(self):
        half, integers = torch.ones(2, dtype=torch.float16, device=FIRST), torch.ones(2, dtype=torch.int32, device=FIRST)
        self.assertEqual([x.dtype for x in torch._foreach_add([half, integers], 0.37)], [torch.float16, torch.float32])
        self.assertEqual([x.dtype for x in torch._foreach_div([integers, half], 0.37)], [torch.float32, torch.float16])
        for other, dtype in ((torch.tensor(0.37), torch.float16), (integers, torch.float16), (0.37j, torch.complex32), (half.float(), torch.float32)):
            self.assertEqual((half + other).dtype, dtype)
            self.assertEqual(torch.add(half, other, alpha=3).dtype, dtype)
        self.assertEqual(torch.add(integers, half, alpha=0.37).dtype, torch.float16)
        self.assertEqual((half[0] + torch.tensor(0.37, device=FIRST)).dtype, torch.float32)

    def test_numbers_of_a_list_are_on_the_host(self):
        x, numbers = torch.ones(2, device=FIRST), torch.tensor([0.5, 0.25])
        self.assertEqual([y[0].item() for y in torch._foreach_addcmul([x, x], [x, x], [x, x], numbers)], [1.5, 1.25])
        with self.assertRaisesRegex(RuntimeError, "Expected scalars to be on CPU, got cuda:0 instead"):
            torch._foreach_addcdiv([x, x], [x, x], [x, x], numbers.to(FIRST))

    def test_gelu_behind_a_product_is_by_tanh(self):
        x = torch.linspace(-3, 3, 25, device=FIRST).reshape(5, 5)
        found = torch._addmm_activation(torch.zeros(5, 5, device=FIRST), x, torch.eye(5, device=FIRST), use_gelu=True)
        torch.testing.assert_close(found, torch.nn.functional.gelu(x, approximate="tanh"))

    def test_lu_without_pivoting(self):
        for shape, dtype in itertools.product(((3, 3), (2, 3, 5), (5, 3)), (torch.float32, torch.complex128)):
            with self.subTest(shape=shape, dtype=dtype):
                x = torch.randn(shape, dtype=dtype, device=FIRST) + 4 * torch.eye(*shape[-2:], device=FIRST)
                none, lower, upper = torch.linalg.lu(x, pivot=False)
                self.assertEqual(none.numel(), 0)
                torch.testing.assert_close(lower @ upper, x)
                joined, pivots, info = torch.linalg.lu_factor_ex(x, pivot=False)
                torch.testing.assert_close(joined.triu()[..., :3, :], upper.triu())
                self.assertEqual(pivots.flatten()[:3].tolist(), [1, 2, 3])
                self.assertFalse(info.any())
        ones = torch.ones(3, 3, device=FIRST)
        self.assertEqual(torch.linalg.lu_factor_ex(ones, pivot=False)[2].item(), 2)
        with self.assertRaisesRegex(RuntimeError, "torch.linalg.lu_factor"):
            torch.linalg.lu_factor(ones, pivot=False)

    def test_a_rehearsal_draws_nothing(self):
        def draws(dtype):
            torch.manual_seed(0)
            y = torch.nn.functional.dropout(torch.ones(8, dtype=dtype, device=FIRST))
            z = torch.empty(4, dtype=dtype, device=FIRST).bernoulli_(torch.tensor(0.5))
            return y.tolist(), z.tolist(), torch.rand(2, device=FIRST).tolist()

        for dtype in (torch.float16, torch.float32):
            with self.subTest(dtype):
                self.assertEqual(draws(dtype), draws(dtype))

    def test_lazy_copies(self):
        for name, write in {"add_": lambda x: x.add_(1), "out": lambda x: torch.add(x, 1, out=x), "view": lambda x: x.view(3)[:].add_(1),
                            "list": lambda x: torch._foreach_add_([x], 1), "index": lambda x: x.index_add_(0, torch.arange(3, device=FIRST), torch.ones(3, device=FIRST)),
                            "copy_": lambda x: x.copy_(torch.ones(3)), "expanded": lambda x: x[:1].expand(3).fill_(1)}.items():
            with self.subTest(name):
                first = torch.zeros(3, device=FIRST)
                second = torch._lazy_clone(first)
                write(second)
                self.assertEqual((first.tolist(), second[0].item()), ([0, 0, 0], 1))
                self.assertFalse(torch._C._is_cow_tensor(second))

    def test_torchscript_indexes_by_tensors(self):
        def get(x, i, mask):
            return x[i], x[mask], x[:, i], x[i, 1], x[None, i]

        def put(x, i, mask):
            x = x.clone()
            x[mask] = 7.
            x[i, i] = x[i, i + 1] * 2
            x[:, i] += 1
            return x, torch.index_put(x, (i,), x[i] + 1, accumulate=True)

        x = torch.arange(12.).view(3, 4)
        operands = [x, torch.tensor([2, 0]), x[:, 0] > 3]
        for function in (get, put):
            for make in (torch.jit.script, lambda function: torch.jit.trace(function, on_gpu)):
                on_gpu = [operand.to(FIRST) for operand in operands]
                made = make(function)
                for _ in range(3):  # it is optimized after the first call
                    for result, expected in zip(made(*on_gpu), function(*operands), strict=True):
                        self.assertTrue(result.cpu().equal(expected), (result, expected))


# Results are shown late once a stream exists; errors are not. These run last.
class WithAStreamRefusals(Refusals):
    @classmethod
    def setUpClass(cls):
        torch.cuda.Stream()


class WithAStreamValues(Values):
    @classmethod
    def setUpClass(cls):
        torch.cuda.Stream()


if __name__ == "__main__":
    unittest.main(warnings="ignore")
