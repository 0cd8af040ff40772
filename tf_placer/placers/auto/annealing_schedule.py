"""The annealing schedule of the chains of a search."""

from __future__ import annotations

import bisect

from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.chain import ChainParameters

__all__ = ["AnnealingSchedule"]

_MIN_PERTURBATION_MOVES = 2


class AnnealingSchedule:
    """The temperatures and moves of all chains, by the used share of the search.

    Chains first compete by successive halving, then cool slowly, and are then reheated or climb.
    Reheated chains and climbing chains find different placements that single moves do not reach.

    Attributes:
        halving_end: the used share of the search at which successive halving ends, from 0 to 1.
    """

    def __init__(
        self,
        config: AutoConfig,
        *,
        begin: float,
        is_halving: bool,
        is_refinement: bool,
        num_expected: float,
        num_movable: int,
        num_single_moves: int,
    ) -> None:
        """Prepares the schedule.

        Args:
            config: settings of the search.
            begin: the used share of the search when the chains begin.
            is_halving: whether some of the chains will be dropped.
            is_refinement: whether an earlier search found the first placements of the chains, from
                which slow cooling would lead away.
            num_expected: an estimate of the placements that can still be simulated.
            num_movable: the number of groups that are allowed on several devices.
            num_single_moves: the number of different moves of one group.
        """
        self._config, self._is_refinement = config, is_refinement
        self._num_movable, self._num_single_moves = num_movable, num_single_moves
        self.halving_end = begin
        if is_halving:
            left = max(0.0, config.synchronization_points[0] - begin)
            self.halving_end += min(left, config.halving_share * (1.0 - begin))
        # With few moves per group a chain would not recover from a high temperature.
        heat = min(1.0, num_expected / max(1, num_movable))
        self._first_temperature = max(config.first_temperature * heat, config.last_temperature)

    def find_parameters(self, share: float, number: int) -> ChainParameters:
        """Finds the parameters of the next iteration of a chain.

        Args:
            share: the used share of the search, from 0 to 1.
            number: the number of the chain.
        """
        config, points = self._config, self._config.synchronization_points
        if share < self.halving_end:
            return ChainParameters(config.last_temperature, config.coarse_moves)
        coarse_share = config.coarse_moves * min(1.0, 2.0 * (1.0 - share))
        if self._is_refinement:
            share = points[0] + (1.0 - points[0]) * share
        climbs = {"every_other": number % 2 == 1, "none": False, "all": True}[config.climbing]
        if share < points[0]:
            first = self._first_temperature
            cooled = (share - self.halving_end) / (points[0] - self.halving_end)
        elif climbs:
            return ChainParameters(
                config.last_temperature,
                min(coarse_share, config.climbing_coarse_moves),
                patience=self._num_single_moves,
                perturbation_moves=max(
                    _MIN_PERTURBATION_MOVES, int(config.perturbation_share * self._num_movable)
                ),
            )
        else:
            phase = bisect.bisect_right(points, share)
            start, end = points[phase - 1], [*points, 1.0][phase]
            # Temperatures alternate because graphs differ in the distance to the next optimum.
            first = config.reheating_temperatures[phase % len(config.reheating_temperatures)]
            cooled = (share - start) / (end - start)
        cooling = config.last_temperature / first
        return ChainParameters(first * cooling ** min(1.0, cooled), coarse_share)
