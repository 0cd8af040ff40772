import dataclasses
import itertools
import pathlib
import re
import shutil
import subprocess
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.placers import graphs, placer_conformance, problems
from tests.tf_placer.placers.heuristics.partition_checks import (
    compute_communication,
    compute_loads,
    grid,
    write_scotch,
)
from tf_placer.placers.heuristics import scotch_library
from tf_placer.placers.heuristics.scotch_library import map_graph, require_scotch
from tf_placer.placers.heuristics.scotch_partition import MinCut, Scotch
from tf_placer.problem.problem_groups import group_graph, legal_devices

_INF = np.inf
_COSTS = np.array([[0, 20, 20, 20], [20, 0, 10, 15], [20, 10, 0, 15], [20, 15, 15, 0]], np.int32)


def setUpModule():
    try:
        require_scotch("scotch")
    except ImportError as error:
        raise absltest.SkipTest(str(error)) from None


def _placer(placer, problem, seed=0):
    return placer(group_graph(problem), legal_devices(problem), seed=seed, problem=problem)


def _complete(num_devices):
    return np.where(np.eye(num_devices, dtype=np.bool_), 0, 10).astype(np.int32)


class MapGraphTest(parameterized.TestCase):
    def _run(self, *command):
        if not shutil.which(command[0]):
            self.skipTest(f"{command[0]} is not installed: apt-get install scotch")
        run = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
        return run.stdout

    def _folder(self):
        return pathlib.Path(self.create_tempdir().full_path)

    def test_mappings_are_as_good_as_those_of_the_command_line_tool(self):
        # Single mappings vary by a third with the seed, so compare several.
        folder = self._folder()
        source, machine = folder / "source.grf", folder / "machine.grf"
        powers = np.array([0.2, 1.0, 1.0, 0.6])
        ours, of_tool = [], []
        for number in range(6):
            graph = dataclasses.replace(grid(12, 15, 4, number), powers=powers)
            write_scotch(source, graph.start, graph.neighbors, graph.work, graph.edge_bytes)
            sources, targets = np.nonzero(_COSTS)
            costs = _COSTS[sources, targets]
            write_scotch(machine, np.arange(5) * 3, targets, graph.scale_powers(), costs)
            self._run("amk_grf", machine, folder / "machine.tgt")
            printed = self._run(
                "scotch_gmap", source, folder / "machine.tgt", folder / "map", "-Cd", "-vm"
            )
            found = np.loadtxt(folder / "map", dtype=np.int64, skiprows=1)[:, 1]
            # The tool counts the cut as we do.
            self.assertEqual(_cut(printed), graph.compute_cut_bytes(found))
            of_tool.append(compute_communication(graph, found, _COSTS))
            for seed in (0, 2, 4):
                found = map_graph(graph, _COSTS, seed=seed)
                self.assertLessEqual(compute_loads(graph, found).max(), 1.1)
                ours.append(compute_communication(graph, found, _COSTS))
        self.assertLessEqual(np.mean(ours), 1.15 * np.mean(of_tool))

    @parameterized.parameters(2, 3, 5)
    def test_the_tool_counts_the_same_cut_of_a_mapping(self, num_devices):
        graph = grid(10, 10, num_devices, seed=4)
        found = map_graph(graph, _complete(num_devices), seed=0)
        folder = self._folder()
        write_scotch(
            folder / "source.grf", graph.start, graph.neighbors, graph.work, graph.edge_bytes
        )
        (folder / "machine.tgt").write_text(f"cmplt {num_devices}\n")
        lines = [f"{node} {device}" for node, device in enumerate(found)]
        (folder / "map").write_text("\n".join([str(len(lines)), *lines]) + "\n")
        printed = self._run("gmtst", folder / "source.grf", folder / "machine.tgt", folder / "map")
        self.assertEqual(_cut(printed), graph.compute_cut_bytes(found))

    def test_communication_is_near_the_least_of_all_balanced_mappings(self):
        graph = grid(2, 4, 3, seed=0)
        costs = _COSTS[1:, 1:]
        found = map_graph(graph, costs, seed=0)
        most = compute_loads(graph, found).max()
        least = min(
            compute_communication(graph, devices, costs)
            for devices in map(np.array, itertools.product(range(3), repeat=8))
            if compute_loads(graph, devices).max() <= most
        )
        self.assertLessEqual(most, 1.35)
        self.assertLessEqual(compute_communication(graph, found, costs), 1.5 * least)

    def test_devices_are_loaded_by_their_powers(self):
        graph = dataclasses.replace(grid(20, 20, 4, seed=0), powers=np.array([0.1, 1, 1, 0.5]))
        np.testing.assert_allclose(
            compute_loads(graph, map_graph(graph, _COSTS, seed=0)), 1.0, atol=0.1
        )

    def test_uses_fast_links_for_heavy_traffic(self):
        # Four blocks in a row with equal bytes between neighbors, which belong on the fast pairs.
        costs = np.full([4, 4], 500, np.int32)
        np.fill_diagonal(costs, 0)
        costs[0, 2] = costs[2, 0] = costs[1, 3] = costs[3, 1] = 10
        graph = grid(4, 16, 4, seed=0)
        found = map_graph(graph, costs, seed=0)
        swapped = np.array([0, 2, 1, 3])[found]
        self.assertLess(
            compute_communication(graph, found, costs), compute_communication(graph, swapped, costs)
        )

    def test_the_same_seed_gives_the_same_mapping(self):
        graph = grid(15, 15, 4, seed=1)
        for seed in (0, 3, 1 << 40):
            first = map_graph(graph, _COSTS, seed=seed)
            map_graph(graph, _COSTS, seed=seed + 1)
            np.testing.assert_array_equal(map_graph(graph, _COSTS, seed=seed), first)

    @parameterized.parameters((1, 0), (1, 1), (1, 3))
    def test_maps_graphs_of_few_nodes(self, rows, columns):
        found = map_graph(grid(rows, columns, 4, seed=0), _COSTS, seed=0)
        self.assertLen(found, rows * columns)
        self.assertTrue(((found >= 0) & (found < 4)).all())

    def test_one_device_has_everything(self):
        found = map_graph(grid(2, 3, 1, seed=0), np.zeros([1, 1], np.int32), seed=0)
        self.assertEqual(found.tolist(), [0] * 6)

    def test_bytes_beyond_32_bits_are_scaled(self):
        graph = grid(6, 6, 4, seed=0)
        large = dataclasses.replace(graph, edge_bytes=graph.edge_bytes << 45)
        cuts = [graph.compute_cut_bytes(map_graph(each, _COSTS, seed=0)) for each in (graph, large)]
        self.assertLessEqual(cuts[1], 1.2 * cuts[0])

    def test_maps_random_graphs_to_existing_devices(self):
        rng = np.random.default_rng(0)
        for _ in range(60):
            num_devices = int(rng.integers(2, 9))
            graph = grid(int(rng.integers(1, 9)), int(rng.integers(1, 9)), num_devices, seed=0)
            graph = dataclasses.replace(graph, powers=rng.uniform(0.001, 1.0, num_devices))
            costs = np.triu(rng.integers(10, 1000, [num_devices, num_devices]), 1)
            found = map_graph(graph, (costs + costs.T).astype(np.int32), seed=int(rng.integers(9)))
            self.assertTrue(((found >= 0) & (found < num_devices)).all())


def _cut(printed):
    return int(re.search(r"CommCutSz=\S+\s*\((\d+)\)", printed)[1])


class _Conformance(placer_conformance.PlacerConformance):
    placer = None

    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(graphs.two_chains(3), np.ones([6, 3], np.bool_))
        if groups.num_groups == 6 and legal.shape == (6, 3):
            problem = problems.build_group_problem(groups, legal)
        return self.placer(groups, legal, seed=seed, problem=problem)


class ScotchTest(_Conformance, absltest.TestCase):
    placer = Scotch

    def test_the_cpu_gets_its_share(self):
        problem = problems.build_task_problem([(2, 1, 1)] * 50, [(k, k + 1, 9) for k in range(49)])
        (placement,) = _placer(Scotch, problem).propose(9)
        np.testing.assert_allclose(np.bincount(placement), [10, 20, 20], atol=2)
        self.assertEqual(np.count_nonzero(np.diff(placement)), 2)

    def test_groups_without_choice_stay(self):
        secs = [(1, _INF, _INF)] + [(9, 1, 1)] * 9 + [(_INF, _INF, 1)]
        (placement,) = _placer(Scotch, problems.build_task_problem(secs)).propose(9)
        self.assertEqual((placement[0], placement[10]), (0, 2))


class MinCutTest(_Conformance, absltest.TestCase):
    placer = MinCut

    def test_only_cpu_only_groups_are_on_the_cpu(self):
        secs = [(1, _INF, _INF)] + [(1, 1, 1)] * 50
        problem = problems.build_task_problem(secs, [(k, k + 1, 9) for k in range(50)])
        (placement,) = _placer(MinCut, problem).propose(9)
        self.assertEqual(placement[0], 0)
        np.testing.assert_allclose(np.bincount(placement[1:]), [0, 25, 25], atol=2)
        self.assertEqual(np.count_nonzero(np.diff(placement[1:])), 1)

    def test_one_accelerator_has_all_groups_it_can_run(self):
        problem = problems.build_task_problem([(1, 1), (1, _INF), (1, 1)])
        self.assertEqual(_placer(MinCut, problem).propose(9).tolist(), [[1, 0, 1]])


class WithoutScotchTest(absltest.TestCase):
    def test_the_error_tells_how_to_install_scotch(self):
        problem = problems.build_task_problem([(1, 1)] * 3)
        with mock.patch.object(scotch_library, "_library", return_value=None):
            for placer, name in ((Scotch, "scotch"), (MinCut, "mincut")):
                with self.assertRaisesRegex(
                    ImportError, f"'{name}' needs Scotch 7.0.*apt-get install libscotch-7.0"
                ):
                    _placer(placer, problem)


if __name__ == "__main__":
    absltest.main()
