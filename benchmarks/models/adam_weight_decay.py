"""Adam with decoupled weight decay, from primitive operations as BERT's training had it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = ["AdamWeightDecay"]

_WEIGHT_DECAY = 0.01
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-6


class AdamWeightDecay(tf.compat.v1.train.Optimizer):
    """Adam whose weights shrink by themselves, and not through the gradients.

    As in the training of BERT, the moments are not corrected for their start at 0, and biases and
    the scales of normalizations, which are vectors, do not decay. Gradients with respect to some
    rows of a variable count as zero for the others: all rows are updated.

    References:
        Loshchilov, Hutter: Decoupled Weight Decay Regularization, 2019 (algorithm 2).
        Devlin et al.: BERT: Pre-training of Deep Bidirectional Transformers for Language
        Understanding, 2019 (appendix A.2).
    """

    def __init__(self, learning_rate: float) -> None:
        """Makes no operations yet.

        Args:
            learning_rate: of all steps.
        """
        super().__init__(use_locking=False, name="AdamWeightDecay")
        self._learning_rate = learning_rate

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)
            self._zeros_slot(variable, "v", self._name)

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        next_first = first * _BETA_1 + grad * (1 - _BETA_1)
        next_second = second * _BETA_2 + tf.square(grad) * (1 - _BETA_2)
        update = next_first / (tf.sqrt(next_second) + _EPSILON)
        if len(var.shape) > 1:
            update += var * _WEIGHT_DECAY
        return tf.group(
            var.assign(var - update * self._learning_rate, read_value=False),
            first.assign(next_first, read_value=False),
            second.assign(next_second, read_value=False),
        )

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> tf.Operation:
        return self._apply_dense(grad, handle)

    def _apply_sparse_duplicate_indices(
        self, grad: tf.IndexedSlices, var: tf.Variable
    ) -> tf.Operation:
        return self._resource_apply_sparse_duplicate_indices(grad.values, var, grad.indices)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        rows = int(handle.shape[0])
        return self._apply_dense(tf.math.unsorted_segment_sum(grad, indices, rows), handle)
