# SPDX-License-Identifier: MIT
"""Fashion-MNIST's files, small ones, as the two programs read them; and damaged ones, of which it must say what is wrong.

Usage: fashion_mnist.py MULTIPLE_GPUS MULTIPLE_GPUS_CONCISE
"""
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

random.seed(1)


def pattern():
    """7 x 7 squares of 4 x 4 pixels."""
    return b"".join(b"".join(bytes([x]) * 4 for x in random.randbytes(7)) * 4 for _ in range(7))


PATTERNS = [pattern() for _ in range(10)]


def idx(sizes, values):
    return struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes) + values


def write(folder, kind, count):
    labels = [random.randrange(10) for _ in range(count)]
    images = b"".join(PATTERNS[label] for label in labels)
    (folder / f"{kind}-images-idx3-ubyte").write_bytes(idx((count, 28, 28), images))
    (folder / f"{kind}-labels-idx1-ubyte").write_bytes(idx((count,), bytes(labels)))


def run(folder, program=sys.argv[1]):
    ran = subprocess.run([program, folder], capture_output=True, text=True)
    return ran.returncode, ran.stdout, ran.stderr


def check(condition, *what):
    if not condition:
        sys.exit(f"failed: {what}")


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    write(folder, "train", 1501)  # the last batch is odd
    write(folder, "t10k", 33)
    status, printed, error = run(folder)
    check(status == 0 and "The losses of all batches are the same" in printed, status, printed, error)
    check(printed.count("33 of 33 test images right") == 2, printed)

    images, labels = (folder / f"train-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    whole, all_labels = images.read_bytes(), labels.read_bytes()
    damaged = [
        (images, whole[:-1], "1501, 28, 28"),
        (images, whole + b"0", "1501, 28, 28"),
        (images, whole[:10], "no IDX file"),
        (images, b"", "no IDX file"),
        (images, b"\x1f\x8b" + whole[2:], "no IDX file"),
        (images, whole[:3] + b"\x01" + whole[4:], "no IDX file"),
        (images, whole[:4] + b"\xff\xff\xff\xff" + whole[8:], "4294967295"),
        (images, idx((1501 * 4, 14, 14), whole[16:]), "28 x 28"),
        (images, idx((0, 28, 28), b""), "have no image"),
        (labels, idx((1500,), all_labels[8:-1]), "1501 images for train, but 1500 labels"),
        (labels, idx((1501,), b"\x0a" * 1501), "a label over 9"),
    ]
    for file, content, said in damaged:
        before = file.read_bytes()
        file.write_bytes(content)
        status, _, error = run(folder)
        check(status == 1 and said in error and str(folder) in error and len(error) <= 400, said, status, error)
        file.write_bytes(before)
    write(folder, "train", 1)  # nothing for the second device
    status, printed, error = run(folder, sys.argv[2])
    check(status == 0 and "of 33 test images" in printed and "nan" not in printed, status, printed, error)
    packed = labels.rename(labels.with_suffix(".gz"))
    status, _, error = run(folder)
    check(status == 1 and "gunzip" in error, error)
    packed.unlink()
    labels.mkdir()
    for path in (folder, folder / "missing"):
        status, _, error = run(path, sys.argv[2])
        check(status == 1 and "four files" in error, error)
print("All files were read or refused as they should be.")
