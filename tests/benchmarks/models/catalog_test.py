"""The models of the catalog are all there, learn, and are grouped by their layers."""

from __future__ import annotations

import collections
import importlib
import inspect

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import catalog
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests.benchmarks.models.sessions import plain_session, small_model

LATER = ["decoder_only", "mixture_of_experts", "nasnet_a", "two_towers", "wide_and_deep"]


class CatalogTest(tf.test.TestCase, parameterized.TestCase):
    def test_all_models_of_the_papers_are_there(self):
        papers = ["rnnlm_2", "rnnlm_4", "nmt_2", "nmt_4", "nmt_8", "gnmt_4", "gnmt_4_wide"]
        papers += ["rnnlm_large", "nmt_large", "inception_v3", "inception_v3_batch_1"]
        papers += ["inception_v3_towers", "inception_v3_async_towers"]
        papers += ["resnet_50", "resnet_101", "resnet_200", "bert_base"]
        self.assertEqual(list(catalog.MODELS), papers + LATER)
        for name, entry in catalog.MODELS.items():
            # The papers' models have the variables of their time.
            self.assertEqual(entry.settings.get("use_resource", True), name in LATER, name)
            module = importlib.import_module(f"benchmarks.models.{entry.module}")
            inspect.signature(module.build).bind(**entry.settings | entry.small)

    @parameterized.parameters(
        ("rnnlm_2", np.log(100), 0.05),
        ("nmt_2", np.log(100), 0.05),
        ("gnmt_4", np.log(100), 0.05),
        # Two classifiers that do not start at zero.
        ("inception_v3", 1.4 * np.log(10), 0.6),
        ("resnet_101", np.log(10), 0.6),
        ("resnet_200", np.log(10), 0.6),
        ("bert_base", np.log(100) + np.log(2), 0.1),
        ("decoder_only", np.log(100), 0.05),
        # The experts add their loss.
        ("mixture_of_experts", np.log(100) + 0.01, 0.05),
        ("nasnet_a", np.log(10), 0.6),
        # Vectors of random directions tell less than nothing.
        ("two_towers", np.log(32) + 3, 3.0),
        ("wide_and_deep", np.log(2), 0.2),
    )
    def test_a_model_starts_from_knowing_nothing_and_learns_a_batch(self, name, first, tolerance):
        model = small_model(name)
        feeds = next(model.feeds(seed=3))
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            losses = [session.run([model.loss, model.train_op], feeds)[0] for _ in range(12)]
        self.assertNear(losses[0], first, tolerance)
        self.assertLess(np.mean(losses[-3:]), losses[0], losses)
        train_op = model.graph.get_operation_by_name(model.train_op)
        self.assertEqual(model.graph.get_collection("train_op"), [train_op])

    @parameterized.parameters(
        ("rnnlm_2", {"rnn_cell": 2 * 6, "softmax_step": 6, "embedding_lookup": 1}),
        # Each step reads the output of the one before, so its attention mix counts as a cell, too.
        ("nmt_2", {"rnn_cell": 2 * 2 * 5 + 5, "attention_step": 5, "softmax_step": 5}),
        # Both directions of the lowest layer, the other layers, the layers of the decoder.
        ("gnmt_4", {"rnn_cell": 4 * 5 + 3 * 5, "attention_step": 5 - 1, "embedding_lookup": 2}),
        # Four of each block of 35 x 35 and of 17 x 17 pixels; the two convolutional ones of the two
        # halving blocks; six ends of those of 8 x 8, whose forks are layers.
        ("inception_v3", {"branch": 7 * 4 + 2 * 2 + 2 * 6, "softmax_step": 2}),
        ("decoder_only", {"attention_step": 2, "embedding_lookup": 1, "softmax_step": 1}),
    )
    def test_layers_and_steps_are_groups(self, name, kinds):
        model = small_model(name)
        feeds = tuple(next(model.feeds()))
        graph = OpGraph.from_graph_def(model.graph.as_graph_def(), (model.train_op,), feeds)
        found = collections.Counter(group_operations(graph).grouping.kinds)
        self.assertEqual({kind: found[kind] for kind in kinds}, kinds)


if __name__ == "__main__":
    tf.test.main()
