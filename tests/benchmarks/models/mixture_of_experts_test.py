"""Tokens get the experts and places they should, and the whole model learns."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import decoder_only, mixture_of_experts
from benchmarks.models.mixture_of_experts import route
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SIZES = {"layers": 2, "units": 16, "heads": 2, "length": 8, "batch": 16, "vocabulary": 20}
SMALL = SIZES | {"experts": 3}


@functools.cache
def small_model() -> decoder_only.CausalLanguageModel:
    return mixture_of_experts.build(**SMALL, capacity_factor=0.5)


def routed_by_numpy(shares: np.ndarray, per_token: int, capacity: int) -> np.ndarray:
    """Places given out one after the other: all first choices, then all second ones."""
    batch, length, experts = shares.shape
    combine = np.zeros((batch, length, experts, capacity))
    for b in range(batch):
        taken = [0] * experts
        for rank in range(per_token):
            for t in range(length):
                choices = np.argsort(-shares[b, t], kind="stable")[:per_token]
                expert = choices[rank]
                weight = shares[b, t, expert]
                if per_token == 2:
                    weight /= shares[b, t, choices].sum()
                if taken[expert] < capacity:
                    combine[b, t, expert, taken[expert]] = weight
                taken[expert] += 1
    return combine


class RouteTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(per_token=[1, 2], capacity=[1, 2, 7])
    def test_places_are_those_given_out_one_after_the_other(self, per_token, capacity):
        shares = np.random.default_rng(0).dirichlet(np.ones(3), (4, 7)).astype(np.float32)
        with tf.Graph().as_default(), tf1.Session() as session:
            combine, _ = session.run(route(tf.constant(shares), per_token, capacity))
        self.assertAllClose(combine, routed_by_numpy(shares, per_token, capacity))
        # No place is given twice.
        self.assertAllLessEqual((combine > 0).sum(axis=1), 1)

    def test_loss_is_smallest_when_the_experts_are_wanted_equally(self):
        turns = np.arange(6) % 3
        equal = np.where(np.arange(3) == turns[:, np.newaxis], 0.4, 0.3)
        busy = np.where(np.arange(3) == 0, 0.4, 0.3) * np.ones((6, 1))
        with tf.Graph().as_default(), tf1.Session() as session:
            smallest, larger = (
                session.run(route(tf.constant(shares[np.newaxis], tf.float32), 1, 6)[1])
                for shares in (equal, busy)
            )
        self.assertNear(smallest, 0.01, 1e-6)
        # The one that all choose has a share of 0.4.
        self.assertNear(larger, 0.01 * 3 * 0.4, 1e-6)


class MixtureOfExpertsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((True, 1), (False, 2))
    def test_loss_falls(self, use_resource, experts_per_token):
        model = mixture_of_experts.build(
            **SMALL,
            experts_per_token=experts_per_token,
            use_resource=use_resource,
            learning_rate=0.01,
        )
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 40)
            ]
        # Before learning, all tokens are about equally likely; the experts add their loss.
        self.assertNear(values[0], np.log(SMALL["vocabulary"]) + 0.01, 0.05)
        self.assertLess(np.mean(values[-3:]), values[0] - 0.7, values)

    def test_equal_experts_are_one_feed_forward_layer(self):
        mixture = mixture_of_experts.build(**SMALL, experts_per_token=2, capacity_factor=3.0)
        plain = decoder_only.build(**SIZES)
        random = np.random.default_rng(0)
        with plain.graph.as_default():
            weights = {
                v.op.name: random.standard_normal(v.shape) / 4 for v in tf1.trainable_variables()
            }
        feeds = next(plain.feeds())
        logits = []
        for model in (plain, mixture):
            with model.graph.as_default(), plain_session(model.graph) as session:
                for variable in tf1.trainable_variables():
                    name = variable.op.name
                    for expert in range(SMALL["experts"]):
                        name = name.replace(f"/expert_{expert}/", "/")
                    value = weights.get(name)
                    if value is None:
                        self.assertEqual(name, "layer_1/router/kernel")
                        value = random.standard_normal(variable.shape)
                    variable.load(value.astype(np.float32), session)
                logits.append(session.run(model.logits, feeds))
        self.assertAllClose(*logits, 1e-4, 1e-4)

    def test_with_one_expert_per_token_a_later_token_changes_no_earlier_prediction(self):
        model = small_model()
        feeds = next(model.feeds())
        changed = feeds[model.tokens].copy()
        changed[:, 5] = (changed[:, 5] + 1) % SMALL["vocabulary"]
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            before, after = (
                session.run(model.logits, {model.tokens: tokens})
                for tokens in (feeds[model.tokens], changed)
            )
        same = np.isclose(before, after, atol=1e-6).all(axis=1)
        self.assertTrue(same.reshape(-1, SMALL["length"])[:, :5].all())
        self.assertFalse(same.reshape(-1, SMALL["length"])[:, 5].any())

    def test_second_blocks_have_experts_of_full_size_in_scopes_of_their_own(self):
        model = mixture_of_experts.build(layers=2)
        with model.graph.as_default():
            sizes = {v.op.name: v.shape.num_elements() for v in tf1.trainable_variables()}
        layer = 2 * 768 * 3072 + 3072 + 768
        for block in range(2):
            scopes = ["feed_forward"]
            if block % 2:
                scopes = [f"expert_{expert}/feed_forward" for expert in range(8)]
            for scope in scopes:
                prefix = f"layer_{block}/{scope}/"
                found = [n for name, n in sizes.items() if name.startswith(prefix)]
                self.assertEqual(sum(found), layer, prefix)
        attention = 4 * (768 * 768 + 768) + 4 * 768
        embeddings = (50257 + 512 + 2) * 768
        self.assertEqual(
            sum(sizes.values()),
            embeddings + 2 * attention + (1 + 8) * layer + 768 * 8,
        )

    def test_each_expert_is_a_group(self):
        model = small_model()
        graph = OpGraph.from_graph_def(
            model.graph.as_graph_def(), (model.train_op,), (model.tokens,)
        )
        grouped = group_operations(graph)
        groups = grouped.grouping.of_operations(grouped.colocation)
        of_expert = []
        for expert in range(SMALL["experts"]):
            scope = f"layer_1/expert_{expert}/feed_forward/"
            products = [f"{scope}{layer}/MatMul" for layer in ("inner", "output")]
            of_expert.append({int(groups[graph.index[name]]) for name in products})
        self.assertLen(set.union(*of_expert), SMALL["experts"], of_expert)

    @parameterized.parameters(
        ({"experts": 0}, "experts must be positive, not 0"),
        ({"capacity_factor": 0.0}, "capacity_factor must be positive, not 0.0"),
        ({"experts_per_token": 3}, "experts_per_token must be 1 or 2 .*, not 3"),
        ({"experts_per_token": 2, "experts": 1}, "at most the 1 experts, not 2"),
        ({"units": 0}, "units must be positive, not 0"),
    )
    def test_bad_settings_are_named(self, settings, message):
        with self.assertRaisesRegex(ValueError, message):
            mixture_of_experts.build(**SMALL | settings)


if __name__ == "__main__":
    tf.test.main()
