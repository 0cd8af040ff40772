"""Tests of the list of kernels of emulated GPUs."""

from __future__ import annotations

import importlib.resources

from absl.testing import absltest
from google.protobuf import text_format
from tensorflow.core.framework import kernel_def_pb2

from tf_placer.emulated.kernel_list import list_kernels

KERNELS = """
kernel {
  op: "Neg" device_type: "GPU"
  constraint { name: "T" allowed_values { list { type: DT_HALF } } }
}
kernel {
  op: "Neg" device_type: "GPU"
  constraint { name: "T" allowed_values { list { type: DT_FLOAT } } }
}
kernel {
  op: "Neg" device_type: "DEFAULT" host_memory_arg: "y" host_memory_arg: "x"
  constraint { name: "T" allowed_values { list { type: DT_INT32 } } }
}
kernel { op: "Neg" device_type: "CPU" }
kernel { op: "Neg" device_type: "GPU" label: "other" }
kernel { op: "NoOp" device_type: "GPU" }
"""


class KernelListTest(absltest.TestCase):
    def test_lists_kernels_of_gpus_with_types_and_host_arguments(self):
        registered = text_format.Parse(KERNELS, kernel_def_pb2.KernelList()).kernel
        self.assertEqual(
            list_kernels(registered),
            ["Neg\tT=DT_FLOAT,DT_HALF\t", "Neg\tT=DT_INT32\tx,y", "NoOp\t\t"],
        )

    def test_has_only_operations_that_placements_may_put_on_gpus(self):
        file = importlib.resources.files("tf_placer.emulated") / "data" / "cuda_kernels.tsv"
        listed = {line.split("\t")[0] for line in file.read_text().splitlines()}
        self.assertGreater(len(listed), 700)
        known = importlib.resources.files("graph_passes") / "data" / "gpu_kernels.json"
        for op_type in listed:
            self.assertIn(f'"{op_type}"', known.read_text())


if __name__ == "__main__":
    absltest.main()
