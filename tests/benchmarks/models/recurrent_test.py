from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import recurrent

tf1 = tf.compat.v1


def run(graph, tensors):
    with tf1.Session(graph=graph) as session, graph.as_default():
        session.run(tf1.global_variables_initializer())
        return session.run(tensors)


class RecurrentTest(tf.test.TestCase, parameterized.TestCase):
    def test_every_step_has_the_rows_of_its_tokens(self):
        graph = tf.Graph()
        with graph.as_default():
            steps = recurrent.embed(tf.constant([[0, 2], [1, 1]]), 3, 4, "words")
            table = tf1.trainable_variables("words")[0]
        values, rows = run(graph, (steps, table))
        self.assertAllEqual(values, [rows[[0, 1]], rows[[2, 1]]])

    def test_backward_layer_is_the_forward_layer_on_the_reversed_sequence(self):
        graph = tf.Graph()
        with graph.as_default():
            tf1.set_random_seed(1)
            values = tf.unstack(tf.random.stateless_normal([3, 2, 5], [1, 2]))
            backward, end = recurrent.lstm_layer(values, 4, "layer", backward=True)
            with tf1.variable_scope(tf1.get_variable_scope(), reuse=True):
                forward, forward_end = recurrent.lstm_layer(values[::-1], 4, "layer")
        (a, a_end), (b, b_end) = run(graph, ((backward, end), (forward, forward_end)))
        self.assertAllClose(a, b[::-1])
        self.assertAllClose(a_end, b_end)
        # The last step that a backward layer runs is the first of the sequence.
        self.assertAllClose(a[0], a_end[1])

    def test_step_by_step_and_all_at_once_predict_the_same(self):
        graph = tf.Graph()
        with graph.as_default():
            tf1.set_random_seed(1)
            outputs = tf.unstack(tf.random.stateless_normal([3, 2, 5], [1, 2]))
            targets = tf.constant([[0, 1, 2], [3, 4, 5]])
            variables = recurrent.softmax_variables(5, 6)
            steps = recurrent.cross_entropies_by_step(outputs, targets, *variables)
            together = recurrent.cross_entropy_of_all_steps(outputs, targets, *variables)
        steps, together, (weights, bias), outputs = run(
            graph, (steps, together, variables, outputs)
        )
        self.assertAllClose(np.stack(steps, axis=1).ravel(), together)
        logits = outputs[1][0] @ weights + bias
        self.assertNear(steps[1][0], np.log(np.exp(logits).sum()) - logits[1], 1e-5)


if __name__ == "__main__":
    tf.test.main()
