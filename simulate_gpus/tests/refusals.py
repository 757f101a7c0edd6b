# SPDX-License-Identifier: MIT
"""What a GPU refuses is refused, with LibTorch's own text, with and without --dry-run.

Of LibTorch's database a third of the operations; all, if TEST_SEED is set (sampling.py).
Usage: refusals.py SIMULATE_GPUS
"""
import itertools
import subprocess
import sys

import torch
from torch import nn
from torch.nn import functional as F

from sampling import sampled

OTHER = "Expected all tensors to be on the same device, but "
ON_CPU = OTHER + "got {} is on cpu, different from other tensors on cuda:0 (when checking argument in method wrapper_CUDA_{})"
OF_TWO = OTHER + "found at least two devices, cuda:0 and cpu!"


def on_gpu(*shape, dtype=torch.float32):
    return torch.ones(shape, device="cuda").to(dtype)


def on_cpu(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def coordinates(dims, dtype=torch.float32):
    """Ones on the diagonal; a dry run knows how many."""
    places = torch.arange(2).expand(dims, 2)
    return torch.sparse_coo_tensor(places, torch.ones(2, dtype=dtype), dims * (2,)).cuda()


def rows(layout, *block, dtype=torch.float32):
    return torch.eye(4).to_sparse(layout=layout, blocksize=block or None).to(dtype).cuda()


# LibTorch's own texts, as it gives them on a GPU.
CALLS = {
    "layer_norm": (lambda: nn.LayerNorm(4)(on_gpu(1, 4)), ON_CPU.format("weight", "_native_layer_norm")),
    "cat": (lambda: torch.cat([on_gpu(4), on_cpu(4)]), ON_CPU.format("tensors", "cat")),
    "nll_loss": (lambda: F.nll_loss(on_gpu(4, 4), on_cpu(4, dtype=torch.int64)), ON_CPU.format("target", "nll_loss_forward")),
    "mse_loss": (lambda: F.mse_loss(on_gpu(4), on_cpu(4)), OF_TWO),
    "add": (lambda: on_gpu(4) + on_cpu(4), OF_TWO),
    "mm": (lambda: torch.mm(on_gpu(4, 4), on_cpu(4, 4)), ON_CPU.format("mat2", "mm")),
    "mm of a half": (lambda: torch.mm(on_gpu(4, 4), on_gpu(4, 4, dtype=torch.half)),
                     "expected mat1 and mat2 to have the same dtype, but got: float != c10::Half"),
    "linear": (lambda: F.linear(on_gpu(2, 4), on_cpu(4, 4)), ON_CPU.format("mat2", "mm")),
    "linear of a half": (lambda: F.linear(on_gpu(2, 4), on_gpu(4, 4, dtype=torch.half)),
                         "expected mat1 and mat2 to have the same dtype, but got: float != c10::Half"),
    "bmm": (lambda: torch.bmm(on_gpu(2, 4, 4), on_cpu(2, 4, 4)), ON_CPU.format("mat2", "bmm")),
    "dot": (lambda: torch.dot(on_gpu(4), on_cpu(4)), ON_CPU.format("tensor", "_dot")),
    "conv2d": (lambda: F.conv2d(on_gpu(1, 1, 4, 4), on_cpu(1, 1, 3, 3)),
               "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same"),
    "conv2d of a half": (lambda: F.conv2d(on_gpu(1, 1, 4, 4), on_gpu(1, 1, 3, 3, dtype=torch.half)),
                         "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same"),
    "conv2d of the CPU": (lambda: F.conv2d(on_cpu(1, 8, 64, 64), on_gpu(8, 8, 3, 3)),
                          "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or "
                          "input should be a MKLDNN tensor and weight is a dense tensor"),
    "mm of coordinates": (lambda: coordinates(2, torch.int32) @ on_gpu(2, 2, dtype=torch.int32),
                          "\"addmm_sparse_cuda\" not implemented for 'Int'"),
    "mv of coordinates": (lambda: coordinates(2, torch.half) @ on_gpu(2, dtype=torch.half),
                          "\"addmm_sparse_cuda\" not implemented for 'Half'"),
    "bmm of coordinates": (lambda: torch.bmm(coordinates(3, torch.int64), on_gpu(2, 2, 2, dtype=torch.int64)),
                           "\"bmm_sparse_cuda\" not implemented for 'Long'"),
    "mm of compressed integers": (lambda: rows(torch.sparse_csr, dtype=torch.int64) @ on_gpu(4, 4, dtype=torch.int64),
                                  "CUDA error: invalid value when calling `cusparseCreateCsr(..."),
    "mm of blocks of one element": (lambda: rows(torch.sparse_bsr, 1, 1) @ on_gpu(4, 4),
                                    "mat1.values().size(-1) > 1 INTERNAL ASSERT FAILED..."),
    "mv of blocks": (lambda: rows(torch.sparse_bsr, 2, 2, dtype=torch.half) @ on_gpu(4, dtype=torch.half),
                     "\"block_sparse_mv\" not implemented for 'Half'"),
    "sampled_addmm": (lambda: torch.sparse.sampled_addmm(rows(torch.sparse_csr, dtype=torch.half), on_gpu(4, 4, dtype=torch.half),
                                                         on_gpu(4, 4, dtype=torch.half)),
                      "\"sampled_addmm_out_sparse_csr\" not implemented for 'Half'"),
    "sampled_addmm(out=)": (lambda: [torch.sparse.sampled_addmm(x, on_gpu(4, 4, dtype=x.dtype), on_gpu(4, 4, dtype=x.dtype), out=x)
                                     for x in (rows(torch.sparse_csr, dtype=torch.complex32),)],
                            "\"sampled_addmm_out_sparse_csr\" not implemented for 'ComplexHalf'"),
    "spsolve": (lambda: torch.sparse.spsolve(rows(torch.sparse_csr), on_gpu(4)),
                "Calling linear solver with sparse tensors requires compiling PyTorch with CUDA cuDSS..."),
    "sspaddmm": (lambda: torch.sspaddmm(coordinates(2), coordinates(2), on_gpu(2, 2)),
                 "NYI: CUDA sspaddmm is not implemented"),
    "linalg.solve": (lambda: torch.linalg.solve(on_gpu(4, 4), on_cpu(4, 4)), ON_CPU.format("B", "_linalg_solve_ex")),
    "linalg.inv of a half": (lambda: torch.linalg.inv(on_gpu(4, 4, dtype=torch.half)),
                             "linalg.inv: Low precision dtypes not supported. Got Half"),
    "a number that float8 cannot hold, after one that it can": (
        lambda: [torch.full((), number, device="cuda", dtype=torch.float8_e8m0fnu) for number in (2., -7.)],
        "value cannot be converted to type ..."),
    "stack of expanded float8, after one that is contiguous": (
        lambda: [torch.stack([x, on_gpu(2, dtype=torch.float8_e8m0fnu)], 1)
                 for x in (on_gpu(2, dtype=torch.float8_e8m0fnu), on_gpu(1, dtype=torch.float8_e8m0fnu).expand(2))],
        "\"cat_cuda\" not implemented for 'Float8_e8m0fnu'"),
    "cat of transposed float8, after channels_last": (
        lambda: [torch.cat([x, x]) for x in (on_gpu(2, 3, 4, 5, dtype=torch.float8_e8m0fnu).contiguous(memory_format=torch.channels_last),
                                             on_gpu(2, 3, 4, 5, dtype=torch.float8_e8m0fnu).transpose(2, 3))],
        "\"cat_cuda\" not implemented for 'Float8_e8m0fnu'"),
    "abs_ of coordinates": (lambda: coordinates(2).to(torch.float8_e5m2).abs_(), "\"abs_cuda\" not implemented for 'Float8_e5m2'"),
    "masked_select of nothing": (lambda: on_gpu(1, dtype=torch.uint16).masked_select(on_gpu(1) > 1),
                                 "\"index_cuda\" not implemented for 'UInt16'"),
    "cat into an operand": (lambda: [torch.cat([x, on_gpu(4, 6)], out=x) for x in (on_gpu(0),)],
                            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                            "memory location. Please clone() the tensor before performing the operation."),
}
if torch.__version__ >= "2.15":  # which multiplies float16, and looks first whether coordinates are in order
    del CALLS["sampled_addmm"]
    CALLS["abs_ of coordinates"] = CALLS["abs_ of coordinates"][0], "abs_ requires coalesced input"


# What they refuse depends on values, which a dry run does not have; or on indices, which are moved.
DIFFER = ("nn.functional.gaussian_nll_loss", "_unsafe_masked_index")


def refusal(call):
    """The first line of the error; "" where there is none."""
    try:
        call()
    except Exception as error:
        return str(error).split("\n")[0] or type(error).__name__
    return ""


def fits(text, expected):
    """"..." at its end stands for what depends on LibTorch's version."""
    return text.startswith(expected[:-3]) if expected.endswith("...") else text == expected


def tensors(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def moved(value, place):
    """The value with all its tensors on the GPU, but for the one of that place."""
    count = 0

    def walk(value):
        nonlocal count
        if isinstance(value, (list, tuple)):
            parts = [walk(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if isinstance(value, dict):
            return {name: walk(part) for name, part in value.items()}
        if not isinstance(value, torch.Tensor):
            return "cuda" if str(value) == "cpu" else value
        count += 1
        return value.detach() if count - 1 == place else value.detach().cuda()

    return walk(value)


def show_operations():
    """A line for each of many operations of LibTorch's database and each of its operands, with that one on the CPU."""
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds
    for operation in sampled(op_db, 3):
        if torch.float32 not in operation.dtypes or operation.name in DIFFER:
            continue
        try:
            samples = itertools.islice(operation.sample_inputs("cpu", torch.float32), 4)
            all_operands = [(sample.input, sample.args, sample.kwargs) for sample in samples]
        except Exception:  # needs a package that is not here
            continue
        operands = next((each for each in all_operands if all(x.dim() > 0 for x in tensors(each))), all_operands[0])
        count = len(tensors(operands))
        for place in range(count if count > 1 else 0):
            first, arguments, options = moved(operands, place)
            print(f"{operation.name} {operation.variant_test_name} {place}",
                  refusal(lambda: operation(first, *arguments, **options)), sep="|")


def main():
    if sys.argv[1] == "--calls":
        for name, (call, _) in CALLS.items():
            print(name, refusal(call), sep="|")
        show_operations()
        return
    shown = []
    for mode in ([], ["--dry-run"]):
        ran = subprocess.run([sys.argv[1], *mode, "1", sys.executable, "-W", "ignore", __file__, "--calls"], text=True,
                             stdout=subprocess.PIPE)
        shown.append(dict(line.split("|", 1) for line in ran.stdout.splitlines()))
    computed, dry = shown
    wrong = [f"{name}: {found[name]!r}, and not {expected!r}" for name, (_, expected) in CALLS.items() for found in shown
             if not fits(found.get(name, ""), expected)]
    wrong += [f"{name}: {text!r}, and in a dry run {dry.get(name)!r}" for name, text in computed.items()
              if dry.get(name) != text and name not in CALLS]
    refused = sum(text != "" for text in computed.values())
    print("\n".join(wrong), f"{refused} of {len(computed)} calls are refused, with the same texts in a dry run" if not wrong else "")
    sys.exit(1 if wrong or refused < 100 else 0)


if __name__ == "__main__":
    main()
