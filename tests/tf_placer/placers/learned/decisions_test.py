import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.decisions import (
    IMPOSSIBLE,
    DecisionSet,
    divergences,
    entropies,
    select_log_probs,
)


def _log_dists(rng, *shape):
    logits = rng.normal(size=shape)
    return (logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))).astype(np.float32)


def _decisions(num_dists, count=5, seed=0):
    rng = np.random.default_rng(seed)
    return DecisionSet(
        tf.constant(_log_dists(rng, num_dists, 7, 3)),
        tf.constant(rng.integers(3, size=(count, 7)), tf.int32),
        tf.constant(rng.integers(2, size=(num_dists, 7)), tf.float32),
    )


class ChosenLogProbsTest(tf.test.TestCase):
    def test_are_the_chosen_entries_and_zero_where_not_counted(self):
        for num_dists in (1, 5):
            decisions = _decisions(num_dists)
            log_dists, chosen, counted = (array.numpy() for array in decisions)
            expected = np.zeros([5, 7], np.float32)
            for row in range(5):
                for decision in range(7):
                    shared = row % num_dists
                    value = log_dists[shared, decision, chosen[row, decision]]
                    expected[row, decision] = value * counted[shared, decision]
            self.assertAllEqual(select_log_probs(decisions), expected)

    def test_gradient_equals_that_of_products_with_one_hot_rows(self):
        for num_dists in (1, 5):
            decisions = _decisions(num_dists)
            upstream = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
            gradients = []
            for one_hot in (False, True):
                with tf.GradientTape() as tape:
                    tape.watch(decisions.log_dists)
                    if one_hot:
                        rows = decisions.log_dists * tf.one_hot(decisions.chosen, 3)
                        values = tf.reduce_sum(rows, axis=2) * decisions.counted
                    else:
                        values = select_log_probs(decisions)
                    total = tf.reduce_sum(values * upstream)
                gradients.append(tape.gradient(total, decisions.log_dists))
            self.assertAllClose(*gradients, rtol=1e-6)

    def test_gradient_is_the_same_every_time(self):
        decisions = _decisions(1, count=64)
        upstream = tf.constant(np.random.default_rng(1).normal(size=(64, 7)), tf.float32)

        @tf.function
        def gradient():
            with tf.GradientTape() as tape:
                tape.watch(decisions.log_dists)
                total = tf.reduce_sum(select_log_probs(decisions) * upstream)
            return tape.gradient(total, decisions.log_dists)

        first = gradient()
        for _ in range(5):
            self.assertAllEqual(gradient(), first)


class EntropiesTest(tf.test.TestCase):
    def test_of_hand_worked_distributions(self):
        log_dists = np.log([[[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]]]).astype(np.float32)
        decisions = DecisionSet(
            tf.constant(log_dists), tf.zeros([2, 3], tf.int32), tf.constant([[1.0, 1.0, 0.0]])
        )
        expected = [[np.log(2), -0.25 * np.log(0.25) - 0.75 * np.log(0.75), 0]]
        self.assertAllClose(entropies(decisions), expected)

    def test_impossible_choices_add_nothing_to_it_or_to_its_gradient(self):
        logits = tf.constant([[[1.0, IMPOSSIBLE, 2.0]]])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(logits)
            decisions = DecisionSet(
                tf.nn.log_softmax(logits), tf.zeros([1, 1], tf.int32), tf.ones([1, 1])
            )
            entropy = entropies(decisions)
            divergence = divergences(tf.stop_gradient(decisions.log_dists), decisions)
        shares = np.exp([1, 2]) / np.exp([1, 2]).sum()
        self.assertAllClose(entropy, [[-(shares * np.log(shares)).sum()]])
        self.assertAllClose(divergence, [[0.0]])
        for value in (entropy, divergence):
            gradient = tape.gradient(value, logits)
            self.assertAllInSet(np.isfinite(gradient), [True])
            self.assertEqual(gradient[0, 0, 1], 0)


class GradientTest(tf.test.TestCase):
    def test_log_probabilities_and_entropies_give_it_one_term_each(self):
        # Two terms are added in either order with the same result, more are not.
        decisions = _decisions(1)

        @tf.function
        def gradient(log_dists):
            with tf.GradientTape() as tape:
                tape.watch(log_dists)
                current = decisions._replace(log_dists=log_dists)
                total = tf.reduce_sum(select_log_probs(current))
                total += tf.reduce_sum(entropies(current))
            return tape.gradient(total, log_dists)

        graph = gradient.get_concrete_function(decisions.log_dists).graph.as_graph_def()
        functions = (function.node_def for function in graph.library.function)
        sums = [
            node.attr["N"].i
            for nodes in (graph.node, *functions)
            for node in nodes
            if node.op == "AddN"
        ]
        self.assertLessEqual(max(sums), 2)

    def test_of_entropies_and_divergences_equals_that_of_the_plain_formulas(self):
        decisions, old = _decisions(1), _decisions(1, seed=1).log_dists
        upstream = tf.constant(np.random.default_rng(2).normal(size=(1, 7)), tf.float32)

        def plain_entropies(log_dists):
            return -tf.reduce_sum(tf.exp(log_dists) * log_dists, axis=2) * decisions.counted

        def plain_divergences(log_dists):
            rows = tf.exp(old) * (old - log_dists)
            return tf.reduce_sum(rows, axis=2) * decisions.counted

        for value, plain in (
            (entropies, plain_entropies),
            (lambda current: divergences(old, current), plain_divergences),
        ):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(decisions.log_dists)
                results = value(decisions), plain(decisions.log_dists)
                totals = [tf.reduce_sum(result * upstream) for result in results]
            self.assertAllClose(*results)
            self.assertAllClose(*(tape.gradient(total, decisions.log_dists) for total in totals))


class DivergencesTest(tf.test.TestCase):
    def test_of_a_hand_worked_pair(self):
        old = np.log([[[0.5, 0.5]]]).astype(np.float32)
        new = np.log([[[0.25, 0.75]]]).astype(np.float32)
        for counted in (0.0, 1.0):
            decisions = DecisionSet(
                tf.constant(new), tf.zeros([1, 1], tf.int32), tf.constant([[counted]])
            )
            expected = 0.5 * np.log(2) + 0.5 * np.log(2 / 3)
            self.assertAllClose(divergences(tf.constant(old), decisions), [[counted * expected]])


if __name__ == "__main__":
    tf.test.main()
