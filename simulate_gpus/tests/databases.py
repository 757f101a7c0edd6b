# SPDX-License-Identifier: MIT
"""LibTorch's own databases of modules and optimizers: a simulated GPU gives the CPU's values and gradients.

Every sample input of each module, in training and in evaluation; every configuration of each optimizer that LibTorch
has on GPUs, also fused, for-each and capturable. A third of them; all, if TEST_SEED is set (sampling.py).
Operations: operations.py.
Usage: simulate_gpus 1 python databases.py
"""
import collections
import sys

try:
    import torch
    from torch.nn.modules.lazy import LazyModuleMixin
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db
except ImportError as error:
    print(f"SKIPPED: {error}; scripts/setup --dev installs it")
    sys.exit(77)

from sampling import leave, moved, sampled
from torchscript import results, samples

BOUND = {"rtol": 1e-3, "atol": 1e-4}


def differs(run, bound):
    """What is wrong; None where the CPU itself refuses."""
    try:
        expected = run("cpu")
    except Exception:
        return None
    try:
        torch.testing.assert_close(run("cuda"), expected, equal_nan=True, **bound)
    except Exception as error:
        return str(error).replace("\n", " ")[:300]
    return ""


def modules():
    for info in sampled(module_db, 3):
        for number, (make, sample) in enumerate(samples(info, None)):
            def run(device, make=make, sample=sample):
                module = make()
                if isinstance(module, LazyModuleMixin):  # which else draws its parameters on the device
                    module(*sample.args, **sample.kwargs)
                module.to(device)
                for part in module.modules():
                    if isinstance(part, (torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU)):
                        part.eval()  # random numbers differ from the CPU's
                    for name in ("dropout", "dropout_p"):
                        if isinstance(getattr(part, name, None), float):
                            setattr(part, name, 0.0)
                return results(module, module, moved(sample.args, device), moved(sample.kwargs, device), True)

            if "FractionalMaxPool" in info.name:  # chooses its regions at random
                continue
            yield f"{info.name} {number}", differs(run, BOUND)


def train(optimizer_class, kwargs, impl, device):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    x, y = torch.rand(8, 4), torch.rand(8, 2)
    net, x, y = net.to(device), x.to(device), y.to(device)
    parameters = list(net.parameters())
    if optimizer_class.__name__ == "Muon":  # takes matrices alone
        parameters = [parameter for parameter in parameters if parameter.dim() == 2]
    kwargs = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in kwargs.items()}
    if device == "cpu":
        kwargs.pop("capturable", None)
    else:
        kwargs.update(impl)
    optimizer = optimizer_class(parameters, **kwargs)

    def closure():
        optimizer.zero_grad()
        loss = (net(x) - y).square().sum()
        if optimizer_class.__name__ == "SparseAdam":
            loss.backward()
            for parameter in parameters:
                parameter.grad = parameter.grad.to_sparse()
        else:
            loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)
    return [parameter.detach().cpu() for parameter in net.parameters()]


def optimizers():
    for info in sampled(optim_db, 3):
        impls = [{}] + [{impl: True} for impl in ("foreach", "fused") if impl in info.supported_impls]
        if "fused" in info.supported_impls and "cuda" not in info.supports_fused_on:
            impls.remove({"fused": True})
        for number, given in enumerate(info.optim_inputs_func(device="cuda")):
            for impl in impls:
                if any(name in given.kwargs for name in impl) or ("fused" in impl and given.kwargs.get("differentiable")):
                    continue
                yield (f"{info.name} {number} {given.desc} {impl}",
                       differs(lambda device: train(info.optim_cls, dict(given.kwargs), impl, device), BOUND))


def main():
    failed = False
    for database in (modules, optimizers):
        counts = collections.Counter()
        for name, wrong in database():
            if wrong:
                print(f"{name}: {wrong}")
            counts["not comparable" if wrong is None else "wrong" if wrong else "equal"] += 1
        print(f"{database.__name__}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()), flush=True)
        failed |= counts["wrong"] > 0 or counts["equal"] < 50
    leave(1 if failed else 0)


main()
