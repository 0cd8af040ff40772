"""Tests of tracking the graphs that sessions have received, and of moving sessions."""

from __future__ import annotations

import tensorflow as tf

from graph_passes.errors import GraphError
from tests.graph_parts import new_graph
from tf_placer.machines.machine import Device, Machine
from tf_placer.scripts.sent_graphs import (
    SentGraphs,
    check_runs_elsewhere,
    check_sent_at_once,
    is_session_of,
    move_session,
)

tf1 = tf.compat.v1
_DEVICES = (Device("/device:CPU:0", "CPU"), Device("/device:GPU:0", "GPU"))
_HERE, _LOCAL = Machine("attached", "attached", _DEVICES), Machine("local:2", "local", _DEVICES)


class SentGraphsTest(tf.test.TestCase):
    def test_counts_every_extension_of_open_sessions(self):
        sent = SentGraphs()
        with new_graph() as graph:
            tf.constant(1.0)
            one, other = tf1.Session(), tf1.Session()
            self.assertEqual(sent.note(one), [])
            self.assertIsNone(sent.note(one))
            tf.constant(2.0)
            self.assertEqual(sent.note(other), [1])
            self.assertEqual(sent.note(one), [1, 2])
        self.assertCountEqual(sent.counts(graph), [1, 2, 2])
        self.assertCountEqual(sent.sessions(graph), [one, other])
        one.close()
        self.assertEqual(sent.counts(graph), [2])

    def test_a_part_of_a_step_may_be_known_where_the_session_moves_without_losing_anything(self):
        with new_graph() as graph:
            x = tf1.placeholder(tf.float32, [], name="x")
            tf.negative(x)
            tf1.get_variable("kept", initializer=1.0, use_resource=True)
            y = tf.square(x, name="y")
        names = [operation.name for operation in graph.get_operations()]
        first, whole = names.index("kept"), len(names)
        check_sent_at_once(graph, [y.name], [2, whole], _LOCAL)
        with self.assertRaisesRegex(GraphError, "ran 'x' before 'y' was in the graph"):
            check_sent_at_once(graph, [y.name], [2], _HERE)
        with self.assertRaisesRegex(GraphError, "ran 'kept.*' before 'y' was in the graph"):
            check_sent_at_once(graph, [y.name], [first + 2], _LOCAL)

    def test_refuses_graphs_with_python_calls(self):
        with new_graph() as graph:
            data = tf.data.Dataset.range(3)
            data.map(lambda i: tf.numpy_function(lambda v: v, [i], tf.int64))
        check_runs_elsewhere(graph.as_graph_def(), _HERE)
        with self.assertRaisesRegex(GraphError, "calls a Python function .*--machine attached"):
            check_runs_elsewhere(graph.as_graph_def(), _LOCAL)

    def test_a_session_moves_with_its_graph_and_its_configuration(self):
        server = tf1.train.Server({"there": ["localhost:0"]})
        with new_graph():
            v = tf1.get_variable("v", initializer=2.0, use_resource=True)
            doubled = v.read_value() * 2.0
            # Sessions in this process have no job of this name.
            with tf.device("/job:there/task:0"):
                there = tf.identity(doubled)
            config = tf1.ConfigProto(operation_timeout_in_ms=60_000)
            with tf1.Session(config=config) as session:
                self.assertTrue(is_session_of(_LOCAL, session))
                move_session(session, server.target)
                self.assertFalse(is_session_of(_LOCAL, session))
                address = server.target
                self.assertTrue(is_session_of(Machine(address, "cluster", _DEVICES), session))
                session.run(v.initializer)
                self.assertEqual(session.run(there), 4.0)
                self.assertEqual(session._config.operation_timeout_in_ms, 60_000)
                # Variables are its own.
                with tf1.Session(server.target) as other:
                    self.assertFalse(other.run(v.is_initialized()))


if __name__ == "__main__":
    tf.test.main()
