from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.restricted_colocation import VARIABLE_NAME_ATTR
from graph_passes.restrictions import match_names
from tests.tf_placer.functions import two_devices
from tf_placer.environments.restored_variables import add_assignments
from tf_placer.functions.traced_call import TracedCall, is_traceable, trace_call

tf1 = tf.compat.v1
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def run_in_session(traced: TracedCall, steps: int) -> list[list[np.ndarray]]:
    """Runs a step as the workers of a search do."""
    step = traced.workload.step
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(traced.workload.graph_def, name="")
        assignments = add_assignments(graph, step.restored)
        with tf1.Session(graph=graph) as session:
            session.run([graph.get_operation_by_name(name) for name in step.initializers])
            for operations, feeds in assignments:
                session.run(operations, feeds)
            tensors = [name for name in step.fetches if ":" in name]
            others = [graph.get_operation_by_name(n) for n in step.fetches if ":" not in n]
            return [session.run([tensors, others], step.feeds)[0] for _ in range(steps)]


class TracedStepTest(tf.test.TestCase):
    def test_a_session_computes_what_the_function_does(self):
        weights = tf.Variable(tf.ones([3, 3]))
        count = tf.Variable(0, dtype=tf.int64)
        scale = tf.constant(0.1)

        @tf.function
        def step(x, labels):
            with tf.GradientTape() as tape:
                error = tf.tanh(x @ weights) - labels["y"]
                loss = tf.reduce_sum(error**2)
            weights.assign_sub(scale * tape.gradient(loss, weights))
            count.assign_add(1)
            return {"loss": loss, "error": error}

        arguments = (X, {"y": np.ones([2, 3], np.float32)})
        traced = trace_call(step, arguments)
        found = run_in_session(traced, 3)
        self.assertEqual(count.numpy(), 0, "tracing runs nothing")
        self.assertAllEqual(weights, np.ones([3, 3]))
        self.assertLen(traced.workload.step.feeds, 3)  # the scale, too
        for values in found:
            expected = tf.nest.flatten(step(tf.constant(X), {"y": tf.ones([2, 3])}))
            self.assertAllClose(values, [each.numpy() for each in expected], rtol=1e-6)
        self.assertEqual({v.ref() for v in traced.variables.values()}, {weights.ref(), count.ref()})

    def test_functions_that_are_called_are_part_of_it(self):
        @tf.function
        def double(x):
            return x * 2.0

        traced = trace_call(tf.function(lambda x: double(x) + double(double(x))), X)
        types = [node.op for node in traced.workload.graph_def.node]
        self.assertEqual(types.count("Mul"), 3)
        self.assertFalse([op for op in types if op.endswith("PartitionedCall")])
        called = tf.function(lambda x: double(x) + 1.0)
        self.assertAllEqual(called(X), X * 2.0 + 1.0)
        types = [node.op for node in called.get_concrete_function(X).graph.as_graph_def().node]
        self.assertLen([op for op in types if op.endswith("PartitionedCall")], 1)

    def test_inlining_converts_arguments_and_control_flow(self):
        @tf.function
        def positive(x):
            if tf.reduce_sum(x) > 0:  # AutoGraph makes this a conditional
                return x
            return -x

        @tf.function
        def double_array(x):
            x.ref()  # arrays have none
            return x * 2

        @tf.function(input_signature=[tf.TensorSpec([], tf.float64)])
        def halve(x):
            return x / 2

        def step(x):
            return positive(x), double_array(np.ones([2])), halve(3)

        traced = trace_call(tf.function(step, autograph=False), X)
        self.assertNotIn("Call", " ".join(node.op for node in traced.workload.graph_def.node))
        found = run_in_session(traced, 1)[0]
        self.assertEqual([each.tolist() for each in found], [X.tolist(), [2, 2], 1.5])

    def test_a_function_that_cannot_be_inlined_is_one_operation(self):
        @tf.function
        def alone(x):
            if tf.compat.v1.get_default_graph().name != "alone":
                raise ValueError("it wants a graph of its own")
            return x

        compiled = tf.function(lambda x: x + 1.0, jit_compile=True)
        for called in (alone, compiled):
            traced = trace_call(tf.function(lambda x, f=called: f(x) + 1.0), X)
            types = [node.op for node in traced.workload.graph_def.node]
            self.assertLen([op for op in types if op.endswith("PartitionedCall")], 1)

    def test_the_first_call_may_make_variables(self):
        made = []

        @tf.function
        def step(x):
            if not made:
                made.append(tf.Variable(tf.ones([3])))
            return x * made[0]

        traced = trace_call(step, X)
        self.assertEqual([v.ref() for v in traced.variables.values()], [made[0].ref()])
        self.assertAllEqual(run_in_session(traced, 1)[0][0], X)

    def test_a_concrete_function_is_taken_as_it_is(self):
        @tf.function
        def double(x):
            return x * 2.0

        traced = trace_call(double.get_concrete_function(tf.TensorSpec([None, 3])), (X,))
        self.assertAllEqual(run_in_session(traced, 1)[0][0], X * 2)
        self.assertTrue(is_traceable(double))
        self.assertFalse(is_traceable(tf.Graph()))
        self.assertFalse(is_traceable(lambda x: x))

    def test_feeds_the_next_elements_of_an_iterator_without_consuming_them(self):
        other = iter(tf.data.Dataset.from_tensors({"b": [2.0], "a": [3.0]}).repeat())

        def numbers():
            return tf.data.Dataset.range(8).shuffle(8, seed=1).repeat().batch(2)

        def sums(iterator):
            pairs = next(iterator), next(iterator)
            last = next(other)
            return pairs[0] + 10 * pairs[1], last["a"] - last["b"]

        step = tf.function(sums)
        iterator, expected = iter(numbers()), iter(numbers())
        for target in (step, step.get_concrete_function(iterator)):
            traced = trace_call(target, iterator)
            self.assertLen(traced.workload.step.feeds, 4)
            self.assertEqual({*traced.kept.values()}, {other._iterator_resource.device})
            [found] = run_in_session(traced, 1)
            self.assertAllEqual(found[0], next(expected) + 10 * next(expected))
            self.assertAllEqual(found[1], [1.0])
            self.assertAllEqual(step(iterator)[0], found[0])
        # Data sets shuffle in the order in which they would have.
        rest = [[next(each).numpy().tolist() for _ in range(20)] for each in (iterator, expected)]
        self.assertEqual(*rest)

    def test_refuses_iterators_that_cannot_be_read_in_advance(self):
        def one(iterator):
            return next(iterator) + 1

        def total(iterator):
            result = tf.constant(0, tf.int64)
            for each in iterator:
                result += each
            return result

        ranges = tf.data.Dataset.range(3)
        ragged = iter(ranges.map(tf.range).ragged_batch(2))
        generated = tf.data.Dataset.from_generator(lambda: iter(range(3)), tf.int64)
        started = iter(generated.batch(1))
        next(started)
        for function, iterator, message in (
            (one, iter(ranges.take(0)), "the iterator 'iterator' has no more elements"),
            (one, ragged, "the iterator 'iterator' gives sparse or ragged tensors"),
            (one, started, r"the iterator 'iterator' cannot be saved \(Gen.* checkpointing\):"),
            (total, iter(ranges), "'iterator' is a resource .* outside of loops"),
        ):
            with self.subTest(message), self.assertRaisesRegex(GraphError, message):
                trace_call(tf.function(function), iterator)

    def test_tables_are_filled_with_what_is_in_them(self):
        numbers = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), default_value=0
        )
        vectors = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, [0.0, 0.0])
        vectors.insert(np.array([2, 1]), [[3.0, 4.0], [1.0, 2.0]])
        step = tf.function(lambda x: vectors.lookup(tf.cast(numbers.lookup(x), tf.int64)))
        traced = trace_call(step, np.array(["b", "a", "c"]))
        self.assertAllEqual(run_in_session(traced, 1)[0][0], [[3, 4], [1, 2], [0, 0]])
        found = {node.name: node for node in traced.workload.graph_def.node}
        self.assertEqual({found[name].op for name in traced.kept}, {"LookupTableFindV2"})
        self.assertLen(traced.kept, 2)
        # The order of what a table gives is chance.
        keys = [n.attr["value"].tensor for name, n in found.items() if name.endswith("placer_keys")]
        self.assertIn([1, 2], [tf.make_ndarray(each).tolist() for each in keys])

    def test_summaries_are_not_written_by_a_search(self):
        folder = self.create_tempdir().full_path
        writer = tf.summary.create_file_writer(folder)
        total = tf.Variable(0.0)

        @tf.function
        def step(x):
            total.assign_add(tf.reduce_sum(x))
            with writer.as_default(step=1):
                tf.summary.write("total", total)
                tf.summary.write("x", x)
            return total + 1.0

        traced = trace_call(step, X)
        types = {node.name: node.op for node in traced.workload.graph_def.node}
        kept = {types[name] for name in traced.kept}
        self.assertEqual(kept, {"WriteSummary", "FlushSummaryWriter"})
        self.assertAllEqual(run_in_session(traced, 2), [[16.0], [31.0]])

    def test_names_do_not_depend_on_what_the_process_did_before(self):
        weights = tf.Variable(tf.ones([3, 2]))
        small, large, text = tf.constant(2.0), tf.ones([3, 2, 500]), tf.constant("three")

        def lookup(x):
            rows = tf.nn.embedding_lookup(weights, tf.cast(x, tf.int32))
            return tf.cond(x[0, 0] > 0, lambda: rows * small, lambda: rows) + tf.reduce_sum(large)

        step = tf.function(lambda x: lookup(x) + tf.cast(tf.strings.length(text), tf.float32))
        graphs = []
        for _ in range(2):
            traced = trace_call(step, X % 3)
            graphs.append([(node.name, node.op) for node in traced.workload.graph_def.node])
            self.assertAllEqual(run_in_session(traced, 1)[0][0], step(X % 3))
        self.assertEqual(*graphs)

    def test_finds_variables_missing_in_the_function(self):
        weights, mean, square = (tf.Variable(tf.fill([3], value)) for value in (1.0, 0.5, 0.25))

        @tf.function
        def step(x):
            tf.raw_ops.ResourceApplyAdam(
                **{"var": weights.handle, "m": mean.handle, "v": square.handle},
                **{"beta1_power": 0.9, "beta2_power": 0.9, "beta1": 0.9, "beta2": 0.9},
                **{"lr": 0.1, "epsilon": 1e-7, "grad": tf.reduce_sum(x, 0) * weights},
            )
            return weights.read_value()

        traced = trace_call(step, X)
        self.assertEqual(
            {each.ref() for each in traced.variables.values()},
            {each.ref() for each in (weights, mean, square)},
        )
        for values in run_in_session(traced, 2):
            self.assertAllClose(values[0], step(X))

    def test_variables_of_a_keras_model_keep_their_names(self):
        layers = [tf.keras.Input([3]), tf.keras.layers.Dense(1, name="last")]
        model = tf.keras.Sequential(layers, name="net")
        model.compile("adam", "mse")
        graph = trace_call(model, (X, X[:, :1])).workload.graph_def
        names = [node.attr[VARIABLE_NAME_ATTR].s.decode() for node in graph.node]
        found = [name.rpartition("/")[2] for name in match_names("*last*", names)]
        layer = ["last_kernel_momentum", "last_kernel_velocity", "kernel"]
        layer += ["last_bias_momentum", "last_bias_velocity", "bias"]
        self.assertCountEqual([name.removeprefix("net_") for name in found], layer)

    def test_a_variable_that_is_passed_twice_is_one(self):
        @tf.function
        def add(to, other):
            to.assign_add(2.0 * other)
            return to + other

        first, second = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])

        @tf.function
        def step(a, b):
            total = add(a, b)
            for _ in range(2):
                first.assign_add(total)
                total += a * first
            return tf.reduce_sum(total + b), total

        for example in ((second, second), (second, first), (first, first)):
            start = first.numpy(), second.numpy()
            for target in (step, step.get_concrete_function(*example)):
                first.assign(start[0])
                second.assign(start[1])
                traced = trace_call(target, example)
                variables = {each.ref() for each in (first, *example)}
                self.assertCountEqual([v.ref() for v in traced.variables.values()], variables)
                for values in run_in_session(traced, 3):
                    expected = step(*example)
                    self.assertAllClose(values, [each.numpy() for each in expected], rtol=1e-6)

    def test_removes_devices_of_variables_from_operations(self):
        first, second = tf.Variable(1.0), tf.Variable(2.0)

        @tf.function
        def step(x):
            with tf.device(first.device):
                total = tf.reduce_sum(x)
            tf.group(first.assign(total), second.assign(total), name="both")
            with tf.device("CPU:1"):
                return total + 1.0

        graph = trace_call(step, X).workload.graph_def
        devices = {node.name: node.device for node in graph.node if node.device}
        self.assertEqual(devices, {"add": "/device:CPU:1", "add/y": "/device:CPU:1"})

    def test_refuses_unsupported_functions(self):
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a"], [1]), default_value=0
        )
        words = tf.data.Dataset.from_tensors(["a"])
        one = tf.function(lambda x: x + 1.0)
        for function, example, message in (
            (
                tf.function(lambda x: tf.cond(x == "a", lambda: table.lookup(x), lambda: 2)),
                np.array("a"),
                "only variables, tensors, tables",
            ),
            (tf.function(lambda x: x.reduce("", lambda a, b: a + b)), words, "'x' is a data set"),
            (tf.function(lambda x: x, jit_compile=True), X, "without jit_compile"),
            (one, (X, X), "cannot be called with this example"),
            (one.get_concrete_function(X), (X, X), "takes 1 tensors, but the example has 2"),
            (tf.function(lambda x: None), X, "there is no step"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                trace_call(function, example)

    def test_refuses_contexts_that_change_tracing(self):
        one = tf.function(lambda x: x + 1.0)
        for context, message in (
            (tf.Graph().as_default(), r"neither inside of `with graph.as_default\(\)`"),
            (tf.init_scope(), r"no gradients inside of tf.init_scope\(\)"),
        ):
            with context, self.assertRaisesRegex(GraphError, message):
                trace_call(one, X)

    def test_ignores_devices_and_strategies_around_the_call(self):
        for context in (
            tf.device("/CPU:0"),
            tf.distribute.OneDeviceStrategy("CPU:0").scope(),
            tf.name_scope("mine"),
        ):
            with context:
                step = trace_call(tf.function(lambda x: x + 1.0), X)
            self.assertEqual({node.device for node in step.workload.graph_def.node}, {""})


if __name__ == "__main__":
    del two_devices
    tf.test.main()
