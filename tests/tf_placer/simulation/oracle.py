"""The simulator once more, in plain Python, as the documentation of the problem describes it.

Slow, short, and without any idea in common with the fast one beyond the rules themselves.
"""

from __future__ import annotations

import collections
import itertools
import math
import types

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["simulate"]


def simulate(problem: PlacementProblem, placement: np.ndarray) -> types.SimpleNamespace:
    """One step under a legal placement, int [num_groups].

    Returns:
        `step_secs`; lists `ready_secs`, `start_secs`, `end_secs` by operation and `peak_bytes` by
        device; `transfers`: (tensor or -1, producer, destination, request, start and end time).
    """
    n, names = problem.num_operations, [device.name for device in problem.devices]
    device = [int(placement[group]) for group in problem.groups]
    channels, links = {}, {}
    for k, link in enumerate(problem.links):
        pair = names.index(link.source), names.index(link.destination)
        links[pair] = link
        channels[pair] = ("own", k) if link.channel is None else ("shared", link.channel)
    readers = [
        problem.consumers[a:b].tolist() for a, b in itertools.pairwise(problem.consumer_start)
    ]
    tensors, followers = [[] for _ in range(n)], [[] for _ in range(n)]
    for tensor, producer in enumerate(problem.tensor_producers):
        tensors[producer].append(tensor)
    for before, after in problem.control_edges.tolist():
        followers[before].append(after)
    waits_for = [0] * n
    for reader in itertools.chain(*readers, *followers):
        waits_for[reader] += 1

    ready_secs, start_secs, end_secs = [None] * n, [None] * n, [None] * n
    free_slots = [d.slots for d in problem.devices]
    held_until = [0.0] * len(names)
    sends_until = [-math.inf] * len(names)
    running = []  # operations
    queues = collections.defaultdict(list)  # channel: requests, of which the first is under way
    transfers, now = [], 0.0

    def receive(operations):
        for i in operations:
            waits_for[i] -= 1
            if waits_for[i] == 0:
                ready_secs[i] = now

    def reached(request):
        tensor, producer, destination = request["what"]
        readers_of_it = followers[producer] if tensor < 0 else readers[tensor]
        return [i for i in readers_of_it if device[i] == destination]

    def delay(d, secs):
        on_it = [i for i in running if device[i] == d]
        for i in on_it:
            end_secs[i] += secs
        if not on_it:
            held_until[d] = max(held_until[d], now) + secs

    def serve(channel):
        if queues[channel] and "end" not in queues[channel][0]:
            queues[channel].sort(key=lambda request: (request["request"], request["order"]))
            request = queues[channel][0]
            tensor, producer, destination = request["what"]
            link = links[device[producer], destination]
            size = 0 if tensor < 0 else int(problem.tensor_bytes[tensor])
            secs = link.latency_secs + size / link.bandwidth_bytes_per_sec
            request.update(start=now, end=now + secs)
            for d in (device[producer], destination):
                end = problem.devices[d]
                rested = min((now - sends_until[d]) / 0.01, 1.0) if now > sends_until[d] else 0.0
                sends_until[d] = max(sends_until[d], now + secs)
                lost_secs = end.transfer_share * size / link.bandwidth_bytes_per_sec
                lost_secs += end.transfer_overhead_secs * (1 + 3 * rested**0.5) / 4
                if lost_secs > 0:
                    delay(d, lost_secs)

    for i in range(n):
        if waits_for[i] == 0:
            ready_secs[i] = now
    while True:
        while True:  # (1) what ends at this instant, (2) the requests that come of it
            requests = []
            ended = [i for i in running if end_secs[i] == now]
            arrived = [q for q in queues if queues[q] and queues[q][0].get("end") == now]
            for i in ended:
                running.remove(i)
                free_slots[device[i]] += 1
                reads = [(tensor, readers[tensor]) for tensor in tensors[i]] + [(-1, followers[i])]
                for tensor, operations in reads:
                    receive([j for j in operations if device[j] == device[i]])
                    for destination in sorted({device[j] for j in operations} - {device[i]}):
                        order = (tensor < 0, i if tensor < 0 else tensor, destination)
                        requests.append((order, (tensor, i, destination)))
            for channel in arrived:
                transfers.append(queues[channel].pop(0))
                receive(reached(transfers[-1]))
            for order, what in sorted(requests):
                request = {"what": what, "request": now, "order": order}
                queues[channels[device[what[1]], what[2]]].append(request)
            for channel in list(queues):
                serve(channel)
            if not ended and not arrived:
                break
        started = False  # (3) free slots are filled
        waiting = [i for i in range(n) if ready_secs[i] is not None and start_secs[i] is None]
        for i in sorted(waiting, key=lambda i: (ready_secs[i], i)):
            if free_slots[device[i]] > 0:
                free_slots[device[i]] -= 1
                begin = max(now, held_until[device[i]])
                start_secs[i], end_secs[i] = now, begin + problem.compute_secs[i, device[i]]
                running.append(i)
                started = True
        if started:
            continue  # some may have ended already
        under_way = [queue[0]["end"] for queue in queues.values() if queue]
        if not running and not under_way:
            break
        now = min([end_secs[i] for i in running] + under_way)

    # Memory, from the times alone.
    changes = [[] for _ in names]  # (when, frees before allocations, bytes)

    def hold(d, size, start, end):
        changes[d] += [(start, 1, size), (end, 0, -size)]

    for i in range(n):
        hold(device[i], int(problem.temp_bytes[i]), start_secs[i], end_secs[i])
    for tensor, producer in enumerate(problem.tensor_producers.tolist()):
        size, home = int(problem.tensor_bytes[tensor]), device[producer]
        local_size = int(problem.local_bytes[tensor])
        sent = [request for request in transfers if request["what"][0] == tensor]
        local = [end_secs[i] for i in readers[tensor] if device[i] == home]
        uses = local + [request["end"] for request in sent]
        hold(home, local_size, start_secs[producer], max(uses, default=end_secs[producer]))
        for request in sent:
            used = max(end_secs[i] for i in reached(request))
            hold(request["what"][2], size, request["start"], used)
    peak_bytes = []
    for d in range(len(names)):
        level = sum(
            int(r) for r, where in zip(problem.resident_bytes, device, strict=True) if where == d
        )
        levels = {-1.0: level}
        for when, _, size in sorted(changes[d]):
            level += size
            levels[when] = level  # the last at an instant counts
        peak_bytes.append(max(levels.values()))
    records = [(*r["what"], r["request"], r["start"], r["end"]) for r in transfers]
    return types.SimpleNamespace(
        step_secs=max(end_secs), ready_secs=ready_secs, start_secs=start_secs, end_secs=end_secs,
        peak_bytes=peak_bytes, transfers=records,
    )  # fmt: skip
