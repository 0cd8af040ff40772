"""The registry of placers, with the properties of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from graph_passes.util.messages import quote
from graph_passes.util.suggestions import suggest
from tf_placer.placers.former_names import FORMER_PLACERS
from tf_placer.placers.own_placers import (
    describe_entry_point,
    find_own_placer,
    list_entry_points,
)
from tf_placer.placers.placer_entry import Granularity, PlacerEntry
from tf_placer.placers.presets import PAPER_PRESETS, PRESETS, Preset

__all__ = [
    "AUTO",
    "BASELINES",
    "GIVEN",
    "PLACERS",
    "Granularity",
    "PlacerEntry",
    "find_granularity",
    "find_placer",
    "is_learned",
    "list_placers",
    "needs_problem",
]

AUTO = "auto"
"""The placer that searches in simulation by itself."""

GIVEN = "given"
"""The placer that proposes the placement of its option `start`, and nothing else."""

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
        takes_start=True,
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
        uses_problem=True,
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
        "host_embeddings",
        "embedding tables on the CPU, all else on one accelerator or on all by layers",
        "this project",
        "tf_placer.placers.heuristics.host_embeddings:HostEmbeddings",
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
    PlacerEntry(
        GIVEN,
        "the placement in a file, which option `start` names, and nothing else",
        "this project",
        "tf_placer.placers.heuristics.given:Given",
        config="tf_placer.placers.heuristics.given:GivenConfig",
        needs_start=True,
        granularity="fine",
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
"""The placers of this package by name; `list_placers` adds those of others."""

BASELINES = tuple(name for name, entry in PLACERS.items() if entry.is_baseline)
"""The placers whose proposals live searches measure before those of any other.

A live search has too few trials for a learned placer to find a split by layers from scratch.
"""


def find_placer(name: str) -> PlacerEntry:
    """Finds a placer by its name.

    Args:
        name: one of `PLACERS` or a former name of one, a name that an installed package registers,
            or "module:name"; the first of these that there is.

    Raises:
        ValueError: there is no such placer, in which case the message suggests a similar name; or
            it cannot be imported or is none.
    """
    entry = PLACERS.get(FORMER_PLACERS.get(name, name)) or find_own_placer(name)
    if entry is not None:
        return entry
    known = [*PLACERS, *(point.name for point in list_entry_points())]
    if ":" in name:
        module = name.partition(":")[0]
        raise ValueError(
            f"no placer {quote(name)}{suggest(name, known)}, and Python finds no module "
            f"{quote(module)}: run the command in its directory, or install it"
        )
    raise ValueError(
        f"no placer {quote(name)}{suggest(name, known)}; the placers are: "
        f"{', '.join(sorted(set(known)))}"
    )


def list_placers(say: Callable[[str], None]) -> dict[str, PlacerEntry]:
    """Lists the placers of this package, and those that other installed packages register.

    Args:
        say: called with a line about each registered placer that cannot be used.
    """
    placers = dict(PLACERS)
    for point in list_entry_points():
        if point.name in PLACERS:
            say(
                f"placer {quote(point.name)} of {describe_entry_point(point)} cannot be used: "
                f"tf_placer has a placer of this name; {quote(point.value)} names the other one"
            )
            continue
        try:
            placers[point.name] = find_placer(point.name)
        except ValueError as error:
            say(str(error))
    return placers


def is_learned(name: str) -> bool:
    """Returns whether a placer has a policy that learns, and so needs TensorFlow.

    Returns False for unknown names and for `learned_moves`, which has no policy.
    """
    try:
        return find_placer(name).preset is not None
    except ValueError:
        return False


def needs_problem(name: str) -> bool:
    """Returns whether a placer needs a problem with known costs.

    Args:
        name: see `find_placer`.

    Raises:
        ValueError: there is no such placer.
    """
    return find_placer(name).needs_problem


def find_granularity(name: str, options: Mapping[str, object] | None = None) -> Granularity:
    """Finds the granularity of the groups that a placer places.

    Args:
        name: see `find_placer`.
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
