"""Tests of the commands on graphs: their files, answers and errors."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import time
from collections.abc import Iterator
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.placement import Placement, write_placement
from tests import graphs
from tests.saved_models import REQUEST, WORDS, save_functions
from tests.tf_placer.scripted import ORIGINAL_SECS, Script, uses_two_devices
from tf_placer.cli import main as cli
from tf_placer.cli.answer import NO_VERDICT
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.saved_model_files import read_saved_model
from tf_placer.inputs.workload import read_graph
from tf_placer.live import entry_points, optimization, optimization_target
from tf_placer.live import run as live_run
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.text import stages

tf1 = tf.compat.v1
_CPUS = ("/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0")


@contextlib.contextmanager
def patch_search(script: Script) -> Iterator[None]:
    """Makes searches run in this process, with patch_search measurements."""

    def search(directory, given, callback, start_secs, host, forks, max_secs):
        assert host is None
        return live_run.run(
            RunDirectory(given), directory, callback, script.environment, start_secs=start_secs
        )

    with mock.patch.object(optimization, "run_search", search):
        yield


def split_is_faster(assignment) -> float:
    return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS


def branches(rename: str | None = None, add: bool = False) -> tf1.GraphDef:
    """Makes two branches; one may end in a renamed operation, or have an additional one."""
    with tf.Graph().as_default() as graph:
        ends = []
        for name in ("left", "right"):
            value = tf1.get_variable(name, [4, 4])
            value = tf.matmul(value, value, name=f"{name}/square")
            if name == "right" and add:
                value = tf.tanh(value, name="right/more")
            ends.append(tf.nn.relu(value, name=rename if name == "right" else "left/end"))
        tf.add_n(ends, name="y")
    return graph.as_graph_def()


class CommandsTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def call(self, *arguments: str) -> str:
        """Calls the command line here; returns what it printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            cli.main(arguments)
        return output.getvalue()

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in self.directory.rglob("*")
            if path.is_file()
        }

    def assert_refused(self, message: str, *arguments: str):
        """Asserts that a command fails with one sentence after its progress, and writes nothing."""
        before = self.files()
        output, errors = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit) as raised,
        ):
            cli.main(arguments)
        # Python prints a text code to standard error and exits with 1.
        self.assertIsInstance(raised.exception.code, str, arguments)
        self.assertRegex(raised.exception.code, f"^tf_placer: .*{message}")
        self.assertNotIn("\n", raised.exception.code)
        notes = [
            line
            for line in errors.getvalue().splitlines()
            if not line.startswith("tf_placer: reading ")
        ]
        self.assertEqual((output.getvalue(), notes), ("", []))
        self.assertEqual(sorted(self.files()), sorted(before))


class OptimizeCommandTest(CommandsTestCase):
    def setUp(self):
        super().setUp()
        write_graph(self.path("in.pb"), branches())
        self.settings = ["--machine=local:2", "--placer=random", "--max_trials=8"]

    def optimize(self, *arguments: str) -> str:
        return self.call("optimize", *self.settings, *arguments)

    def test_writes_and_reports_a_faster_graph(self):
        for ending in ("pb", "pbtxt", "meta"):
            with patch_search(Script(secs=split_is_faster)):
                printed = self.optimize(
                    f"--input_graph={self.path('in.pb')}",
                    "--fetches=y",
                    f"--output_graph={self.path('out.' + ending)}",
                    f"--log_dir={self.path('run')}",
                )
            self.assertIn("placed - ", printed)
            self.assertIn("2.000x", printed)
            self.assertIn(f"placement: {self.path('run/placement.json')}", printed)
            placed = read_graph(self.path("out." + ending)).graph_def
            self.assertTrue(uses_two_devices({n.name: n.device for n in placed.node if n.device}))

    def test_says_what_it_reads_and_that_it_continues(self):
        # Reading is quick here, so reminders have to come after less than ten seconds.
        self.enter_context(mock.patch.object(stages, "_INTERVAL_SECS", 0.02))
        path, errors = self.path("in.pb"), io.StringIO()
        read_target = optimization_target.read_target

        def read_slowly(*args, **kwargs):
            time.sleep(0.5)
            return read_target(*args, **kwargs)

        for module, arguments, rest in (
            (optimization_target, ["--dry_run"], f"tf_placer: still reading {path}: "),
            (entry_points, [], "tf_placer: still reading the graph: "),
        ):
            with (
                mock.patch.object(module, "read_target", read_slowly),
                patch_search(Script(secs=split_is_faster)),
                contextlib.redirect_stderr(errors),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                cli.main(
                    ["optimize", *self.settings, f"--input_graph={path}", "--fetches=y", *arguments]
                )
            printed = errors.getvalue()
            self.assertEqual(printed.count(f"tf_placer: reading {path}\n"), 1)
            self.assertIn(rest, printed)
            errors.truncate(0)

    def test_a_protocol_that_no_paper_has_is_refused_by_those_that_there_are(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaisesRegex(SystemExit, "2"):
            cli.main(["optimize", f"--input_graph={self.path('in.pb')}", "--protocol=paired"])
        message = "argument --protocol: invalid choice: 'paired' .*turns.*colocrl.*post.*eagle"
        self.assertRegex(errors.getvalue().splitlines()[-1], message)

    def test_writes_the_original_if_nothing_is_faster(self):
        with patch_search(Script()):
            printed = self.optimize(
                f"--input_graph={self.path('in.pb')}",
                "--fetches=y",
                f"--output_graph={self.path('out.pb')}",
                f"--log_dir={self.path('run')}",
            )
        self.assertIn("unchanged - no placement is faster", printed)
        self.assertNotIn("placement:", printed)
        self.assertEqual(
            read_graph(self.path("out.pb")).graph_def, read_graph(self.path("in.pb")).graph_def
        )

    def test_a_search_without_a_verdict_has_its_own_exit_code(self):
        arguments = (f"--input_graph={self.path('in.pb')}", "--fetches=y", "--max_trials=1")
        output = f"--output_graph={self.path('out.pb')}"
        with patch_search(Script()):
            for is_json in (False, True):
                printed = io.StringIO()
                with self.assertRaises(SystemExit) as raised, contextlib.redirect_stdout(printed):
                    cli.main(
                        [
                            *("optimize", "--machine=local:2", "--placer=random"),
                            *(*arguments, output, *(["--json"] if is_json else [])),
                        ]
                    )
                self.assertEqual(raised.exception.code, 3)
                if is_json:
                    value = json.loads(printed.getvalue())
                    self.assertFalse(value["placed"] or value["has_verdict"])
                    self.assertEqual(value["outcome"], "no_time")
                else:
                    self.assertIn("no verdict - ", printed.getvalue())
        self.assertEqual(
            read_graph(self.path("out.pb")).graph_def, read_graph(self.path("in.pb")).graph_def
        )

    def test_a_store_answers_another_graph_of_the_same_structure(self):
        store = f"--answers={self.path('store')}"
        with patch_search(Script(secs=split_is_faster)):
            self.optimize(f"--input_graph={self.path('in.pb')}", "--fetches=y", store)
        write_graph(self.path("renamed.pb"), branches(rename="right/last"))
        arguments = (
            f"--input_graph={self.path('renamed.pb')}",
            "--fetches=y",
            f"--output_graph={self.path('out.pb')}",
            store,
            "--require_answer",
        )
        printed = self.optimize(*arguments)
        self.assertRegex(printed, "placed - .* Kept answer of .*, not measured again")
        placed = read_graph(self.path("out.pb")).graph_def
        devices = {node.name: node.device for node in placed.node if node.device}
        self.assertTrue(uses_two_devices(devices))
        self.assertIn("right/last", devices)
        value = json.loads(self.optimize(*arguments, "--json"))
        self.assertRegex(value["kept"], r"^\d{4}-\d\d-\d\d$")

    def test_a_store_without_the_answer_is_an_error_where_one_is_required(self):
        store = self.path("store")
        for message in (
            f"there is no directory {store}",
            "store has no answer for this step on this machine, and require_answer forbids",
        ):
            self.assert_refused(
                message,
                "optimize",
                *self.settings,
                f"--input_graph={self.path('in.pb')}",
                "--fetches=y",
                f"--answers={store}",
                "--require_answer",
            )
            os.makedirs(store, exist_ok=True)

    def test_devices_in_the_graph_stay_unless_they_are_cleared(self):
        graph_def = branches()
        for node in graph_def.node:
            node.device = "/device:CPU:0"
        write_graph(self.path("in.pb"), graph_def)
        arguments = (
            f"--input_graph={self.path('in.pb')}",
            "--fetches=y",
            f"--log_dir={self.path('run')}",
        )
        with patch_search(Script(secs=split_is_faster)):
            printed = self.optimize(*arguments, f"--output_graph={self.path('out.pb')}")
            self.assertIn("unchanged - every operation keeps its original device", printed)
            self.assertEqual(read_graph(self.path("out.pb")).graph_def, graph_def)
            self.assertIn("placed - ", self.optimize(*arguments, "--clear_devices"))

    def test_feeds_come_from_a_file(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            w = tf1.get_variable("w", [4, 4])
            tf.matmul(x, tf.matmul(w, w), name="y")
        write_graph(self.path("in.pb"), graph.as_graph_def())
        np.savez(self.path("feeds.npz"), x=np.ones([2, 4]))
        script = Script()
        with patch_search(script):
            self.optimize(
                f"--input_graph={self.path('in.pb')}",
                "--fetches=y",
                f"--feeds={self.path('feeds.npz')}",
                f"--log_dir={self.path('run')}",
            )
        self.assertAllEqual(script.made[0]["step"].feeds["x:0"], np.ones([2, 4], np.float32))

    def test_a_saved_model_becomes_another_directory(self):
        saved = save_functions(self.directory)
        np.savez(self.path("feeds.npz"), x=REQUEST)
        arguments = [f"--input_graph={saved}", f"--feeds={self.path('feeds.npz')}"]
        with patch_search(Script(secs=split_is_faster)):
            printed = self.optimize(
                *arguments, f"--output_graph={self.path('placed')}", f"--log_dir={self.path('run')}"
            )
        self.assertIn("placed - ", printed)
        self.assertIn(f"graph: {self.path('placed')}", printed)
        placed = read_graph(self.path("placed"))
        devices = {node.name: node.device for node in placed.graph_def.node if node.device}
        self.assertTrue(uses_two_devices(devices))
        # The placement found also fits the original.
        printed = self.call(
            "apply",
            f"--input_graph={saved}",
            f"--placement={self.path('run/placement.json')}",
            f"--output_graph={self.path('again')}",
            "--signature=serving_default",
        )
        self.assertIn("the graph is the one the placement was made for", printed)
        self.assertEqual(
            read_saved_model(self.path("again")), read_saved_model(self.path("placed"))
        )
        self.assert_refused(
            "placed' is there already: name a new directory",
            *["optimize", *arguments, f"--output_graph={self.path('placed')}"],
        )
        self.assert_refused(
            "'x' of the signature 'serving_default' has the shape",
            *["optimize", f"--input_graph={saved}"],
        )
        self.assert_refused(
            "no signature 'nope': name one or more of serving_default, words",
            *["optimize", *arguments, "--signature=nope"],
        )
        # If nothing is faster, the new directory is the original, and the line says so.
        np.savez(self.path("both.npz"), x=REQUEST, words=WORDS[0])
        with patch_search(Script()):
            printed = self.optimize(
                f"--input_graph={saved}",
                f"--feeds={self.path('both.npz')}",
                f"--output_graph={self.path('same')}",
                "--signature=words,serving_default",
            )
        self.assertIn("unchanged - ", printed)
        self.assertIn(f"copy of the original: {self.path('same')}", printed)
        self.assertEqual(read_saved_model(self.path("same")), read_saved_model(saved))
        # A machine of the catalog needs only the graph.
        self.call(
            *["profile", *arguments, "--machine=2xK80", f"--output={self.path('problem.json')}"]
        )
        self.assertIn('StatefulPartitionedCall_1/matmul"', self.files()["problem.json"].decode())

    def test_a_search_that_resumes_replaces_its_saved_model(self):
        saved = save_functions(self.directory)
        np.savez(self.path("feeds.npz"), x=REQUEST)
        arguments = [f"--input_graph={saved}", f"--feeds={self.path('feeds.npz')}"]
        arguments.append(f"--output_graph={self.path('placed')}")
        resumed = [*arguments, f"--log_dir={self.path('run')}"]
        with patch_search(Script(secs=split_is_faster)):
            # One trial is the original alone, which leaves no verdict.
            with self.assertRaises(SystemExit) as raised:
                self.optimize(*resumed, "--max_trials=1")
            self.assertEqual(raised.exception.code, NO_VERDICT)
            self.assertEqual(read_saved_model(self.path("placed")), read_saved_model(saved))
            printed = self.optimize(*resumed)
        self.assertIn(f"graph: {self.path('placed')}", printed)
        placed = read_graph(self.path("placed"))
        devices = {node.name: node.device for node in placed.graph_def.node if node.device}
        self.assertTrue(uses_two_devices(devices))
        there = "placed' is there already: name a new directory"
        self.assert_refused(there, "optimize", *arguments, f"--log_dir={self.path('other')}")

    def test_the_log_can_be_shown(self):
        with patch_search(Script(secs=split_is_faster)):
            self.optimize(
                f"--input_graph={self.path('in.pb')}",
                "--fetches=y",
                f"--log_dir={self.path('run')}",
            )
        printed = self.call("log", self.path("run"))
        self.assertIn("8 trials; best 50.00 ms", printed)
        self.assertRegex(printed, r" 0  original +0  original ")


class BadInputTest(CommandsTestCase):
    def refuses(self, message: str, graph: str, *arguments: str):
        self.assert_refused(
            message,
            "optimize",
            f"--input_graph={self.path(graph)}",
            *(arguments or ("--fetches=y",)),
            *([] if any("--machine" in a for a in arguments) else ["--machine=local:2"]),
            *(
                []
                if any("--output" in a for a in arguments)
                else [f"--output_graph={self.path('o.pb')}"]
            ),
            *(
                []
                if any("--log_dir" in a for a in arguments)
                else [f"--log_dir={self.path('run')}"]
            ),
        )

    def setUp(self):
        super().setUp()
        self.graph_def = branches()
        write_graph(self.path("in.pb"), self.graph_def)

    def write(self, name: str, *nodes: tuple[str, str, list[str]]):
        graph_def = tf1.GraphDef()
        for node_name, op, inputs in nodes:
            node = graph_def.node.add(name=node_name, op=op, input=inputs)
            if op == "Identity":
                node.attr["T"].type = tf.float32.as_datatype_enum
        (self.directory / name).write_bytes(graph_def.SerializeToString())

    def test_graph_files(self):
        data = self.graph_def.SerializeToString()
        (self.directory / "cut.pb").write_bytes(data[: len(data) // 2])
        (self.directory / "garbage.pb").write_bytes(b"\x93\x02not a graph" * 50)
        (self.directory / "empty.pb").touch()
        (self.directory / "graph.h5").touch()
        self.refuses("cut.pb' is not a graph, or is cut short", "cut.pb")
        self.refuses("garbage.pb' is not a graph", "garbage.pb")
        self.refuses("empty.pb' is empty", "empty.pb")
        self.refuses("graph.npz' is not a graph file: its name must end in", "graph.npz")
        self.refuses("missing.pb': No such file", "missing.pb")

    def test_graphs(self):
        self.write("unknown.pb", ("y", "FluxCapacitor", []))
        self.write("cycle.pb", ("x", "Identity", ["y"]), ("y", "Identity", ["x"]))
        self.write("dangling.pb", ("y", "Identity", ["x"]))
        self.refuses("'y' has the type 'FluxCapacitor'", "unknown.pb")
        self.refuses("cycle through '.' -> '.' -> '.'", "cycle.pb")
        self.refuses("'y' reads 'x', which does not exist", "dangling.pb")

    def test_steps(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tf1.placeholder(tf.float32, [None], name="x"), name="y")
        write_graph(self.path("open.pb"), graph.as_graph_def())
        (self.directory / "text.npz").write_text("x")
        (self.directory / "empty.npz").touch()
        np.save(self.directory / "array.npz", np.ones(2))
        os.rename(self.path("array.npz.npy"), self.path("array.npz"))
        np.savez(self.path("objects.npz"), x=np.array([{}], object))
        np.savez(self.path("wrong.npz"), x=np.ones([2, 2]))
        np.savez(self.path("cut.npz"), x=np.ones(1000))
        content = (self.directory / "cut.npz").read_bytes()
        (self.directory / "cut.npz").write_bytes(content[: len(content) // 2])
        self.refuses("fetch 'z' is not in the graph", "in.pb", "--fetches=y,z")
        self.refuses("nothing to fetch", "in.pb", "--fetches=")
        self.refuses("nothing to fetch", "in.pb", "--seed=1")
        self.refuses("initializer 'go' is not", "in.pb", "--fetches=y", "--initializers=go")
        checkpoint = f"--restore_from={self.path('model')}"
        self.refuses("no checkpoint '.*model' to restore", "in.pb", "--fetches=y", checkpoint)
        self.refuses(r"placeholder 'x:0' has the shape \[\?\]", "open.pb")
        for name in ("text", "empty", "array", "objects", "cut"):
            feeds = f"--feeds={self.path(name + '.npz')}"
            self.refuses(f"{name}.npz' are not an .npz file", "open.pb", "--fetches=y", feeds)
        feeds = f"--feeds={self.path('wrong.npz')}"
        self.refuses("feed of 'x:0' has the shape", "open.pb", "--fetches=y", feeds)
        feeds = f"--feeds={self.path('no.npz')}"
        self.refuses("no.npz': No such file", "open.pb", "--fetches=y", feeds)

    def test_machines_and_placers(self):
        for machine, message in (
            ("toaster", "unknown machine 'toaster'"),
            ("local:none", "local:none"),
            ("local:2,speed=9", "unknown option 'speed'"),
            ("grpc://nowhere", "'grpc://nowhere' is not an address"),
            ("grpc://localhost:1", "no TensorFlow server answers at grpc://localhost:1"),
        ):
            self.refuses(message, "in.pb", "--fetches=y", f"--machine={machine}")
        for option, message in (
            ("units", "'units' is not NAME=VALUE"),
            ("no=1", "placer 'colocrl' has no option 'no'"),
            ("learning_rate=fast", "option 'learning_rate' .* must be a number, not 'fast'"),
        ):
            self.refuses(
                message,
                *("in.pb", "--fetches=y", "--placer=colocrl", f"--placer_option={option}"),
            )
        self.refuses("max_trials must be at least 1", "in.pb", "--fetches=y", "--max_trials=0")

    def test_outputs(self):
        (self.directory / "file").touch()
        for output, message in (
            ("no/such/o.pb", "cannot write to '.*no/such/o.pb': No such file or directory"),
            ("file/o.pb", "cannot write to '.*file/o.pb': Not a directory"),
            ("o.txt", "o.txt' is not a graph file"),
        ):
            output_graph = f"--output_graph={self.path(output)}"
            self.refuses(message, "in.pb", "--fetches=y", output_graph)
        log_dir = f"--log_dir={self.path('file/run')}"
        self.refuses("file/run': '.*file' is not a directory", "in.pb", "--fetches=y", log_dir)

    def test_logs(self):
        os.mkdir(self.path("foreign"))
        (self.directory / "foreign" / "trials.jsonl").write_text("hello\nworld\n")
        self.assert_refused("foreign/trials.jsonl:1: not a", "log", self.path("foreign"))
        self.assert_refused("none/trials.jsonl: No such file", "log", self.path("none"))
        write_graph(self.path("other.pb"), graphs.matmul_chain().graph.as_graph_def())
        log_dir = f"--log_dir={self.path('run')}"
        settings = (log_dir, "--machine=local:2", "--placer=random", "--max_trials=2")
        # With one core, each of these would warn that two processes share it.
        cores = mock.patch.object(os, "sched_getaffinity", lambda pid: {0, 1})
        with cores, patch_search(Script()):
            self.call("optimize", f"--input_graph={self.path('in.pb')}", "--fetches=y", *settings)
            self.refuses("a log of another graph", "other.pb", "--fetches=result", *settings)
            self.refuses("a log of another seed", "in.pb", "--fetches=y", "--seed=1", *settings)

    def test_arguments_that_argparse_refuses(self):
        for arguments in (
            [],
            ["fly"],
            ["optimize"],
            ["optimize", "--input_graph=x.pb", "--placer=magic"],
            ["optimize", "--input_graph=x.pb", "--max_trials=many"],
            ["apply", "--input_graph=x.pb"],
            ["serve", "local:2", "--port=99999"],
        ):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as raised:
                cli.main(arguments)
            self.assertEqual(raised.exception.code, 2)
            self.assertRegex(errors.getvalue().splitlines()[-1], "^tf_placer.*: error: ")

    def test_machines_that_cannot_be_served(self):
        needs = "needs a machine of worker processes, such as 'local:N', not 'attached'"
        self.assert_refused(needs, "serve", "attached")
        self.assert_refused("core 99999 of group 2 does not exist", "serve", "cores:0/99999")
        self.assert_refused("unknown machine 'x'", "serve", "x")


class ApplyCommandTest(CommandsTestCase):
    def setUp(self):
        super().setUp()
        self.graph_def = branches()
        write_graph(self.path("in.pb"), self.graph_def)
        with patch_search(Script(secs=split_is_faster)):
            self.call(
                "optimize",
                f"--input_graph={self.path('in.pb')}",
                f"--output_graph={self.path('placed.pb')}",
                f"--log_dir={self.path('run')}",
                *("--fetches=y", "--machine=local:2", "--placer=random", "--max_trials=8"),
            )
        self.placement = f"--placement={self.path('run/placement.json')}"

    def apply(self, source: str, target: str, *arguments: str) -> str:
        return self.call(
            "apply",
            f"--input_graph={self.path(source)}",
            f"--output_graph={self.path(target)}",
            *(arguments or (self.placement,)),
        )

    def test_reproduces_the_placed_graph(self):
        printed = self.apply("in.pb", "out.pb")
        self.assertIn("the graph is the one the placement was made for", printed)
        self.assertNotIn("not in the", printed)
        self.assertEqual(
            read_graph(self.path("out.pb")).graph_def, read_graph(self.path("placed.pb")).graph_def
        )

    def test_is_idempotent(self):
        printed = self.apply("placed.pb", "out.pb")
        self.assertIn("placed: 0 of", printed)
        self.assertEqual(
            read_graph(self.path("out.pb")).graph_def, read_graph(self.path("placed.pb")).graph_def
        )

    def test_reports_mismatches_with_a_changed_graph(self):
        write_graph(self.path("new.pb"), branches(rename="right/other", add=True))
        printed = self.apply("new.pb", "out.pb")
        self.assertIn("the graph is not the one the placement was made for", printed)
        self.assertRegex(printed, r"in the placement but not in the graph \(1\): Relu\n")
        self.assertRegex(printed, r"in the graph but not in the placement \(\d\): .*right/more")
        self.assertIn("right/other", printed)
        found = {n.name: n.device for n in read_graph(self.path("placed.pb")).graph_def.node}
        written = {n.name: n.device for n in read_graph(self.path("out.pb")).graph_def.node}
        self.assertEqual(written["right/other"], "")
        for name in written.keys() & found.keys():
            self.assertEqual(written[name], found[name], name)

    def test_changes_only_the_devices_in_every_format(self):
        with tf.Graph().as_default():
            tf.import_graph_def(self.graph_def, name="")
            tf1.add_to_collection("train_op", tf1.get_default_graph().get_operation_by_name("y"))
            meta = tf1.train.export_meta_graph()
        write_graph(self.path("in.meta"), self.graph_def, meta)
        self.apply("in.meta", "out.meta")
        self.apply("in.pb", "out.pbtxt")
        self.apply("out.pbtxt", "again.meta")
        placed = read_graph(self.path("placed.pb")).graph_def
        for name in ("out.meta", "out.pbtxt", "again.meta"):
            self.assertEqual(read_graph(self.path(name)).graph_def, placed, name)
        meta.graph_def.CopyFrom(placed)
        self.assertEqual(read_graph(self.path("out.meta")).meta_graph, meta)

    def test_devices_are_cleared_on_demand(self):
        graph_def = branches()
        for node in graph_def.node:
            node.device = _CPUS[0]
        write_graph(self.path("in.pb"), graph_def)
        self.assert_refused(
            "in.pb': nothing of the placement fits the graph: '.*': it is pinned",
            "apply",
            f"--input_graph={self.path('in.pb')}",
            f"--output_graph={self.path('out.pb')}",
            self.placement,
        )
        self.apply("in.pb", "out.pb", self.placement, "--clear_devices")
        self.assertEqual(
            read_graph(self.path("out.pb")).graph_def, read_graph(self.path("placed.pb")).graph_def
        )

    def test_devices_may_have_other_names(self):
        tasks = [name.removesuffix("/device:CPU:0") for name in _CPUS]
        pairs = zip(_CPUS, reversed(tasks), strict=True)
        maps = [f"--map={old}={new}/device:CPU:1" for old, new in pairs]
        self.apply("in.pb", "out.pb", self.placement, *maps)
        placed = read_graph(self.path("placed.pb")).graph_def
        expected = {node.name: node.device for node in placed.node}
        other = {
            "": "",
            _CPUS[0]: f"{tasks[1]}/device:CPU:1",
            _CPUS[1]: f"{tasks[0]}/device:CPU:1",
        }
        self.assertEqual(
            {node.name: node.device for node in read_graph(self.path("out.pb")).graph_def.node},
            {name: other[device] for name, device in expected.items()},
        )
        arguments = (
            *("apply", f"--input_graph={self.path('in.pb')}", self.placement),
            f"--output_graph={self.path('bad.pb')}",
        )
        for bad, message in (
            ("--map=GPU:0", "--map 'GPU:0' is not OLD=NEW, such as GPU:0=GPU:2"),
            ("--map=GPU:0=GPU", "has 'GPU', which names no device"),
            ("--map=GPU:0=GPU:1", "'/device:GPU:0', where nothing is: the devices in the graph"),
        ):
            self.assert_refused(message, *arguments, bad)
        repeated = ("--map=CPU:0=CPU:1", "--map=CPU:0=CPU:2")
        self.assert_refused("--map renames 'CPU:0' twice", *arguments, *repeated)

    def test_bad_placements_are_named(self):
        good = json.loads((self.directory / "run" / "placement.json").read_text())
        for name, content in (
            ("cut", json.dumps(good)[:-40]),
            ("list", "[]"),
            ("later", json.dumps({**good, "format": 9})),
            ("lacking", json.dumps({k: v for k, v in good.items() if k != "assignment"})),
            ("device", json.dumps({**good, "assignment": {"y": "/device:FPGA:0"}})),
        ):
            (self.directory / f"{name}.json").write_text(content)
            self.refuse(name, f"{name}.json'")
        write_placement(Placement("f", _CPUS, {"a": _CPUS[0]}), self.path("other.json"))
        self.refuse("other", "other.json' on '.*in.pb': nothing of the placement fits")
        self.refuse("none", "none.json': No such file")

    def refuse(self, placement: str, message: str):
        self.assert_refused(
            message,
            "apply",
            f"--input_graph={self.path('in.pb')}",
            f"--output_graph={self.path('out.pb')}",
            f"--placement={self.path(placement + '.json')}",
        )

    def test_an_output_that_cannot_be_written_is_named(self):
        self.assert_refused(
            "cannot write to '.*no/such/out.pb'",
            "apply",
            f"--input_graph={self.path('in.pb')}",
            f"--output_graph={self.path('no/such/out.pb')}",
            self.placement,
        )


class PlanCommandsTest(CommandsTestCase):
    """Tests of the way from a graph through a problem and a plan back to the graph."""

    def setUp(self):
        super().setUp()
        write_graph(self.path("in.pb"), branches())
        graph, best = f"--input_graph={self.path('in.pb')}", f"--output={self.path('best.json')}"
        problem = f"--problem={self.path('p.json')}"
        self.call(
            *("profile", graph, "--fetches=y", "--machine=2xK80"),
            *(f"--output={self.path('p.json')}", "--pin=left=GPU:0", "--pin=right=GPU:1"),
        )
        said = self.call("search", problem, best, "--max_trials=50", "--max_secs=5")
        self.assertIn("best.json, which `apply` takes as --placement", said)
        self.arguments = ("apply", graph, f"--output_graph={self.path('out.pb')}")
        self.placement = f"--placement={self.path('best.json')}"

    def test_the_graph_gets_the_devices_of_the_plan_and_runs(self):
        printed = self.call(*self.arguments, self.placement)
        self.assertRegex(
            printed, r"^planned step: .* by simulation\nplaced: \d+ of \d+ operations\n"
        )
        problem = json.loads((self.directory / "p.json").read_text())
        chosen = json.loads((self.directory / "best.json").read_text())["assignment"]
        written = {n.name: n.device for n in read_graph(self.path("out.pb")).graph_def.node}
        for operation in problem["operations"]:
            device = problem["devices"][chosen[operation["group"]]]["name"]
            self.assertEqual(written[operation["name"]], device)
        # Initial values are no part of the step: each is made where its variable is.
        for side, device in (("left", "GPU:0"), ("right", "GPU:1")):
            for name in (side, f"{side}/Assign", f"{side}/Initializer/random_uniform"):
                self.assertEndsWith(written[name], device, name)

        # This computer has no GPUs: the placed graph runs on other CPU devices.
        maps = ("--map=GPU:0=CPU:1", "--map=GPU:1=CPU:2")
        self.call(*self.arguments, self.placement, *maps)
        graph_def = read_graph(self.path("out.pb")).graph_def
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
            config = tf1.ConfigProto(device_count={"CPU": 3})
            with tf1.Session(graph=graph, config=config) as session:
                session.run(["left/Assign", "right/Assign"])
                left, right, y = session.run(
                    [f"{side}/square/ReadVariableOp:0" for side in ("left", "right")] + ["y:0"]
                )
        expected = np.maximum(left @ left, 0) + np.maximum(right @ right, 0)
        self.assertAllClose(y, expected)

    def test_says_what_of_the_plan_is_not_in_the_graph(self):
        write_graph(self.path("in.pb"), branches(rename="right/other"))
        printed = self.call(*self.arguments, self.placement)
        self.assertRegex(printed, r"in the placement but not in the graph \(1\): Relu\n")
        value = json.loads(self.call(*self.arguments, self.placement, "--json"))
        self.assertIsNone(value["is_same_graph"])
        self.assertEqual(value["not_in_graph"], ["Relu"])

    def test_simulates_the_plan_on_the_graph(self):
        arguments = (f"--input_graph={self.path('in.pb')}", "--fetches=y", "--machine=2xK80")
        value = json.loads(self.call("simulate", *arguments, self.placement, "--json"))
        planned = json.loads((self.directory / "best.json").read_text())
        self.assertAlmostEqual(value["step_secs"], planned["step_secs"])

    def test_a_result_without_operations_is_refused(self):
        best = json.loads((self.directory / "best.json").read_text())
        (self.directory / "best.json").write_text(json.dumps({**best, "placement": None}))
        self.assert_refused(
            "best.json': it has a device for each group of a problem, but none for operations",
            *self.arguments,
            self.placement,
        )


if __name__ == "__main__":
    tf.test.main()
