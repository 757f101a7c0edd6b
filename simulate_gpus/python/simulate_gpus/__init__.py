# SPDX-License-Identifier: MIT
"""simulate_gpus runs a program on simulated CUDA GPUs: simulate_gpus 2 python train.py"""

from importlib.metadata import version as _version

version = _version("simulate_gpus")
