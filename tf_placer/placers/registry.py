"""The registry of placers, with the properties of each."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Literal

from graph_passes.util.messages import quote
from tf_placer.placers.options import suggest
from tf_placer.placers.presets import PAPER_PRESETS, PRESETS, Preset

__all__ = [
    "AUTO",
    "BASELINES",
    "PLACERS",
    "Granularity",
    "PlacerEntry",
    "find_granularity",
    "find_placer",
    "is_learned",
    "needs_problem",
]

Granularity = Literal["coarse", "fine"]

AUTO = "auto"
"""The placer that searches in simulation by itself."""


@dataclasses.dataclass(frozen=True)
class PlacerEntry:
    """A placer; its module is imported lazily.

    Attributes:
        name: the name of the placer.
        summary: one line of help.
        reference: the source of the placer, such as a paper.
        factory: its class, or a function that makes it from components, as "module:name".
        config: the dataclass of its settings, as "module:name"; None for a placer without settings
            or with the settings of its components.
        preset: the components and settings of a placer that learns; such a placer needs TensorFlow.
        needs_problem: whether the placer needs a `PlacementProblem`.
        uses_problem: whether the placer takes a `PlacementProblem` if there is one.
        granularity: see `find_granularity`.
        is_random: whether proposals depend on the seed, so that tables compare several seeds.
        is_baseline: whether live searches measure its proposals before those of other placers.
        seeds_auto: number of its proposals that `auto` starts from before the next placer has its
            turn; the other proposals follow after the turns of all placers. 0 for none.
    """

    name: str
    summary: str
    reference: str
    factory: str
    config: str | None = None
    preset: Preset | None = None
    needs_problem: bool = False
    uses_problem: bool = False
    granularity: Granularity = "coarse"
    is_random: bool = False
    is_baseline: bool = False
    seeds_auto: int = 0


_ALL = sys.maxsize

# `auto` starts from the placers in this order: cheap ones first, because a short search does not
# reach all of them.
_HEURISTICS = (
    PlacerEntry(
        AUTO,
        "all heuristics, improved in simulation; the best placements are measured",
        "this project",
        "tf_placer.placers.auto.auto_placer:AutoPlacer",
        config="tf_placer.placers.auto.auto_config:AutoConfig",
        needs_problem=True,
        granularity="fine",
        is_random=True,
    ),
    PlacerEntry(
        "single_device",
        "everything on each device in turn",
        "baseline of all papers",
        "tf_placer.placers.heuristics.single_device:SingleDevice",
        is_baseline=True,
        seeds_auto=1,
    ),
    PlacerEntry(
        "random",
        "a random legal device for every group",
        "baseline",
        "tf_placer.placers.heuristics.uniform_random:UniformRandom",
        is_random=True,
    ),
    PlacerEntry(
        "expert",
        "the layers cut into contiguous parts, one per device",
        "baseline of all papers",
        "tf_placer.placers.heuristics.contiguous:Contiguous",
        is_baseline=True,
        seeds_auto=_ALL,
    ),
    PlacerEntry(
        "single_cpu",
        "everything on the CPU",
        "baseline of all papers",
        "tf_placer.placers.heuristics.single_cpu:SingleCpu",
    ),
    # Rules and schedules.
    PlacerEntry(
        "branches",
        "branches of the graph, with equal work for every device in every window of time",
        "Graham 1969",
        "tf_placer.placers.heuristics.branches:Branches",
        needs_problem=True,
        seeds_auto=_ALL,
    ),
    PlacerEntry(
        "stretches",
        "lines along which the graph repeats itself, cut into stretches of equal work",
        "this project",
        "tf_placer.placers.heuristics.pipeline_stages:PipelineStages",
        needs_problem=True,
        seeds_auto=_ALL,
    ),
    PlacerEntry(
        "greedy_fill",
        "layer by layer to the first accelerator with memory left, then to the CPU",
        'Hugging Face device_map="auto"',
        "tf_placer.placers.heuristics.greedy_fill:GreedyFill",
        needs_problem=True,
        seeds_auto=1,
    ),
    PlacerEntry(
        "topological",
        "the topological order cut into parts of equal work, one per device",
        "baseline",
        "tf_placer.placers.heuristics.topological:Topological",
        needs_problem=True,
        seeds_auto=1,
    ),
    PlacerEntry(
        "metis",
        "balanced parts that send each other little, one per accelerator",
        "Karypis and Kumar 1998; baseline of Post",
        "tf_placer.placers.heuristics.metis_partition:MetisPartition",
        needs_problem=True,
        seeds_auto=1,
    ),
    PlacerEntry(
        "scotch",
        "static mapping onto all devices and their links",
        "Pellegrini and Roman 1996; baseline of ColocRL",
        "tf_placer.placers.heuristics.scotch_partition:Scotch",
        needs_problem=True,
    ),
    PlacerEntry(
        "mincut",
        "static mapping onto the accelerators and their links",
        "Pellegrini and Roman 1996; baseline of ColocRL",
        "tf_placer.placers.heuristics.scotch_partition:MinCut",
        needs_problem=True,
        seeds_auto=1,
    ),
    PlacerEntry(
        "m_topo",
        "the topological order cut into parts of equal memory, one per device",
        "Baechi (Jeon et al. 2020)",
        "tf_placer.placers.heuristics.m_topo:MTopo",
        needs_problem=True,
        seeds_auto=1,
    ),
    PlacerEntry(
        "m_etf",
        "always the operation that can start first, where it can and fits",
        "Baechi (Jeon et al. 2020)",
        "tf_placer.placers.heuristics.m_etf:MEtf",
        needs_problem=True,
        seeds_auto=1,
    ),
    PlacerEntry(
        "m_sct",
        "m_etf with devices that wait for favorite children, found by a linear program",
        "Baechi (Jeon et al. 2020)",
        "tf_placer.placers.heuristics.m_sct:MSct",
        needs_problem=True,
    ),
    PlacerEntry(
        "heft",
        "operations on the longest path to the end first, each where it ends first",
        "Topcuoglu et al. 2002",
        "tf_placer.placers.heuristics.heft:Heft",
        needs_problem=True,
        seeds_auto=1,
    ),
    # Searches, one measurement after the other.
    PlacerEntry(
        "hill_climbing",
        "moves of a few groups from the best simple placement, never to a slower one",
        "Lourenço et al. 2003",
        "tf_placer.placers.heuristics.hill_climbing:HillClimbing",
        uses_problem=True,
        is_random=True,
    ),
    PlacerEntry(
        "simulated_annealing",
        "moves of a few groups, at first also to slower placements",
        "Kirkpatrick et al. 1983",
        "tf_placer.placers.heuristics.simulated_annealing:SimulatedAnnealing",
        uses_problem=True,
        is_random=True,
    ),
    PlacerEntry(
        "learned_moves",
        "hill climbing that learns which moves are worth a measurement",
        "ours, after Agrawal and Goyal 2013",
        "tf_placer.placers.heuristics.learned_moves:LearnedMoves",
        uses_problem=True,
        is_random=True,
    ),
)


def _make_entry(name: str, preset: Preset) -> PlacerEntry:
    return PlacerEntry(
        name,
        preset.summary,
        preset.reference,
        "tf_placer.placers.learned.compose:compose",
        preset=preset,
        granularity=_find_grouper_granularity(preset.grouper),
        is_random=True,
    )


def _find_grouper_granularity(grouper: object) -> Granularity:
    return "coarse" if grouper == "coarse" else "fine"


PLACERS: Mapping[str, PlacerEntry] = {
    **{entry.name: entry for entry in _HEURISTICS},
    **{name: _make_entry(name, preset) for name, preset in {**PRESETS, **PAPER_PRESETS}.items()},
}
"""All placers by name."""

BASELINES = tuple(name for name, entry in PLACERS.items() if entry.is_baseline)
"""The placers whose proposals live searches measure before those of any other.

A live search has too few trials for a learned placer to find a split by layers from scratch.
"""


def find_placer(name: str) -> PlacerEntry:
    """Finds a placer by its name.

    Raises:
        ValueError: there is no such placer; the message suggests a similar name.
    """
    if name not in PLACERS:
        raise ValueError(
            f"no placer {quote(name)}{suggest(name, list(PLACERS))}; the placers are: "
            f"{', '.join(sorted(PLACERS))}"
        )
    return PLACERS[name]


def is_learned(name: str) -> bool:
    """Returns whether a placer has a policy that learns, and so needs TensorFlow.

    Returns False for unknown names and for `learned_moves`, which has no policy.
    """
    return name in PLACERS and PLACERS[name].preset is not None


def needs_problem(name: str) -> bool:
    """Returns whether a placer needs a problem with known costs.

    Args:
        name: one of `PLACERS`.

    Raises:
        ValueError: there is no such placer.
    """
    return find_placer(name).needs_problem


def find_granularity(name: str, options: Mapping[str, object] | None = None) -> Granularity:
    """Finds the granularity of the groups that a placer places.

    Args:
        name: one of `PLACERS`.
        options: settings that differ from the placer's defaults.

    Returns:
        "coarse" for the groups of the model rules; "fine" for one group per colocation group, for
        placers that group operations themselves or refine groups.

    Raises:
        ValueError: there is no such placer.
    """
    entry = find_placer(name)
    if entry.preset is None or "grouper" not in (options or {}):
        return entry.granularity
    return _find_grouper_granularity((options or {})["grouper"])
