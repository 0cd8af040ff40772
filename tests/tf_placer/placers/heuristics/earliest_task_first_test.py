import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.earliest_task_first import schedule_earliest_first
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.schedule_costs import read_schedule_costs
from tf_placer.problem.problem_groups import legal_devices


def make_binding(problem):
    memory_bytes = [device.memory_bytes for device in problem.devices]
    return GroupBinding(legal_devices(problem), estimate_group_memories(problem), memory_bytes)


def schedule(problem, favorites=None):
    return schedule_earliest_first(
        read_schedule_costs(problem), make_binding(problem), favorites=favorites
    )


def schedule_exhaustively(problem, favorites):
    """Schedules by the same rules, with an exhaustive search for every operation."""
    costs, binding = read_schedule_costs(problem), make_binding(problem)
    places = {operation: place for place, operation in enumerate(costs.order)}
    devices, starts, ends = ([-1] * len(places), [0.0] * len(places), [0.0] * len(places))
    slots = [[0.0] * count for count in costs.slots]
    last = [-1] * len(slots)
    # Arrivals at the devices allowed when an operation became ready decide whether it is urgent.
    arrivals = {}

    def can_go(operation, device):
        return binding.can_go(costs.groups[operation], device)

    for _ in places:
        ready = [
            operation
            for operation in costs.order
            if devices[operation] < 0 and all(devices[b] >= 0 for b, _ in costs.inputs[operation])
        ]
        for operation in ready:
            if operation not in arrivals:
                arrivals[operation] = {
                    device: costs.arrival_secs(operation, device, devices, ends)
                    for device in binding.list_allowed(costs.groups[operation])
                }
        if not any(can_go(o, d) for o in ready for d in range(len(slots))):
            group = costs.groups[ready[0]]
            binding.bind(group, binding.list_choices(group)[0])
        found = []
        for device, free in enumerate(map(min, slots)):
            begin = {o: max(free, arrivals[o][device]) for o in ready if can_go(o, device)}
            awaited = favorites[last[device]] if last[device] >= 0 else -1
            if awaited in begin:
                others = [
                    max(min(slots[d]), arrival)
                    for d, arrival in arrivals[awaited].items()
                    if can_go(awaited, d)
                ]
                if begin[awaited] <= min(others):
                    urgent = {o: max(free, *arrivals[o].values()) for o in begin}
                    begin = {
                        o: secs
                        for o, secs in urgent.items()
                        if o != awaited and secs < begin[awaited]
                    } or {awaited: begin[awaited]}
            found += [
                (secs, places[o], secs + costs.secs[o][device], device, o)
                for o, secs in begin.items()
            ]
        start, _, end, device, operation = min(found)
        binding.bind(costs.groups[operation], device)
        devices[operation], starts[operation], ends[operation] = device, start, end
        slots[device].remove(min(slots[device]))
        slots[device].append(end)
        last[device] = operation
    return devices, starts, ends


class EarliestTaskFirstTest(absltest.TestCase):
    def test_schedules_the_operation_that_can_start_first(self):
        # Operation 0 goes to device 0, and 1 to device 1, because it could not start on device 0
        # before 2. Operation 2 depends on 0, and could start on device 0 at 2, on device 1 at
        # 2 + 4. Operation 3 depends on 1, and could start at 3 on device 1, or at 3 + 1 on device
        # 0, which is busy with 2 until 5.
        problem = problems.build_task_problem(
            [(2, 2), (3, 3), (3, 3), (1, 1)], [(0, 2, 4), (1, 3, 1)]
        )
        devices, starts, ends = schedule(problem)
        self.assertEqual(devices, [0, 1, 0, 1])
        self.assertEqual(starts, [0, 0, 2, 3])
        self.assertEqual(ends, [2, 3, 5, 4])

    def test_leaves_a_device_when_the_transfer_is_over_before_it_is_free(self):
        for size, device, start in ((4, 0, 5), (2, 1, 3)):
            # Operations 1 and 2 depend on 0.
            problem = problems.build_task_problem(
                [(1, 1), (4, 4), (1, 1)], [(0, 1, 0), (0, 2, size)], latency_secs=0.0
            )
            devices, starts, _ = schedule(problem)
            self.assertEqual((devices[2], starts[2]), (device, start))

    def test_breaks_ties_by_order_and_then_by_the_earliest_end(self):
        devices, _, ends = schedule(problems.build_task_problem([(5, 2), (1, 1)]))
        self.assertEqual(devices, [1, 0])
        self.assertEqual(ends, [2, 1])

    def test_uses_another_device_when_memory_is_full(self):
        problem = problems.build_task_problem(
            [(9, 1, 1)] * 4, resident_bytes=[5, 5, 5, 5], memory_bytes=[0, 13, 9]
        )
        devices, starts, _ = schedule(problem)
        # The fourth operation fits nowhere: it exceeds device 1 by 2 bytes, and device 2 by 1.
        self.assertEqual(devices, [1, 2, 1, 2])
        self.assertEqual(starts, [0, 0, 1, 1])

    def test_a_device_waits_for_the_favorite_child_of_its_last_operation(self):
        # Operation 2 depends on 0 and 1, and can start on device 0 at 4 and on device 1 at 7.
        # Operation 3 could start on device 0 at 2, but is not urgent, because it could not start on
        # device 1 before 22.
        inf = float("inf")
        secs, edges = [(2, inf), (inf, 3), (1, 1), (9, 9)], [(0, 2, 5), (1, 2, 1), (0, 3, 20)]
        problem = problems.build_task_problem(secs, edges)
        devices, starts, _ = schedule(problem)
        self.assertEqual((devices, starts), ([0, 1, 1, 0], [0, 0, 7, 2]))
        devices, starts, _ = schedule(problem, favorites=[2, -1, -1, -1])
        self.assertEqual((devices, starts), ([0, 1, 0, 0], [0, 0, 4, 5]))

    def test_a_waiting_device_runs_urgent_operations(self):
        inf = float("inf")
        secs, edges = [(2, inf), (inf, 3), (1, 1), (9, 9)], [(0, 2, 5), (1, 2, 1), (0, 3, 1)]
        _, starts, _ = schedule(problems.build_task_problem(secs, edges), favorites=[2, -1, -1, -1])
        # Operation 3 is urgent from 3 on, when it could start on device 1 as well.
        self.assertEqual(starts[3], 3)

    def test_never_exceeds_memory_if_every_order_fits(self):
        rng = np.random.default_rng(3)
        for _ in range(50):
            count = int(rng.integers(3, 20))
            sizes = rng.integers(1, 10, count)
            # One of the two devices always has room for the next operation.
            most = int(sizes.sum() / 2 + sizes.max()) + 1
            problem = problems.build_task_problem(
                [(1, 1)] * count, resident_bytes=sizes, memory_bytes=most
            )
            devices, _, _ = schedule(problem)
            held = np.bincount(devices, sizes, 2)
            self.assertLessEqual(held.max(), most)

    def test_agrees_with_the_exhaustive_scheduler(self):
        rng = np.random.default_rng(4)
        for _ in range(150):
            problem = random_problems.random_problem(rng, 25)
            costs = read_schedule_costs(problem)
            favorites = [
                int(rng.choice(followers)) if followers and rng.random() < 0.7 else -1
                for followers in costs.followers
            ]
            self.assertEqual(
                schedule(problem, favorites), schedule_exhaustively(problem, favorites)
            )
            none = [-1] * problem.num_operations
            self.assertEqual(schedule(problem), schedule_exhaustively(problem, none))


if __name__ == "__main__":
    absltest.main()
