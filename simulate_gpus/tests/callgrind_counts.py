"""What a program marks for callgrind (CALLGRIND_DUMP_STATS_AT): how many instructions, by the marks' names."""

import pathlib
import re
import subprocess
import tempfile


def counts(program, *arguments, launcher=()):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*launcher, "valgrind", "-q", "--tool=callgrind", "--instr-atstart=no",
                        f"--callgrind-out-file={folder}/count", program, *arguments], check=True)
        marked = {}
        for dump in pathlib.Path(folder).glob("count.*"):
            text = dump.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
            marked[name[1]] = int(re.search(r"^totals: (\d+)$", text, re.MULTILINE)[1])
    return marked
