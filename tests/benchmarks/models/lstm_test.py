from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.models.lstm import lstm_step, lstm_variables

tf1 = tf.compat.v1


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class LstmTest(tf.test.TestCase):
    def test_step_is_that_of_an_lstm_whose_forget_gate_starts_open(self):
        random = np.random.default_rng(0)
        shapes = (2, 3), (2, 4), (2, 4), (7, 16), (16,)
        value, memory, hidden, kernel, bias = (random.standard_normal(s) for s in shapes)
        gates = value @ kernel[:3] + hidden @ kernel[3:] + bias
        entry, update, forget, output = (gates[:, 4 * i : 4 * i + 4] for i in range(4))
        memory_now = sigmoid(forget + 1) * memory + sigmoid(entry) * np.tanh(update)
        hidden_now = sigmoid(output) * np.tanh(memory_now)
        with tf.Graph().as_default(), tf1.Session() as session:
            constants = [tf.constant(v) for v in (value, memory, hidden, kernel, bias)]
            got = session.run(lstm_step(*constants))
        self.assertAllClose(got, (memory_now, hidden_now))

    def test_variables_have_the_widths_of_input_and_cell(self):
        with tf.Graph().as_default():
            kernel, bias = lstm_variables(input_units=3, units=4)
        self.assertEqual(kernel.shape, [7, 16])
        self.assertEqual(bias.shape, [16])


if __name__ == "__main__":
    tf.test.main()
