import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.heuristics.parallel_lines import (
    bands_of_lines,
    chains,
    longest_ways,
    parallel_lines,
)


def grid_edges(num_layers, num_steps):
    """The edges of layers times steps; cell (layer, step) is group layer + step * num_layers."""
    cells = [(layer, step) for step in range(num_steps) for layer in range(num_layers)]
    upwards = [(layer + step * num_layers, 1) for layer, step in cells if layer < num_layers - 1]
    onwards = [(layer + step * num_layers, num_layers) for layer, step in cells[:-num_layers]]
    return [(group, group + distance) for group, distance in [*upwards, *onwards]]


def parts(membership):
    return {tuple(np.flatnonzero(membership == part).tolist()) for part in set(membership.tolist())}


class ParallelLinesTest(absltest.TestCase):
    def test_the_lines_of_a_grid_are_its_layers_whatever_the_numbers(self):
        layers = np.arange(3 * 7) % 3
        numbers = np.random.default_rng(0).permutation(3 * 7)
        edges = [(int(numbers[a]), int(numbers[b])) for a, b in grid_edges(3, 7)]
        [lines] = parallel_lines(graphs.group_graph(21, edges))
        self.assertEqual(parts(lines[numbers]), parts(layers))

    def test_the_short_side_of_a_grid_is_never_cut(self):
        # Five layers and three steps: what is contracted are the classes with fewer edges.
        [lines] = parallel_lines(graphs.group_graph(15, grid_edges(5, 3)))
        self.assertEqual(parts(lines), parts(np.arange(15) // 5))

    def test_cells_may_be_chains(self):
        # Every cell is two groups, of which the second one is read by others.
        edges = [(2 * a + 1, 2 * b) for a, b in grid_edges(3, 7)]
        edges += [(2 * cell, 2 * cell + 1) for cell in range(21)]
        [lines] = parallel_lines(graphs.group_graph(42, edges))
        self.assertEqual(parts(lines), parts(np.arange(42) // 2 % 3))

    def test_towers_that_share_parameters_are_lines(self):
        # Parameter 0 is read by all of two chains of five.
        edges = [(0, group) for group in range(1, 11)]
        edges += [(group, group + 1) for group in range(1, 10) if group != 5]
        [lines] = parallel_lines(graphs.group_graph(11, edges))
        self.assertEqual(parts(lines), {(0,), (1, 2, 3, 4, 5), (6, 7, 8, 9, 10)})

    def test_what_never_repeats_itself_has_no_lines(self):
        tree = [(group, (group - 1) // 2) for group in range(1, 15)]
        for groups in (graphs.chain(6), graphs.group_graph(15, tree), graphs.group_graph(1)):
            self.assertEqual(parallel_lines(groups), [])

    def test_finer_lines_come_first_and_coarser_ones_are_made_of_them(self):
        # Two grids side by side whose layers are joined once: 40 steps, 20 layers each.
        edges = [*grid_edges(20, 40), *((a + 800, b + 800) for a, b in grid_edges(20, 40))]
        some = parallel_lines(graphs.group_graph(1600, [*edges, (5, 805)]))
        self.assertNotEmpty(some)
        for finer, coarser in itertools.pairwise(some):
            self.assertLess(coarser.max(), finer.max())
            self.assertEqual(len(set(zip(finer, coarser, strict=True))), finer.max() + 1)

    def test_circles_between_groups_are_no_problem(self):
        edges = [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)]
        self.assertLessEqual(len(parallel_lines(graphs.group_graph(3, edges))), 1)


class BandsTest(absltest.TestCase):
    def test_lines_one_after_the_other_are_bands(self):
        lines = np.array([0, 1, 0, 1, 2, 3, 2, 3])
        bands = bands_of_lines(lines, np.arange(8.0))
        self.assertEqual(bands.tolist(), [0, 0, 1, 1])

    def test_a_line_is_of_a_band_if_half_of_it_is(self):
        lines = np.array([0, 0, 1, 1, 2, 2])
        bands = bands_of_lines(lines, np.array([0.0, 10.0, 7.0, 12.0, 9.0, 14.0]))
        self.assertEqual(bands.tolist(), [0, 0, 1])


class ChainsTest(absltest.TestCase):
    def test_a_chain_ends_where_something_else_comes_in_or_goes_out(self):
        # 0 -> 1 -> 2 -> {3, 4}; 3 -> 5; 4 -> 5; 5 -> 6.
        edges = [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6)]
        chain_of, count = chains(graphs.group_graph(7, edges))
        self.assertEqual(count, 4)
        self.assertEqual(parts(chain_of), {(0, 1, 2), (3,), (4,), (5, 6)})


class LongestWaysTest(absltest.TestCase):
    def test_a_way_goes_on_where_most_is_still_to_come(self):
        # A chain 0, 1, 2 each of which has a head.
        edges = [(0, 1), (1, 2), (0, 3), (1, 4), (2, 5)]
        rests = np.array([4.0, 3.0, 2.0, 1.0, 1.0, 1.0])
        ways = longest_ways(graphs.group_graph(6, edges), rests)
        self.assertEqual(parts(ways), {(0, 1, 2, 5), (3,), (4,)})

    def test_of_two_that_go_on_with_the_same_the_longer_one_does(self):
        ways = longest_ways(graphs.group_graph(3, [(0, 2), (1, 2)]), np.array([3.0, 5.0, 1.0]))
        self.assertEqual(parts(ways), {(0,), (1, 2)})


if __name__ == "__main__":
    absltest.main()
