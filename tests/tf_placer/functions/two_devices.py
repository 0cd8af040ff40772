"""Sets up two CPU devices in this process, and makes placements on them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement
from tf_placer.inputs.workload import Workload
from tf_placer.machines.machine import Device, Machine

DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
MACHINE = Machine("attached", "attached", tuple(Device(name, "CPU") for name in DEVICES))

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
# An operation that cannot run on its device is an error.
tf.config.set_soft_device_placement(False)


def random_placements(workload: Workload, count: int) -> Iterator[Placement]:
    """Makes legal placements of a step, every colocation group on its own."""
    grouped = group_operations(workload.op_graph, "fine")
    legal = grouped.grouping.legal_devices(grouped.colocation, DEVICES)
    random = np.random.default_rng(0)
    for _ in range(count):
        row = np.array([random.choice(np.flatnonzero(choices)) for choices in legal], np.int32)
        yield Placement("", DEVICES, grouped.assignment(row, DEVICES))
