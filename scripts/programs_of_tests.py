# SPDX-License-Identifier: MIT
"""The targets of a build folder that the commands of some tests name: scripts/test builds these.

Usage: programs_of_tests.py BUILD_FOLDER PATTERN        PATTERN: a regular expression, for the tests' names
"""
import re
import subprocess
import sys
from pathlib import Path

build = Path(sys.argv[1]).resolve()
listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, capture_output=True, text=True).stdout
targets = {line.rsplit(": ", 1)[0] for line in listed.splitlines()}
found = set()
for file in build.glob("**/CTestTestfile.cmake"):  # ctest itself does not tell the commands of what is not built yet
    for name, command in re.findall(r"^add_test\(\[=\[(.*?)\]=\] (.*?)\)\nset_tests", file.read_text(), re.M | re.S):
        if re.search(sys.argv[2], name):
            found |= set(re.findall(rf"{re.escape(str(build))}/([^\s\";]+)", command))
print(*sorted(found & targets))
