"""Placers as users write them, right and wrong ones."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from tf_placer.placers import Placer, PlacerEntry
from tf_placer.placers.heuristics.candidate_list import CandidateList


class LastDevice(CandidateList):
    """Everything on the last device.

    This is no part of the summary.
    """

    name = "the registry's name counts"

    def __init__(self, groups, legal, *, seed=0):
        # A generator, so that the arguments are checked before the placement is made.
        rows = (np.full(groups.num_groups, legal.shape[1] - 1) for _ in range(1))
        super().__init__(groups, legal, seed=seed, candidates=rows)


@dataclasses.dataclass(frozen=True)
class Shift:
    """Settings."""

    shift: Annotated[int, "devices to skip"] = 1


class Shifted(CandidateList):
    def __init__(self, groups, legal, *, seed=0, config: Shift | None = None, problem):
        self.problem = problem
        rows = [np.full(groups.num_groups, (config or Shift()).shift)]
        super().__init__(groups, legal, seed=seed, candidates=rows)


class WithoutBase:
    """A class of something else."""


class WithoutPropose(Placer):
    def observe(self, placements, measurements): ...


class Fails(LastDevice):
    def __init__(self, groups, legal, *, seed=0):
        raise KeyError("nothing there")


class WithoutSuper(LastDevice):
    def __init__(self, groups, legal, *, seed=0): ...


class FailsToPropose(LastDevice):
    def propose(self, count):
        return self._look_up({})

    def _look_up(self, table):
        return table["oops"]


class Halves(LastDevice):
    def propose(self, count):
        return super().propose(count) + 0.5


class Unannotated(LastDevice):
    def __init__(self, groups, legal, *, seed=0, config=None): ...


def make_last_device(groups, legal, *, seed=0):
    """Makes a placer."""
    return LastDevice(groups, legal, seed=seed)


def make_text(groups, legal, *, seed=0):
    return "a placer"


ENTRY = PlacerEntry(
    "another name", "a summary", "a book", f"{__name__}:LastDevice", granularity="fine"
)
NUMBER = 5
