"""The zoo has many kinds, each named for what is in it, and all but one deterministic."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.zoo.catalogue import KINDS, describe
from benchmarks.zoo.placed_runs import script_values
from tf_placer.live.equal_values import describe_difference


class CatalogueTest(tf.test.TestCase, parameterized.TestCase):
    def test_there_are_many_kinds_and_each_has_a_sentence(self):
        self.assertGreaterEqual(len({describe(name) for name in KINDS}), 40)
        for name in KINDS:
            self.assertRegex(describe(name), r"^[A-Z].*\.$", name)

    @parameterized.parameters(
        ("assign_in_cond_v1", ["RefSwitch", "RefMerge"], ["If"]),
        ("assign_in_cond_v2", ["If"], ["Switch"]),
        ("nested_whiles_v1", ["Enter", "Exit", "StackPushV2"], ["While"]),
        ("nested_whiles_v2", ["While"], ["Enter"]),
        ("switch_case_v2", ["Case"], ["If"]),
        ("scans_v1", ["TensorArrayV3"], ["While"]),
        ("ctc", ["CTCLoss", "CTCGreedyDecoder"], []),
        ("conditional_accumulators", ["ResourceAccumulatorTakeGradient"], ["VarHandleOp"]),
        ("sparse_gradients_v1", ["SparseApplyFtrl", "VariableV2"], ["VarHandleOp"]),
        ("sparse_gradients_v2", ["ResourceSparseApplyAdagrad"], ["VariableV2"]),
        ("half_precision", ["Cast"], ["VariableV2"]),
        ("fused_batch_norm_v1", ["FusedBatchNormV3", "AssignSub"], []),
        ("convolutions", ["LRN", "Conv2DBackpropInput"], []),
        ("candidate_sampling", ["LogUniformCandidateSampler"], []),
        ("fake_quantisation", ["FakeQuantWithMinMaxVars"], []),
        ("nested_functions", ["StatefulPartitionedCall"], []),
        ("defuns", ["layer", "SymbolicGradient"], ["PartitionedCall"]),
        ("summaries_and_checks", ["Assert", "Print", "HistogramSummary"], []),
        ("iterator_by_handle", ["IteratorFromStringHandleV2"], []),
        ("one_shot_iterator", ["OneShotIterator"], ["MakeIterator"]),
        ("mutable_table", ["MutableHashTableV2", "LookupTableInsertV2"], []),
        ("queue_in_a_step", ["QueueEnqueueManyV2", "QueueDequeueManyV2"], []),
    )
    def test_has_what_it_is_named_for(self, name, present, absent):
        types = {operation.type for operation in KINDS[name]().graph.get_operations()}
        self.assertContainsSubset(present, types)
        self.assertEmpty(types & {*absent})

    @parameterized.parameters(*(name for name in KINDS if name != "reference_race"))
    def test_computes_the_same_in_every_session_and_of_every_construction(self, name):
        made = KINDS[name]()
        self.assertFalse(made.is_racy)
        values = script_values(made)
        self.assertIsNone(describe_difference(values, script_values(KINDS[name]())))
        for key, value in values.items():
            if value.dtype.kind == "f":
                self.assertTrue(np.isfinite(value).all(), key)


if __name__ == "__main__":
    tf.test.main()
