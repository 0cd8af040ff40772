"""Tests of reading graphs in every form, and of writing them."""

from __future__ import annotations

import os
import pathlib
import stat

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from tests import graphs
from tests.graph_parts import new_graph
from tf_placer.inputs.graph_files import check_output, write_graph
from tf_placer.inputs.workload import read_graph, read_workload, remove_devices

tf1 = tf.compat.v1


def build_training() -> tuple[tf.Graph, tf.Operation]:
    """A graph with its training operation in the collection, and state of three kinds."""
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [4, 3], name="x")
        w = tf1.get_variable("w", [3, 2], use_resource=False)
        counter = tf1.get_variable(
            "counter", [], collections=[tf1.GraphKeys.LOCAL_VARIABLES], trainable=False
        )
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer([7], tf.constant([1.0])), 0.0
        )
        loss = tf.reduce_sum(tf.matmul(x, w)) * table.lookup(tf.constant(7)) + counter
        tf.identity(loss, name="loss")
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        tf1.add_to_collection("train_op", train)
    return graph, train


def meta_graph(graph: tf.Graph) -> tf1.MetaGraphDef:
    with graph.as_default():
        tf1.train.Saver()
        return tf1.train.export_meta_graph(graph=graph)


class ReadSourceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_runs_steps_of_all_kinds_of_graphs(self, factory):
        given = graphs.FACTORIES[factory]()
        for form in (given.graph, given.graph.as_graph_def()):
            # An empty sentence, which would be made up, has no words.
            strings = {k: v for k, v in given.feeds.items() if v.dtype == np.object_}
            workload = read_workload(form, given.fetches, strings)
            self.assertEqual(workload.step.fetches, given.fetches)
            self.assertEqual(sorted(workload.step.feeds), sorted(given.feeds))
            with tf.Graph().as_default() as graph:
                tf.import_graph_def(workload.graph_def, name="")
                with tf1.Session() as session:
                    session.run(
                        [graph.get_operation_by_name(n) for n in workload.step.initializers]
                    )
                    fetched = session.run(list(given.fetches), dict(workload.step.feeds))
            self.assertTrue(np.isfinite(fetched[-1]))

    def test_all_forms_of_a_graph_give_the_same_step(self):
        graph, train = build_training()
        meta = meta_graph(graph)
        directory = pathlib.Path(self.get_temp_dir())
        write_graph(directory / "g.meta", meta.graph_def, meta)
        write_graph(directory / "g.pb", meta.graph_def)
        write_graph(directory / "g.pbtxt", meta.graph_def)
        expected = read_workload(graph)
        self.assertIs(expected.live, graph)
        self.assertEqual(expected.step.fetches, ("train",))
        self.assertLen(expected.step.initializers, 3)
        for form in (meta, directory / "g.meta", str(directory / "g.meta")):
            workload = read_workload(form)
            self.assertEqual(workload.step.fetches, ("train",))
            self.assertEqual(workload.step.initializers, expected.step.initializers)
            self.assertIsNone(workload.live)
        for form in (meta.graph_def, directory / "g.pb", directory / "g.pbtxt"):
            workload = read_workload(form, [train, "loss"])
            self.assertEqual(workload.graph_def, meta.graph_def)
            self.assertSameElements(workload.step.initializers, expected.step.initializers)

    def test_fetches_feeds_and_initializers_may_be_objects_or_names(self):
        graph, train = build_training()
        x, w = graph.get_tensor_by_name("x:0"), graph.get_operation_by_name("w/Assign")
        value = np.ones([4, 3], np.float32)
        for fetches, feeds, initializers in (
            (train, {x: value}, w),
            ("train", {"x": value}, "w/Assign"),
            (["train", x], {"x:0": value}, [w]),
        ):
            step = read_workload(graph, fetches, feeds, initializers).step
            self.assertEqual(step.fetches[0], "train")
            self.assertAllEqual(step.feeds["x:0"], value)
            self.assertEqual(step.initializers, ("w/Assign",))

    def test_fetching_a_variable_fetches_its_value(self):
        for use_resource in (False, True):
            with new_graph() as graph:
                variable = tf1.get_variable("v", [2], use_resource=use_resource)
                update = variable.assign_add(tf.ones([2]))
            workload = read_workload(graph, [variable, update])
            with tf1.Session(graph=graph) as session:
                session.run(list(workload.step.initializers))
                before, after = session.run(variable), session.run(workload.step.fetches[1])
                self.assertAllEqual(after, before + 1.0)
                self.assertAllEqual(session.run(workload.step.fetches[0]), after)

    def test_an_initializer_may_make_a_value(self):
        for use_resource in (False, True):
            with new_graph() as graph:
                variable = tf1.get_variable("v", [2], use_resource=use_resource)
                start = tf1.assign(variable, tf.ones([2]))
            workload = read_workload(graph, variable, initializers=start)
            with tf1.Session(graph=graph) as session:
                session.run(list(workload.step.initializers))
                self.assertAllEqual(session.run(workload.step.fetches[0]), [1.0, 1.0])

    def test_feeding_a_tensor_excludes_its_producers(self):
        graph, _ = build_training()
        self.assertIn("x:0", read_workload(graph, "loss").step.feeds)
        workload = read_workload(graph, "loss", {"MatMul:0": np.ones([4, 2])})
        self.assertNotIn("x:0", workload.step.feeds)

    def test_empty_initializers_mean_none(self):
        self.assertEqual(read_workload(build_training()[0], initializers=[]).step.initializers, ())

    def test_a_colocation_with_an_operation_that_is_gone_is_dropped(self):
        graph_def = build_training()[0].as_graph_def()
        node = next(node for node in graph_def.node if node.name == "x")
        node.attr["_class"].list.s.append(b"loc:@gone")
        workload = read_workload(graph_def, "train")
        self.assertNotIn("_class", workload.graph_def.node[workload.op_graph.index["x"]].attr)
        self.assertIn("_class", node.attr)

    def test_names_invalid_arguments(self):
        graph, _ = build_training()
        graph_def = graph.as_graph_def()
        for arguments, message in (
            ((graph_def,), "nothing to fetch: pass fetches"),
            ((graph_def, []), "nothing to fetch"),
            (
                (graph_def, ["train", "los"]),
                r"fetch 'los' is not in the graph \(did you mean 'loss'\?\)",
            ),
            ((graph_def, ["loss:5"]), "'loss:5'"),
            ((graph_def, {"a": 1}), "1 is neither an operation"),
            ((graph_def, "train", {"y": 1}), "no tensor 'y:0'"),
            ((graph_def, "train", ["x"]), "feeds map placeholders to values, unlike 'list'"),
            ((graph, "train", {"x": graph.get_tensor_by_name("x:0")}), "feed of 'x:0' is not of"),
            ((graph_def, "train", {"x": [1]}), "feed of 'x:0' has the shape"),
            ((graph_def, "train", None, "init"), "initializer 'init' is not in the graph"),
            ((tf1.GraphDef(), "train"), "the graph is empty"),
            ((3, "train"), "not int"),
            ((lambda x: x, "train"), "not function; tf_placer.optimize takes functions made by"),
            ((tf.constant(1.0), "train"), "not a tensor: pass the tf.Graph, tf.function or Keras"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                read_workload(*arguments)


class FilesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.meta = meta_graph(build_training()[0])

    def assert_unreadable(self, name: str, content: bytes, message: str):
        path = self.directory / name
        path.write_bytes(content)
        with self.assertRaisesRegex(GraphError, f"{name}.*{message}") as raised:
            read_graph(path)
        self.assertNotIn("\n", str(raised.exception))

    def test_a_graph_comes_through_every_format_unchanged(self):
        for name in ("g.pb", "g.pbtxt", "g.meta"):
            write_graph(self.directory / name, self.meta.graph_def, self.meta)
            self.assertEqual(read_graph(self.directory / name).graph_def, self.meta.graph_def)
        self.assertEqual(read_graph(self.directory / "g.meta").meta_graph, self.meta)
        self.assertLen(os.listdir(self.directory), 3)

    def test_a_meta_graph_keeps_everything_but_its_graph(self):
        graph_def = tf1.GraphDef()
        graph_def.node.add(name="only", op="NoOp")
        write_graph(self.directory / "g.meta", graph_def, self.meta)
        read = read_graph(self.directory / "g.meta")
        self.assertEqual(read.graph_def, graph_def)
        self.assertEqual(read.meta_graph.collection_def, self.meta.collection_def)
        self.assertEqual(read.meta_graph.saver_def, self.meta.saver_def)
        self.assertNotEqual(self.meta.graph_def, graph_def)

    def test_devices_are_cleared_in_a_copy(self):
        self.meta.graph_def.node[0].device = "/cpu:0"
        before = self.meta.SerializeToString(deterministic=True)
        cleared = remove_devices(read_graph(self.meta))
        self.assertEqual({node.device for node in cleared.graph_def.node}, {""})
        self.assertEqual({node.device for node in cleared.meta_graph.graph_def.node}, {""})
        self.assertEqual(cleared.meta_graph.collection_def, self.meta.collection_def)
        self.assertEqual(
            {
                node.device
                for node in remove_devices(read_graph(self.meta.graph_def)).graph_def.node
            },
            {""},
        )
        self.assertEqual(self.meta.SerializeToString(deterministic=True), before)

    def test_a_damaged_collection_is_named(self):
        for name in ("variables", "local_variables", "queue_runners"):
            damaged = tf1.MetaGraphDef()
            damaged.CopyFrom(self.meta)
            damaged.collection_def[name].bytes_list.value.append(b"\xff\xff")
            with self.assertRaisesRegex(GraphError, f"'{name}' of the MetaGraphDef is damaged"):
                read_workload(damaged)

    def test_a_meta_graph_may_be_text(self):
        with tf.Graph().as_default():
            tf1.train.import_meta_graph(self.meta)
            exported = tf1.train.export_meta_graph(str(self.directory / "g.meta"), as_text=True)
        self.assertEqual(read_graph(self.directory / "g.meta").meta_graph, exported)
        text = (self.directory / "g.meta").read_bytes()
        self.assert_unreadable("cut.meta", text[: len(text) // 2], "or is cut short")

    def test_a_graph_without_collections_can_be_written_as_meta_graph(self):
        write_graph(self.directory / "g.meta", self.meta.graph_def)
        with tf.Graph().as_default() as graph:
            tf1.train.import_meta_graph(str(self.directory / "g.meta"))
        self.assertLen(graph.get_operations(), len(self.meta.graph_def.node))

    def test_files_that_are_no_graphs_are_named(self):
        data = self.meta.graph_def.SerializeToString()
        self.assert_unreadable("cut.pb", data[: len(data) // 2], "or is cut short")
        self.assert_unreadable("cut.meta", self.meta.SerializeToString()[:-7], "or is cut short")
        self.assert_unreadable("cut.pbtxt", str(self.meta.graph_def).encode()[:-20], "cut short")
        for name in ("garbage.pb", "garbage.pbtxt", "garbage.meta"):
            self.assert_unreadable(name, b"\xff\x00not a graph\xfe" * 9, "is not a graph")
        for name in ("other.pbtxt", "other.meta"):
            text = b"graph_def" if name == "other.meta" else b"node"
            wrong = "is cut short: it is not text in UTF-8, from byte "
            self.assert_unreadable(name, text + b' { name: "\xed\xa0\x80" }', wrong)
        for name in ("empty.pb", "empty.pbtxt", "empty.meta"):
            self.assert_unreadable(name, b"", "is empty")
        self.assert_unreadable("versions.pb", b'"\x02\x08\x01', "holds no operations")

    def test_paths_that_cannot_be_read_are_named(self):
        with self.assertRaisesRegex(FileNotFoundError, "missing.pb': No such file"):
            read_graph(self.directory / "missing.pb")
        for path, message in (
            (self.directory / "graph.txt", "graph.txt' is not a graph file: its name must end in"),
            (self.directory, "must end in .pb, .pbtxt or .meta"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                read_graph(path)
        for path, message in (
            (self.directory / "saved_model.pb", "is a file of a SavedModel: name the directory"),
            (self.directory / "model.keras", "is a Keras model: load it, compile it, and pass it"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                read_graph(path)
        (self.directory / "folder.pb").mkdir()
        with self.assertRaisesRegex(IsADirectoryError, "folder.pb': Is a directory"):
            read_graph(self.directory / "folder.pb")

    def test_an_output_that_cannot_be_written_is_named_and_nothing_is_left_behind(self):
        file = self.directory / "file"
        file.touch()
        (self.directory / "folder.pb").mkdir()
        before = sorted(os.listdir(self.directory))
        for path, error, message in (
            (file / "g.pb", OSError, "file"),
            (self.directory / "no" / "such" / "g.pb", OSError, "no/such/g.pb': No such file or"),
            (self.directory / "folder.pb", OSError, "folder.pb': it is a directory"),
            (self.directory / "g.txt", GraphError, "must end in"),
        ):
            with self.assertRaisesRegex(error, message):
                check_output(path)
        with self.assertRaisesRegex(OSError, "cannot write the graph .*file/g.pb"):
            write_graph(file / "g.pb", self.meta.graph_def)
        with self.assertRaisesRegex(OSError, "cannot write the graph .*folder.pb"):
            write_graph(self.directory / "folder.pb", self.meta.graph_def)
        check_output(self.directory / "fine.pb")
        self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_an_existing_file_is_replaced_whole(self):
        path = self.directory / "g.pb"
        path.write_bytes(b"old")
        write_graph(path, self.meta.graph_def)
        self.assertEqual(read_graph(path).graph_def, self.meta.graph_def)
        self.assertTrue(os.stat(path).st_mode & stat.S_IRUSR)


if __name__ == "__main__":
    tf.test.main()
