from __future__ import annotations

import inspect
import sys

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.kernel_work import kernel_work, tensor_sizes
from graph_passes.op_graph import OpGraph
from tests import graph_parts, graphs
from tests.function_parts import build_nested_functions

tf1 = tf.compat.v1


def floats(*shape: int | None) -> tf.Tensor:
    return tf1.placeholder(tf.float32, list(shape))


def kernels_by_name(graph: tf.Graph) -> dict[str, list[tuple[float, float, float, bool]]]:
    """Lists the kernels of each operation: flops, touched bytes, repeats, on the host."""
    op_graph = OpGraph.from_graph_def(graph.as_graph_def())
    work = kernel_work(op_graph)
    kernels: dict[str, list[tuple[float, float, float, bool]]] = {n: [] for n in op_graph.names}
    columns = (work.flops, work.touched_bytes, work.repeats, work.on_host)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, row in zip(work.operations.tolist(), rows, strict=True):
        kernels[op_graph.names[i]].append(row)
    return kernels


class PlainOperationTest(tf.test.TestCase):
    def assert_kernel(self, kernels, name: str, flops: float, touched_bytes: float) -> None:
        self.assertEqual(kernels[name], [(flops, touched_bytes, 1.0, False)], name)

    def test_counts_read_and_written_bytes(self):
        with tf.Graph().as_default() as graph:
            a, b = floats(2, 3), floats(3, 5)
            tf.matmul(a, b, name="product")
            tf.exp(a, name="exp")
            tf.cast(a, tf.float64, name="cast")
            tf.reduce_sum(tf.identity(a), axis=tf1.placeholder(tf.int32, [1]), name="sum")
            tf.split(floats(4, 6), 2, name="split")
        kernels = kernels_by_name(graph)
        self.assert_kernel(kernels, "product", 2 * 2 * 3 * 5, 4 * (6 + 15 + 10))
        self.assert_kernel(kernels, "exp", 0, 4 * (6 + 6))
        self.assert_kernel(kernels, "cast", 0, 4 * 6 + 8 * 6)
        self.assert_kernel(kernels, "sum", 0, 4 * (6 + 1 + 1))
        self.assert_kernel(kernels, "split", 0, 4 * (24 + 1 + 24))

    def test_lookups_and_slices_touch_only_their_result(self):
        with tf.Graph().as_default() as graph:
            rows = tf1.placeholder(tf.int64, [3])
            tf.raw_ops.GatherV2(params=floats(1000, 4), indices=rows, axis=0, name="gather")
            table = tf1.get_variable("table", [1000, 4], use_resource=True)
            tf.raw_ops.ResourceGather(
                resource=table.handle, indices=rows, dtype=tf.float32, name="lookup"
            )
            tf.slice(floats(1000, 4), [0, 0], [2, 4], name="slice")
        kernels = kernels_by_name(graph)
        indices, axis = 3 * 8, 4
        self.assert_kernel(kernels, "gather", 0, 2 * 12 * 4 + indices + axis)
        self.assert_kernel(kernels, "lookup", 0, 2 * 12 * 4 + indices)
        self.assert_kernel(kernels, "slice", 0, 2 * 8 * 4 + 2 * 2 * 4)

    def test_updates_read_and_write_each_state_with_and_without_references(self):
        with tf.Graph().as_default() as graph:
            for name, use_resource in (("v", True), ("w", False)):
                with tf1.variable_scope(name, use_resource=use_resource):
                    variable = tf1.get_variable("dense", [100, 10])
                    table = tf1.get_variable("table", [100, 10])
                gradients = [
                    (floats(100, 10), variable),
                    (tf.IndexedSlices(floats(2, 10), tf.constant([1, 2])), table),
                ]
                tf1.train.AdagradOptimizer(0.1).apply_gradients(gradients, name=f"train_{name}")
        kernels = kernels_by_name(graph)
        updates = {n: k for n, k in kernels.items() if n.startswith("train_")}
        dense = {n: k for n, k in updates.items() if "Sparse" not in n and "ApplyAdagrad" in n}
        sparse = {n: k for n, k in updates.items() if "SparseApplyAdagrad" in n}
        self.assertLen(dense, 2)
        self.assertLen(sparse, 2)
        states, rate = 2, 4  # The variable and its accumulator, and a scalar.
        for name in dense:
            self.assert_kernel(kernels, name, 0, 4000 * (1 + 2 * states) + rate)
        for name in sparse:
            indices = 2 * 4  # All rows may be distinct.
            self.assert_kernel(kernels, name, 0, 80 * (1 + 2 * states) + indices + rate)

    def test_a_recurrent_layer_has_a_kernel_for_each_time_step(self):
        batch, steps, inputs, units = 2, 5, 3, 4
        weights = 4 * units * (inputs + units + 2)
        for time_major in (True, False):
            with tf.Graph().as_default() as graph:
                lead = [steps, batch] if time_major else [batch, steps]
                state = [1, batch, units] if time_major else [batch, 1, units]
                tf.raw_ops.CudnnRNNV3(
                    input=floats(*lead, inputs),
                    input_h=floats(*state),
                    input_c=floats(*state),
                    params=floats(weights),
                    sequence_lengths=tf.fill([batch], steps),
                    time_major=time_major,
                    name="layer",
                )
            outputs = batch * steps * units
            # The gates, the cell and the output of each step are kept for the gradient.
            written = outputs + 2 * batch * units + 6 * outputs
            read = batch * steps * inputs + 2 * batch * units + weights + batch
            ((flops, touched_bytes, repeats, _),) = kernels_by_name(graph)["layer"]
            self.assertEqual(repeats, steps)
            self.assertEqual(flops * repeats, 2 * batch * steps * weights)
            self.assertAllClose(touched_bytes * repeats, 4 * (read + written) + 1)

    def test_forwarding_has_no_kernel(self):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", [100, 10], use_resource=True)
            tf.reshape(tf.identity(variable, name="identity"), [1000], name="reshape")
            elements = tf.raw_ops.TensorListReserve(
                element_shape=[2], num_elements=3, element_dtype=tf.float32, name="list"
            )
            tf.raw_ops.TensorListSetItem(input_handle=elements, index=0, item=floats(2), name="put")
        kernels = kernels_by_name(graph)
        for name in ("v", "identity", "reshape", "list", "put"):
            self.assertEqual(kernels[name], [], name)

    def test_trivial_reductions_have_no_kernel(self):
        with tf.Graph().as_default() as graph:
            tf.reduce_sum(floats(4, 6), axis=tf.constant([], tf.int32), name="nothing")
            tf.reduce_sum(floats(4, 6), axis=1, name="rows")
            tf.reduce_sum(floats(None, 6), axis=tf.constant([], tf.int32), name="unknown")
        kernels = kernels_by_name(graph)
        self.assertEqual(kernels["nothing"], [])
        self.assert_kernel(kernels, "rows", 0, 4 * (24 + 4) + 4)
        self.assertLen(kernels["unknown"], 1)

    def test_integer_arithmetic_is_on_the_host(self):
        with tf.Graph().as_default() as graph:
            position = tf1.placeholder(tf.int32, [])
            tf.add(position, 1, name="next")
            tf.cast(position, tf.float32, name="as_float")
            tf.range(position, name="range")
        kernels = kernels_by_name(graph)
        on_host = {name: [kernel[3] for kernel in kernels[name]] for name in kernels}
        self.assertEqual(on_host["next"], [True])
        self.assertEqual(on_host["range"], [True])
        self.assertEqual(on_host["as_float"], [False])

    def test_unknown_sizes_count_as_one(self):
        with tf.Graph().as_default() as graph:
            tf.exp(floats(None, 3), name="rows")
            tf.exp(tf1.placeholder(tf.float32), name="rank")
        kernels = kernels_by_name(graph)
        self.assert_kernel(kernels, "rows", 0, 2 * 3 * 4)
        self.assert_kernel(kernels, "rank", 0, 2 * 4)

    def test_operations_outside_the_step_have_no_kernels(self):
        with tf.Graph().as_default() as graph:
            tf.exp(floats(2), name="fetched")
            tf.exp(floats(3), name="other")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["fetched"])
        work = kernel_work(op_graph)
        self.assertEqual([op_graph.names[i] for i in work.operations], ["fetched"])


class CallTest(tf.test.TestCase, parameterized.TestCase):
    def test_calls_have_the_kernels_of_their_body(self):
        with tf.Graph().as_default() as graph:
            weights = tf1.get_variable("weights", [6, 6], use_resource=True)

            @tf.function
            def layer(value):
                return tf.tanh(tf.matmul(value, weights))

            layer(layer(floats(8, 6)))
        calls = {n: k for n, k in kernels_by_name(graph).items() if "PartitionedCall" in n}
        self.assertLen(calls, 2)
        for kernels in calls.values():
            self.assertEqual(
                kernels,
                [
                    (2.0 * 8 * 6 * 6, 4.0 * (48 + 36 + 48), 1.0, False),
                    (0.0, 4.0 * (48 + 48), 1.0, False),
                ],
            )

    @parameterized.parameters((9, 9), (None, 1))
    def test_loops_count_by_constant_limits(self, limit, trips):
        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=True):
            weights = floats(6, 6)
            tf1.while_loop(
                lambda step, value: tf.reduce_sum(value) < 5.0,
                lambda step, value: (step + 1, tf.matmul(value, weights)),
                (tf.constant(0), floats(5, 6)),
                maximum_iterations=limit,
            )
        [kernels] = [k for n, k in kernels_by_name(graph).items() if n == "while"]
        products = [kernel for kernel in kernels if kernel[0] > 0]
        self.assertEqual(products, [(2.0 * 5 * 6 * 6, 4.0 * (30 + 36 + 30), float(trips), False)])
        sums = [kernel for kernel in kernels if kernel[1] == 4.0 * (30 + 2 + 1)]
        self.assertEqual([repeats for _, _, repeats, _ in sums], [trips + 1])

    def test_elements_of_lists_have_fed_sizes(self):
        def work_of(rows: int | None, steps: int | None) -> tuple[float, float, tuple[str, ...]]:
            with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=True):
                x = tf.compat.v1.placeholder(tf.float32, [rows, steps, 8], name="x")
                weights = tf.ones([7, 16])
                y = tf.scan(
                    # The gradients of the slice and the sum store shapes in lists.
                    lambda a, z: tf.tanh(z[:, 1:] @ weights) + a * tf.reduce_mean(z**2, 0)[0],
                    tf.transpose(x, [1, 0, 2]),
                    initializer=tf.zeros([tf.shape(x)[0], 16]),
                )
                tf.identity(tf.gradients(y**2, [weights, x])[1], name="y")
            feeds = {"x:0": np.zeros([4, 7, 8], np.float32)}
            work = kernel_work(OpGraph.from_graph_def(graph.as_graph_def(), ["y"], feeds))
            flops, touched = work.flops * work.repeats, work.touched_bytes * work.repeats
            return flops.sum(), touched[work.called].sum(), work.unknown_sizes

        fed, static = work_of(None, None), work_of(4, None)
        self.assertEqual(fed[::2], static[::2])
        self.assertEqual(fed[2], ())
        # With static shapes TensorFlow builds gradients with a few small kernels less.
        self.assertAllClose(fed[1], static[1], rtol=0.1)
        self.assertGreaterEqual(fed[0], 2 * 2 * 4 * 7 * 16)

    def test_names_unknown_sizes_in_bodies(self):
        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=True):
            x = tf.compat.v1.placeholder(tf.float32, [6], name="x")
            positive = tf.cond(
                x[0] > 0,
                lambda: tf.reduce_sum(tf.dynamic_partition(x, tf.cast(x > 0, tf.int32), 2)[1]),
                lambda: x[0],
            )
            tf.identity(positive, name="y")
        work = kernel_work(OpGraph.from_graph_def(graph.as_graph_def(), ["y"], ["x:0"]))
        [first, *_] = work.unknown_sizes
        self.assertRegex(first, r"^'DynamicPartition:0' \[\?\] in function 'cond_true_\d+'$")

    def test_the_branch_with_the_most_work_counts(self):
        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=True):
            value, small, large = floats(4, 6), floats(6, 1), floats(6, 50)
            tf1.cond(
                tf1.placeholder(tf.bool, []),
                lambda: tf.reduce_sum(tf.matmul(value, small)),
                lambda: tf.reduce_sum(tf.matmul(value, large)),
                name="choose",
            )
        [kernels] = [k for n, k in kernels_by_name(graph).items() if n == "choose"]
        self.assertEqual(sum(flops for flops, *_ in kernels), 2.0 * 4 * 6 * 50)

    def test_conditional_that_forwards_its_input_has_no_kernel(self):
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=True):
            x = floats(4, 4)
            tf1.cond(tf1.placeholder(tf.bool, []), lambda: x, lambda: x, name="cond")
        self.assertEqual(set(map(len, kernels_by_name(graph).values())), {0})

    @parameterized.parameters(*graphs.FACTORIES)
    def test_kernels_are_finite_and_in_the_order_of_operations(self, name):
        test_graph = graphs.share_graph(name)
        op_graph = OpGraph.from_graph_def(test_graph.graph.as_graph_def(), test_graph.fetches)
        work = kernel_work(op_graph)
        self.assertTrue((np.diff(work.operations) >= 0).all())
        self.assertNotEmpty(work.operations)
        for column in (work.flops, work.touched_bytes, work.repeats):
            self.assertTrue(np.isfinite(column).all())
            self.assertTrue((column >= 0).all())
        self.assertGreater(work.flops.sum(), 0)


def up(limit) -> tuple:
    return (lambda i, *_: i < limit), (lambda i: i + 1), 0


def up_to_the_limit_in_steps(limit) -> tuple:
    return (lambda i, *_: limit * 2 >= i), (lambda i: i + 2), 2


def down(limit) -> tuple:
    return (lambda i, *_: i > 0), (lambda i: i - 1), limit


def up_to_the_limit_or_a_value(limit) -> tuple:
    return (
        (lambda i, a: tf.logical_and(i < limit, tf.reduce_sum(a) < 5.0)),
        (lambda i: i + 1),
        0,
    )


class LoopTest(tf.test.TestCase, parameterized.TestCase):
    """Tests of iteration counts, by the matrix products in the bodies."""

    def products(self, build, v2: bool, *, feeds=()) -> tuple[float, tuple[str, ...]]:
        """Counts the matrix products in a step, and names the loops with unknown iterations."""
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=v2):
            tf.identity(build(floats(4, 4), tf1.get_variable("w", [4, 4])), name="y")
        work = kernel_work(OpGraph.from_graph_def(graph.as_graph_def(), ["y"], feeds))
        return work.repeats[work.flops > 0].sum(), work.unknown_loops

    @parameterized.product(
        counter=[up, up_to_the_limit_in_steps, down, up_to_the_limit_or_a_value], v2=[False, True]
    )
    def test_counts_iterations_of_counters(self, counter, v2):
        def loop(x, w, limit=7):
            condition, count, start = counter(limit)
            body = lambda i, a: (count(i), tf.matmul(a, w))  # noqa: E731
            return tf1.while_loop(condition, body, [start, x])[1]

        def with_gradient(x, w):
            return tf.gradients(loop(x, w) ** 2, [w])[0]

        def up_to_a_size(x, w):
            return loop(x, w, tf.shape(tf.concat([x, x], 1))[1] - 1)

        self.assertEqual(self.products(loop, v2), (7, ()))
        self.assertEqual(self.products(up_to_a_size, v2), (7, ()))
        self.assertEqual(self.products(with_gradient, v2), (3 * 7, ()))

    @parameterized.parameters(False, True)
    def test_iterations_of_nested_loops_multiply(self, v2):
        def inner(a, w, limit):
            return tf1.while_loop(
                lambda i, a: i < limit, lambda i, a: (i + 1, tf.matmul(a, w)), [0, a]
            )[1]

        def outer(x, w):
            limit = tf.shape(x)[0]
            return tf1.while_loop(
                lambda i, a: i < 3,
                lambda i, a: (i + 1, inner(tf.matmul(a, w), w, limit)),
                [0, x],
            )[1]

        self.assertEqual(self.products(outer, v2), (3 + 3 * 4, ()))
        if not v2:
            gradient = self.products(lambda x, w: tf.gradients(outer(x, w), [w])[0], v2)
            self.assertEqual(gradient, (3 * (3 + 3 * 4), ()))

    @parameterized.parameters(False, True)
    def test_counts_iterations_from_fed_sizes(self, v2):
        def network(_, w):
            x = tf1.placeholder(tf.float32, [None, None, 4], name="x")
            states = tf.scan(
                lambda a, z: tf.tanh(tf.matmul(a, w) + z),
                tf.transpose(x, [1, 0, 2]),
                initializer=tf.zeros([tf.shape(x)[0], 4]),
            )
            return tf.gradients(states**2, [w])[0]

        feeds = {"x:0": np.zeros([2, 11, 4], np.float32)}
        self.assertEqual(self.products(network, v2, feeds=feeds), (3 * 11, ()))
        products, loops = self.products(network, v2, feeds=["x:0"])
        self.assertEqual(products, 3)
        self.assertLen(loops, 2)

    @parameterized.parameters(False, True)
    def test_names_loops_with_unknown_iterations(self, v2):
        def until(x, w):
            return tf1.while_loop(
                lambda a: tf.reduce_sum(a) < 5.0, lambda a: tf.matmul(a, w), [x], name="until"
            )

        self.assertEqual(self.products(until, v2), (1, ("'until'",)))

    def test_names_the_function_of_an_unknown_loop(self):
        @tf.function
        def function(x, w, steps):
            for _ in tf.range(steps):
                x = tf.matmul(x, w)
            return x

        # Arguments may be constants of any type.
        for dtype in (tf.bool, tf.float32, tf.int8):
            cast = tf.function(lambda a: tf.cast(a, tf.float32))
            number = self.products(
                lambda x, w, dtype=dtype, cast=cast: x @ w * cast(tf.cast(tf.constant(1), dtype)),
                True,
            )
            self.assertEqual(number, (1, ()))
        known = self.products(lambda x, w: function(x, w, tf.shape(x)[0] + 1), True)
        self.assertEqual(known, (5, ()))
        steps = self.products(lambda x, w: function(x, w, tf1.placeholder(tf.int32, [])), True)
        self.assertEqual(steps[0], 1)
        self.assertRegex(steps[1][0], "^'while' in function '__inference_function_")


class TensorSizeTest(tf.test.TestCase):
    def test_computes_bytes_of_tensors(self):
        with tf.Graph().as_default() as graph:
            tf1.placeholder(tf.float64, [2, None], name="a")
            tf1.placeholder(tf.string, [3], name="b")
            tf1.get_variable("v", [5], use_resource=True)
            tf1.placeholder(tf.bool, [7], name="c")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        sizes = tensor_sizes(op_graph)
        self.assertEqual(sizes.dtype, np.int64)
        found = {name: sizes[op_graph.tensor_index(name)] for name in ("a", "b", "v", "c")}
        self.assertEqual(found, {"a": 16, "b": 0, "v": 0, "c": 7})


class DeepCallsTest(tf.test.TestCase):
    def test_accepts_deeply_nested_calls(self):
        op_graph = OpGraph.from_graph_def(build_nested_functions(40), ["call"])
        expected = kernel_work(op_graph).touched_bytes  # The first use imports modules.
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(len(inspect.stack(0)) + 100)
        try:
            work = kernel_work(op_graph)
        finally:
            sys.setrecursionlimit(limit)
        self.assertAllEqual(work.touched_bytes, expected)
        self.assertAllEqual(work.touched_bytes, [16])


if __name__ == "__main__":
    tf.test.main()
