from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from tests.saved_models import REQUEST, WORDS, save_functions, save_graph
from tf_placer.inputs import saved_signature
from tf_placer.inputs.saved_model_files import read_saved_model
from tf_placer.inputs.saved_signature import read_signature
from tf_placer.inputs.workload import Workload, read_graph, read_workload, remove_devices

tf1 = tf.compat.v1


def run(workload: Workload) -> list[np.ndarray]:
    """Runs a step in a session, from its initial state."""
    step = workload.step
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        tf.import_graph_def(workload.graph_def, name="")
        initializers = [graph.get_operation_by_name(name) for name in step.initializers]
        session.run(initializers, step.initializer_feeds)
        for name, value in step.restored.items():
            variable = graph.get_operation_by_name(name)
            if variable.type == "VarHandleOp":
                session.run(tf.raw_ops.AssignVariableOp(resource=variable.outputs[0], value=value))
            else:
                session.run(tf.raw_ops.Assign(ref=variable.outputs[0], value=value))
        return session.run([name for name in step.fetches if ":" in name], step.feeds)


class SavedSignatureTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.functions = save_functions(root)
        cls.graphs = {}
        for use_resource in (False, True):
            folder = root / str(use_resource)
            folder.mkdir()
            cls.graphs[use_resource] = save_graph(folder, use_resource=use_resource)

    def test_a_session_computes_what_the_loaded_signature_does(self):
        loaded = tf.saved_model.load(self.functions)
        expected = loaded.signatures["serving_default"](x=tf.constant(REQUEST))
        given = read_graph(self.functions)
        workload = read_workload(given, feed_dict={"x": REQUEST})
        self.assertEqual(given.signature.saved_model, read_saved_model(self.functions))
        self.assertAllClose(run(workload), [expected["requests"], expected["sum"]])
        self.assertLen(workload.step.restored, 3)
        self.assertIn(0, [value.ndim for value in workload.step.restored.values()])
        # Every operation of the functions is one of the graph; the loop is one.
        types = [node.op for node in workload.graph_def.node]
        self.assertEqual(types.count("MatMul"), 2)
        self.assertEqual(types.count("StatelessWhile"), 1)

    def test_tables_are_filled_from_the_files_that_came_with_it(self):
        words, numbers = WORDS
        for path in (self.functions, self.graphs[False]):
            workload = read_workload(read_graph(path, "words"), feed_dict={"words": words})
            self.assertAllEqual(run(workload), [numbers])

    def test_models_of_keras_have_their_values_however_they_were_saved(self):
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2), keras.layers.Dense(1)])
        root = self.create_tempdir().full_path
        model.export(f"{root}/export", verbose=False)
        tf.saved_model.save(model, f"{root}/save")
        for name in ("export", "save"):
            given = read_graph(f"{root}/{name}")
            [argument] = given.signature.arguments
            workload = read_workload(given, feed_dict={argument: REQUEST})
            self.assertLen(workload.step.restored, 4)
            self.assertAllClose(run(workload), [model(REQUEST)])

    def test_no_session_reads_the_values_that_objects_have(self):
        # A session looks by bisection for variables that are not restored, as those of Keras are.
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2), keras.layers.Dense(1)])
        path = f"{self.create_tempdir().full_path}/saved"
        tf.saved_model.save(model, path)
        read = self.enter_context(mock.patch.object(saved_signature, "read_session_values"))
        given = read_graph(path)
        [argument] = given.signature.arguments
        restored = read_workload(given, feed_dict={argument: REQUEST}).step.restored
        self.assertCountEqual(
            [value.tobytes() for value in restored.values()],
            [weights.numpy().tobytes() for weights in model.weights],
        )
        read.assert_not_called()
        read.return_value = {}
        # TensorFlow 1 saves no objects.
        read_workload(read_graph(self.graphs[True], "sum"), feed_dict={"x": REQUEST})
        read.assert_called_once()

    def test_graphs_of_tensorflow_1(self):
        for path in self.graphs.values():
            expected = np.tanh(REQUEST @ np.full([3, 3], 0.5)) + np.tanh(
                REQUEST @ np.full([3, 3], -0.25)
            )
            workload = read_workload(read_graph(path, "sum"), feed_dict={"x": REQUEST})
            self.assertAllClose(run(workload), [expected])
            self.assertEqual(workload.step.restored.keys(), {"left", "right"})

    def test_the_signature_is_the_one_for_serving_or_the_only_one(self):
        self.assertEqual(read_signature(self.functions).names, ("serving_default",))
        for path, name, message in (
            (
                self.functions,
                "nope",
                "no signature 'nope': name one or more of serving_default, words",
            ),
            (self.graphs[True], None, "has several signatures: name one or more of sum, words"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                read_signature(path, name)
        only = os.path.join(self.create_tempdir().full_path, "only")
        saved_model = read_saved_model(self.graphs[True])
        del saved_model.meta_graphs[0].signature_def["words"]
        os.mkdir(only)
        path = pathlib.Path(only, "saved_model.pb")
        path.write_bytes(saved_model.SerializeToString())
        self.assertEqual(read_signature(only).names, ("sum",))
        del saved_model.meta_graphs[0].signature_def["sum"]
        path.write_bytes(saved_model.SerializeToString())
        with self.assertRaisesRegex(GraphError, "has no signatures, so nobody can call it"):
            read_signature(only)
        path.write_bytes(b"")
        with self.assertRaisesRegex(GraphError, "holds no graph"):
            read_signature(only)

    def test_a_step_calls_several_signatures(self):
        words, numbers = WORDS
        loaded = tf.saved_model.load(self.functions)
        expected = loaded.signatures["serving_default"](x=tf.constant(REQUEST))
        given = read_graph(self.functions, ["words", "serving_default", "words"])
        self.assertEqual(given.signature.title, "the signatures 'words', 'serving_default'")
        workload = read_workload(given, feed_dict={"x": REQUEST, "words": words})
        self.assertStartsWith(workload.notes[0], "a step calls the signatures 'words', 'serv")
        values = run(workload)
        self.assertAllEqual(values[0], numbers)
        self.assertAllClose(values[1:], [expected["requests"], expected["sum"]])
        with self.assertRaisesRegex(GraphError, "no argument 'y' of the signatures 'words', 'serv"):
            given.signature.build_feeds({"y": 1})

    def test_a_value_is_for_every_signature_with_the_argument(self):
        model = tf.Module()
        model.count = tf.Variable(0)
        spec = tf.TensorSpec([], tf.int32, name="x")
        add = tf.function(lambda x: {"count": model.count.assign_add(x)})
        double = tf.function(lambda x: {"count": model.count.assign(2 * model.count + x)})
        signatures = {"add": add.get_concrete_function(spec), "double": double}
        signatures["double"] = double.get_concrete_function(spec)
        path = self.create_tempdir().full_path
        tf.saved_model.save(model, path, signatures)
        # The second call sees the update of the first, in whichever order they are named.
        for names, expected in ((["add", "double"], [3, 9]), (["double", "add"], [3, 6])):
            workload = read_workload(read_graph(path, names), feed_dict={"x": 3})
            self.assertLen(workload.step.feeds, 2)
            for _ in range(5):
                self.assertAllEqual(run(workload), expected)

    def test_arguments_go_by_their_names(self):
        signature = read_signature(self.functions)
        self.assertEqual(signature.bind_example_inputs(7), {"x": 7})
        self.assertEqual(signature.bind_example_inputs({"x": 7}), {"x": 7})
        with self.assertRaisesRegex(
            GraphError, "no argument 'y' of the signature 'serving_default': the arguments are x"
        ):
            signature.build_feeds({"x": REQUEST, "y": 1})
        with self.assertRaisesRegex(
            GraphError, r"'x' of the signature 'serving_default' has the shape \(None, 3\), so no"
        ):
            read_workload(self.functions)
        with self.assertRaisesRegex(GraphError, "takes no fetches, initializers or checkpoint"):
            read_workload(self.functions, fetches="y", feed_dict={"x": REQUEST})
        with self.assertRaisesRegex(GraphError, "only a SavedModel directory has a signature"):
            read_graph("graph.pb", "serving_default")

    def test_sparse_arguments_and_results_have_three_parts(self):
        path = os.path.join(self.create_tempdir().full_path, "sparse")
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.sparse_placeholder(tf.float32, [2, 3], name="x")
            y = tf.sparse.map_values(tf.multiply, x, 2.0)
            tf1.saved_model.simple_save(session, path, {"x": x}, {"y": y})
        whole = tf.sparse.from_dense([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
        feeds = {
            "x/values": whole.values,
            "x/indices": whole.indices,
            "x/dense_shape": whole.dense_shape,
        }
        values, indices, shape = run(
            read_workload(path, feed_dict={key: value.numpy() for key, value in feeds.items()})
        )
        self.assertAllEqual(values, 2 * whole.values)
        self.assertAllEqual(indices, whole.indices)
        self.assertAllEqual(shape, [2, 3])

    def test_an_argument_may_have_a_value_that_is_taken_when_none_is_given(self):
        path = self.create_tempdir().full_path
        saved_model = read_saved_model(self.graphs[True])
        definition = saved_model.meta_graphs[0].signature_def["sum"]
        definition.defaults["x"].CopyFrom(tf.make_tensor_proto(REQUEST))
        pathlib.Path(path, "saved_model.pb").write_bytes(saved_model.SerializeToString())
        signature = read_signature(path, "sum")
        self.assertAllEqual(signature.build_feeds(None)["x:0"], REQUEST)
        self.assertAllEqual(signature.build_feeds({"x": 2 * REQUEST})["x:0"], 2 * REQUEST)

    def test_values_are_made_up_where_shapes_are_known(self):
        model = tf.Module()
        model.call = tf.function(lambda x, y: x + y)
        specs = (tf.TensorSpec([2], name="x"), tf.TensorSpec([2], name="y"))
        path = self.create_tempdir().full_path
        tf.saved_model.save(model, path, model.call.get_concrete_function(*specs))
        self.assertLen(read_workload(path).step.feeds, 2)
        with self.assertRaisesRegex(
            GraphError, "signature 'serving_default' are x, y: pass a dictionary"
        ):
            read_signature(path).bind_example_inputs(np.ones(2))

    def test_reports_missing_variables(self):
        path = os.path.join(self.create_tempdir().full_path, "without")
        shutil.copytree(self.functions, path)
        shutil.rmtree(os.path.join(path, "variables"))
        with self.assertRaisesRegex(GraphError, "cannot read the variables of the SavedModel"):
            read_workload(path, feed_dict={"x": REQUEST})

    def test_devices_can_be_cleared(self):
        given = read_graph(self.functions)
        names = [node.name for node in given.graph_def.node]
        path = self.create_tempdir().full_path
        placed = given.signature.build_placed_model(dict.fromkeys(names, "/device:CPU:1"))
        pathlib.Path(path, "saved_model.pb").write_bytes(placed.SerializeToString())
        again = read_graph(path)
        self.assertIn("/device:CPU:1", {node.device for node in again.graph_def.node})
        cleared = remove_devices(again)
        self.assertEqual({node.device for node in cleared.graph_def.node}, {""})
        whole = str(cleared.signature.build_placed_model({}))
        self.assertNotIn("CPU:1", whole)


class DamagedTest(tf.test.TestCase, parameterized.TestCase):
    """Tests of damaged SavedModels: one sentence names the damage, before any search."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.original = save_functions(
            pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        )

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path, "copy")
        shutil.copytree(self.original, self.directory)

    def assert_refused(self, message: str) -> None:
        with self.assertRaisesRegex(GraphError, message) as raised:
            read_workload(read_graph(self.directory, "serving_default"), feed_dict={"x": REQUEST})
        self.assertIn(str(self.directory), str(raised.exception))
        self.assertNotIn("\n", str(raised.exception))

    @parameterized.parameters(
        *("saved_model.pb", "variables/variables.index", "assets/vocabulary.txt", "variables")
    )
    def test_link_to_nothing_is_named(self, name):
        path = self.directory / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to("/nowhere")
        self.assert_refused(f"has a link to nothing: '{path}'")

    def test_file_that_is_not_there_is_named(self):
        shutil.rmtree(self.directory / "variables")
        self.assert_refused("cannot read the variables .* in '.*variables/variables'")
        shutil.rmtree(self.directory / "assets")
        self.assert_refused("lacks its file '.*assets/vocabulary.txt'")

    @parameterized.parameters("variables.index", "variables.data-00000-of-00001")
    def test_reports_truncated_variables(self, name):
        path = self.directory / "variables" / name
        path.write_bytes(path.read_bytes()[:7])
        self.assert_refused("cannot read the variables of .*: (not an|file is too|Read less)")

    @parameterized.parameters([[9999]], [[-1]], [[1] * 50])
    def test_reports_missing_objects(self, bound):
        saved_model = read_saved_model(self.directory)
        for function in saved_model.meta_graphs[0].object_graph_def.concrete_functions.values():
            function.bound_inputs[:] = bound
        (self.directory / "saved_model.pb").write_bytes(saved_model.SerializeToString())
        self.assert_refused("is damaged: its objects do not have what '__inference_signature_wrap")

    def test_names_missing_tensors_and_functions(self):
        def lose_result(meta_graph):
            meta_graph.signature_def["serving_default"].outputs["sum"].name = ""

        def lose_initializer(meta_graph):
            meta_graph.signature_def["__saved_model_init_op"].ClearField("outputs")

        def lose_functions(meta_graph):
            meta_graph.graph_def.ClearField("library")

        for lose, message in (
            (lose_result, "is damaged: its graph lacks '', which the signature 'serving_default'"),
            (lose_initializer, "is damaged: its graph lacks ''"),
            (lose_functions, "Failed to find function"),
        ):
            saved_model = read_saved_model(self.original)
            lose(saved_model.meta_graphs[0])
            (self.directory / "saved_model.pb").write_bytes(saved_model.SerializeToString())
            self.assert_refused(message)


if __name__ == "__main__":
    tf.test.main()
