# SPDX-License-Identifier: MIT
"""Every module of torch.nn on a simulated GPU, scripted, traced, frozen and exported: values and gradients of eager code.

The functions are called with other inputs than they were made with. What fails on the CPU too is not comparable.
A third of the modules; all, if TEST_SEED is set (sampling.py).
Usage: simulate_gpus 1 python torchscript.py [--samples N] [--save FOLDER]
       --samples N      how many of LibTorch's sample inputs of each module (default: 1 in training, 1 in evaluation)
       --save FOLDER    keeps each scripted module there, with its inputs and results, for torchscript.cpp
"""
import argparse
import collections
import contextlib
import io
import logging
import sys
import warnings
from pathlib import Path

try:
    import torch
    from torch.testing._internal.common_modules import module_db
except ImportError as error:
    print(f"SKIPPED: {error}; scripts/setup --dev installs it")
    sys.exit(77)

from sampling import leave, moved, sampled, tensors

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)  # of modules that cannot be exported


def other(value):
    """Another input of the same kind; what lies between 0 and 1 stays there."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return (value.detach() * 0.5 + 0.1).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(other(part) for part in value)
    return {name: other(part) for name, part in value.items()} if isinstance(value, dict) else value


def results(function, module, args, kwargs, backward):
    """Outputs, and the gradients of inputs and parameters."""
    if not module.training and any(isinstance(part, torch.nn.RNNBase) for part in module.modules()):
        backward = False  # which cuDNN refuses
    torch.manual_seed(0)
    outputs = tensors(function(*args, **kwargs))
    ends = [x.square().sum() for x in outputs if x.requires_grad]
    starts = [x for x in tensors(args) + tensors(list(kwargs.values())) + list(module.parameters()) if x.requires_grad]
    gradients = torch.autograd.grad(sum(ends), starts, allow_unused=True) if backward and ends and starts else []
    return [x.detach().cpu() for x in (*outputs, *gradients) if x is not None]


def traced(module, args, kwargs):
    names = {**dict(zip(module.forward.__code__.co_varnames[1:], args)), **kwargs}
    return torch.jit.trace(module, example_kwarg_inputs=names, check_trace=False) if kwargs else torch.jit.trace(
        module, tuple(args), check_trace=False)


WAYS = {  # how the function is made; whether it has gradients
    "script": (lambda module, args, kwargs: torch.jit.script(module), True),
    "trace": (traced, True),
    "frozen": (lambda module, args, kwargs: torch.jit.freeze(torch.jit.script(module.eval())), False),
    "optimized": (lambda module, args, kwargs: torch.jit.optimize_for_inference(torch.jit.script(module.eval())), False),
    "export": (lambda module, args, kwargs: torch.export.export(module, tuple(args), kwargs).module(), True),
}


def compare(make, sample, device, way):
    """Raises what the way raises, or an AssertionError for a wrong value."""
    build, backward = WAYS[way]
    args, kwargs = moved(sample.args, device), moved(sample.kwargs, device)
    module = make().to(device)
    torch.manual_seed(0)
    function = build(module, args, kwargs)
    args, kwargs = other(args), other(kwargs)
    state = {name: x.clone() for name, x in module.state_dict().items()}

    def restored(of):
        module.load_state_dict(state)  # its running statistics
        return results(of, module, args, kwargs, backward)

    with torch.set_grad_enabled(backward):
        expected = restored(module)
        for _ in range(3):  # TorchScript fuses after the first call
            found = restored(function)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


class OfOneTensor(torch.nn.Module):
    """A recurrent module has several forward methods; jit.load needs one."""
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor):
        return self.module(x)


def save(make, sample, file):
    """The scripted module, and what eager code makes of the inputs, for torchscript.cpp. Whether it can take them."""
    module = make().to("cuda")
    args = moved(sample.args, "cuda")
    if isinstance(module, torch.nn.RNNBase) and len(args) == 1:
        module = OfOneTensor(module)
    scripted = torch.jit.script(module)
    if sample.kwargs or isinstance(module, torch.nn.CTCLoss):  # which takes tuples in Python alone
        return False
    state = {name: x.clone() for name, x in module.state_dict().items()}
    expected = results(module, module, args, {}, True)
    module.load_state_dict(state)
    case = io.BytesIO()
    torch.save([list(moved(sample.args, "cpu")), expected], case)
    scripted.save(str(file), _extra_files={"case": case.getvalue()})
    return True


def samples(info, count):
    for training in (True, False) if info.train_and_eval_differ else (True,):
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        for sample in inputs[:count]:
            def make(given=sample.constructor_input, training=training):
                torch.manual_seed(1)
                return info.module_cls(*given.args, **given.kwargs).train(training)
            yield make, sample.forward_input


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    counts, wrong, saved = {way: collections.Counter() for way in WAYS}, [], 0
    modules = sampled(module_db, 3)
    for info in modules:
        for number, (make, sample) in enumerate(samples(info, options.samples)):
            for way in WAYS:
                try:
                    compare(make, sample, "cuda", way)
                    counts[way]["equal"] += 1
                except Exception as error:
                    try:
                        compare(make, sample, "cpu", way)
                        wrong.append(f"{info.name} {number} {way}: " + str(error).replace("\n", " ")[:300])
                        counts[way]["wrong"] += 1
                    except Exception:
                        counts[way]["not comparable"] += 1
            if options.save:
                with contextlib.suppress(Exception):  # it cannot be scripted
                    saved += save(make, sample, options.save / f"{info.name}.{number}.pt")
    print(*wrong, sep="\n")
    for way, count in counts.items():
        print(f"{way}: " + ", ".join(f"{value} {name}" for name, value in count.most_common()))
    print(f"{len(modules)} modules; {saved} saved")
    leave(1 if wrong or min(count["equal"] for count in counts.values()) < len(modules) / 2 else 0)


if __name__ == "__main__":
    main()
