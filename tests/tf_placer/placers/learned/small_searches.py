"""Searches of problems that are small enough to try every placement, by learned placers.

The networks are small, because the problems are; `_SETTINGS` is all else that differs from the
papers, and was chosen with seeds from 100.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers import describe_placer, make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.proposals import propose_checked

__all__ = ["search"]

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
_SCALED: dict[str, object] = {"baseline": "batch", "normalize": True, "learning_rate": 3e-3}
# Such advantages do not shrink while the policy settles. At 0.1 it does so within 700 samples, on a
# local optimum of the heterogeneous devices.
_PPO: dict[str, object] = _SCALED | {"entropy_coefficient": 0.5}
# REINFORCE sums its gain over up to eight decisions; PPO, like the entropy, is a mean over them.
_REINFORCE: dict[str, object] = _SCALED | {"entropy_coefficient": 3.0}
# There is no entropy bonus here. In larger steps, or from batches of 12, it settles like that, too.
_SPOTLIGHT: dict[str, object] = _SCALED | {"divergence_target": 0.001, "batch_size": 48}
# Nor here; at 1.0, and even at 0.05 on the two chains, the softmax settles within 700 samples.
_POST: dict[str, object] = _SCALED | {"learning_rate": 0.03}
# The untrained grouper puts most operations into one group; at 3e-3 it takes 1000 samples to change
# that. The 256 groups of the papers would be one for each operation.
_LEARNED_GROUPS: dict[str, object] = {"num_groups": 4, "learning_rate": 0.01}
# Random groups hide what devices are worth: at 3.0 REINFORCE learned next to nothing.
_LEARNED_GROUPS_PPO: dict[str, object] = _PPO | _LEARNED_GROUPS | {"entropy_coefficient": 0.3}
_LEARNED_GROUPS_REINFORCE: dict[str, object] = (
    _REINFORCE | _LEARNED_GROUPS | {"entropy_coefficient": 1.5}
)
# Six elites of 60 agree too soon, and what all of them have in common is kept for good.
_CE: dict[str, object] = {"ce_samples": 120, "exploration": 0.5}

_SETTINGS: Mapping[str, Mapping[str, object]] = {
    "colocrl": _REINFORCE,
    "hierarchical": _LEARNED_GROUPS_REINFORCE,
    "spotlight": _SPOTLIGHT,
    "post": _POST | _CE,
    "post_ppo": _POST,
    "post_ce": _CE,
    "eagle": _LEARNED_GROUPS_PPO,
    "eagle_ppo_ce": _LEARNED_GROUPS_PPO,
    "eagle_reinforce": _LEARNED_GROUPS_REINFORCE,
    "eagle_gcn": _PPO,
    # As it is, it settles within a hundred samples.
    "warm_softmax": {"learning_rate": 0.03, "start_uniform": 0.5, "entropy_coefficient": 0.1},
    "graph_neural": _PPO,
}


def search(
    problem: PlacementProblem, placer_name: str, seed: int, *, max_samples: int
) -> np.ndarray:
    """Searches a problem with a learned placer, and checks that all it proposes is legal.

    Args:
        problem: what to place.
        placer_name: one of the learned placers.
        seed: of the placer.
        max_samples: placements to simulate.

    Returns:
        float64 [max_samples], the step times of what was sampled, in order; infinite for what did
        not fit.
    """
    legal = legal_devices(problem)
    placer = make_placer(
        placer_name,
        group_graph(problem),
        legal,
        seed=seed,
        options=_options(placer_name),
        problem=problem,
    )
    environment = SimulatedEnvironment(problem, threads=1)
    sampled: list[float] = []

    while len(sampled) < max_samples:
        placements = propose_checked(placer, min(placer.batch_size, max_samples - len(sampled)))
        np.testing.assert_array_equal(legal[np.arange(len(legal)), placements], True)
        measurements = environment.measure(placements)
        secs = [m.median_secs for m in measurements]
        sampled.extend(np.inf if value is None else value for value in secs)
        placer.observe(placements, measurements)
    return np.array(sampled)


def _options(placer_name: str) -> dict[str, object]:
    """Adds the small network to `_SETTINGS` where the system has such a setting and uses it."""
    settings = {setting.name: setting.value for setting in describe_placer(placer_name).settings}
    small = {name: value for name, value in _SMALL_NETWORK.items() if settings.get(name)}
    return {**small, **_SETTINGS[placer_name]}
