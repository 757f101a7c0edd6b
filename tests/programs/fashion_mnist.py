# SPDX-License-Identifier: MIT
"""Fashion-MNIST's files, of its size but made here, as the programs read them by LibTorch's MNIST: an epoch of them; and
missing or damaged ones, where a program must fail and say what is wrong.

Usage: fashion_mnist.py PROGRAM --epoch | PROGRAM...
"""
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

random.seed(1)
COUNT = 60000


def pattern():
    """7 x 7 squares of 4 x 4 pixels."""
    return b"".join(b"".join(bytes([x]) * 4 for x in random.randbytes(7)) * 4 for _ in range(7))


def idx(sizes, values):
    return struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes) + values


def check(condition, *what):
    if not condition:
        sys.exit(f"failed: {what}")


def write(folder, kind, count):
    labels = [random.randrange(10) for _ in range(count)]
    images = b"".join(PATTERNS[label] for label in labels)
    (folder / f"{kind}-images-idx3-ubyte").write_bytes(idx((count, 28, 28), images))
    (folder / f"{kind}-labels-idx1-ubyte").write_bytes(idx((count,), bytes(labels)))


def refused(program, path, said):
    ran = subprocess.run([program, path], capture_output=True, text=True)
    check(ran.returncode and said in ran.stderr, said, program, ran)


PATTERNS = [pattern() for _ in range(10)]
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    images, labels = (folder / f"train-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    if "--epoch" in sys.argv[2:]:
        write(folder, "train", COUNT)
        ran = subprocess.run([sys.argv[1], folder], capture_output=True, text=True)
        check(ran.returncode == 0 and "The losses of all batches are the same" in ran.stdout, ran)
        sys.exit()
    for program in sys.argv[1:]:
        for path in (folder, folder / "missing"):
            refused(program, path, f"{path}/train-images-idx3-ubyte")
        write(folder, "train", 100)
        refused(program, folder, "Expected to read number 60000 but found 100")
        write(folder, "train", COUNT)
        images.write_bytes(b"\x1f\x8b" + images.read_bytes()[2:])  # still packed
        refused(program, folder, "Expected to read number 2051 but found")
        for file in (images, labels):
            file.unlink()
print("The files are read or refused as they should be.")
