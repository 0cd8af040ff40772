"""Tests of profiling graphs, with environments that are told what to say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph, group_operations
from tests import graphs
from tf_placer.costs import profiling
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.costs.profiling import profile_graph
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.step_profile import OperationProfile, StepProfile
from tf_placer.errors import SearchError
from tf_placer.inputs.step import Step
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


def _grouped(graph: graphs.TestGraph) -> GroupedGraph:
    graph_def = graph.graph.as_graph_def()
    return group_operations(OpGraph.from_graph_def(graph_def, graph.fetches, list(graph.feeds)))


class _Environments:
    """Instead of `SessionEnvironment`: notes what is traced and says what it is told."""

    def __init__(
        self,
        trace: Callable[[Mapping[str, str]], StepProfile | Failure],
        whole_step: Measurement | None = None,
    ) -> None:
        self._trace = trace
        self._whole_step = whole_step
        self.made: list[tuple[Machine, v1.ConfigProto | None]] = []
        self.traced: list[Mapping[str, str]] = []
        self.measured: list[np.ndarray] = []

    def __call__(self, _path, _step, machine, _assign, *, session_config, **_settings):
        self.made.append((machine, session_config))
        return contextlib.nullcontext(self)

    def trace(self, assignment: Mapping[str, str]) -> StepProfile | Failure:
        self.traced.append(assignment)
        return self._trace(assignment)

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        self.measured.extend(placements)
        return [self._whole_step] * len(placements)


class ProfileGraphTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.grouped = _grouped(graphs.two_branches())
        cls.names = [
            name
            for name, needed in zip(
                cls.grouped.op_graph.names, cls.grouped.op_graph.needed, strict=True
            )
            if needed
        ]

    def profile(self, environments: _Environments, machine: Machine, **settings) -> OperationCosts:
        with mock.patch.object(profiling, "SessionEnvironment", environments):
            return profile_graph("graph.pb", Step(("result:0",)), self.grouped, machine, **settings)

    def alike(self, step_secs: float) -> StepProfile:
        """A profile in which every operation takes as long as any other."""
        return StepProfile((step_secs,), {name: OperationProfile(1.0) for name in self.names})

    def test_one_device_of_each_kind_is_traced(self):
        environments = _Environments(lambda a: self.alike(8.0 if _CPU in a.values() else 2.0))
        costs = self.profile(environments, _GPUS)
        self.assertEqual([set(a.values()) for a in environments.traced], [{_CPU}, {_GPU_0}])
        self.assertAllClose(costs.compute_secs.sum(axis=0), [8.0, 2.0, 2.0])
        self.assertEqual(environments.measured, [])
        self.assertEqual([machine for machine, _ in environments.made], [_GPUS, _GPUS])

    def test_a_graph_that_does_not_fit_is_spread_over_devices_of_one_kind(self):
        def trace(assignment: Mapping[str, str]) -> StepProfile | Failure:
            used = set(assignment.values())
            return _OUT_OF_MEMORY if used == {_GPU_0} else self.alike(4.0)

        environments = _Environments(trace)
        costs = self.profile(environments, _GPUS)
        self.assertAllClose(costs.compute_secs.sum(axis=0), [4.0, 4.0, 4.0])
        self.assertEqual(set(environments.traced[-1].values()), {_GPU_0, _GPU_1})
        self.assertEqual(set(environments.traced[1].values()), {_GPU_0})

    def test_a_graph_that_fits_nowhere_is_an_error(self):
        environments = _Environments(lambda _: _OUT_OF_MEMORY)
        with self.assertRaisesRegex(
            SearchError, "no step of the graph could be traced on .*CPU:0: OOM when allocating"
        ):
            self.profile(environments, _GPUS)

    def test_another_failure_is_an_error_at_once(self):
        environments = _Environments(lambda _: Failure(FailureKind.RUNTIME_ERROR, "no table"))
        with self.assertRaisesRegex(SearchError, "CPU:0: no table"):
            self.profile(environments, _GPUS)
        self.assertLen(environments.traced, 1)

    def test_a_local_machine_is_traced_in_one_process_and_timed_in_its_server(self):
        config = v1.ConfigProto(allow_soft_placement=True, inter_op_parallelism_threads=5)
        environments = _Environments(lambda _: self.alike(3.0), Measurement((7.0, 5.0, 6.0)))
        costs = self.profile(environments, _LOCAL, session_config=config)
        self.assertAllClose(costs.compute_secs.sum(axis=0), [6.0, 6.0])
        (alone, alone_config), (machine, machine_config) = environments.made
        self.assertEqual((alone.kind, alone.devices[0].cores), ("attached", (0,)))
        self.assertEqual(alone_config.inter_op_parallelism_threads, 1)
        self.assertEqual(alone_config.intra_op_parallelism_threads, 1)
        # A GPU of this computer is no device of the machine.
        self.assertEqual(alone_config.device_count["GPU"], 0)
        self.assertTrue(alone_config.allow_soft_placement)
        self.assertEqual((machine, machine_config), (_LOCAL, config))
        self.assertEqual(config.inter_op_parallelism_threads, 5)
        self.assertEqual(set(environments.traced[0].values()), {""})
        self.assertLen(environments.measured, 1)
        self.assertAllEqual(environments.measured[0], np.zeros(self.grouped.grouping.num_groups))

    def test_a_whole_step_that_does_not_run_is_that_of_the_profile(self):
        environments = _Environments(lambda _: self.alike(3.0), Measurement(failure=_OUT_OF_MEMORY))
        with self.assertLogs(level="WARNING") as logs:
            costs = self.profile(environments, _LOCAL)
        self.assertIn("task:0/device:CPU:0 alone", logs.output[0])
        self.assertIn("OOM when allocating", logs.output[0])
        self.assertAllClose(costs.compute_secs.sum(axis=0), [3.0, 3.0])

    def test_devices_with_more_cores_are_another_kind(self):
        device = Device("/job:worker/replica:0/task:1/device:CPU:0", "CPU", None, (1, 2))
        machine = Machine("local:2", "local", (_LOCAL.devices[0], device), ())
        environments = _Environments(lambda _: self.alike(3.0), Measurement((6.0,)))
        self.profile(environments, machine)
        cores = [made.devices[0].cores for made, _ in environments.made if made is not machine]
        self.assertEqual(cores, [(0,), (1, 2)])
        self.assertEqual(environments.made[2][1].intra_op_parallelism_threads, 2)


if __name__ == "__main__":
    tf.test.main()
