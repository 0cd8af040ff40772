"""Tests of TensorFlow's runtime without its Python interface, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from absl.testing import absltest

# Prints the names of all operations, and all kernels as "op device label".
_LIST = """
from tensorflow.core.framework import kernel_def_pb2, op_def_pb2
ops, kernels = op_def_pb2.OpList(), kernel_def_pb2.KernelList()
ops.ParseFromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
kernels.ParseFromString(c_api.TF_GetBuffer(c_api.TF_GetAllRegisteredKernels()))
print(sorted(op.name for op in ops.op))
print(sorted(f"{each.op} {each.device_type} {each.label}" for each in kernels.kernel))
"""
_WHOLE = "import tensorflow; from tensorflow.python.client import pywrap_tf_session as c_api\n"
_PART = """
from tf_placer.machines.tensorflow_runtime import import_runtime
c_api, _ = import_runtime()
"""
_FAILS = """
from unittest import mock
from tf_placer.machines import tensorflow_runtime
with mock.patch.object(tensorflow_runtime, "_import_part", side_effect=AttributeError):
    c_api, _ = tensorflow_runtime.import_runtime()
"""


def run(program: str) -> list[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


class TensorflowRuntimeTest(absltest.TestCase):
    def test_has_all_operations_and_kernels_of_the_whole(self):
        whole = run(_WHOLE + _LIST)
        self.assertLen(whole, 2)
        self.assertEqual(run(_PART + _LIST), whole)

    def test_has_no_python_interface(self):
        loaded = "import sys; print(hasattr(sys.modules['tensorflow'], 'constant'))"
        self.assertEqual(run(_PART + loaded), ["False"])

    def test_is_imported_as_a_whole_if_a_part_cannot_be(self):
        loaded = "import tensorflow; print(hasattr(tensorflow, 'constant'))"
        self.assertEqual(run(_FAILS + loaded), ["True"])


if __name__ == "__main__":
    absltest.main()
