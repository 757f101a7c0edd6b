# SPDX-License-Identifier: MIT
"""LibTorch's own database of operations, with its sample inputs: a simulated GPU gives the CPU's values and gradients.

An operation that is refused by name, or that LibTorch has on no GPU, is counted; a wrong value is a failure, and so is
a refusal by the name of a kernel alone. A quarter of the operations; all, if TEST_SEED is set (sampling.py).
Usage: simulate_gpus 1 python operations.py [TYPE | TYPE:expanded | TYPE:mixed | gpu_only]...
       :expanded   the first row of each positional argument stands for all, in the memory of one
       :mixed      arguments after the first have another dtype
       gpu_only    operations in the dtypes that LibTorch has on GPUs only, which the CPU computes in wider ones
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

from sampling import SEED, leave, sampled, tensors

warnings.simplefilter("ignore")
torch.manual_seed(int(SEED or 0))
SAMPLES = 6  # of each operation
# Random numbers differ from the CPU's, and unwritten memory is arbitrary.
RANDOM = ("rand", "bernoulli", "normal", "multinomial", "uniform", "cauchy", "exponential", "geometric", "dropout",
          "rrelu", "fractional", "empty", "lowrank", "resize")
OTHER_DTYPE = {torch.float32: torch.float64, torch.float64: torch.float32, torch.int64: torch.int32,
               torch.int32: torch.int64, torch.float16: torch.float32, torch.bool: torch.int64}
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64,
         torch.bool: torch.uint8}


def mapped(value, change):
    """The value with change(part) in place of each tensor, device and dtype in it."""
    if isinstance(value, (list, tuple)):
        parts = [mapped(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {name: mapped(part, change) for name, part in value.items()}
    return change(value)


def on_gpu(value):
    if isinstance(value, torch.Tensor):
        return value.detach().to("cuda").requires_grad_(value.requires_grad)
    return "cuda" if str(value) == "cpu" else value


def expanded(value):
    if not isinstance(value, torch.Tensor) or value.dim() == 0 or value.size(0) < 2:
        return value
    return value.detach()[:1].expand_as(value).requires_grad_(value.requires_grad)


def mixed(value):
    if not isinstance(value, torch.Tensor) or value.dtype not in OTHER_DTYPE:
        return value
    return value.detach().to(OTHER_DTYPE[value.dtype])


def widened(value):
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if not isinstance(value, torch.Tensor):
        return value
    wide = WIDER.get(value.dtype, value.dtype if value.dtype.is_complex else torch.float64)
    return value.detach().to(wide).requires_grad_(value.requires_grad)


def on_meta(value):
    if isinstance(value, torch.Tensor):
        return value.detach().to("meta")
    return "meta" if str(value) == "cpu" else value


def has_dtypes_of_meta(form, operands, found):
    """Whether the outputs have the dtypes that LibTorch says, where it says them without computing."""
    try:
        first, arguments, options = mapped(operands, on_meta)
        expected = tensors(form(first, *arguments, **options))
    except Exception:
        return True
    return all(x.dtype == y.dtype for x, y in zip(expected, found))


def outputs_and_gradients(operation, operands):
    first, arguments, options = operands
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


def try_sample(operation, dtype, form, sample, change, reference):
    """"right", "refused", "on no GPU", "not comparable", or what is wrong."""
    if operation.variant_test_name == "partial_views":  # of memory around the sample, which is not sent along
        return "not comparable"
    operands = (sample.input, sample.args, sample.kwargs)
    try:
        expected = outputs_and_gradients(form, mapped(change(operands), reference))
    except Exception:  # the CPU itself refuses
        return "not comparable"
    try:
        found = outputs_and_gradients(form, change(mapped(operands, on_gpu)))
    except Exception as error:
        text = str(error).split("\n")[0]
        if "imulated GPUs have no" in text or text == "ZeroDivisionError":  # where a GPU gives any number
            return "refused"
        if any(part in text for part in ("arguments from the '", "to be on cpu", "is not supported on CUDA", "Mask should be Bool")):
            return "on no GPU"
        if ("not implemented for" in text or "not supported for" in text) and dtype not in operation.dtypesIfCUDA:
            return "on no GPU"
        return text[:200]
    if any(word in operation.name for word in RANDOM) or "attention" in operation.name and dropout_of(sample):
        return "not comparable"
    if "native_batch_norm" in operation.name:  # in evaluation a GPU gives its statistics a size, the CPU none
        found = [x for x, y in zip(found, expected, strict=True) if y.numel() > 0]
        expected = [y for y in expected if y.numel() > 0]
    bound = {"rtol": 1e-3, "atol": 1e-4}
    if reference is widened:
        bound = {"rtol": 0.1, "atol": 0.1}  # sums of 16-bit numbers
        expected = [x.to(y.dtype) for x, y in zip(expected, found, strict=True)]
        if not has_dtypes_of_meta(form, operands, found):
            return "WRONG dtype: " + str([x.dtype for x in found])
    try:
        torch.testing.assert_close(found, expected, **bound, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return "WRONG: " + str(error).replace("\n", " ")[:200]
    return "right"


def runs(what):
    """(operation, dtype) pairs, how the operands are changed, and how the CPU's are changed besides."""
    name, _, form = what.partition(":")
    if name == "gpu_only":
        pairs = [(operation, dtype) for operation in op_db
                 for dtype in sorted(operation.dtypesIfCUDA - operation.dtypes, key=str)]
        return pairs, lambda operands: operands, widened
    dtype = getattr(torch, name)
    change = {"": lambda operands: operands,
              "expanded": lambda operands: (*mapped(operands[:2], expanded), operands[2]),
              "mixed": lambda operands: (operands[0], *mapped(operands[1:], mixed))}[form]
    return [(operation, dtype) for operation in op_db if dtype in operation.dtypes], change, lambda value: value


def main(selected):
    failed = False
    for what in selected:
        results, wrong = collections.Counter(), {}
        pairs, change, reference = runs(what)
        for operation, dtype in sampled(pairs, 4):
            gradients = operation.supports_autograd and dtype.is_floating_point
            try:
                samples = list(operation.sample_inputs("cpu", dtype, requires_grad=gradients))[:SAMPLES]
            except Exception:  # a sample that needs a package which is not here
                continue
            for sample, form in ((sample, form) for sample in samples for form in forms(operation, sample)):
                result = try_sample(operation, dtype, form, sample, change, reference)
                if result not in ("right", "refused", "on no GPU", "not comparable"):
                    wrong[f"{operation.name} {operation.variant_test_name} ({dtype})"] = result
                    result = "wrong"
                results[result] += 1
        for name, result in wrong.items():
            print(f"{name}: {result}")
        print(f"{what}: " + ", ".join(f"{count} {result}" for result, count in results.most_common()), flush=True)
        failed |= bool(wrong) or results["right"] < (100 if what == "gpu_only" else 300)
    leave(1 if failed else 0)


main(sys.argv[1:] or ["float32", "int64", "float32:expanded", "float32:mixed", "gpu_only"])
