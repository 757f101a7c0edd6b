#!/usr/bin/env python3
"""What a GPU (real or simulated) computes and refuses of products that the CPU does not know: float8 with scales, four bits, sparse halves.

Usage: products.py OUT.npz             stores the answers: arrays, and the texts of errors
       products.py --compare OUT.npz   asks this GPU, and says what differs; the exit status is 1 if anything does
"""
import argparse
import itertools
import json
import sys
import warnings

import numpy as np
import torch
from torch.nn.functional import ScalingType

warnings.filterwarnings("ignore")
E4, E5, BF, F16, F32 = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float32
SHORT = {E4: "e4m3", E5: "e5m2", BF: "bf16", F16: "f16", F32: "f32", torch.float8_e8m0fnu: "e8m0", torch.float64: "f64",
         torch.float8_e4m3fnuz: "e4m3fnuz", torch.uint8: "u8", torch.int8: "s8", None: "none"}


def numbers(name, *shape, low=-2.0, high=2.0):
    """Float32 on the CPU, a few bits each, so that sums are the same in any order as far as that is possible."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    return (torch.rand(shape, generator=generator) * (high - low) + low).mul(8).round().div(8)


def operand(name, rows, columns, dtype, layout="row"):
    x = numbers(name, rows, columns).to(dtype).cuda()
    if layout == "column":
        x = x.t().contiguous().t()
    elif layout == "padded":  # the columns of a larger matrix
        x = torch.cat([x.view(torch.uint8), x.view(torch.uint8)]).view(dtype)[::2] if rows > 1 else x
    return x


SCALES = {
    "scalar": lambda m, n, k: ((), ()), "one": lambda m, n, k: ((1,), (1,)), "1x1": lambda m, n, k: ((1, 1), (1, 1)),
    "rows": lambda m, n, k: ((m, 1), (1, n)), "rows flat": lambda m, n, k: ((m,), (n,)), "left rows": lambda m, n, k: ((m, 1), (1, 1)),
    "wrong rows": lambda m, n, k: ((m + 1, 1), (1, n)), "blocks": lambda m, n, k: ((m, k // 128), (k // 128, n)),
    "blocks 128": lambda m, n, k: ((m, k // 128), (k // 128, n // 128)), "empty": lambda m, n, k: ((0,), (1,)),
}


def scales(kind, m, n, k, dtype=F32):
    left, right = SCALES[kind](m, n, k)
    make = lambda name, shape: (numbers(name, *shape, low=1, high=4) if shape else numbers(name, 1, low=1, high=4)[0]).to(dtype).cuda()
    return make("scale a", left), make("scale b", right)


def scaled_mm(size=(32, 48, 64), a=E4, b=E4, layouts=("row", "column"), scale="scalar", scale_dtype=F32, bias=None, out=None, fast=False,
              result_scale=False):
    m, n, k = size
    left, right = operand("a", m, k, a, layouts[0]), operand("b", k, n, b, layouts[1])
    scale_a, scale_b = scales(scale, m, n, k, scale_dtype)
    return torch._scaled_mm(left, right, scale_a, scale_b, bias=None if bias is None else numbers("bias", n).to(bias).cuda(),
                            scale_result=torch.tensor(0.5).cuda() if result_scale else None, out_dtype=out, use_fast_accum=fast)


def scaled_mm_cases():
    def case(**changes):
        words = [f"{key} {SHORT.get(value, value) if not isinstance(value, (tuple, bool)) else value}" for key, value in changes.items()]
        return " ".join(["_scaled_mm", *words]), lambda: scaled_mm(**changes)

    yield case()
    for a, b in itertools.product((E4, E5, BF, torch.float8_e4m3fnuz, torch.int8), repeat=2):
        yield case(a=a, b=b)
    for layouts in itertools.product(("row", "column"), repeat=2):
        yield case(layouts=layouts)
    yield case(layouts=("padded", "column"))
    for size in ((1, 16, 16), (3, 16, 16), (16, 16, 8), (16, 17, 16), (16, 24, 32), (16, 16, 24), (0, 16, 16), (16, 16, 0), (17, 32, 48), (128, 256, 512)):
        yield case(size=size)
        yield case(size=size, scale="rows", out=BF)
    for out in (None, E4, E5, BF, F16, F32, torch.float64, torch.uint8):
        for scale in ("scalar", "rows"):
            yield case(out=out, scale=scale)
    for kind in SCALES:
        for out in (BF, F32):
            yield case(scale=kind, out=out)
            yield case(scale=kind, out=out, size=(128, 256, 512))
    for dtype in (F16, BF, torch.float64, torch.float8_e8m0fnu):
        for kind in ("scalar", "rows"):
            yield case(scale_dtype=dtype, scale=kind, out=BF)
    for bias, out in itertools.product((F16, BF, F32), (F16, BF, F32, E4)):
        for scale in ("scalar", "rows"):
            yield case(bias=bias, out=out, scale=scale)
    for fast, scale in itertools.product((True,), ("scalar", "rows")):
        yield case(fast=fast, scale=scale, out=BF)
    for out in (E4, BF):
        yield case(result_scale=True, out=out)


def scaled_mm_v2(size, recipe, scale_shapes, out):
    m, n, k = size
    left, right = operand("a", m, k, E4), operand("b", k, n, E4, "column")
    make = lambda name, shape: numbers(name, *shape, low=1, high=4).cuda()
    a, b = make("scale a", scale_shapes[0]), make("scale b", scale_shapes[1])
    if recipe[0] == ScalingType.BlockWise1x128:
        a = a.t().contiguous().t()
    if recipe[1] == ScalingType.BlockWise1x128:
        b = b.t().contiguous().t()
    return torch.nn.functional.scaled_mm(left, right, a, recipe[0], b, recipe[1], output_dtype=out)


def scaled_mm_v2_cases():
    tensor, rows, block, square = (ScalingType.TensorWise, ScalingType.RowWise, ScalingType.BlockWise1x128, ScalingType.BlockWise128x128)
    m, n, k = size = (128, 256, 512)
    shapes = {tensor: ((1,), (1,)), rows: ((m, 1), (n, 1)), block: ((m, k // 128), (n, k // 128)), square: ((m // 128, k // 128), (n // 128, k // 128))}
    for left, right in itertools.product(shapes, repeat=2):
        for out in (BF, F32, E4):
            yield (f"scaled_mm {left.name} {right.name} {SHORT[out]}",
                   lambda left=left, right=right, out=out: scaled_mm_v2(size, (left, right), (shapes[left][0], shapes[right][1]), out))


def grouped(size, groups, kind, out=BF, dtype=E4, fast=False):
    """2D by 3D: the rows of a belong to groups; 3D by 3D; 2D by 2D: the columns of a do."""
    m, n, k = size
    ends = torch.arange(1, groups + 1, dtype=torch.int32).mul(16).cuda()
    if kind == "2d 3d":
        a, b = operand("a", 16 * groups, k, dtype), numbers("b", groups, n, k).to(dtype).cuda().transpose(-2, -1)
        scale = numbers("scale a", 16 * groups, low=1, high=4).cuda(), numbers("scale b", groups, n, low=1, high=4).cuda()
    elif kind == "3d 3d":
        a, b = numbers("a", groups, m, k).to(dtype).cuda(), numbers("b", groups, n, k).to(dtype).cuda().transpose(-2, -1)
        scale, ends = (numbers("scale a", groups, m, low=1, high=4).cuda(), numbers("scale b", groups, n, low=1, high=4).cuda()), None
    else:
        a, b = operand("a", m, 16 * groups, dtype), numbers("b", n, 16 * groups).to(dtype).cuda().t()
        scale = numbers("scale a", m * groups, low=1, high=4).cuda(), numbers("scale b", n * groups, low=1, high=4).cuda()
    return torch._scaled_grouped_mm(a, b, *scale, offs=ends, out_dtype=out, use_fast_accum=fast)


def grouped_cases():
    for kind, out, fast in itertools.product(("2d 3d", "3d 3d", "2d 2d"), (BF, F32, None), (False, True)):
        yield f"_scaled_grouped_mm {kind} {SHORT[out]} {fast}", lambda kind=kind, out=out, fast=fast: grouped((32, 64, 128), 3, kind, out, fast=fast)


def four_bits(n, k, group, tiles, m=5, dtype=BF):
    values = torch.randint(0, 16, (n, k), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack((values[:, ::2] << 4 | values[:, 1::2]).to(torch.uint8).cuda(), tiles)
    scale_and_zero = numbers("scale", k // group, n, 2, low=1, high=3).to(dtype).cuda()
    return packed, torch._weight_int4pack_mm(numbers("x", m, k).to(dtype).cuda(), packed, group, scale_and_zero)


def four_bits_cases():
    for n, k, group, tiles in itertools.product((8, 32, 12), (64, 256, 80), (32, 64, 128, 256, 48), (2, 4, 8, 3)):
        yield f"int4 {n} {k} {group} {tiles}", lambda n=n, k=k, group=group, tiles=tiles: four_bits(n, k, group, tiles)
    yield "int4 f16", lambda: four_bits(32, 256, 64, 2, dtype=F16)


def halves(dtype, m=64, k=128, n=32):
    dense = numbers("a", m, k).to(dtype).cuda()
    dense = torch.where(torch.arange(k).cuda() % 4 < 2, dense, torch.zeros((), dtype=dtype).cuda())
    packed = torch.sparse.to_sparse_semi_structured(dense)
    b = numbers("b", k, n).to(dtype).cuda()
    return packed.to_dense(), torch.mm(packed, b), torch.nn.functional.linear(b.t().contiguous(), packed)


def halves_cases():
    for dtype, backend in itertools.product((F16, BF, torch.int8, F32), ("cutlass", "cusparselt")):
        def both(dtype=dtype, backend=backend):
            torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = backend == "cutlass"
            return halves(dtype)
        yield f"semi-structured {SHORT[dtype]} {backend}", both


def int8_cases():
    for m, k, n in ((32, 64, 48), (17, 16, 8), (16, 16, 16), (32, 60, 48), (32, 64, 44)):
        def product(m=m, k=k, n=n, transposed=False):
            a, b = numbers("a", m, k, low=-8, high=8).mul(8).to(torch.int8).cuda(), numbers("b", k, n, low=-8, high=8).mul(8).to(torch.int8).cuda()
            return torch._int_mm(a, b.t().contiguous().t() if transposed else b)
        yield f"_int_mm {m} {k} {n}", product
        yield f"_int_mm {m} {k} {n} column", lambda product=product: product(transposed=True)


REFUSED = "semi-structured"  # by name, on simulated GPUs
CASES = (scaled_mm_cases, scaled_mm_v2_cases, grouped_cases, four_bits_cases, halves_cases, int8_cases)


def bits(tensor):
    """A tensor's bytes, and how they lie."""
    cpu = tensor.detach().cpu()
    plain = cpu.contiguous()
    return ([str(cpu.dtype)[6:], list(cpu.shape), list(cpu.stride())],
            plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.zeros(0, np.uint8))


def answers():
    about, arrays = {}, {}
    for family in CASES:
        for name, ask in family():
            try:
                results = ask()
                torch.cuda.synchronize()
                results = results if isinstance(results, tuple) else (results,)
                about[name] = []
                for place, result in enumerate(results):
                    facts, data = bits(result)
                    about[name].append(facts)
                    arrays[f"{name}|{place}"] = data
            except Exception as error:  # noqa: BLE001  any error is an answer
                about[name] = [type(error).__name__, str(error).split("\n")[0][:300]]
    return about, arrays


def values(facts, data):
    if not data.size:
        return np.zeros(0)
    return torch.from_numpy(data.copy()).view(getattr(torch, facts[0])).to(torch.float64).numpy()


def differences(about, arrays, recorded, known):
    for name, want in recorded.items():
        if name.startswith(REFUSED):
            continue
        got = about.get(name)
        if got != want:
            yield f"{name}: {got}, on the card {want}"
            continue
        for place, facts in enumerate(want if isinstance(want[0], list) else []):
            left, right = values(facts, arrays[f"{name}|{place}"]), values(facts, known[f"{name}|{place}"])
            epsilon = {"bfloat16": 2.0 ** -8, "float16": 2.0 ** -11, "float8_e4m3fn": 2.0 ** -3, "float8_e5m2": 2.0 ** -2, "float32": 2.0 ** -12}
            bound = epsilon.get(facts[0], 0) * max(np.abs(right).max(initial=0), 1e-30)
            if not np.all((np.abs(left - right) <= bound) | (np.isnan(left) & np.isnan(right)) | (left == right)):
                yield f"{name}: values differ by {np.abs(left - right).max():.3g}, bound {bound:.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    about, arrays = answers()
    if not options.compare:
        np.savez_compressed(options.file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
        failed = sum(isinstance(a[0], str) for a in about.values())
        print(f"{len(about)} answers, {failed} of them errors")
        return 0
    known = np.load(options.file)
    found = list(differences(about, arrays, json.loads(known["about"].tobytes()), known))
    print("\n".join([*found, f"{len(about)} answers, {len(found)} differ"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
