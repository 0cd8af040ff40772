"""Tests of steps in which tensors wait on the CPU."""

from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.training_steps import build_training
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.host_offload import (
    HostOffload,
    Movable,
    find_offload,
    move_tensors,
    offload_to_host,
)
from tf_placer.simulation.simulator import Simulator


class HostOffloadTest(absltest.TestCase):
    def offload(self, problem: PlacementProblem) -> HostOffload | None:
        return offload_to_host(problem, np.ones(6, np.int32))

    def test_moves_nothing_where_all_fits(self):
        # The first two outputs wait while the third operation makes another one.
        self.assertEqual(
            Simulator(build_training(99)).trace(np.ones(6, np.int32)).peak_bytes[1], 13
        )
        self.assertEqual(self.offload(build_training(13)), HostOffload(0, 0, 60.0, 60.0))

    def test_the_tensor_that_is_read_last_waits_on_the_cpu(self):
        # It is gone before the peak and back before its reader, beside computing.
        self.assertEqual(self.offload(build_training(10)), HostOffload(1, 4, 60.0, 60.0))

    def test_slow_links_delay_the_step(self):
        # The way back begins after operation 3, at 40 s, and operation 5 waits for it at 50 s.
        for rate, step_secs in ((0.5, 60.0), (0.25, 66.0)):
            problem = build_training(10, back_bytes_per_sec=rate)
            self.assertEqual(self.offload(problem), HostOffload(1, 4, step_secs, 60.0))

    def test_finds_a_placement_that_fits_in_this_way(self):
        problem = build_training(10, back_bytes_per_sec=0.25)
        placements = [np.ones(6, np.int32)] * 2
        moved = find_offload(problem, placements, max_secs=60.0)
        self.assertEqual(moved, HostOffload(1, 4, 66.0, 60.0))
        self.assertIsNone(find_offload(problem, placements, max_secs=0.0))
        self.assertIsNone(find_offload(build_training(7), placements, max_secs=60.0))

    def test_says_that_it_is_not_enough(self):
        # An operation reads and writes 4 bytes each.
        self.assertIsNone(self.offload(build_training(7)))
        # A tensor that leaves too slowly is still there at the next peak.
        slow = build_training(10)
        links = tuple(dataclasses.replace(each, bandwidth_bytes_per_sec=0.3) for each in slow.links)
        self.assertIsNone(self.offload(dataclasses.replace(slow, links=links)))
        # The memory of variables cannot leave.
        held = dataclasses.replace(build_training(13), resident_bytes=np.array([9] + [0] * 5))
        self.assertIsNone(self.offload(held))

    def test_needs_a_cpu(self):
        problem = build_training(10)
        gpus = tuple(
            dataclasses.replace(device, kind="GPU", memory_bytes=10) for device in problem.devices
        )
        self.assertIsNone(self.offload(dataclasses.replace(problem, devices=gpus)))

    def test_readers_get_the_same_tensor_as_before(self):
        problem = build_training(99)
        later = np.array([1])
        moved, placement = move_tensors(problem, np.ones(6, np.int32), [(0, 2, later)], 0)
        self.assertEqual(placement.tolist(), [1] * 6 + [0, 0])

        def find_sources(problem: PlacementProblem) -> list[set[str]]:
            """Finds the producers that each of the six operations reads, copies left out."""
            tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
            makers = problem.tensor_producers[tensors].tolist()
            copied = {
                reader: maker
                for maker, reader in zip(makers, problem.consumers.tolist(), strict=True)
                if reader >= 6
            }
            sources: list[set[str]] = [set() for _ in range(6)]
            for maker, reader in zip(makers, problem.consumers.tolist(), strict=True):
                if reader < 6:
                    while maker >= 6:
                        maker = copied[maker]
                    sources[reader].add(problem.operation_names[maker])
            return sources

        self.assertEqual(find_sources(moved), find_sources(problem))
        self.assertEqual(moved.control_edges.tolist(), [[2, 7]])
        trace = Simulator(moved).trace(placement)
        # It has left after a second, and begins its way back when operation 2 has ended.
        self.assertEqual(trace.start_secs[[6, 7]].tolist(), [11.0, 30.0])

    def test_an_asynchronous_device_waits_until_tensors_have_left(self):
        # It is handed all operations at once, and would allocate memory for all of them.
        # TensorFlow rounds the sizes on a GPU, which leaves KiB as they are.
        problem = build_training(10 << 10)
        cpu = dataclasses.replace(problem.devices[0], memory_bytes=1 << 20)
        gpu = dataclasses.replace(problem.devices[1], is_asynchronous=True)
        problem = dataclasses.replace(
            problem,
            devices=(cpu, gpu),
            tensor_bytes=problem.tensor_bytes << 10,
            local_bytes=problem.local_bytes << 10,
            links=tuple(
                dataclasses.replace(link, bandwidth_bytes_per_sec=4 << 10) for link in problem.links
            ),
        )
        self.assertEqual(Simulator(problem).trace(np.ones(6, np.int32)).peak_bytes[1], 13 << 10)
        found = self.offload(problem)
        self.assertEqual(found.moved_bytes, found.num_tensors * (4 << 10))
        self.assertTrue(all(move.gates for move in found.moves))
        # The transfers take 1 s each, and the device waits for their ends only.
        self.assertBetween(found.step_secs, 60.0, 66.0)

    def test_moves_only_what_may_move(self):
        problem = build_training(10)
        tensors, triggers = np.ones(problem.num_tensors, np.bool_), np.ones(6, np.bool_)
        movable = Movable(tensors, triggers)
        found = offload_to_host(problem, np.ones(6, np.int32), movable)
        [move] = found.moves
        self.assertEqual((move.tensor, move.readers), (0, (5,)))
        tensors[0] = False
        self.assertIsNone(offload_to_host(problem, np.ones(6, np.int32), movable))
        tensors[0], triggers[:] = True, False
        self.assertIsNone(offload_to_host(problem, np.ones(6, np.int32), movable))


if __name__ == "__main__":
    absltest.main()
