"""Tests of the machine that is noisy on purpose."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

from benchmarks.live.noisy_machine import NoiseModel, NoisyMachine

_STILL = NoiseModel(process_deviation=0.0, step_deviation=0.0)


def steps(model: NoiseModel, count: int, seed: int = 0, **settings: float) -> np.ndarray:
    machine = NoisyMachine(model, seed, **settings)
    machine.restart()
    machine.open_session("a", {"speed": "2"})
    return np.array(machine.run_steps("a", count))


class NoisyMachineTest(absltest.TestCase):
    def test_without_noise_a_step_takes_what_its_graph_takes(self):
        np.testing.assert_allclose(steps(_STILL, 5, step_secs=0.1), 0.05)

    def test_starting_opening_and_steps_take_time(self):
        machine = NoisyMachine(_STILL, 0, step_secs=0.1)
        machine.restart()
        self.assertEqual(machine.open_session("a", {}), 0.6)
        machine.run_steps("a", 10)
        self.assertAlmostEqual(machine.clock(), 2.0 + 0.6 + 1.0)
        self.assertEqual(machine.open_labels, ("a",))
        machine.restart()
        self.assertEqual(machine.open_labels, ())

    def test_fresh_processes_differ_by_four_percent_as_ratios_of_two(self):
        machine = NoisyMachine(NoiseModel(step_deviation=0.0), 0)
        ratios = []
        for _ in range(2000):
            machine.restart()
            machine.open_session("a", {})
            machine.open_session("b", {})
            ratios.append(machine.run_steps("a", 1)[0] / machine.run_steps("b", 1)[0])
        self.assertAlmostEqual(float(np.std(np.log(ratios))), 0.042, delta=0.003)

    def test_a_quarter_of_the_time_is_in_slow_phases(self):
        secs = np.concatenate(
            [steps(NoiseModel(0.0, 0.0, slow_factor=2.0), 3000, seed) for seed in range(10)]
        )
        is_slow = secs > 0.1
        np.testing.assert_allclose(secs[is_slow], 0.15)
        # Slow steps take twice as long, so a quarter of the time has fewer of them.
        self.assertAlmostEqual(secs[is_slow].sum() / secs.sum(), 0.25, delta=0.05)

    def test_a_drift_wanders_and_comes_back(self):
        logs = np.log(
            np.concatenate(
                [steps(NoiseModel(0.0, 0.0, drift_deviation=0.3), 500, seed) for seed in range(40)]
            )
            / 0.075
        )
        self.assertAlmostEqual(float(np.std(logs)), 0.3, delta=0.06)
        self.assertLess(float(np.abs(np.diff(logs[:500])).max()), 0.05)

    def test_a_tenth_of_the_steps_is_hit(self):
        secs = steps(NoiseModel(0.0, 0.0, spike_share=0.1), 4000)
        self.assertAlmostEqual(float((secs > 0.0751).mean()), 0.1, delta=0.02)

    def test_the_first_steps_take_longer(self):
        secs = steps(NoiseModel(0.0, 0.0, first_factor=1.1), 30, step_secs=0.2)
        self.assertGreater(secs[0], secs[1])
        np.testing.assert_allclose(secs[1:9], 0.11)
        np.testing.assert_allclose(secs[10:], 0.1)


if __name__ == "__main__":
    absltest.main()
