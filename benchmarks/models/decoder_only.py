"""A decoder-only transformer that predicts the next token, as plain TF1 graph code.

References:
    Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask
    Learners, 2019 (GPT-2; normalisation before each layer, tied embeddings).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from benchmarks.models.adam_weight_decay import AdamWeightDecay
from benchmarks.models.made_up_text import made_up_text
from benchmarks.models.training import train
from benchmarks.models.transformer import (
    INITIALIZER_STDDEV,
    attention,
    causal_bias,
    feed_forward,
    layer_norm,
)

tf1 = tf.compat.v1

__all__ = ["CausalLanguageModel", "build", "build_causal"]

_GRAPH_SEED = 1
_CLIP_NORM = 1.0
_INNER_FACTOR = 4


@dataclasses.dataclass(frozen=True)
class CausalLanguageModel:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        tokens: the placeholder, int32 [batch, length + 1]: the inputs, and shifted by one, the
            targets.
        logits: what is predicted, float32 [batch * length, vocabulary].
        loss: what is minimised, in nats per token, float32 [].
        train_op: the operation that updates the variables and the global step.
        initializer: the operation that initialises all variables.
        batch: sequences per step.
        length: tokens of a sequence.
        vocabulary: number of tokens.
    """

    graph: tf.Graph
    tokens: str
    logits: str
    loss: str
    train_op: str
    initializer: str
    batch: int
    length: int
    vocabulary: int

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Endless made-up text, as what to feed to a step.

        Args:
            seed: of the text; the language itself is always the same.
        """
        random = np.random.default_rng(seed)
        while True:
            yield {
                self.tokens: made_up_text(self.vocabulary, (self.batch, self.length + 1), random)
            }


def build(
    layers: int = 12,
    units: int = 768,
    heads: int = 12,
    length: int = 512,
    batch: int = 8,
    vocabulary: int = 50257,
    use_resource: bool = True,
    learning_rate: float = 3e-4,
) -> CausalLanguageModel:
    """Builds the model with its gradients and updates in a graph of its own.

    There is no dropout, so that a step computes the same whenever and wherever it runs. Trained by
    Adam with weight decay, with gradients of norm 1 at most.

    Args:
        layers: blocks of attention and feed-forward layer.
        units: width of the embeddings and of every block; feed-forward layers have 4 times as many
            inside.
        heads: attention heads, a divisor of the units.
        length: tokens of a sequence.
        batch: sequences per step.
        vocabulary: number of tokens.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.

    Returns:
        The graph and its names.

    Raises:
        ValueError: a size is not positive, or the units do not divide among the heads.
    """

    def dense_layer(value: tf.Tensor, _: int) -> tuple[tf.Tensor, None]:
        return feed_forward(value, _INNER_FACTOR * units), None

    return build_causal(
        dense_layer,
        layers=layers,
        units=units,
        heads=heads,
        length=length,
        batch=batch,
        vocabulary=vocabulary,
        use_resource=use_resource,
        learning_rate=learning_rate,
    )


def build_causal(
    second_layer: Callable[[tf.Tensor, int], tuple[tf.Tensor, tf.Tensor | None]],
    *,
    layers: int,
    units: int,
    heads: int,
    length: int,
    batch: int,
    vocabulary: int,
    use_resource: bool,
    learning_rate: float,
) -> CausalLanguageModel:
    """Builds a model whose blocks have layers of any kind after the attention.

    Args:
        second_layer: makes of normalised float32 [batch * length, units] and the number of the
            block what is added to its value, of the same shape, and a loss of its own, float32 []
            or None.
        layers: how many blocks.
        units: width of the embeddings and of every block.
        heads: attention heads, a divisor of the units.
        length: tokens of a sequence.
        batch: sequences per step.
        vocabulary: number of tokens.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.

    Returns:
        The graph and its names.

    Raises:
        ValueError: a size is not positive, or the units do not divide among the heads.
    """
    sizes = {"layers": layers, "units": units, "heads": heads, "length": length, "batch": batch}
    for name, size in (sizes | {"vocabulary": vocabulary}).items():
        if size < 1:
            raise ValueError(f"{name} must be positive, not {size}")
    if units % heads:
        raise ValueError(f"units must be a multiple of the {heads} heads, not {units}")
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.truncated_normal_initializer(stddev=INITIALIZER_STDDEV),
            use_resource=use_resource,
        ):
            tokens = tf1.placeholder(tf.int32, [batch, length + 1], name="tokens")
            value, embedding = _embed(tokens[:, :-1], vocabulary, units)
            bias = causal_bias(length)
            losses = []
            for layer in range(layers):
                with tf1.variable_scope(f"layer_{layer}"):
                    value += attention(layer_norm(value, "attention_norm"), length, heads, bias)
                    added, own_loss = second_layer(layer_norm(value, "feed_forward_norm"), layer)
                    value += added
                    if own_loss is not None:
                        losses.append(own_loss)
            with tf1.variable_scope("softmax"):
                value = layer_norm(value)
                logits = tf.matmul(value, embedding, transpose_b=True, name="logits")
                cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=tf.reshape(tokens[:, 1:], [-1]), logits=logits
                )
                loss = tf.reduce_mean(cross_entropy, name="loss")
            if losses:
                loss = tf.add_n([loss, *losses], name="total_loss")
            train_op = train(loss, AdamWeightDecay(learning_rate), _CLIP_NORM)
        initializer = tf1.global_variables_initializer()
    return CausalLanguageModel(
        graph,
        tokens.name,
        logits.name,
        loss.name,
        train_op.name,
        initializer.name,
        batch,
        length,
        vocabulary,
    )


def _embed(tokens: tf.Tensor, vocabulary: int, units: int) -> tuple[tf.Tensor, tf.Variable]:
    """Tokens and positions as float32 [batch * length, units], and the table of the tokens."""
    with tf1.variable_scope("embedding"):
        length = tokens.shape[1]
        table = tf1.get_variable("tokens", [vocabulary, units])
        positions = tf1.get_variable("positions", [length, units])
        embedded = tf.nn.embedding_lookup(table, tokens) + positions
        return tf.reshape(embedded, [-1, units]), table
