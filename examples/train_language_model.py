"""A training script of the TF1 kind, made faster with one added line.

The script is typical: variables, a fed input, an optimizer, summaries, checkpoints and a
MonitoredTrainingSession. The added line is marked.

On a computer with GPUs run it as it is. To see it work on two CPU cores, start two worker processes
and use them:

    python -m tf_placer serve local:2 --port 2222 -- \
        python -m examples.train_language_model --master grpc://localhost:2222

Checkpoints of runs with and without the line are interchangeable.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_placer

tf1 = tf.compat.v1

_MASTER = flags.DEFINE_string("master", "", "TensorFlow server to train on; '' for this process.")
_MODEL_DIR = flags.DEFINE_string("model_dir", None, "Directory of checkpoints and summaries.")
_STEPS = flags.DEFINE_integer("steps", 100, "Global step to stop at.")
_UNITS = flags.DEFINE_integer("units", 512, "Units of an LSTM layer.")
_UNROLL = flags.DEFINE_integer("unroll", 10, "Unrolled length.")
_BATCH = flags.DEFINE_integer("batch", 64, "Sequences per step.")
_VOCABULARY = flags.DEFINE_integer("vocabulary", 5000, "Number of words.")
_PLACE = flags.DEFINE_boolean("place", True, "Whether to look for a faster placement first.")
_SEARCH_SECS = flags.DEFINE_float("search_secs", 300.0, "Time limit of the search in seconds.")
_SEARCH_TRIALS = flags.DEFINE_integer("search_trials", 60, "Maximum number of placements to try.")

_LAYERS = 2


def _model(tokens: tf.Tensor) -> tf.Tensor:
    """Computes the mean cross entropy of the next word under a two-layer LSTM."""
    units, vocabulary = _UNITS.value, _VOCABULARY.value
    embedding = tf1.get_variable("embedding", [vocabulary, units])
    inputs = tf.unstack(tf.nn.embedding_lookup(embedding, tokens[:, :-1]), axis=1)
    for layer in range(_LAYERS):
        with tf1.variable_scope(f"layer_{layer}"):
            kernel = tf1.get_variable("kernel", [2 * units, 4 * units])
            bias = tf1.get_variable("bias", [4 * units], initializer=tf1.zeros_initializer())
            cell = hidden = tf.zeros([_BATCH.value, units])
            outputs = []
            for word in inputs:
                gates = tf.matmul(tf.concat([word, hidden], 1), kernel) + bias
                i, j, f, o = tf.split(gates, 4, 1)
                cell = cell * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
                hidden = tf.tanh(cell) * tf.sigmoid(o)
                outputs.append(hidden)
            inputs = outputs
    softmax = tf1.get_variable("softmax", [units, vocabulary])
    losses = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tokens[:, t + 1], logits=tf.matmul(output, softmax)
        )
        for t, output in enumerate(inputs)
    ]
    return tf.reduce_mean(tf.stack(losses))


def _next_batch(random: np.random.Generator) -> np.ndarray:
    """Makes sequences of words, each of which is the previous one plus one or two."""
    steps = random.integers(1, 3, [_BATCH.value, _UNROLL.value + 1])
    return np.cumsum(steps, axis=1, dtype=np.int32) % _VOCABULARY.value


def main(_: list[str]) -> None:
    """Trains."""
    tf1.disable_v2_behavior()
    random = np.random.default_rng(0)
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(1)
        tokens = tf1.placeholder(tf.int32, [_BATCH.value, _UNROLL.value + 1], name="tokens")
        loss = _model(tokens)
        global_step = tf1.train.get_or_create_global_step()
        optimizer = tf1.train.AdamOptimizer(1e-3)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 5.0)
        train = optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step)
        tf1.summary.scalar("loss", loss)
        if _PLACE.value:
            # The added line:
            result = tf_placer.optimize(
                graph,
                train,
                machine=_MASTER.value or None,
                max_trials=_SEARCH_TRIALS.value,
                max_secs=_SEARCH_SECS.value,
            )
            print(result.table(), result.reason, sep="\n")
        with tf1.train.MonitoredTrainingSession(
            master=_MASTER.value,
            checkpoint_dir=_MODEL_DIR.value,
            hooks=[tf1.train.StopAtStepHook(last_step=_STEPS.value)],
            save_summaries_steps=10,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                _, value = session.run([train, loss], {tokens: _next_batch(random)})
        print(f"step {_STEPS.value}: loss {value:.4f}")


if __name__ == "__main__":
    app.run(main)
