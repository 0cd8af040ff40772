"""Tests of the command `pretrain`: its files, answer and errors."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pathlib
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced
from tests.tf_placer.small_problem import without_memory
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.cli import main as cli
from tf_placer.cli import pretrain_command
from tf_placer.placers.learned.graph_neural import GraphNeuralConfig, GraphNeuralNetwork
from tf_placer.problem.problem_file import write_problem

setUpModule = leave_graphs_as_traced


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class PretrainCommandTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.problems = [self.path("a.json"), self.path("b.json")]
        for path, problem in zip(
            self.problems, (two_chain_problem(2), two_chain_problem(3, 3)), strict=True
        ):
            write_problem(problem, path)
        self.output = self.path("policy.weights.h5")

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def pretrain(self, *arguments: str, stderr: io.StringIO | None = None) -> str:
        output = io.StringIO()
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(stderr or io.StringIO()),
        ):
            cli.main(["pretrain", "--problems", *self.problems, *arguments])
        return output.getvalue()

    def assert_refused(self, message: str, *arguments: str):
        before = sorted(self.directory.rglob("*"))
        with self.assertRaises(SystemExit) as raised:
            self.pretrain(*arguments)
        self.assertRegex(str(raised.exception.code), f"^tf_placer: .*{message}")
        self.assertNotIn("\n", str(raised.exception.code))
        self.assertEqual(sorted(self.directory.rglob("*")), before)

    def test_writes_weights_and_a_description_of_the_training(self):
        terminal = Terminal()
        printed = self.pretrain(
            f"--output={self.output}", "--updates=3", "--seed=7", stderr=terminal
        )
        self.assertRegex(
            terminal.getvalue(),
            r"1 of 3 updates \| steps take 100% of what they took at first \| elapsed .* \| "
            "ETA .*\r\x1b\\[K",
        )
        GraphNeuralNetwork(GraphNeuralConfig(initial_weights=self.output))
        about = json.loads((self.directory / "policy.json").read_text())
        self.assertEqual(
            {name: about[name] for name in ("format", "policy", "problems", "updates", "seed")},
            {
                "format": 1,
                "policy": "graph_neural",
                "problems": self.problems,
                "updates": 3,
                "seed": 7,
            },
        )
        self.assertEqual(about["settings"]["state_units"], 64)
        written = pathlib.Path(self.output).read_bytes()
        self.assertEqual(about["sha256"], hashlib.sha256(written).hexdigest())
        self.assertContainsSubset(["tensorflow", "numpy"], about["versions"])
        self.assertEqual(
            [line.split()[:4] for line in printed.splitlines()[2:4]],
            [[self.problems[0], "4", "2", "2"], [self.problems[1], "6", "3", "1"]],
        )
        self.assertEqual(printed.splitlines()[-1], f"weights: {self.output}")
        files = ["a.json", "b.json", "policy.json", "policy.weights.h5"]
        self.assertEqual(sorted(path.name for path in self.directory.iterdir()), files)

    def test_an_interrupt_writes_the_weights_so_far(self):
        # No placement fits, so that nothing is learned and no training step is compiled.
        write_problem(without_memory(two_chain_problem(2)), self.problems[0])
        self.problems = self.problems[:1]
        line = mock.Mock()
        line.show.side_effect = [None, KeyboardInterrupt]
        with mock.patch.object(pretrain_command, "ProgressLine", return_value=line):
            self.pretrain(f"--output={self.output}", "--updates=100")
        about = json.loads((self.directory / "policy.json").read_text())
        self.assertEqual(about["updates"], 2)

    def test_replaces_no_foreign_file_beside_the_weights(self):
        about = self.directory / "policy.json"
        for content in ("mine", "[]", '{"policy": 1}'):
            about.write_text(content)
            self.assert_refused("policy.json' is there, and does not", f"--output={self.output}")
            self.assertEqual(about.read_text(), content)
            about.unlink()

    def test_bad_arguments_are_refused_in_one_sentence(self):
        self.assert_refused("--output must end in .weights.h5", f"--output={self.path('policy')}")
        self.assert_refused("seed must not be negative", f"--output={self.output}", "--seed=-1")
        self.assert_refused("updates must be positive", f"--output={self.output}", "--updates=0")
        self.assert_refused(
            "cannot write to .*nowhere", f"--output={self.path('nowhere/p.weights.h5')}"
        )
        self.assert_refused("would replace", f"--output={self.path('a.weights.h5')}")
        self.problems.append(self.path("missing.json"))
        self.assert_refused("missing.json.*: No such file", f"--output={self.output}")


if __name__ == "__main__":
    absltest.main()
