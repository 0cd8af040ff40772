"""Hill climbing that learns which moves are worth a measurement."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.hill_climbing import HillClimbing
from tf_placer.placers.heuristics.local_search import Value
from tf_placer.placers.heuristics.move_features import MoveFeatures
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["LearnedMoves"]

# So many moves are drawn for each that is measured.
_CHOICES = 4
# A step that is shorter or longer by more than this share is as good or bad as one that fails.
_MOST_SHARE = 0.01
# How fast the model forgets how wrong it was.
_FORGET = 0.01
# Features that never differ from 0 say nothing.
_LEAST_SQUARE = 1e-30


class LearnedMoves(HillClimbing):
    """Hill climbing that draws four moves at a time and measures the most promising.

    What a move gains is taken to be linear in what it changes (see `MoveFeatures`). The weights are
    learned from all moves that were measured. To choose a move they are drawn anew from what is
    known of them, so that moves of which little is known are tried, too.

    References:
        Agrawal and Goyal, Thompson Sampling for Contextual Bandits with Linear Payoffs, ICML 2013.
    """

    name = "learned_moves"

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int = 0,
        problem: PlacementProblem | None = None,
    ) -> None:
        """Makes a placer; see `LocalSearch`."""
        super().__init__(groups, legal, seed=seed, problem=problem)
        self._features = MoveFeatures(groups, self.num_devices)
        size = self._features.size
        # Sums over the moves measured: of products of features, and of features by gains.
        self._products = np.zeros([size, size])
        self._gains = np.zeros(size)
        self._num_moves = 0
        self._mean_error = 1.0

    def _judge(self, placement: np.ndarray, value: Value, current: Value) -> None:
        (features,) = self._features.of(self.current, placement[None])
        gain = _gain(value, current)
        scale, mean, _ = self._model()
        error = gain - features @ (scale * mean)
        self._mean_error += _FORGET * (error**2 - self._mean_error)
        self._products += np.outer(features, features)
        self._gains += gain * features
        self._num_moves += 1
        super()._judge(placement, value, current)

    def _next(self, generator: np.random.Generator) -> np.ndarray:
        if self._current_value is None:
            return super()._next(generator)
        choices = [super(LearnedMoves, self)._next(generator) for _ in range(_CHOICES)]
        features = self._features.of(self.current, np.stack(choices))
        scale, mean, precision = self._model()
        root = np.linalg.cholesky(np.linalg.inv(precision))
        noise = root @ generator.standard_normal(len(mean))
        weights = scale * (mean + np.sqrt(self._mean_error) * noise)
        return choices[int(np.argmax(features @ weights))]

    def _model(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes what is known of the weights of features, divided by what they mostly are.

        Returns:
            float64 [size], what features are multiplied by, float64 [size], the means of the
            weights, and float64 [size, size], the inverse of their covariance for errors of 1.
            Before anything is known, each feature matters as much as any other.
        """
        squares = np.maximum(self._products.diagonal() / max(1, self._num_moves), _LEAST_SQUARE)
        scale = 1.0 / np.sqrt(squares)
        precision = self._products * np.outer(scale, scale) + np.eye(len(scale))
        return scale, np.linalg.solve(precision, scale * self._gains), precision


def _gain(value: Value, current: Value) -> float:
    """Says what a move gained, from -1 to 1."""
    if value[0] or current[0]:
        return float(value < current) - float(value > current)
    share = (current[1] - value[1]) / current[1] if current[1] else 0.0
    return float(np.clip(share / _MOST_SHARE, -1.0, 1.0))
