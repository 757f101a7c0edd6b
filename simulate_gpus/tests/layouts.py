# SPDX-License-Identifier: MIT
"""Shape, strides and dtype of every result on a simulated GPU are those that LibTorch says without computing (device meta).

Half of the operations of LibTorch's database; all, if TEST_SEED is set (sampling.py).
Usage: simulate_gpus 1 python layouts.py
"""
import collections
import itertools
import sys
import warnings

import torch
from torch._subclasses import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db

from sampling import leave, moved, sampled

warnings.simplefilter("ignore")
SAMPLES = 4  # of each operation

# What differs, and why.
DIFFER = {
    "native_batch_norm": "in evaluation the CPU gives no statistics, where a GPU gives some that nothing uses",
    "_native_batch_norm_legit": "the same",
    "linalg.eig": "LibTorch gives columns in its own C++ for CPU and GPU; device meta says rows",
}


def layouts(operation, sample, device):
    """Of each tensor in the result; None where that is no answer."""
    first, arguments, options = moved((sample.input, sample.args, sample.kwargs), device)
    try:
        result = operation(first, *arguments, **options)
    except Exception:
        return None
    found = []

    def visit(value):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            # Strides of dimensions of one value, and of no values, say nothing.
            strides = [stride for stride, size in zip(value.stride(), value.shape) if size > 1] if value.numel() else []
            found.append((tuple(value.shape), strides, value.dtype))
        elif isinstance(value, (list, tuple)):
            for part in value:
                visit(part)

    visit(result)
    return found


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, and not {expected}")


def check_outputs():
    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for given in (x, x.half()):  # the CPU computes float16 as float32 where it has none
        out = torch.empty(0, dtype=given.dtype, device="cuda")
        torch.add(given.cuda(), given.cuda(), out=out)
        check("an empty output", (out.stride(), out.cpu().equal(given + given)), (x.stride(), True))
    x = torch.ones(2, 3, 4)
    check("unique_consecutive", torch.unique_consecutive(x.cuda(), dim=1).stride(), (4, 4, 1))
    for layout, dtype in itertools.product((torch.sparse_csr, torch.sparse_csc), (torch.float32, torch.half, torch.int64)):
        y = torch.eye(3).to_sparse(layout=layout).to(dtype).cuda()
        added = y + y
        check("the sum of compressed", (added.layout, added.dtype, added.to_dense().sum().item()), (layout, dtype, 6))
    narrow = torch.ones(3).diag().to_sparse().to(torch.complex32).cuda()
    check("a sparse output", torch.sin(narrow, out=torch.empty_like(narrow)).to_dense().cpu().to(torch.complex64).trace().real.item(),
          3 * torch.tensor(1.0).sin().half().item())
    for full in (True, False):
        x = torch.rand(3, 4, 5)
        found, expected = (torch.linalg.svd(x.to(device), full) for device in ("cuda", "meta"))
        check("svd", [part.stride() for part in found], [part.stride() for part in expected])


def check_attention():
    aten = torch.ops.aten
    for change in (lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)):
        x = change(torch.rand(2, 3, 8, 16))
        for run in (lambda x: aten._scaled_dot_product_flash_attention(x.bfloat16(), x.bfloat16(), x.bfloat16()),
                    lambda x: aten._scaled_dot_product_efficient_attention(x, x, x, None, True),
                    lambda x: aten._scaled_dot_product_efficient_attention(x, x, x, None, False)):
            found, expected = ([(part.shape, part.stride(), part.dtype) for part in run(x.to(device))
                                if isinstance(part, torch.Tensor)] for device in ("cuda", "meta"))
            check("attention", found, expected)
    x = torch.rand(2, 3, 8, 16, requires_grad=True)
    y = x.detach().cuda().requires_grad_()
    for z in (x, y):
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION, torch.nn.attention.SDPBackend.FLASH_ATTENTION]):
            torch.nn.functional.scaled_dot_product_attention(z, z, z).square().sum().backward()
    check("the gradient of attention", y.grad.cpu().allclose(x.grad, rtol=1e-4, atol=1e-5), True)


def check_convolutions():
    """As PyTorch's own FakeTensorMode says that a GPU lays them out, without computing."""
    aten = torch.ops.aten
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    shapes = ((4, 6, 1), (4, 4, 4), (1, 3, 1))  # channels in, out, groups
    for rank, dtype, of_input, of_weight, is_transposed, (before, after, groups), width in itertools.product(
            (1, 2, 3), (torch.float16, torch.float32, torch.float64), (False, True), (False, True), (False, True), shapes,
            (1, 3)):
        if rank == 1 and (of_input or of_weight):
            continue

        def made(sizes, is_last):
            x = torch.randn(sizes).to("cuda", dtype)
            return x.to(memory_format=formats[rank]) if is_last else x

        x = made((2, before, 5, 6, 7)[:rank + 2], of_input)
        weight = made([*((before, after // groups) if is_transposed else (after, before // groups)), *[width] * rank], of_weight)
        numbers = [1] * rank, [1] * rank, [1] * rank, is_transposed, [0] * rank, groups
        grad = made(aten.convolution(x, weight, None, *numbers).shape, of_input)

        def strides(x, weight, grad):
            output = aten.convolution(x, weight, None, *numbers)
            gradients = aten.convolution_backward(grad, x, weight, None, *numbers, [True, True, False])
            return [part.stride() for part in (output, *gradients[:2])]

        with FakeTensorMode() as mode:
            expected = strides(*(mode.from_tensor(part) for part in (x, weight, grad)))
        what = f"convolution of {dtype}, {tuple(x.shape)} {x.stride()}, {tuple(weight.shape)} {weight.stride()}, {is_transposed}"
        check(what, strides(x, weight, grad), expected)


def check_sparse_tensors():
    x = torch.eye(4)
    with torch.sparse.check_sparse_tensor_invariants():
        for make in (lambda x: x.to_sparse_csr(), lambda x: x.to_sparse_csc(), lambda x: x.to_sparse_bsr((2, 2)),
                     lambda x: x.to_sparse_bsc((2, 2)), lambda x: x.to_sparse()):
            check("a sparse tensor", make(x.cuda()).to_dense().cpu().equal(x), True)
        places, values = torch.tensor([[0, 1], [1, 0]]).cuda(), torch.ones(2).cuda()
        made = torch.sparse_coo_tensor(places, values, (2, 2), is_coalesced=True)
        check("a coalesced tensor", (made @ made).to_dense().tolist(), [[1, 0], [0, 1]])
        try:
            torch.sparse_coo_tensor(places.flip(1), values, (2, 2), is_coalesced=True)
            sys.exit("a tensor that is not coalesced is one")
        except RuntimeError as error:
            check("a tensor that is not coalesced", "correspond to uncoalesced COO tensor" in str(error), True)


def check_factories():
    check("randperm(0)", torch.randperm(0, device="cuda", generator=torch.Generator()).numel(), 0)
    for arguments in ((1,), (5,), (7, False, 3.0)):
        found, expected = (torch.kaiser_window(*arguments, device=device).cpu() for device in ("cuda", "cpu"))
        check("kaiser_window", found.allclose(expected), True)


def main():
    for direct in (check_outputs, check_attention, check_convolutions, check_sparse_tensors, check_factories):
        direct()
    operations = sampled(op_db, 2)
    counts, wrong = collections.Counter(), {}
    for operation in operations:
        if torch.float32 not in operation.dtypes:
            continue
        try:
            samples = list(itertools.islice(operation.sample_inputs("cpu", torch.float32), SAMPLES))
        except Exception:  # needs a package that is not here
            continue
        for sample in samples:
            expected, found = (layouts(operation, sample, device) for device in ("meta", "cuda"))
            if expected is None or found is None:
                counts["not comparable"] += 1
            elif expected == found:
                counts["equal"] += 1
            else:
                counts["different"] += 1
                wrong.setdefault(f"{operation.name} {operation.variant_test_name}".strip(), f"{found}, and not {expected}")
    unexpected = {name: text for name, text in wrong.items() if name not in DIFFER}
    for name, text in unexpected.items():
        print(f"{name}: {text}"[:400])
    print(", ".join(f"{count} {name}" for name, count in counts.most_common()))
    leave(1 if unexpected or counts["equal"] < 500 else 0)


main()
