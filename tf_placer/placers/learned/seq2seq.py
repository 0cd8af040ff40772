"""ColocRL's policy: a recurrent network reads the groups and writes a device for each of them.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.2 and figure 2.
    Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate, ICLR
    2015, for the attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.embedding import GroupFeatures

__all__ = ["Seq2SeqPolicy"]

# Below every real logit, yet finite: an impossible device adds 0 to an entropy instead of 0 * inf.
_IMPOSSIBLE = tf.float32.min / 2


class Seq2SeqPolicy(tf.keras.Model):
    """A distribution over placements, factorised group by group.

    A bidirectional LSTM encodes the groups once; an LSTM with additive attention over the encoded
    groups then chooses a device per group, in order, each choice fed back to the next one. Devices
    that are not legal for a group have probability zero.
    """

    def __init__(
        self,
        features: GroupFeatures,
        legal: np.ndarray,
        *,
        type_units: int = 64,
        hidden_units: int = 512,
        attention_units: int = 512,
        device_units: int = 64,
        feed_item: bool = False,
        seed: int = 0,
    ) -> None:
        """Makes the network with its initial weights.

        Args:
            features: what is known about the groups.
            legal: bool [num_groups, num_devices], true where a group may go; every row has one.
            type_units: size of the vector learned for each operation type.
            hidden_units: size of the decoder; each direction of the encoder has half of it.
            attention_units: size of the attention's hidden layer.
            device_units: size of the vector learned for each device.
            feed_item: whether the decoder also reads the encoder's output for the group it places.
            seed: of the initial weights.

        Raises:
            ValueError: `hidden_units` is odd.
        """
        super().__init__(name="seq2seq")
        if hidden_units % 2:
            raise ValueError(f"hidden_units must be even, not {hidden_units}")
        self.num_groups, self.num_devices = legal.shape
        self._feed_item = feed_item
        self._type_weights = tf.constant(features.type_weights, tf.float32)
        self._fixed_features = tf.constant(features.fixed, tf.float32)
        self._legal = tf.constant(legal)

        seeds = _seeds(seed)
        num_types = features.type_weights.shape[1]
        self._type_vectors = self.add_weight(
            name="type_vectors", shape=(num_types, type_units), initializer=_glorot(seeds)
        )
        # The last row is GO, the input of the first step.
        self._device_vectors = self.add_weight(
            name="device_vectors",
            shape=(self.num_devices + 1, device_units),
            initializer=_glorot(seeds),
        )
        item_units = type_units + features.fixed.shape[1]
        # Two layers instead of one in `Bidirectional`, which would give both the same weights.
        self._forward_encoder, self._backward_encoder = (
            tf.keras.layers.LSTM(
                hidden_units // 2,
                return_sequences=True,
                return_state=True,
                go_backwards=backwards,
                kernel_initializer=_glorot(seeds),
                recurrent_initializer=_orthogonal(seeds),
            )
            for backwards in (False, True)
        )
        self._forward_encoder.build((1, self.num_groups, item_units))
        self._backward_encoder.build((1, self.num_groups, item_units))

        self._keys = tf.keras.layers.Dense(attention_units, kernel_initializer=_glorot(seeds))
        self._keys.build((self.num_groups, hidden_units))
        self._query = tf.keras.layers.Dense(
            attention_units, use_bias=False, kernel_initializer=_glorot(seeds)
        )
        self._query.build((None, hidden_units))
        self._scorer = self.add_weight(
            name="scorer", shape=(attention_units, 1), initializer=_glorot(seeds)
        )
        self._decoder = tf.keras.layers.LSTMCell(
            hidden_units,
            kernel_initializer=_glorot(seeds),
            recurrent_initializer=_orthogonal(seeds),
        )
        self._decoder.build((None, device_units + (2 if feed_item else 1) * hidden_units))
        self._logits = tf.keras.layers.Dense(self.num_devices, kernel_initializer=_glorot(seeds))
        self._logits.build((None, hidden_units))
        self.built = True

    @tf.function(autograph=False)
    def sample(self, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Samples placements. Compiled once per `count`.

        Args:
            count: how many placements; a Python number.
            seed: int64 [2]; placement i depends on (seed[0], seed[1] + i) and the weights alone.

        Returns:
            The placements, int32 [count, num_groups], and their log-probabilities, float32
            [count].
        """

        def noise(row: tf.Tensor) -> tf.Tensor:
            uniform = tf.random.stateless_uniform(
                [self.num_groups, self.num_devices],
                tf.stack([seed[0], row]),
                minval=np.finfo(np.float32).tiny,
            )
            return -tf.math.log(-tf.math.log(uniform))

        rows = seed[1] + tf.range(count, dtype=tf.int64)
        gumbel = tf.map_fn(noise, rows, fn_output_signature=tf.float32)
        gumbel = tf.transpose(gumbel, [1, 0, 2])

        def choose(index: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
            # The largest sum of logit and Gumbel noise has the distribution of the softmax. The
            # mask comes last: no logits, however large, make an illegal device win.
            scores = tf.where(self._legal[index], logits + gumbel[index], -np.inf)
            return tf.argmax(scores, axis=1, output_type=tf.int32)

        placements, log_probs, _ = self._decode(count, choose)
        return placements, log_probs

    @tf.function(autograph=False)
    def log_prob(self, placements: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """How probable placements are. Compiled once per number of placements.

        Args:
            placements: int32 [count, num_groups], legal.

        Returns:
            Their log-probabilities, float32 [count], and for each placement the entropies of its
            groups' distributions given the choices before them, summed, float32 [count].
        """
        by_group = tf.transpose(placements)
        count = placements.shape[0]
        _, log_probs, entropies = self._decode(count, lambda index, logits: by_group[index])
        return log_probs, entropies

    def call(self, placements: tf.Tensor) -> tf.Tensor:
        """The log-probabilities of placements, see `log_prob`."""
        return self.log_prob(placements)[0]

    def _encode(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The encoded groups, float32 [num_groups, hidden], and the final state, [1, hidden]."""
        types = tf.matmul(self._type_weights, tf.convert_to_tensor(self._type_vectors))
        items = tf.concat([types, self._fixed_features], axis=1)[tf.newaxis]
        forward, forward_hidden, forward_cell = self._forward_encoder(items)
        backward, backward_hidden, backward_cell = self._backward_encoder(items)
        encoded = tf.concat([forward, tf.reverse(backward, axis=[1])], axis=2)[0]
        hidden = tf.concat([forward_hidden, backward_hidden], axis=1)
        cell = tf.concat([forward_cell, backward_cell], axis=1)
        return tf.ensure_shape(encoded, [self.num_groups, None]), hidden, cell

    def _decode(
        self, count: int, choose: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Runs the decoder over all groups.

        Args:
            count: how many placements to make side by side.
            choose: gives the devices int32 [count] of a group, from its number and its masked
                logits float32 [count, num_devices].

        Returns:
            The placements int32 [count, num_groups], their log-probabilities and their summed
            entropies, float32 [count].
        """
        encoded, hidden, cell = self._encode()
        keys = self._keys(encoded)
        scorer = tf.convert_to_tensor(self._scorer)
        device_vectors = tf.convert_to_tensor(self._device_vectors)

        def step(index, previous, hidden, cell, log_probs, entropies, chosen):  # type: ignore[no-untyped-def]
            attention = tf.nn.softmax(_additive_scores(self._query(hidden), keys, scorer))
            # Products with one-hot rows instead of gathers, whose gradients add in any order.
            inputs = [
                tf.one_hot(previous, self.num_devices + 1) @ device_vectors,
                attention @ encoded,
            ]
            if self._feed_item:
                inputs.append(tf.repeat(encoded[index][tf.newaxis], count, axis=0))
            _, (hidden, cell) = self._decoder(tf.concat(inputs, axis=1), [hidden, cell])
            logits = tf.where(self._legal[index], self._logits(hidden), _IMPOSSIBLE)
            devices = choose(index, logits)
            log_softmax = tf.nn.log_softmax(logits)
            log_probs += tf.reduce_sum(log_softmax * tf.one_hot(devices, self.num_devices), axis=1)
            entropies -= tf.reduce_sum(tf.exp(log_softmax) * log_softmax, axis=1)
            chosen = chosen.write(index, devices)
            return index + 1, devices, hidden, cell, log_probs, entropies, chosen

        _, _, _, _, log_probs, entropies, chosen = tf.while_loop(
            lambda index, *_: index < self.num_groups,
            step,
            (
                tf.constant(0),
                tf.fill([count], self.num_devices),
                tf.repeat(hidden, count, axis=0),
                tf.repeat(cell, count, axis=0),
                tf.zeros([count]),
                tf.zeros([count]),
                tf.TensorArray(tf.int32, size=self.num_groups, element_shape=[count]),
            ),
            maximum_iterations=self.num_groups,
        )
        return tf.transpose(chosen.stack()), log_probs, entropies


@tf.custom_gradient
def _additive_scores(
    query: tf.Tensor, keys: tf.Tensor, scorer: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]]:
    """Bahdanau's scorer . tanh(query + key), of every query with every key.

    The gradient computes the hidden layer anew: kept for all steps of the decoder, its count * keys
    * units numbers would take gigabytes for a few hundred groups.

    Args:
        query: float32 [count, units].
        keys: float32 [num_keys, units].
        scorer: float32 [units, 1].

    Returns:
        float32 [count, num_keys] and its gradient.
    """
    count, units = query.shape
    num_keys = keys.shape[0]

    def hidden_layer() -> tf.Tensor:
        return tf.tanh(query[:, tf.newaxis] + keys)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        hidden = hidden_layer()
        flat = tf.reshape(hidden, [count * num_keys, units])
        to_scorer = tf.matmul(flat, tf.reshape(upstream, [-1, 1]), transpose_a=True)
        to_sum = (1 - hidden * hidden) * upstream[:, :, tf.newaxis] * scorer[:, 0]
        return tf.reduce_sum(to_sum, axis=1), tf.reduce_sum(to_sum, axis=0), to_scorer

    flat = tf.reshape(hidden_layer(), [count * num_keys, units])
    return tf.reshape(tf.matmul(flat, scorer), [count, num_keys]), gradient


def _seeds(seed: int) -> Iterator[int]:
    """Independent seeds, one per weight, from one seed."""
    for child in np.random.SeedSequence(seed).generate_state(64):
        yield int(child) % 2**31


def _glorot(seeds: Iterator[int]) -> tf.keras.initializers.Initializer:
    return tf.keras.initializers.GlorotUniform(seed=next(seeds))


def _orthogonal(seeds: Iterator[int]) -> tf.keras.initializers.Initializer:
    return tf.keras.initializers.Orthogonal(seed=next(seeds))
