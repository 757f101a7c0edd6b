# SPDX-License-Identifier: MIT
"""LibTorch's own database of operations, scripted and traced: on a simulated GPU they give the values of eager code.

What cannot be scripted or traced on the CPU either, or is refused in eager code, is not comparable. Modules: torchscript.py.
A quarter of the operations, about 300 in one of the ways; all, if TEST_SEED is set (sampling.py).
Usage: simulate_gpus 1 python torchscript_operations.py
"""
import collections
import sys
import warnings

try:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.jit_metaprogramming_utils import gen_script_fn_and_args, partial_apply_nontensors
except ImportError as error:
    print(f"SKIPPED: {error}; scripts/setup --dev installs it")
    sys.exit(77)

from sampling import SEED, leave, moved, sampled, tensors

warnings.simplefilter("ignore")
SAMPLES = 2  # of each operation
UNWRITTEN = ("empty", "resize")  # memory whose values are arbitrary


def scripted(operation, args, kwargs):
    return gen_script_fn_and_args(operation.name, "functional", *args, **kwargs)


def traced(operation, args, kwargs):
    function, inputs = partial_apply_nontensors(operation.get_op(), args, kwargs)
    return torch.jit.trace(function, inputs.all_tensors, check_trace=False), inputs.all_tensors


def results(function, args, kwargs):
    """Outputs, and the gradients of the inputs."""
    torch.manual_seed(0)
    outputs = tensors(function(*args, **kwargs))
    ends = [(x.abs() if x.is_complex() else x).sum() for x in outputs if x.requires_grad]
    starts = [x for x in tensors(args) if x.requires_grad]
    gradients = torch.autograd.grad(ends, starts, allow_unused=True) if ends and starts else []
    return [x.detach().cpu().clone() for x in (*outputs, *gradients) if x is not None]  # what is in place changes again


def compare(operation, make, sample, device):
    """Raises what the way raises, or an AssertionError for a wrong value."""
    args, kwargs = moved((sample.input, *sample.args), device), moved(sample.kwargs, device)
    torch.manual_seed(0)
    function, inputs = make(operation, args, kwargs)
    expected = results(operation.get_op(), args, kwargs)
    for _ in range(3):  # TorchScript fuses after the first call
        found = results(function, inputs, {})
        if not any(word in operation.name for word in UNWRITTEN):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def outcome(operation, make, sample):
    """"equal", "not comparable", or what is wrong."""
    try:
        compare(operation, make, sample, "cuda")
        return "equal"
    except Exception as error:
        text = str(error).replace("\n", " ")
    try:
        compare(operation, make, sample, "cpu")
        results(operation.get_op(), *moved(((sample.input, *sample.args), sample.kwargs), "cuda"))
        return text[-300:]
    except Exception:
        return "not comparable"


def main():
    pairs = [(operation, way) for operation in op_db if torch.float32 in operation.dtypes for way in ("scripted", "traced")]
    counts, wrong = collections.Counter(), []
    for operation, way in sampled(pairs, 4):
        torch.manual_seed(int(SEED or 0))
        try:
            samples = list(operation.sample_inputs("cpu", torch.float32, requires_grad=operation.supports_autograd))[:SAMPLES]
        except Exception:  # a sample that needs a package which is not here
            continue
        for sample in samples:
            result = outcome(operation, globals()[way], sample)
            if result not in ("equal", "not comparable"):
                wrong.append(f"{operation.name} {operation.variant_test_name} {way}: {result}")
                result = "wrong"
            counts[f"{way} {result}"] += 1
    print(*wrong, sep="\n")
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    leave(1 if wrong or min(counts["scripted equal"], counts["traced equal"]) < 50 else 0)


if __name__ == "__main__":
    main()
