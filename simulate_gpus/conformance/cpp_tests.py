# SPDX-License-Identifier: MIT
"""PyTorch's C++ tests that mention CUDA: builds them, as far as they compile, and runs the programs."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def build(source, folder, torch):
    """Builds the programs, -> their names, as "cpp/api/tensor", and of the sources that do not compile."""
    here = pathlib.Path(__file__).resolve().parent
    configure = ["cmake", "-G", "Ninja", "-S", here / "cpp", "-B", folder, f"-DPYTORCH_SOURCE={source}", f"-DTorch_DIR={torch}/share/cmake/Torch"]
    if subprocess.run(configure, stdout=subprocess.DEVNULL).returncode:
        sys.exit("run: the C++ tests cannot be configured; they need CMake, Ninja, a C++20 compiler and GoogleTest (libgtest-dev)")
    print("building PyTorch's C++ tests, ten minutes on two cores the first time", flush=True)
    with open(folder / "build.log", "w") as log:
        subprocess.run(["ninja", "-k", "0", "-C", folder], stdout=log, stderr=log)
    listed = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    programs = sorted({line.split(":")[0] for line in listed.splitlines() if line.startswith("bin/")})
    built = [x for x in programs if (folder / x).exists()]
    return ["cpp/" + x.removeprefix("bin/") for x in built], ["cpp/" + x.removeprefix("bin/") for x in programs if x not in built]


class CppRunner:
    """Runs a program, as Runner does a file."""

    def __init__(self, file, folder, simulate_gpus):
        self.program = folder / "bin" / file.removeprefix("cpp/")
        self.command = [simulate_gpus, "2", self.program]

    def names(self):
        listed = subprocess.run([*self.command, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
        suite, names = "", []
        for line in listed.splitlines():
            word = line.split("#")[0].rstrip()
            if not line.startswith(" "):
                suite = word
            elif not word.lstrip().startswith("DISABLED_"):
                names.append(suite + word.lstrip())
        return [x for x in names if not x.startswith("DISABLED_")]

    def run(self, pattern, limit_s):
        """-> what became of each test that ended, and the last words of a program that did not"""
        with tempfile.TemporaryDirectory(prefix="conformance.") as scratch:
            path = pathlib.Path(scratch) / "outcomes.json"
            try:
                done = subprocess.run([*self.command, f"--gtest_filter={pattern}", f"--gtest_output=json:{path}"], cwd=scratch, timeout=limit_s,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                      env=os.environ | {"TMPDIR": scratch})
            except subprocess.TimeoutExpired:
                return {}, {"outcome": "hang", "text": f"over {limit_s} s"}
            end = {"outcome": "crash", "text": f"status {done.returncode}\n{done.stdout[-2000:]}"}
            if not path.exists():
                return {}, end
            outcomes = {}
            for suite in json.loads(path.read_text())["testsuites"]:
                for test in suite["testsuite"]:
                    text = "\n".join(x["failure"] for x in test.get("failures", []))
                    outcome = "fail" if text else "skip" if test["result"] == "SKIPPED" else "pass"
                    outcomes[f"{suite['name']}.{test['name']}"] = {"outcome": outcome, "text": text[-2000:]}
            return outcomes, end

    def judge(self, order, is_expected, tell):
        """The outcomes, and how many tests there are. All run in one process; what does not pass, alone."""
        names = self.names()
        outcomes, _ = self.run("*", 600)
        for name in names:
            first = outcomes.get(name)
            if first is None or first["outcome"] not in ("pass", "skip") and not is_expected(name):
                found, end = self.run(name, 600)
                outcomes[name] = found.get(name, end) | {"ran alone": True}
            tell(name, outcomes[name])
        return outcomes, len(names)
