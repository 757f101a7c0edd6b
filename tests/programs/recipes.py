# SPDX-License-Identifier: MIT
"""Makes one program of the short recipes in a page: the body of a function each, includes first.

Usage: recipes.py docs/cookbook.md recipes.cpp
"""
import re
import sys
from pathlib import Path

page, program = map(Path, sys.argv[1:])
_, recipes = page.read_text().split("\n## Short recipes\n")
found = re.findall(r"^### (.*?)$.*?^```cpp\n(.*?)^```$", recipes, re.DOTALL | re.MULTILINE)
assert len(found) == recipes.count("\n### "), "a recipe has no C++"
includes, functions, calls = set(), "", ""
for i, (title, code) in enumerate(found):
    lines = code.splitlines()
    includes.update(line for line in lines if line.startswith("#include"))
    body = [line for line in lines if line and not line.startswith("#include")]
    assert len(body) <= 20, f"{title}: {len(body)} lines; 20 are enough"
    functions += f"void recipe_{i}() {{\n" + "".join(f"  {line}\n" for line in body) + "}\n\n"
    calls += f'  run("{title}", &recipe_{i});\n'
program.write_text("""#include <torch/torch.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
""" + "\n".join(sorted(includes)) + f"""

namespace {{

{functions}void run(const char* title, void (*recipe)()) {{
  try {{
    recipe();
    std::cout << "done: " << title << '\\n';
  }} catch (const c10::Error&) {{
    TORCH_CHECK(use_gpu::num_gpus() == 0);
    std::cout << "needs a GPU: " << title << '\\n';
  }}
}}

}}  // namespace

int main() {{
{calls}}}
""")
