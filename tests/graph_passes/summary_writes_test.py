from __future__ import annotations

import os

import tensorflow as tf

from graph_passes.summary_writes import drop_summary_writes
from tests import graph_parts

tf1 = tf.compat.v1


class SummaryWritesTest(tf.test.TestCase):
    def build_graph_with_writer(self, directory: str) -> tf1.GraphDef:
        """Builds a step that counts, and writes the count in every second step."""
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=True):
            count = tf1.get_variable("count", initializer=0, use_resource=True)
            writer = tf.summary.create_file_writer(directory)
            tf.group(count.initializer, writer.init(), name="init")
            number = count.assign_add(1)
            step = tf.cast(number, tf.int64)
            with writer.as_default(step=step), tf.summary.record_if(number % 2 == 0):
                tf.summary.write("count", number)
            with tf.control_dependencies(tf1.summary.all_v2_summary_ops()):
                written = tf.identity(number)
            with tf.control_dependencies([written, writer.flush()]):
                tf.identity(number, name="y")
        return graph.as_graph_def()

    def run_steps(self, graph_def: tf1.GraphDef) -> list[int]:
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
            with tf1.Session(graph=graph) as session:
                session.run("init")
                return [session.run("y:0") for _ in range(3)]

    def test_steps_compute_the_same_and_write_nothing(self):
        directory = os.path.join(self.create_tempdir().full_path, "events")
        graph_def = self.build_graph_with_writer(directory)
        dropped = tf1.GraphDef()
        dropped.CopyFrom(graph_def)
        drop_summary_writes(dropped)
        self.assertEqual(self.run_steps(dropped), [1, 2, 3])
        self.assertFalse(os.path.exists(directory))
        self.assertEqual([n.name for n in dropped.node], [n.name for n in graph_def.node])
        # The original graph writes, so the test can fail.
        self.assertEqual(self.run_steps(graph_def), [1, 2, 3])
        self.assertLen(os.listdir(directory), 1)

    def test_graph_without_writers_is_unchanged(self):
        with tf.Graph().as_default() as graph:
            tf1.summary.scalar("a", tf.constant(1.0))
        graph_def = graph.as_graph_def()
        drop_summary_writes(graph_def)
        self.assertEqual(graph_def, graph.as_graph_def())


if __name__ == "__main__":
    tf.test.main()
