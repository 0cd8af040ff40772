"""Graphs to partition, their files for command-line tools of partitioners, and quality measures."""

from __future__ import annotations

import pathlib

import numpy as np

from tf_placer.placers.heuristics.weighted_graph import WeightedGraph

__all__ = ["compute_communication", "compute_loads", "grid", "write_metis", "write_scotch"]


def grid(rows: int, columns: int, num_devices: int, seed: int) -> WeightedGraph:
    """Makes a grid with random weights, for devices of equal power."""
    rng = np.random.default_rng(seed)
    number = np.arange(rows * columns).reshape(rows, columns)
    ends = np.concatenate(
        [
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1),
            np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1),
        ]
    )
    sizes = rng.integers(1, 100, len(ends))
    both = np.concatenate([ends, ends[:, ::-1]])
    order = np.lexsort([both[:, 1], both[:, 0]])
    counts = np.bincount(both[:, 0], minlength=rows * columns)
    return WeightedGraph(
        members=np.arange(rows * columns),
        work=rng.integers(1, 10, rows * columns).astype(np.int32),
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        neighbors=both[order, 1].astype(np.int32),
        edge_bytes=np.concatenate([sizes, sizes])[order],
        powers=np.ones(num_devices),
    )


def compute_communication(graph: WeightedGraph, devices: np.ndarray, costs: np.ndarray) -> float:
    """Sums the bytes of the edges times the cost of the cheapest route between their ends."""
    cheapest = costs.astype(np.float64)
    for between in range(len(costs)):
        routes = cheapest[:, between : between + 1] + cheapest[between : between + 1]
        cheapest = np.minimum(cheapest, routes)
    sources = np.repeat(np.arange(graph.num_nodes), np.diff(graph.start))
    routes = cheapest[devices[sources], devices[graph.neighbors]]
    return float((graph.edge_bytes * routes).sum() / 2)


def compute_loads(graph: WeightedGraph, devices: np.ndarray) -> np.ndarray:
    """Computes the work of each device relative to its fair share, float64 [num_devices]."""
    work = np.bincount(devices, graph.work, minlength=len(graph.powers))
    return work / graph.work.sum() * graph.powers.sum() / graph.powers


def write_metis(graph: WeightedGraph, path: pathlib.Path) -> None:
    """Writes a graph in the format of gpmetis, whose nodes are counted from 1."""
    lines = [f"{graph.num_nodes} {len(graph.neighbors) // 2} 011"]
    for node, ends in enumerate(_rows(graph.start)):
        pairs = [(graph.neighbors[k] + 1, graph.edge_bytes[k]) for k in ends]
        lines.append(" ".join(map(str, [graph.work[node], *sum(pairs, ())])))
    path.write_text("\n".join(lines) + "\n")


def write_scotch(
    path: pathlib.Path,
    start: np.ndarray,
    neighbors: np.ndarray,
    weights: np.ndarray,
    edges: np.ndarray,
) -> None:
    """Writes a graph with weights in the format of the tools of Scotch."""
    lines = ["0", f"{len(weights)} {len(neighbors)}", "0 011"]
    for node, ends in enumerate(_rows(start)):
        pairs = [(edges[k], neighbors[k]) for k in ends]
        lines.append(" ".join(map(str, [weights[node], len(ends), *sum(pairs, ())])))
    path.write_text("\n".join(lines) + "\n")


def _rows(start: np.ndarray) -> list[range]:
    return [range(a, b) for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)]
