"""Tests of the command that lists the placers."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.placers import users_placers
from tf_placer.cli import arguments as cli_arguments
from tf_placer.cli import main as cli
from tf_placer.placers import PLACERS, describe_placer
from tf_placer.placers.own_placers import GROUP
from tf_placer.report.placers_table import placer_table, placers_table


def rows(text: str) -> dict[str, str]:
    """Returns the lines of a table by their first cell."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("---")) + 1
    return {line.split()[0]: line for line in lines[start:]}


class PlacersTableTest(absltest.TestCase):
    def test_has_a_line_for_each_placer_with_its_summary_and_paper(self):
        lines = rows(placers_table())
        self.assertEqual(list(lines), list(PLACERS))
        for name, entry in PLACERS.items():
            self.assertIn(entry.summary, lines[name])
            self.assertIn(entry.reference, lines[name])

    def test_names_the_components_of_learned_placers(self):
        lines = rows(placers_table())
        self.assertRegex(lines["colocrl"], r"colocrl +coarse +seq2seq +reinforce ")
        self.assertNotIn("coarse", lines["random"])

    def test_says_which_need_costs(self):
        lines = rows(placers_table())
        self.assertTrue(any(entry.needs_problem for entry in PLACERS.values()))
        for name, entry in PLACERS.items():
            costs = "needed" if entry.needs_problem else ""
            self.assertRegex(lines[name], rf" {costs} +{re.escape(entry.reference)}  ")

    def test_help_texts_name_placers_of_other_packages_without_importing_them(self):
        point = importlib.metadata.EntryPoint("mine", "no_such_module:Mine", GROUP)
        for command in ("optimize", "search"):
            with (
                mock.patch.object(cli_arguments, "list_entry_points", return_value=[point]),
                contextlib.redirect_stdout(io.StringIO()) as output,
                self.assertRaises(SystemExit),
            ):
                cli.main([command, "--help"])
            self.assertRegex(
                " ".join(output.getvalue().split()),
                "Of other packages: mine .a package with 'no_such_module:Mine'",
            )

    def test_needs_no_tensorflow(self):
        program = "import sys; sys.modules['tensorflow'] = None\n"
        program += "from tf_placer.cli.main import main; main(['placers'])"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
            capture_output=True,
            text=True,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, placers_table() + "\n")


class PlacerTableTest(absltest.TestCase):
    def test_has_a_line_for_each_setting_with_its_value_and_help(self):
        placer = describe_placer("colocrl")
        lines = rows(placer_table("colocrl"))
        self.assertLen(lines, len(placer.settings))
        for setting in placer.settings:
            self.assertIn(setting.help, lines[setting.name])
            self.assertRegex(lines[setting.name], rf"^{setting.name} +\S+ +{setting.part}")
        self.assertRegex(lines["batch_size"], "^batch_size +8 +reinforce")
        self.assertRegex(lines["failure_reward"], "^failure_reward +none +reward")

    def test_options_show_their_effect(self):
        lines = rows(placer_table("colocrl", {"batch_size": "4", "policy": "softmax"}))
        self.assertRegex(lines["batch_size"], "^batch_size +4 ")
        self.assertNotIn("hidden_units", lines)

    def test_a_placer_without_settings_says_so(self):
        self.assertEqual(
            placer_table("random"),
            "random: a random legal device for every group (baseline)\nno settings",
        )

    def test_a_placer_that_needs_costs_says_so(self):
        self.assertIn("\nneeds the costs of the operations", placer_table("heft"))

    def test_suggests_the_nearest_name_for_an_unknown_one(self):
        with self.assertRaisesRegex(ValueError, r"no placer 'eagel' \(did you mean 'eagle'\?\)"):
            placer_table("eagel")
        with self.assertRaisesRegex(ValueError, r"'batchsize' \(did you mean 'batch_size'\?\)"):
            placer_table("colocrl", {"batchsize": "4"})


class CommandTest(absltest.TestCase):
    def call(self, *arguments: str) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            cli.main(["placers", *arguments])
        return output.getvalue()

    def test_prints_all_or_one(self):
        self.assertEqual(self.call(), placers_table() + "\n")
        self.assertEqual(self.call("random"), placer_table("random") + "\n")
        self.assertEqual(
            self.call("colocrl", "--placer_option=batch_size=4"),
            placer_table("colocrl", {"batch_size": "4"}) + "\n",
        )

    def test_prints_placers_of_users(self):
        name = f"{users_placers.__name__}:Shifted"
        self.assertRegex(self.call(name), rf"^{name}: a placer without.*\n.*\n\n.*\n.*\nshift +1 ")

    def test_lists_those_of_other_packages_and_says_which_it_cannot_use(self):
        directory = self.create_tempdir("mine-2.0.dist-info").full_path
        pathlib.Path(directory, "METADATA").write_text("Name: mine\nVersion: 2.0\n")
        pathlib.Path(directory, "entry_points.txt").write_text(
            f"[tf_placer.placers]\nlast = {users_placers.__name__}:LastDevice\nauto = gone:Auto\n"
        )
        self.enter_context(mock.patch.object(sys, "path", [*sys.path, os.path.dirname(directory)]))
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            lines = rows(self.call().rstrip("\n"))
            placers = json.loads(self.call("--json"))["placers"]
        self.assertEqual(list(lines), [*PLACERS, "last"])
        self.assertRegex(lines["last"], "mine 2.0 +Everything on the last device")
        self.assertEqual(placers[-1]["reference"], "mine 2.0")
        self.assertRegex(
            errors.getvalue(), "^tf_placer: placer 'auto' of mine 2.0 cannot be used: "
        )

    def test_bad_input_is_one_sentence(self):
        for arguments, message in (
            (["eagel"], "no placer 'eagel' .did you mean 'eagle'?"),
            (
                ["--placer_option=batch_size=4"],
                "--placer_option and --start need the name of a placer",
            ),
            (["random", "--placer_option=x=4"], "placer 'random' has no option 'x'"),
        ):
            with self.assertRaises(SystemExit) as raised:
                self.call(*arguments)
            self.assertRegex(raised.exception.code, f"^tf_placer: {message}")


if __name__ == "__main__":
    absltest.main()
