"""Tests of profiling graphs, functions and models into placement problems."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import (
    BaseResourceVariable,
    UninitializedVariable,
)

from graph_passes.errors import GraphError
from tf_placer.cli import graph_costs
from tf_placer.cli.main import main
from tf_placer.live import profiling
from tf_placer.live.profiling import profile
from tf_placer.problem.problem_file import problem_to_json, read_problem

_MACHINE = "4xK80"


class ProfilingTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.output = pathlib.Path(self.create_tempdir().full_path, "problem.json")

    def test_reads_a_step_once_for_several_machines(self):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [64, 32], "x")
            tf.tanh(tf.matmul(x, tf.ones([32, 16])), name="y")
        path = self.output.with_name("graph.pb")
        path.write_bytes(graph.as_graph_def().SerializeToString())
        machines = ["1xK80", "2xP100"]
        given = {"verbose": False, "pin": {"y": "/CPU:0"}}
        one_by_one = {
            name: profile(path, "y:0", machine=name, output=self.output, **given)
            for name in machines
        }
        directory = self.output.with_name("plans")
        with mock.patch.object(profiling, "read_target", wraps=profiling.read_target) as read:
            problems = profile(path, "y:0", machine=machines, output=directory, **given)
        read.assert_called_once()
        self.assertEqual(list(problems), machines)
        step = [f"--input_graph={path}", "--fetches=y:0", "--pin=y=/CPU:0"]
        other = self.output.with_name("other")
        with mock.patch.object(graph_costs, "_read_step", wraps=graph_costs._read_step) as read:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                main(["profile", *step, "--machine", *machines, f"--output={other}"])
        read.assert_called_once()
        for name in machines:
            expected = json.dumps(problem_to_json(one_by_one[name]))
            for found in (directory, other):
                problem = read_problem(found / f"{name}.json")
                self.assertEqual(json.dumps(problem_to_json(problem)), expected)
            self.assertIn(f"problem: {other / name}.json", printed.getvalue())
        for output in (directory, None):
            with self.assertRaisesRegex(ValueError, "machine is given once, unlike 1xK80, 1xK80"):
                profile(path, "y:0", machine=["1xK80", "1xK80"], output=output)

    def test_writes_no_file_that_nobody_asked_for(self):
        with tf.Graph().as_default() as graph:
            tf.tanh(tf.ones([32, 16]), name="y")
        for machine in ("1xK80", ["1xK80", "2xP100"]):
            problems = profile(graph, "y:0", machine=machine, verbose=False)
            found = list(problems.values()) if isinstance(machine, list) else [problems]
            self.assertEqual([each.num_devices for each in found], [2, 3][: len(found)])
        self.assertEqual(os.listdir(self.output.parent), [])

    def test_says_that_the_devices_of_the_graph_leave_nothing_to_choose(self):
        with tf.Graph().as_default() as graph, tf.device("/gpu:1"):
            tf.tanh(tf.ones([32, 16]), name="y")
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            profile(graph, "y:0", machine="2xK80")
            profile(graph, "y:0", machine="2xK80", clear_devices=True)
        advice = "because the graph says so: clear the graph's devices (clear_devices=True)"
        self.assertEqual(errors.getvalue().count(advice), 1)

    def test_profiles_a_file_as_the_command_does(self):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [64, 32], "x")
            w = tf.compat.v1.get_variable("w", [32, 16])
            tf.tanh(tf.matmul(x, w), name="y")
        path = self.output.with_name("graph.pb")
        path.write_bytes(graph.as_graph_def().SerializeToString())
        by_command = self.output.with_name("other.json")
        step = ["--input_graph", str(path), "--fetches", "y:0"]
        main(["profile", *step, "--machine", _MACHINE, "--output", str(by_command)])
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            problem = profile(path, "y:0", machine=_MACHINE, output=self.output, verbose=False)
        self.assertEqual(errors.getvalue(), "")
        self.assertEqual(self.output.read_bytes(), by_command.read_bytes())
        free = by_command.read_bytes()
        pinned = ["--machine", _MACHINE, "--output", str(by_command), "--pin", "w*=/GPU:2"]
        main(["profile", *step, *pinned, "--keep_together", "w,y"])
        pin, together = {"w*": "/GPU:2"}, [["w", "y"]]
        given = {"machine": _MACHINE, "output": self.output, "verbose": False}
        profile(path, "y:0", **given, pin=pin, keep_together=together)
        self.assertEqual(self.output.read_bytes(), by_command.read_bytes())
        self.assertNotEqual(free, by_command.read_bytes())
        graph_def = graph.as_graph_def()
        for node in graph_def.node:
            node.device = "/device:GPU:7"
        with self.assertRaisesRegex(GraphError, "clear the graph's devices .clear_devices=True"):
            profile(graph_def, "y:0", **given)
        profile(graph_def, "y:0", **given, clear_devices=True)
        named = json.loads(free)
        self.assertEqual(named.pop("graph_name"), "'graph.pb'")
        self.assertEqual(json.loads(self.output.read_bytes()), named)
        self.assertAllEqual(problem.compute_secs, read_problem(self.output).compute_secs)

    def test_profiles_a_function_as_its_graph(self):
        weights = tf.Variable(tf.ones([32, 16]))

        @tf.function
        def step(x):
            return tf.tanh(tf.matmul(x, weights, name="product"), name="y")

        with tf.Graph().as_default() as graph:
            x = tf.ones([64, 32], name="x")
            w = tf.compat.v1.get_variable("w", [32, 16])
            y = tf.tanh(tf.matmul(x, w, name="product"), name="y")
        own = profile(step, example_inputs=tf.ones([64, 32]), machine=_MACHINE, output=self.output)
        same = profile(graph, y, machine=_MACHINE, output=self.output)
        for problem in (own, same):
            self.assertLen(problem.devices, 5)
        for name in ("product", "y"):
            ours, theirs = (
                problem.compute_secs[problem.operation_names.index(name)] for problem in (own, same)
            )
            self.assertAllEqual(ours, theirs)
            self.assertAllGreater(ours, 0)

    def test_plans_models_that_are_larger_than_this_computer(self):
        # A variable without a value takes no memory, and cannot be read.
        rows = 2**32
        table = UninitializedVariable(trainable=True, shape=[rows, 256], dtype=tf.float32)

        @tf.function
        def step(indices):
            return tf.reduce_sum(tf.gather(table, indices))

        example = tf.constant([1, 2, 3], tf.int64)
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            problem = profile(step, example_inputs=example, machine=_MACHINE, output=self.output)
        self.assertEqual(problem.resident_bytes.max(), rows * 256 * 4)
        self.assertIn("tf_placer: profiling for 4xK80\n", errors.getvalue())

    def test_reads_no_values_of_a_saved_model_for_a_described_machine(self):
        module = tf.Module()
        module.weight = tf.Variable(tf.ones([8, 8]))
        module.step = tf.function(
            lambda x: x @ module.weight, input_signature=[tf.TensorSpec([4, 8])]
        )
        directory = self.output.with_name("saved")
        tf.saved_model.save(module, str(directory), signatures=module.step)
        [values] = directory.glob("variables/*.data*")
        values.write_bytes(bytes(values.stat().st_size))
        problem = profile(directory, machine=_MACHINE, output=self.output)
        self.assertIn("MatMul", problem.operation_types)
        arguments = ["--input_graph", str(directory), "--output", str(self.output)]
        main(["profile", *arguments, "--machine", _MACHINE])
        with self.assertRaises(GraphError):
            profile(directory, machine="local:1", output=self.output)

    def test_profiles_the_training_step_of_a_model(self):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse", jit_compile=False)
        example = (np.ones([4, 3], np.float32), np.ones([4, 2], np.float32))
        with mock.patch.object(BaseResourceVariable, "numpy", side_effect=AssertionError):
            problem = profile(model, example_inputs=example, machine=_MACHINE, output=self.output)
        self.assertTrue(any("gradient_tape" in name for name in problem.operation_names))
        self.assertTrue(any(name.startswith("sgd") for name in problem.operation_names))
        self.assertEqual(problem.graph_name, f"the model {model.name!r}")

    def test_profiles_recurrent_layers_as_keras_builds_them_where_the_gpus_are(self):
        model = keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4), keras.layers.Dense(2)])
        model.compile("sgd", "mse", jit_compile=False)
        example = (np.ones([4, 5, 3], np.float32), np.ones([4, 2], np.float32))
        if keras.__version__ < "3":
            problem = profile(model, example_inputs=example, machine="1xT4")
            self.assertRegex(problem.notes[0], "would use cuDNN")
            return
        supported = [layer.supports_jit for layer in model.layers]
        problem = profile(model, example_inputs=example, machine="1xT4")
        self.assertEqual(problem.notes, ())
        networked = profile(model, example_inputs=example, machine="2x1xT4@10Gb")
        self.assertRegex(networked.notes[0], "the network of 2x1xT4@10Gb is planned with 1.2 GB/s")
        layers = [n for n, each in enumerate(problem.operation_types) if each.startswith("Cudnn")]
        self.assertLen(layers, 2)
        # The kernels of cuDNN are for GPUs.
        self.assertTrue(np.isinf(problem.compute_secs[layers, 0]).all())
        self.assertTrue(np.isfinite(problem.compute_secs[layers, 1]).all())
        # Training here is as before.
        self.assertEqual([layer.supports_jit for layer in model.layers], supported)
        model.fit(*example, verbose=0)

    def test_profiles_the_step_of_this_computer_where_a_machine_has_no_gpus(self):
        model = keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4)])
        model.compile("sgd", "mse", jit_compile=False)
        example = (np.ones([4, 5, 3], np.float32), np.ones([4, 4], np.float32))
        problems = profile(model, example_inputs=example, machine=["1xT4", "local:2"], steps=1)
        self.assertRegex(problems["1xT4"].notes[0], "would use cuDNN")
        self.assertFalse(any(each.startswith("Cudnn") for each in problems["1xT4"].operation_types))

    def test_reports_invalid_arguments(self):
        with self.assertRaisesRegex(ValueError, "steps must be a whole number from 1 on, not 0"):
            profile(tf.Graph(), machine=_MACHINE, output=self.output, steps=0)
        with self.assertRaisesRegex(ValueError, "needs example_inputs="):
            profile(tf.function(tf.sin), machine=_MACHINE, output=self.output)
        with self.assertRaisesRegex(OSError, "missing"):
            profile(tf.Graph(), machine=_MACHINE, output=self.output.parent / "missing" / "a.json")
        with self.assertRaisesRegex(FileNotFoundError, "nowhere.pb"):
            profile("nowhere.pb", machine=_MACHINE, output=self.output)


if __name__ == "__main__":
    tf.test.main()
