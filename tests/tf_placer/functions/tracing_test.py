from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework.func_graph import FuncGraph

from graph_passes.errors import GraphError
from tests.tf_placer.functions import two_devices
from tf_placer.functions.traced_call import trace_call

X = tf.ones([2])
# Nobody waits longer where something is wrong.
LONG_SECS = 20.0


@tf.function
def inner(x: tf.Tensor) -> tf.Tensor:
    return tf.sin(x)


def types_of(function: Callable[..., Any]) -> list[str]:
    graph = tf.function(function, autograph=False).get_concrete_function(X).graph
    return [operation.type for operation in graph.get_operations()]


def methods() -> tuple[Any, ...]:
    replica = type(tf.distribute.get_replica_context())
    return FuncGraph.capture, Function.__call__, replica.all_reduce


class TracingTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.before = methods()

    def check_methods(self):
        self.assertEqual(methods(), self.before)
        self.assertIn("PartitionedCall", types_of(lambda x: inner(x) + 1.0))

    def test_overlapping_traces_restore_tensorflow(self):
        is_inside, is_first_done = threading.Event(), threading.Event()
        traces = {"first": 0, "second": 0}

        def first(x):
            traces["first"] += 1
            if traces["first"] == 2:  # The first trace is TensorFlow's own.
                thread.start()
                self.assertTrue(is_inside.wait(LONG_SECS))
            return inner(x)

        def second(x):
            traces["second"] += 1
            if traces["second"] == 2:
                is_inside.set()
                self.assertTrue(is_first_done.wait(LONG_SECS))
            return inner(x)

        found = []

        def read(function):
            graph_def = trace_call(tf.function(function, autograph=False), X).workload.graph_def
            found.append({node.op for node in graph_def.node})

        thread = threading.Thread(target=read, args=(second,))
        read(first)
        is_first_done.set()
        thread.join(LONG_SECS)
        self.assertEqual(found, [{"Placeholder", "Sin", "Identity"}] * 2)
        self.check_methods()

    def test_does_not_affect_concurrent_traces(self):
        offset = tf.ones([2])

        def add(x):
            return inner(x) + tf.compat.v1.get_default_graph().capture(offset)

        def other():
            graph = tf.function(add).get_concrete_function(X).graph
            calls.append([each.type for each in graph.get_operations()].count("PartitionedCall"))
            names.extend(each.name for each in graph.get_operations())
            total = tf.distribute.get_replica_context().all_reduce("sum", tf.constant(2.0))
            sums.append(float(total))

        def step(x):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(LONG_SECS)
            return add(x)

        calls, names, sums = [], [], []
        traced = trace_call(tf.function(step, autograph=False), X)
        self.assertEqual(calls, [1, 1])
        self.assertFalse([name for name in names if name.startswith("captured")])
        self.assertEqual(sums, [2.0, 2.0])
        self.assertIn("captured", [node.name for node in traced.workload.graph_def.node])
        self.check_methods()

    def test_a_failure_restores_tensorflow(self):
        def fails(x):
            traces.append(x)
            if len(traces) > 1:
                raise ValueError("it fails")
            return x

        traces = []
        with self.assertRaisesRegex(GraphError, "cannot be traced with this example: it fails"):
            trace_call(tf.function(fails, autograph=False), X)
        self.check_methods()

    def test_keeps_methods_that_other_code_replaced(self):
        original = Function.__call__

        def count_call(self, *args, **kwargs):
            calls.append(self)
            return original(self, *args, **kwargs)

        def step(x):
            Function.__call__ = count_call
            return inner(x)

        calls = []
        self.addCleanup(setattr, Function, "__call__", original)
        trace_call(tf.function(step, autograph=False), X)
        self.assertIs(Function.__call__, count_call)
        tf.function(lambda x: x)(X)
        self.assertNotEmpty(calls)

    def test_arguments_of_functions_may_have_any_name(self):
        named = tf.function(lambda call, function: tf.atan2(call, function))
        step = tf.function(lambda x: named(call=x, function=x), autograph=False)
        graph_def = trace_call(step, X).workload.graph_def
        self.assertIn("Atan2", [node.op for node in graph_def.node])

    def test_loops_and_branches_are_traced_alike(self):
        large = tf.ones([2, 500])

        def step(x):
            def body(index, total):
                return index + 1, total + inner(total) + tf.reduce_sum(large)

            return tf.while_loop(lambda index, _: index < 3, body, [0, x])[1]

        bodies = []
        for _ in range(2):
            graph_def = trace_call(tf.function(step, autograph=False), X).workload.graph_def
            library = graph_def.library.function
            self.assertFalse(
                [n for f in library for n in f.node_def if n.op.endswith("PartitionedCall")]
            )
            bodies.append([[node.name for node in each.node_def] for each in library])
        self.assertCountEqual(*bodies)


if __name__ == "__main__":
    del two_devices
    tf.test.main()
