"""Operation costs on described devices, computed by a roofline model.

An operation takes

    launch_secs + max(flops / (peak_flops * compute_fraction * min(1, size / full_product_size)),
                      bytes / (memory_bandwidth_bytes_per_sec * bandwidth_fraction))

seconds, with the numbers of the device's class, which are the same for every graph. Only
contractions have flops, two per multiply-and-add; their size is the smallest dimension of the
matrix product that they are; the bytes are those that the operation reads and writes.

By published times of one K80, RNNLM takes 0.57 times the step, and Inception-V3 0.65 times that of
TensorFlow's own benchmark of 2017, 0.40 and 0.15 times those of two papers (commit 361ef7c). On an
H200, by kind of operation, measured with PyTorch's kernels, products take 1.2 times as long as this
model predicts, element-wise operations 0.8, convolutions 1.9 to 3.1, batch normalization 2.9 and
pooling 4.7 times (commit 07eed8c).

Assumptions:

- Operations that only pass tensors through (Const, Identity, Reshape, ReadVariableOp, Shape and the
  like; operations that add tensors to lists or take them off) cost nothing: they launch no kernel,
  and the executor processes them while kernels run.
- Arithmetic on int32 alone (sizes, positions, indices) runs on the host, ahead of the GPU; it costs
  nothing on a GPU and the usual time on a CPU.
- Convolutions hold copies of their inputs and outputs while they run, in the layout of their
  kernel, and the matrix of their windows as far as `workspace_bytes` of the class allows, which is
  nothing in most classes. Other operations hold nothing beside inputs and outputs.
- A loop runs the largest number of iterations that constants and shapes allow, and once where they
  give no bound.
- An operation that calls functions takes the sum of the times of their operations, and holds
  meanwhile the memory that the largest of them touches.
- Where the `full_product_size` of the class is 1, large and small contractions reach the same share
  of the peak. float64 reaches the same as float32, and no operations are fused or folded.

References:
    Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model for Multicore
    Architectures, 2009.
"""

from __future__ import annotations

import numpy as np

from graph_passes.kernel_work import UPDATES, KernelWork, kernel_work, tensor_sizes
from graph_passes.op_graph import OpGraph
from graph_passes.work import CONVOLUTIONS, count_window_bytes, has_prefix
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.machines.machine import DeviceClass, Machine

__all__ = ["compute_analytic_costs"]


def compute_analytic_costs(graph: OpGraph, machine: Machine) -> OperationCosts:
    """Computes the costs of the operations that a step needs; other operations cost 0.

    Args:
        graph: the graph; dimensions of unknown size count as 1.
        machine: a described machine.

    Returns:
        The costs, of source "analytic".

    Raises:
        MachineError: the machine is not described.
    """
    work = kernel_work(graph)
    classes = [machine.find_class(device) for device in machine.devices]
    by_class = {known: _compute_operation_secs(graph, work, known) for known in set(classes)}
    secs, fixed_secs = (
        np.stack([by_class[known][part] for known in classes], axis=1) for part in (0, 1)
    )
    temp = np.zeros(graph.num_operations)
    copies = ~work.called & graph.has_type(CONVOLUTIONS)[work.operations]
    holds = copies | work.called
    np.maximum.at(temp, work.operations[holds], work.touched_bytes[holds])
    # One number counts for all devices of a problem, so the largest workspace does.
    temp += np.minimum(count_window_bytes(graph), max(each.workspace_bytes for each in classes))
    return OperationCosts(
        compute_secs=secs,
        temp_bytes=temp.astype(np.int64),
        tensor_bytes=tensor_sizes(graph),
        source="analytic",
        fixed_secs=fixed_secs,
        unknown_sizes=work.unknown_sizes,
        unknown_loops=work.unknown_loops,
    )


def _compute_operation_secs(
    graph: OpGraph, work: KernelWork, known: DeviceClass
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the seconds on a device of a class, and those of them that any batch takes.

    Launches take as long for a smaller batch, and so do the updates of variables.

    Returns:
        Both float64 [num_operations].
    """
    share = np.minimum(work.product_sizes / known.full_product_size, 1.0)
    flop_secs = work.flops / (known.peak_flops * known.compute_fraction * share)
    byte_rate = known.memory_bandwidth_bytes_per_sec * known.bandwidth_fraction
    secs = known.launch_secs + np.maximum(flop_secs, work.touched_bytes / byte_rate)
    if known.type == "GPU":
        secs[work.on_host] = 0.0
    is_update = has_prefix(graph, UPDATES)[work.operations]
    fixed_secs = np.where(is_update, secs, np.minimum(known.launch_secs, secs))
    # `bincount` of no kernels returns integers.
    seconds, fixed = (
        np.bincount(work.operations, each * work.repeats, graph.num_operations).astype(np.float64)
        for each in (secs, fixed_secs)
    )
    return seconds, fixed
