# SPDX-License-Identifier: MIT
"""Runs one of the chapter's programs as a test: its exit status must be 0, or --status, and its output that of a file.

There <...> stands for anything on one line, <any lines> for anything.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
from pathlib import Path


def matches(expected, printed):
    pattern = re.escape(expected).replace(r"<\.\.\.>", ".*").replace(r"<any\ lines>", "(?s:.+)")
    return re.fullmatch(pattern, printed) is not None


def difference(output, file):
    """How the output differs from what the file expects, all lines of both; empty if it does not differ."""
    expected, printed = file.read_text().splitlines(True), output.splitlines(True)
    if matches("".join(expected), output):
        return ""
    # Lines are aligned by what they match; <any lines> stands for those that its neighbours leave.
    alike = [line if line in expected else
             next((e for e in expected if e != "<any lines>\n" and matches(e, line)), line) for line in printed]
    text = f"- expected ({file})\n+ printed\n\n"
    for tag, i, j, m, n in difflib.SequenceMatcher(None, expected, alike, autojunk=False).get_opcodes():
        if tag == "equal" or (expected[i:j] == ["<any lines>\n"] and m < n):
            text += "".join(f"  {line}" for line in printed[m:n])
        else:
            text += "".join(f"- {line}" for line in expected[i:j]) + "".join(f"+ {line}" for line in printed[m:n])
    return text


def run(command, **environment):
    """Its exit status, and what it printed to both stdout and stderr."""
    ran = subprocess.run(command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    return ran.returncode, ran.stdout.decode(errors="backslashreplace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expected", type=Path, metavar="FILE")
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--preload", metavar="LIBRARY", help="after what this program was preloaded with")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT...]")
    options = parser.parse_args()

    preload = {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')}:{options.preload}"} if options.preload else {}
    status, output = run(options.command, **preload)
    if status != options.status:
        sys.exit(f"exit status {status}; it printed:\n{output}")
    if options.expected and (wrong := difference(output, options.expected)):
        sys.exit(wrong)
    print(output, end="")


if __name__ == "__main__":
    main()
