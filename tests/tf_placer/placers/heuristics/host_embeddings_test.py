"""Tests of the placer that keeps embedding tables on the CPU."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tests.graph_parts import new_graph
from tests.tf_placer.placers import problems
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.placers.heuristics.host_embeddings import HostEmbeddings, find_table_groups
from tf_placer.problem.problem_groups import group_graph, legal_devices

tf1 = tf.compat.v1

_MIB = 1 << 20


def build_recommender(*, use_resource: bool) -> tuple[tf.Graph, tf.Operation]:
    """Builds a training step of two embedding tables of 2 and 1 MiB, and two dense layers."""
    with new_graph() as graph, tf1.variable_scope("", use_resource=use_resource):
        rows = []
        for name, size in (("users", 32768), ("items", 16384)):
            table = tf1.get_variable(name, [size, 16])
            ids = tf1.placeholder(tf.int32, [64], name=f"{name}_ids")
            rows.append(tf.nn.embedding_lookup(table, ids, name=f"{name}_rows"))
        value = tf.concat(rows, axis=1)
        for layer in range(2):
            # A dense weight of 1.5 MiB is no table.
            weights = tf1.get_variable(
                f"dense_{layer}", [value.shape[1], 12288 if not layer else 1]
            )
            value = tf.nn.relu(value @ weights)
        train = tf1.train.AdamOptimizer().minimize(tf.reduce_mean(value))
    return graph, train


class HostEmbeddingsTest(absltest.TestCase):
    def build_problem(self, *, use_resource: bool = True, granularity: str = "fine"):
        graph, train = build_recommender(use_resource=use_resource)
        workload = read_workload(graph, train)
        machine = find_machine("2xK80")
        return cost_graph(workload, machine, steps=1, granularity=granularity).problem()

    def make_placer(self, problem) -> HostEmbeddings:
        return HostEmbeddings(group_graph(problem), legal_devices(problem), problem=problem)

    def test_a_table_takes_its_slots_lookups_and_updates_along(self):
        for use_resource in (False, True):
            problem = self.build_problem(use_resource=use_resource)
            users, items = find_table_groups(problem)
            for name, table in (("users", users), ("items", items)):
                held = [
                    operation
                    for operation, group in zip(
                        problem.operation_names, problem.groups.tolist(), strict=True
                    )
                    if table[group]
                ]
                self.assertIn(name, held)
                self.assertIn(f"{name}/Adam", held)
                self.assertIn(f"{name}/Adam_1", held)
                self.assertFalse([each for each in held if "dense" in each])
                resident = problem.resident_bytes[table[problem.groups]].sum()
                size = (2 if name == "users" else 1) * _MIB
                self.assertBetween(resident / size, 3.0, 3.01)

    def test_proposes_all_tables_on_the_cpu_and_then_the_larger_alone(self):
        for granularity in ("fine", "coarse"):
            problem = self.build_problem(granularity=granularity)
            users, items = find_table_groups(problem)
            legal = legal_devices(problem)
            proposals = self.make_placer(problem).propose(99)
            self.assertLen(proposals, 6)
            for row in proposals:
                self.assertTrue(legal[np.arange(len(row)), row].all())
                self.assertFalse(row[users].any())
            self.assertFalse(proposals[:3, items].any())
            self.assertTrue(proposals[3:, items].any(axis=1).all())
            anywhere = legal.all(axis=1) & ~users & ~items
            self.assertEqual(set(proposals[0, anywhere].tolist()), {1})
            self.assertEqual(set(proposals[1, anywhere].tolist()), {2})
            self.assertEqual(set(proposals[2, anywhere].tolist()), {1, 2})

    def test_dense_updates_of_whole_tables_stay_beside_them(self):
        # A table, the lookup in its whole value, a product, a dense gradient, a slot, an update.
        problem = problems.build_task_problem(
            [(1, 1)] * 6,
            [(0, 1, _MIB), (1, 2, 8), (2, 3, 8), (3, 4, _MIB), (4, 5, _MIB)],
            groups=[0, 1, 2, 3, 4, 0],
            resident_bytes=[_MIB, 0, 2 * _MIB, 0, _MIB, 0],
        )
        types = ("VarHandleOp", "GatherV2", "MatMul", "UnsortedSegmentSum", "VarHandleOp", "Sub")
        problem = dataclasses.replace(problem, operation_types=types)
        self.assertEqual(self.make_placer(problem).propose(9).tolist(), [[0, 0, 1, 0, 0]])

    def test_proposes_nothing_without_tables_types_or_accelerators(self):
        small = problems.build_task_problem([(1, 1)] * 2, [(0, 1, 8)], resident_bytes=[_MIB - 1, 0])
        types = ("VarHandleOp", "GatherV2")
        unknown = problems.build_task_problem([(1, 1)], resident_bytes=[_MIB])
        cpus = problems.build_task_problem([(1,)], resident_bytes=[_MIB])
        for problem in (
            dataclasses.replace(small, operation_types=types),
            unknown,
            dataclasses.replace(cpus, operation_types=("ResourceGather",)),
        ):
            self.assertEmpty(self.make_placer(problem).propose(9))


if __name__ == "__main__":
    absltest.main()
