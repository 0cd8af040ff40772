from __future__ import annotations

import collections
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.grouping.default_groups import default_groups
from graph_passes.grouping.grouping import PINNED
from graph_passes.grouping.model_rules import seal_model_groups
from graph_passes.work import estimate_work
from tests import graph_parts as parts
from tests import graphs
from tests.graph_passes.grouping import models
from tests.graph_passes.grouping.models import STEPS, Groups

tf1 = tf.compat.v1

MOST_GRADIENTS = ("MatMul", "MatMul_1", "TanhGrad", "SigmoidGrad", "Conv2DBackpropFilter")


def gradients_under(groups: Groups, scope: str) -> list[str]:
    """Lists the heavy gradient operations of the operations in a scope."""
    return [
        name
        for name in groups.group
        if name.startswith(f"gradients/{scope}") and name.endswith(MOST_GRADIENTS)
    ]


class RecurrentTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.lm = Groups(graphs.lstm())

    def test_each_step_of_each_layer_is_a_cell_with_gradients(self):
        cells = {}
        for layer, step in itertools.product(range(2), range(3)):
            scope = f"layer_{layer}/step_{step}/"
            gates = [f"{scope}{name}" for name in ("BiasAdd", "split", "Sigmoid", "Tanh", "mul_1")]
            backward = [n for n in gradients_under(self.lm, scope)]
            self.assertGreater(len(backward), 4)
            cells[scope] = self.lm.group_of(f"{scope}MatMul", *gates, *backward)
            self.assertEqual(self.lm.kinds[cells[scope]], "rnn_cell")
        self.assertLen(set(cells.values()), 6)
        self.assertEqual(self.lm.kinds.count("rnn_cell"), 6)

    def test_lookup_and_prediction_are_groups(self):
        self.assertEqual(
            self.lm.kind_of("embedding/embedding_lookup", "embedding/weights"), "embedding_lookup"
        )
        self.assertEqual(
            self.lm.kind_of(
                "softmax/MatMul",
                "softmax/weights",
                "gradients/softmax/MatMul_grad/MatMul",
                "gradients/softmax/MatMul_grad/MatMul_1",
            ),
            "softmax_step",
        )

    def test_shared_weights_are_separate_groups(self):
        for layer in range(2):
            kernel = self.lm.group_of(f"layer_{layer}/kernel", f"layer_{layer}/kernel/Adam")
            self.assertEqual(self.lm.kinds[kernel], "operations")

    def test_layers_are_lookup_cells_and_prediction(self):
        self.assertEqual(self.lm.layer_of("embedding/embedding_lookup"), 0)
        for layer, step in itertools.product(range(2), range(3)):
            self.assertEqual(self.lm.layer_of(f"layer_{layer}/step_{step}/MatMul"), layer + 1)
            self.assertEqual(self.lm.layer_of(f"layer_{layer}/kernel"), layer + 1)
            self.assertEqual(self.lm.layer_of(f"layer_{layer}/bias"), layer + 1)
        self.assertEqual(self.lm.layer_of("softmax/MatMul"), 3)
        self.assertEqual(set(self.lm.grouped.group_graph.layers.tolist()), {0, 1, 2, 3})

    @parameterized.parameters(
        {"use_resource": True}, {"use_resource": False}, {"use_resource": True, "flat": True}
    )
    def test_products_of_a_gru_are_one_cell(self, use_resource, flat=False):
        groups = Groups(models.gru(use_resource=use_resource, flat=flat))
        cells = set()
        for step in range(STEPS):
            # With flat names, the variables take the names without a suffix.
            scope, suffix = ("gru/", f"_{step + 1}") if flat else (f"gru/step_{step}/", "")
            products = [f"{scope}{name}{suffix}" for name in ("gates", "candidate")]
            backward = [f"gradients/{name}_grad/MatMul_1" for name in products]
            cells.add(groups.group_of(*products, *backward))
        self.assertLen(cells, STEPS)
        self.assertEqual({groups.kinds[cell] for cell in cells}, {"rnn_cell"})
        self.assertEqual(groups.kind_of("logits/MatMul"), "softmax_step")

    def test_layers_of_one_scope_stay_separate_in_every_step(self):
        groups = Groups(models.build_stacked_rnn())
        cells = {
            groups.group_of(f"step_{step}/product_{layer}", f"step_{step}/output_{layer}")
            for step in range(STEPS)
            for layer in range(2)
        }
        self.assertLen(cells, 2 * STEPS)
        self.assertEqual({groups.kinds[cell] for cell in cells}, {"rnn_cell"})

    def test_towers_with_shared_weights_are_no_cells(self):
        groups = Groups(models.towers())
        self.assertNotIn("rnn_cell", groups.kinds)
        left, right = (
            groups.group_of(f"{s}/product_0", f"{s}/product_1") for s in ("left", "right")
        )
        self.assertNotEqual(left, right)
        self.assertEqual({groups.kinds[left], groups.kinds[right]}, {"branch"})

    def test_fused_cell_operation_is_a_cell(self):
        with parts.new_graph() as graph:
            kernel = parts.weight_variable("kernel", [8, 16], use_resource=True)
            state, empty = tf.zeros([2, 4]), tf.zeros([4])
            for step in range(2):
                cell = tf.raw_ops.LSTMBlockCell(
                    x=tf.ones([2, 4]),
                    cs_prev=state,
                    h_prev=state,
                    w=kernel,
                    wci=empty,
                    wcf=empty,
                    wco=empty,
                    b=tf.zeros([16]),
                    name=f"cell_{step}",
                )
                state = cell.h
            tf.reduce_sum(state, name="result")
        groups = Groups(graphs.TestGraph(graph, ("result:0",)))
        self.assertEqual([groups.kind_of(f"cell_{i}") for i in range(2)], ["rnn_cell"] * 2)
        self.assertNotEqual(groups.group_of("cell_0"), groups.group_of("cell_1"))


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    def check_steps(self, groups: Groups, attention: list[str]) -> None:
        steps = collections.defaultdict(set)
        for step in range(STEPS):
            scope = f"decoder/step_{step}/"
            scope = f"step_{step}/" if f"{scope}cell/MatMul" not in groups.group else scope
            found = {
                "rnn_cell": groups.group_of(f"{scope}cell/MatMul", f"{scope}cell/split"),
                "attention_step": groups.group_of(
                    *(f"{scope}attention/{name}" for name in attention)
                ),
                "layer": groups.group_of(f"{scope}attention/mix"),
                "softmax_step": groups.group_of(
                    f"{scope}softmax/logits", f"gradients/{scope}softmax/logits_grad/MatMul"
                ),
            }
            for kind, group in found.items():
                # The last layer, between attention and loss, may be classified as a branch.
                kinds = {kind, "branch"} if kind == "layer" else {kind}
                self.assertIn(groups.kinds[group], kinds, f"{kind} of {scope}")
                steps[kind].add(group)
        self.assertLen(set().union(*steps.values()), 4 * STEPS)
        for kind in ("rnn_cell", "attention_step", "softmax_step"):
            self.assertLen({groups.grouped.group_graph.layers[g] for g in steps[kind]}, 1, kind)

    def test_multiplicative_attention_is_one_group_per_step(self):
        groups = Groups(models.attention_decoder("luong"))
        self.check_steps(groups, ["query", "scores", "align", "weighted_sum", "context"])
        self.assertEqual(groups.kinds.count("attention_step"), STEPS)

    def test_additive_attention_is_one_group_per_step(self):
        groups = Groups(models.attention_decoder("bahdanau"))
        self.check_steps(groups, ["query", "Tanh", "align", "context"])
        self.assertEqual(groups.kinds.count("attention_step"), STEPS)
        self.assertIn(groups.kind_of("decoder/keys_of_memory"), ("layer", "branch"))

    @parameterized.parameters("luong", "bahdanau")
    def test_encoder_has_cells_and_one_group_of_lookups(self, kind):
        groups = Groups(models.attention_decoder(kind))
        self.assertEqual(groups.kinds.count("rnn_cell"), 2 * STEPS)
        lookups = [name for name in groups.group if name.endswith("embedding_lookup")]
        self.assertLen(lookups, 2 * STEPS)
        self.assertEqual(groups.kind_of("embedding", *lookups), "embedding_lookup")
        self.assertEqual(groups.kinds.count("embedding_lookup"), 1)

    def test_self_attention_includes_the_weighted_sum(self):
        with parts.new_graph() as graph:
            x, y, feeds = parts.inputs([4, 3, 8], 5, examples=4)
            flat = tf.reshape(x, [12, 8])
            projected = []
            for name in ("query", "key", "value"):
                with tf1.variable_scope(name):
                    weights = parts.weight_variable("weights", [8, 8], use_resource=True)
                    projected.append(tf.reshape(tf.matmul(flat, weights), [4, 3, 8]))
            query, key, value = projected
            scores = tf.matmul(query, key, transpose_b=True, name="scores")
            mixed = tf.matmul(tf.nn.softmax(scores), value, name="mixed")
            pooled = tf.reduce_mean(mixed, axis=1)
            loss = parts.cross_entropy(parts.dense(pooled, 5, "logits"), y)
            groups = Groups(parts.training_graph(graph, loss, "adam", feeds))
        self.assertEqual(groups.kind_of("scores", "Softmax", "mixed"), "attention_step")
        products = {
            groups.group_of(f"{n}/MatMul", f"{n}/weights") for n in ("query", "key", "value")
        }
        self.assertLen(products | {groups.group_of("scores")}, 4)


class ConvolutionalTest(tf.test.TestCase, parameterized.TestCase):
    def test_each_branch_is_a_group_with_gradients_and_weights(self):
        groups = Groups(models.inception_blocks())
        branches = set()
        for block, (branch, layers) in itertools.product(range(2), enumerate((1, 2, 3, 1))):
            scope = f"block_{block}/branch_{branch}/"
            names = [
                f"{prefix}{scope}layer_{layer}/{name}"
                for layer in range(layers)
                for prefix, name in (
                    ("", "Conv2D"),
                    ("", "weights"),
                    ("", "FusedBatchNormV3"),
                    ("", "Relu"),
                    ("gradients/", "Conv2D_grad/Conv2DBackpropFilter"),
                    ("gradients/", "FusedBatchNormV3_grad/FusedBatchNormGradV3"),
                )
            ]
            self.assertEqual(groups.kind_of(*names), "branch", scope)
            branches.add(groups.group_of(*names))
        self.assertLen(branches, 8)
        self.assertEqual(groups.kinds.count("branch"), 8)
        # Pooling belongs to its branch if the inception block reads from a join.
        self.assertEqual(
            groups.group_of("branch_3/pool/MaxPool2d_1"),
            groups.group_of("block_1/branch_3/layer_0/Conv2D"),
        )
        self.assertEqual(groups.kind_of("stem/Conv2D", "stem/Relu"), "layer")

    def test_layers_follow_the_blocks(self):
        groups = Groups(models.inception_blocks())
        stem, first, second, end = (
            {groups.layer_of(f"{name}") for name in names}
            for names in (
                ["stem/Conv2D"],
                [f"block_0/branch_{i}/layer_0/Conv2D" for i in range(4)],
                [f"block_1/branch_{i}/layer_0/Conv2D" for i in range(4)],
                ["logits/MatMul"],
            )
        )
        self.assertLess(max(stem), min(first))
        self.assertLess(max(first), min(second))
        self.assertLess(max(second), min(end))

    def test_residual_blocks_stay_separate(self):
        groups = Groups(graphs.residual_convnet())
        convolutions = [f"block_{b}/{n}/Conv2D" for b in range(2) for n in ("first", "second")]
        for name in convolutions:
            groups.group_of(name, f"gradients/{name}_grad/Conv2DBackpropFilter")
        blocks = [{groups.group_of(name) for name in convolutions[i : i + 2]} for i in (0, 2)]
        self.assertEmpty(blocks[0] & blocks[1])
        self.assertNotIn(groups.group_of("stem/Conv2D"), blocks[0] | blocks[1])

    def test_residual_stream_does_not_join_layers(self):
        groups = Groups(models.mlp_of_residuals(layers=4))
        products = {
            groups.group_of(name, f"gradients/{name}_grad/MatMul_1")
            for name in (f"layer_{i}/{n}" for i in range(4) for n in ("expand", "shrink"))
        }
        self.assertLen(products, 8)
        for layer in range(4):
            groups.group_of(f"layer_{layer}/stream", f"layer_{layer}/shrink")

    def test_chain_stays_one_group_per_layer(self):
        groups = Groups(models.plain_convnet(layers=4))
        found = [
            groups.group_of(
                f"layer_{i}/Conv2D",
                f"layer_{i}/Relu",
                f"layer_{i}/weights",
                f"gradients/layer_{i}/Conv2D_grad/Conv2DBackpropFilter",
            )
            for i in range(4)
        ]
        self.assertLen(set(found), 4)
        self.assertEqual({groups.kinds[g] for g in found}, {"layer"})
        self.assertEqual([groups.grouped.group_graph.layers[g] for g in found], [0, 1, 2, 3])

    def test_independent_branches_are_separate(self):
        groups = Groups(graphs.two_branches(n=32, depth=4))
        first, second = (groups.under(f"chain_{i}") for i in range(2))
        self.assertEmpty(first & second)
        self.assertIn("branch", {groups.kinds[g] for g in first})

    @parameterized.parameters((1.0, 1), (0.25, 2), (0.13, 4))
    def test_splits_heavy_branches(self, share, parts_of_a_branch):
        made = graphs.two_branches(n=32, depth=4)
        graph = models.op_graph_of(made)
        colocation = find_colocation_groups(graph)
        grouping = seal_model_groups(graph, colocation, default_groups(graph, colocation), share)
        of_operation = grouping.expand_to_operations(colocation)
        found = [
            int(of_operation[graph.index[name]])
            for name in ("chain_0/MatMul", *(f"chain_0/MatMul_{i}" for i in (1, 2, 3)))
        ]
        self.assertLen(set(found), parts_of_a_branch)
        work = np.bincount(of_operation[of_operation >= 0], estimate_work(graph)[of_operation >= 0])
        if parts_of_a_branch > 1:
            self.assertLess(work[found].max(), (share + 0.05) * work.sum())

    @parameterized.parameters(0, -1, 1.5)
    def test_rejects_invalid_share(self, share):
        graph = models.op_graph_of(graphs.matmul_chain())
        colocation = find_colocation_groups(graph)
        grouping = default_groups(graph, colocation)
        with self.assertRaisesRegex(ValueError, "max_branch_work_share"):
            seal_model_groups(graph, colocation, grouping, share)


class ParametersTest(tf.test.TestCase):
    def test_regularizer_joins_its_variable(self):
        with parts.new_graph() as graph:
            x, y, feeds = parts.inputs([8, 6], 3)
            first = parts.weight_variable("first", [6, 8], use_resource=True)
            second = parts.weight_variable("second", [8, 3], use_resource=True)
            logits = tf.matmul(tf.nn.relu(tf.matmul(x, first, name="a")), second, name="b")
            decay = tf.nn.l2_loss(first, name="decay_first") + tf.nn.l2_loss(
                second, name="decay_second"
            )
            loss = tf.add(parts.cross_entropy(logits, y), 0.01 * decay, name="whole")
            made = parts.training_graph(graph, loss, "adam", feeds)
        groups = Groups(graphs.TestGraph(graph, ("train", "whole:0"), made.feeds))
        groups.group_of("first", "a", "decay_first", "first/Adam")
        groups.group_of("second", "b", "decay_second", "second/Adam")
        self.assertNotEqual(groups.group_of("first"), groups.group_of("second"))


class AnyGraphTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_joins_only_groups_with_the_same_legal_devices(self, name):
        graph = models.op_graph_of(graphs.share_graph(name))
        colocation = find_colocation_groups(graph)
        before = default_groups(graph, colocation)
        after = seal_model_groups(graph, colocation, before)
        placed = before.group >= 0
        self.assertAllEqual(after.group >= 0, placed)
        types_before = before.legal_types(colocation)
        types_after = after.legal_types(colocation)
        new_of: dict[int, set[int]] = collections.defaultdict(set)
        for old, new in zip(before.group[placed], after.group[placed], strict=True):
            new_of[int(old)].add(int(new))
            self.assertEqual(types_before[old], types_after[new])
            self.assertEqual(before.kinds[old] == PINNED, after.kinds[new] == PINNED)
        self.assertTrue(all(len(found) == 1 for found in new_of.values()))

    def test_graph_without_contractions_is_unchanged(self):
        with tf.Graph().as_default() as graph:
            tf.negative(tf.constant(1.0), name="end")
        op_graph = models.op_graph_of(graphs.TestGraph(graph, ("end:0",)))
        colocation = find_colocation_groups(op_graph)
        grouping = default_groups(op_graph, colocation)
        self.assertIs(seal_model_groups(op_graph, colocation, grouping), grouping)


if __name__ == "__main__":
    tf.test.main()
