# SPDX-License-Identifier: MIT
"""What PyTorch 2.6's tests need of a newer torch, each with its reason. Called before a test file is imported: by
plugin.py, and by sitecustomize.py in processes that a test spawns."""
import importlib.machinery
import os
import sys

# Texts to replace in a file of tests.
SUBSTITUTED = {
    # setUp would call itself without end, since the class of a test is now derived from the one that defines it.
    "test_linalg.py": {b"super(self.__class__, self)": b"super()"},
    "test_matmul_cuda.py": {b"super(self.__class__, self)": b"super()"},
    # Its settings are made where it is run as a program; it also asks the network which tests are switched off.
    "test_cuda_expandable_segments.py": {b'if __name__ == "__main__":': b"if True:", b'get_disabled_tests(".")': b"",
                                         b"run_tests()\n": b"\n"}}


class Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, **options):
        for old, new in SUBSTITUTED[path.rsplit("/", 1)[-1]].items():
            data = data.replace(old, new)
        return super().source_to_code(data, path, **options)

    def get_code(self, fullname):  # never what was compiled before
        return self.source_to_code(self.get_data(self.path), self.path)


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if f"{name}.py" not in SUBSTITUTED:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found:
            found.loader = Loader(name, found.origin)
        return found


def give_back():
    sys.meta_path.insert(0, Finder)

    import torch.jit.frontend
    from torch.testing._internal import (common_cuda, common_mkldnn, common_nn, common_utils,
                                         jit_metaprogramming_utils)

    def add(module, name, value):
        if not hasattr(module, name):
            setattr(module, name, value)

    # The newer torch ends a test in an error that leaves another precision of float32 behind, as 2.6's do.
    os.environ["PYTORCH_DISABLE_FP32_PRECISION_LEAK_CHECK"] = "1"
    # Became part of tf32_on_and_off.
    add(common_cuda, "tf32_is_not_fp32", lambda: False)
    # Is now called reduced_f32_on_and_off.
    add(common_mkldnn, "bf32_on_and_off", getattr(common_mkldnn, "reduced_f32_on_and_off", None))
    # Are now made by a function, which test_nn and test_jit do not call yet.
    if hasattr(common_nn, "get_new_module_tests"):
        add(common_nn, "new_module_tests", common_nn.get_new_module_tests())
    add(jit_metaprogramming_utils, "additional_module_tests", [])
    # Every Python that the newer torch runs on has ast.unparse.
    add(torch.jit.frontend, "_IS_ASTUNPARSE_INSTALLED", True)
    # The newer torch reads these options when a file is run; 2.6's tests use them as they are imported.
    arguments, sys.argv = sys.argv, sys.argv[:1]
    common_utils.parse_cmd_line_args()
    sys.argv = arguments
