"""Hill climbing that learns to select promising moves."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.hill_climbing import HillClimbing
from tf_placer.placers.heuristics.local_search import Value
from tf_placer.placers.heuristics.move_features import MoveFeatures
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["LearnedMoves"]

_MOVES_DRAWN_PER_MEASUREMENT = 4
# Gains and losses are clipped at this share of the step time; a failure counts as the full loss.
_MAX_GAIN_SHARE = 0.01
_ERROR_DECAY = 0.01
# Avoids a division by zero for features that are always 0.
_MIN_MEAN_SQUARE = 1e-30


class LearnedMoves(HillClimbing):
    """Hill climbing that draws four moves at a time and measures the most promising.

    The gain of a move is modeled as linear in its features (see `MoveFeatures`), by Bayesian
    regression on all measured moves. Each choice samples the weights from their posterior
    (Thompson sampling), so that moves with uncertain gains are tried, too.

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
        # Sums over the measured moves: of products of features, and of features times gains.
        self._products = np.zeros([size, size])
        self._gains = np.zeros(size)
        self._num_moves = 0
        self._mean_error = 1.0

    def _judge(self, placement: np.ndarray, value: Value, current: Value) -> None:
        (features,) = self._features.describe(self.current, placement[None])
        gain = _compute_gain(value, current)
        scale, mean, _ = self._fit_model()
        error = gain - features @ (scale * mean)
        self._mean_error += _ERROR_DECAY * (error**2 - self._mean_error)
        self._products += np.outer(features, features)
        self._gains += gain * features
        self._num_moves += 1
        super()._judge(placement, value, current)

    def _draw_next(self, generator: np.random.Generator) -> np.ndarray:
        if self._current_value is None:
            return super()._draw_next(generator)
        choices = [
            super(LearnedMoves, self)._draw_next(generator)
            for _ in range(_MOVES_DRAWN_PER_MEASUREMENT)
        ]
        features = self._features.describe(self.current, np.stack(choices))
        scale, mean, precision = self._fit_model()
        root = np.linalg.cholesky(np.linalg.inv(precision))
        noise = root @ generator.standard_normal(len(mean))
        weights = scale * (mean + np.sqrt(self._mean_error) * noise)
        return choices[int(np.argmax(features @ weights))]

    def _fit_model(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the posterior of the weights of normalized features.

        Returns:
            float64 [size], the factors that normalize the features; float64 [size], the means of
            the weights; and float64 [size, size], their precision for errors of variance 1. In
            the prior, all features have the same variance.
        """
        mean_squares = self._products.diagonal() / max(1, self._num_moves)
        squares = np.maximum(mean_squares, _MIN_MEAN_SQUARE)
        scale = 1.0 / np.sqrt(squares)
        precision = self._products * np.outer(scale, scale) + np.eye(len(scale))
        return scale, np.linalg.solve(precision, scale * self._gains), precision


def _compute_gain(value: Value, current: Value) -> float:
    """Computes the gain of a move, from -1 to 1."""
    if value[0] or current[0]:
        return float(value < current) - float(value > current)
    share = (current[1] - value[1]) / current[1] if current[1] else 0.0
    return float(np.clip(share / _MAX_GAIN_SHARE, -1.0, 1.0))
