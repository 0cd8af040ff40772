"""A word-level LSTM language model, as the plain graph code of a TF1 training script.

References:
    Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014 (the unrolled,
    truncated model that device placement papers call RNNLM).
"""

from __future__ import annotations

from typing import Literal

import tensorflow as tf

from benchmarks.models.made_up_text import make_up_text
from benchmarks.models.recurrent import (
    cross_entropies_by_step,
    cross_entropy_of_all_steps,
    embed,
    lstm_layer,
    softmax_variables,
)
from benchmarks.models.training import model_graph, train, training_model
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["build"]

_INIT_SCALE = 0.05


def build(
    layers: int = 2,
    units: int = 512,
    steps: int = 10,
    batch: int = 64,
    vocabulary: int = 5000,
    use_resource: bool = True,
    learning_rate: float = 1e-3,
    softmax: Literal["batched", "per_step"] = "batched",
) -> TrainingModel:
    """Builds the model with its gradients and updates by Adam in a graph of its own.

    It is fed "tokens", int32 [batch, steps + 1]: the inputs, and shifted by one, the targets.

    Args:
        layers: stacked LSTM layers.
        units: width of the embedding and of every layer.
        steps: unrolled length, in tokens.
        batch: sequences per step.
        vocabulary: number of tokens.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
        softmax: "batched", one softmax layer for the outputs of all steps, or "per_step", one after
            each step, as in the models of device placement papers.
    """
    initializer = tf1.random_uniform_initializer(-_INIT_SCALE, _INIT_SCALE)
    with model_graph(initializer, use_resource=use_resource):
        tokens = tf1.placeholder(tf.int32, [batch, steps + 1], name="tokens")
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        outputs = embed(inputs, vocabulary, units, "embedding")
        for layer in range(layers):
            outputs, _ = lstm_layer(outputs, units, f"layer_{layer}")
        with tf1.variable_scope("softmax"):
            variables = softmax_variables(units, vocabulary)
            if softmax == "batched":
                cross_entropy = cross_entropy_of_all_steps(outputs, targets, *variables)
            else:
                cross_entropy = tf.stack(cross_entropies_by_step(outputs, targets, *variables))
        loss = tf.reduce_mean(cross_entropy, name="loss")
        return training_model(
            loss,
            train(loss, tf1.train.AdamOptimizer(learning_rate)),
            lambda random: {"tokens": make_up_text(vocabulary, (batch, steps + 1), random)},
        )
