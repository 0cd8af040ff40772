"""Google's translation model, as the plain graph code of a TF1 training script.

The lowest layer of the encoder reads in both directions. From the third layer on, what a layer
reads is added to what it says. The lowest layer of the decoder asks the attention, and all its
layers read the answer in the next step.

There is no dropout, and all sentences are as long as the graph is unrolled. The scores of the
attention have no weights for their norm.

References:
    Wu et al.: Google's Neural Machine Translation System: Bridging the Gap between Human and
    Machine Translation, 2016, section 3.
"""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models.attention import AdditiveAttention
from benchmarks.models.lstm import lstm_step, lstm_variables
from benchmarks.models.recurrent import (
    cross_entropy_of_all_steps,
    embed,
    lstm_layer,
    softmax_variables,
)
from benchmarks.models.training import make_optimizer, train
from benchmarks.models.translation_model import TranslationModel, check_sizes

tf1 = tf.compat.v1

__all__ = ["build"]

_INIT_SCALE = 0.1
_GRAPH_SEED = 1
_FIRST_RESIDUAL_LAYER = 2
_State = tuple[tf.Tensor, tf.Tensor]


def build(
    layers: int = 4,
    units: int = 256,
    source_steps: int = 50,
    target_steps: int = 50,
    batch: int = 256,
    source_vocabulary: int = 32000,
    target_vocabulary: int = 32000,
    optimizer: str = "sgd",
    use_resource: bool = True,
    learning_rate: float = 1.0,
    clip_norm: float | None = 5.0,
) -> TranslationModel:
    """Builds the model with its gradients and updates in a graph of its own.

    Args:
        layers: stacked LSTM layers of the encoder, of which the lowest has a cell for each
            direction, and of the decoder; at least two.
        units: width of the embeddings, of every cell and of the attention.
        source_steps: unrolled length of the encoder, in tokens.
        target_steps: unrolled length of the decoder, in tokens.
        batch: pairs of sentences per step.
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens, with the one that starts a sentence.
        optimizer: "adam", "momentum", "rmsprop" or "sgd".
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
        clip_norm: the largest norm of all gradients together; no limit if None.

    Returns:
        The graph and its names.

    Raises:
        ValueError: there is one layer only, a size is not positive, the target vocabulary has no
            token but the start, the optimizer is not one of these, or the norm is not positive.
    """
    if layers < 2:
        raise ValueError(f"layers must be at least 2, not {layers}")
    check_sizes(
        target_vocabulary,
        units=units,
        batch=batch,
        source_steps=source_steps,
        target_steps=target_steps,
        source_vocabulary=source_vocabulary,
    )
    update = make_optimizer(optimizer, learning_rate)
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.random_uniform_initializer(-_INIT_SCALE, _INIT_SCALE),
            use_resource=use_resource,
        ):
            source = tf1.placeholder(tf.int32, [batch, source_steps], name="source")
            target = tf1.placeholder(tf.int32, [batch, target_steps + 1], name="target")
            embedded = embed(source, source_vocabulary, units, "source_embedding")
            encoded, states = _encode(embedded, layers, units)
            embedded = embed(target[:, :-1], target_vocabulary, units, "target_embedding")
            decoded = _decode(embedded, encoded, states)
            with tf1.variable_scope("softmax"):
                cross_entropy = cross_entropy_of_all_steps(
                    decoded, target[:, 1:], *softmax_variables(units, target_vocabulary)
                )
            loss = tf.reduce_mean(cross_entropy, name="loss")
            train_op = train(loss, update, clip_norm)
        initializer = tf1.global_variables_initializer()
    return TranslationModel(
        graph,
        source.name,
        target.name,
        loss.name,
        train_op.name,
        initializer.name,
        batch,
        source_steps,
        target_steps,
        source_vocabulary,
        target_vocabulary,
    )


def _encode(values: list[tf.Tensor], layers: int, units: int) -> tuple[tf.Tensor, list[_State]]:
    """Runs the encoder.

    Returns:
        The top layer's outputs, float32 [batch, source_steps, units], and the state that each layer
        of the decoder starts with: that of the layer of the encoder, of the lowest the one that
        read backwards.
    """
    with tf1.variable_scope("encoder"):
        with tf1.variable_scope("layer_0"):
            forward, _ = lstm_layer(values, units, "forward")
            backward, state = lstm_layer(values, units, "backward", backward=True)
            values = [
                tf.concat(both, 1, name=f"both_{step}")
                for step, both in enumerate(zip(forward, backward, strict=True))
            ]
        states = [state]
        for layer in range(1, layers):
            outputs, state = lstm_layer(values, units, f"layer_{layer}")
            states.append(state)
            if layer >= _FIRST_RESIDUAL_LAYER:
                outputs = [
                    tf.add(*both, name=f"layer_{layer}/residual_{step}")
                    for step, both in enumerate(zip(outputs, values, strict=True))
                ]
            values = outputs
        return tf.stack(values, axis=1, name="outputs"), states


def _decode(values: list[tf.Tensor], encoded: tf.Tensor, states: list[_State]) -> list[tf.Tensor]:
    """Computes what each step says before the softmax, float32 [batch, units] each."""
    units = int(values[0].shape[1])
    with tf1.variable_scope("decoder"):
        cells = []
        for layer in range(len(states)):
            with tf1.variable_scope(f"layer_{layer}"):
                cells.append(lstm_variables(2 * units, units))
        with tf1.variable_scope("attention"):
            attention = AdditiveAttention(encoded)
            context = tf.zeros_like(values[0], name="nothing_asked")
    said = []
    for step, value in enumerate(values):
        for layer, (kernel, bias) in enumerate(cells):
            with tf1.name_scope(f"decoder/layer_{layer}/step_{step}/"):
                read = tf.concat([value, context], 1)
                states[layer] = lstm_step(read, *states[layer], kernel, bias)
                hidden = states[layer][1]
                value = hidden + value if layer >= _FIRST_RESIDUAL_LAYER else hidden
        said.append(value)
        # Nobody reads an answer after the last step.
        if step + 1 < len(values):
            with tf1.name_scope(f"decoder/attention/step_{step}/"):
                context = attention.context(states[0][1])
    return said
