"""What every search does with a placer: it proposes, that is measured, and it observes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer

__all__ = ["Measured", "propose_and_observe", "proposed"]

#: Placements, int32 [n, num_groups], and what each was measured to be.
Measured = tuple[np.ndarray, Sequence[Measurement]]


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


def propose_and_observe(
    placer: Placer,
    count: Callable[[], int],
    measure: Callable[[np.ndarray], Measured | None],
    *,
    ask: Callable[[Placer, int], np.ndarray] = proposed,
) -> Iterator[None]:
    """Lets a placer propose batches and observe them, until there is nothing more to do.

    Args:
        placer: who proposes and observes.
        count: says how many placements to ask for next; 0 ends the search.
        measure: measures what was proposed, possibly nothing, and returns what the placer is to
            observe; None ends the search.
        ask: asks a placer for so many placements.

    Yields:
        After each batch that the placer has observed.

    Raises:
        ValueError: the placer breaks its contract.
    """
    while (wanted := count()) > 0:
        measured = measure(ask(placer, wanted))
        if measured is None:
            return
        placer.observe(*measured)
        yield
