# SPDX-License-Identifier: MIT
"""LibTorch's own database of operations, with its sample inputs: a simulated GPU gives the CPU's values and gradients.

An operation that is refused by name, or that LibTorch has on no GPU, is counted; a wrong value is a failure.
Usage: simulate_gpus 1 python operations.py [TYPE...]        (float32)
"""
import collections
import sys
import warnings

try:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError as error:
    print(f"SKIPPED: {error}; scripts/setup --dev installs it")
    sys.exit(77)

warnings.simplefilter("ignore")
SAMPLES = 6  # of each operation
# Random numbers differ from the CPU's, and unwritten memory is arbitrary.
RANDOM = ("rand", "bernoulli", "normal", "multinomial", "uniform", "cauchy", "exponential", "geometric", "dropout",
          "rrelu", "fractional", "empty", "lowrank", "resize")


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors(part)]
    return []


def on_gpu(value):
    if isinstance(value, torch.Tensor):
        return value.detach().to("cuda").requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        parts = [on_gpu(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {name: on_gpu(part) for name, part in value.items()}
    return "cuda" if str(value) == "cpu" else value


def outputs_and_gradients(operation, first, arguments, options):
    outputs = tensors(operation(first, *arguments, **options))
    ends = [(x.abs() if x.is_complex() else x).sum() for x in outputs if x.requires_grad]
    starts = [x for x in tensors([first, *arguments]) if x.requires_grad]
    gradients = torch.autograd.grad(ends, starts, allow_unused=True) if ends and starts else []
    return [x.detach().cpu() for x in (*outputs, *gradients) if x is not None]


def dropout_of(sample):
    """The low-level function takes it as its 11th argument, counting the sample."""
    return sample.kwargs.get("dropout_p") or (len(sample.args) > 10 and sample.args[9])


def forms(operation, sample):
    """The operation, and its form that writes into the first operand, where that is large enough."""
    yield operation
    if operation.inplace_variant and not sample.broadcasts_input:
        yield lambda first, *arguments, **options: operation.inplace_variant(first.clone(), *arguments, **options)


def try_sample(operation, form, sample):
    """"right", "refused", "on no GPU", "not comparable", or what is wrong."""
    if operation.variant_test_name == "partial_views":  # of memory around the sample, which is not sent along
        return "not comparable"
    try:
        expected = outputs_and_gradients(form, sample.input, sample.args, sample.kwargs)
    except Exception:  # the CPU itself refuses
        return "not comparable"
    try:
        found = outputs_and_gradients(form, on_gpu(sample.input), on_gpu(sample.args), on_gpu(sample.kwargs))
    except Exception as error:
        text = str(error).split("\n")[0]
        if "imulated GPUs" in text:
            return "refused"
        if "arguments from the '" in text or "to be on cpu" in text:
            return "on no GPU"
        return text[:200]
    if any(word in operation.name for word in RANDOM) or "attention" in operation.name and dropout_of(sample):
        return "not comparable"
    try:
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return "WRONG: " + str(error).replace("\n", " ")[:200]
    return "right"


def main(types):
    results, wrong = collections.Counter(), {}
    for dtype in (getattr(torch, name) for name in types):
        for operation in op_db:
            if dtype not in operation.dtypes:
                continue
            gradients = operation.supports_autograd and dtype.is_floating_point
            try:
                samples = list(operation.sample_inputs("cpu", dtype, requires_grad=gradients))[:SAMPLES]
            except Exception:  # a sample that needs a package which is not here
                continue
            for sample, form in ((sample, form) for sample in samples for form in forms(operation, sample)):
                result = try_sample(operation, form, sample)
                if result not in ("right", "refused", "on no GPU", "not comparable"):
                    wrong[f"{operation.name} {operation.variant_test_name} ({dtype})"] = result
                    result = "wrong"
                results[result] += 1
    for name, result in wrong.items():
        print(f"{name}: {result}")
    print(", ".join(f"{count} {result}" for result, count in results.most_common()))
    sys.exit(1 if wrong or results["right"] < 1000 else 0)


main(sys.argv[1:] or ["float32"])
