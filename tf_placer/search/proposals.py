"""The batches of one placer, which observes each before it proposes the next."""

from __future__ import annotations

import collections
import contextlib
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.errors import SearchError
from tf_placer.placers.own_placers import describe_cause, find_own_frames
from tf_placer.placers.placer import Placer
from tf_placer.placers.registry import PLACERS
from tf_placer.search.batches import SampledBatch
from tf_placer.search.replay import build_observation, complete_batch, index_by_position
from tf_placer.search.trial_log import Trial

__all__ = ["PlacerBatches", "propose_checked"]


def propose_checked(placer: Placer, count: int) -> np.ndarray:
    """Asks a placer for placements, and checks its proposal.

    Args:
        placer: the placer.
        count: the maximum number of placements.

    Returns:
        int32 [n, num_groups]; n is 0 if the placer has nothing more to propose.

    Raises:
        SearchError: a placer of the user raises an error, or the placer breaks its contract.
    """
    with _name_own_placer(placer, "propose"):
        proposal = np.asarray(placer.propose(count))
    if not proposal.size:
        return np.zeros([0, placer.groups.num_groups], np.int32)
    num_groups, num_devices = placer.legal.shape
    if proposal.ndim != 2 or len(proposal) > count or proposal.shape[1] != num_groups:
        raise SearchError(
            f"placer {placer.name!r} was asked for up to {count} placements of {num_groups} groups "
            f"and proposed an array of shape {proposal.shape}"
        )
    if not np.issubdtype(proposal.dtype, np.integer):
        raise SearchError(
            f"placer {placer.name!r} proposed an array of {proposal.dtype}: devices are whole "
            "numbers, the indices of the columns of legal"
        )
    rows = proposal.astype(np.int32, copy=False)
    exists = (rows >= 0) & (rows < num_devices)
    is_legal = exists & placer.legal[np.arange(num_groups), np.where(exists, rows, 0)]
    if not is_legal.all():
        row, group = np.argwhere(~is_legal)[0]
        legal = ", ".join(map(str, np.flatnonzero(placer.legal[group])))
        raise SearchError(
            f"placer {placer.name!r} proposed device {rows[row, group]} for group "
            f"{placer.groups.names[group]!r}, which may go to {legal} only"
        )
    return rows


@contextlib.contextmanager
def _name_own_placer(placer: Placer, method: str) -> Iterator[None]:
    """Raises an error of a placer of the user as a SearchError that names the placer and line.

    A note on it has the traceback of the placer, which the command line prints before the error.
    """
    try:
        yield
    except Exception as error:
        if placer.name in PLACERS:
            raise
        failed = SearchError(f"placer {placer.name!r} failed in {method}: {describe_cause(error)}")
        lines = traceback.format_list(find_own_frames(error))
        failed.add_note(
            "".join(["Traceback of the placer (most recent call last):\n", *lines]).rstrip()
        )
        raise failed from error


class PlacerBatches:
    """The batches of a placer, which observes each before it proposes the next; see `BatchSource`.

    The placer first observes the batches of the log again.
    """

    # The placer proposes nothing before the whole batch is measured, so there is nothing to poll.
    poll_secs = math.inf

    def __init__(
        self,
        placer: Placer,
        logged: Sequence[Sequence[Trial]],
        *,
        is_past: bool,
        min_count: Callable[[], int],
        propose: Callable[[Placer, int], np.ndarray],
        observed: Callable[[Placer], None],
    ) -> None:
        """Makes the source, and asks the placer for nothing yet.

        Args:
            placer: the placer, which has observed nothing.
            logged: the batches of the placer in the log. The last one may be incomplete, unless
                `is_past`.
            is_past: whether the log shows that the placer has finished.
            min_count: returns the minimum number of placements to ask for.
            propose: asks a placer for at most the given number of placements.
            observed: called with the placer when it has observed a batch.
        """
        self._placer = placer
        # The last batch of the log may be incomplete; all earlier ones are observed first.
        self._history = collections.deque(logged if is_past else logged[:-1])
        self._logged = index_by_position(logged[-1]) if logged and not is_past else {}
        self._is_past = is_past
        self._min_count, self._propose, self._observed = min_count, propose, observed
        self._num_observed = 0
        self._batch: SampledBatch | None = None
        self._logged_measurements: Mapping[int, Measurement] = {}

    def sample(self, is_busy: bool) -> list[SampledBatch] | None:
        """Returns the next batch once the last one was observed; see `BatchSource.sample`."""
        if self._history:
            self._observe(*build_observation(self._history.popleft()))
            return []
        if self._is_past:
            return None
        if self._batch is not None:
            return []
        # Ask for a whole batch even if the budget has no room for it, so that a search resumed with
        # a larger budget completes the same batch.
        logged_end = max(self._logged, default=-1) + 1
        count = max(self._placer.batch_size, self._min_count(), logged_end)
        placements = self._propose(self._placer, count)
        if self._logged:
            placements = self._merge_logged(placements)
        if not placements.size:
            return None
        self._batch = SampledBatch(0, self._num_observed, 0, placements)
        return [self._batch]

    def find_logged(self, batch: SampledBatch) -> Mapping[int, Measurement]:
        """Finds the measurements of a batch in the log; see `BatchSource.find_logged`."""
        return self._logged_measurements

    def observe(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Lets the placer observe a batch; see `BatchSource.observe`."""
        self._batch, self._logged_measurements, self._logged = None, {}, {}
        self._observe(batch.placements, measurements)

    def settle(self) -> None:
        """Does nothing: a placer learns while it observes; see `BatchSource.settle`."""

    def _observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        with _name_own_placer(self._placer, "observe"):
            self._placer.observe(placements, measurements)
        self._num_observed += 1
        self._observed(self._placer)

    def _merge_logged(self, proposal: np.ndarray) -> np.ndarray:
        """Merges the logged placements of a batch into the repeated proposal of the placer."""
        rows = [tuple(row) for row in proposal.tolist()]
        assignments = complete_batch(self._placer, self._num_observed, self._logged, rows)
        self._logged_measurements = {
            number: self._logged[position].measurement
            for number, position in enumerate(assignments)
            if position in self._logged
        }
        return np.array(list(assignments.values()), np.int32)
