"""Tests of the JSON answers of the commands, whose entries are in golden files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
from typing import Any
from unittest import mock

import tensorflow as tf

from tests.saved_models import save_functions
from tests.tf_placer.cli.graph_commands_test import branches, patch_search, split_is_faster
from tests.tf_placer.scripted import Script
from tests.tf_placer.small_problem import BEST, small_problem
from tf_placer.cli import check_command
from tf_placer.cli import main as cli
from tf_placer.inputs.graph_files import write_graph
from tf_placer.problem.problem_file import write_problem
from tf_placer.runs.result_values import read_result_values
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.scripts import script_run

GOLDEN = pathlib.Path(__file__).parent / "testdata"
# The keys of these objects are names of operations, devices, settings or packages.
NAMED_BY_USERS = {"refused", "feeds", "groups_by_device", "memory_bytes_by_device", "header"}


def kind_of(value: object) -> str:
    """Returns the JSON type of a value, as in a schema."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return "null" if value is None else kinds.get(type(value), "object")


def prune(value: Any) -> Any:
    """Reduces each list in a value to the item with the fewest null entries."""
    if isinstance(value, dict):
        return {name: prune(item) for name, item in value.items()}
    if isinstance(value, list) and value:
        return [prune(min(value, key=lambda item: json.dumps(item).count("null")))]
    return value


class JsonOutputTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.problem = self.path("problem.json")
        write_problem(small_problem(), self.problem)
        write_graph(self.path("in.pb"), branches())

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def call(self, *arguments: str) -> Any:
        """Runs a command with --json; returns the object that it prints on one line."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            cli.main([*arguments, "--json"])
        self.assertEqual(output.getvalue().count("\n"), 1)
        return json.loads(output.getvalue())

    def assert_like(self, golden: Any, value: Any, where: str):
        """Asserts the same entries of the same types; null matches every type."""
        if golden is None or value is None:
            return
        self.assertEqual(kind_of(value), kind_of(golden), where)
        if isinstance(golden, dict) and where.rpartition(".")[2] not in NAMED_BY_USERS:
            self.assertEqual(list(value), list(golden), where)
            for name in golden:
                self.assert_like(golden[name], value[name], f"{where}.{name}")
        if isinstance(golden, list) and golden:
            for item in value:
                self.assert_like(golden[0], item, f"{where}[]")

    def assert_golden(self, name: str, value: Any):
        path = GOLDEN / f"{name}.json"
        if "UPDATE_GOLDEN" in os.environ:
            text = json.dumps(prune(value), indent=1)
            path.write_text(text.replace(str(self.directory), "runs") + "\n")
        self.assert_like(json.loads(path.read_text()), value, name)
        self.assertEqual(value["format"], 1)
        self.assertEqual(value["command"], name.partition("_")[0])

    def test_search(self):
        value = self.call(
            *("search", f"--problem={self.problem}", "--max_secs=4", "--max_trials=500"),
            f"--output={self.path('best.json')}",
        )
        self.assert_golden("search", value)
        self.assertEqual((value["step_secs"], value["is_optimal"]), (4.5, True))
        self.assertEqual([value["devices"][i] for i in value["assignment"]], ["cpu", "gpu", "gpu"])
        self.assertEqual(value["candidates"][0], {"name": "found", "step_secs": 4.5, "fits": True})
        written = json.loads((self.directory / "best.json").read_text())
        self.assertEqual({name: value[name] for name in written}, written)

    def test_log_of_a_search_on_a_problem(self):
        arguments = (f"--problem={self.problem}", "--max_secs=4", "--max_trials=500")
        found = self.call("search", *arguments, f"--log_dir={self.path('plan')}")
        log = self.call("log", self.path("plan"))
        self.assertEqual((log["trials"], log["updates"], log["verdict"]), ([], [], None))
        result = log["plan"]["result"]
        self.assertEqual({name: found[name] for name in result}, result)
        candidates = log["plan"]["candidates"]
        self.assertEqual(candidates, found["candidates"])
        self.assertEqual(log["header"]["placer"], "auto")
        pathlib.Path(self.path("plan"), "result.json").unlink()
        self.assertIsNone(self.call("log", self.path("plan"))["plan"]["result"])

    def test_a_search_needs_no_file(self):
        value = self.call(
            "search", f"--problem={self.problem}", "--placer=random", "--max_trials=9"
        )
        self.assert_golden("search", value)
        self.assertEqual((value["output"], value["candidates"], value["changes"]), (None, [], []))

    def test_simulate(self):
        (self.directory / "a.json").write_text(json.dumps({"assignment": list(BEST)}))
        arguments = ("simulate", f"--problem={self.problem}", f"--assignment={self.path('a.json')}")
        value = self.call(*arguments, f"--output={self.path('report.json')}")
        self.assert_golden("simulate", value)
        written = json.loads((self.directory / "report.json").read_text())
        self.assertEqual(value, {"format": 1, "command": "simulate", **written})

    def test_a_placement_that_is_not_simulated_has_the_same_entries(self):
        (self.directory / "a.json").write_text('{"assignment": [1, 0, 0]}')
        value = self.call(
            "simulate", f"--problem={self.problem}", f"--assignment={self.path('a.json')}"
        )
        self.assert_golden("simulate", value)
        self.assertEqual((value["feasible"], value["devices"]), (False, None))

    def test_profile(self):
        value = self.call(
            *("profile", f"--input_graph={self.path('in.pb')}", "--fetches=y"),
            *("--machine=4xK80", f"--output={self.path('p.json')}"),
        )
        self.assert_golden("profile", value)
        self.assertLen(value["links"], 20)
        self.assertEqual(value["costs"], "analytic")

    def test_machines(self):
        value = self.call("machines")
        self.assert_golden("machines", value)
        # The answer has the device classes that the machines name.
        known = {each["name"] for each in value["device_classes"]}
        for machine in value["machines"]:
            self.assertContainsSubset({d["model"] for d in machine["devices"]}, known)

    def test_compare(self):
        price = f"--price={self.problem}=2.5"
        value = self.call("compare", self.problem, "--max_secs=2", price)
        self.assert_golden("compare", value)
        [machine] = value["machines"]
        self.assertEqual((machine["step_secs"], machine["fits"]), (4.5, True))

    def test_one_machine_has_the_same_entries(self):
        value = self.call("machines", "2xA100")
        self.assert_golden("machines", value)
        [machine] = value["machines"]
        self.assertEqual((machine["name"], len(machine["devices"])), ("2xA100", 3))

    def test_placers(self):
        value = self.call("placers")
        self.assert_golden("placers", value)
        self.assertIn("auto", [placer["name"] for placer in value["placers"]])
        [auto] = self.call("placers", "auto")["placers"]
        self.assertContainsSubset({"name", "value", "help", "part"}, auto["settings"][0])

    def test_optimize_log_and_apply(self):
        arguments = (
            *("optimize", f"--input_graph={self.path('in.pb')}", "--fetches=y"),
            *("--machine=local:2", "--placer=random", "--max_trials=8"),
            f"--log_dir={self.path('run')}",
        )
        plan = self.call(*arguments, "--dry_run")
        self.assert_golden("optimize_dry_run", plan)
        self.assertEqual((plan["plan"]["trials_there"], plan["plan"]["missing"]), (0, None))
        with patch_search(Script(secs=split_is_faster)):
            value = self.call(*arguments, f"--output_graph={self.path('out.pb')}")
        self.assert_golden("optimize", value)
        self.assertTrue(value["placed"])
        # `run` reads the same values from the directory of a search.
        written = read_result_values(RunDirectory(self.path("run")))
        self.assertEqual({name: value[name] for name in written}, written)
        self.assertBetween(value["speedup_interval"][0], 1.9, 2.0)
        self.assertEqual(value["placements"][0]["label"], "original")
        plan = self.call(*arguments, "--dry_run")
        self.assertEqual(plan["plan"]["trials_there"], value["trials"])
        with self.assertRaisesRegex(SystemExit, "a log of another measuring protocol"):
            self.call(*arguments, "--dry_run", "--protocol=post")

        log = self.call("log", self.path("run"))
        self.assert_golden("log", log)
        self.assertEqual(log["verdict"]["reason"], value["reason"])
        self.assertEqual(log["verdict"]["speedup"], value["speedup"])
        self.assertLen(log["trials"], value["trials"])

        applied = self.call(
            *("apply", f"--input_graph={self.path('in.pb')}"),
            f"--placement={value['placement']}",
            f"--output_graph={self.path('again.pb')}",
        )
        self.assert_golden("apply", applied)
        self.assertTrue(applied["is_same_graph"])

    def test_run(self):
        arguments = ("optimize", f"--input_graph={self.path('in.pb')}", "--fetches=y")
        settings = ("--machine=local:2", "--placer=random", "--max_trials=8")
        with patch_search(Script(secs=split_is_faster)):
            found = self.call(*arguments, *settings, f"--log_dir={self.path('run')}")
        script, answer = self.path("train.py"), self.directory / "answer.json"
        pathlib.Path(script).write_text("")
        with (
            mock.patch.object(script_run, "run_main_script"),
            mock.patch.object(script_run, "instrument"),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            cli.main(["run", f"--placement={self.path('run')}", f"--json={answer}", script])
        value = json.loads(answer.read_text())
        self.assert_golden("run", value)
        # The script has no step.
        self.assertFalse(value["placed"])
        for name in value.keys() & found.keys() - {"command", "placed"}:
            self.assertEqual(value[name], found[name], name)

    def test_check(self):
        saved = save_functions(self.directory)
        with mock.patch.object(check_command, "say") as note:
            value = self.call("check", saved, "--machine=local:1", f"--original={saved}")
        lines = [call.args[0] for call in note.call_args_list]
        self.assertEqual(lines[0], "importing TensorFlow")
        for stage in ("running", "timing"):
            self.assertContainsSubsequence(
                lines,
                [
                    f"{stage} signature 'words'",
                    f"{stage} signature 'serving_default' of the original",
                ],
            )
        self.assert_golden("check", value)
        self.assertIsNone(value["failure"])
        names = [signature["name"] for signature in value["signatures"]]
        self.assertEqual(names, ["serving_default", "words"])

    def test_pretrain(self):
        value = self.call(
            *("pretrain", f"--problems={self.problem}", "--updates=1"),
            f"--output={self.path('policy.weights.h5')}",
        )
        self.assert_golden("pretrain", value)
        self.assertEqual(value["problems"][0]["updates"], 1)


if __name__ == "__main__":
    tf.test.main()
