#!/usr/bin/env python3
"""Compares two recordings of record.py: the card's, which is the truth, and a simulated GPU's ("here").

Usage: compare.py CARD[,CARD2...] SIM[,...] [--full] [--only REGEX of OPERATION] [--dtypes A,B] [--groups abcdef] [--lines N]
                  [--exact] [--known FILE]
Recordings are .json.gz, or .json.xz. With --known only differences of groups a to e are printed that no line of that file covers:
"GROUPS KINDS OPERATION...: reason", the operations as shell patterns, or OPERATION/DTYPE for some dtypes alone; the exit status is 1 if there is one.
A line is an operation with one difference: dtypes, the number of samples in brackets, an example. In each group, the most
severe first, 15 lines unless --full. --exact also names float32 results that are less exact by a few roundings.
"""
import argparse, collections, fnmatch, math, re, signal, sys
from record import read

KINDS = {"fwd": "forward", "out": "out=", "inp": "in place", "bwd": "backward", "err": "error inputs", "x": "late error", "pair": "whole pair"}
GROUPS = {
    "a": "VALUES differ, both computed", "A": "values differ where several answers are right (vectors of svd, ties), both computed",
    "b": "METADATA differ, both computed", "B": "metadata differ only in strides that mean nothing (size 1 or no elements)",
    "c": "COMPUTED HERE, refused by the card", "d": "REFUSED HERE, computed by the card", "e": "BOTH REFUSE, other type or text",
    "f": "LESS EXACT HERE (more than twice the card's error, and more than a rounding)"}
UNSPECIFIED = re.compile(r"^(empty|new_empty|resize|_?efficientzero)|^(empty_\w+|new_empty_strided)$|resize_")
AMBIGUOUS = re.compile(r"svd|eig|pca_|lowrank|lobpcg|(^|\.)qr$|geqrf|householder|ormqr|(^|\.|_)(sort|argsort|msort|topk|kthvalue|mode|median|nanmedian)($|\.)|pinv|lstsq|matrix_rank")
UNIT = {"float16": 2.0 ** -11, "bfloat16": 2.0 ** -8, "float32": 2.0 ** -24, "complex32": 2.0 ** -11, "complex64": 2.0 ** -24}
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-9, "complex32": 4e-3, "complex64": 3e-5, "complex128": 1e-9}
NAMES = r"Half|BFloat16|Float|Double|ComplexHalf|ComplexFloat|ComplexDouble|Byte|Char|Short|Int|Long|Bool|UInt16|UInt32|UInt64|half|float|double"


def base(dtype):
    return re.sub(r"[*-]", "", str(dtype))


def general(text):
    text = re.sub(rf"\b(c10::)?({NAMES})\b", "<T>", text)
    text = re.sub(r"(torch\.|\b)(cuda\.)?(b?float\d+(_e\dm\d\w*)?|bfloat16|complex\d+|u?int\d+|bool|\w+Tensor)\b", "<T>", text)
    return re.sub(r"-?\b\d+(\.\d+)?(e[-+]?\d+)?\b", "#", text)


class Differences:
    def __init__(self):
        self.lines = {}

    def add(self, group, kind, op, dtype, severity, what, key=None, example=""):
        line = self.lines.setdefault((group, kind, op, key or what), {"dtypes": collections.Counter(), "severity": 0.0, "what": what, "example": example})
        line["dtypes"][dtype] += 1
        if severity > line["severity"]:
            line.update(severity=severity, what=what, example=example)


def strides_that_mean_something(shape, strides):
    if not isinstance(strides, list) or any(x == 0 for x in shape):
        return None
    return [s for n, s in zip(shape, strides) if n != 1]


def one_value(x, y, dtype, floor=0.0):
    """Compares [nan, inf, sum, magnitudes, weighted, error, ...]; gives how much they differ, and a text."""
    if x[:2] != y[:2]:
        return 1e6, f"nan, inf: card {x[0]}, {x[1]}, here {y[0]}, {y[1]}"
    dtype = base(dtype)
    errors = (x[5], y[5])
    if dtype in UNIT and None not in errors and max(errors) <= 8 * UNIT[dtype]:
        return 0.0, ""
    off = max(abs(x[i] - y[i]) for i in (2, 3, 4))
    scale = max(x[3], y[3])
    if not math.isfinite(off):
        return (0.0, "") if x[2:5] == y[2:5] or str(x[2:5]) == str(y[2:5]) else (1e6, f"sums {x[2:5]} {y[2:5]}")
    if dtype not in TOLERANCE:
        ratio = math.inf if off > 1e-9 * scale else 0.0
    else:
        tiny = {"float16": 1e-6, "complex32": 1e-6, "bfloat16": 1e-30}.get(dtype, 1e-30 if "64" in dtype or dtype == "float32" else 1e-290)
        ratio = off / (TOLERANCE[dtype] * scale + floor * UNIT.get(dtype, 2.0 ** -53) + tiny)
    if ratio <= 1:
        return 0.0, ""
    of_error = f", errors {errors[0]} {errors[1]}" if errors != (None, None) else ""
    return min(ratio, 1e9), f"sums card {x[2]:.7g} |{x[3]:.7g}|, here {y[2]:.7g} |{y[3]:.7g}|{of_error}"


def compare_outputs(found, kind, op, dtype, card, here, example, only_metadata):
    if not isinstance(card["o"], list) or not isinstance(here["o"], list):
        return
    if card.get("r") != here.get("r") and not only_metadata:
        found.add("a", kind, op, dtype, 1e6, f"card {card.get('r')}, here {here.get('r')}", "result", example)
    if len(card["o"]) != len(here["o"]):
        found.add("b", kind, op, dtype, 100, f"card {len(card['o'])} tensors, here {len(here['o'])}", "number of tensors", example)
        return
    real = dtype  # of the tensors; what sums up the rest of a list has that of the one before
    for n, (x, y) in enumerate(zip(card["o"], here["o"])):
        where = f"#{n} " if len(card["o"]) > 1 else ""
        if x is None or y is None:
            if (x is None) != (y is None):
                found.add("b", kind, op, dtype, 90, f"{where}card {'none' if x is None else x[:3]}, here {'none' if y is None else y[:3]}", f"{where}none", example)
            continue
        same_shape = x[0] == y[0]
        for i, what, severity in ((2, "dtype", 80), (0, "shape", 70), (3, "device", 60), (1, "strides", 50)):
            if x[i] == y[i]:
                continue
            minor = what == "strides" and same_shape and isinstance(x[0], list) and isinstance(x[1], list) and isinstance(y[1], list) \
                and strides_that_mean_something(x[0], x[1]) == strides_that_mean_something(x[0], y[1]) and not any(isinstance(s, str) for s in x[1] + y[1])
            at = f" of {x[0]}" if what == "strides" else ""
            found.add("B" if minor else "b", kind, op, dtype, severity, f"{where}{what}{at}: card {x[i]}, here {y[i]}", f"{where}{what}", example)
        if only_metadata or not same_shape or len(x) != len(y) or len(x) < 5:
            continue
        real = x[2] if isinstance(x[2], str) else real
        pairs = []
        if isinstance(x[4], dict):
            pairs = [(f"{where}{k} ", x[4][k][2:], y[4][k][2:], x[4][k][1]) for k in x[4] if k in y[4]]
        elif len(x) == 11:
            pairs = [(where, x[4:], y[4:], real)]
        for name, p, q, t in pairs:
            elements = math.prod(x[0]) if isinstance(x[0], list) else 100
            off, text = one_value(p, q, t, 4 * elements if kind == "bwd" else 0.0)  # gradients cancel
            group = "A" if AMBIGUOUS.search(op) else "a"
            if off:
                if len(p) > 6 and len(q) > 6 and p[6] and p[6] != q[6]:
                    text += f", first {p[6][:3]} {q[6][:3]}".replace("'", "")
                found.add(group, kind, op, dtype, off, name + text, name + "values", example)
            unit = UNIT.get(base(t))
            if unit and p[5] is not None and q[5] is not None and p[:2] == q[:2]:
                few = 1.01 if unit > 1e-6 or EXACT else 16
                if q[5] > 2 * p[5] and q[5] > few * unit:
                    found.add("f", kind, op, dtype, q[5] / unit, f"{name}error {q[5]:.3g}, the card's {p[5]:.3g}, a rounding {unit:.3g}", name + "error", example)


def compare_kind(found, kind, op, dtype, card, here, example, only_metadata=False):
    if card is None or here is None:
        return
    refused = ("e" in card, "e" in here)
    if refused == (False, False):
        compare_outputs(found, kind, op, dtype, card, here, example, only_metadata)
    elif refused == (True, False):
        t = ": ".join(card["e"])
        found.add("c", kind, op, dtype, 1, "card: " + t, general(t), example)
    elif refused == (False, True):
        t = ": ".join(here["e"])
        found.add("d", kind, op, dtype, 1, "here: " + t, general(t), example)
    elif card["e"] != here["e"]:
        t = f"card: {': '.join(card['e'])}\n        here: {': '.join(here['e'])}"
        if card["e"][0] == here["e"][0] and general(card["e"][1]) == general(here["e"][1]) and re.sub(r"\d", "", card["e"][1]) != re.sub(r"\d", "", here["e"][1]):
            pass  # only the dtype's name: kept as a difference of its own
        found.add("e", kind, op, dtype, 2 if card["e"][0] != here["e"][0] else 1, t, general(t), example)


def expanded(record, kind):
    x = record.get(kind)
    return record.get("fwd") if x == "=" else x


def load(path):
    pairs, about, notes = {}, {}, []
    for one in path.split(","):
        for r in read(one):
            if "op" in r:
                known = pairs.get((r["op"], r["dt"]))
                if known is None or len(r["s"]) >= len(known["s"]):
                    pairs[r["op"], r["dt"]] = r
            elif "about" in r:
                about = r["about"]
            else:
                notes.append(r)
    return pairs, about, notes


def known_differences(path):
    """-> [(groups, kinds, patterns)]"""
    with open(path) as lines:
        stripped = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    words = [line.split(": ", 1)[0].split() for line in stripped]
    return [(groups, "fwd out inp bwd err x pair" if kinds == "all" else kinds.split(","), patterns) for groups, kinds, *patterns in words]


def covers(pattern, op, dtypes):
    name, _, dtype = pattern.partition("/")
    return fnmatch.fnmatchcase(op, name) and all(fnmatch.fnmatchcase(found, dtype or "*") for found in dtypes)


def print_unknown(lines, known):
    """-> how many there are, as an exit status"""
    unknown = 0
    for (group, kind, op, _), line in sorted(lines.items()):
        if group in "abcde" and not any(group in groups and kind in kinds and any(covers(pattern, op, line["dtypes"]) for pattern in patterns)
                                        for groups, kinds, patterns in known):
            print(f"{GROUPS[group]}, {KINDS[kind]}: {op} {' '.join(line['dtypes'])}\n    {line['what']}\n    e.g. {line['example'][:110]}")
            unknown += 1
    print(f"{unknown} differences that are not known")
    return int(unknown > 0)


def main():
    global EXACT
    parser = argparse.ArgumentParser()
    parser.add_argument("card")
    parser.add_argument("here")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default="")
    parser.add_argument("--groups", default="aAbBcdef")
    parser.add_argument("--lines", type=int, default=15)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--known", default="")
    options = parser.parse_args()
    EXACT = options.exact
    card, card_about, card_notes = load(options.card)
    here, here_about, here_notes = load(options.here)
    for name, pairs, about, notes in (("card", card, card_about, card_notes), ("here", here, here_about, here_notes)):
        odd = {k: [f"{o} {d}" for (o, d), r in pairs.items() if k in r] for k in ("dead", "timeout", "crash")}
        odd["recorder"] = [f"{o} {d}" for (o, d), r in pairs.items() if r.get("how", "").startswith("recorder")]
        samples = sum(len(r["s"]) for r in pairs.values())
        print(f"{name}: {len(pairs)} pairs of operation and dtype, {samples} samples, {sum(r.get('t', 0) for r in pairs.values()):.0f} s of work;",
              about.get("gpu") or about.get("device"), "torch", about.get("torch"), "numpy", about.get("numpy"), "scipy", about.get("scipy"),
              "python", about.get("python"), "NOT COMPLETE" if notes else "", *(f"\n  {k}: {len(v)}: {', '.join(v[:8])}{' ...' if len(v) > 8 else ''}" for k, v in odd.items() if v))
    found, other_inputs, other_number, both, only_pairs = Differences(), [], [], 0, 0
    database = []
    compared = collections.Counter()
    for (op, dtype), c in card.items():
        h = here.get((op, dtype))
        if h is None or options.only and not re.search(options.only, op) or options.dtypes and dtype not in options.dtypes.split(","):
            continue
        both += 1
        if c.get("in") != h.get("in"):
            database.append(f"{op} {dtype} {c.get('in')} {h.get('in')}")
        for k in ("dead", "timeout", "crash"):
            if (k in c) != (k in h):
                found.add("c" if k in c else "d", "pair", op, dtype, 5, f"{'card' if k in c else 'here'}: {k}: {str(c.get(k, h.get(k))).strip()[-160:]}", k)
        if c.get("n") != h.get("n") or c.get("how") != h.get("how"):
            other_number.append(f"{op} {dtype}")
        hs = {s["i"]: s for s in h["s"]}
        by_inputs = {s["h"]: s for s in h["s"] if "h" in s}
        for s in c["s"]:
            t = hs.get(s["i"])
            if t is None or t.get("h") != s.get("h"):
                t = by_inputs.get(s.get("h"), t)
            if t is None:
                continue
            example = s.get("d", "")
            if dtype == "errors":
                compared["error inputs"] += 1
                if "gen" in s or "gen" in t:
                    if s.get("gen") != t.get("gen"):
                        found.add("e", "err", op, dtype, 0.5, f"making them: card {s.get('gen')}, here {t.get('gen')}")
                    continue
                wrapped = [{"e": x["err"]} if x.get("err") else {"o": []} for x in (s, t)]
                compare_kind(found, "err", op, dtype, *wrapped, example)
                continue
            compared["samples"] += 1
            differs = s.get("h") != t.get("h")
            if differs:
                other_inputs.append(f"{op} {dtype}")
            if ("x" in s) or ("x" in t):
                compare_kind(found, "x", op, dtype, *({"e": z["x"]} if "x" in z else {"e": z["fwd"]["e"]} if "e" in (z.get("fwd") or {}) else {"o": []} for z in (s, t)), example)
            vague = bool(s.get("rnd") or t.get("rnd") or UNSPECIFIED.search(op))
            if s.get("rnd") != t.get("rnd") and all("o" in (z.get("fwd") or {}) and "x" not in z for z in (s, t)):
                found.add("b", "fwd", op, dtype, 40, f"draws random numbers: card {s.get('rnd', 0)}, here {t.get('rnd', 0)}", "random", example)
            for k in ("fwd", "out", "inp", "bwd"):
                x, y = expanded(s, k), expanded(t, k)
                if x and y:
                    compared[KINDS[k]] += 1
                if differs and s.get("d") != t.get("d") and x and y and "o" in x and "o" in y:
                    continue
                compare_kind(found, k, op, dtype, x, y, example, vague or differs)
                if k == "bwd" and (x is None) != (y is None) and "o" in (s.get("fwd") or {}) and "o" in (t.get("fwd") or {}):
                    found.add("b", k, op, dtype, 65, f"gradients: card {'none' if x is None else str(x)[:80]}, here {'none' if y is None else str(y)[:80]}", "gradients", example)
    print(f"in both: {both} pairs; compared:", ", ".join(f"{v} {k}" for k, v in compared.items()))
    for name, some in (("samples with other inputs (values not compared; metadata only if of equal shapes)", other_inputs), ("pairs with another number of samples, or made another way", other_number),
                       ("pairs whose entry in the database differs (1 CPU, 2 CUDA, 4 backward)", database)):
        if some:
            u = list(dict.fromkeys(some))
            print(f"{name}: {len(some)}: {', '.join(u[:10])}{' ...' if len(u) > 10 else ''}")
    differ, refuse = ({(op, dtype) for (group, _, op, _), line in found.lines.items() if group in groups for dtype in line["dtypes"]}
                      for groups in ("abcd", "e"))
    print(f"{len(differ)} pairs differ in values, sizes or strides, or are refused by one of the two alone; {len(refuse)} refuse with another text")
    if options.known:
        sys.exit(print_unknown(found.lines, known_differences(options.known)))
    by = collections.defaultdict(list)
    for (group, kind, op, _), line in found.lines.items():
        by[group, kind].append((op, line))
    print("\nlines/pairs" + " " * 57 + "".join(f"{KINDS[k]:>14}" for k in KINDS))
    for group, title in GROUPS.items():
        cells = []
        for k in KINDS:
            some = by[group, k]
            pairs = {(op, d) for op, line in some for d in line["dtypes"]}
            cells.append(f"{len(some)}/{len(pairs)}" if some else "-")
        if any(x != "-" for x in cells):
            print(f"({group}) {title[:62]:64}" + "".join(f"{x:>14}" for x in cells))
    for group, title in GROUPS.items():
        if group not in options.groups:
            continue
        for k in KINDS:
            some = by[group, k]
            if not some:
                continue
            some.sort(key=lambda x: (-x[1]["severity"], -sum(x[1]["dtypes"].values()), x[0]))
            print(f"\n=== ({group}) {title}: {KINDS[k]}: {len(some)} lines, {len({op for op, _ in some})} operations")
            for op, line in some if options.full else some[:options.lines]:
                dtypes = " ".join(f"{d}" + (f"({n})" if n > 1 else "") for d, n in line["dtypes"].items())
                print(f"  {op}  {'' if k == 'err' else dtypes}\n        {line['what']}" + (f"\n        e.g. {line['example'][:110]}" if line["example"] else ""))
            if not options.full and len(some) > options.lines:
                rest = collections.Counter(op for op, _ in some[options.lines:])
                print(f"  ... {len(some) - options.lines} more: {', '.join(list(rest)[:40])}{' ...' if len(rest) > 40 else ''}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
