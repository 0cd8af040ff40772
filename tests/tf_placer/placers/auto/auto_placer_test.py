import dataclasses

import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from benchmarks.problems.synthetic import unroll_lstm
from tests.tf_placer.placers.placer_conformance import PlacerConformance
from tests.tf_placer.placers.problems import build_group_problem, build_task_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers import AUTO, make_placer
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_placer import AutoPlacer
from tf_placer.placers.auto.cost_fit import scale_costs
from tf_placer.problem.problem_groups import group_graph, legal_devices


def make_auto(problem, max_simulated=20_000):
    # Limit the placements, because the result of a time limit depends on the load of the machine.
    groups, legal = group_graph(problem), legal_devices(problem)
    return AutoPlacer(groups, legal, seed=0, problem=problem, max_simulated=max_simulated)


def run(placer, measure, most=60):
    """Measures all batches, and returns the step times."""
    secs = []
    while len(secs) < most:
        rows = placer.propose(placer.batch_size)
        if not len(rows):
            return secs
        measurements = measure(rows)
        placer.observe(rows, measurements)
        secs += [measurement.median_secs for measurement in measurements]
    raise AssertionError("it does not end")


class AutoPlacerConformanceTest(PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        if legal.shape[:-1] == (6,) and legal.dtype == np.bool_ and legal.any(axis=1).all():
            problem = build_group_problem(groups, legal)
        else:
            problem = build_group_problem(groups, np.ones([6, 2], np.bool_))
        return AutoPlacer(groups, legal, seed=seed, problem=problem, max_simulated=100)


class AutoPlacerTest(absltest.TestCase):
    def test_the_best_placement_comes_first(self):
        problem = SMALL_PROBLEMS["fork and join"]
        environment = SimulatedEnvironment(problem)
        secs = run(make_auto(problem), environment.measure)
        self.assertTrue(is_optimal(secs[0], all_step_secs(problem)[0]))

    def test_the_best_of_coarse_groups_comes_second(self):
        # The two operations of a pair are fast on different devices.
        problem = make_problem([[1.0, 4.0], [4.0, 1.0]] * 9)
        problem = dataclasses.replace(problem, coarse_groups=np.arange(18) // 2)
        first, second = make_auto(problem).propose(2)
        self.assertEqual(first.tolist(), [0, 1] * 9)
        self.assertEqual(second[::2].tolist(), second[1::2].tolist())
        [measurement] = SimulatedEnvironment(problem).measure(second[None])
        self.assertEqual(measurement.median_secs, 25.0)

    def test_where_nothing_ran_for_lack_of_memory_smaller_placements_come_first(self):
        # Four weights of 10 bytes, and a device that has room for three by the problem, in truth
        # for two: two on each device are the only placements that run.
        problem = make_problem([[1.0, 2.0]] * 4, resident_bytes=[10] * 4, memory_bytes=[30, 30])
        devices = [dataclasses.replace(each, memory_bytes=20) for each in problem.devices]
        environment = SimulatedEnvironment(dataclasses.replace(problem, devices=tuple(devices)))
        placer = make_auto(problem)
        too_much = np.zeros([1, 4], np.int32)
        placer.prepare(too_much, environment.measure(too_much), lambda: 60.0)
        rows = placer.propose(placer.batch_size)
        self.assertEqual(rows[0].sum(), 2)
        self.assertLen({row.tobytes() for row in rows}, len(rows))
        self.assertIn(1, rows.sum(axis=1), "the fastest by the problem is tried, too")
        secs = run(placer, environment.measure)
        self.assertEqual(min(each for each in secs if each is not None), 4.0)

    def test_no_placement_is_proposed_twice(self):
        problem = unroll_lstm(3, 3)
        environment, seen = SimulatedEnvironment(problem), []

        def measure(rows):
            seen.extend(row.tobytes() for row in rows)
            return environment.measure(rows)

        run(make_auto(problem), measure)
        self.assertLen(set(seen), len(seen))

    def test_measurements_correct_wrong_costs(self):
        # Transfers take ten times as long as the problem says.
        problem = unroll_lstm(3, 3)
        true = scale_costs(problem, np.ones(problem.num_devices), 10.0)
        placer = make_auto(problem, max_simulated=50_000)
        secs = run(placer, SimulatedEnvironment(true).measure)
        self.assertGreater(placer.factors.transfer, 3.0)
        self.assertLess(min(secs), secs[0])

    def test_one_disturbed_measurement_does_not_end_the_search(self):
        # Two chains are twice as fast on two devices, but a disturbance hid that.
        edges = [(i, i + 1, 1) for i in (0, 1, 2, 4, 5, 6)]
        problem = build_task_problem([(1.0, 1.0)] * 8, edges)
        environment = SimulatedEnvironment(problem)
        rows = np.array([[0] * 8, [0, 0, 0, 1, 1, 1, 1, 1]], np.int32)
        measured = environment.measure(rows)
        measured[1] = Measurement(step_secs=(4 * measured[0].median_secs,))
        placer = make_auto(problem)
        placer.prepare(rows, measured, lambda: 60.0)
        self.assertGreater(placer.factors.spread, 2.0)
        secs = run(placer, environment.measure)
        self.assertEqual(min(secs), measured[0].median_secs / 2)

    def test_a_budget_in_placements_makes_the_same_proposals_again(self):
        problem = unroll_lstm(3, 3)
        placers = [make_auto(problem, max_simulated=2000) for _ in range(2)]
        first, second = (placer.propose(6) for placer in placers)
        np.testing.assert_array_equal(first, second)
        for placer in placers:
            placer.observe(first, SimulatedEnvironment(problem).measure(first))
        np.testing.assert_array_equal(placers[0].propose(6), placers[1].propose(6))

    def test_earlier_measurements_correct_the_costs_before_the_first_search(self):
        problem = unroll_lstm(3, 3)
        true = scale_costs(problem, np.full(problem.num_devices, 3.0), 1.0)
        placer = make_auto(problem)
        rows = np.zeros([1, problem.num_groups], np.int32)
        rows = np.where(legal_devices(problem)[:, 0], rows, 1).astype(np.int32)
        placer.prepare(rows, SimulatedEnvironment(true).measure(rows), lambda: 60.0)
        self.assertGreater(placer.factors.compute[0], 1.5)
        # Earlier measurements are no batch, so the first search, which proposes more, is next.
        self.assertGreater(len(placer.propose(10)), AutoConfig().later_candidates)

    def test_ends_when_candidates_of_corrected_costs_are_not_faster(self):
        # Every batch takes as long as the first, so that the second is the last.
        problem, batches = unroll_lstm(3, 3), []

        def measure(rows):
            batches.append(len(rows))
            return [Measurement((1.0,)) for _ in rows]

        placer = make_auto(problem, max_simulated=50_000)
        run(placer, measure)
        self.assertLen(batches, 2)
        self.assertIn("were not faster", placer.explain_end())
        self.assertFalse(placer.lacks_time)

    def test_proposes_nothing_without_time(self):
        problem = SMALL_PROBLEMS["chain"]
        placer = make_placer(AUTO, group_graph(problem), legal_devices(problem), problem=problem)
        placer.prepare(np.zeros([0, problem.num_groups], np.int32), [], lambda: 0.0)
        self.assertEmpty(placer.propose(1))
        self.assertIn("no time", placer.explain_end())
        self.assertTrue(placer.lacks_time)

    def test_the_config_limits_searches_and_proposals(self):
        problem = unroll_lstm(3, 3)
        measure = SimulatedEnvironment(problem).measure
        config = AutoConfig(rounds=1, first_candidates=2)
        placer = AutoPlacer(
            group_graph(problem),
            legal_devices(problem),
            seed=0,
            problem=problem,
            config=config,
            max_simulated=2000,
        )
        self.assertLen(run(placer, measure), 2)

    def test_ends_without_proposing_failed_placements_again(self):
        failed = Measurement(None, Failure(FailureKind.OUT_OF_MEMORY, "too much"))
        secs = run(make_auto(SMALL_PROBLEMS["two chains"]), lambda rows: [failed] * len(rows))
        self.assertTrue(all(each is None for each in secs))

    def test_needs_to_know_the_costs(self):
        problem = SMALL_PROBLEMS["chain"]
        with self.assertRaisesRegex(ValueError, "'auto' needs to know what the operations cost"):
            make_placer(AUTO, group_graph(problem), legal_devices(problem))


if __name__ == "__main__":
    absltest.main()
