"""Tests that what a session accepts runs here, too, and computes the same."""

from __future__ import annotations

import collections
import os
import threading

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from tests.graph_parts import new_graph
from tf_placer.environments.failures import failure_of_error
from tf_placer.environments.loaded_graph import LoadedGraph, SessionFailed
from tf_placer.environments.probed_graph import ProbedGraph
from tf_placer.environments.tensor_file import read_tensors
from tf_placer.inputs.sources import Source, read_source

tf1 = tf.compat.v1


def loaded(source: Source, kind=LoadedGraph, target="", **settings):
    """What a worker makes of a step."""
    step = source.step
    config = tf1.ConfigProto(device_count={"CPU": 2}, **settings.pop("config", {}))
    return kind(
        source.graph_def,
        fetches=step.fetches,
        feeds=step.feeds,
        initializers=step.initializers,
        initializer_feeds=step.initializer_feeds,
        queue_runners=step.queue_runners,
        restored=step.restored,
        target=target,
        config=config,
        **settings,
    )


class AcceptedStepsTest(tf.test.TestCase):
    def run_steps(self, source: Source, count: int = 1, **settings) -> list[list]:
        """Fetches what steps compute in a session of their own."""
        with loaded(source, **settings).open({}, 20.0, lambda stage: None) as opened:
            return [opened.step()[1] for _ in range(count)]

    def failure(self, source: Source, count: int = 1) -> str:
        with self.assertRaises(SessionFailed) as caught:
            self.run_steps(source, count)
        error = caught.exception
        return failure_of_error(
            error.error_type, error.message, error.stage, error.steps_done
        ).message


class FeedsTest(AcceptedStepsTest):
    def test_what_only_initialisers_need_is_fed_to_them(self):
        with new_graph() as graph:
            start = tf1.placeholder(tf.float32, [2], name="start")
            rows = tf1.placeholder(tf.float32, [None, 2], name="rows")
            scale = tf1.placeholder(tf.float32, [], name="scale")
            variable = tf1.Variable(start * scale, name="v")
            iterator = tf1.data.make_initializable_iterator(
                tf.data.Dataset.from_tensor_slices(rows).repeat()
            )
            result = variable * scale + iterator.get_next()
        feeds = {start: [1.0, 2.0], rows: np.arange(6.0).reshape(3, 2), scale: 3.0}
        with tf1.Session(graph=graph) as session:
            session.run([variable.initializer, iterator.initializer], feeds)
            expected = [session.run(result, {scale: 3.0}) for _ in range(4)]
        for form in (graph, graph.as_graph_def()):
            named = {key.name: value for key, value in feeds.items()}
            source = read_source(form, result, named)
            self.assertSameElements(source.step.initializer_feeds, ["start:0", "rows:0", "scale:0"])
            self.assertSameElements(source.step.feeds, ["scale:0"])
            self.assertAllEqual([[each] for each in expected], self.run_steps(source, 4))

    def test_what_initialisers_need_is_made_up_if_it_can_be(self):
        with new_graph() as graph:
            start = tf1.placeholder(tf.float32, [2], name="start")
            variable = tf1.Variable(start, name="v")
            unknown = tf1.Variable(
                tf1.placeholder(tf.float32, [None], name="unknown"), validate_shape=False, name="u"
            )
            file = tf1.data.make_initializable_iterator(
                tf.data.TextLineDataset(tf1.placeholder(tf.string, [], name="file"))
            ).get_next()
            results = [variable.read_value(), unknown.read_value(), file]
        graph.clear_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
        source = read_source(graph, results[0])
        self.assertAllEqual([source.step.initializer_feeds["start:0"]], self.run_steps(source)[0])
        self.assertEmpty(source.step.feeds)
        with self.assertRaisesRegex(GraphError, "'unknown:0' has the shape .*pass one in feeds"):
            read_source(graph, results[1])
        with self.assertRaisesRegex(GraphError, "need the placeholder 'file', and its strings"):
            read_source(graph, results[2])
        path = self.create_tempfile(content="a\nb\n").full_path
        self.assertEqual(
            self.run_steps(read_source(graph, file, {"file": path}), 2), [[b"a"], [b"b"]]
        )

    def test_composite_feeds_and_nested_fetches_are_those_of_a_session(self):
        with new_graph() as graph:
            sparse = tf1.sparse_placeholder(tf.float32, [3, 4], name="sparse")
            ragged = tf1.ragged.placeholder(tf.int32, 1, name="ragged")
            slices = tf.IndexedSlices(
                tf1.placeholder(tf.float32, [None, 2]), tf1.placeholder(tf.int32, [None])
            )
            variable = tf1.get_variable("v", [2], use_resource=False)
            x, y = (tf1.placeholder(tf.float32, [], name=name) for name in "xy")
            Pair = collections.namedtuple("Pair", ["first", "second"])
            fetches = {
                "sum": tf.sparse.reduce_sum(sparse),
                "nested": Pair([ragged.with_values(ragged.values + 1), slices], (sparse, x + y)),
                "variable": variable * 2.0,
            }
            feeds = {
                sparse: tf1.SparseTensorValue([[0, 1], [2, 3]], [1.0, 2.0], [3, 4]),
                ragged: tf1.ragged.constant_value([[1, 2], [3]], dtype=np.int32),
                slices: ([[1.0, 2.0]], [1]),
                variable: [5.0, 6.0],
                (x, y): (1.0, 2.0),
            }
            source = read_source(graph, fetches, feeds)
            with tf1.Session(graph=graph) as session:
                values = session.run(fetches, feeds)
            plain = read_source(
                graph, fetches, feeds | {sparse: ([[0, 1], [2, 3]], [1, 2], [3, 4])}
            )
        expected = [
            values["sum"],
            *(values["nested"].first[0].row_splits, values["nested"].first[0].values),
            *values["nested"].first[1][:2],
            *values["nested"].second[0],
            values["nested"].second[1],
            values["variable"],
        ]
        for each in (source, plain):
            [actual] = self.run_steps(each)
            self.assertLen(actual, len(expected))
            for one, other in zip(expected, actual, strict=True):
                self.assertAllEqual(one, other)

    def test_parts_that_are_missing_are_named(self):
        with new_graph() as graph:
            sparse = tf1.sparse_placeholder(tf.float32, [3, 4], name="sparse")
            tf.sparse.reduce_sum(sparse, name="y")
            ragged = tf1.ragged.placeholder(tf.int32, 1, name="ragged")
            for feeds, message in (
                ({sparse: (1, 2)}, "SparseTensor of 'sparse/indices:0' has 3 parts, .* feed 2"),
                ({sparse: 1.0}, "SparseTensor of 'sparse/indices:0' cannot be fed 'float'"),
                ({ragged: [[1]]}, "RaggedTensor of 'ragged/.*' cannot be fed 'list'"),
                ({("x", "y"): (1,)}, "has 2 parts, its value 1"),
            ):
                with self.assertRaisesRegex(GraphError, message):
                    read_source(graph, "y:0", feeds)


class QueuesTest(AcceptedStepsTest):
    def files(self, count: int) -> list[str]:
        return [
            self.create_tempfile(f"file{i}", f"{2 * i}\n{2 * i + 1}\n").full_path
            for i in range(count)
        ]

    def pipeline(self, files: list[str], threads: int = 1, **options) -> tf.Graph:
        """Lines of files, in batches of two: three queues, one behind the other."""
        with new_graph() as graph:
            names = tf1.train.string_input_producer(files, **options)
            _, line = tf1.TextLineReader().read(names)
            number = tf.strings.to_number(line, tf.int32)
            weight = tf1.get_variable("weight", [], tf.int32, tf1.ones_initializer())
            shuffled = tf1.train.shuffle_batch([number], 2, 20, 3, num_threads=threads)
            tf.multiply(weight, tf1.train.batch([shuffled], 1)[0], name="y")
        return graph

    def test_a_step_takes_from_queues_that_runners_fill(self):
        graph = self.pipeline(self.files(3), threads=2, num_epochs=None)
        with graph.as_default():
            exported = tf1.train.export_meta_graph(graph=graph)
        before = graph.as_graph_def()
        for form in (graph, exported):
            source = read_source(form, "y:0")
            self.assertLen(source.step.queue_runners, 3)
            batches = self.run_steps(source, 12)
            self.assertEqual({int(n) for [batch] in batches for n in batch}, set(range(6)))
        self.assertEqual(graph.as_graph_def(), before)
        self.assertNotIn("QueueRunner", " ".join(each.name for each in threading.enumerate()))
        self.assertEmpty(read_source(graph, "weight:0").step.queue_runners)

    def test_an_input_that_ends_begins_again_in_a_new_session(self):
        source = read_source(self.pipeline(self.files(2), num_epochs=1), "y:0")
        self.assertIn("input_producer/limit_epochs/epochs/Assign", source.step.initializers)
        [*first, third] = self.run_steps(source, 3)
        self.assertEqual(sorted(int(n) for [batch] in first for n in batch), [0, 1, 2, 3])
        self.assertLen(third[0], 2)

    def test_an_error_of_a_thread_is_the_reason(self):
        source = read_source(self.pipeline(["/no/such/file"]), "y:0")
        self.assertRegex(self.failure(source), "in filling the queues: NotFoundError: .*such/file")
        path = self.create_tempfile("words", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n" * 3).full_path
        source = read_source(self.pipeline([path]), "y:0")
        self.assertRegex(self.failure(source, 30), "in filling the queues: InvalidArg.*nine")

    def test_a_full_queue_waits_for_longer_than_a_run_may_take(self):
        source = read_source(self.pipeline(self.files(2)), "y:0")
        graph = loaded(source, config={"operation_timeout_in_ms": 300})
        with graph.open({}, 20.0, lambda stage: None) as opened:
            opened.step()
            threading.Event().wait(0.6)
            for _ in range(30):
                opened.step()

    def test_values_are_the_same_however_many_threads_fill_a_queue(self):
        source = read_source(self.pipeline(self.files(4), threads=3), "y:0")
        probed = loaded(source, ProbedGraph)
        path = os.path.join(self.create_tempdir().full_path, "values")
        values = []
        for _ in range(2):
            probed.write_values({}, 4, path, 20.0, lambda stage: None)
            values.append(read_tensors(path))
        for name, value in values[0].items():
            self.assertAllEqual(value, values[1][name])
        self.assertLen({int(n) for k in range(1, 5) for n in values[0][f"y:0@{k}"]}, 8)

    def test_sessions_take_turns(self):
        graph = loaded(read_source(self.pipeline(self.files(2)), "y:0"))
        for label in "ab":
            graph.open_session(label, {}, 1, 20.0, lambda stage: None)
        for _ in range(5):
            for label in "ab":
                self.assertLen(graph.run_steps(label, 3)["step_secs"], 3)
        graph.close_sessions()

    def test_a_queue_that_nothing_fills_is_refused(self):
        with new_graph() as graph:
            queue = tf.queue.FIFOQueue(4, [tf.float32], [[]], name="queue")
            tf.identity(queue.dequeue(), name="y")
            tf.zeros([], name="no_queue")
            put = queue.enqueue(1.0, name="put")
            with tf.control_dependencies([put]):
                tf.identity(queue.dequeue(), name="both")
        message = "'queue_Dequeue' waits for the queue 'queue', which nothing fills in the step"
        for form in (graph, graph.as_graph_def()):
            with self.assertRaisesRegex(GraphError, message):
                read_source(form, "y")
            self.assertEqual(read_source(form, "no_queue").step.fetches, ("no_queue",))
            self.assertEqual(self.run_steps(read_source(form, "both:0")), [[1.0]])
            self.assertEqual(self.run_steps(read_source(form, "y:0", initializers="put")), [[1.0]])
            self.assertEqual(self.run_steps(read_source(form, "y:0", {"y": 2.0})), [[2.0]])
        with graph.as_default():
            tf1.train.add_queue_runner(tf1.train.QueueRunner(queue, [put]))
        self.assertEqual(self.run_steps(read_source(graph, "y:0"), 9), [[1.0]] * 9)
        with self.assertRaisesRegex(GraphError, message):
            read_source(graph.as_graph_def(), "y:0")


if __name__ == "__main__":
    tf.test.main()
