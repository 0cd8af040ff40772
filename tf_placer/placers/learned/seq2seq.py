"""A recurrent policy that reads all groups and writes a device for each of them.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.2 and figure 2.
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    section on the placer and figure 4.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, NamedTuple

import tensorflow as tf

from tf_placer.placers.learned import weights
from tf_placer.placers.learned.attention import AttentionMemory
from tf_placer.placers.learned.decoder import (
    AttentionPosition,
    DecoderWeights,
    decode,
    decoder_step,
)
from tf_placer.placers.learned.lstm import lstm
from tf_placer.placers.learned.masking import add_prior, choose, compute_masked_log_softmax
from tf_placer.placers.learned.policy import GroupInputs, Policy

__all__ = ["Seq2SeqConfig", "Seq2SeqPolicy"]

# XLA halves the time of a policy but needs seconds to compile it, which pays only for large
# policies (in groups times hidden units).
_MIN_COMPILED_SIZE = 2**14


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """Settings of the sequence-to-sequence policy, each with its line of help.

    Raises:
        ValueError: a number is outside its range.
    """

    attention: Annotated[AttentionPosition, "before the decoder's cell (EAGLE) or after it"] = (
        "before"
    )
    hidden_units: Annotated[int, "of the decoder, and of both encoder directions together"] = 512
    attention_units: Annotated[int, "size of the attention's hidden layer"] = 512
    device_units: Annotated[int, "size of the vector learned for a device"] = 64
    type_units: Annotated[
        int, "size of the vector learned for an operation type; 0 to read the types themselves"
    ] = 64
    feed_item: Annotated[bool, "whether the decoder reads the encoding of its group, too"] = False
    read_adjacency: Annotated[bool, "whether the encoder reads each group's neighbors"] = True
    merged_adjacency: Annotated[bool, "whether inputs and outputs share a block"] = False
    tanh_limit: Annotated[float | None, "bound of the logits, by a tanh; none for no bound"] = None

    def __post_init__(self) -> None:
        for name in ("hidden_units", "attention_units", "device_units", "tanh_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, not {value}")
        if self.hidden_units % 2:
            raise ValueError(f"hidden_units must be even, not {self.hidden_units}")
        if self.type_units < 0:
            raise ValueError(f"type_units must not be negative, not {self.type_units}")
        if self.attention not in ("before", "after"):
            raise ValueError(f"attention must be before or after, not {self.attention!r}")


class _Encoded(NamedTuple):
    """The inputs of the decoder; "n" as in `GroupInputs`.

    Attributes:
        memory: the encoded groups.
        hidden: float32 [n, hidden_units], the decoder's output before the first group.
        cell: float32 [n, hidden_units], the state of its cells before the first group.
        by_device: float32 [num_devices + 1, 4 * hidden_units], the contribution of each device, as
            the previous choice, to the gates of the decoder, bias included; the last row is for GO.
        by_group: float32 [num_groups, n, 4 * hidden_units], the contribution of the group to place;
            None where the decoder does not read it.
        decoder: the decoder's other weights.
    """

    memory: AttentionMemory
    hidden: tf.Tensor
    cell: tf.Tensor
    by_device: tf.Tensor
    by_group: tf.Tensor | None
    decoder: DecoderWeights


class Seq2SeqPolicy(Policy):
    """A distribution over placements, factorized group by group.

    A bidirectional LSTM encodes the groups; an LSTM with additive attention over the encoded
    groups then chooses a device per group, in order, each choice fed back to the next one. Devices
    that are not legal for a group have probability zero.
    """

    def __init__(
        self,
        num_groups: int,
        num_devices: int,
        num_types: int,
        num_features: int,
        config: Seq2SeqConfig | None = None,
        seed: int = 0,
    ) -> None:
        """Makes the network with its initial weights.

        Args:
            num_groups: see `Policy`.
            num_devices: see `Policy`.
            num_types: see `GroupInputs`.
            num_features: see `GroupInputs`.
            config: settings; the defaults if None.
            seed: seeds the initial weights.
        """
        super().__init__(name="seq2seq")
        self.num_groups, self.num_devices = num_groups, num_devices
        self._config = config = config or Seq2SeqConfig()
        units, half = config.hidden_units, config.hidden_units // 2
        after = config.attention == "after"
        seeds = weights.seeds(seed)
        glorot, orthogonal = weights.glorot, weights.orthogonal

        if config.type_units:
            self._type_vectors = self.add_weight(
                name="type_vectors",
                shape=(num_types, config.type_units),
                initializer=glorot(seeds),
            )
        # The last row is GO, the input of the first step.
        self._device_vectors = self.add_weight(
            name="device_vectors",
            shape=(num_devices + 1, config.device_units),
            initializer=glorot(seeds),
        )
        adjacency_units = num_groups * (1 if config.merged_adjacency else 2)
        item_units = (config.type_units or num_types) + num_features
        item_units += adjacency_units if config.read_adjacency else 0
        self._forward_encoder, self._backward_encoder, self._decoder = (
            tf.keras.layers.LSTMCell(
                size, kernel_initializer=glorot(seeds), recurrent_initializer=orthogonal(seeds)
            )
            for size in (half, half, units)
        )
        self._forward_encoder.build((None, item_units))
        self._backward_encoder.build((None, item_units))
        self._keys = tf.keras.layers.Dense(config.attention_units, kernel_initializer=glorot(seeds))
        self._keys.build((None, units))
        self._query = self.add_weight(
            name="query", shape=(units, config.attention_units), initializer=glorot(seeds)
        )
        self._scorer = self.add_weight(
            name="scorer", shape=(config.attention_units, 1), initializer=glorot(seeds)
        )
        # The cell reads the previous device, the context if it comes before, and maybe the group.
        read = (not after) + config.feed_item
        self._decoder.build((None, config.device_units + read * units))
        self._logits = tf.keras.layers.Dense(num_devices, kernel_initializer=glorot(seeds))
        self._logits.build((None, (2 if after else 1) * units))
        compiled = num_groups * units >= _MIN_COMPILED_SIZE
        self._sample, self._log_dists = (
            tf.function(function, autograph=False, jit_compile=compiled)
            for function in (self._decode_freely, self._decode_forced)
        )
        self.built = True

    def sample(self, inputs: GroupInputs, noise: tf.Tensor) -> tf.Tensor:
        """Chooses devices; see `Policy.sample`."""
        return self._sample(inputs, noise)

    def log_dists(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        """Computes the distributions, always [count, ...]; see `Policy.log_dists`."""
        return self._log_dists(inputs, devices)

    def _decode_freely(self, inputs: GroupInputs, noise: tf.Tensor) -> tf.Tensor:
        """Implements `sample`: each step reads the choice of the previous one."""
        count = noise.shape[0]
        encoded = self._encode(inputs)
        legal = tf.transpose(inputs.legal, [1, 0, 2])
        noise = tf.transpose(noise, [1, 0, 2])
        prior = None if inputs.prior is None else tf.transpose(inputs.prior, [1, 0, 2])

        def step(index, previous, hidden, cell, chosen):  # type: ignore[no-untyped-def]
            gates = self._gates(encoded, previous)
            if encoded.by_group is not None:
                gates += encoded.by_group[index]
            result = decoder_step(
                self._config.attention, encoded.decoder, encoded.memory, gates, hidden, cell
            )
            logits = self._compute_logits(result.hidden, result.context)
            logits = add_prior(logits, None if prior is None else prior[index])
            devices = choose(logits, legal[index], noise[index])
            return index + 1, devices, result.hidden, result.cell, chosen.write(index, devices)

        *_, chosen = tf.while_loop(
            lambda index, *_: index < self.num_groups,
            step,
            (
                tf.constant(0),
                tf.fill([count], self.num_devices),
                *_initial_state(encoded, count),
                tf.TensorArray(tf.int32, size=self.num_groups, element_shape=[count]),
            ),
            maximum_iterations=self.num_groups,
        )
        return tf.transpose(chosen.stack())

    def _decode_forced(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        """Implements `log_dists`: the same steps with known choices."""
        count = devices.shape[0]
        encoded = self._encode(inputs)
        go = tf.fill([1, count], self.num_devices)
        gates = self._gates(encoded, tf.concat([go, tf.transpose(devices)[:-1]], axis=0))
        if encoded.by_group is not None:
            gates += encoded.by_group
        state = _initial_state(encoded, count)
        outputs, contexts = decode(
            self._config.attention, encoded.decoder, encoded.memory, gates, *state
        )
        logits = tf.transpose(self._compute_logits(outputs, contexts), [1, 0, 2])
        return compute_masked_log_softmax(add_prior(logits, inputs.prior), inputs.legal)

    def _encode(self, inputs: GroupInputs) -> _Encoded:
        """Reads the groups."""
        config = self._config
        items = self._items(inputs)
        # Both directions run side by side, the second over the groups in reverse.
        cells = (self._forward_encoder, self._backward_encoder)
        orders = (items, tf.reverse(items, axis=[1]))
        gates = [
            _affine(order, cell.kernel, cell.bias)
            for cell, order in zip(cells, orders, strict=True)
        ]
        outputs, final = lstm(
            tf.transpose(tf.stack(gates), [2, 0, 1, 3]),
            tf.stack([tf.convert_to_tensor(cell.recurrent_kernel) for cell in cells]),
        )
        forward = tf.transpose(outputs[:, 0], [1, 0, 2])
        backward = tf.transpose(outputs[:, 1], [1, 0, 2])
        values = tf.concat([forward, tf.reverse(backward, axis=[1])], axis=2)

        units, after = config.hidden_units, config.attention == "after"
        sizes = [config.device_units, 0 if after else units, units if config.feed_item else 0]
        from_device, from_context, from_group = tf.split(
            tf.convert_to_tensor(self._decoder.kernel), sizes
        )
        vectors = tf.convert_to_tensor(self._device_vectors)
        by_group = None
        if config.feed_item:
            by_group = tf.transpose(tf.tensordot(values, from_group, 1), [1, 0, 2])
        keys = _affine(values, self._keys.kernel, self._keys.bias)
        context_kernel = None if after else from_context
        if not after and values.shape[0] == 1 and 3 * self.num_groups < 4 * units:
            # Average contributions to the gates instead of groups: fewer products per step.
            values, context_kernel = tf.tensordot(values, from_context, 1), None
        return _Encoded(
            AttentionMemory(
                values,
                keys,
                tf.convert_to_tensor(self._scorer)[:, 0],
            ),
            tf.concat([forward[:, -1], backward[:, -1]], axis=1),
            tf.concat(tf.unstack(final), axis=1),
            tf.matmul(vectors, from_device) + tf.convert_to_tensor(self._decoder.bias),
            by_group,
            DecoderWeights(
                tf.convert_to_tensor(self._decoder.recurrent_kernel),
                tf.convert_to_tensor(self._query),
                context_kernel,
            ),
        )

    def _items(self, inputs: GroupInputs) -> tf.Tensor:
        """Joins the inputs of the encoder, float32 [n, num_groups, item_units]."""
        types = inputs.types
        if self._config.type_units:
            types = tf.tensordot(types, tf.convert_to_tensor(self._type_vectors), 1)
        items = [types, inputs.features]
        if self._config.read_adjacency:
            sent = inputs.adjacency
            received = tf.linalg.matrix_transpose(sent)
            merged = self._config.merged_adjacency
            items += [tf.maximum(received, sent)] if merged else [received, sent]
        return tf.concat(items, axis=2)

    def _gates(self, encoded: _Encoded, previous: tf.Tensor) -> tf.Tensor:
        """Computes what previous choices add to the gates, float32 [..., 4 * hidden_units]."""
        # Multiply one-hot rows: the gradient of a gather would add in any order.
        rows = tf.one_hot(previous, self.num_devices + 1)
        return tf.tensordot(rows, encoded.by_device, 1)

    def _compute_logits(self, outputs: tf.Tensor, contexts: tf.Tensor) -> tf.Tensor:
        """Computes the logits, float32 [..., num_devices]."""
        after = self._config.attention == "after"
        read = tf.concat([outputs, contexts], axis=-1) if after else outputs
        logits = _affine(read, self._logits.kernel, self._logits.bias)
        limit = self._config.tanh_limit
        return logits if limit is None else limit * tf.tanh(logits / limit)


def _affine(inputs: tf.Tensor, kernel: tf.Variable, bias: tf.Variable) -> tf.Tensor:
    """Computes inputs @ kernel + bias as one product of two matrices."""
    return tf.tensordot(inputs, tf.convert_to_tensor(kernel), 1) + tf.convert_to_tensor(bias)


def _initial_state(encoded: _Encoded, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Repeats the decoder cells' output and state before the first group for each placement."""
    shape = [count, encoded.hidden.shape[1]]
    return tf.broadcast_to(encoded.hidden, shape), tf.broadcast_to(encoded.cell, shape)
