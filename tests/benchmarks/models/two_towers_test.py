"""The recommender updates rows of its large tables, which are never made with the graph."""

from __future__ import annotations

import resource

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import two_towers
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1


class TwoTowersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_only_rows_of_the_batch_are_updated(self, use_resource):
        rows = 256
        model = two_towers.build(
            rows, embedding_units=8, hidden_units=(32, 16), batch=32, use_resource=use_resource
        )
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
            self.assertAllEqual(changed, np.unique(feeds[f"{name}:0"]))
            self.assertLen(old, two_towers.table_rows(rows)[name])
            # Both sides of a pair are of one taste.
            self.assertAllEqual(
                (feeds[f"{name}:0"] - feeds["user_id:0"]) % 8, 0 * feeds[f"{name}:0"]
            )

    def test_full_size_is_too_large_for_a_gpu_and_fits_the_computer_and_is_never_allocated(self):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        model = two_towers.build()
        tables = [
            v
            for v in model.graph.get_collection("variables")
            if v.op.name.split("/")[0].startswith("embedding")
        ]
        table_bytes = sum(v.shape.num_elements() * v.dtype.size for v in tables)
        # Six tables and what Adagrad adds up for them.
        self.assertLen(tables, 12)
        self.assertEqual(table_bytes, 2 * 80_000_000 * 64 * 4)
        self.assertBetween(table_bytes, 40e9, 50e9)
        self.assertLess(model.graph.as_graph_def().ByteSize(), 1 << 20)
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(kib, 1 << 20)


if __name__ == "__main__":
    tf.test.main()
