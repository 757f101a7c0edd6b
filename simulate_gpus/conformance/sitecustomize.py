# SPDX-License-Identifier: MIT
"""Processes that a test spawns import its file anew: they need the same names."""
import os
import sys


def give_back():
    import pytorch_2_6
    pytorch_2_6.give_back()


command = " ".join(sys.orig_argv)
if "multiprocessing.spawn" in command:
    give_back()
elif "multiprocessing.forkserver" in command:  # which must not use CUDA before it forks
    os.register_at_fork(after_in_child=give_back)
