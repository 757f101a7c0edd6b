# SPDX-License-Identifier: MIT
"""Processes that a test spawns import its file anew: they need the same names."""
import sys

if any("multiprocessing" in x for x in sys.orig_argv):
    import pytorch_2_6
    pytorch_2_6.give_back()
