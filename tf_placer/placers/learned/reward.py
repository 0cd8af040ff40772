"""The rewards of measured placements, and their advantages over a baseline.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.1: square root, failure reward, moving average, failures ignored in the end.
    Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
    Optimization, NeurIPS 2018, equation 11: seconds, failure reward, average of all samples.
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    equation 4: negative square root, exponential moving average.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from absl import logging

from tf_placer.environments.environment import Measurement
from tf_placer.placers.validators import check_fields

__all__ = ["RewardBatch", "RewardConfig", "RewardFunction"]


# Smaller relative differences between the rewards of a batch are rounding errors.
_REWARD_TOLERANCE = 1e-6

# With `failure_factor`, failures are compared with this many of the last placements, and with this
# quantile of the steps of those that ran: the slowest may be slower by orders of magnitude.
_WINDOW, _QUANTILE = 100, 0.75

# The share of `failure_factor` by which every failure is slower, however little memory it lacks:
# without it, samples that nearly fit look as good as samples that run.
_LEAST_SHARE = 0.5

# The step time that stands for that quantile as long as no placement has run. Only the differences
# between failures matter then.
_ASSUMED_SECS = 1.0


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """Settings of the reward, each with its line of help.

    The reward of a placement is the negative of its step time or of the root of its step time.

    Raises:
        ValueError: a number is outside its range.
    """

    reward: Annotated[
        Literal["sqrt", "seconds"], "the negative of the root of the step time, or of the step time"
    ] = "sqrt"
    step_average: Annotated[
        Literal["mean", "median"], "how the counted steps become one step time"
    ] = "mean"
    failure_reward: Annotated[
        float | None,
        "negative of the reward of a failure (ColocRL: by hand per graph); none for that of "
        "failure_secs or, without that, twice the worst of the first batch in which a placement "
        "ran",
    ] = None
    failure_secs: Annotated[float | None, "step time that a failure counts as (Post: 100)"] = None
    failure_factor: Annotated[
        float | None,
        "a failure counts as the upper quartile of the last 100 steps that ran, times up to this: "
        "the more, the more memory it lacks, where that is known, and at least half as much more; "
        "up to twice that while most placements fail; instead of failure_reward and failure_secs; "
        "none for one reward for all failures",
    ] = None
    baseline: Annotated[
        Literal["ema", "mean", "batch"],
        "what rewards are compared with: exponential moving average of batches, mean of all "
        "samples so far, or mean of the batch",
    ] = "ema"
    baseline_decay: Annotated[float, "of baseline ema: share that stays at each move"] = 0.9
    baseline_moves: Annotated[
        Literal["batch", "sample"],
        "when baseline ema moves: after each batch, by its mean, or after each sample (EAGLE: "
        "'sampled at time step t')",
    ] = "batch"
    baseline_start: Annotated[
        Literal["failing", "first_batch"],
        "where baseline ema starts: at the reward of a failure, or at the mean reward of the "
        "placements that ran in the first batch",
    ] = "failing"
    baseline_failures: Annotated[
        bool,
        "whether failures move the baseline; if not, it is of the placements that ran, and a batch "
        "of which most failed has its own mean instead",
    ] = True
    ignore_failures_after: Annotated[int, "batches; then failures contribute nothing"] = 5000
    advantage_clip: Annotated[
        float | None, "largest distance from the baseline that counts; none for no limit"
    ] = None

    normalize: Annotated[
        bool, "whether advantages are divided by the deviation of the rewards of their batch"
    ] = False

    def __post_init__(self) -> None:
        names = ("failure_reward", "failure_secs", "advantage_clip")
        check_fields(self, names, lambda value: 0 < value < math.inf, "positive")
        check_fields(self, ("failure_factor",), lambda value: 1 < value < math.inf, "above 1")
        check_fields(
            self, ("baseline_decay",), lambda value: 0 <= value < 1, "at least 0 and below 1"
        )
        check_fields(self, ("ignore_failures_after",), lambda value: value >= 0, "at least 0")


@dataclasses.dataclass(frozen=True, eq=False)
class RewardBatch:
    """Rewards and advantages of a batch of measurements.

    Attributes:
        rewards: float64 [count], larger is better.
        baseline: float64 [count], the baseline at each sample.
        advantages: float64 [count], reward minus baseline; 0 for ignored samples.
        counted: bool [count], false for ignored samples: failures late in the training.
        step_secs: float64 [count], infinite for a failure.
    """

    rewards: np.ndarray
    baseline: np.ndarray
    advantages: np.ndarray
    counted: np.ndarray
    step_secs: np.ndarray


class RewardFunction:
    """Computes the rewards and advantages of batches of measurements; its state is the baseline."""

    def __init__(self, config: RewardConfig) -> None:
        """Creates a reward function without a baseline."""
        self._config = config
        self._failure_cost = config.failure_reward
        if self._failure_cost is None and config.failure_secs is not None:
            self._failure_cost = float(self._compute_costs(np.array(config.failure_secs)))
        self._num_batches = 0
        self._average: float | None = None
        self._reward_sum = 0.0
        self._num_rewards = 0
        # failure_factor compares failures with the last placements that ran, or lacked memory; the
        # last placements of all are 1 for a failure, or else 0.
        self._recent_secs: list[float] = []
        self._recent_excess: list[float] = []
        self._recent_failures: list[float] = []

    @property
    def num_batches(self) -> int:
        """The batches with a counted sample so far."""
        return self._num_batches

    def advantages(self, measurements: Sequence[Measurement]) -> RewardBatch | None:
        """Computes the advantages of a batch over the baseline, and updates the baseline.

        Warns when a placement that ran has a reward below the failure reward, because failing
        would then look better than running.

        Args:
            measurements: one per placement of the batch, in the order of sampling.

        Returns:
            Rewards and advantages; None as long as the failure reward is unknown, because neither
            the settings nor a placement that ran determine it.

        Raises:
            ValueError: there is no measurement, or a step time is negative or not finite.
        """
        if not measurements:
            raise ValueError("a batch has at least one measurement")
        step_secs = np.array([self._step_secs(measurement) for measurement in measurements])
        ran = np.isfinite(step_secs)
        costs = self._compute_costs(step_secs)
        failure_costs = self._compute_failure_costs(measurements, step_secs, costs)
        if failure_costs is None:
            return None
        rewards = -np.where(ran, costs, failure_costs)
        # Failures count at first, so that the policy learns to avoid them. Later, a failure for
        # another reason than the placement would damage a trained policy.
        counts_failures = self._num_batches < self._config.ignore_failures_after
        counted = np.ones_like(ran) if counts_failures else ran
        baseline = self._compute_baseline(rewards, ran, counted)
        advantages = np.where(counted, rewards - baseline, 0.0)
        if self._config.advantage_clip is not None:
            limit = self._config.advantage_clip
            advantages = np.clip(advantages, -limit, limit)
        if self._config.normalize and counted.any():
            deviation = float(np.std(rewards[counted]))
            # Dividing by the deviation of equal rewards would amplify their rounding errors.
            differ = deviation > _REWARD_TOLERANCE * abs(baseline[0])
            advantages = advantages / deviation if differ else np.zeros_like(advantages)
        self._num_batches += bool(counted.any())
        return RewardBatch(rewards, baseline, advantages, counted, step_secs)

    def state(self) -> dict[str, np.ndarray]:
        """Returns the state by name, without the number of batches."""
        known = {"failing_signal": self._failure_cost, "average": self._average}
        state = {name: np.array(value) for name, value in known.items() if value is not None}
        sums = {"reward_sum": self._reward_sum, "num_rewards": self._num_rewards}
        recent = {"recent_secs": self._recent_secs, "recent_excess": self._recent_excess}
        recent |= {"recent_failures": self._recent_failures}
        return state | {
            name: np.array(value, np.float64) for name, value in (sums | recent).items()
        }

    def restore(self, state: Mapping[str, np.ndarray], num_batches: int) -> None:
        """Sets the state.

        Args:
            state: from `state` of a reward function with the same settings.
            num_batches: number of batches with a counted sample, over all processes.
        """
        known = {name: float(value) for name, value in state.items() if value.ndim == 0}
        # A state of an earlier version has none of the lists.
        self._recent_secs, self._recent_excess, self._recent_failures = (
            state[name].tolist() if name in state else []
            for name in ("recent_secs", "recent_excess", "recent_failures")
        )
        self._failure_cost, self._average = known.get("failing_signal"), known.get("average")
        self._reward_sum, self._num_rewards = known["reward_sum"], int(known["num_rewards"])
        self._num_batches = num_batches

    def _step_secs(self, measurement: Measurement) -> float:
        """Averages the step times of a measurement; infinite for a failure."""
        steady_secs = measurement.steady_secs
        if steady_secs is None:
            return math.inf
        if not all(math.isfinite(secs) and secs >= 0 for secs in steady_secs):
            raise ValueError(f"not step times: {steady_secs}")
        average = statistics.fmean if self._config.step_average == "mean" else statistics.median
        return average(steady_secs)

    def _compute_costs(self, step_secs: np.ndarray) -> np.ndarray:
        return np.sqrt(step_secs) if self._config.reward == "sqrt" else step_secs

    def _compute_failure_costs(
        self, measurements: Sequence[Measurement], step_secs: np.ndarray, costs: np.ndarray
    ) -> np.ndarray | None:
        """Computes the costs of the failures, float64 [count]; any number for a placement that ran.

        Returns None as long as they are unknown; see `advantages`.
        """
        ran = np.isfinite(step_secs)
        if self._config.failure_factor is not None:
            return self._compare_failures(measurements, step_secs, self._config.failure_factor)
        if self._failure_cost is None:
            if not ran.any():
                return None
            self._failure_cost = 2.0 * float(costs[ran].max())
        worst = costs[ran].max(initial=0.0)
        if worst > self._failure_cost:
            logging.warning(
                "A placement that takes %.4g s has the reward -%.4g, below the failure reward "
                "-%.4g: failing looks better to the placer. Raise failure_reward or failure_secs.",
                step_secs[ran].max(),
                worst,
                self._failure_cost,
            )
        return np.full(len(costs), self._failure_cost)

    def _compare_failures(
        self, measurements: Sequence[Measurement], step_secs: np.ndarray, factor: float
    ) -> np.ndarray | None:
        """Computes the costs of failures relative to what ran and to what other failures lack."""
        ran = np.isfinite(step_secs)
        excess = np.array(
            [
                math.nan
                if each.failure is None or each.failure.excess_bytes is None
                # A failure that lacks a byte is not unknown.
                else max(each.failure.excess_bytes, 1)
                for each in measurements
            ]
        )
        known = excess[~np.isnan(excess)]
        self._recent_secs = [*self._recent_secs, *step_secs[ran].tolist()][-_WINDOW:]
        self._recent_excess = [*self._recent_excess, *known.tolist()][-_WINDOW:]
        self._recent_failures = [*self._recent_failures, *(~ran).tolist()][-_WINDOW:]
        if not self._recent_secs and not known.size:
            return None
        compared_secs = _ASSUMED_SECS
        if self._recent_secs:
            compared_secs = float(np.quantile(self._recent_secs, _QUANTILE))
        # A policy that mostly fails may have found fast placements near the limit of the memory;
        # it must learn to stay below the limit first.
        compared_secs *= max(1.0, 2.0 * float(np.mean(self._recent_failures)))
        largest = max(self._recent_excess, default=1.0)
        lacking = np.where(np.isnan(excess), 1.0, np.minimum(excess / largest, 1.0))
        shares = _LEAST_SHARE + (1.0 - _LEAST_SHARE) * lacking
        costs: np.ndarray = self._compute_costs(compared_secs * (1.0 + (factor - 1.0) * shares))
        self._failure_cost = float(self._compute_costs(np.array(factor * compared_secs)))
        return costs

    def _compute_baseline(
        self, rewards: np.ndarray, ran: np.ndarray, counted: np.ndarray
    ) -> np.ndarray:
        """Computes the baseline at each sample, and updates it for the next batch."""
        moving = counted if self._config.baseline_failures else counted & ran
        mostly_failed = not self._config.baseline_failures and 2 * moving.sum() < counted.sum()
        if mostly_failed and not moving.any():
            return np.full(len(rewards), rewards[counted].mean())
        if self._config.baseline == "ema" and self._config.baseline_moves == "sample":
            baseline = self._update_by_sample(rewards, ran, moving)
        else:
            baseline = np.full(len(rewards), self._update_by_batch(rewards, ran, moving))
        # Far below the baseline, the sampled failures would all be made less probable, the best
        # ones, too, and the policy would not learn from the differences between them.
        if mostly_failed:
            baseline[:] = rewards[counted].mean()
        return baseline

    def _update_by_sample(
        self, rewards: np.ndarray, ran: np.ndarray, moving: np.ndarray
    ) -> np.ndarray:
        average = self._average
        if average is None:
            average = -float(self._failure_cost or 0.0)
            if self._config.baseline_start == "first_batch":
                if not ran.any():
                    return np.full(len(rewards), average)
                average = float(rewards[ran].mean())
        baseline, decay = np.empty(len(rewards)), self._config.baseline_decay
        for sample, reward in enumerate(rewards):
            baseline[sample] = average
            if moving[sample]:
                average = decay * average + (1 - decay) * float(reward)
        self._average = average
        return baseline

    def _update_by_batch(self, rewards: np.ndarray, ran: np.ndarray, moving: np.ndarray) -> float:
        failing = -float(self._failure_cost or 0.0)
        if not moving.any():
            return failing if self._average is None else self._average
        mean = float(rewards[moving].mean())
        if self._config.baseline == "batch":
            return mean
        if self._config.baseline == "mean":
            self._reward_sum += float(rewards[moving].sum())
            self._num_rewards += int(np.count_nonzero(moving))
            return self._reward_sum / self._num_rewards
        baseline = self._average
        if baseline is None and self._config.baseline_start == "first_batch":
            if not ran.any():
                return failing
            self._average = float(rewards[ran].mean())
            return self._average
        if baseline is None:
            baseline = failing
        decay = self._config.baseline_decay
        self._average = decay * baseline + (1 - decay) * mean
        return baseline
