"""The batches of one placer: it proposes, that is measured, and it observes."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer
from tf_placer.search.batches import SampledBatch
from tf_placer.search.replay import as_measured, by_position, complete
from tf_placer.search.trial_log import Trial

__all__ = ["PlacerBatches", "proposed"]


def proposed(placer: Placer, count: int) -> np.ndarray:
    """Asks a placer for placements, and checks that they are no more than it was asked for.

    Args:
        placer: who proposes.
        count: how many placements at most.

    Returns:
        int32 [n, num_groups]; n is 0 if it has nothing more to propose.

    Raises:
        ValueError: the placer breaks its contract.
    """
    proposal = np.asarray(placer.propose(count))
    if proposal.size and (proposal.ndim != 2 or len(proposal) > count):
        raise ValueError(
            f"placer {placer.name!r} was asked for up to {count} placements and proposed an array "
            f"of shape {proposal.shape}"
        )
    return proposal.astype(np.int32, copy=False)


class PlacerBatches:
    """The batches of a placer, each after it has observed the one before; see `Batches`.

    Those that the log has come first: the placer observes them again.
    """

    # Until a batch is measured nothing happens.
    look_secs = math.inf

    def __init__(
        self,
        placer: Placer,
        logged: Sequence[Sequence[Trial]],
        *,
        is_past: bool,
        least: Callable[[], int],
        ask: Callable[[Placer, int], np.ndarray],
        observed: Callable[[Placer], None],
    ) -> None:
        """Asks nothing yet.

        Args:
            placer: who proposes; it has observed nothing.
            logged: its batches in the log. The last one may lack placements, unless `is_past`.
            is_past: whether the log shows that it proposes nothing more.
            least: says how many placements to ask for at least.
            ask: asks a placer for so many placements.
            observed: called when it has observed a batch.
        """
        self._placer = placer
        # The last batch of the log may lack placements; all before it is history.
        self._history = collections.deque(logged if is_past else logged[:-1])
        self._logged = by_position(logged[-1]) if logged and not is_past else {}
        self._is_past = is_past
        self._least, self._ask, self._observed = least, ask, observed
        self._num_observed = 0
        self._batch: SampledBatch | None = None
        self._known: Mapping[int, Measurement] = {}

    def sample(self, is_busy: bool) -> list[SampledBatch] | None:
        """Gives the next batch once the one before was observed; see `Batches.sample`."""
        if self._history:
            self._learn(*as_measured(self._history.popleft()))
            return []
        if self._is_past:
            return None
        if self._batch is not None:
            return []
        # The whole batch even where the budget has no room for it: so a search that goes on with a
        # larger budget completes the same batch.
        logged_end = max(self._logged, default=-1) + 1
        count = max(self._placer.batch_size, self._least(), logged_end)
        placements = self._ask(self._placer, count)
        if self._logged:
            placements = self._completed(placements)
        if not placements.size:
            return None
        self._batch = SampledBatch(0, self._num_observed, 0, placements)
        return [self._batch]

    def known(self, batch: SampledBatch) -> Mapping[int, Measurement]:
        """Says what the log has of a batch; see `Batches.known`."""
        return self._known

    def observe(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Lets the placer observe a batch; see `Batches.observe`."""
        self._batch, self._known, self._logged = None, {}, {}
        self._learn(batch.placements, measurements)

    def settle(self) -> None:
        """Does nothing: all was learned when it was observed; see `Batches.settle`."""

    def _learn(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        self._placer.observe(placements, measurements)
        self._num_observed += 1
        self._observed(self._placer)

    def _completed(self, proposal: np.ndarray) -> np.ndarray:
        """Puts what the log has of a batch to what was proposed (again) for it."""
        rows = [tuple(row) for row in proposal.tolist()]
        assignments = complete(self._placer, self._num_observed, self._logged, rows)
        self._known = {
            number: self._logged[place].measurement
            for number, place in enumerate(assignments)
            if place in self._logged
        }
        return np.array(list(assignments.values()), np.int32)
