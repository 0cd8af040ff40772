"""Lines through a graph: what has the same place in every period, whatever its name.

An unrolled network is a grid of cells, layers times steps, and nothing in its numbers tells the one
direction from the other. Its shape does: where a -> b -> d and a -> c -> d, the edges a -> b and
c -> d lead in the same direction, and so do a -> c and b -> d. Edges that are joined by such
squares are a *class*: all edges from one layer to the next one are, and so are those from one step
to the next. What is left when the largest classes are taken out of the graph are its lines: few,
and long. Towers that share nothing but parameters are lines, too.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["bands_of_lines", "chains", "longest_ways", "parallel_lines"]

# What has more inputs or outputs is a line of its own: parameters are read everywhere.
_MOST_ENDS = 8
# Of the ways of two edges between the same two ends, so many that follow each other are compared.
_MOST_WAYS = 4
# Numbers of lines that are few enough to be cut, or moved, as a whole.
_MOST_LINES = (1024, 256, 64, 16)


def parallel_lines(groups: GroupGraph) -> list[np.ndarray]:
    """Finds lines of groups along which a graph repeats itself.

    Args:
        groups: the graph of groups. It may have circles.

    Returns:
        int64 [num_groups] each, the line of every group, from 0 without gaps; fewer lines each
        time, at most 1024 and at least two. None where nothing is repeated. Edges are all that
        matters: neither names nor numbers change what is found.

    References:
        Winkler, Isometric Embedding in Products of Complete Graphs, Discrete Applied Mathematics
        7, 1984: edges on the opposite sides of squares.
    """
    chain_of, count = chains(groups)
    edges = np.unique(chain_of[groups.edges.astype(np.int64)].reshape(-1, 2), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    is_few = _ends(edges, count) <= _MOST_ENDS
    edges = edges[is_few[edges].all(axis=1)]
    classes = _classes(edges, count)
    sizes = np.bincount(classes)[classes]
    found: list[np.ndarray] = []
    wanted = iter(_MOST_LINES)
    most = next(wanted)
    # The lines grow as larger classes stay in the graph. What is read everywhere never does, so
    # there may be many lines even with all classes.
    for size in np.unique(sizes).tolist():
        num_lines, line_of = _components(edges[sizes <= size], count)
        if num_lines < 2:
            break
        if num_lines <= most:
            found.append(line_of[chain_of])
            smaller = (limit for limit in wanted if limit < num_lines)
            most = next(smaller, 1)
    return found


def bands_of_lines(lines: np.ndarray, when: np.ndarray) -> np.ndarray:
    """Puts lines together that are there at the same time.

    Args:
        lines: int64 [num_groups], the line of each group, from 0 without gaps.
        when: float64 [num_groups], when each group is over, from whenever on that is counted.

    Returns:
        int64 [num_lines], the band of each line, from 0. A line is of a band if its middle is
        before the end of the line that began the band.
    """
    count = int(lines.max()) + 1
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, lines, when)
    np.maximum.at(last, lines, when)
    middle = ((first + last) / 2).tolist()
    bands = np.empty(count, np.int64)
    band, end = -1, -np.inf
    for line in np.argsort(first, kind="stable").tolist():
        if middle[line] > end:
            band, end = band + 1, last[line]
        bands[line] = band
    return bands


def chains(groups: GroupGraph) -> tuple[np.ndarray, int]:
    """Joins groups one of which sends to the other alone, which receives from it alone.

    Returns:
        int64 [num_groups], the chain of each group, from 0 without gaps, and how many chains.
    """
    count = groups.num_groups
    sources, targets = groups.edges.astype(np.int64).T
    num_outputs = np.bincount(sources, minlength=count)
    num_inputs = np.bincount(targets, minlength=count)
    joined = (num_outputs[sources] == 1) & (num_inputs[targets] == 1)
    num_chains, chain_of = _components(groups.edges[joined], count)
    return chain_of, num_chains


def longest_ways(groups: GroupGraph, rest_secs: np.ndarray) -> np.ndarray:
    """Takes a graph apart into ways, each of which goes on where most is still to come.

    Args:
        groups: the graph of groups.
        rest_secs: float64 [num_groups], how long the step goes on at least once a group begins.

    Returns:
        int64 [num_groups], the way of each group, from 0 without gaps.
    """
    edges = groups.edges.astype(np.int64)
    # Of those that a group sends to the one with the longest rest; of several groups that send to
    # one, that with the longest itself.
    for own, other in ((0, 1), (1, 0)):
        edges = edges[np.lexsort([-rest_secs[edges[:, other]], edges[:, own]])]
        edges = edges[np.unique(edges[:, own], return_index=True)[1]]
    return _components(edges, groups.num_groups)[1]


def _ends(edges: np.ndarray, count: int) -> np.ndarray:
    """Counts the inputs or the outputs of each node, whichever are more, int64 [count]."""
    counts = [np.bincount(ends, minlength=count) for ends in edges.T]
    return np.maximum(*counts)


def _classes(edges: np.ndarray, count: int) -> np.ndarray:
    """Finds the class of each edge, int64 [num_edges].

    Args:
        edges: int64 [num_edges, 2], sorted, none twice.
        count: how many nodes there are.
    """
    sources, targets = edges.T
    num_outputs = np.bincount(sources, minlength=count)
    first_output = np.searchsorted(sources, np.arange(count + 1))
    # All ways of two edges, by their ends.
    counts = num_outputs[targets]
    starts = np.cumsum(counts) - counts
    one = np.repeat(np.arange(len(edges)), counts)
    other = first_output[targets[one]] + np.arange(counts.sum()) - np.repeat(starts, counts)
    ends = sources[one] * np.int64(count) + targets[other]
    order = np.argsort(ends, kind="stable")
    ends, one, other = ends[order], one[order], other[order]
    pairs = [np.zeros([0, 2], np.int64)]
    for distance in range(1, _MOST_WAYS):
        at = np.flatnonzero(ends[distance:] == ends[:-distance])
        pairs.append(np.stack([one[at], other[at + distance]], axis=1))
        pairs.append(np.stack([other[at], one[at + distance]], axis=1))
    return _components(np.concatenate(pairs), len(edges))[1]


def _components(edges: np.ndarray, count: int) -> tuple[int, np.ndarray]:
    """Finds what is connected: how many parts, and int64 [count], the part of each node."""
    ones = np.ones(len(edges), np.bool_)
    matrix = coo_matrix((ones, (edges[:, 0], edges[:, 1])), shape=(count, count))
    number, part_of = connected_components(matrix, directed=False)
    return int(number), part_of.astype(np.int64)
