import contextlib
import csv
import dataclasses
import io
import pathlib
import sys
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.paper import PaperProblem, ProblemKey, write_parts
from benchmarks.problems.synthetic import unrolled_lstm
from benchmarks.search_quality import auto_ablation
from benchmarks.search_quality.auto_ablation import (
    VARIANTS,
    AblationRun,
    Problem,
    ablation_table,
    run_variant,
)
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator


def problems() -> tuple[PlacementProblem, PlacementProblem]:
    """An unrolled LSTM with its cells as coarse groups, and as groups."""
    coarse = unrolled_lstm(2, 3)
    single = np.arange(coarse.num_operations)
    return dataclasses.replace(coarse, groups=single, coarse_groups=coarse.groups), coarse


def both_kinds() -> Problem:
    return Problem(
        *(PaperProblem(group_graph(p), legal_devices(p), p, "digest", 0) for p in problems())
    )


class VariantTest(parameterized.TestCase):
    @parameterized.parameters(*VARIANTS)
    def test_every_variant_finds_something(self, name):
        problem = both_kinds()
        run = run_variant(name, "lstm", problem, 1, 0.3)
        self.assertEqual((run.problem, run.variant, run.seed), ("lstm", name, 1))
        fine = problem.fine.problem
        legal = problem.fine.legal
        on_gpu = np.where(legal[:, 1], 1, legal.argmax(axis=1)).astype(np.int32)
        self.assertLessEqual(run.step_secs, Simulator(fine).simulate(on_gpu[None]).step_secs[0])

    def test_without_layers_the_problem_has_none(self):
        problem = both_kinds()
        fine = dataclasses.replace(problem.fine.problem, layers=problem.fine.problem.groups * 0)
        problem = dataclasses.replace(problem, fine=dataclasses.replace(problem.fine, problem=fine))
        with mock.patch.object(auto_ablation, "refined_search", side_effect=KeyError) as search:
            for name in ("auto", "no layers"):
                with self.assertRaises(KeyError):
                    run_variant(name, "lstm", problem, 0, 0.3)
        layers = [call.args[0].layers is None for call in search.call_args_list]
        self.assertEqual(layers, [False, True])

    def test_variants_change_how_the_search_is_done(self):
        with mock.patch.object(auto_ablation, "refined_search", side_effect=KeyError) as search:
            for name in ("auto", "no path", "no race"):
                with self.assertRaises(KeyError):
                    run_variant(name, "lstm", both_kinds(), 0, 0.3)
        configs = [call.kwargs["config"] or AutoConfig() for call in search.call_args_list]
        self.assertEqual([config.critical_path for config in configs], [True, False, True])
        self.assertEqual([config.racing_starts > 1 for config in configs], [True, True, False])


class TableTest(absltest.TestCase):
    def test_ratios_are_to_the_same_problem_and_seed(self):
        runs = [
            AblationRun("p", "auto", 0, 1.0, 10),
            AblationRun("p", "auto", 1, 2.0, 10),
            AblationRun("p", "one chain", 0, 2.0, 10),
            AblationRun("p", "one chain", 1, 1.0, 10),
        ]
        by_variant, by_problem = ablation_table(runs).split("\n\n")
        *_, auto, one = by_variant.splitlines()
        self.assertEqual(auto, "| auto | all of it | 1.000 | 1.000 to 1.000 | 0 of 2 |")
        self.assertEqual(one, "| one chain | on one core | 1.000 | 0.500 to 2.000 | 1 of 2 |")
        headers, _, steps = by_problem.splitlines()
        self.assertEqual(headers, "| problem | auto | one chain |")
        self.assertEqual(steps, "| p | 1.500 s | 1.500 s |")


class CommandTest(absltest.TestCase):
    def test_runs_are_kept_and_not_made_again(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        for problem, granularity in zip(problems(), ("fine", "coarse"), strict=True):
            write_parts(
                ProblemKey("nmt_2", "4xK80", granularity, True),
                folder / "problems",
                group_graph(problem),
                legal_devices(problem),
                problem,
                num_graph_operations=9,
            )
        flags = ["--problems=nmt_2:4xK80", "--small", "--max_secs=0.2", "--seeds=1"]
        flags += [f"--runs_dir={folder}", f"--out_dir={folder / 'out'}"]
        for names, expected in (("auto,one chain", 2), ("auto,no layers", 1), ("auto", 0)):
            printed = io.StringIO()
            with (
                mock.patch.object(sys, "argv", ["command", *flags, f"--variants={names}"]),
                contextlib.redirect_stdout(printed),
            ):
                auto_ablation.main()
            self.assertEqual(printed.getvalue().count(" left\n"), expected)
            table = (folder / "out/table.md").read_text()
            for name, variant in VARIANTS.items():
                row = f"| {name} | {variant.summary} |"
                self.assertEqual(row in table, name in names.split(","), row)
        with (folder / "out/runs.csv").open(newline="") as file:
            made = [row["variant"] for row in csv.DictReader(file)]
        self.assertEqual(made, ["auto", "one chain", "no layers"])

    def test_unknown_variants_are_refused(self):
        for names in ("one chain", "auto,two chains"):
            flags = [
                "command",
                f"--variants={names}",
                f"--out_dir={self.create_tempdir().full_path}",
            ]
            with (
                mock.patch.object(sys, "argv", flags),
                contextlib.redirect_stderr(io.StringIO()) as errors,
                self.assertRaises(SystemExit),
            ):
                auto_ablation.main()
            self.assertIn("--variants must have 'auto' and be of auto, few st", errors.getvalue())


if __name__ == "__main__":
    absltest.main()
