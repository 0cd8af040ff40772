"""Operations that take elements of one stream in no order."""

from __future__ import annotations

import dataclasses
import itertools

from graph_passes.op_graph import OpGraph
from graph_passes.order import find_order
from graph_passes.shared_resources import find_resources

__all__ = ["UnorderedTakes", "find_unordered_takes"]

_TAKERS = frozenset(
    [
        *("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"),
        *("QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo"),
        *("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"),
        *("ReaderRead", "ReaderReadUpTo", "ReaderReadV2", "ReaderReadUpToV2"),
    ]
)
_FORWARDS = frozenset(["Identity", "RefIdentity"])


@dataclasses.dataclass(frozen=True)
class UnorderedTakes:
    """Operations of a step that take elements of one stream, some of them in no order.

    Which of them gets which element is a matter of chance, as of towers that take their batches
    from one iterator.

    Attributes:
        stream: the operation that holds the iterator, queue or reader; the first, if several share
            it by name.
        takers: the operations, in the order of the graph.
    """

    stream: int
    takers: tuple[int, ...]


def find_unordered_takes(graph: OpGraph) -> list[UnorderedTakes]:
    """Finds the streams from which a step takes several elements in no order.

    Args:
        graph: the graph, with the operations of the step marked as needed.

    Returns:
        Each such stream, in the order of their first takers. Takers inside of functions are not
        found.
    """
    is_taker = graph.has_type(_TAKERS) & graph.needed
    takers: dict[int, list[int]] = {}
    for taker in sorted(is_taker.nonzero()[0].tolist(), key=lambda i: graph.position[i]):
        takers.setdefault(_find_stream(graph, taker), []).append(taker)
    if len(takers) > 1:
        shared: dict[int, int] = {}
        for handles in find_resources(graph).values():
            shared |= {handle: handles[0] for handle in handles if handle in takers}
        joined: dict[int, list[int]] = {}
        for stream, each in takers.items():
            joined.setdefault(shared.get(stream, stream), []).extend(each)
        takers = joined
    several = {stream: each for stream, each in takers.items() if len(each) > 1}
    bit = {taker: 1 << k for k, taker in enumerate(itertools.chain(*several.values()))}
    if not bit:
        return []
    before, _ = find_order(graph, bit)
    found = []
    for stream, each in several.items():
        # If all takes are ordered, then each precedes the next in topological order.
        in_order = sorted(each, key=lambda taker: graph.position[taker])
        if not all(before[a] & bit[b] for a, b in itertools.pairwise(in_order)):
            found.append(UnorderedTakes(stream, tuple(sorted(each))))
    return found


def _find_stream(graph: OpGraph, taker: int) -> int:
    """Finds the operation whose stream an operation takes from, by its first input."""
    stream = graph.producers[taker][0]
    while graph.type_of(stream) in _FORWARDS:
        stream = graph.producers[stream][0]
    return stream
