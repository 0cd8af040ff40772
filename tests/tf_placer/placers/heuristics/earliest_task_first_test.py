import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.earliest_task_first import earliest_task_first
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import group_memories
from tf_placer.placers.heuristics.schedule_costs import schedule_costs
from tf_placer.problem.problem_groups import legal_devices


def binding_of(problem):
    memory_bytes = [device.memory_bytes for device in problem.devices]
    return GroupBinding(legal_devices(problem), group_memories(problem), memory_bytes)


def schedule(problem, favorites=None):
    return earliest_task_first(schedule_costs(problem), binding_of(problem), favorites=favorites)


def plain_schedule(problem, favorites):
    """The rules once more, looking at everything at every step."""
    costs, binding = schedule_costs(problem), binding_of(problem)
    places = {operation: place for place, operation in enumerate(costs.order)}
    devices, starts, ends = ([-1] * len(places), [0.0] * len(places), [0.0] * len(places))
    slots = [[0.0] * count for count in costs.slots]
    last = [-1] * len(slots)
    # Where a group was allowed when an operation became ready, to say what is urgent.
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
                    for device in binding.allowed(costs.groups[operation])
                }
        if not any(can_go(o, d) for o in ready for d in range(len(slots))):
            group = costs.groups[ready[0]]
            binding.bind(group, binding.choices(group)[0])
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
    def test_takes_what_can_start_first_to_where_it_can(self):
        # 0 takes device 0, and 1 device 1, as it could not start before 2 there. 2 waits for 0: it
        # could start on device 0 at 2, on device 1 at 2 + 4. 3 waits for 1, and could start at 3 on
        # device 1, or at 3 + 1 on device 0, which 2 has until 5.
        problem = problems.task_problem([(2, 2), (3, 3), (3, 3), (1, 1)], [(0, 2, 4), (1, 3, 1)])
        devices, starts, ends = schedule(problem)
        self.assertEqual(devices, [0, 1, 0, 1])
        self.assertEqual(starts, [0, 0, 2, 3])
        self.assertEqual(ends, [2, 3, 5, 4])

    def test_leaves_a_device_when_the_transfer_is_over_before_it_is_free(self):
        for size, device, start in ((4, 0, 5), (2, 1, 3)):
            # 1 and 2 wait for 0.
            problem = problems.task_problem(
                [(1, 1), (4, 4), (1, 1)], [(0, 1, 0), (0, 2, size)], latency_secs=0.0
            )
            devices, starts, _ = schedule(problem)
            self.assertEqual((devices[2], starts[2]), (device, start))

    def test_ties_go_to_the_first_in_order_and_then_to_where_it_ends_first(self):
        devices, _, ends = schedule(problems.task_problem([(5, 2), (1, 1)]))
        self.assertEqual(devices, [1, 0])
        self.assertEqual(ends, [2, 1])

    def test_goes_elsewhere_when_the_memory_is_full(self):
        problem = problems.task_problem(
            [(9, 1, 1)] * 4, resident_bytes=[5, 5, 5, 5], memory_bytes=[0, 13, 9]
        )
        devices, starts, _ = schedule(problem)
        # The fourth fits nowhere: 2 bytes are missing on device 1, and 1 on device 2.
        self.assertEqual(devices, [1, 2, 1, 2])
        self.assertEqual(starts, [0, 0, 1, 1])

    def test_a_device_waits_for_the_favorite_child_of_what_it_ran_last(self):
        # 2 waits for 0 and 1, and can start on device 0 at 4 and on device 1 at 7; 3 could start on
        # device 0 at 2, but is not urgent, as it could not start on device 1 before 22.
        inf = float("inf")
        secs, edges = [(2, inf), (inf, 3), (1, 1), (9, 9)], [(0, 2, 5), (1, 2, 1), (0, 3, 20)]
        problem = problems.task_problem(secs, edges)
        devices, starts, _ = schedule(problem)
        self.assertEqual((devices, starts), ([0, 1, 1, 0], [0, 0, 7, 2]))
        devices, starts, _ = schedule(problem, favorites=[2, -1, -1, -1])
        self.assertEqual((devices, starts), ([0, 1, 0, 0], [0, 0, 4, 5]))

    def test_a_device_that_waits_takes_what_is_urgent(self):
        inf = float("inf")
        secs, edges = [(2, inf), (inf, 3), (1, 1), (9, 9)], [(0, 2, 5), (1, 2, 1), (0, 3, 1)]
        _, starts, _ = schedule(problems.task_problem(secs, edges), favorites=[2, -1, -1, -1])
        # On device 1 there is 3 at 3, so device 0 may take it then: device 1 is free then, too.
        self.assertEqual(starts[3], 3)

    def test_no_memory_is_ever_overfull_if_there_is_room_for_every_order(self):
        rng = np.random.default_rng(3)
        for _ in range(50):
            count = int(rng.integers(3, 20))
            sizes = rng.integers(1, 10, count)
            # Whatever is there already, one of two devices has room for the next.
            most = int(sizes.sum() / 2 + sizes.max()) + 1
            problem = problems.task_problem(
                [(1, 1)] * count, resident_bytes=sizes, memory_bytes=most
            )
            devices, _, _ = schedule(problem)
            held = np.bincount(devices, sizes, 2)
            self.assertLessEqual(held.max(), most)

    def test_agrees_with_the_plain_rules(self):
        rng = np.random.default_rng(4)
        for _ in range(150):
            problem = random_problems.random_problem(rng, 25)
            costs = schedule_costs(problem)
            favorites = [
                int(rng.choice(followers)) if followers and rng.random() < 0.7 else -1
                for followers in costs.followers
            ]
            self.assertEqual(schedule(problem, favorites), plain_schedule(problem, favorites))
            none = [-1] * problem.num_operations
            self.assertEqual(schedule(problem), plain_schedule(problem, none))


if __name__ == "__main__":
    absltest.main()
