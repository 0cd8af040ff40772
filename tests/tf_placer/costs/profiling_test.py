"""Tests of profiling graphs, with a scripted environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph, group_operations
from tests import graphs
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.costs.profiling import profile_graph
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.measuring_protocol import MeasuringProtocol
from tf_placer.environments.step_profile import OperationProfile, StepProfile
from tf_placer.errors import SearchError
from tf_placer.machines.machine import Device, Machine

v1 = tf.compat.v1
_CPU, _GPU_0, _GPU_1 = (
    f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")
)
_GPUS = Machine(
    "with GPUs",
    "attached",
    (Device(_CPU, "CPU"), Device(_GPU_0, "GPU"), Device(_GPU_1, "GPU")),
    (),
)
_LOCAL = Machine(
    "local:2",
    "local",
    tuple(
        Device(f"/job:worker/replica:0/task:{task}/device:CPU:0", "CPU", None, (task,))
        for task in range(2)
    ),
    (),
)
_OUT_OF_MEMORY = Failure(FailureKind.OUT_OF_MEMORY, "OOM when allocating")


def _group(graph: graphs.TestGraph) -> GroupedGraph:
    graph_def = graph.graph.as_graph_def()
    return group_operations(OpGraph.from_graph_def(graph_def, graph.fetches, list(graph.feeds)))


class _Environment:
    """A fake `SessionEnvironment` with given profiles, which records its calls."""

    def __init__(
        self,
        trace: Callable[[Mapping[str, str]], StepProfile | Failure],
        whole_step: Measurement | None = None,
    ) -> None:
        self._trace = trace
        self._whole_step = whole_step
        self.traced: list[Mapping[str, str]] = []
        self.cores: list[Sequence[int] | None] = []
        self.protocols: set[MeasuringProtocol] = set()
        self.measured: list[Mapping[str, str]] = []

    def trace(
        self,
        assignment: Mapping[str, str],
        protocol: MeasuringProtocol,
        alone_on: Sequence[int] | None = None,
    ) -> StepProfile | Failure:
        self.traced.append(assignment)
        self.cores.append(alone_on)
        self.protocols.add(protocol)
        return self._trace(assignment)

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        self.measured.append(assignment)
        return self._whole_step


class ProfileGraphTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.grouped = _group(graphs.two_branches())
        cls.names = [
            name
            for name, needed in zip(
                cls.grouped.op_graph.names, cls.grouped.op_graph.needed, strict=True
            )
            if needed
        ]

    def profile(self, environment: _Environment, machine: Machine, **settings) -> OperationCosts:
        return profile_graph(environment, self.grouped, machine, **settings)

    def build_uniform_profile(self, step_secs: float) -> StepProfile:
        """Builds a profile in which all operations take the same time."""
        return StepProfile((step_secs,), {name: OperationProfile(1.0) for name in self.names})

    def test_traces_one_device_of_each_kind(self):
        environment = _Environment(
            lambda a: self.build_uniform_profile(8.0 if _CPU in a.values() else 2.0)
        )
        costs = self.profile(environment, _GPUS)
        self.assertEqual([set(a.values()) for a in environment.traced], [{_CPU}, {_GPU_0}])
        self.assertAllClose(costs.compute_secs.sum(axis=0), [8.0, 2.0, 2.0])
        self.assertEqual(environment.measured, [])
        self.assertEqual(environment.cores, [None, None])

    def test_spreads_a_graph_that_does_not_fit_over_devices_of_one_kind(self):
        def trace(assignment: Mapping[str, str]) -> StepProfile | Failure:
            used = set(assignment.values())
            return _OUT_OF_MEMORY if used == {_GPU_0} else self.build_uniform_profile(4.0)

        environment = _Environment(trace)
        costs = self.profile(environment, _GPUS)
        self.assertAllClose(costs.compute_secs.sum(axis=0), [4.0, 4.0, 4.0])
        self.assertEqual(set(environment.traced[-1].values()), {_GPU_0, _GPU_1})
        self.assertEqual(set(environment.traced[1].values()), {_GPU_0})

    def test_traces_a_known_placement_if_one_device_is_too_small(self):
        def trace(assignment: Mapping[str, str]) -> StepProfile | Failure:
            used = set(assignment.values())
            return _OUT_OF_MEMORY if used == {_GPU_0} else self.build_uniform_profile(4.0)

        num_groups = self.grouped.grouping.num_groups
        known = {
            (0,) * num_groups: 9.0,
            (1, 0, *[2] * (num_groups - 2)): 1.0,  # Not on GPUs alone.
            (2, 1, *[2] * (num_groups - 2)): 3.0,
            (1, 1, *[2] * (num_groups - 2)): 2.0,
        }
        environment = _Environment(trace)
        self.profile(environment, _GPUS, known_secs=known)
        self.assertLen(environment.traced, 2)
        self.assertEqual(
            environment.traced[1],
            self.grouped.assignment(
                np.array([2, 1, *[2] * (num_groups - 2)], np.int32), (_CPU, _GPU_0, _GPU_1)
            ),
        )

    def test_unequal_gpus_are_different_kinds(self):
        gpus = [
            dataclasses.replace(_GPUS.devices[1], **values)
            for values in ({"model": "V100"}, {"model": "K80"}, {"memory_bytes": 2**34})
        ]
        for first, second, speeds in ((*gpus[:2], (2.0, 5.0)), (gpus[2], gpus[0], (2.0, 5.0))):
            other = dataclasses.replace(second, name=_GPU_1)
            machine = dataclasses.replace(_GPUS, devices=(_GPUS.devices[0], first, other))
            secs = dict(zip((_CPU, _GPU_0, _GPU_1), (8.0, *speeds), strict=True))
            environment = _Environment(
                lambda a, secs=secs: self.build_uniform_profile(secs[max(a.values())])
            )
            costs = self.profile(environment, machine)
            self.assertAllClose(costs.compute_secs.sum(axis=0), [8.0, 2.0, 5.0])

    def test_spreads_over_unequal_gpus_where_no_equal_ones_have_room(self):
        def trace(assignment: Mapping[str, str]) -> StepProfile | Failure:
            used = set(assignment.values())
            return _OUT_OF_MEMORY if used == {_GPU_0} else self.build_uniform_profile(4.0)

        first, second = (
            dataclasses.replace(device, model=model)
            for device, model in zip(_GPUS.devices[1:], ("K80", "V100"), strict=True)
        )
        machine = dataclasses.replace(_GPUS, devices=(_GPUS.devices[0], first, second))
        costs = self.profile(_Environment(trace), machine)
        self.assertAllClose(costs.compute_secs.sum(axis=0), [4.0, 4.0, 4.0])

    def test_a_graph_that_fits_nowhere_is_an_error(self):
        environment = _Environment(lambda _: _OUT_OF_MEMORY)
        with self.assertRaisesRegex(
            SearchError, "no step of the graph could be traced on .*CPU:0: OOM when allocating"
        ):
            self.profile(environment, _GPUS)

    def test_other_failures_are_errors_without_retry(self):
        environment = _Environment(lambda _: Failure(FailureKind.RUNTIME_ERROR, "no table"))
        with self.assertRaisesRegex(SearchError, "CPU:0: no table"):
            self.profile(environment, _GPUS)
        self.assertLen(environment.traced, 1)

    def test_traces_a_local_machine_in_one_process_and_times_its_server(self):
        environment = _Environment(
            lambda _: self.build_uniform_profile(3.0), Measurement((7.0, 5.0, 6.0))
        )
        costs = self.profile(environment, _LOCAL, steps=7)
        self.assertAllClose(costs.compute_secs.sum(axis=0), [6.0, 6.0])
        self.assertEqual(environment.cores, [(0,)])
        self.assertEqual(set(environment.traced[0].values()), {""})
        self.assertEqual(environment.protocols, {MeasuringProtocol(9, 2)})
        self.assertLen(environment.measured, 1)
        self.assertEqual(set(environment.measured[0].values()), {_LOCAL.devices[0].name})

    def test_does_not_time_a_known_placement_again(self):
        environment = _Environment(lambda _: self.build_uniform_profile(3.0))
        everything = (0,) * self.grouped.grouping.num_groups
        costs = self.profile(environment, _LOCAL, known_secs={everything: 5.0})
        self.assertAllClose(costs.compute_secs.sum(axis=0), [5.0, 5.0])
        self.assertEqual(environment.measured, [])

    def test_uses_the_step_time_of_the_profile_if_a_step_on_one_device_fails(self):
        environment = _Environment(
            lambda _: self.build_uniform_profile(3.0), Measurement(failure=_OUT_OF_MEMORY)
        )
        with self.assertLogs(level="WARNING") as logs:
            costs = self.profile(environment, _LOCAL)
        self.assertIn("task:0/device:CPU:0 alone", logs.output[0])
        self.assertIn("OOM when allocating", logs.output[0])
        self.assertAllClose(costs.compute_secs.sum(axis=0), [3.0, 3.0])

    def test_devices_with_different_cores_are_different_kinds(self):
        device = Device("/job:worker/replica:0/task:1/device:CPU:0", "CPU", None, (1, 2))
        machine = Machine("local:2", "local", (_LOCAL.devices[0], device), ())
        environment = _Environment(lambda _: self.build_uniform_profile(3.0), Measurement((6.0,)))
        self.profile(environment, machine)
        self.assertEqual(environment.cores, [(0,), (1, 2)])


if __name__ == "__main__":
    tf.test.main()
