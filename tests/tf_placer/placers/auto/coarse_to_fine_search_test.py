import dataclasses
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.small import all_step_secs, is_optimal
from tests.tf_placer.simulation.random_problems import random_placement, random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto import coarse_to_fine_search as module
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.coarse_to_fine_search import COARSE_START, coarse_to_fine_search
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator


def search(problem, clusters, *, max_simulated=3000, **kwargs):
    kwargs = {"threads": 1, "max_secs": 600.0} | kwargs
    if clusters is not None:
        coarse_groups = np.array(clusters, np.int32)[problem.groups]
        problem = dataclasses.replace(problem, coarse_groups=coarse_groups)
    return coarse_to_fine_search(
        problem, group_graph(problem), max_simulated=max_simulated, **kwargs
    )


def simulate_ranks(problem, placements):
    """Simulates placements, and lists (excess bytes, step seconds)."""
    result = Simulator(problem, threads=1).simulate(np.array(placements, np.int32))
    memory = np.array([device.memory_bytes for device in problem.devices])
    excess = np.maximum(result.peak_bytes - memory, 0).sum(axis=1)
    return list(zip(excess.tolist(), result.step_secs.tolist(), strict=True))


def make_pairs_problem(num_pairs=9):
    """Makes pairs of operations whose two members are fast on different devices."""
    return make_problem([[1.0, 4.0], [4.0, 1.0]] * num_pairs)


PAIRS = np.arange(18) // 2


class CoarseToFineSearchTest(parameterized.TestCase):
    def test_finds_an_optimum_that_no_coarse_placement_has(self):
        problem = make_pairs_problem()
        coarse = make_problem([[5.0, 5.0]] * 9)
        # The optimum takes 9 s on each device at once. A pair on one device takes 5 s.
        self.assertEqual(all_step_secs(coarse)[0], 25.0)
        result = search(problem, PAIRS)
        self.assertEqual(result.best.step_secs, 9.0)
        self.assertEqual(result.best.placement.tolist(), [0, 1] * 9)
        self.assertTrue(result.is_optimal)
        self.assertEqual(dict(result.starts)[COARSE_START].step_secs, 25.0)

    def test_few_coarse_groups_leave_most_of_a_long_search_for_refinement(self):
        for max_simulated, expected in ((math.inf, 63), (1000, 63), (100, 40)):
            with mock.patch.object(module, "auto_search", wraps=module.auto_search) as auto_search:
                search(
                    make_pairs_problem(),
                    PAIRS,
                    max_simulated=max_simulated,
                    max_secs=1.0,
                    config=AutoConfig(coarse_placements=7),
                )
            coarse, fine = auto_search.call_args_list
            self.assertEqual(coarse.kwargs["max_simulated"], expected)
            self.assertGreaterEqual(fine.kwargs["max_simulated"], max_simulated - expected)

    def test_starts_with_the_layers_of_the_problem_whatever_the_order_of_its_groups(self):
        # Four layers and twelve steps of a recurrent network, ordered by step. An operation
        # depends on the layer below and on the step before. The groups are single operations, the
        # coarse groups two steps of a layer.
        layers, steps = np.tile(np.arange(4), 12), np.repeat(np.arange(12), 4)
        problem = make_problem(
            [[1.0, 1.0]] * 48,
            control_edges=[
                (i, i + offset)
                for i in range(48)
                for offset in (1, 4)
                if i + offset < 48 and (offset == 4 or layers[i] < 3)
            ],
        )
        problem = dataclasses.replace(problem, coarse_groups=4 * (steps // 2) + layers)
        by_layer = Simulator(problem).simulate((layers // 2).astype(np.int32)[None]).step_secs[0]
        for known, expected in (
            (problem, False),
            (dataclasses.replace(problem, layers=layers), True),
        ):
            result = coarse_to_fine_search(
                known, group_graph(problem), max_secs=600.0, max_simulated=100, threads=1
            )
            starts = {name: found.step_secs for name, found in result.starts}
            self.assertEqual(starts["expert"] <= by_layer, expected)

    def test_is_never_worse_than_the_best_coarse_placement(self):
        random = np.random.default_rng(0)
        num_compared = 0
        while num_compared < 6:
            problem = random_problem(random, max_operations=10)
            clusters = random.integers(3, size=problem.num_groups)
            placements = np.array(list(np.ndindex(*[problem.num_devices] * 3)))[:, clusters]
            legal = legal_devices(problem)
            legal = legal[np.arange(problem.num_groups), placements].all(axis=1)
            if problem.num_groups < 4 or not legal.any():
                continue
            num_compared += 1
            result = search(problem, clusters, max_simulated=1500)
            self.assertLessEqual(result.best.rank, min(simulate_ranks(problem, placements[legal])))

    def test_finds_the_optimum_of_random_problems_where_there_is_one(self):
        random = np.random.default_rng(1)
        num_found = 0
        while num_found < 6:
            problem = random_problem(random, max_operations=7)
            fastest = all_step_secs(problem)[0]
            clusters = random.integers(3, size=problem.num_groups)
            if not np.isfinite(fastest) or not all(
                legal_devices(problem)[clusters == cluster].all(axis=0).any()
                for cluster in range(3)
            ):
                continue
            num_found += 1
            best = search(problem, clusters).best
            self.assertEqual(best.excess_bytes, 0)
            self.assertTrue(is_optimal(best.step_secs, fastest))

    def test_is_never_worse_than_coarse_and_fine_starts(self):
        random = np.random.default_rng(2)
        for seed in range(3):
            problem = make_pairs_problem()
            starts = [(f"fine {k}", random_placement(random, problem)) for k in range(2)]
            starts += [("coarse", random.integers(2, size=9).astype(np.int32)[PAIRS])]
            starts += [("optimum", np.array([0, 1] * 9, np.int32))]
            result = search(problem, PAIRS, starts=starts, max_simulated=300, seed=seed)
            self.assertLessEqual(
                result.best.rank,
                min(simulate_ranks(problem, [placement for _, placement in starts])),
            )
            found = dict(result.starts)
            for name, placement in starts:
                self.assertEqual(found[name].placement.tolist(), placement.tolist())

    def test_an_interrupted_search_includes_the_best_start(self):
        def interrupt(progress):
            raise KeyboardInterrupt

        optimum = np.array([0, 1] * 9, np.int32)
        result = search(make_pairs_problem(), PAIRS, starts=[("own", optimum)], report=interrupt)
        self.assertTrue(result.interrupted)
        self.assertEqual(result.best.step_secs, 9.0)
        self.assertEqual(result.finalists[0].placement.tolist(), optimum.tolist())

    def test_all_candidates_are_of_the_groups_and_agree_with_the_simulator(self):
        problem = make_pairs_problem()
        result = search(problem, PAIRS[::-1], max_simulated=400, threads=2)
        every = [result.best, *result.finalists, *(found for _, found in result.starts)]
        expected = simulate_ranks(problem, [found.placement for found in every])
        self.assertEqual([found.rank for found in every], expected)
        self.assertEqual(result.best.rank, result.finalists[0].rank)
        for several in (result.finalists, [found for _, found in result.starts]):
            self.assertEqual([f.rank for f in several], sorted(f.rank for f in several))
        self.assertLen({f.placement.tobytes() for f in result.finalists}, len(result.finalists))
        self.assertLen({name for name, _ in result.starts}, len(result.starts))
        self.assertLessEqual(result.lower_bound_secs, result.best.step_secs)

    def test_a_coarse_optimum_is_not_optimal_for_the_groups(self):
        # The search tries all 2**3 coarse placements, which uses its whole budget.
        problem = make_problem([[1.0, 4.0], [4.0, 1.0]] * 3)
        result = search(problem, np.arange(6) // 2, max_simulated=1)
        self.assertFalse(result.is_optimal)
        self.assertLen(result.best.placement, 6)

    @parameterized.parameters(200, 1000)
    def test_keeps_its_budget_of_simulated_placements(self, max_simulated):
        # No placement is at the lower bound, so the search uses its whole budget.
        random = np.random.default_rng(3)
        problem = make_problem(
            random.random([18, 2]) + 0.5, tensors=[(k, 1, [k + 1]) for k in range(17)]
        )
        result = search(problem, PAIRS, max_simulated=max_simulated)
        self.assertBetween(result.num_simulated, 0.9 * max_simulated, 1.1 * max_simulated + 20)

    @parameterized.parameters(
        {"clusters": None},
        {"clusters": range(18)},
        {"clusters": range(100, 118)},
    )
    def test_without_coarse_groups_searches_with_groups_alone(self, clusters):
        shares = []
        problem = make_pairs_problem()
        result = search(
            problem,
            None if clusters is None else list(clusters),
            max_simulated=500,
            report=lambda progress: shares.append(progress.share),
        )
        plain = search(problem, None, max_simulated=500)
        self.assertEqual(result.best.placement.tolist(), plain.best.placement.tolist())
        self.assertEqual(result.num_simulated, plain.num_simulated)

    def test_one_cluster_of_everything_is_refined(self):
        result = search(make_pairs_problem(), [0] * 18, max_simulated=20_000)
        self.assertEqual(result.best.step_secs, 9.0)

    def test_the_numbering_of_clusters_does_not_matter(self):
        problem = make_pairs_problem()
        plain = search(problem, PAIRS, max_simulated=600)
        other = search(problem, 1000 - 7 * PAIRS, max_simulated=600)
        self.assertEqual(other.best.placement.tolist(), plain.best.placement.tolist())
        self.assertEqual(other.num_simulated, plain.num_simulated)

    def test_accepts_groups_without_operations(self):
        problem = make_problem([[1.0, 2.0], [2.0, 1.0]] * 2, groups=[0, 0, 3, 4])
        for clusters in ([1, 0, 0, 1, 1], [0, 0, 0, 1, 1], [3, 3, 3, 2, 3]):
            result = search(problem, clusters, max_simulated=200)
            self.assertLen(result.best.placement, 5)
            self.assertEqual(result.best.step_secs, 3.0)
            self.assertTrue(result.is_optimal)

    @parameterized.parameters({"max_secs": 0.0}, {"max_simulated": 0})
    def test_refuses_a_budget_that_is_not_positive(self, **budget):
        for clusters in (None, PAIRS):
            with self.assertRaisesRegex(ValueError, "the budget must be positive"):
                search(make_pairs_problem(), clusters, **budget)

    def test_reports_a_share_that_grows_to_1_and_placements_that_only_improve(self):
        random = np.random.default_rng(3)
        problem = make_problem(
            random.random([18, 2]) + 0.5, tensors=[(k, 1, [k + 1]) for k in range(17)]
        )
        reports = []
        result = search(problem, PAIRS, max_simulated=2000, report=reports.append)
        self.assertGreater(len(reports), 1)
        for values in (
            [report.share for report in reports],
            [report.num_simulated for report in reports],
            [report.elapsed_secs for report in reports],
            [tuple(-value for value in report.best.rank) for report in reports],
        ):
            self.assertEqual(values, sorted(values))
        self.assertBetween(reports[0].share, 0.0, 0.4)
        self.assertEqual(reports[-1].share, 1.0)
        self.assertEqual(reports[-1].best.rank, result.best.rank)
        self.assertEqual(reports[-1].num_simulated, result.num_simulated)
        for report in reports:
            self.assertEqual([report.best.rank], simulate_ranks(problem, [report.best.placement]))

    def test_an_interrupt_returns_the_best_so_far(self):
        def interrupt(progress):
            raise KeyboardInterrupt

        result = search(make_pairs_problem(), PAIRS, report=interrupt)
        self.assertTrue(result.interrupted)
        self.assertFalse(result.is_optimal)
        self.assertEqual(
            [result.best.rank], simulate_ranks(make_pairs_problem(), [result.best.placement])
        )

    @parameterized.parameters(1, 2)
    def test_the_same_seed_finds_the_same_in_the_same_number_of_simulations(self, threads):
        random = np.random.default_rng(4)
        problem = make_problem(
            random.random([18, 2]) + 0.5,
            tensors=[(k, 1, [k + 1]) for k in range(17)],
            resident_bytes=[10] * 18,
            memory_bytes=[95, 95],
        )
        first, second = (
            search(problem, PAIRS, max_simulated=800, seed=3, threads=threads) for _ in range(2)
        )
        self.assertEqual(first.best.placement.tolist(), second.best.placement.tolist())
        self.assertEqual(first.num_simulated, second.num_simulated)
        self.assertEqual(
            [found.placement.tolist() for found in first.finalists],
            [found.placement.tolist() for found in second.finalists],
        )


if __name__ == "__main__":
    absltest.main()
