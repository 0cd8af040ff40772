"""Cross-entropy minimization in closed form: probabilities become frequencies of the elites.

References:
    Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
    Optimization, NeurIPS 2018, equations 4 to 10 and algorithm 1.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import numpy as np
from absl import logging

from tf_placer.placers.learned.agent import Agent
from tf_placer.placers.learned.algorithms.algorithm import Samples, Update
from tf_placer.placers.learned.algorithms.elite_algorithm import EliteAlgorithm, Sample
from tf_placer.placers.learned.fixed_groups import FixedGroupsAgent
from tf_placer.placers.learned.softmax_policy import SoftmaxPolicy
from tf_placer.placers.validators import check_fields

__all__ = ["CrossEntropy", "CrossEntropyConfig", "compute_elite_frequencies"]


# The samples of each search of the paper.
_POSTS_SAMPLES = 2400


@dataclasses.dataclass(frozen=True)
class CrossEntropyConfig:
    """Settings of cross-entropy minimization, each with its line of help; the defaults are Post's.

    Raises:
        ValueError: a number is outside its range.
    """

    ce_samples: Annotated[int, "samples per cross-entropy update"] = 60
    elite_fraction: Annotated[float, "share of them that counts as promising"] = 0.1
    exploration: Annotated[
        float, "weight of the uniform distribution at first; falls linearly to 0"
    ] = 0.1
    total_samples: Annotated[
        int | None,
        "samples after which exploration is 0 (Post: 2400); none for those that a search in "
        "simulation may take, or 2400 where it has no such limit",
    ] = None

    def __post_init__(self) -> None:
        check_fields(self, ("ce_samples", "total_samples"), lambda value: value > 0, "positive")
        check_fields(
            self, ("elite_fraction",), lambda value: 0 < value <= 1, "above 0 and at most 1"
        )
        check_fields(self, ("exploration",), lambda value: 0 <= value <= 1, "between 0 and 1")


class CrossEntropy(EliteAlgorithm):
    """An algorithm that sets the probability of a device to its frequency among the elites.

    The elites are the fastest `elite_fraction` of the last samples, the earlier of equals, without
    failures. The uniform distribution over the legal devices is mixed in, so that no device becomes
    impossible early.
    """

    def __init__(self, agent: Agent, config: CrossEntropyConfig) -> None:
        """Creates an algorithm for an agent.

        Args:
            agent: the agent to train.
            config: settings.

        Raises:
            ValueError: the policy of the agent is not a table of probabilities, or the agent also
                learns to group.
        """
        policy = agent.policy if isinstance(agent, FixedGroupsAgent) else agent
        if not isinstance(policy, SoftmaxPolicy):
            raise ValueError(
                "algorithm ce needs policy softmax and groups that stay as they are; the network "
                f"{policy.name!r} cannot be set to probabilities"
            )
        super().__init__(config.ce_samples)
        self._policy = policy
        self._uniform = policy.legal / policy.legal.sum(axis=1, keepdims=True)
        self._config = config
        self._window: list[tuple[float, np.ndarray]] = []

    def update(self) -> list[Update]:
        """Sets the probabilities; see `EliteAlgorithm.update`."""
        window, self._window = self._window[-self.batch_size :], []
        # Round first: 0.07 * 100 is slightly above 7 and must not become 8 elites.
        num_elites = math.ceil(round(self._config.elite_fraction * self.batch_size, 9))
        ran = [sample for sample in window if math.isfinite(sample[0])]
        elites = sorted(ran, key=lambda sample: sample[0])[:num_elites]
        if not elites:
            return []
        logging.vlog(1, "Step time of the slowest elite: %.6g s", elites[-1][0])
        devices = np.stack([placement for _, placement in elites])
        frequencies = compute_elite_frequencies(devices, self._uniform.shape[1])
        progress = self.num_samples / (self._config.total_samples or _POSTS_SAMPLES)
        exploration = self._config.exploration * max(0.0, 1.0 - progress)
        before = self._policy.probabilities()
        self._policy.assign((1 - exploration) * frequencies + exploration * self._uniform)
        after = self._policy.probabilities()
        log_probs = _compute_logarithms(before)
        groups = np.arange(len(before))
        return [
            Update(
                kind="ce",
                # Equation 9, before the update.
                loss=-float(log_probs[groups, devices].sum()) / len(window),
                gradient_norm=None,
                entropy=-float((before * log_probs).sum(axis=1).mean()),
                divergence=float(
                    (before * (log_probs - _compute_logarithms(after))).sum(axis=1).mean()
                ),
            )
        ]

    def _add(self, samples: Samples) -> None:
        (devices,) = samples.actions
        self._window.extend(zip(samples.step_secs.tolist(), devices, strict=True))

    def _list_samples(self) -> list[Sample]:
        return [(secs, (devices,)) for secs, devices in self._window]

    def _set_samples(self, samples: list[Sample]) -> None:
        self._window = [(secs, devices) for secs, (devices,) in samples]


def compute_elite_frequencies(devices: np.ndarray, num_devices: int) -> np.ndarray:
    """Computes the frequency of each device among the elites: Post's equation 10.

    Args:
        devices: int32 [num_elites, num_groups], the placements of the elites.
        num_devices: number of devices.

    Returns:
        float64 [num_groups, num_devices]; rows sum to 1.
    """
    return (devices[:, :, np.newaxis] == np.arange(num_devices)).mean(axis=0)


def _compute_logarithms(probabilities: np.ndarray) -> np.ndarray:
    """Computes logarithms; that of 0 is finite, so that 0 * log 0 is 0."""
    return np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
