from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import small
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1


class SmallTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (small.small_language_model, np.log(2000), 0.05),
        (small.small_translation, np.log(2000), 0.05),
        # Two classifiers that do not start at zero.
        (small.small_inception, 1.4 * np.log(10), 0.3),
    )
    def test_trains_from_knowing_nothing(self, build, first_loss, tolerance):
        model = build()
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            losses = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(), 2)
            ]
        self.assertNear(losses[0], first_loss, tolerance)
        self.assertAllInRange(losses, 0, 2 * first_loss)
        if build is small.small_inception:
            # All blocks are there, at another size of the images than in `inception_v3_test`.
            last = model.graph.get_tensor_by_name("mixed_7c/concat:0").shape
            self.assertEqual(last[3], 2048 * 0.5)
            self.assertGreaterEqual(last[1], 1)
            squeezed = model.graph.get_tensor_by_name("auxiliary/Squeeze:0").shape
            self.assertEqual(squeezed, [24, 768 // 2])


if __name__ == "__main__":
    tf.test.main()
