"""Tests of the command `run` on unchanged scripts."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys
import textwrap
from unittest import mock

import tensorflow as tf

from graph_passes.placement import Placement, write_placement
from tests.tf_placer.scripted import confirmation
from tf_placer.cli import main as cli
from tf_placer.confirmation.outcome import Outcome
from tf_placer.machines.lookup import find_machine
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.scripts.training_step_detector import TrainingStepDetector

_ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
_ENVIRON["TF_CPP_MIN_LOG_LEVEL"] = "2"
_REQUEST = {
    "fetches": ["train"],
    "initializers": [],
    "placer": "auto",
    "placer_options": {},
    "max_trials": 150,
    "max_secs": 600.0,
    "seed": 0,
}


_SESSION_SCRIPT = """
    import sys
    import tensorflow.compat.v1 as tf
    tf.disable_eager_execution()
    weights = tf.get_variable("weights", [3, int(sys.argv[1])])
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    loss = tf.reduce_sum((x @ weights) ** 2)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {x: [[1.0] * 3] * 2})
        print("trained")
    """


class _RestartError(Exception):
    """The error that stands for a restart of the script."""


class ScriptRunTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def run_script(self, text: str, *args: str, options: tuple[str, ...] = ()) -> tuple:
        """Exit code, standard output and standard error of a script."""
        (self.directory / "train.py").write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, "-m", "tf_placer", "run", *options, "train.py", *args],
            cwd=self.directory,
            env=_ENVIRON,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout, done.stderr

    def run_plainly(self, *args: str) -> str:
        """Standard output of the script without tf_placer, in this process."""
        tf.random.set_seed(None)
        path = str(self.directory / "train.py")
        with (
            mock.patch.object(sys, "argv", [path, *args]),
            contextlib.redirect_stdout(io.StringIO()) as output,
        ):
            runpy.run_path(path, run_name="__main__")
        return output.getvalue()

    def test_a_script_is_the_main_module_and_ends_as_it_ends(self):
        code, output, errors = self.run_script(
            """
            import os, sys
            import beside
            assert "tensorflow" not in sys.modules
            print(__name__, sys.argv, beside.VALUE, os.path.basename(__file__))
            sys.exit(7)
            """,
            "--machine=none",
            "x",
            options=("--machine=local:2",),
        )
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, "No module named 'beside'")
        trace = f'Traceback (most recent call last):\n  File "{self.directory}/train.py", line'
        self.assertStartsWith(errors, trace)
        (self.directory / "beside.py").write_text("VALUE = 3")
        code, output, errors = self.run_script(
            (self.directory / "train.py").read_text(),
            *("--machine=none", "x"),
            options=("--machine=local:2",),
        )
        self.assertEqual(
            (code, output), (7, "__main__ ['train.py', '--machine=none', 'x'] 3 train.py\n")
        )
        self.assertRegex(errors, "^tf_placer: train.py ran unchanged: no training step was found")
        self.assertEqual({*os.listdir(self.directory)} - {"__pycache__"}, {"beside.py", "train.py"})

    def test_a_model_that_is_fitted_is_searched_for_once(self):
        script = """
            import sys
            import tensorflow  # looks for Keras
            import keras
            import numpy as np

            keras.utils.set_random_seed(1)
            units = int(sys.argv[1])
            model = keras.Sequential([keras.layers.Dense(units, "relu"), keras.layers.Dense(2)])
            model.compile("adam", "mse")
            random = np.random.default_rng(2)
            x, y = random.normal(size=[32, 8]), random.normal(size=[32, 2])
            model.evaluate(x, y, verbose=0)
            history = model.fit(x, y, batch_size=16, epochs=2, verbose=0).history
            print(history["loss"])
            """
        options = ("--machine=local:2", "--search_secs=9")
        code, searched, errors = self.run_script(script, "4", options=options)
        self.assertEqual(code, 0, errors)
        self.assertIn("found the training step: that of the model", errors)
        self.assertRegex(errors, "tf_placer: (placed|unchanged|no verdict) - ")
        self.assertIn("result.json", os.listdir(self.directory / "train.tf_placer"))
        code, again, errors = self.run_script(script, "4")
        self.assertEqual((code, again), (0, searched), errors)
        self.assertNotIn("found the training step", errors)
        self.assertNotIn("it has changed", errors)
        self.assertAllClose(eval(self.run_plainly("4")), eval(again), rtol=1e-5)
        code, output, errors = self.run_script(script, "4", options=("--machine=local:3",))
        self.assertEqual((code, output), (1, ""))
        self.assertRegex(errors, "is a search for machine 'local:2', not 'local:3'")
        _, _, errors = self.run_script(script, "4", options=("--machine=loca:2",))
        self.assertRegex(errors, "unknown machine 'loca:2'")

    def test_a_function_that_takes_from_an_iterator_runs_as_placed(self):
        script = """
            import tensorflow as tf

            weights = tf.Variable(tf.ones([3, 2]), name="weights")
            # TensorFlow forgets tables when it connects to servers.
            keys = tf.lookup.KeyValueTensorInitializer(["one"], [1])
            table = tf.lookup.StaticHashTable(keys, 0)
            mean = tf.keras.metrics.Mean()
            data = tf.data.Dataset.range(12).map(lambda i: tf.fill([3], tf.cast(i, tf.float32)))
            iterator = iter(data.shuffle(12, seed=1).repeat().batch(4))

            @tf.function
            def train(iterator):
                x = next(iterator)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.tanh(tf.matmul(x, weights, name="product")) ** 2)
                weights.assign_sub(0.1 * tape.gradient(loss, weights))
                return loss

            print([float(train(iterator)) for _ in range(8)])
            print(float(mean(table.lookup(tf.constant(["one", "one", "two"])))))
            print(weights.device)
            """
        devices = tuple(f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2))
        names = ("product/ReadVariableOp/resource", "product/ReadVariableOp", "product")
        placement = Placement("", devices, dict.fromkeys(names, devices[1]))
        write_placement(placement, self.directory / "placement.json")
        options = ("--machine=local:2", "--placement=placement.json")
        code, output, errors = self.run_script(script, options=options)
        self.assertEqual(code, 0, errors)
        self.assertEqual(errors.count("placed 3 operations of the training step"), 1)
        losses, mean, device = output.splitlines()
        self.assertEqual(device, devices[1])
        plain, plain_mean, _ = self.run_plainly().splitlines()
        self.assertEqual(mean, plain_mean)
        self.assertAllClose(eval(losses), eval(plain))

    def test_a_script_that_calls_python_trains_as_alone(self):
        script = """
            import sys
            import numpy as np
            import tensorflow.compat.v1 as tf

            tf.disable_eager_execution()
            values = tf.py_func(lambda: np.ones(4, np.float32), [], tf.float32)
            weights = tf.get_variable("weights", initializer=tf.ones([4, 1]))
            loss = tf.reduce_mean((tf.matmul(tf.reshape(values, [1, 4]), weights) - 2.0) ** 2)
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                print([float(session.run([loss, train])[0]) for _ in range(3)])
                print([device.name for device in session.list_devices()])
            sys.exit(3)
            """
        code, output, errors = self.run_script(script, options=("--machine=local:2",))
        self.assertEqual(code, 3, errors)
        losses, devices = output.splitlines()
        # Products are 4, 2.4 and 2.08.
        self.assertAllClose(eval(losses), [4.0, 0.16, 0.0064])
        self.assertEqual(eval(devices), ["/job:localhost/replica:0/task:0/device:CPU:0"])
        self.assertIn("runs unchanged: 'PyFunc' calls a Python function", errors)
        self.assertNotIn("train.tf_placer", os.listdir(self.directory))

    def test_sessions_go_to_the_machine_only_if_their_graph_is_placed(self):
        script = """
            import tensorflow.compat.v1 as tf

            tf.disable_eager_execution()
            x = tf.placeholder(tf.float32, [2, 3])
            first = tf.Session()
            print(first.run(tf.reduce_sum(x), {x: [[1.0] * 3] * 2}))
            weights = tf.get_variable("weights", initializer=tf.ones([3, 2]), use_resource=True)
            loss = tf.reduce_mean(tf.matmul(x, weights, name="product") ** 2)
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            second = tf.Session()
            for session in (first, second):
                try:
                    session.run(train, {x: [[1.0] * 3] * 2})
                except tf.errors.FailedPreconditionError:
                    session.run(tf.global_variables_initializer())
            losses = [s.run([loss, train], {x: [[1.0] * 3] * 2})[0] for s in (first, second) * 2]
            print([float(each) for each in losses])
            with tf.Graph().as_default(), tf.Session() as other:
                print(other.run(tf.py_func(lambda: 5.0, [], tf.double)))
            print([d.name for d in first.list_devices() + second.list_devices()], end="")
            """
        devices = tuple(f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2))
        placement = Placement("", devices, {"product": devices[1], "weights": devices[1]})
        write_placement(placement, self.directory / "placement.json")
        options = ("--machine=local:2", "--placement=placement.json")
        code, output, errors = self.run_script(script, options=options)
        self.assertEqual(code, 0, errors)
        *printed, found = output.splitlines()
        self.assertEqual(eval(found), [*devices] * 2)
        # The elements of the product are 3, then 2.1; each session has weights of its own.
        total, losses, value = map(eval, printed)
        self.assertEqual((total, value), (6.0, 5.0))
        self.assertAllClose(losses, [9.0, 9.0, 4.41, 4.41])
        self.assertEqual(errors.count("operations of the graph as"), 1)

    def test_without_a_placement_nothing_of_a_script_is_touched(self):
        script = """
            import os, sys
            print([each for each in sys.meta_path if "tf_placer.scripts" in type(each).__module__])
            print("tensorflow" in sys.modules, os.sched_getaffinity(0), os.environ.get("A"))
            print([name for name in os.environ if "TF_PLACER" in name])
            """
        log_dir = self.directory / "train.tf_placer"
        log_dir.mkdir()
        asked = {"fetches": [], "initializers": [], "placer": "auto", "placer_options": {}}
        asked |= {"machine": find_machine("local:2").to_json()}
        asked |= {"max_trials": 150, "max_secs": 25.0, "seed": 0}
        (log_dir / "request.json").write_text(json.dumps(asked))
        RunDirectory(log_dir).write_result(
            RunResult(Outcome.NOT_FASTER, 3, 150, 25.0, None, None, None, {}, is_complete=True)
        )
        ours = [name for name in _ENVIRON if "TF_PLACER" in name]
        expected = f"[]\nFalse {os.sched_getaffinity(0)} {_ENVIRON.get('A')}\n{ours}\n"
        for options in ((), ("--search_secs=20",), ("--placement=train.tf_placer",)):
            code, output, errors = self.run_script(script, options=options)
            self.assertEqual((code, output), (0, expected), errors)
            self.assertIn("nothing faster; a --search_secs of more than 25 resumes it", errors)

    def test_callbacks_act_as_without_tf_placer(self):
        script = """
            import sys
            import keras
            import numpy as np

            keras.utils.set_random_seed(1)
            layers = [keras.layers.Dense(4, "relu"), keras.layers.Dense(1, name="last")]
            model = keras.Sequential(layers)
            eager = sys.argv[1] == "eager"
            model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=eager)
            print(file=open("begun.txt", "a"))

            def batches():
                for x in np.random.default_rng(2).normal(size=[9, 8, 4]):
                    yield x, x[:, :1]

            callbacks = [
                keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
                keras.callbacks.CSVLogger(sys.argv[2], append=True),
            ]
            model.fit(batches(), steps_per_epoch=3, epochs=3, verbose=0, callbacks=callbacks)
            """
        devices = tuple(f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2))
        names = ("sequential_1/last_1/MatMul", "sequential_1/last_1/Add")
        write_placement(
            Placement("", devices, dict.fromkeys(names, devices[1])),
            self.directory / "placement.json",
        )
        local = ("--machine=local:2",)
        for kind, options, line in (
            ("eager", local, "cannot be placed, and runs unchanged: .* runs eagerly"),
            ("placed", (*local, "--placement=placement.json"), "placed 2 operations"),
        ):
            code, _, errors = self.run_script(script, kind, f"{kind}.csv", options=options)
            self.assertEqual(code, 0, errors)
            self.assertRegex(errors, line)
        self.assertLen((self.directory / "begun.txt").read_text(), 2, "begun once each")
        as_it_came, placed = (
            [
                [float(value) for value in line.split(",")[:3]]
                for line in (self.directory / f"{kind}.csv").read_text().splitlines()[1:]
            ]
            for kind in ("eager", "placed")
        )
        self.assertAllClose([rate for _, rate, _ in as_it_came], [0.05, 0.025, 0.0125])
        self.assertAllClose(placed, as_it_came, rtol=1e-5)

    def test_a_required_answer_cannot_be_one_that_was_refused(self):
        script = self.directory / "train.py"
        script.write_text("print(1)")
        directory = RunDirectory(self.directory / "train.tf_placer")
        directory.path.mkdir()
        machine = find_machine("local:2")
        request = {"machine": machine.to_json(), **_REQUEST}
        (directory.path / "request.json").write_text(json.dumps(request))
        refusal = {"reason": "it is wrong", "search_secs": 600.0}
        (directory.path / "refusal.json").write_text(json.dumps(refusal))
        with contextlib.chdir(self.directory), self.assertRaises(SystemExit) as raised:
            cli.main(["run", "--require_answer", "train.py"])
        self.assertRegex(raised.exception.code, "no answer for train.py: .* it is wrong")

    def test_a_placement_slower_than_one_process_on_all_cores_is_not_used(self):
        script = self.directory / "train.py"
        script.write_text("print(1)")
        directory = RunDirectory(self.directory / "train.tf_placer")
        directory.path.mkdir()
        request = {"machine": find_machine("local:2").to_json(), **_REQUEST}
        (directory.path / "request.json").write_text(json.dumps(request))
        directory.placement.write_text("{}")
        confirmed = confirmation({"auto": 1.25})
        for one_process_secs, is_used in ((0.079, False), (0.081, True), (None, True)):
            directory.write_result(
                RunResult(
                    *(Outcome.FASTER, 3, 150, 600.0, "auto", None, confirmed, {"auto": 1}),
                    is_complete=True,
                    one_process_secs=one_process_secs,
                )
            )
            _, _, errors = self.run_script(script.read_text())
            text = "runs unchanged: in one process on all cores a step took 79.00 ms, on workers "
            self.assertEqual(text in errors, not is_used, errors)

    def test_a_search_with_other_pins_is_refused(self):
        (self.directory / "train.py").write_text("print(1)")
        directory = RunDirectory(self.directory / "train.tf_placer")
        directory.path.mkdir()
        machine = find_machine("local:2")
        request = {"machine": machine.to_json(), **_REQUEST, "pin": {"a/*": "/task:1"}}
        (directory.path / "request.json").write_text(json.dumps(request))
        refusal = {"reason": "it is wrong", "search_secs": 600.0}
        (directory.path / "refusal.json").write_text(json.dumps(refusal))
        required = machine.devices[1].name
        self.assertEqual(directory.read_restrictions().pin, {"a/*": required})
        for options, message in (
            (["--pin=a/*=/task:0"], "is a search with other pins: another --log_dir"),
            (["--keep_together=a/*,b/*"], "is a search with other pins"),
            (["--pin=a/*=/task:7"], "'/task:7' is not on the machine: name one of "),
            (["--pin=a/*=/task:1", "--placement=train.tf_placer"], "leave out --placement"),
            # These are the pins of the search, whose refusal is read next.
            ([f"--pin=a/*={required}", "--require_answer"], "no answer for train.py: .* it is wr"),
            (["--require_answer"], "no answer for train.py: .* it is wrong"),
        ):
            with contextlib.chdir(self.directory), self.assertRaises(SystemExit) as raised:
                cli.main(["run", *options, "train.py"])
            self.assertRegex(raised.exception.code, message)

    def test_a_kept_answer_that_nothing_is_faster_is_not_said_to_resume(self):
        script = self.directory / "train.py"
        script.write_text("print(1)")
        directory = RunDirectory(self.directory / "kept")
        directory.path.mkdir()
        request = {"machine": find_machine("local:2").to_json(), **_REQUEST}
        (directory.path / "request.json").write_text(json.dumps(request))
        kept = RunResult(Outcome.NOT_FASTER, 5, 40, 60.0, None, None, None, {})
        # More time helps no placer that has ended, unless the best may be faster.
        ended = dataclasses.replace(kept, is_complete=True, has_placer_ended=True)
        noisy = confirmation({"auto": 1.02}, noise=0.1)
        for result, text in (
            (kept, "run without --placement and --answers and with another --log_dir than"),
            (ended, "no other placement to try; use another --log_dir, without --placement, if"),
            (dataclasses.replace(ended, confirmation=noisy), "of more than 60 resumes it, and use"),
        ):
            directory.write_result(result)
            with (
                contextlib.chdir(self.directory),
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()) as errors,
            ):
                cli.main(["run", "--placement=kept", "train.py"])
            self.assertIn(text, errors.getvalue())
        with contextlib.chdir(self.directory), self.assertRaises(SystemExit) as raised:
            cli.main(["run", "--placement=kept", "--machine=local:3", "train.py"])
        self.assertIn("leave out --machine to use it there", raised.exception.code)

    def test_a_placement_of_another_step_is_left_out(self):
        devices = tuple(f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2))
        placement = Placement("", devices, dict.fromkeys(["other", "names"], devices[1]))
        write_placement(placement, self.directory / "given.json")
        options = ("--placement=given.json", "--machine=local:2")
        code, output, errors = self.run_script(_SESSION_SCRIPT, "4", options=options)
        self.assertEqual((code, output), (0, "trained\n"), errors)
        self.assertRegex(
            errors,
            "given.json' is for another training step: the script runs unchanged; leave out "
            "--placement and give another --log_dir to search for one",
        )
        self.assertNotIn("has changed", errors)

    def cache_step(self) -> RunDirectory:
        """Caches the step of `_SESSION_SCRIPT` with width 4, without a search."""
        directory = RunDirectory(self.directory / "train.tf_placer")
        detector = TrainingStepDetector(
            directory,
            find_machine("local:2"),
            60.0,
            say=lambda line: None,
            restart=mock.Mock(side_effect=_RestartError),
        )
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            weights = tf.compat.v1.get_variable("weights", [3, 4])
            x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")
            loss = tf.reduce_sum((x @ weights) ** 2)
            train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            session.run(weights.initializer)
            with self.assertRaises(_RestartError):
                detector.before_session_run(session, train, {x: [[1.0] * 3] * 2})
        return directory

    def test_programs_are_told_of_a_step_that_has_changed(self):
        directory = self.cache_step()
        not_faster = RunResult(
            *(Outcome.NOT_FASTER, 3, 150, 25.0, None, None, None, {}),
            is_complete=True,
            answer_kept=True,
        )
        slower = dataclasses.replace(
            not_faster,
            outcome=Outcome.FASTER,
            winner="auto",
            confirmation=confirmation({"auto": 1.25}),
            finalists={"auto": 1},
            one_process_secs=0.079,
        )
        answers = ("--answers=store",)
        for result, options, width, has_changed, outcome, answer_kept in (
            (not_faster, answers, "4", False, "not_faster", True),
            (not_faster, (), "4", False, "not_faster", None),
            (slower, answers, "5", True, None, None),
        ):
            directory.write_result(result)
            if result is not_faster:
                directory.placement.unlink(missing_ok=True)
            else:
                write_placement(Placement("", (), {}), directory.placement)
            code, output, errors = self.run_script(
                _SESSION_SCRIPT, width, options=(*options, "--json=answer.json")
            )
            self.assertEqual((code, output), (0, "trained\n"), errors)
            value = json.loads((self.directory / "answer.json").read_text())
            self.assertIs(value["step_changed"], has_changed, errors)
            self.assertEqual((value["outcome"], value["answer_kept"]), (outcome, answer_kept))
            self.assertEqual(value["has_verdict"], not has_changed)
            self.assertIn("use another --log_dir if the step has changed", value["notes"][0])
            self.assertEqual("it has changed since" in value["notes"][-1], has_changed)

    def test_a_required_answer_is_of_this_step_even_if_nothing_was_faster(self):
        directory = self.cache_step()
        directory.write_result(
            RunResult(Outcome.NOT_FASTER, 3, 150, 25.0, None, None, None, {}, is_complete=True)
        )
        options = ("--require_answer", "--answers=store", "--json=answer.json")
        for width, ended in (("4", (0, "trained\n", None)), ("5", (1, "", "NoAnswerError"))):
            code, output, errors = self.run_script(_SESSION_SCRIPT, width, options=options)
            answer = json.loads((self.directory / "answer.json").read_text())
            error = answer["error"]
            self.assertEqual((code, output, error and error["kind"]), ended, errors)
            # Nothing is said of the step of the directory if the script has another one.
            self.assertEqual("runs unchanged: " in errors, code == 0, errors)
            self.assertEqual(answer["outcome"], "not_faster" if code == 0 else None)
            self.assertIs(answer["step_changed"], code != 0)
        # On the machine that is asked for, an answer for the changed step is looked up.
        options += ("--machine=local:2",)
        (self.directory / "store").mkdir()
        code, output, errors = self.run_script(_SESSION_SCRIPT, "5", options=options)
        self.assertEqual((code, output), (1, ""), errors)
        answer = json.loads((self.directory / "answer.json").read_text())
        self.assertIs(answer["step_changed"], True)
        message = answer["error"]["message"]
        self.assertStartsWith(message, "the training step has changed since the search in '")
        self.assertIn("store has no answer for this step", message)
        self.assertNotIn("runs unchanged", errors)
        self.assertFalse(directory.path.exists())

    def test_tells_programs_about_the_placement(self):
        script = self.directory / "train.py"
        script.write_text("import sys; print(1); sys.exit(5)")
        directory = RunDirectory(self.directory / "train.tf_placer")
        directory.path.mkdir()
        request = {"machine": find_machine("local:2").to_json(), **_REQUEST}
        (directory.path / "request.json").write_text(json.dumps(request))
        directory.write_result(
            RunResult(Outcome.NOT_FASTER, 3, 150, 25.0, None, None, None, {}, is_complete=True)
        )
        code, output, errors = self.run_script(script.read_text(), options=("--json=answer.json",))
        self.assertEqual((code, output), (5, "1\n"), errors)
        value = json.loads((self.directory / "answer.json").read_text())
        self.assertEqual((value["format"], value["command"]), (1, "run"))
        self.assertEqual((value["placed"], value["outcome"]), (False, "not_faster"))
        self.assertEqual((value["has_verdict"], value["answer_kept"]), (True, None))
        self.assertEqual(value["log_dir"], str(directory.path))
        self.assertIsNone(value["placement"])
        self.assertIsNone(value["step_changed"])
        self.assertRegex(value["notes"][0], "train.py runs unchanged: .* nothing faster")

        directory.write_result(
            RunResult(Outcome.NO_TIME, 1, 150, 25.0, None, None, None, {}, is_complete=True)
        )
        _, _, errors = self.run_script(script.read_text(), options=("--json=answer.json",))
        self.assertIn("came to no verdict; a --search_secs of more than 25 resumes it", errors)
        value = json.loads((self.directory / "answer.json").read_text())
        self.assertEqual((value["outcome"], value["has_verdict"]), ("no_time", False))

        # A step that is not found has no search.
        code, output, _ = self.run_script(
            script.read_text(),
            options=("--json=/dev/stdout", "--log_dir=new", "--machine=local:2"),
        )
        value = json.loads(output.splitlines()[-1])
        self.assertEqual((value["placed"], value["outcome"]), (False, None))
        self.assertRegex(value["notes"][0], "no training step was found")
        self.assertEqual((value["log_dir"], value["error"]), (None, None))

        # Nor has it an answer; a failure of the script comes first.
        options = ("--require_answer", "--answers=.", "--log_dir=new", "--machine=local:2")
        for end, expected_code in (("", 1), ("sys.exit(0)", 1), ("sys.exit(5)", 5)):
            code, output, _ = self.run_script(
                f"import sys; print(1); {end}", options=("--json=/dev/stdout", *options)
            )
            self.assertEqual(code, expected_code)
            error = json.loads(output.splitlines()[-1])["error"]
            if expected_code == 1:
                self.assertEqual(error["kind"], "NoAnswerError")
                self.assertRegex(error["message"], "no training step was found")
            else:
                self.assertIsNone(error)

        # An error of the command.
        with contextlib.chdir(self.directory), self.assertRaises(SystemExit):
            cli.main(["run", "--json=answer.json", "--machine=local:3", "train.py"])
        value = json.loads((self.directory / "answer.json").read_text())
        self.assertEqual(value["error"]["kind"], "MachineError")
        self.assertRegex(value["error"]["message"], "is a search for machine 'local:2'")

    def test_scripts_of_tensorflow_1_get_advice_after_their_traceback(self):
        code, _, errors = self.run_script(
            """
            import tensorflow as tf
            x = tf.placeholder(tf.float32, [None])
            """,
            options=("--machine=local:2", "--json=answer.json"),
        )
        self.assertEqual(code, 1)
        value = json.loads((self.directory / "answer.json").read_text())
        self.assertEqual(value["error"]["kind"], "AttributeError")
        trace, advice = errors.rstrip().splitlines()[-2:]
        self.assertEqual(
            trace, "AttributeError: module 'tensorflow' has no attribute 'placeholder'"
        )
        self.assertStartsWith(advice, "tf_placer: 'tf.placeholder' belongs to TensorFlow 1")
        self.assertEqual(errors.count("belongs to"), 1)

    def test_a_placement_replaces_the_devices_of_a_script_only_if_they_are_cleared(self):
        script = """
            import tensorflow.compat.v1 as tf

            tf.disable_eager_execution()
            with tf.device("/cpu:0"):
                x = tf.placeholder(tf.float32, [2, 3])
                weights = tf.get_variable("weights", initializer=tf.ones([3, 2]))
                loss = tf.reduce_mean(tf.matmul(x, weights, name="product") ** 2)
                train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                feeds = {x: [[1.0] * 3] * 2}
                print([float(session.run([loss, train], feeds)[0]) for _ in range(2)])
                print(tf.get_default_graph().get_operation_by_name("product").device, end="")
            """
        devices = tuple(f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2))
        names = ("product", "weights", "weights/Assign", "weights/read")
        write_placement(
            Placement("", devices, dict.fromkeys(names, devices[1])),
            self.directory / "placement.json",
        )
        options = ("--machine=local:2", "--placement=placement.json", "--json=answer.json")
        for flags, device in (((), "/device:CPU:0"), (("--clear_devices",), devices[1])):
            code, output, errors = self.run_script(script, options=(*options, *flags))
            self.assertEqual(code, 0, errors)
            losses, found = output.splitlines()
            # The elements of the product are 3, then 2.1.
            self.assertAllClose(eval(losses), [9.0, 4.41])
            self.assertEqual(found, device)
            value = json.loads((self.directory / "answer.json").read_text())
            self.assertEqual(value["placed"], bool(flags), errors)

    def test_a_search_with_the_devices_of_the_script_is_not_one_without(self):
        (self.directory / "train.py").write_text("print(1)")
        directory = RunDirectory(self.directory / "train.tf_placer")
        directory.path.mkdir()
        request = {"machine": find_machine("local:2").to_json(), **_REQUEST}
        refusal = {"reason": "it is wrong", "search_secs": 600.0}
        (directory.path / "refusal.json").write_text(json.dumps(refusal))
        for is_cleared, message in (
            (False, "is a search with the devices of the script: another --log_dir"),
            (True, "no answer for train.py: .* it is wrong"),
        ):
            text = json.dumps({**request, "is_cleared": is_cleared})
            (directory.path / "request.json").write_text(text)
            with contextlib.chdir(self.directory), self.assertRaises(SystemExit) as raised:
                cli.main(["run", "--clear_devices", "--require_answer", "train.py"])
            self.assertRegex(raised.exception.code, message)

    def test_names_missing_files(self):
        script = self.directory / "train.py"
        script.write_text("print(1)")
        for option, message in (
            ("--placement=no.json", "tf_placer: .*no.json: no such placement"),
            ("--search_secs=0", "tf_placer: --search_secs must be more than 0, not 0"),
            ("--placement=.", "tf_placer: .* has no placement.json, and no search has begun"),
            ("--placement=train.py", "tf_placer: .*train.py is not a JSON file"),
            ("--machine=4xK80", "tf_placer: .* is described, not attached"),
            ("--json=train.py", "tf_placer: cannot write to 'train.py': it would replace"),
            ("--json=.", "tf_placer: cannot write to '.': it is a directory"),
        ):
            with (
                contextlib.chdir(self.directory),
                contextlib.redirect_stdout(io.StringIO()) as output,
                self.assertRaises(SystemExit) as raised,
            ):
                cli.main(["run", option, "train.py"])
            self.assertRegex(raised.exception.code, message)
            self.assertEqual(output.getvalue(), "")
        self.assertEqual(script.read_text(), "print(1)")


if __name__ == "__main__":
    tf.test.main()
