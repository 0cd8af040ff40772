import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.placers import graphs, placer_conformance, problems
from tests.tf_placer.placers.heuristics.partition_checks import compute_loads, grid, write_metis
from tf_placer.placers.heuristics import metis_partition
from tf_placer.placers.heuristics.metis_partition import MetisPartition, partition_graph
from tf_placer.problem.problem_groups import group_graph, legal_devices

_INF = np.inf


def _placer(problem):
    return MetisPartition(group_graph(problem), legal_devices(problem), problem=problem)


class MetisPartsTest(parameterized.TestCase):
    @parameterized.product(recursive=(False, True), num_parts=(2, 4), seed=(0, 1))
    def test_cut_is_that_of_the_command_line_tool(self, recursive, num_parts, seed):
        if not shutil.which("gpmetis"):
            self.skipTest("gpmetis is not installed: apt-get install metis")
        graph = grid(12, 15, num_parts, seed)
        path = pathlib.Path(self.create_tempdir().full_path, "graph")
        write_metis(graph, path)
        command = ["gpmetis", f"-ptype={'rb' if recursive else 'kway'}", "-ufactor=30"]
        printed = subprocess.run(
            [*command, f"-seed={seed}", str(path), str(num_parts)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        of_tool = np.loadtxt(f"{path}.part.{num_parts}", dtype=np.int64)
        self.assertIn(f"Edgecut: {graph.compute_cut_bytes(of_tool)},", printed)
        found = partition_graph(graph, imbalance=30, recursive=recursive, seed=seed)
        # The tool and the library may be different versions.
        self.assertLessEqual(
            graph.compute_cut_bytes(found), 1.15 * graph.compute_cut_bytes(of_tool)
        )
        # Bisecting twice may exceed the imbalance twice.
        self.assertLessEqual(compute_loads(graph, found).max(), 1.07)

    def test_cut_is_near_the_least_of_all_balanced_ones(self):
        graph = grid(3, 4, 2, seed=0)
        cuts = {}
        for sides in itertools.product((0, 1), repeat=11):
            parts = np.array([0, *sides])
            if compute_loads(graph, parts).max() <= 1.1:
                cuts[sides] = graph.compute_cut_bytes(parts)
        found = partition_graph(graph, imbalance=100, recursive=True, seed=0)
        self.assertLessEqual(compute_loads(graph, found).max(), 1.2)
        self.assertLessEqual(graph.compute_cut_bytes(found), 1.25 * min(cuts.values()))

    @parameterized.parameters(False, True)
    def test_parts_are_proportional_to_the_powers_of_devices(self, recursive):
        graph = dataclasses.replace(grid(20, 20, 3, seed=0), powers=np.array([0.25, 1.0, 0.75]))
        found = partition_graph(graph, imbalance=30, recursive=recursive, seed=0)
        np.testing.assert_allclose(compute_loads(graph, found), 1.0, atol=0.06)

    def test_a_larger_imbalance_is_used_to_cut_less(self):
        graph = grid(20, 20, 4, seed=3)
        cuts = [
            graph.compute_cut_bytes(
                partition_graph(graph, imbalance=imbalance, recursive=False, seed=0)
            )
            for imbalance in (1, 300)
        ]
        self.assertLess(cuts[1], cuts[0])

    def test_standard_output_is_for_answers(self):
        # METIS complains of bisections that leave a side without nodes.
        graph = grid(3, 3, 8, seed=0)
        graph = dataclasses.replace(graph, work=np.array([10**6, *[1] * 8]))
        for is_dropped in (False, True):
            with tempfile.TemporaryFile() as printed:
                standard_output = os.dup(1)
                os.dup2(printed.fileno(), 1)
                try:
                    with contextlib.ExitStack() as stack:
                        if not is_dropped:
                            stack.enter_context(
                                mock.patch.object(metis_partition, "_COMPLAINT", b"nothing")
                            )
                        parts = partition_graph(graph, imbalance=30, recursive=True, seed=0)
                finally:
                    os.dup2(standard_output, 1)
                    os.close(standard_output)
                printed.seek(0)
                self.assertEqual(b"***" in printed.read(), not is_dropped)
                self.assertLen(parts, 9)

    @parameterized.parameters((1, 1, 3), (1, 3, 3), (2, 2, 4), (1, 0, 2))
    def test_few_nodes_are_a_part_each(self, rows, columns, num_parts):
        graph = grid(rows, columns, num_parts, seed=0)
        found = partition_graph(graph, imbalance=30, recursive=False, seed=0)
        self.assertEqual(found.tolist(), list(range(rows * columns)))


class MetisPartitionTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(graphs.two_chains(3), np.ones([6, 3], np.bool_))
        if groups.num_groups == 6 and legal.shape == (6, 3):
            problem = problems.build_group_problem(groups, legal)
        return MetisPartition(groups, legal, seed=seed, problem=problem)

    def test_accelerators_share_the_work_and_the_cpu_keeps_cpu_only_groups(self):
        secs = [(8, 1, 1)] * 8 + [(1, _INF, _INF)]
        chains = [(k, k + 1, 100) for k in range(7) if k != 3]
        placements = _placer(
            problems.build_task_problem(secs, [*chains, (3, 4, 1), (7, 8, 500)])
        ).propose(9)
        found = {tuple(row) for row in placements.tolist()}
        self.assertLessEqual(found, {(1,) * 4 + (2,) * 4 + (0,), (2,) * 4 + (1,) * 4 + (0,)})

    def test_replaces_illegal_devices_by_the_first_legal_device(self):
        secs = [(8, 1, 1)] * 3 + [(8, 1, _INF)] + [(8, 1, 1)] * 4
        problem = problems.build_task_problem(secs, [(k, k + 1, 100) for k in range(7)])
        placer = _placer(problem)
        for row in placer.propose(9):
            self.assertIn(row[3], (0, 1))
            self.assertTrue((np.delete(row, 3) > 0).all())

    def test_one_accelerator_has_all_groups_it_can_run(self):
        problem = problems.build_task_problem([(1, 1), (1, _INF), (1, 1)])
        self.assertEqual(_placer(problem).propose(9).tolist(), [[1, 0, 1]])

    def test_the_same_seed_gives_the_same_placements(self):
        problem = problems.build_task_problem([(9, 1, 1)] * 30, [(k, k + 1, 5) for k in range(29)])
        np.testing.assert_array_equal(_placer(problem).propose(9), _placer(problem).propose(9))


if __name__ == "__main__":
    absltest.main()
