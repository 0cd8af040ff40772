"""Tests of the dependencies and devices of tensor streams."""

from __future__ import annotations

import networkx as nx
import tensorflow as tf
from absl.testing import parameterized

from tf_placer.costs.tensor_streams import build_tensor_stream, make_factor, make_values, send

v1 = tf.compat.v1
_SOURCE, _DESTINATION = (f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))


def _make_values() -> tf.Variable:
    return make_values("values", _SOURCE, 20)


class TensorStreamTest(parameterized.TestCase, tf.test.TestCase):
    def stream(self, is_sent: bool, made_after: tuple[int, ...]) -> tf.Operation:
        factors = {
            name: make_factor(f"factor_{i}", name) for i, name in enumerate((_SOURCE, _DESTINATION))
        }
        return build_tensor_stream(
            *(_make_values(), factors, _SOURCE, _DESTINATION),
            is_sent=is_sent,
            num_products=6,
            made_after=made_after,
        )

    @parameterized.product(is_sent=(True, False), made_after=((2, 4, 6), (1, 1, 1), (3,)))
    def test_tensors_are_made_while_both_devices_compute(self, is_sent, made_after):
        with tf.Graph().as_default() as graph:
            self.stream(is_sent, made_after)
        edges = nx.DiGraph(
            (before, op.name)
            for op in graph.get_operations()
            for before in {*(t.op.name for t in op.inputs), *(c.name for c in op.control_inputs)}
        )
        of_type = {
            kind: [op for op in graph.get_operations() if op.type == kind]
            for kind in ("MatMul", "Abs", "StridedSlice")
        }
        for device in (_SOURCE, _DESTINATION):
            there = edges.subgraph([op.name for op in of_type["MatMul"] if op.device == device])
            self.assertLen(there, 6)
            self.assertEqual(nx.dag_longest_path_length(there), 5)
        # Each tensor is made after its number of products, and read at the end of the stream.
        waited_for = [
            sum("MatMul" in graph.get_operation_by_name(n).type for n in nx.ancestors(edges, name))
            for name in (op.name for op in of_type["Abs"])
        ]
        self.assertEqual(waited_for, list(made_after))
        self.assertEqual({op.device for op in of_type["Abs"]}, {_SOURCE})
        self.assertLen(of_type["StridedSlice"], len(made_after))
        end = _DESTINATION if is_sent else _SOURCE
        self.assertEqual({op.device for op in of_type["StridedSlice"]}, {end})

    def test_waits_for_all_tensors_and_products(self):
        with tf.Graph().as_default() as graph:
            stream = self.stream(True, (2, 4, 5))
        kinds = [op.type for op in stream.control_inputs]
        self.assertEqual(kinds.count("StridedSlice"), 3)
        self.assertEqual(kinds.count("MatMul"), 2)
        self.assertEqual(stream.device, _SOURCE)
        self.assertIs(stream.graph, graph)

    def test_all_products_are_equal(self):
        with tf.Graph().as_default() as graph:
            factor = make_factor("factor", _SOURCE)
            product = tf.matmul(factor.read_value(), factor.read_value())
        config = v1.ConfigProto(device_count={"CPU": 2})
        with v1.Session(graph=graph, config=config) as session:
            session.run(factor.initializer)
            before, after = session.run([factor.read_value(), product])
        self.assertAllClose(before, after)


class SendTest(tf.test.TestCase):
    def test_makes_a_tensor_on_one_device_and_reads_it_on_the_other(self):
        with tf.Graph().as_default():
            read = send(_make_values(), _SOURCE, _DESTINATION)
        self.assertEqual(read.type, "StridedSlice")
        self.assertEqual(read.device, _DESTINATION)
        made = read.inputs[0].op
        self.assertEqual((made.type, made.device), ("Abs", _SOURCE))
        self.assertEqual((made.outputs[0].shape, made.outputs[0].dtype), ([5], tf.float32))


if __name__ == "__main__":
    tf.test.main()
