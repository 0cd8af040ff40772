from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.op_graph import OpGraph
from graph_passes.work import count_window_bytes, estimate_work, find_product_sizes
from tests import graphs

tf1 = tf.compat.v1

# The work per element of the largest tensor, for operations other than contractions.
PER_ELEMENT = 16


def work_by_name(graph: tf.Graph) -> dict[str, float]:
    op_graph = OpGraph.from_graph_def(graph.as_graph_def())
    return dict(zip(op_graph.names, estimate_work(op_graph).tolist(), strict=True))


def floats(*shape: int | None) -> tf.Tensor:
    return tf1.placeholder(tf.float32, list(shape))


class ProductSizesTest(tf.test.TestCase):
    def test_the_smallest_dimension_of_a_product_counts(self):
        with tf.Graph().as_default() as graph:
            tf.matmul(floats(20, 30), floats(30, 40), name="rows")
            tf.matmul(floats(5, 40), floats(30, 5), True, True, name="terms")
            tf.matmul(floats(7, 20, 30), floats(7, 30, 6), name="columns")
            tf.matmul(tf1.placeholder(tf.float32), tf1.placeholder(tf.float32), name="unknown")
            tf.tanh(floats(2, 3), name="other")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        sizes = dict(zip(op_graph.names, find_product_sizes(op_graph).tolist(), strict=True))
        self.assertEqual([sizes[name] for name in ("rows", "terms", "columns")], [20, 5, 6])
        self.assertEqual((sizes["unknown"], sizes["other"]), (1, np.inf))

    def test_a_convolution_is_a_product_of_windows_and_filters(self):
        images, filters = (2, 8, 9, 3), (5, 4, 3, 70)
        with tf.Graph().as_default() as graph:
            x, w = floats(*images), floats(*filters)
            y = tf.nn.conv2d(x, w, strides=1, padding="SAME", name="forward")
            attributes = {"strides": [1, 1, 1, 1], "padding": "SAME"}
            tf.raw_ops.Conv2DBackpropInput(
                input_sizes=images, filter=w, out_backprop=y, **attributes, name="to_input"
            )
            tf.raw_ops.Conv2DBackpropFilter(
                input=x, filter_sizes=filters, out_backprop=y, **attributes, name="to_filter"
            )
            depthwise = tf.nn.depthwise_conv2d(x, floats(5, 4, 3, 2), [1, 1, 1, 1], "SAME")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        sizes, window_bytes = find_product_sizes(op_graph), count_window_bytes(op_graph)
        for name in ("forward", "to_input", "to_filter"):
            # Sums of 5 * 4 * 3 terms, for 70 channels at 2 * 8 * 9 positions.
            self.assertEqual(sizes[op_graph.index[name]], 60, name)
            self.assertEqual(window_bytes[op_graph.index[name]], 4 * 144 * 60, name)
        self.assertEqual(sizes[op_graph.index[depthwise.op.name]], np.inf)
        self.assertEqual(window_bytes.sum(), 3 * 4 * 144 * 60)


class ContractionTest(tf.test.TestCase, parameterized.TestCase):
    def assert_flops(self, work: dict[str, float], name: str, flops: float, outputs: int) -> None:
        self.assertEqual(work[name], flops + PER_ELEMENT * outputs, name)

    def test_matrix_products(self):
        with tf.Graph().as_default() as graph:
            tf.matmul(floats(2, 3), floats(3, 5), name="plain")
            tf.matmul(floats(3, 2), floats(5, 3), transpose_a=True, transpose_b=True, name="turned")
            tf.matmul(floats(7, 2, 3), floats(7, 3, 5), name="batch")
            tf.matmul(floats(7, 3, 2), floats(7, 3, 5), adjoint_a=True, name="batch_turned")
        work = work_by_name(graph)
        self.assert_flops(work, "plain", 2 * 2 * 3 * 5, 10)
        self.assert_flops(work, "turned", 2 * 2 * 3 * 5, 10)
        self.assert_flops(work, "batch", 2 * 7 * 2 * 3 * 5, 70)
        self.assert_flops(work, "batch_turned", 2 * 7 * 2 * 3 * 5, 70)

    def test_unknown_sizes_count_as_one(self):
        with tf.Graph().as_default() as graph:
            tf.matmul(floats(None, 3), floats(3, 5), name="rows")
            tf.matmul(floats(2, None), floats(None, 5), name="inner")
            tf.matmul(tf1.placeholder(tf.float32), tf1.placeholder(tf.float32), name="rank")
        work = work_by_name(graph)
        self.assert_flops(work, "rows", 2 * 3 * 5, 5)
        self.assert_flops(work, "inner", 2 * 2 * 5, 10)
        self.assert_flops(work, "rank", 2, 1)

    def test_convolution_and_its_gradients_have_equal_work(self):
        images, filters = (2, 8, 9, 3), (5, 4, 3, 7)
        with tf.Graph().as_default() as graph:
            x, w = floats(*images), floats(*filters)
            y = tf.nn.conv2d(x, w, strides=1, padding="SAME", name="forward")
            attributes = {"strides": [1, 1, 1, 1], "padding": "SAME"}
            tf.raw_ops.Conv2DBackpropInput(
                input_sizes=images, filter=w, out_backprop=y, **attributes, name="to_input"
            )
            tf.raw_ops.Conv2DBackpropFilter(
                input=x, filter_sizes=filters, out_backprop=y, **attributes, name="to_filter"
            )
        work = work_by_name(graph)
        flops = 2 * (2 * 8 * 9 * 7) * (5 * 4 * 3)
        self.assert_flops(work, "forward", flops, 2 * 8 * 9 * 7)
        self.assert_flops(work, "to_input", flops, 2 * 8 * 9 * 3)
        self.assert_flops(work, "to_filter", flops, 5 * 4 * 3 * 7)

    def test_strided_and_depthwise_convolutions(self):
        with tf.Graph().as_default() as graph:
            x = floats(2, 8, 8, 3)
            tf.nn.conv2d(x, floats(3, 3, 3, 7), strides=2, padding="SAME", name="strided")
            tf.raw_ops.DepthwiseConv2dNative(
                input=x, filter=floats(3, 3, 3, 2), strides=[1] * 4, padding="SAME", name="each"
            )
            tf.nn.conv3d(floats(1, 4, 4, 4, 2), floats(2, 2, 2, 2, 5), [1] * 5, "SAME", name="3d")
        work = work_by_name(graph)
        self.assert_flops(work, "strided", 2 * (2 * 4 * 4 * 7) * 27, 2 * 4 * 4 * 7)
        self.assert_flops(work, "each", 2 * (2 * 8 * 8 * 6) * 9, 2 * 8 * 8 * 6)
        self.assert_flops(work, "3d", 2 * (4**3 * 5) * (8 * 2), 4**3 * 5)

    @parameterized.parameters(
        ("ij,jk->ik", [(2, 3), (3, 5)], 2 * 3 * 5),
        ("bij,bkj->bik", [(7, 2, 3), (7, 5, 3)], 7 * 2 * 3 * 5),
        ("...ij,jk->...ik", [(4, 7, 2, 3), (3, 5)], 4 * 7 * 2 * 3 * 5),
        ("a...b,b->a...", [(4, 7, 2, 3), (3,)], 4 * 7 * 2 * 3),
        ("ij->ji", [(2, 3)], 2 * 3),
        ("ij,jk->ik", [(None, 3), (3, 5)], 3 * 5),
    )
    def test_einsum_multiplies_all_subscripts(self, equation, shapes, multiplications):
        with tf.Graph().as_default() as graph:
            result = tf.raw_ops.Einsum(
                inputs=[floats(*shape) for shape in shapes], equation=equation, name="einsum"
            )
        outputs = np.prod([size or 1 for size in result.shape.as_list()])
        self.assert_flops(work_by_name(graph), "einsum", 2 * multiplications, outputs)

    def test_whole_cells_multiply_rows_with_weights(self):
        batch, inputs, units, steps = 4, 3, 5, 6
        with tf.Graph().as_default() as graph:
            state, kernel = floats(batch, units), floats(inputs + units, 4 * units)
            rest = dict.fromkeys(("wci", "wcf", "wco"), floats(units)) | {"b": floats(4 * units)}
            tf.raw_ops.LSTMBlockCell(
                x=floats(batch, inputs), cs_prev=state, h_prev=state, w=kernel, name="cell", **rest
            )
            tf.raw_ops.BlockLSTM(
                seq_len_max=tf.constant(steps, tf.int64),
                x=floats(steps, batch, inputs),
                cs_prev=state,
                h_prev=state,
                w=kernel,
                name="layer",
                **rest,
            )
            tf.raw_ops.GRUBlockCell(
                x=floats(batch, inputs),
                h_prev=state,
                w_ru=floats(inputs + units, 2 * units),
                w_c=floats(inputs + units, units),
                b_ru=floats(2 * units),
                b_c=floats(units),
                name="gru",
            )
        work = work_by_name(graph)
        weights = (inputs + units) * 4 * units
        self.assert_flops(work, "cell", 2 * batch * weights, batch * units)
        self.assert_flops(work, "layer", 2 * steps * batch * weights, steps * batch * units)
        self.assert_flops(work, "gru", 2 * batch * (inputs + units) * 3 * units, batch * units)


class OtherWorkTest(tf.test.TestCase, parameterized.TestCase):
    def test_largest_tensor_counts(self):
        with tf.Graph().as_default() as graph:
            value = floats(4, 5)
            tf.exp(value, name="same")
            tf.reduce_sum(value, name="smaller")
            tf.add(value, 1.0, name="with_a_scalar")
            tf.raw_ops.Fill(dims=[6, 7], value=1.0, name="larger")
        work = work_by_name(graph)
        for name in ("same", "smaller", "with_a_scalar"):
            self.assertEqual(work[name], PER_ELEMENT * 20, name)
        self.assertEqual(work["larger"], PER_ELEMENT * 42)

    def test_lookups_and_slices_count_their_result(self):
        with tf.Graph().as_default() as graph:
            table = tf1.get_variable("table", [1000, 4], use_resource=True)
            tf.raw_ops.ResourceGather(
                resource=table.handle, indices=[1, 2, 3], dtype=tf.float32, name="lookup"
            )
            tf.raw_ops.GatherV2(params=floats(1000, 4), indices=[1], axis=0, name="gather")
            tf.slice(floats(1000, 4), [0, 0], [2, 4], name="slice")
        work = work_by_name(graph)
        self.assertEqual(work["lookup"], PER_ELEMENT * 12)
        self.assertEqual(work["gather"], PER_ELEMENT * 4)
        self.assertEqual(work["slice"], PER_ELEMENT * 8)

    def test_forwarding_has_no_work(self):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", [100, 10], use_resource=True)
            tf1.get_variable("w", [100, 10], use_resource=False)
            tf.reshape(tf.constant(1.0, shape=[4, 5], name="constant"), [20], name="reshape")
            tf.shape(tf.identity(variable, name="identity"), name="shape")
            tf.group(variable.initializer, name="nothing")
        work = work_by_name(graph)
        for name in ("v", "w", "constant", "reshape", "shape", "identity", "nothing"):
            self.assertEqual(work[name], 0, name)

    def test_updates_count_the_same_with_and_without_references(self):
        with tf.Graph().as_default() as graph:
            for name, use_resource in (("v", True), ("w", False)):
                with tf1.variable_scope(name, use_resource=use_resource):
                    variable = tf1.get_variable("dense", [100, 10])
                    table = tf1.get_variable("table", [100, 10])
                    rows = tf.gather(table, [1, 2])
                loss = tf.reduce_sum(variable * 2.0) + tf.reduce_sum(rows)
                tf1.train.AdagradOptimizer(0.1).minimize(
                    loss, var_list=[variable, table], name=f"train_{name}"
                )
        work = work_by_name(graph)
        dense = {n: f for n, f in work.items() if n.startswith("train_") and "dense/" in n}
        updates = {n: f for n, f in dense.items() if n.endswith("ApplyAdagrad")}
        self.assertEqual(set(updates.values()), {PER_ELEMENT * 1000.0}, updates)
        self.assertLen(updates, 2)
        sparse = {n: f for n, f in work.items() if n.endswith("SparseApplyAdagrad")}
        self.assertLen(sparse, 2)
        self.assertEqual(set(sparse.values()), {PER_ELEMENT * 20.0}, sparse)

    @parameterized.parameters(*graphs.FACTORIES)
    def test_work_is_finite_and_not_negative(self, name):
        work = np.array(list(work_by_name(graphs.share_graph(name).graph).values()))
        self.assertTrue(np.isfinite(work).all())
        self.assertTrue((work >= 0).all())
        self.assertGreater(work.sum(), 0)


if __name__ == "__main__":
    tf.test.main()
