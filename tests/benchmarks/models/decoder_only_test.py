"""The decoder-only transformer is causal and of its published size."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.models import decoder_only
from tests.benchmarks.models.sessions import build_forward, plain_session, variable_sizes

LENGTH, VOCABULARY = 8, 20


class DecoderOnlyTest(tf.test.TestCase):
    def test_a_later_token_changes_no_earlier_prediction(self):
        sizes = {"layers": 2, "units": 16, "heads": 2, "length": LENGTH, "batch": 4}
        model = build_forward(decoder_only, **sizes, vocabulary=VOCABULARY)
        tokens = next(model.feeds())["tokens:0"]
        changed = tokens.copy()
        changed[1, 5] = (changed[1, 5] + 1) % VOCABULARY
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            before, after = (
                session.run("softmax/logits:0", {"tokens:0": each}) for each in (tokens, changed)
            )
        same = np.isclose(before, after, atol=1e-6).all(axis=1)
        self.assertAllEqual(np.flatnonzero(~same), LENGTH + np.array([5, 6, 7]))

    def test_full_size_has_the_parameters_of_the_smallest_gpt_2(self):
        sizes = variable_sizes(build_forward(decoder_only, length=1024))
        self.assertEqual(sum(sizes.values()), 124_439_808)


if __name__ == "__main__":
    tf.test.main()
