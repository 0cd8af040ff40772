import dataclasses
import itertools
import warnings
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from benchmarks.problems.synthetic import unroll_lstm
from tests.tf_placer.simulation.random_problems import random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto import annealing
from tf_placer.placers.auto import auto_search as auto_search_module
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator


def disable_exhaustive_search():
    limits = dataclasses.replace(auto_search_module._LIMITS, max_exhaustive_placements=0)
    return mock.patch.object(auto_search_module, "_LIMITS", limits)


def search(problem, *, max_simulated=4000, **kwargs):
    kwargs = {"threads": 1, "max_secs": 600.0} | kwargs
    return auto_search(problem, group_graph(problem), max_simulated=max_simulated, **kwargs)


class AutoSearchTest(parameterized.TestCase):
    @parameterized.parameters(*itertools.product(SMALL_PROBLEMS, range(3)))
    def test_finds_the_optimum_of_small_problems(self, name, seed):
        problem = SMALL_PROBLEMS[name]
        with disable_exhaustive_search():
            result = search(problem, seed=seed, max_simulated=1500)
        self.assertTrue(is_optimal(result.best.step_secs, all_step_secs(problem)[0]))

    def test_finds_the_optimum_of_random_problems_where_there_is_one(self):
        random = np.random.default_rng(0)
        for _ in range(20):
            problem = random_problem(random, max_operations=7)
            fastest = all_step_secs(problem)[0]
            if np.isfinite(fastest):
                best = search(problem, max_simulated=2000).best
                self.assertEqual(best.excess_bytes, 0)
                self.assertTrue(is_optimal(best.step_secs, fastest))

    def test_the_result_agrees_with_the_simulator(self):
        problem = SMALL_PROBLEMS["memory"]
        result = search(problem, max_simulated=300)
        simulated = Simulator(problem).simulate(result.best.placement[None])
        self.assertEqual(result.best.step_secs, simulated.step_secs[0])
        self.assertTrue(simulated.feasible[0])
        self.assertGreaterEqual(result.best.step_secs, result.lower_bound_secs)

    @parameterized.parameters(1, 2)
    def test_the_same_seed_finds_the_same_in_the_same_number_of_simulations(self, threads):
        problem = SMALL_PROBLEMS["fork and join"]
        first, second = (
            search(problem, max_simulated=700, seed=3, threads=threads) for _ in range(2)
        )
        np.testing.assert_array_equal(first.best.placement, second.best.placement)
        self.assertEqual(first.num_simulated, second.num_simulated)

    @parameterized.product(name=["two chains", "memory"], threads=[1, 3])
    def test_keeps_its_budget_of_simulated_placements(self, name, threads):
        with disable_exhaustive_search():
            for count in (1, 2, 5, 11, 16, 17, 18, 40, 100):
                result = search(SMALL_PROBLEMS[name], max_simulated=count, threads=threads)
                self.assertLessEqual(result.num_simulated, count)
                self.assertGreater(result.num_simulated, 0)

    def test_packing_keeps_the_budget_of_simulated_placements(self):
        problem = make_problem([[1.0] * 3] * 9, resident_bytes=[40] * 9, memory_bytes=[100] * 3)
        for count in (1, 2, 3, 8, 20):
            self.assertLessEqual(search(problem, max_simulated=count).num_simulated, count)

    def test_is_never_worse_than_a_given_start(self):
        problem = SMALL_PROBLEMS["two chains"]
        start = np.array([0] * 4 + [1] * 4, np.int32)
        result = search(problem, max_simulated=1, starts=[("given", start)])
        self.assertEqual(result.starts[0][0], "given")
        np.testing.assert_array_equal(result.best.placement, start)

    def test_packs_weights_that_fill_nearly_all_memory(self):
        # 20 weights in 3 devices, 95 % full; filling one device after the other does not fit.
        sizes = [70, 65, 60, 55, 50, 45, 40, 38, 35, 30, 28, 25, 22, 20, 18, 15, 12, 10, 8, 5]
        memory = -(-sum(sizes) * 100 // 95) // 3
        problem = make_problem([[1.0] * 3] * 20, resident_bytes=sizes, memory_bytes=[memory] * 3)
        self.assertEqual(search(problem, max_simulated=3000).best.excess_bytes, 0)

    def test_finds_the_least_excess_where_no_placement_fits(self):
        problem = make_problem([[1.0] * 2] * 3, resident_bytes=[50, 40, 30], memory_bytes=[60, 50])
        # 50 | 40 + 30 exceeds by 20, 40 + 30 | 50 by 10.
        result = search(problem, max_simulated=500)
        self.assertEqual(result.best.excess_bytes, 10)
        self.assertEqual(result.best.placement.tolist(), [1, 0, 0])

    def test_stops_at_the_lower_bound(self):
        problem = make_problem([[1.0, 1.0]] * 2)
        result = search(problem, max_simulated=10**6)
        self.assertEqual(result.best.step_secs, 1.0)
        self.assertLess(result.num_simulated, 1000)

    def test_ends_early_near_the_lower_bound(self):
        # Sixty similar operations on two devices: halves take 3 s, nearly the lower bound.
        secs = np.random.default_rng(0).uniform(0.0999, 0.1001, [60, 1])
        problem = make_problem(np.repeat(secs, 2, axis=1).tolist())
        result = search(problem, max_simulated=20_000)
        self.assertTrue(result.is_near_bound)
        self.assertLessEqual(result.best.step_secs, 1.01 * result.lower_bound_secs)
        self.assertLess(result.num_simulated, 10_000)

    def test_ends_at_the_first_step_that_is_short_enough(self):
        problem = unroll_lstm(3, 3)
        best_secs = search(problem, max_simulated=500).best.step_secs
        result = search(problem, max_simulated=500, stop_secs=1.5 * best_secs)
        self.assertLessEqual(result.best.step_secs, 1.5 * best_secs)
        self.assertLess(result.num_simulated, 500)

    def test_uses_its_whole_budget_far_from_the_lower_bound(self):
        result = search(unroll_lstm(3, 3), max_simulated=500)
        self.assertFalse(result.is_near_bound)
        self.assertEqual(result.num_simulated, 500)

    def test_searches_small_problems_exhaustively(self):
        problem = SMALL_PROBLEMS["memory"]
        result = search(problem)
        self.assertTrue(result.is_optimal)
        self.assertTrue(search(problem, max_simulated=2**8 - 1).is_optimal)
        self.assertFalse(search(problem, max_simulated=50).is_optimal)

    def test_counts_more_placements_than_a_float_can_hold(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = search(make_problem([[1.0] * 5] * 503), max_simulated=30)
        self.assertFalse(result.is_optimal)

    def test_one_device_needs_no_search(self):
        result = search(make_problem([[1.0], [2.0]]))
        self.assertEqual(result.best.placement.tolist(), [0, 0])
        self.assertEqual(result.best.step_secs, 3.0)

    def test_an_interrupt_returns_the_best_so_far(self):
        def interrupt(progress):
            raise KeyboardInterrupt

        result = search(SMALL_PROBLEMS["fork and join"], report=interrupt)
        self.assertTrue(result.interrupted)
        self.assertTrue(np.isfinite(result.best.step_secs))

    def test_reports_progress_that_only_improves(self):
        reports = []
        result = search(SMALL_PROBLEMS["heterogeneous"], max_simulated=1000, report=reports.append)
        ranks = [report.best.rank for report in reports]
        self.assertEqual(ranks, sorted(ranks, reverse=True))
        self.assertEqual(reports[-1].best.rank, result.best.rank)
        self.assertEqual(reports[0].num_simulated, 1)

    def test_finalists_differ_and_are_sorted(self):
        result = search(SMALL_PROBLEMS["fork and join"], max_simulated=500, threads=2)
        ranks = [found.rank for found in result.finalists]
        self.assertEqual(ranks, sorted(ranks))
        self.assertLen({f.placement.tobytes() for f in result.finalists}, len(ranks))

    def test_accepts_clusters_without_a_common_legal_device(self):
        problem = make_problem([[1.0, np.inf], [np.inf, 1.0], [1.0, 1.0]])
        result = search(problem, clusters=np.array([0, 0, 1]), max_simulated=100)
        legal = legal_devices(problem)
        self.assertTrue(legal[np.arange(3), result.best.placement].all())

    @parameterized.parameters({"max_secs": 0.0}, {"max_simulated": 0})
    def test_refuses_a_budget_that_is_not_positive(self, **budget):
        with self.assertRaisesRegex(ValueError, "the budget must be positive"):
            search(SMALL_PROBLEMS["chain"], **budget)


class ConfigTest(parameterized.TestCase):
    def record_parameters(self, max_simulated=4000, first=0.5, **settings):
        """Lists the parameters of two chains, by default in the second half of the search."""
        recorded = []
        run = auto_search_module.Annealer.run

        def record(chain, steps, parameters, **keywords):
            recorded.append(parameters)
            run(chain, steps, parameters, **keywords)

        problem, config = unroll_lstm(3, 3), AutoConfig(**settings)
        with mock.patch.object(auto_search_module.Annealer, "run", record):
            search(problem, max_simulated=max_simulated, threads=2, config=config)
        return recorded[int(first * len(recorded)) :]

    @parameterized.parameters(("none", {False}), ("all", {True}), ("every_other", {True, False}))
    def test_climbing_selects_the_chains_that_climb(self, climbing, climbs):
        recorded = self.record_parameters(climbing=climbing)
        self.assertEqual({each.perturbation_moves > 0 for each in recorded}, climbs)

    def test_coarse_moves_sets_the_share_of_cluster_moves(self):
        recorded = self.record_parameters(coarse_moves=0.0)
        self.assertEqual({each.coarse_share for each in recorded}, {0.0})
        self.assertGreater(max(each.coarse_share for each in self.record_parameters()), 0.0)

    def test_starts_selects_the_heuristics(self):
        problem = unroll_lstm(3, 3)
        few = search(problem, max_simulated=500, config=AutoConfig(starts="single_device"))
        self.assertEqual({name for name, _ in few.starts}, {"single_device"})
        self.assertGreater(len(search(problem, max_simulated=500).starts), 1)

    def test_a_search_of_few_placements_begins_cooler(self):
        hottest, cooler = (
            max(each.temperature for each in self.record_parameters(count, 0))
            for count in (2000, 30)
        )
        self.assertLess(cooler, 0.7 * hottest)

    @parameterized.parameters((1, 3, 3, 1), (1, 1, 1, 1), (2, 3, 3, 2), (3, 2, 3, 3))
    def test_successive_halving_keeps_one_chain_for_each_thread(
        self, threads, halving_starts, first, later
    ):
        ran = []
        run = auto_search_module.Annealer.run

        def record(chain, steps, parameters, **keywords):
            ran.append((id(chain), parameters.temperature))
            run(chain, steps, parameters, **keywords)

        config = AutoConfig(halving_starts=halving_starts)
        with mock.patch.object(auto_search_module.Annealer, "run", record):
            search(unroll_lstm(3, 3), max_simulated=4000, threads=threads, config=config)
        competing = [chain for chain, temperature in ran if temperature == config.last_temperature]
        self.assertLen({chain for chain, _ in ran}, first)
        self.assertLen({chain for chain, _ in ran[len(ran) // 2 :]}, later)
        if first > later:
            self.assertLen(set(competing[:first]), first)

    def test_finalists_include_the_best_of_dropped_chains(self):
        problem = unroll_lstm(3, 3)
        best = {}
        run = auto_search_module.Annealer.run

        def record(chain, steps, parameters, **keywords):
            run(chain, steps, parameters, **keywords)
            best[id(chain)] = chain.best

        with mock.patch.object(auto_search_module.Annealer, "run", record):
            result = search(problem, max_simulated=4000)
        self.assertGreater(len(best), 1)
        finalists = {found.placement.tobytes() for found in result.finalists}
        self.assertLessEqual({found.placement.tobytes() for found in best.values()}, finalists)
        self.assertLessEqual(result.num_simulated, 4000)

    def test_critical_path_selects_the_start_of_moves(self):
        for follows_critical_path in (True, False):
            config = AutoConfig(critical_path=follows_critical_path)
            with mock.patch.object(annealing, "Chain", wraps=annealing.Chain) as chain:
                search(unroll_lstm(3, 3), max_simulated=2000, config=config)
            self.assertEqual(
                {call.kwargs["follows_critical_path"] for call in chain.call_args_list},
                {follows_critical_path},
            )


if __name__ == "__main__":
    absltest.main()
