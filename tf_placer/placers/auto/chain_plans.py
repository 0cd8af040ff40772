"""What chains do at each moment of a search."""

from __future__ import annotations

import bisect

from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.chain import ChainPlan

__all__ = ["ChainPlans"]

# How many groups at least a chain that got stuck moves at once.
_LEAST_KICK = 2


class ChainPlans:
    """Plans what chains do: they race, cool down slowly, and then cool down again or climb.

    What is out of the reach of single moves is found by the one kind of chain or by the other.

    Attributes:
        race_end: after which share of the search the race is over, from 0 to 1.
    """

    def __init__(
        self,
        config: AutoConfig,
        *,
        begin: float,
        is_race: bool,
        is_refinement: bool,
        num_expected: float,
        num_movable: int,
        num_single_moves: int,
    ) -> None:
        """Begins to plan.

        Args:
            config: how to search.
            begin: which share of the search is over when chains begin.
            is_race: whether there are more chains than will go on.
            is_refinement: whether an earlier search has found where the chains begin, which a long
                cooling would lead away from.
            num_expected: how many placements can still be simulated, about.
            num_movable: how many groups may go elsewhere.
            num_single_moves: how many ways there are to move one group.
        """
        self._config, self._is_refinement = config, is_refinement
        self._num_movable, self._num_single_moves = num_movable, num_single_moves
        self.race_end = begin
        if is_race:
            left = max(0.0, config.meetings[0] - begin)
            self.race_end += min(left, config.race_share * (1.0 - begin))
        # Too few moves to come back from where great heat leads: it begins cooler.
        heat = min(1.0, num_expected / max(1, num_movable))
        self._first_temperature = max(config.first_temperature * heat, config.last_temperature)

    def plan(self, share: float, number: int) -> ChainPlan:
        """Plans what a chain does next.

        Args:
            share: of the search that is over, from 0 to 1.
            number: of the chain.
        """
        config, meetings = self._config, self._config.meetings
        if share < self.race_end:
            return ChainPlan(config.last_temperature, config.coarse_moves)
        coarse_share = config.coarse_moves * min(1.0, 2.0 * (1.0 - share))
        if self._is_refinement:
            share = meetings[0] + (1.0 - meetings[0]) * share
        climbs = {"every_other": number % 2 == 1, "none": False, "all": True}[config.climbing]
        if share < meetings[0]:
            first = self._first_temperature
            cooled = (share - self.race_end) / (meetings[0] - self.race_end)
        elif climbs:
            return ChainPlan(
                config.last_temperature,
                min(coarse_share, config.climbing_coarse_moves),
                patience=self._num_single_moves,
                kick=max(_LEAST_KICK, int(config.kick_share * self._num_movable)),
            )
        else:
            phase = bisect.bisect_right(meetings, share)
            start, end = meetings[phase - 1], [*meetings, 1.0][phase]
            # How far the next optimum is differs from graph to graph.
            first = config.again_temperatures[phase % len(config.again_temperatures)]
            cooled = (share - start) / (end - start)
        cooling = config.last_temperature / first
        return ChainPlan(first * cooling ** min(1.0, cooled), coarse_share)
