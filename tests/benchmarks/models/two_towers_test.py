"""The recommender learns, and its large tables are described and never made with the graph."""

from __future__ import annotations

import collections
import functools
import itertools
import resource

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import two_towers
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {"rows": 256, "embedding_units": 8, "hidden_units": (32, 16), "batch": 32}


@functools.cache
def small_model(use_resource: bool = True) -> two_towers.TwoTowers:
    return two_towers.build(**SMALL, use_resource=use_resource)


class TwoTowersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_loss_falls(self, use_resource):
        model = small_model(use_resource)
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 80)
            ]
        # What matches by taste is one of four; to tell nothing is one of 32.
        self.assertGreater(values[0], np.log(32) - 0.5)
        self.assertLess(np.mean(values[-5:]), np.log(32) - 1.0, values)

    @parameterized.parameters(True, False)
    def test_only_rows_of_the_batch_are_updated(self, use_resource):
        model = small_model(use_resource)
        feeds = next(model.feeds())
        with model.graph.as_default(), plain_session(model.graph) as session:
            tables = [v for v in tf1.trainable_variables() if v.op.name.startswith("embedding_")]
            session.run(model.initializer)
            before = session.run(tables)
            session.run(model.train_op, feeds)
            after = session.run(tables)
        self.assertLen(tables, 6)
        for table, old, new in zip(tables, before, after, strict=True):
            name = table.op.name.removeprefix("embedding_").removesuffix("/weights")
            changed = np.flatnonzero((old != new).any(axis=1))
            self.assertAllEqual(changed, np.unique(feeds[model.features[name]]))

    def test_full_size_is_too_large_for_a_gpu_and_fits_the_computer_and_is_never_allocated(self):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        model = two_towers.build()
        with model.graph.as_default():
            tables = [
                v for v in tf1.global_variables() if v.op.name.split("/")[0].startswith("embedding")
            ]
            table_bytes = sum(v.shape.num_elements() * v.dtype.size for v in tables)
        # Six tables and what Adagrad adds up for them.
        self.assertLen(tables, 12)
        self.assertEqual(table_bytes, 2 * 80_000_000 * 64 * 4)
        self.assertBetween(table_bytes, 40e9, 50e9)
        types = collections.Counter(op.type for op in model.graph.get_operations())
        self.assertEqual(types["ResourceSparseApplyAdagrad"], 6)
        self.assertLess(model.graph.as_graph_def().ByteSize(), 1 << 20)
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(kib, 1 << 20)

    def test_pairs_are_of_one_taste_and_within_the_tables(self):
        model = small_model()
        feeds = next(model.feeds())
        tastes = feeds[model.features["user_id"]] % 8
        self.assertGreater(len(np.unique(tastes)), 4)
        for name, placeholder in model.features.items():
            self.assertAllInRange(feeds[placeholder], 0, model.table_rows[name] - 1)
            self.assertAllEqual(feeds[placeholder] % 8 - tastes, np.zeros_like(feeds[placeholder]))
            self.assertEqual(
                feeds[placeholder].shape, model.graph.get_tensor_by_name(placeholder).shape
            )

    def test_training_operation_is_in_its_collection(self):
        model = small_model()
        self.assertEqual(
            model.graph.get_collection("train_op"),
            [model.graph.get_operation_by_name(model.train_op)],
        )

    def test_same_seed_gives_the_same_feeds_and_another_seed_others(self):
        model = small_model()
        name = model.features["watched"]
        first, again, other = (next(model.feeds(seed))[name] for seed in (0, 0, 1))
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, other)

    @parameterized.parameters(
        ({"rows": 31}, "rows must be at least 32, not 31"),
        ({"batch": 0}, "batch must be positive, not 0"),
        ({"embedding_units": 0}, "embedding_units must be positive, not 0"),
        ({"hidden_units": ()}, "hidden_units must be one or more positive widths"),
        ({"hidden_units": (8, 0)}, "hidden_units must be one or more positive widths"),
    )
    def test_bad_settings_are_named(self, settings, message):
        with self.assertRaisesRegex(ValueError, message):
            two_towers.build(**SMALL | settings)


if __name__ == "__main__":
    tf.test.main()
