"""A lower bound of the step of a data-parallel training, beside which placements are judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import networkx as nx
import numpy as np

from graph_passes.op_types import VARIABLES
from tf_placer.machines.machine import Link
from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["compute_data_parallel_bound", "count_gradient_bytes"]

_UPDATES = ("Apply", "SparseApply", "ResourceApply", "ResourceSparseApply")
# The optimizers of Keras 3 update variables by plain assignments: most subtract and add to slots,
# momentum and Adadelta add. Metrics and the number of the step, which are scalars, are added to.
_PLAIN_UPDATES = ("AssignSubVariableOp", "AssignAddVariableOp")
_MAX_COUNTER_BYTES = 8


def compute_data_parallel_bound(
    problem: PlacementProblem, one_device_secs: np.ndarray, one_device_bytes: np.ndarray
) -> float | None:
    """Bounds the step of data-parallel training on all accelerators of a problem from below.

    Each of n accelerators holds the whole model and computes with a share s_i of the batch: 1/n, or
    more on a faster accelerator. A step with the whole batch takes t_i seconds on accelerator i. Of
    these, the launches of operations and the updates of variables take f_i as long as they are
    known (see `ProblemDevice.fixed_secs`), and do not shrink with the batch; no other operation
    takes less than its share, because the reading of weights does not shrink either. The best
    shares, which add up to 1, make the largest f_i + s_i (t_i - f_i) as small as it can be. If the
    batch is known to have b examples, each accelerator gets a whole number of them, and n is at
    most b. To sum up G bytes of gradients, 2 (n - 1) G bytes must be sent, as a ring all-reduce
    does, over channels that carry B bytes per second together; and G bytes must leave and reach
    each part P of the accelerators, over channels that carry B_P bytes per second in that
    direction. Computing and sending may overlap, so that

        step >= max(f_i + s_i (t_i - f_i), 2 (n - 1) G / B, G / B_P).

    The parts are single accelerators, those that share a channel, and those that faster links
    connect, as the GPUs of a computer share its network. Latencies are left out: the bound is
    optimistic. It assumes that the batch can be divided so, and memory beside variables with it.

    Args:
        problem: the problem of a training step with the whole batch.
        one_device_secs: float64 [num_accelerators], the step on each accelerator with the whole
            batch.
        one_device_bytes: int64 [num_accelerators], the peak memory there.

    Returns:
        The bound in seconds. None if the problem does not tell which operations update variables,
        as of a graph that does not train; if there is only one accelerator; or if the model with a
        share of the batch does not fit on each of them.

    References:
        Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations,
        Journal of Parallel and Distributed Computing 69, 2009.
    """
    accelerators = find_accelerators(problem)
    gradient_bytes = count_gradient_bytes(problem)
    if len(accelerators) == 1 or gradient_bytes == 0:
        return None
    devices = [problem.devices[index] for index in accelerators]
    fixed_secs = np.array([device.fixed_secs / device.slots for device in devices])
    fixed_secs = np.minimum(fixed_secs, one_device_secs)
    shares = _divide_batch(fixed_secs, one_device_secs - fixed_secs, problem.batch_size)
    resident_bytes = problem.resident_bytes.sum()
    batch_bytes = shares * (one_device_bytes - resident_bytes)
    memory_bytes = np.array([device.memory_bytes for device in devices])
    used = shares > 0
    if (resident_bytes + batch_bytes > memory_bytes)[used].any():
        return None
    names = [problem.devices[index].name for index in accelerators[used]]
    computing_secs = float((fixed_secs + shares * (one_device_secs - fixed_secs))[used].max())
    if len(names) == 1:
        return computing_secs
    return max(computing_secs, gradient_bytes * _compute_exchange_bound(problem, names))


def _divide_batch(
    fixed_secs: np.ndarray, batch_secs: np.ndarray, batch_size: int | None
) -> np.ndarray:
    """Divides a batch so that the accelerators end as early as they can.

    Args:
        fixed_secs: float64 [num_accelerators], the seconds that any share takes.
        batch_secs: float64 [num_accelerators], the seconds that the whole batch takes beside them.
        batch_size: the number of examples; None to divide the batch into any shares.

    Returns:
        float64 [num_accelerators], the share of each accelerator; they add up to 1.
    """
    secs = np.maximum(batch_secs, 1e-300)
    # Relative speeds keep the result for equal accelerators exact.
    speeds = secs.min() / secs
    by_fixed = np.argsort(fixed_secs, kind="stable")
    shares = np.zeros(len(secs))
    for count in range(len(secs), 0, -1):
        # The accelerators that any share takes longest are used only if the others end later.
        used = by_fixed[:count]
        ahead = speeds[used] * (fixed_secs[used].max() - fixed_secs[used]) / secs.min()
        if ahead.sum() <= 1.0 or count == 1:
            shares[used] = ahead + (1.0 - ahead.sum()) * (speeds[used] / speeds[used].sum())
            break
    if batch_size is None:
        return shares
    counts = np.floor(batch_size * shares)
    while counts.sum() < batch_size:
        counts[np.argmin(fixed_secs + (counts + 1) / batch_size * secs)] += 1
    return counts / batch_size


def count_gradient_bytes(problem: PlacementProblem) -> int:
    """Adds up the gradients that update variables: the largest tensor that each update reads.

    Returns:
        The bytes; 0 if the problem has no types of operations, or no updates.
    """
    types = problem.operation_types or ()
    if updates := [index for index, name in enumerate(types) if name.startswith(_UPDATES)]:
        return int(_find_largest_inputs(problem, updates).sum())
    for update in _PLAIN_UPDATES:
        updates = [index for index, name in enumerate(types) if name == update]
        largest = _find_largest_inputs(problem, updates)
        if gradient_bytes := int(largest[largest > _MAX_COUNTER_BYTES].sum()):
            return gradient_bytes
    return 0


def _find_largest_inputs(problem: PlacementProblem, updates: list[int]) -> np.ndarray:
    """Finds the bytes of the largest tensor that each update reads, int64 [num_operations]."""
    types = problem.operation_types or ()
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    # An update of TensorFlow 1 also reads the variable and the state of the optimizer.
    is_variable = np.array([name in VARIABLES for name in types], bool)
    is_gradient = np.isin(problem.consumers, updates)
    if is_gradient.any():
        is_gradient &= ~is_variable[problem.tensor_producers[tensors]]
    largest = np.zeros(problem.num_operations, np.int64)
    np.maximum.at(
        largest, problem.consumers[is_gradient], problem.tensor_bytes[tensors[is_gradient]]
    )
    return largest


def _compute_exchange_bound(problem: PlacementProblem, names: Sequence[str]) -> float:
    """Bounds the time in which some accelerators sum up gradients, in seconds per byte."""
    links = [each for each in problem.links if {each.source, each.destination} <= {*names}]
    secs = 2 * (len(names) - 1) / _sum_bandwidths(links)
    for part in _list_parts(links, names):
        leaving = [each for each in links if each.source in part and each.destination not in part]
        reaching = [each for each in links if each.source not in part and each.destination in part]
        # One channel may carry both directions.
        both = 2 / _sum_bandwidths(leaving + reaching)
        secs = max(secs, 1 / _sum_bandwidths(leaving), 1 / _sum_bandwidths(reaching), both)
    return secs


def _list_parts(links: Sequence[Link], names: Sequence[str]) -> set[frozenset[str]]:
    """Lists parts of accelerators that may have little bandwidth to the others."""
    parts = {frozenset({name}) for name in names}
    for channel in {each.channel for each in links} - {None}:
        of_channel = [each for each in links if each.channel == channel]
        parts.add(frozenset(each.source for each in of_channel))
        parts.add(frozenset(each.destination for each in of_channel))
    # Those that faster links connect, as in one computer.
    for bandwidth in {each.bandwidth_bytes_per_sec for each in links}:
        fast: nx.Graph[str] = nx.Graph()
        fast.add_nodes_from(names)
        fast.add_edges_from(
            (each.source, each.destination)
            for each in links
            if each.bandwidth_bytes_per_sec > bandwidth
        )
        parts |= {frozenset(component) for component in nx.connected_components(fast)}
    return parts - {frozenset(), frozenset(names)}


def _sum_bandwidths(links: Iterable[Link]) -> float:
    """Adds up the bandwidths of the channels of some links, in bytes per second."""
    channels: dict[str, float] = {}
    for link in links:
        name = link.channel or f"{link.source} to {link.destination}"
        channels[name] = max(channels.get(name, 0.0), link.bandwidth_bytes_per_sec)
    return sum(channels.values())
