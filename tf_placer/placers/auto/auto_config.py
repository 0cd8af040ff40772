"""The settings of the search in simulation."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Annotated, Literal

from tf_placer.placers.validators import check_fields

__all__ = ["AutoConfig"]


@dataclasses.dataclass(frozen=True)
class AutoConfig:
    """Settings of `auto`, each with its line of help.

    Shares of a search are of the time, or of the placements, that it may take; temperatures are
    shares of the step time.

    Raises:
        ValueError: a number is outside its range.
    """

    start: Annotated[str | None, "a placement to start from, too: a file (.json)"] = None
    search_secs: Annotated[float, "seconds for all searches in simulation together, at most"] = 60.0
    search_share: Annotated[float, "share of the time left to search for them, at most"] = 0.5
    rounds: Annotated[int, "searches in simulation at most, each with corrected costs"] = 4
    first_share: Annotated[float, "share of the budget for the first search"] = 1 / 2
    later_share: Annotated[float, "share of the budget for each later search"] = 1 / 6
    first_candidates: Annotated[int, "placements of the first search to measure"] = 6
    later_candidates: Annotated[int, "placements of a later search to measure"] = 3
    least_difference: Annotated[
        float, "share of the work in which two placements to measure differ at least"
    ] = 0.02
    deviations: Annotated[
        float, "by how many deviations costs may be wrong for a placement to be worth measuring"
    ] = 2.0
    least_deviation: Annotated[
        float, "deviation of costs that a few measurements confirm by chance"
    ] = 0.05
    coarse_budget: Annotated[float, "share of a search for the one with coarse groups, at most"] = (
        0.4
    )
    coarse_placements: Annotated[
        int, "placements to simulate in that for each coarse group, at most"
    ] = 25
    starts: Annotated[Literal["all", "single_device"], "heuristics that a search starts from"] = (
        "all"
    )
    starts_share: Annotated[float, "share of a search that simulating the starts may take"] = 0.25
    halving_starts: Annotated[
        int, "heuristics whose best starts begin successive halving, if there are fewer chains"
    ] = 4
    halving_share: Annotated[
        float, "share of what the starts leave of a search for successive halving"
    ] = 0.1
    exhaustive_share: Annotated[
        float, "share of the time left that trying all promising placements may take"
    ] = 0.8
    first_temperature: Annotated[float, "temperature when a chain begins to cool"] = 0.005
    last_temperature: Annotated[float, "temperature when it ends, and of chains that climb"] = 2e-5
    reheating_temperatures: Annotated[
        tuple[float, ...], "temperatures to which a chain is reheated, alternately"
    ] = (0.003, 0.0006)
    synchronization_points: Annotated[
        tuple[float, ...], "shares of a search after which all chains restart from the best"
    ] = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    climbing: Annotated[
        Literal["every_other", "none", "all"],
        "chains that climb after the first synchronization point",
    ] = "every_other"
    perturbation_share: Annotated[
        float, "share of groups that a perturbation moves where climbing gets stuck"
    ] = 0.03
    clusters: Annotated[
        tuple[int, ...], "numbers of clusters that METIS cuts a graph without coarse groups into"
    ] = (32, 128, 512)
    coarse_moves: Annotated[float, "share of moves of whole clusters at first; later none"] = 0.9
    climbing_coarse_moves: Annotated[float, "the same of chains that climb, at most"] = 0.3
    critical_path: Annotated[bool, "whether most moves start from the critical path"] = True

    def __post_init__(self) -> None:
        if self.start is not None and not self.start.endswith(".json"):
            raise ValueError(f"start must be a file (.json), not {self.start!r}")
        shares = (
            *("search_share", "first_share", "later_share", "least_difference", "coarse_budget"),
            *(
                "starts_share",
                "halving_share",
                "exhaustive_share",
                "perturbation_share",
                "coarse_moves",
            ),
            "climbing_coarse_moves",
        )
        check_fields(self, shares, lambda share: 0.0 <= share <= 1.0, "from 0 to 1")
        positive = ("search_secs", "first_temperature", "last_temperature")
        check_fields(self, positive, lambda number: 0.0 < number < math.inf, "positive")
        counts = (
            *("rounds", "first_candidates", "later_candidates", "halving_starts"),
            "coarse_placements",
        )
        check_fields(self, counts, lambda count: count >= 1, "at least 1")
        deviations = ("deviations", "least_deviation")
        check_fields(self, deviations, lambda number: 0.0 <= number < math.inf, "0 or more")
        if not self.reheating_temperatures or not min(self.reheating_temperatures) > 0.0:
            raise ValueError(
                f"reheating_temperatures must be positive, not {self.reheating_temperatures}"
            )
        points = self.synchronization_points
        pairs = itertools.pairwise((0.0, *points, 1.0))
        if not points or not all(first < second for first, second in pairs):
            raise ValueError(f"synchronization_points must rise between 0 and 1, not {points}")
        if any(count < 2 for count in self.clusters):
            raise ValueError(f"clusters must be at least 2 each, not {self.clusters}")
