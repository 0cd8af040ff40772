"""Tests that graph files with changed or lost bytes are read, or refused with a message."""

from __future__ import annotations

import pathlib
import random

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.kernel_work import kernel_work
from tests import graph_parts
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.workload import read_workload

tf1 = tf.compat.v1
_DAMAGES = 60


class DamagedGraphsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(".pb", ".pbtxt", ".meta")
    def test_damage_is_met_by_a_sentence(self, ending):
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=True):
            x = tf1.placeholder(tf.float32, [4, 4], name="x")
            w = tf1.get_variable("w", initializer=tf.ones([4, 4]), use_resource=True)
            double = tf.function(lambda a: a * 2.0)
            loop = tf1.while_loop(lambda a: a < 3.0, double, [tf.reduce_sum(x @ w)])
            tf.identity(loop, name="y")
        path = pathlib.Path(self.create_tempdir().full_path, f"graph{ending}")
        write_graph(path, graph.as_graph_def())
        whole = path.read_bytes()
        rng = random.Random(ending)
        num_read = 0
        for _ in range(_DAMAGES):
            damaged = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            start = rng.randrange(len(whole))
            del damaged[start : rng.choice([start, start + rng.randrange(40), len(whole)])]
            path.write_bytes(damaged)
            try:
                workload = read_workload(path, ["y"], {"x": np.ones([4, 4], np.float32)})
                graph_fingerprint(workload.graph_def)
                kernel_work(workload.op_graph)
                num_read += 1
            except GraphError as error:
                self.assertNotIn("\n", str(error))
        self.assertLess(num_read, _DAMAGES)


if __name__ == "__main__":
    tf.test.main()
