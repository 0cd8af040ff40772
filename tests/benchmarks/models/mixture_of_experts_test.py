"""Tokens get the experts and places they should, and experts are feed-forward layers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import decoder_only, mixture_of_experts
from benchmarks.models.mixture_of_experts import route
from tests.benchmarks.models.sessions import build_forward, plain_session

tf1 = tf.compat.v1

SIZES = {"layers": 2, "units": 16, "heads": 2, "length": 8, "batch": 4, "vocabulary": 20}
EXPERTS = 3


def route_by_numpy(shares: np.ndarray, per_token: int, capacity: int) -> np.ndarray:
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
        self.assertAllClose(combine, route_by_numpy(shares, per_token, capacity))
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


class MixtureOfExpertsTest(tf.test.TestCase):
    def test_equal_experts_are_one_feed_forward_layer(self):
        plain = build_forward(decoder_only, **SIZES)
        # The module builds by way of the other one.
        mixture = mixture_of_experts.build(
            **SIZES, experts=EXPERTS, experts_per_token=2, capacity_factor=3.0
        )
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
                    for expert in range(EXPERTS):
                        name = name.replace(f"/expert_{expert}/", "/")
                    value = weights.get(name)
                    if value is None:
                        self.assertEqual(name, "layer_1/router/kernel")
                        value = random.standard_normal(variable.shape)
                    variable.load(value.astype(np.float32), session)
                logits.append(session.run("softmax/logits:0", feeds))
        self.assertAllClose(*logits, 1e-4, 1e-4)


if __name__ == "__main__":
    tf.test.main()
