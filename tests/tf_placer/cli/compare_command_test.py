"""Tests of the command that compares machines."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib

import tensorflow as tf

from tests import graphs
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.cli import main as cli
from tf_placer.inputs.graph_files import write_graph
from tf_placer.problem.problem_file import write_problem


class CompareCommandTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.files = [self.path(f"{count}.json") for count in (1, 2, 4)]
        for count, path in zip((1, 2, 4), self.files, strict=True):
            write_problem(two_chain_problem(3, count), path)
        write_graph(self.path("graph.pb"), graphs.two_branches().graph.as_graph_def())
        self.graph = (f"--input_graph={self.path('graph.pb')}", "--fetches=result:0")

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def call(self, *arguments: str) -> tuple[str, str]:
        """Calls the command; returns standard output and standard error."""
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            cli.main(["compare", *arguments])
        return output.getvalue(), errors.getvalue()

    def refuses(self, message: str, *arguments: str):
        with self.assertRaises(SystemExit) as raised:
            self.call(*arguments)
        self.assertRegex(str(raised.exception.code), f"^tf_placer: .*{message}")

    def test_compares_problem_files(self):
        two = self.files[1]
        prices = (f"--price={two}=3.6", "--price=1=1.8")
        printed, errors = self.call(*self.files, "--max_secs=3", *prices)
        self.assertRegex(printed, r"\n1 +1 +1 +6.000 ms +1.00x .* 1\.80 +3\.00\n")
        self.assertRegex(printed, r"\n2 +2 +2 +3.000 ms +2.00x .* 3\.60 +3\.00\n")
        self.assertRegex(printed, r"\n4 +4 +≤ 2 +3.000 ms +2.00x .* +- +-\n")
        self.assertIn("2 GPUs would do as well as 4", printed)
        self.assertIn("searching on 3 machines for 3.0 s in all", errors)

    def test_compares_finished_searches(self):
        logs = []
        for count, path in zip((1, 2), self.files[:2], strict=True):
            logs.append(self.path(f"log_{count}"))
            with contextlib.redirect_stdout(io.StringIO()):
                search = ["search", f"--problem={path}", "--max_secs=1", f"--log_dir={logs[-1]}"]
                cli.main([*search, f"--output={self.path('r.json')}"])
        printed, errors = self.call(*logs)
        self.assertRegex(printed, r"\nlog_1 +1 +6.000 ms +1.00x ")
        self.assertRegex(printed, r"\nlog_2 +2 +3.000 ms +2.00x ")
        self.assertNotIn("searching", errors)

    def test_keeps_the_plans_for_a_page(self):
        plans = self.path("plans")
        printed, _ = self.call(*self.files[:2], "--max_secs=1", "--price=2=3.6", "--log_dir", plans)
        command = printed.rpartition("for a page of these plans: python -m tf_placer ")[2]
        expected = f"report {plans}/1 {plans}/2 --price 2=3.6"
        self.assertEqual(command.strip(), expected)
        page = self.path("page.html")
        with contextlib.redirect_stdout(io.StringIO()):
            cli.main([*command.split(), "--output", page])
        self.assertIn(f"{plans}/2", pathlib.Path(page).read_text())

    def test_computes_the_costs_of_a_graph_on_every_machine(self):
        machines = ("1xK80", "2xK80", "1xB200")
        printed, errors = self.call(*machines, *self.graph, "--max_secs=2", "--json")
        value = json.loads(printed)
        compared = {each["name"]: each for each in value["machines"]}
        self.assertEqual(list(compared), list(machines))
        self.assertEqual(
            [(each["kind"], each["accelerators"]) for each in compared.values()],
            [("K80", 1), ("K80", 2), ("B200", 1)],
        )
        for each in compared.values():
            self.assertGreaterEqual(each["step_secs"], each["lower_bound_secs"])
            self.assertGreaterEqual(each["speedup"], 1.0)
        self.assertLess(compared["1xB200"]["step_secs"], compared["1xK80"]["step_secs"])
        self.assertEqual(errors.count("reading "), 1)

    def test_pins_hold_on_every_machine(self):
        pinned = self.call(
            "1xK80", "2xK80", *self.graph, "--max_secs=1", "--pin=*=/GPU:*", "--json"
        )
        for each in json.loads(pinned[0])["machines"]:
            self.assertEqual(each["cpu_share"], 0.0)
        self.assertIn("stay on the GPUs as far as they have kernels there", pinned[1])

    def test_refuses_wrong_arguments(self):
        one = self.files[0]
        self.refuses(r"unknown machine '2xK81' \(did you mean '2xK80'", "2xK81", *self.graph)
        self.refuses(
            "'2xK80' does not exist: it is neither a problem file nor a directory", one, "2xK80"
        )
        self.refuses("--fetches needs --input_graph", one, "--fetches=y")
        self.refuses("--pin needs --input_graph", one, "--pin=*=/GPU:*")
        self.refuses("--price '3.5' is not MACHINE=PRICE", one, "--price=3.5")
        self.refuses('a price of "2", which is not compared: .*1.json', one, "--price=2=3.5")
        self.refuses("--price '.*=dear' is not MACHINE=PRICE", one, f"--price={one}=dear")
        self.refuses("the price of .* must be 0 or more, not -2", one, f"--price={one}=-2")
        self.refuses("max_secs must be greater than 0", one, "--max_secs=0")
        self.refuses("has no problem.json", str(self.directory))


if __name__ == "__main__":
    tf.test.main()
