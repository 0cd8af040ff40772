"""The wide and deep recommender updates rows of its tables, and learns who clicks."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import wide_and_deep
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1
ROWS = 64


def build_small(**settings):
    return wide_and_deep.build(ROWS, embedding_units=8, hidden_units=(16, 8), **settings)


class WideAndDeepTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_only_rows_of_the_batch_are_updated(self, use_resource):
        model = build_small(batch=16, use_resource=use_resource)
        feeds = next(model.feeds())
        with model.graph.as_default(), plain_session(model.graph) as session:
            variables = {v.op.name: v for v in tf1.trainable_variables()}
            session.run(model.initializer)
            before = session.run(variables)
            session.run(model.train_op, feeds)
            after = session.run(variables)
        sizes = wide_and_deep.table_rows(ROWS)
        for feature, rows in sizes.items():
            names = {f"wide/{feature}", f"embedding_{feature}/weights"} & variables.keys()
            self.assertLen(names, 1 if "_x_" in feature else 2)
            for name in names:
                self.assertLen(before[name], rows)
                changed = np.flatnonzero((before[name] != after[name]).reshape(rows, -1).any(1))
                self.assertContainsSubset(changed, feeds[f"{feature}:0"])
                self.assertNotEmpty(changed)

    def test_the_parts_have_the_optimizers_of_the_paper_and_one_step(self):
        model = build_small(batch=16)
        with model.graph.as_default(), plain_session(model.graph) as session:
            # FTRL has two slots per variable, and Adagrad one.
            slots = [v.op.name for v in tf1.global_variables()]
            wide = sum(name.startswith("wide/user_x_item") for name in slots)
            deep = sum(name.startswith("embedding_item/") for name in slots)
            self.assertEqual((wide, deep), (3, 2))
            session.run(model.initializer)
            session.run(model.graph.get_collection(tf1.GraphKeys.TRAIN_OP), next(model.feeds()))
            self.assertEqual(session.run(tf1.train.get_global_step()), 1)

    def test_it_learns(self):
        model = build_small(batch=256, learning_rate=0.2)
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            losses = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds, _ in zip(model.feeds(), range(60), strict=False)
            ]
        self.assertAllClose(losses[0], np.log(2), atol=0.15)
        self.assertLess(np.mean(losses[-5:]), losses[0] - 0.1)

    def test_full_size_is_that_of_the_thread_and_never_allocated(self):
        model = wide_and_deep.build()
        parts = {"wide": 0, "embedding": 0}
        for v in model.graph.get_collection("variables"):
            for part in parts:
                if v.op.name.startswith(part):
                    parts[part] += v.shape.num_elements() * v.dtype.size
        self.assertBetween(parts["embedding"], 11.0e9, 11.5e9)
        self.assertBetween(parts["wide"], 0.9e9, 1.1e9)


if __name__ == "__main__":
    tf.test.main()
