"""A word-level LSTM language model, as the plain graph code of a TF1 training script.

References:
    Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014 (the unrolled,
    truncated model that device placement papers call RNNLM).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.models.recurrent import (
    cross_entropies_by_step,
    cross_entropy_of_all_steps,
    embed,
    lstm_layer,
    softmax_variables,
)
from benchmarks.models.training import make_optimizer, train

tf1 = tf.compat.v1

__all__ = ["LanguageModel", "build"]

_INIT_SCALE = 0.05
_GRAPH_SEED = 1


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        tokens: the placeholder, int32 [batch, steps + 1]: the inputs, and shifted by one, the
            targets.
        loss: cross entropy per token in nats, float32 [].
        train_op: the operation that updates the variables and the global step.
        initializer: the operation that initialises all variables.
        batch: sequences per step.
        steps: unrolled length.
        vocabulary: number of tokens.
    """

    graph: tf.Graph
    tokens: str
    loss: str
    train_op: str
    initializer: str
    batch: int
    steps: int
    vocabulary: int

    def batches(self, seed: int = 0) -> Iterator[np.ndarray]:
        """Endless text of a made-up language that can be learnt.

        Nine times of ten a token is followed by its one fixed successor, otherwise by a token drawn
        from Zipf's law, so both frequencies and order can be learnt.

        Args:
            seed: of the text; the language itself is always the same.

        Yields:
            int32 [batch, steps + 1], values for `tokens`.
        """
        successors = np.random.default_rng(0).permutation(self.vocabulary)
        frequencies = 1.0 / np.arange(1, self.vocabulary + 1)
        frequencies /= frequencies.sum()
        random = np.random.default_rng(seed)
        shape = (self.batch, self.steps + 1)
        while True:
            drawn = random.choice(self.vocabulary, shape, p=frequencies)
            jumps = random.random(shape) < 0.1
            tokens = np.empty(shape, np.int32)
            tokens[:, 0] = drawn[:, 0]
            for step in range(1, self.steps + 1):
                follows = successors[tokens[:, step - 1]]
                tokens[:, step] = np.where(jumps[:, step], drawn[:, step], follows)
            yield tokens

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches, as what to feed to a step."""
        for tokens in self.batches(seed):
            yield {self.tokens: tokens}


def build(
    layers: int = 2,
    units: int = 512,
    steps: int = 10,
    batch: int = 64,
    vocabulary: int = 5000,
    optimizer: str = "adam",
    use_resource: bool = True,
    learning_rate: float = 1e-3,
    softmax: str = "batched",
    clip_norm: float | None = None,
) -> LanguageModel:
    """Builds the model with its gradients and updates in a graph of its own.

    Args:
        layers: stacked LSTM layers.
        units: width of the embedding and of every layer.
        steps: unrolled length, in tokens.
        batch: sequences per step.
        vocabulary: number of tokens.
        optimizer: "adam", "momentum", "rmsprop" or "sgd".
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
        softmax: "batched", one softmax layer for the outputs of all steps, or "per_step", one after
            each step, as in the models of device placement papers.
        clip_norm: the largest norm of all gradients together; no limit if None.

    Returns:
        The graph and its names.

    Raises:
        ValueError: the optimizer or the softmax is not one of these, or the norm is not positive.
    """
    if softmax not in ("batched", "per_step"):
        raise ValueError(f"softmax must be batched or per_step, not {softmax!r}")
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.random_uniform_initializer(-_INIT_SCALE, _INIT_SCALE),
            use_resource=use_resource,
        ):
            tokens = tf1.placeholder(tf.int32, [batch, steps + 1], name="tokens")
            inputs, targets = tokens[:, :-1], tokens[:, 1:]
            outputs = embed(inputs, vocabulary, units, "embedding")
            for layer in range(layers):
                outputs, _ = lstm_layer(outputs, units, f"layer_{layer}")
            loss = _loss(outputs, targets, vocabulary, softmax)
            train_op = train(loss, make_optimizer(optimizer, learning_rate), clip_norm)
        initializer = tf1.global_variables_initializer()
    return LanguageModel(
        graph, tokens.name, loss.name, train_op.name, initializer.name, batch, steps, vocabulary
    )


def _loss(outputs: list[tf.Tensor], targets: tf.Tensor, vocabulary: int, softmax: str) -> tf.Tensor:
    """Computes the mean cross entropy of the next token, for all steps at once or one by one."""
    with tf1.variable_scope("softmax"):
        variables = softmax_variables(int(outputs[0].shape[1]), vocabulary)
        if softmax == "batched":
            cross_entropy = cross_entropy_of_all_steps(outputs, targets, *variables)
        else:
            cross_entropy = tf.stack(cross_entropies_by_step(outputs, targets, *variables))
    return tf.reduce_mean(cross_entropy, name="loss")
