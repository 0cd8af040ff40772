"""Every kind of graph is planned, runs under legal placements, and saves what fits as it is."""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.zoo.catalog import KINDS
from benchmarks.zoo.graph_parts import StepGraph
from benchmarks.zoo.placed_runs import (
    PlacedGraph,
    Values,
    script_session,
    script_values,
    variable_values,
)
from graph_passes.errors import GraphError
from tf_placer.confirmation.equal_values import describe_difference
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.machines.lookup import find_machine
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

tf1 = tf.compat.v1

# Their operations do not say what fills the queues.
NEED_COLLECTIONS = ("queue_runners",)
PLACEMENTS = {"coarse": 3, "fine": 1}
# Types of operations that kinds have, and do not have.
NAMED_FOR: dict[str, tuple[list[str], list[str]]] = {
    "assign_in_cond_v1": (["RefSwitch", "RefMerge"], ["If"]),
    "assign_in_cond_v2": (["If"], ["Switch"]),
    "nested_whiles_v1": (["Enter", "Exit", "StackPushV2"], ["While"]),
    "nested_whiles_v2": (["While"], ["Enter"]),
    "switch_case_v2": (["Case"], ["If"]),
    "scans_v1": (["TensorArrayV3"], ["While"]),
    "ctc": (["CTCLoss", "CTCGreedyDecoder"], []),
    "conditional_accumulators": (["ResourceAccumulatorTakeGradient"], ["VarHandleOp"]),
    "sparse_gradients_v1": (["SparseApplyFtrl", "VariableV2"], ["VarHandleOp"]),
    "sparse_gradients_v2": (["ResourceSparseApplyAdagrad"], ["VariableV2"]),
    "half_precision": (["Cast"], ["VariableV2"]),
    "fused_batch_norm_v1": (["FusedBatchNormV3", "AssignSub"], []),
    "convolutions": (["LRN", "Conv2DBackpropInput"], []),
    "candidate_sampling": (["LogUniformCandidateSampler"], []),
    "fake_quantization": (["FakeQuantWithMinMaxVars"], []),
    "nested_functions": (["StatefulPartitionedCall"], []),
    "defuns": (["layer", "SymbolicGradient"], ["PartitionedCall"]),
    "summaries_and_checks": (["Assert", "Print", "HistogramSummary"], []),
    "iterator_by_handle": (["IteratorFromStringHandleV2"], []),
    "one_shot_iterator": (["OneShotIterator"], ["MakeIterator"]),
    "mutable_table": (["MutableHashTableV2", "LookupTableInsertV2"], []),
    "queue_in_a_step": (["QueueEnqueueManyV2", "QueueDequeueManyV2"], []),
}


class KindsTest(tf.test.TestCase, parameterized.TestCase):
    machine = find_machine("2xK80")

    # One test for all that is checked of a kind: building a graph takes longer than most of it.
    @parameterized.parameters(*KINDS)
    def test_computes_and_saves_the_same_wherever_it_is(self, name):
        made = KINDS[name]()
        types = {operation.type for operation in made.graph.get_operations()}
        present, absent = NAMED_FOR.get(name, ([], []))
        self.assertContainsSubset(present, types)
        self.assertEmpty(types & {*absent})
        expected = script_values(made)
        self.check_without_collections(made, name, expected)
        saver = None
        with made.graph.as_default():
            if tf1.global_variables():
                saver = tf1.train.Saver()
        random = np.random.default_rng(0)
        for granularity, count in PLACEMENTS.items():
            placed = PlacedGraph(made, granularity=granularity, saver=saver and saver.saver_def)
            for _ in range(count):
                placement = placed.random_placement(random)
                values = placed.values(placement)
                if not made.is_racy:
                    self.assertIsNone(describe_difference(expected, values), str(placement))
        if saver is not None:
            self.check_checkpoints(made, saver, placed, placed.random_placement(random))

    def check_without_collections(self, made: StepGraph, name: str, expected: Values) -> None:
        """The initializers that are found give the values of the script, and costs fit the run."""
        if name in NEED_COLLECTIONS:
            with self.assertRaisesRegex(GraphError, "waits for the queue .* which nothing fills"):
                PlacedGraph(made, has_collections=False)
            return
        placed = PlacedGraph(made, has_collections=False)
        values = placed.values(placed.random_placement(np.random.default_rng(1)))
        self.assertNotEmpty(values)
        if not made.is_racy:
            same = {key: value for key, value in expected.items() if key in values}
            self.assertIsNone(describe_difference(same, values))
        self.check_costs(placed)

    def check_costs(self, placed: PlacedGraph) -> None:
        problem = cost_graph(placed.workload, self.machine, steps=1).problem()
        devices = tuple(device.name for device in self.machine.devices)
        legal = placed.grouped.grouping.legal_devices(placed.grouped.colocation, devices)
        all_on = [np.where(legal[:, d], d, legal.argmax(axis=1)) for d in range(len(devices))]
        steps = Simulator(problem, threads=1).simulate(np.stack(all_on).astype(np.int32))
        self.assertTrue(steps.feasible.all())
        self.assertTrue(np.isfinite(steps.step_secs).all())
        self.assertAllGreaterEqual(steps.step_secs, 0.999 * lower_bounds(problem).step_secs)
        # Operations of this size take their launch, and half of them or more cost nothing: a
        # trace says how many ran on a CPU, whatever else the computer did meanwhile.
        on_cpu = np.zeros(len(placed.legal), np.int32)
        traced = placed.trace(on_cpu, 2)["operations"]
        ran = traced.keys() & placed.workload.op_graph.index.keys()
        # Those of functions, which loops run again and again, have other names than in the graph.
        runs = sum(operation["runs"] for operation in traced.values())
        launch_secs = self.machine.find_class(self.machine.devices[0]).launch_secs
        self.assertBetween(steps.step_secs[0] / launch_secs, len(ran) / 5, runs * 5)

    def check_checkpoints(self, made, saver, placed, placement):
        """Checks that placed and original graph restore each other's checkpoints."""
        tensors = variable_values(made.graph)
        local = {each.op.name for each in made.graph.get_collection(tf1.GraphKeys.LOCAL_VARIABLES)}
        directory = pathlib.Path(self.create_tempdir().full_path)
        path = str(directory / "placed")
        saved = placed.save(placement, path)
        with script_session(made) as session:
            saver.restore(session, path)
            self.assertContainsSubset(self.find_changed(saved, session.run(tensors)), local)
            for _ in range(2):
                session.run(made.fetches, made.feeds)
            path = saver.save(session, str(directory / "script"), write_meta_graph=False)
            saved = session.run(tensors)
        self.assertContainsSubset(self.find_changed(saved, placed.restore(placement, path)), local)

    def find_changed(self, saved, restored):
        """Names of the variables whose values are not those that were saved."""
        self.assertEqual(saved.keys(), restored.keys())
        return [name for name in saved if not np.array_equal(saved[name], restored[name])]


if __name__ == "__main__":
    tf.test.main()
