"""Searches of small problems, whose fastest placement is known, by systems with small networks.

`SETTINGS` is all that differs from the papers but the size of the networks, the same on every
problem, and was chosen with seeds from 100. With it, each of five seeds of every system samples a
fastest placement of each problem.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers import describe_placer, make_placer
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.proposals import Measured, propose_and_observe

__all__ = ["MAX_SAMPLES", "SETTINGS", "sampled_ratios"]

MAX_SAMPLES = 2000

# A handful of operations needs no 512 units.
_SMALL_NETWORK: dict[str, object] = {
    "hidden_units": 32,
    "attention_units": 32,
    "device_units": 8,
    "type_units": 8,
    "grouper_units": 16,
    "bridge_units": 8,
    "graph_units": 32,
}
# Steps differ by tenths of a second here, by seconds in the papers: hence advantages in deviations.
# At a rate of 1e-4 small networks still sample like random search after 1200 samples.
_SCALED: dict[str, object] = {"baseline": "batch", "normalise": True, "learning_rate": 3e-3}
# Such advantages do not shrink while the policy settles. At 0.1 it does so within 700 samples, on a
# local optimum of the heterogeneous devices.
_PPO: dict[str, object] = _SCALED | {"entropy_coefficient": 0.5}
# REINFORCE sums its gain over up to eight decisions; PPO, like the entropy, is a mean over them.
_REINFORCE: dict[str, object] = _SCALED | {"entropy_coefficient": 3.0}
# There is no entropy bonus here. In larger steps, or from batches of 12, it settles like that, too.
_SPOTLIGHT: dict[str, object] = _SCALED | {"divergence_target": 0.001, "batch_size": 48}
# Nor here; at 1.0, and even at 0.05 on the two chains, the softmax settles within 700 samples.
_POST: dict[str, object] = _SCALED | {"learning_rate": 0.03}
# No placement that fits takes longer. Beside failures of 100 s all that fit would look alike.
_PENALTY: dict[str, object] = {"penalty_secs": 3.0}
# The untrained grouper puts most operations into one group; at 3e-3 it takes 1000 samples to change
# that. The 256 groups of the papers would be one for each operation.
_LEARNED_GROUPS: dict[str, object] = {"num_groups": 4, "learning_rate": 0.01} | _PENALTY
# Random groups hide what devices are worth: at 3.0 REINFORCE learned next to nothing.
_LEARNED_GROUPS_PPO: dict[str, object] = _PPO | _LEARNED_GROUPS | {"entropy_coefficient": 0.3}
_LEARNED_GROUPS_REINFORCE: dict[str, object] = (
    _REINFORCE | _LEARNED_GROUPS | {"entropy_coefficient": 1.5}
)
# Six elites of 60 agree too soon, and what all of them have in common is kept for good.
_CE: dict[str, object] = {"ce_samples": 120, "exploration": 0.5} | _PENALTY

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "colocrl": _REINFORCE,
    "policy_gradient": _REINFORCE,
    "hierarchical": _LEARNED_GROUPS_REINFORCE,
    "spotlight": _SPOTLIGHT,
    "post": _POST | _CE,
    "post_ppo": _POST | _PENALTY,
    "post_ce": _CE,
    "eagle": _LEARNED_GROUPS_PPO,
    "eagle_ppo_ce": _LEARNED_GROUPS_PPO,
    "eagle_reinforce": _LEARNED_GROUPS_REINFORCE,
    "eagle_metis": _PPO | _PENALTY,
    "eagle_fluid": _PPO | _PENALTY,
    "eagle_gcn": _PPO | _PENALTY,
    # As it is, it settles within a hundred samples.
    "warm_softmax": {"learning_rate": 0.03, "start_uniform": 0.5, "entropy_coefficient": 0.1},
    "graph_neural": _PPO,
}
"""What differs from the settings of the system, apart from the size of its network."""


def sampled_ratios(
    problem_name: str,
    placer_name: str,
    seed: int,
    *,
    max_samples: int = MAX_SAMPLES,
    until_optimal: bool = True,
) -> np.ndarray:
    """Searches one problem with one placer.

    Args:
        problem_name: one of `SMALL_PROBLEMS`.
        placer_name: one of the placers.
        seed: of the placer.
        max_samples: placements to simulate at most.
        until_optimal: whether to end with the batch that has one of the fastest placements.

    Returns:
        float64 [samples], the step of what was sampled by the fastest of all, infinite for what did
        not fit.
    """
    problem = SMALL_PROBLEMS[problem_name]
    fastest_secs = all_step_secs(problem)[0]
    placer = make_placer(
        placer_name,
        group_graph(problem),
        legal_devices(problem),
        seed=seed,
        options=_options(placer_name),
        problem=problem,
    )
    environment = SimulatedEnvironment(problem, threads=1)
    ratios: list[float] = []

    def count() -> int:
        return min(placer.batch_size, max_samples - len(ratios))

    def measure(placements: np.ndarray) -> Measured | None:
        measurements = environment.measure(placements)
        secs = [each.median_secs for each in measurements]
        ratios.extend(np.inf if each is None else each / fastest_secs for each in secs)
        if until_optimal and is_optimal(np.array(ratios), 1.0).any():
            return None
        return placements, measurements

    for _ in propose_and_observe(placer, count, measure):
        pass
    return np.array(ratios)


def _options(placer_name: str) -> dict[str, object]:
    """Adds the small network to `SETTINGS` where the system has such a setting and uses it."""
    settings = {setting.name: setting.value for setting in describe_placer(placer_name).settings}
    small = {name: value for name, value in _SMALL_NETWORK.items() if settings.get(name)}
    return {**small, **SETTINGS.get(placer_name, {})}
