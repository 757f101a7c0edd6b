#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A library exports from use_gpu:: only what the public headers declare, and from other code only
templates and inline functions of the C++ library, of LibTorch and of spdlog, whose headers export them.

Usage: exported_names.py INCLUDE_FOLDER LIBRARY..."""
import re
import subprocess
import sys
from pathlib import Path

SHARED = re.compile(r"^(std|__gnu_cxx|c10|at|torch|caffe2|c10d|spdlog)::")


def declared_words(folder):
    text = "".join(header.read_text() for header in sorted(Path(folder).rglob("*.hpp")))
    return set(re.findall(r"operator\W+(?=\()|\w+", re.sub(r"//.*", "", text)))


def without_brackets(name):
    """`a<b(c)>::d(e)` becomes `a::d`."""
    plain, depth = "", 0
    for token in re.findall(r"operator(?:<<|>>|<|>|->|\(\))|.", name):
        depth -= token in ")>"
        if depth == 0 and token not in ")>(<":
            plain += token
        depth += token in "(<"
    return plain


def outer_scope(mangled):
    """Of a name that the demangler does not know, as those with C++20's constraints."""
    found = re.match(r"_ZN?K?(?:(\d+)|S)", mangled)
    if not found or not found[1]:
        return "std::" if found else mangled
    return mangled[found.end():found.end() + int(found[1])] + "::"


def exported_names(library):
    lines = subprocess.run(["nm", "--dynamic", "--demangle", "--defined-only", library],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        name = line.split(maxsplit=2)[2]
        if re.match(r"typeinfo (name )?for void \((\*\)\()?torch::", name):  # of a function of LibTorch's
            continue
        if name.startswith("_Z"):
            yield name, outer_scope(name), name
            continue
        name = re.sub(r"^(guard variable|typeinfo name|typeinfo|vtable|VTT|non-virtual thunk) (for|to) ", "", name)
        name = re.sub(r"^[\w: ]+\(\*(?: const)?&?(?=\w+::)", "", name)  # a function that returns a pointer to one
        plain = re.sub(r"\[abi:\w+\]|( const| &+)+$| const(?=::)", "", without_brackets(name))
        scope = plain.split("operator")[0].split()  # a template's name follows what it returns
        yield plain, scope[-1] if scope else plain, name


wrong = 0
folder, *libraries = sys.argv[1:]
words = declared_words(folder)
for library in libraries:
    names = set(exported_names(library))
    ours = {plain for plain, scope, _ in names if scope.startswith("use_gpu::")}
    undeclared = [plain for plain in ours if not all(part.strip("~ ") in words for part in plain.split("::"))]
    foreign = [name for _, scope, name in names if not scope.startswith("use_gpu::") and not SHARED.match(scope)]
    for name in sorted(undeclared + foreign):
        print(f"{Path(library).name} exports {name}, which no public header declares")
    print(f"{Path(library).name}: {len(ours)} names of use_gpu::")
    wrong += len(undeclared) + len(foreign) + (not ours)
sys.exit(wrong > 0)
