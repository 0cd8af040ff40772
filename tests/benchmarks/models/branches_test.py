"""Tests of the branches of dense layers."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models import branches
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1


class BranchesTest(tf.test.TestCase):
    def test_the_loss_falls(self):
        model = branches.build(branches=2, layers=2, units=16, batch=8, learning_rate=0.5)
        feeds = model.feeds()
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            batch = next(feeds)
            first = session.run(model.loss, batch)
            for _ in range(20):
                session.run(model.train_op, batch)
            self.assertLess(session.run(model.loss, batch), first)

    def test_branches_share_nothing_but_the_loss(self):
        model = branches.build(branches=2, layers=2, units=4, batch=2)
        for operation in model.graph.get_operations():
            if operation.name.startswith("branch_0/layer"):
                for tensor in operation.inputs:
                    self.assertNotIn("branch_1", tensor.name)
        self.assertLen(model.inputs, 2)
        self.assertLen(branches.build(branches=1, units=4, batch=2).inputs, 1)

    def test_sizes_that_are_not_positive_are_refused(self):
        with self.assertRaisesRegex(ValueError, "layers must be positive, not 0"):
            branches.build(layers=0)


if __name__ == "__main__":
    tf.test.main()
