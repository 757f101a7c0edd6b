# SPDX-License-Identifier: MIT
"""Kernels as Triton's first tutorials have them, written anew, against PyTorch's operations on the same GPU."""
import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = "cuda"


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + i, values / tl.sum(values, axis=0), mask=i < columns)


@triton.autotune([triton.Config({"M": 32, "N": 32, "K": 16}, num_warps=2),
                  triton.Config({"M": 16, "N": 64, "K": 32}, num_warps=4, num_stages=2)], key=["m", "n", "k"])
@triton.jit
def product_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for first in range(0, k, K):
        inner = first + tl.arange(0, K)
        left = tl.load(a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n),
                        other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    mask = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c + row[:, None] * n + column[None, :], total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(tl.rand(seed, i) > p, values / (1 - p), 0.0), mask=i < n)


@triton.jit
def norm_kernel(x, weight, bias, out, means, deviations, n, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < n
    values = tl.load(x + row * n + i, mask=mask, other=0.0)
    mean = tl.sum(values, axis=0) / n
    centred = tl.where(mask, values - mean, 0.0)
    deviation = tl.rsqrt(tl.sum(centred * centred, axis=0) / n + epsilon)
    tl.store(means + row, mean)
    tl.store(deviations + row, deviation)
    tl.store(out + row * n + i, centred * deviation * tl.load(weight + i, mask=mask) + tl.load(bias + i, mask=mask), mask=mask)


@triton.jit
def norm_backward_kernel(x, weight, means, deviations, gradient, of_x, of_weight, of_bias, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < n
    deviation = tl.load(deviations + row)
    normal = tl.where(mask, (tl.load(x + row * n + i, mask=mask, other=0.0) - tl.load(means + row)) * deviation, 0.0)
    g = tl.load(gradient + row * n + i, mask=mask, other=0.0)
    weighted = g * tl.load(weight + i, mask=mask, other=0.0)
    result = (weighted - tl.sum(weighted, axis=0) / n - normal * tl.sum(weighted * normal, axis=0) / n) * deviation
    tl.store(of_x + row * n + i, result, mask=mask)
    tl.atomic_add(of_weight + i, g * normal, mask=mask)
    tl.atomic_add(of_bias + i, g, mask=mask)


@triton.jit
def attention_kernel(queries, keys, values, out, n, scale, QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr):
    head = tl.program_id(1) * n * WIDTH
    row = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    d = tl.arange(0, WIDTH)
    q = tl.load(queries + head + row[:, None] * WIDTH + d[None, :])
    most = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    result = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
    for first in range(0, (tl.program_id(0) + 1) * QUERIES, KEYS):
        column = first + tl.arange(0, KEYS)
        k = tl.load(keys + head + column[None, :] * WIDTH + d[:, None])
        scores = tl.where(row[:, None] >= column[None, :], tl.dot(q, k) * scale, -float("inf"))
        new = tl.maximum(most, tl.max(scores, axis=1))
        weights = tl.exp(scores - new[:, None])
        kept = tl.exp(most - new)
        total = total * kept + tl.sum(weights, axis=1)
        v = tl.load(values + head + column[:, None] * WIDTH + d[None, :])
        result = result * kept[:, None] + tl.dot(weights.to(v.dtype), v)
        most = new
    tl.store(out + head + row[:, None] * WIDTH + d[None, :], (result / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def sum_of_two(a, b):
    return a + b


@triton.jit
def functions_kernel(x, sums, products, largest, counts, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    values = tl.load(x + i)
    tl.store(sums + i, tl.associative_scan(values, 0, sum_of_two))
    tl.store(products + i, libdevice.pow(libdevice.fast_expf(values), 2.0) + libdevice.erf(values))
    tl.store(largest, tl.reduce(values * values, 0, sum_of_two))
    tl.atomic_max(counts, tl.max(i, axis=0))
    tl.atomic_cas(counts + 1, 0, 7)
    tl.atomic_xchg(counts + 2, 9)
    tl.device_assert(i < n, "too far")


def check_add():
    x, y = torch.rand(1000, device=DEVICE), torch.rand(1000, device=DEVICE)
    out = torch.empty_like(x)
    add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
    torch.testing.assert_close(out, x + y, rtol=0, atol=0)


def check_softmax():
    x = torch.randn(37, 300, device=DEVICE)
    out = torch.empty_like(x)
    softmax_kernel[(37,)](x, out, 300, BLOCK=512)
    torch.testing.assert_close(out, torch.softmax(x, -1))


def check_product():
    for dtype, precision, tolerance in ((torch.float32, "ieee", 1e-5), (torch.float32, "tf32", 2e-2),
                                        (torch.float16, "ieee", 2e-2), (torch.bfloat16, "ieee", 2e-1)):
        a, b = torch.randn(70, 50, device=DEVICE).to(dtype), torch.randn(50, 90, device=DEVICE).to(dtype)
        c = torch.empty(70, 90, device=DEVICE, dtype=dtype)
        product_kernel[lambda tile: (triton.cdiv(70, tile["M"]), triton.cdiv(90, tile["N"]))](
            a, b, c, 70, 90, 50, PRECISION=precision)
        torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=tolerance, atol=tolerance)


def check_dropout():
    x = torch.ones(10000, device=DEVICE)
    outs = []
    for seed in (1, 1, 2):
        outs.append(torch.empty_like(x))
        dropout_kernel[(10,)](x, outs[-1], 10000, 0.25, seed, BLOCK=1024)
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])
    assert abs((outs[0] == 0).double().mean().item() - 0.25) < 0.02
    assert set(outs[0].unique().tolist()) == {0, torch.tensor(1 / 0.75).item()}


def check_norm():
    x = torch.randn(20, 100, device=DEVICE, requires_grad=True)
    weight, bias = (torch.randn(100, device=DEVICE, requires_grad=True) for _ in range(2))
    out, means, deviations = torch.empty_like(x), torch.empty(20, device=DEVICE), torch.empty(20, device=DEVICE)
    norm_kernel[(20,)](x, weight, bias, out, means, deviations, 100, 1e-5, BLOCK=128)
    wanted = torch.nn.functional.layer_norm(x, (100,), weight, bias)
    torch.testing.assert_close(out, wanted)
    gradient = torch.randn_like(x)
    wanted.backward(gradient)
    of_x, of_weight, of_bias = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(bias)
    norm_backward_kernel[(20,)](x, weight, means, deviations, gradient, of_x, of_weight, of_bias, 100, BLOCK=128)
    for got, parameter in ((of_x, x), (of_weight, weight), (of_bias, bias)):
        torch.testing.assert_close(got, parameter.grad)


def check_attention():
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (torch.randn(2, 3, 64, 32, device=DEVICE).to(dtype) for _ in range(3))
        out = torch.empty_like(q)
        attention_kernel[(2, 6)](q, k, v, out, 64, 1 / math.sqrt(32), QUERIES=32, KEYS=16, WIDTH=32)
        wanted = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
        torch.testing.assert_close(out.double(), wanted, rtol=2e-2, atol=2e-2)


def check_functions():
    x = torch.rand(64, device=DEVICE) - 0.5
    sums, products, largest = torch.empty_like(x), torch.empty_like(x), torch.empty(1, device=DEVICE)
    counts = torch.zeros(3, device=DEVICE, dtype=torch.int32)
    functions_kernel[(1,)](x, sums, products, largest, counts, 64, BLOCK=64)
    torch.testing.assert_close(sums, x.cumsum(0))
    torch.testing.assert_close(products, x.exp() ** 2 + torch.erf(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(largest, (x * x).sum().reshape(1))
    assert counts.tolist() == [63, 7, 9]


if __name__ == "__main__":
    torch.manual_seed(0)
    for check in (check_add, check_softmax, check_product, check_dropout, check_norm, check_attention, check_functions):
        check()
        print(check.__name__.removeprefix("check_"), flush=True)
