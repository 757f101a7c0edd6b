#!/usr/bin/env python3
"""Records what a GPU (real or simulated) computes and refuses, for all operations of LibTorch's database by all dtypes.

Usage: record.py OUT.json.gz [--shard I/N] [--only REGEX] [--dtypes A,B] [--jobs N] [--device cuda|cpu] [--limit SECONDS]
                 [--timeout SECONDS] [--samples N] [--resume]
OUT is gzip of JSON lines (several members, appended every 5 s, so an interrupted run loses little); --resume adds what lacks.
"""
import argparse, gzip, json, lzma, os, re, select, shutil, signal, subprocess, sys, tempfile, threading, time, zlib

DTYPES = ("float32 float16 bfloat16 float64 complex64 complex128 complex32 int64 int32 int16 int8 uint8 bool "
          "uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu").split()
LAYOUTS = "coo csr csc bsr bsc".split()
BIG = 100_000        # elements of a tensor of a sample; larger samples are left out
GENERATED = 200      # samples looked at
HEAVY = re.compile(r"linalg|svd|qr|lu|eig|pinv|lstsq|conv|fft|attention|special|ctc|cdist|cholesky|embedding|pool|^_foreach|@")

SUSPICIOUS = re.compile(r"CUDA|CUB|cuda error|Accelerator|cublas|CUBLAS|cudnn|cuDNN|CUDNN|cusolver|CUSOLVER|cusparse|CUSPARSE|cufft|cuFFT|CUFFT|launch|memory")  # the device may be dead


def crc(text):
    return zlib.crc32(text if isinstance(text, bytes) else text.encode())


def operations(core):
    """Keys, in the database's order: NAME, NAME@LAYOUT."""
    found = {}
    for op in core.op_db:
        found.setdefault(op.full_name, (op, None))
    for name in sorted(vars(core)):
        if name.startswith("foreach_") and name.endswith("_op_db"):
            for op in getattr(core, name):
                found.setdefault(op.full_name, (op, None))
    for op in core.op_db:
        for layout in LAYOUTS:
            if getattr(op, "supports_sparse" if layout == "coo" else f"supports_sparse_{layout}"):
                found.setdefault(f"{op.full_name}@{layout}", (op, layout))
    return found


# ------------------------------------------------------------------------------------------------------------- worker
def worker(device, samples):
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    import glob, random, warnings
    sys.path += glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "wheels", "*.whl"))  # expecttest
    warnings.filterwarnings("ignore")
    import numpy as np
    for name, other in (("in1d", "isin"), ("trapz", "trapezoid"), ("row_stack", "vstack")):  # of newer numpy, if missed
        if not hasattr(np, name) and hasattr(np, other):
            setattr(np, name, getattr(np, other))
    import torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    import torch.testing._internal.common_methods_invocations as core
    from unittest import SkipTest
    warnings.filterwarnings("ignore")
    cuda = device == "cuda"
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(1)
    for module in list(sys.modules.values()):  # it hides from a caller that an operation draws random numbers
        if getattr(module, "__name__", "").startswith("torch.testing") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    found = operations(core)
    if cuda:
        torch.zeros(1, device="cuda").add_(1).item()
    strided = torch.strided
    low = {torch.float16, torch.bfloat16, torch.float32, torch.complex32, torch.complex64}
    weights = (np.arange(1 << 20, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(1021) + np.uint64(1)) / 1021.0

    def is_float(dtype):
        return dtype.is_floating_point or dtype.is_complex

    def wide(dtype):
        return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype

    def name_of(dtype):
        return str(dtype)[6:]

    def clean(text, length=300):
        return re.sub(r"0x[0-9a-fA-F]{5,}", "0x...", text)[:length]

    def failure(e):
        lines = [x for x in str(e).split("\n") if x.strip()]
        return {"e": [type(e).__name__, clean(lines[0] if lines else "")]}

    def seed_all(seed):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)

    # -- inputs
    def is_plain(t):
        return t.layout == strided and not t.is_nested

    def copied(t, to_device, to_dtype):
        """The tensor on the device in the dtype, of equal strides, offset and requires_grad."""
        x = t.detach()
        conj, neg = x.is_conj(), x.is_neg()
        if is_plain(t):
            if conj:
                x = x.conj()
            if neg:
                x = torch._neg_view(x)
            elements = x.untyped_storage().nbytes() // x.element_size() if x.untyped_storage() else 0
            whole = elements == x.numel() and x.is_contiguous() and x.storage_offset() == 0
            flat = x if whole else x.as_strided((elements,), (1,), 0)
            y = converted(flat, to_dtype).to(to_device)
            if y.data_ptr() == flat.data_ptr():
                y = y.clone()
            if not whole:
                y = y.as_strided(x.shape, x.stride(), x.storage_offset())
            if neg:
                y = torch._neg_view(y)
            if conj and y.is_complex():
                y = y.conj()
        else:
            y = converted(x, to_dtype).to(to_device)
            if y is x or not cuda:
                y = y.clone()
        return y.requires_grad_() if t.requires_grad and is_float(y.dtype) else y

    def converted(x, dtype):
        if x.dtype == dtype:
            return x
        if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64) and x.layout == strided and x.dtype != torch.bool:
            x = x.abs()
        if dtype == torch.complex32:
            x = x.to(torch.complex64)
        return x.to(dtype)

    def mapped(value, f, memo):
        if isinstance(value, torch.Tensor):
            if id(value) not in memo:
                memo[id(value)] = f(value)
            return memo[id(value)]
        if isinstance(value, torch.dtype):
            return f(value)
        if isinstance(value, torch.Size):
            return value
        if type(value) in (list, tuple):
            return type(value)(mapped(x, f, memo) for x in value)
        if isinstance(value, dict):
            return {k: mapped(x, f, memo) for k, x in value.items()}
        if isinstance(value, slice):
            return value
        return value

    def on_device(sample):
        memo = {}
        f = lambda x: x if isinstance(x, torch.dtype) else copied(x, device, x.dtype)
        args = mapped((sample.input, *sample.args), f, memo)
        kwargs = mapped(sample.kwargs, f, memo)
        if cuda:
            for k, v in kwargs.items():
                if k == "device" and v is not None and torch.device(v).type == "cpu":
                    kwargs[k] = "cuda" if isinstance(v, str) else torch.device("cuda")
                elif isinstance(v, torch.Generator):
                    kwargs[k] = torch.Generator("cuda").manual_seed(1)
        return args, kwargs

    def in_wide(sample):
        memo = {}
        f = lambda x: wide(x) if isinstance(x, torch.dtype) else copied(x, "cpu", wide(x.dtype))
        args, kwargs = mapped((sample.input, *sample.args), f, memo), mapped(sample.kwargs, f, memo)
        return args, kwargs | ({"device": "cpu"} if kwargs.get("device") is not None else {})

    def cast(sample, base, dtype):
        memo = {}
        f = lambda x: (dtype if x == base else x) if isinstance(x, torch.dtype) else (
            copied(x, "cpu", dtype) if x.dtype == base else x)
        with torch.no_grad():
            sample.input = mapped(sample.input, f, memo)
            sample.args = mapped(sample.args, f, memo)
            sample.kwargs = mapped(sample.kwargs, f, memo)
        return sample

    def tensors(value, into=None):
        into = [] if into is None else into
        if isinstance(value, torch.Tensor):
            into.append(value)
        elif isinstance(value, (list, tuple)):
            for x in value:
                tensors(x, into)
        elif isinstance(value, dict):
            for x in value.values():
                tensors(x, into)
        return into

    def unique(found_tensors):
        return list({id(x): x for x in found_tensors}.values())

    def parts(t):
        """Of a sparse tensor."""
        if t.layout == torch.sparse_coo:
            return {"indices": t._indices(), "values": t._values()}
        if t.layout in (torch.sparse_csr, torch.sparse_bsr):
            return {"crow": t.crow_indices(), "col": t.col_indices(), "values": t.values()}
        return {"ccol": t.ccol_indices(), "row": t.row_indices(), "values": t.values()}

    def content(t):
        t = t.detach()
        if t.is_nested:
            return b"".join(content(x) for x in t.unbind())
        if t.layout != strided:
            return b"".join(content(x) for x in parts(t).values())
        t = t.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return t.view(torch.uint8).numpy(force=True).tobytes() if t.numel() else b""

    def described(value):
        if isinstance(value, torch.Tensor):
            extra = "" if value.layout == strided else str(value.layout)[6:]
            if value.is_nested:
                return "nested"
            if extra == "" and not value.is_contiguous():
                extra = f"/{list(value.stride())}".replace(" ", "")
            return f"{short(value.dtype)}{list(value.shape)}{extra}{'g' if value.requires_grad else ''}".replace(" ", "")
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return "(" + " ".join(described(x) for x in value) + ")"
        if isinstance(value, dict):
            return " ".join(f"{k}={described(x)}" for k, x in value.items())
        return re.sub(r" at 0x\w+| object", "", str(value))

    def short(dtype):
        return name_of(dtype).replace("bfloat", "bf").replace("float", "f").replace("complex", "c").replace("uint", "u").replace("int", "i")

    def sparse_samples(op, layout, dtype, requires_grad):
        """Of operations for which the database has no sparse samples: the dense ones, with two thirds of the input zero."""
        for sample in op.sample_inputs("cpu", dtype, requires_grad=False, set_seed=False):
            x = sample.input
            if not isinstance(x, torch.Tensor) or x.dim() != 2:
                continue
            with torch.no_grad():
                kept = (torch.arange(x.numel()).reshape(x.shape) % 7) % 3 == 0
                x = torch.where(kept, x, torch.zeros((), dtype=x.dtype)) if x.dtype != torch.bool else x & kept
                if layout in ("bsr", "bsc"):
                    if x.shape[0] % 2 or x.shape[1] % 2:
                        continue
                    sample.input = x.to_sparse(layout=getattr(torch, f"sparse_{layout}"), blocksize=(2, 2))
                else:
                    sample.input = x.to_sparse(layout=getattr(torch, f"sparse_{layout}"))
            sample.input.requires_grad_(requires_grad)
            yield sample

    def sampler(op, layout, dtype, requires_grad):
        if layout and getattr(op, f"sample_inputs_sparse_{layout}_func").__name__ == "_sample_inputs_unspecified":
            return sparse_samples(op, layout, dtype, requires_grad)
        if layout:
            return op.sample_inputs_sparse(getattr(torch, f"sparse_{layout}"), "cpu", dtype, requires_grad=requires_grad)
        return op.sample_inputs("cpu", dtype, requires_grad=requires_grad, set_seed=False)

    def generated(key, op, layout, dtype, requires_grad):
        seed, all_samples, big = crc(f"{key}|{name_of(dtype)}"), [], 0
        seed_all(seed)
        iterator = iter(sampler(op, layout, dtype, requires_grad))
        while len(all_samples) < (6 if key == "mul@coo" else 50 if layout else GENERATED):  # of mul@coo, others take seconds to make
            seed_all((seed + len(all_samples) + big) % 2**32)
            try:
                sample = next(iterator)
            except StopIteration:
                break
            if any(t.numel() > BIG for t in tensors((sample.input, sample.args, sample.kwargs))):
                big += 1
                if big > 50:
                    break
                continue
            all_samples.append(sample)
        return all_samples, big

    def chosen(key, op, layout, dtype):
        """At most `samples` samples; how they were made; the number of all, and of those left out as they are too big."""
        wanted = bool(op.supports_autograd and is_float(dtype))
        how, all_samples, big = "", [], 0
        try:
            all_samples, big = generated(key, op, layout, dtype, wanted)
        except (Exception, SkipTest) as e:
            how = f"{type(e).__name__}: {clean(str(e), 80)}"
        if not all_samples and (how or not big):
            for base in (torch.float32, torch.int64, torch.float64, torch.complex64, torch.bool, torch.float16):
                if base == dtype or base not in op.dtypes | op.dtypesIfCUDA:
                    continue
                try:
                    all_samples, big = generated(key, op, layout, base, wanted and is_float(base))
                    all_samples = [cast(s, base, dtype) for s in all_samples]
                    how = f"cast from {name_of(base)}"
                    break
                except (Exception, SkipTest) as e:
                    all_samples = []
        n = len(all_samples)
        # the first two, and others, for each dtype other ones; of more samples, fewer are a part
        rest = sorted(range(2, n), key=lambda i: crc(f"{key}+{name_of(dtype)}+{i}"))
        index = [*range(min(n, 2)), *rest][:samples]
        result = [(i, all_samples[i]) for i in index]
        if not layout and not how and dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            inf, nan = float("inf"), float("nan")
            special = [0.0, -0.0, 1, -1, 0.5, -2, 3, inf, -inf, nan, torch.finfo(dtype).max, torch.finfo(dtype).tiny, 1e-3, 88, -100, 1000]
            t = torch.tensor(special, dtype=torch.float64).to(dtype)
            first = all_samples[0] if n else None
            if isinstance(op, core.UnaryUfuncInfo) and n and isinstance(first.input, torch.Tensor):
                result.append(("special", core.SampleInput(t, args=first.args, kwargs=first.kwargs)))
            elif isinstance(op, core.BinaryUfuncInfo) and n:
                result.append(("special", core.SampleInput(t[:, None].contiguous(), t.clone())))
        return result, how, n, big

    # -- outputs
    def number(x):
        return float(f"{x:.10g}")

    def values_of(t):
        """float64 values of a plain tensor on the CPU, complex as pairs."""
        t = t.detach().resolve_conj().resolve_neg()
        if t.dtype == torch.complex32:
            t = t.to(torch.complex64)
        if t.is_complex():
            t = torch.view_as_real(t.to(torch.complex128).contiguous())
        return t.to(torch.float64).contiguous().reshape(-1).numpy(force=True)

    def numbers_of(v, reference):
        finite = np.isfinite(v)
        nan = int(np.isnan(v).sum())
        inf = int(v.size - finite.sum()) - nan
        f = v if nan + inf == 0 else np.where(finite, v, 0.0)
        w = weights[:v.size] if v.size <= weights.size else np.resize(weights, v.size)
        result = [nan, inf, number(f.sum()), number(np.abs(f).sum()), number((f * w).sum())]
        error = None
        if reference is not None and reference.size == v.size and v.size:
            both = finite & np.isfinite(reference)
            if both.any():
                scale = np.abs(reference[both]).max()
                error = np.abs(v[both] - reference[both]).max()
                error = float(f"{error / scale if scale > 0 else error:.3g}")
        return result + [error]

    def stats_of(t, on_cpu, reference):
        """[shape, strides, dtype, device if not the expected, nan, inf, sum, sum of magnitudes, weighted sum, error, first values]"""
        dtype = name_of(t.dtype) + ("*" if t.is_conj() else "") + ("-" if t.is_neg() else "")
        where = "" if t.device.type == device else t.device.type
        if t.is_nested:
            return [list(t.size(i) if i == 0 else -1 for i in range(t.dim())), "nested", dtype, where]
        if t.layout != strided:
            if t.layout == torch.sparse_coo and not on_cpu.is_coalesced():
                on_cpu_parts = parts(on_cpu.to(torch.float64 if not t.is_complex() else torch.complex128).coalesce())
            else:
                on_cpu_parts = parts(on_cpu)
            return [list(t.shape), [str(t.layout)[6:], t._nnz(), t.is_coalesced() if t.layout == torch.sparse_coo else None],
                    dtype, where, {k: [list(x.shape), name_of(parts(t)[k].dtype), *numbers_of(values_of(x), None)]
                                   for k, x in on_cpu_parts.items()}]
        try:
            v = values_of(on_cpu)
        except Exception as e:
            return [list(t.shape), list(t.stride()), dtype, where, clean(str(e), 80)]
        r = None
        if reference is not None and is_plain(reference) and t.dtype in low and reference.shape == t.shape \
                and reference.is_complex() == t.is_complex():
            r = values_of(reference)
        first = [float(f"{x:.6g}") if np.isfinite(x) else str(x) for x in v[:4]]
        return [list(t.shape), list(t.stride()), dtype, where, *numbers_of(v, r), first]

    def all_stats(outputs, on_cpu, references):
        if references is None or len(references) != len(outputs):
            references = [None] * len(outputs)
        s = [None if t is None else stats_of(t, c, r) for t, c, r in zip(outputs, on_cpu, references)]
        if len(s) <= 6:
            return s
        plain = [x for x in s if x and len(x) == 11]
        errors = [x[9] for x in plain if x[9] is not None]
        return [*s[:2], s[-1], ["all", len(s), crc(json.dumps([x and x[:4] for x in s])), "",
                                *(number(sum(x[i] for x in plain)) for i in range(4, 9)), max(errors, default=None), []]]

    def fetched(value):
        """The tensors, on the CPU: after a synchronization."""
        return [None if t is None else t.detach().to("cpu", non_blocking=True) if cuda and is_plain(t) else t.detach().cpu()
                for t in value]

    patterns = {}

    def grad_output(t, to_device):
        if t.layout != strided or t.is_nested:
            return torch.ones_like(t.detach())
        n = t.numel()
        if n not in patterns:
            if len(patterns) > 500:
                patterns.clear()
            patterns[n] = (torch.arange(n, dtype=torch.float64) % 7 - 2) / 4
        w = patterns[n]
        if t.is_complex():
            w = torch.complex(w, w / 2)
            if t.dtype == torch.complex32:
                w = w.to(torch.complex64)
        return w.to(t.dtype).reshape(t.shape).to(to_device)

    def gradients(sample, out, args, kwargs, to_device):
        leaves = [x for x in unique(tensors((args, kwargs))) if x.requires_grad]
        outputs = [x for x in tensors(sample.output_process_fn_grad(out)) if x.requires_grad and is_float(x.dtype)]
        if not leaves or not outputs:
            return None
        return list(torch.autograd.grad(outputs, leaves, [grad_output(x, to_device) for x in outputs], allow_unused=True))

    def rng_state():
        return (torch.cuda.get_rng_state() if cuda else torch.get_rng_state()).numpy().tobytes()

    def references_of(op, sample, with_grad):
        """Results and gradients in float64 on the CPU."""
        try:
            args, kwargs = in_wide(sample)
            out = op(*args, **kwargs)
        except Exception:
            return None, None
        grads = None
        if with_grad:
            try:
                grads = gradients(sample, out, args, kwargs, "cpu")
            except Exception:
                pass
        return tensors(out), grads

    def record(op, sample):
        """What becomes of one sample."""
        rec = {}
        seed_all(7)
        args, kwargs = on_device(sample)
        inputs = unique(tensors((args, kwargs)))
        versions = [x._version for x in inputs]
        before = rng_state()
        with_grad = any(x.requires_grad for x in inputs)
        out = grads = None
        try:
            out = op(*args, **kwargs)
        except Exception as e:
            rec["fwd"] = failure(e)
            if with_grad:
                try:
                    with torch.no_grad():
                        args, kwargs = on_device(sample)
                        out = op(*args, **kwargs)
                    rec["bwd"] = rec.pop("fwd")
                    with_grad = False
                except Exception as e:
                    rec["fwd"] = failure(e)
        random_one = rng_state() != before
        if random_one:
            rec["rnd"] = 1
        outputs = tensors(out)
        if "fwd" not in rec and with_grad:
            try:
                grads = gradients(sample, out, args, kwargs, device)
            except Exception as e:
                rec["bwd"] = failure(e)
        with torch.no_grad():
            if "fwd" in rec or [x._version for x in inputs] != versions:
                args, kwargs = on_device(sample)
            # out=
            outs = None
            simple = isinstance(out, torch.Tensor) or isinstance(out, (tuple, list)) and out and all(isinstance(x, torch.Tensor) for x in out)
            if op.supports_out and "out" not in kwargs and (simple or "fwd" in rec):
                try:
                    if simple:
                        outs = [torch.empty_like(x.detach()).fill_(1) if is_plain(x) else torch.empty_like(x.detach()) for x in outputs]
                    else:  # refused: with an out of the input's dtype
                        outs = [torch.empty(0, dtype=next((x.dtype for x in inputs), torch.float32), device=device)]
                    op(*args, **kwargs, out=outs[0] if isinstance(out, torch.Tensor) or not simple else tuple(outs))
                    if not simple:
                        rec["out"], outs = {"o": "computed"}, None
                except Exception as e:
                    rec["out"], outs = failure(e), None
            # in place
            changed = None
            if op.inplace_variant and op.inplace_variant is not op.op:
                try:
                    first = mapped(args[0], lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, {})
                    op.inplace_variant(first, *args[1:], **kwargs)
                    changed = tensors(first)
                except Exception as e:
                    rec["inp"] = failure(e)
        groups = [("fwd", outputs if "fwd" not in rec else None), ("bwd", grads), ("out", outs), ("inp", changed)]
        on_cpu = {}
        for k, group in groups:
            if group is not None:
                on_cpu[k] = fetched(group)
        if cuda:
            torch.cuda.synchronize()
        reference = reference_grads = None
        if not random_one and (any(x.dtype in low for x in outputs)):
            reference, reference_grads = references_of(op, sample, grads is not None)
        for k, group in groups:
            if group is None:
                continue
            rec[k] = {"o": all_stats(group, on_cpu[k], reference_grads if k == "bwd" else reference)}
            if k == "fwd" and not outputs:
                rec[k]["r"] = clean(described(out), 100)
            if k in ("out", "inp") and "fwd" in rec and rec[k] == rec["fwd"]:
                rec[k] = "="
        return rec

    def is_dead():
        if not cuda:
            return None
        try:
            torch.cuda.synchronize()
            torch.zeros(2, device="cuda").add_(1).cpu()
            return None
        except Exception as e:
            return f"{type(e).__name__}: {clean(str(e).splitlines()[0])}"

    def of_dtype(key, dtype):
        op, layout = found[key]
        result = {"op": key, "dt": name_of(dtype), "in": (1 if dtype in op.dtypes else 0) + (2 if dtype in op.dtypesIfCUDA else 0)
                  + (4 if op.supports_autograd and dtype in op.backward_dtypesIfCUDA else 0), "s": []}
        if getattr(op, "op", None) is None:
            result["how"] = "no function"
            return result
        some, how, n, big = chosen(key, op, layout, dtype)
        result.update({"n": n} | ({"how": how} if how else {}) | ({"big": big} if big else {}))
        if not some:
            result["how"] = "no sample: " + how
        for i, sample in some:
            text = described((sample.input, *sample.args, sample.kwargs))
            rec = {"i": i, "d": text[:120], "h": crc(text.encode() + b"".join(content(t) for t in tensors((sample.input, sample.args, sample.kwargs))))}
            try:
                rec |= record(op, sample)
            except Exception as e:
                rec["x"] = failure(e)["e"]  # of the recorder, or an error that came late
            result["s"].append(rec)
            if "x" in rec or any(isinstance(rec.get(k), dict) and "e" in rec[k] and SUSPICIOUS.search(str(rec[k]["e"])) for k in ("fwd", "bwd", "out", "inp")):
                dead = is_dead()
                if dead:
                    rec["dead"] = result["dead"] = dead
                    return result
        return result

    def errors_of(key):
        op, layout = found[key]
        result = {"op": key, "dt": "errors", "s": []}
        function = op.error_inputs_sparse_func if layout else op.error_inputs_func
        if function is None:
            return None
        seed_all(crc(key))
        iterator = iter(op.error_inputs_sparse(device, getattr(torch, f"sparse_{layout}")) if layout else op.error_inputs(device, set_seed=False))
        for i in range(100):
            seed_all((crc(key) + i) % 2**32)
            try:
                e = next(iterator)
            except StopIteration:
                break
            except (Exception, SkipTest) as x:
                result["s"].append({"i": i, "gen": [type(x).__name__, clean(" ".join(str(x).split()))]})
                break
            s = e.sample_input
            rec = {"i": i, "d": described((s.input, *s.args, s.kwargs))[:120]}
            try:
                op(s.input, *s.args, **s.kwargs)
                if cuda:
                    torch.cuda.synchronize()
                rec["err"] = None
            except Exception as x:
                rec["err"] = [type(x).__name__, clean(" ".join(str(x).split()))]
            result["s"].append(rec)
            if rec["err"] and SUSPICIOUS.search(str(rec["err"])):
                dead = is_dead()
                if dead:
                    rec["dead"] = result["dead"] = dead
                    break
        return result

    extra = {}
    for key, (op, layout) in found.items():
        more = sorted(name_of(x) for x in (op.dtypes | op.dtypesIfCUDA) if name_of(x) not in DTYPES)
        if more:
            extra[key] = more
    errors = [k for k, (op, layout) in found.items() if (op.error_inputs_sparse_func if layout else op.error_inputs_func) is not None]
    about = {"python": sys.version.split()[0], "torch": torch.__version__, "numpy": np.__version__, "device": device,
             "gpu": torch.cuda.get_device_name() if cuda else "", "capability": torch.cuda.get_device_capability() if cuda else None,
             "cpu": torch.backends.cpu.get_cpu_capability()}
    try:
        import scipy
        about["scipy"] = scipy.__version__
    except ImportError:
        about["scipy"] = None
    answers.write(json.dumps({"ready": list(found), "extra": extra, "errors": errors, "about": about}) + "\n")
    for line in sys.stdin:
        key, dtype = json.loads(line)
        start = time.perf_counter()
        try:
            result = errors_of(key) if dtype == "errors" else of_dtype(key, getattr(torch, dtype))
        except Exception as e:
            import traceback
            result = {"op": key, "dt": dtype, "s": [], "how": "recorder: " + clean(repr(e)), "trace": traceback.format_exc()[-600:]}
            if cuda and is_dead():
                result["dead"] = is_dead()
        if result is None:
            result = {"op": key, "dt": dtype, "s": []}
        result["t"] = round(time.perf_counter() - start, 3)
        answers.write(json.dumps(result, separators=(",", ":")) + "\n")
        if result.get("dead"):
            answers.flush()
            os._exit(0)


# --------------------------------------------------------------------------------------------------------------- main
class Worker:
    def __init__(self, options, log):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2",
                                    "MKL_CBWR": "COMPATIBLE", "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
        self.log = open(log, "w+b")
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", options.device, str(options.samples)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment)
        self.rest = b""

    def line(self, timeout):
        """One line; None after the timeout; an empty one when the worker has ended."""
        end = time.monotonic() + timeout
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                return b""
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def ask(self, key, dtype):
        self.process.stdin.write(json.dumps([key, dtype]).encode() + b"\n")
        self.process.stdin.flush()

    def last_words(self):
        try:
            size = self.log.seek(0, 2)
            self.log.seek(max(0, size - 400))
            return self.log.read().decode(errors="replace")[-300:]
        except (OSError, ValueError):
            return ""

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self.process.stdin.close() if not self.process.stdin.closed else None
        self.log.close()
        return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--timeout", type=float, default=30)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    begin = time.monotonic()
    done = set()
    if options.resume and os.path.exists(options.out):
        kept = []
        for record in read(options.out):
            if "op" in record:
                done.add((record["op"], record["dt"]))
            kept.append(json.dumps(record, separators=(",", ":")))
        with gzip.open(options.out, "wt", compresslevel=6) as f:
            f.write("".join(x + "\n" for x in kept))
    else:
        open(options.out, "wb").close()
    logs = tempfile.mkdtemp(prefix="sweep.")
    lock, stopping = threading.Lock(), threading.Event()
    lines, queues, state = [], [], {"total": 0, "done": 0, "asked": False, "ready": 0, "bytes": 0}
    counts = {}

    def fill(hello):
        """The first worker's hello says what there is."""
        shard, shards = map(int, options.shard.split("/"))
        keys = [k for k in hello["ready"] if (not options.only or re.search(options.only, k)) and crc(k) % shards == shard]
        keys.sort(key=lambda k: (not k.startswith(("mul@coo", "jiterator", "masked.std", "masked.var")), not HEAVY.search(k), crc(k)))
        for k in keys:
            dtypes = options.dtypes.split(",") if options.dtypes else DTYPES + hello["extra"].get(k, []) + (["errors"] if k in hello["errors"] else [])
            todo = [(k, d) for d in dtypes if (k, d) not in done]
            if todo:
                queues.append(todo)
                state["total"] += len(todo)
        lines.append(json.dumps({"about": hello["about"] | {"argv": sys.argv[1:]}}))
        state["asked"] = True

    def next_task(mine):
        with lock:
            if mine:
                return mine.pop(0), mine
            fresh = queues.pop(0) if queues else []
            running.append(fresh)
            return (fresh.pop(0), fresh) if fresh else (None, fresh)

    running = []

    def steal():
        with lock:
            best = max(running, key=len, default=[])
            return best.pop() if best else None

    def tell(record):
        with lock:
            lines.append(json.dumps(record, separators=(",", ":")))
            state["done"] += 1
            for k in ("timeout", "crash", "dead"):
                if k in record:
                    counts[k] = counts.get(k, 0) + 1

    def slot(number):
        mine, one, failures, log = [], None, 0, f"{logs}/worker{number}.log"
        while not stopping.is_set():
            one = Worker(options, log)
            workers[number] = one
            line = one.line(240)
            if not line:
                failures += 1
                print(f"worker {number} did not start: {one.last_words()}", file=sys.stderr)
                one.stop()
                if failures > 2:
                    return
                continue
            with lock:
                if not state["asked"]:
                    fill(json.loads(line))
                state["ready"] += 1
            while not stopping.is_set():
                task, mine = next_task(mine)
                task = task or steal()
                if task is None:
                    one.stop()
                    return
                start = time.monotonic()
                try:
                    one.ask(*task)
                    line = one.line(options.timeout)
                except (OSError, ValueError):
                    line = b""
                if stopping.is_set():
                    break
                if line:
                    record = json.loads(line)
                    tell(record)
                    if not record.get("dead"):
                        continue
                    one.stop()
                    break
                record = {"op": task[0], "dt": task[1], "s": [], "t": round(time.monotonic() - start, 1)}
                words = one.last_words()
                status = one.stop()
                tell(record | ({"timeout": options.timeout} if line is None else {"crash": f"status {status}: {words}"}))
                break
        if one:
            one.stop()

    def write():
        with lock:
            some, lines[:] = list(lines), []
        if some:
            with open(options.out, "ab") as f:
                f.write(gzip.compress("".join(x + "\n" for x in some).encode(), 6))
                state["bytes"] = f.tell()

    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    workers = {}
    threads = [threading.Thread(target=slot, args=(i,), daemon=True) for i in range(options.jobs)]
    for t in threads:
        t.start()
    last = 0.0
    while any(t.is_alive() for t in threads) and not stopping.is_set():
        stopping.wait(0.25)
        now = time.monotonic() - begin
        if now > options.limit:
            stopping.set()
        if now - last >= 5:
            last = now
            write()
            print(f"[{now:.0f} s] {state['done']}/{state['total']} pairs, {state['ready']} workers started, {state['bytes'] >> 10} KiB {counts or ''}",
                  file=sys.stderr, flush=True)
    if stopping.is_set():
        lines.append(json.dumps({"incomplete": [state["done"], state["total"]]}))
    write()
    for one in list(workers.values()):
        if one.process.poll() is None:
            one.process.kill()
    print(f"[{time.monotonic() - begin:.0f} s] {state['done']}/{state['total']} pairs {counts or ''} {'INCOMPLETE' if state['done'] < state['total'] else ''}",
          file=sys.stderr, flush=True)
    sys.stderr.flush()
    shutil.rmtree(logs, ignore_errors=True)
    os._exit(0 if state["total"] and not stopping.is_set() else 1)


def read(path):
    with (lzma if path.endswith(".xz") else gzip).open(path) as f:
        while True:
            try:
                line = f.readline()
            except (EOFError, OSError, zlib.error):  # interrupted
                return
            if not line:
                return
            try:
                yield json.loads(line)
            except ValueError:
                return


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], int(sys.argv[3]))
    else:
        main()
