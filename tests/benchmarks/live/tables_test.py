"""Tests of what the live table refuses, and of the papers' placements on a machine without GPUs."""

from __future__ import annotations

import contextlib
import io
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.live import tables as live_tables
from benchmarks.live.model import LiveModel
from benchmarks.models.catalogue import build_model
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import PLACERS, needs_problem
from tf_placer.placers.heuristics.scotch_library import require_scotch


class ArgumentsTest(absltest.TestCase):
    def _refusal(self, *arguments):
        """What the command says on the error stream when it exits without running anything."""
        errors = io.StringIO()
        with (
            mock.patch("sys.argv", ["live_tables", *arguments]),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit) as raised,
        ):
            live_tables.main()
        self.assertEqual(raised.exception.code, 2)
        return errors.getvalue()

    def test_unknown_models_and_placers_are_refused(self):
        self.assertIn("no 'nmt_3'; there are: rnnlm_2", self._refusal("--models", "nmt_3"))
        self.assertIn("no 'eagel'", self._refusal("--placers", "post,eagel"))

    def test_no_trials_and_too_few_rounds_are_refused(self):
        self.assertIn("--rounds at least 4", self._refusal("--rounds", "3"))
        self.assertIn("--trials must be at least 1", self._refusal("--trials", "0"))


class PlacersTest(absltest.TestCase):
    def _skip_without_scotch(self):
        try:
            require_scotch("scotch")
        except ImportError as error:
            self.skipTest(str(error))

    def test_every_placer_of_the_table_places_the_groups_that_it_decides_about(self):
        # A described machine is not profiled.
        machine = find_machine("2xK80")
        directory = self.create_tempdir().full_path
        live = LiveModel(build_model("rnnlm_2", small=True), machine, directory)
        problem = live.costed(1)
        for name in live_tables.COLUMNS:
            if name in PLACERS and not needs_problem(name):
                continue
            with self.subTest(name), mock.patch.object(live_tables, "_SIMULATION_SECS", 0.2):
                if name == "scotch":
                    self._skip_without_scotch()
                placer = live_tables._make_placer(name, "rnnlm_2", live, problem, 0)
                row = placer.propose(1)[0]
                self.assertTrue(live.legal(name)[np.arange(len(row)), row].all())
                self.assertNotEmpty(live.assignment(name, row))
        self.assertIn("auto", live_tables.COLUMNS)


class PapersExpertTest(absltest.TestCase):
    def _devices(self, model):
        """For each rule, the device of each operation."""
        directory = self.create_tempdir().full_path
        live = LiveModel(build_model(model, small=True), find_machine("local:2"), directory)
        return live.devices, [
            live.assignment(live_tables.MODEL_EXPERT, placement)
            for placement in live_tables.papers_expert(model, live)
        ]

    def test_every_layer_has_a_device_of_its_own(self):
        devices, placements = self._devices("rnnlm_2")
        (assignment,) = placements
        for layer in (0, 1):
            found = {
                device
                for name, device in assignment.items()
                if name.startswith(f"layer_{layer}/step_") and "MatMul" in name
            }
            self.assertEqual(found, {devices[layer]})

    def test_a_model_for_one_gpu_is_on_the_first_device(self):
        devices, placements = self._devices("inception_v3")
        self.assertEqual({*placements[0].values()}, {devices[0]})


if __name__ == "__main__":
    absltest.main()
