"""Tests of the samples of learning curves, without emulated GPUs."""

from __future__ import annotations

import collections
import contextlib
import io
import pathlib
import sys
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.live import learning_curves
from benchmarks.live.learning_curves import GpuChoices, find_protocol, sample
from benchmarks.problems.synthetic import unroll_lstm
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.trial_log import TrialLog

_PROBLEM = unroll_lstm(1, 3)
_SAMPLES = 30


class GpuChoicesTest(absltest.TestCase):
    def test_groups_choose_among_gpus_and_stay_on_the_cpu_without_a_kernel_there(self):
        # Anywhere, the second GPU or the CPU, and the CPU alone.
        legal = np.array([[1, 1, 1], [1, 0, 1], [1, 0, 0]], bool)
        choices = GpuChoices.of(legal)
        self.assertEqual(choices.legal.tolist(), [[True, True], [False, True], [True, False]])
        expanded = choices.expand(np.array([[0, 1, 0], [1, 1, 0]], np.int32))
        self.assertEqual(expanded.tolist(), [[1, 2, 0], [2, 2, 0]])
        self.assertEqual(expanded.dtype, np.int32)
        self.assertTrue(legal[np.arange(3), expanded].all())


class SampleTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.measured: list[np.ndarray] = []

    def measure(self, placements: np.ndarray):
        self.measured.append(placements)
        return SimulatedEnvironment(_PROBLEM).measure(placements)

    def sample(self, name: str, stop_after: float = float("inf")):
        choices = GpuChoices.of(legal_devices(_PROBLEM))
        before = len(self.measured)
        with TrialLog(self.folder / name, {"format": 2}) as log:
            sample(
                self,
                group_graph(_PROBLEM),
                choices,
                "post",
                log,
                samples=_SAMPLES,
                seed=3,
                should_stop=lambda: len(self.measured) - before >= stop_after,
            )
            return log.trials

    def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(self):
        whole = self.sample("whole")
        # The first trial is everything on one GPU.
        self.assertLen(whole, 1 + _SAMPLES)
        self.assertIsNone(whole[0].assignment)
        self.assertLen(self.sample("stopped", stop_after=7), 7)
        resumed = self.sample("stopped")
        self.assertEqual(
            [trial.assignment for trial in resumed], [trial.assignment for trial in whole]
        )
        # The stopped run measured nothing twice: all was measured once by each of the two.
        counts = collections.Counter(row.tobytes() for row in self.measured)
        self.assertEqual(set(counts.values()), {2})

    def test_what_is_measured_is_on_gpus(self):
        self.sample("run")
        self.assertEqual(np.unique(self.measured[0]).tolist(), [1])
        self.assertEqual(np.unique(self.measured).tolist(), [1, 2, 3, 4])


class ArgumentsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("eagle", "eagle"),
        ("eagle_metis:published", "eagle"),
        ("post:published", "post"),
        ("colocrl", "colocrl"),
        # Their papers print no protocol.
        ("hierarchical", "colocrl"),
        ("spotlight:variant", "colocrl"),
    )
    def test_systems_are_measured_as_in_their_papers(self, system, protocol):
        self.assertEqual(find_protocol(system), protocol)

    @parameterized.parameters(
        ("--models=rnnlm_2,nothing", "there is no model 'nothing'; there are "),
        ("--systems=eagle,eagel", "--systems: .*'eagel'.*eagle"),
        ("--systems=metis", "--systems: metis does not learn: name a learned placer"),
        ("--machine=local:2", "--machine is an emulated one, such as emulated:4xK80, not local:2"),
        ("--samples=0", "--samples must be at least 1"),
        ("--stop_after_secs=0", "--stop_after_secs positive"),
    )
    def test_a_wrong_flag_is_refused_in_a_sentence(self, flag, message):
        errors = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["command", flag]),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit),
        ):
            learning_curves.main()
        self.assertRegex(errors.getvalue().splitlines()[-1], message)

    def test_a_machine_that_there_is_not_is_refused_in_a_sentence(self):
        argv = [
            "command",
            "--machine=emulated:4xK8",
            f"--out_dir={self.create_tempdir().full_path}",
        ]
        with (
            mock.patch.object(sys, "argv", argv),
            self.assertRaisesRegex(SystemExit, "4xK8"),
        ):
            learning_curves.main()

    def test_no_page_is_made_of_no_runs(self):
        out = self.create_tempdir().full_path
        with (
            mock.patch.object(sys, "argv", ["command", "--only_kept", f"--out_dir={out}"]),
            self.assertRaisesRegex(SystemExit, "no runs are kept in .*runs.json.gz"),
        ):
            learning_curves.main()


if __name__ == "__main__":
    absltest.main()
