"""Tests that what a session accepts runs here, too, and computes the same."""

from __future__ import annotations

import collections
import os
import pathlib
import threading
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

from graph_passes.errors import GraphError
from tests.graph_parts import control_flow, new_graph
from tf_placer.environments.failures import classify_error
from tf_placer.environments.loaded_graph import LoadedGraph, SessionFailed
from tf_placer.environments.probed_graph import ProbedGraph
from tf_placer.environments.tensor_file import read_tensors
from tf_placer.inputs.python_functions import (
    check_no_python_functions,
    check_python_functions_are_here,
)
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.machines.machine import Machine

tf1 = tf.compat.v1
_WORDS_BY_LINE = (
    tf.string,
    tf.lookup.TextFileIndex.WHOLE_LINE,
    tf.int64,
    tf.lookup.TextFileIndex.LINE_NUMBER,
)


def load_source(workload: Workload, kind=LoadedGraph, target="", **settings):
    """Loads a step as a worker does."""
    step = workload.step
    config = tf1.ConfigProto(device_count={"CPU": 2}, **settings.pop("config", {}))
    return kind(
        workload.graph_def,
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
    def run_steps(self, workload: Workload, count: int = 1, **settings) -> list[list]:
        """Fetches what steps compute in a session of their own."""
        with load_source(workload, **settings).open({}, 20.0, lambda stage: None) as opened:
            return [opened.step()[1] for _ in range(count)]

    def failure(self, workload: Workload, count: int = 1) -> str:
        with self.assertRaises(SessionFailed) as caught:
            self.run_steps(workload, count)
        error = caught.exception
        return classify_error(
            error.error_type, error.message, error.stage, error.steps_done
        ).message


class FeedsTest(AcceptedStepsTest):
    def test_feeds_initializers_their_own_placeholders(self):
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
            workload = read_workload(form, result, named)
            self.assertSameElements(
                workload.step.initializer_feeds, ["start:0", "rows:0", "scale:0"]
            )
            self.assertSameElements(workload.step.feeds, ["scale:0"])
            self.assertAllEqual([[each] for each in expected], self.run_steps(workload, 4))

    def test_makes_up_missing_feeds_of_initializers(self):
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
        workload = read_workload(graph, results[0])
        self.assertAllEqual(
            [workload.step.initializer_feeds["start:0"]], self.run_steps(workload)[0]
        )
        self.assertEmpty(workload.step.feeds)
        with self.assertRaisesRegex(
            GraphError, "'unknown:0' has the shape .*pass one in feed_dict"
        ):
            read_workload(graph, results[1])
        with self.assertRaisesRegex(GraphError, "need the placeholder 'file', and its strings"):
            read_workload(graph, results[2])
        path = self.create_tempfile(content="a\nb\n").full_path
        self.assertEqual(
            self.run_steps(read_workload(graph, file, {"file": path}), 2), [[b"a"], [b"b"]]
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
            graph.finalize()
            workload = read_workload(graph, fetches, feeds)
            with tf1.Session(graph=graph) as session:
                values = session.run(fetches, feeds)
            plain = read_workload(
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
        for each in (workload, plain):
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
                    read_workload(graph, "y:0", feeds)


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
            workload = read_workload(form, "y:0")
            self.assertLen(workload.step.queue_runners, 3)
            # Enough steps to see every number, although the shuffle buffer holds 20 of them back.
            batches = self.run_steps(workload, 50)
            self.assertEqual({int(n) for [batch] in batches for n in batch}, set(range(6)))
        self.assertEqual(graph.as_graph_def(), before)
        self.assertNotIn("QueueRunner", " ".join(each.name for each in threading.enumerate()))
        self.assertEmpty(read_workload(graph, "weight:0").step.queue_runners)

    def test_an_input_that_ends_begins_again_in_a_new_session(self):
        workload = read_workload(self.pipeline(self.files(2), num_epochs=1), "y:0")
        self.assertIn("input_producer/limit_epochs/epochs/Assign", workload.step.initializers)
        [*first, third] = self.run_steps(workload, 3)
        self.assertEqual(sorted(int(n) for [batch] in first for n in batch), [0, 1, 2, 3])
        self.assertLen(third[0], 2)

    def test_an_error_of_a_thread_is_the_reason(self):
        workload = read_workload(self.pipeline(["/no/such/file"]), "y:0")
        self.assertRegex(
            self.failure(workload), "in filling the queues: NotFoundError: .*such/file"
        )
        path = self.create_tempfile("words", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n" * 3).full_path
        workload = read_workload(self.pipeline([path]), "y:0")
        self.assertRegex(self.failure(workload, 30), "in filling the queues: InvalidArg.*nine")

    def test_a_full_queue_waits_for_longer_than_a_run_may_take(self):
        workload = read_workload(self.pipeline(self.files(2)), "y:0")
        graph = load_source(workload, config={"operation_timeout_in_ms": 300})
        with graph.open({}, 20.0, lambda stage: None) as opened:
            opened.step()
            threading.Event().wait(0.6)
            for _ in range(30):
                opened.step()

    def test_values_are_the_same_however_many_threads_fill_a_queue(self):
        workload = read_workload(self.pipeline(self.files(4), threads=3), "y:0")
        probed = load_source(workload, ProbedGraph)
        path = os.path.join(self.create_tempdir().full_path, "values")
        values = []
        for _ in range(2):
            probed.write_values({}, 4, path, 20.0, lambda stage: None)
            values.append(read_tensors(path))
        for name, value in values[0].items():
            self.assertAllEqual(value, values[1][name])
        self.assertLen({int(n) for k in range(1, 5) for n in values[0][f"y:0@{k}"]}, 8)

    def test_steps_begin_with_full_queues(self):
        with new_graph() as graph:
            slow = tf.reduce_sum(tf.random.uniform([2_000_000]))
            first = tf1.train.batch([slow], 1, capacity=2)
            tf1.train.batch([first], 2, capacity=5, name="y")
        graph = load_source(read_workload(graph, "y:0"))
        with graph.open({}, 20.0, lambda stage: None) as opened:
            sizes = [f"{name}/fifo_queue_Size:0" for name in ("batch", "y")]
            for _ in range(3):
                opened.wait_for_input()
                self.assertEqual(opened.session.run(sizes), [2, 5])
                opened.step()
        result = graph.trace({}, 3, 1, None, 20.0, lambda stage: None)
        self.assertLen(result["step_secs"], 2)
        self.assertIn("y", result["operations"])

    def test_a_reader_and_queues_that_share_a_name_wait_for_it(self):
        with new_graph() as graph:
            names = tf1.train.string_input_producer(self.files(1), shuffle=False)
            tf.identity(tf1.TextLineReader().read(names)[1], name="line")
            ends = [tf.queue.FIFOQueue(2, [tf.int32], [[]], shared_name="one") for _ in range(2)]
            tf1.train.add_queue_runner(tf1.train.QueueRunner(ends[0], [ends[0].enqueue(7)]))
            tf.identity(ends[1].dequeue(), name="other_end")
        workload = read_workload(graph, "line:0")
        self.assertEqual([each.queue for each in workload.step.queue_runners], ["input_producer"])
        self.assertEqual(self.run_steps(workload, 3), [[b"0"], [b"1"], [b"0"]])
        self.assertEqual(self.run_steps(read_workload(graph, "other_end:0"), 2), [[7], [7]])

    def test_sessions_take_turns(self):
        graph = load_source(read_workload(self.pipeline(self.files(2)), "y:0"))
        for label in "ab":
            graph.open_session(label, {}, 1, 20.0, lambda stage: None)
        for _ in range(5):
            for label in "ab":
                self.assertLen(graph.run_steps(label, 3)["step_secs"], 3)
        graph.close_sessions()

    def test_a_queue_in_a_branch_that_is_not_taken_needs_nothing(self):
        for v2 in (False, True):
            with new_graph() as graph, control_flow(v2=v2):
                queue = tf.queue.FIFOQueue(4, [tf.float32], [[]], name="queue")
                waits = tf1.placeholder(tf.bool, [], name="waits")
                tf.cond(waits, queue.dequeue, lambda: 1.0, name="y")
                tf.identity(graph.get_operations()[-1].outputs[0], name="result")
            self.assertEqual(self.run_steps(read_workload(graph, "result:0")), [[1.0]])

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
                read_workload(form, "y")
            self.assertEqual(read_workload(form, "no_queue").step.fetches, ("no_queue",))
            self.assertEqual(self.run_steps(read_workload(form, "both:0")), [[1.0]])
            self.assertEqual(
                self.run_steps(read_workload(form, "y:0", initializers="put")), [[1.0]]
            )
            self.assertEqual(self.run_steps(read_workload(form, "y:0", {"y": 2.0})), [[2.0]])
        with graph.as_default():
            tf1.train.add_queue_runner(tf1.train.QueueRunner(queue, [put]))
        self.assertEqual(self.run_steps(read_workload(graph, "y:0"), 9), [[1.0]] * 9)
        with self.assertRaisesRegex(GraphError, message):
            read_workload(graph.as_graph_def(), "y:0")


def training() -> tf.Graph:
    """Momentum on one batch: resource and reference variables, and a counter of its own."""
    with new_graph() as graph:
        x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        first = tf1.get_variable("first", [2, 3], use_resource=True)
        second = tf1.get_variable("scope/second", [3, 1], use_resource=False)
        calls = tf1.get_variable(
            "calls",
            [],
            trainable=False,
            collections=[tf1.GraphKeys.LOCAL_VARIABLES],
            use_resource=True,
        )
        loss = tf.reduce_sum((x @ first @ second - 1.0) ** 2) + 0.0 * calls
        tf.identity(loss, name="loss")
        with tf.control_dependencies([loss]):
            train = tf1.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
        tf.group(train, name="train")
    return graph


class RestoringTest(AcceptedStepsTest):
    def setUp(self):
        super().setUp()
        self.graph = training()
        self.directory = self.create_tempdir().full_path

    def train(self, steps: int = 4) -> tuple[str, list[float]]:
        """Trains, saves a checkpoint and resumes: returns its prefix and the later losses."""
        with self.graph.as_default(), tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            for _ in range(steps):
                session.run("train")
            prefix = tf1.train.Saver().save(session, os.path.join(self.directory, "model"), 4)
            losses = [session.run(["train", "loss:0"])[1] for _ in range(3)]
        return prefix, losses

    def assert_goes_on(self, workload: Workload, losses: list[float], **settings):
        actual = [loss for _, loss in self.run_steps(workload, 3, **settings)]
        self.assertAllClose(losses, actual, rtol=1e-5)

    def test_steps_resume_from_a_checkpoint(self):
        prefix, losses = self.train()
        before = self.graph.as_graph_def()
        for checkpoint in (prefix, self.directory, pathlib.Path(prefix + ".index")):
            workload = read_workload(self.graph, ["train", "loss:0"], checkpoint=checkpoint)
            self.assert_goes_on(workload, losses)
        self.assertEqual(self.graph.as_graph_def(), before)
        self.assertEqual(
            workload.notes,
            (f"restored 4 variables from {prefix}; the other one ('calls') keeps its initializer",),
        )
        server = tf1.train.Server.create_local_server(
            config=tf1.ConfigProto(device_count={"CPU": 2})
        )
        self.assert_goes_on(workload, losses, target=server.target)

    def test_a_checkpoint_may_be_of_objects(self):
        with self.graph.as_default(), tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            first, second = tf1.trainable_variables()
            checkpoint = tf1.train.Checkpoint(layer=first, other=second)
            prefix = checkpoint.save(os.path.join(self.directory, "objects"), session)
            expected = session.run("loss:0")
        workload = read_workload(self.graph, "loss:0", checkpoint=prefix)
        self.assertSameElements(workload.step.restored, ["first", "scope/second"])
        self.assertAllClose(self.run_steps(workload), [[expected]], rtol=1e-5)

    def test_steps_resume_from_a_session(self):
        with tf1.Session(graph=self.graph) as session:
            with self.graph.as_default():
                session.run(tf1.global_variables_initializer())
                local = tf1.local_variables_initializer()
            workload = read_workload(self.graph, "loss:0", checkpoint=session)
            self.assertSameElements(workload.step.restored, ["first", "scope/second"])
            session.run(local)
            for _ in range(3):
                session.run("train")
            before = self.graph.as_graph_def()
            workload = read_workload(self.graph, ["train", "loss:0"], checkpoint=session)
            self.assertEqual(self.graph.as_graph_def(), before)
            losses = [session.run(["train", "loss:0"])[1] for _ in range(3)]
        self.assert_goes_on(workload, losses)
        self.assertIn("calls", workload.step.restored)
        with self.graph.as_default(), tf1.train.MonitoredTrainingSession() as session:
            workload = read_workload(
                self.graph.as_graph_def(), ["train", "loss:0"], checkpoint=session
            )
            losses = [session.run(["train", "loss:0"])[1] for _ in range(3)]
        self.assert_goes_on(workload, losses)

    def test_sessions_that_share_variables_restore_them_on_every_device(self):
        prefix, losses = self.train()
        config = tf1.ConfigProto(device_count={"CPU": 2})
        target = tf1.train.Server.create_local_server(config=config).target
        workload = read_workload(self.graph, ["loss:0"], checkpoint=prefix)
        graph = load_source(workload, target=target, share_variables=True)
        self.assertTrue(graph._shares_variables)
        names = [*workload.step.restored, "calls"]
        for device in (0, 1, 0):
            to = f"/job:localhost/replica:0/task:0/device:CPU:{device}"
            with graph.open(dict.fromkeys(names, to), 20.0, lambda stage: None) as opened:
                self.assertAllClose(opened.step()[1][0], losses[0], rtol=1e-5)

    def test_partitioned_variables_take_their_parts_of_the_whole(self):
        def build(partitions: int, reuse: bool) -> tf.Graph:
            with new_graph() as graph:
                partitioner = tf1.fixed_size_partitioner(partitions, axis=1)
                variable = tf1.get_variable(
                    "w",
                    [2, 7],
                    partitioner=partitioner if partitions > 1 else None,
                    use_resource=reuse,
                )
                tf.identity(tf.convert_to_tensor(variable), name="y")
            return graph

        for use_resource in (True, False):
            with build(2, use_resource).as_default(), tf1.Session() as session:
                session.run(tf1.global_variables_initializer())
                whole = session.run("y:0")
                prefix = tf1.train.Saver().save(session, os.path.join(self.directory, "parts"))
            for partitions in (1, 2, 3):
                graph = build(partitions, use_resource)
                for form in (graph, graph.as_graph_def()):
                    workload = read_workload(form, "y:0", checkpoint=prefix)
                    self.assertLen(workload.step.restored, partitions)
                    self.assertAllEqual(self.run_steps(workload)[0][0], whole)

    def test_names_variables_that_cannot_be_restored(self):
        prefix, _ = self.train(1)
        with new_graph() as other:
            tf.identity(tf1.get_variable("another", [2]), name="y")
        with new_graph() as larger:
            tf.identity(tf1.get_variable("first", [2, 4]), name="y")
        with new_graph() as finer:
            tf.identity(tf1.get_variable("first", [2, 3], tf.float64), name="y")
        torn = os.path.join(self.directory, "torn")
        pathlib.Path(torn + ".index").write_text("torn")
        empty = self.create_tempdir().full_path
        for graph, checkpoint, message in (
            (other, prefix, "none of the variables .*the graph has 'another', the .* 'first'"),
            (larger, prefix, r"'first' of the shape \[2, 3\], the variable 'first' is of \[2, 4\]"),
            (finer, prefix, "'first' of the type float32, the variable 'first' is of float64"),
            (other, "", "'' is not the name of a checkpoint"),
            (other, "a\0b", "is not the name of a checkpoint"),
            (other, "/no/such/model", "there is no checkpoint '/no/such/model'"),
            (other, torn, "cannot read the checkpoint '.*torn': "),
            (other, empty, "the directory '.*' holds no checkpoint"),
            (other, 3, "a checkpoint is the prefix of its files, .* or a session, not int"),
        ):
            with self.assertRaisesRegex(GraphError, message) as raised:
                read_workload(graph, "y:0", checkpoint=checkpoint)
            self.assertNotIn("\n", str(raised.exception))
        with (
            tf1.Session(graph=other) as session,
            self.assertRaisesRegex(GraphError, "for none of the variables: 'another'"),
        ):
            read_workload(other, "y:0", checkpoint=session)


class PythonFunctionsTest(AcceptedStepsTest):
    def test_refuses_python_functions_by_name(self):
        def double(x):
            return 2 * x

        with new_graph() as graph:
            x = tf.constant([1.0, 2.0])
            tf.numpy_function(double, [x], tf.float32, name="direct")
            tf.py_function(double, [x], tf.float32, name="eager")
            data = tf.data.Dataset.from_tensors(x)
            mapped = data.map(lambda x: tf.numpy_function(double, [x], tf.float32))
            tf1.data.make_one_shot_iterator(mapped).get_next("once")
            generated = tf.data.Dataset.from_generator(lambda: iter([1]), tf.int32)
            generator = tf1.data.make_initializable_iterator(generated)
            generator.get_next("many")
            start = tf1.Variable(tf.numpy_function(double, [x], tf.float32, name="start"), name="v")
            start.set_shape([2])
            tf.identity(start, name="of_start")
            tf.identity(x, name="plain")
            queue = tf.queue.FIFOQueue(2, [tf.float32], [[]])
            put = queue.enqueue(tf.numpy_function(double, [1.0], tf.float32, name="put"))
            tf1.train.add_queue_runner(tf1.train.QueueRunner(queue, [put]))
            tf.identity(queue.dequeue(), name="queued")
        for fetch, name in (
            ("direct:0", "direct"),
            ("eager:0", "eager"),
            ("once:0", "OneShotIterator"),
            ("many:0", "FlatMapDataset"),
            ("of_start:0", "start"),
            ("queued:0", "put"),
        ):
            workload = read_workload(graph, fetch, initializers=self.initializers(fetch, generator))
            message = f"'{name}' calls a Python function .*: feed what the function makes"
            with self.assertRaisesRegex(GraphError, message):
                check_no_python_functions(workload.op_graph, workload.step)
        fed = read_workload(graph, "direct:0", {"direct:0": [3.0, 4.0]}, [])
        check_no_python_functions(fed.op_graph, fed.step)
        self.assertAllEqual(self.run_steps(fed)[0][0], [3.0, 4.0])
        plain = read_workload(graph, "plain:0", initializers=[])
        check_no_python_functions(plain.op_graph, plain.step)

    def test_calls_python_functions_in_their_own_process(self):
        def same(x):
            return x

        with new_graph() as graph:
            x = tf.constant([1.0, 2.0])
            tf.numpy_function(same, [x], tf.float32, name="direct")
            data = tf.data.Dataset.from_tensors(x)
            mapped = data.map(lambda x: tf.py_function(same, [x], tf.float32))
            tf1.data.make_one_shot_iterator(mapped).get_next("once")
            tf.identity(x, name="plain")
        attached, local = (Machine(f"the {kind} one", kind, ()) for kind in ("attached", "local"))
        for fetch, name in (("direct:0", "direct"), ("once:0", "OneShotIterator")):
            live = read_workload(graph, fetch)
            self.assertEqual(check_python_functions_are_here(live, attached), name)
            read = read_workload(graph.as_graph_def(), fetch, initializers=[])
            with new_graph() as imported:
                tf.import_graph_def(read.graph_def, name="")
            again = read_workload(imported, fetch)
            self.assertEqual(check_python_functions_are_here(again, attached), name)
            calls = f"^'{name}' calls a Python function .*, which exists only in the process that "
            for workload, machine, message in (
                (live, local, "steps on 'the local one' run in other .*: pass machine='attached'"),
                (read, attached, "a file or a GraphDef does not have it: pass the tf.Graph itself"),
            ):
                with self.assertRaisesRegex(GraphError, calls + f".*{message}.*, feed what"):
                    check_python_functions_are_here(workload, machine)
            # As in a process that has read a file.
            with (
                mock.patch.object(script_ops, "_py_funcs", script_ops.FuncRegistry()),
                self.assertRaisesRegex(GraphError, calls + ".*'pyfunc_.*' is not registered in"),
            ):
                check_python_functions_are_here(again, attached)
        plain = read_workload(graph.as_graph_def(), "plain:0", initializers=[])
        self.assertIsNone(check_python_functions_are_here(plain, local))

    def initializers(self, fetch: str, generator) -> list:
        return {"of_start:0": ["v/Assign"], "many:0": [generator.initializer]}.get(fetch, [])


class CapturedStateTest(AcceptedStepsTest):
    def test_a_data_set_may_capture_tables_and_variables(self):
        words = self.create_tempfile("words.txt", "a\nb\nc\n").full_path
        # As a user names it, who trains in the directory of the data.
        before = os.getcwd()
        os.chdir(os.path.dirname(words))
        self.addCleanup(os.chdir, before)
        with new_graph() as graph:
            table = tf.lookup.StaticHashTable(
                tf.lookup.TextFileInitializer("words.txt", *_WORDS_BY_LINE), -1
            )
            offset = tf1.get_variable("offset", initializer=np.int64(10), use_resource=True)
            data = tf.data.Dataset.from_tensor_slices(["b", "c", "d"]).repeat()
            iterator = tf1.data.make_initializable_iterator(
                data.map(lambda word: table.lookup(word) + offset)
            )
            tf.identity(iterator.get_next(), name="y")
        for form in (graph, graph.as_graph_def()):
            workload = read_workload(form, "y:0")
            self.assertEqual(self.run_steps(workload, 4), [[11], [12], [9], [11]])

    def test_the_handle_of_an_iterator_is_that_of_the_session(self):
        with new_graph() as graph:
            data = tf.data.Dataset.range(100)
            shapes = tf1.data.get_output_shapes(data)
            others = {
                "first": tf1.data.make_initializable_iterator(data),
                "shared": tf1.data.make_initializable_iterator(data.skip(10), "shared"),
                "once": tf1.data.make_one_shot_iterator(data.skip(20)),
            }
            handle = tf1.placeholder(tf.string, [], name="handle")
            iterator = tf1.data.Iterator.from_string_handle(handle, tf.int64, shapes)
            tf.identity(iterator.get_next(), name="y")
            handles = {name: each.string_handle() for name, each in others.items()}
        with tf1.Session(graph=graph) as session:
            values = session.run(handles)
        server = tf1.train.Server.create_local_server()
        for name, start in (("first", 0), ("shared", 10), ("once", 20)):
            for form in (graph, graph.as_graph_def()):
                workload = read_workload(form, "y:0", {"handle": values[name]})
                for target in ("", server.target):
                    steps = self.run_steps(workload, 3, target=target)
                    self.assertEqual(steps, [[start], [start + 1], [start + 2]])
        graph = load_source(workload)
        self.assertLen(graph.trace({}, 2, 1, None, 20.0, lambda stage: None)["step_secs"], 1)

    def test_a_device_that_is_not_there_is_named(self):
        with new_graph() as graph, tf.device("/gpu:7"):
            tf.square(tf.random.uniform([2]), name="y")
        message = self.failure(read_workload(graph, "y:0"))
        self.assertRegex(message, "Cannot assign a device for operation .*GPU:7")
        workload = read_workload(graph, "y:0")
        self.assertLen(self.run_steps(workload, config={"allow_soft_placement": True}), 1)


class ScaffoldTest(AcceptedStepsTest):
    def test_a_scaffold_says_what_variables_begin_with(self):
        with new_graph() as graph:
            start = tf1.placeholder(tf.float32, [], name="start")
            variable = tf1.get_variable("v", initializer=start, use_resource=True)
            local = tf1.get_variable(
                "l", initializer=1.0, collections=[tf1.GraphKeys.LOCAL_VARIABLES]
            )
            assigned = variable.assign(100.0)
            both = tf.stack([variable, local], name="both")
            init = tf.group(variable.initializer)
        before = graph.as_graph_def()
        scaffold = tf1.train.Scaffold
        for given, expected in (
            (scaffold(init_op=init, init_feed_dict={start: 3.0}), [3.0, 1.0]),
            (
                scaffold(local_init_op=[local.initializer, variable.initializer]),
                None,
            ),
            (
                scaffold(
                    init_op=init,
                    init_feed_dict={start: 3.0},
                    init_fn=lambda scaffold, session: session.run(assigned),
                ),
                [100.0, 1.0],
            ),
        ):
            if expected is None:
                workload = read_workload(graph, both, {start: 7.0}, given)
                expected = [7.0, 1.0]
            else:
                workload = read_workload(graph, both, initializers=given)
            self.assertAllEqual(self.run_steps(workload)[0][0], expected)
        self.assertEqual(graph.as_graph_def(), before)
        self.assertEqual(
            read_workload(graph, both, {start: 1.0}, scaffold()).step.initializers,
            ("v/Assign", "l/Assign"),
        )

    def test_an_init_fn_that_fails_is_named(self):
        with new_graph() as graph:
            tf.identity(tf1.get_variable("v", []), name="y")

        def fail(scaffold, session):
            raise OSError("no weights")

        scaffold = tf1.train.Scaffold(init_fn=fail)
        with self.assertRaisesRegex(
            GraphError, "init_fn of the Scaffold fails: OSError: no weights"
        ):
            read_workload(graph, "y:0", initializers=scaffold)
        with self.assertRaisesRegex(GraphError, "init_fn, which needs the graph as a tf.Graph"):
            read_workload(graph.as_graph_def(), "y:0", initializers=scaffold)


if __name__ == "__main__":
    tf.test.main()
