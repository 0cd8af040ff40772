"""A reference simulator in plain Python, which follows the documentation of the problem.

It is slow and short, and shares nothing with the fast simulator but the rules.
"""

from __future__ import annotations

import collections
import itertools
import math
import types

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["simulate"]


class Blocks:
    """An allocator that takes the smallest free block that is large enough."""

    def __init__(self) -> None:
        self.blocks = []  # [bytes, owner or None], by address
        self.peak = 0  # The sum of all blocks, which never decreases.

    def hold(self, owner, size):
        size = math.ceil(size / 256) * 256
        fitting = [(b[0], at) for at, b in enumerate(self.blocks) if b[1] is None and b[0] >= size]
        if fitting:
            at = min(fitting)[1]
            rest = self.blocks[at][0] - size
            if rest >= size or rest >= 128 * 2**20:
                self.blocks[at : at + 1] = [[size, owner], [rest, None]]
        else:
            if self.blocks and self.blocks[-1][1] is None:
                self.blocks.pop()
            at = len(self.blocks)
            self.blocks.append([size, owner])
        self.blocks[at][1] = owner
        self.peak = sum(each for each, _ in self.blocks)

    def release(self, owner):
        block = next(block for block in self.blocks if block[1] == owner)
        block[1] = None
        merged = []
        for size, of in self.blocks:
            if merged and of is None and merged[-1][1] is None:
                merged[-1][0] += size
            else:
                merged.append([size, of])
        self.blocks = merged


class Bytes(Blocks):
    """An allocator without fragmentation, so that only the sum matters."""

    def __init__(self) -> None:
        self.sizes, self.held, self.peak = {}, 0, 0

    def hold(self, owner, size):
        self.sizes[owner] = size
        self.held += size
        self.peak = max(self.peak, self.held)

    def release(self, owner):
        self.held -= self.sizes.pop(owner)


class StreamMemory:
    """Memory of asynchronous devices, in the order in which they are handed operations."""

    def __init__(self, problem, device, tensors, readers):
        self.problem, self.device, self.tensors, self.readers = problem, device, tensors, readers
        self.kinds = [[Bytes(), Blocks()] for _ in problem.devices]
        self.users = {}  # (tensor, device) -> operations there, and ("to", other device)
        for d in range(len(problem.devices)):
            on_it = [i for i, where in enumerate(device) if where == d]
            self.hold(d, "resident", sum(int(problem.resident_bytes[i]) for i in on_it))

    def hold(self, d, owner, size):
        if self.problem.devices[d].is_asynchronous and size > 0:
            for kind in self.kinds[d]:
                kind.hold(owner, size)
            return True
        return False

    def release(self, d, owner, size):
        if self.problem.devices[d].is_asynchronous and size > 0:
            for kind in self.kinds[d]:
                kind.release(owner)

    def size(self, tensor, d):
        is_home = self.device[self.problem.tensor_producers[tensor]] == d
        return int((self.problem.local_bytes if is_home else self.problem.tensor_bytes)[tensor])

    def use(self, tensor, d, user):
        self.users[tensor, d].discard(user)
        if not self.users[tensor, d]:
            self.release(d, tensor, self.size(tensor, d))

    def take(self, i):
        d, temp_bytes = self.device[i], int(self.problem.temp_bytes[i])
        self.hold(d, "temporary", temp_bytes)
        for tensor in self.tensors[i]:
            self.hold(d, tensor, self.size(tensor, d))
            there = {self.device[j] for j in self.readers[tensor]} - {d}
            local = {j for j in self.readers[tensor] if self.device[j] == d}
            self.users[tensor, d] = local | {("to", other) for other in there}
        self.release(d, "temporary", temp_bytes)
        for tensor in self.tensors[i]:
            if not self.users[tensor, d]:
                self.release(d, tensor, self.size(tensor, d))
        for tensor, operations in enumerate(self.readers):
            if i in operations:
                self.use(tensor, d, i)

    def send(self, tensor, d):
        if tensor >= 0 and self.problem.devices[d].is_asynchronous:
            self.users[tensor, d] = {j for j in self.readers[tensor] if self.device[j] == d}
            self.hold(d, tensor, self.size(tensor, d))

    def arrive(self, request):
        tensor, producer, destination = request["what"]
        d = self.device[producer]
        if tensor >= 0 and self.problem.devices[d].is_asynchronous:
            self.use(tensor, d, ("to", destination))

    def peak_bytes(self, d):
        sums = [kinds[0].peak for kinds in self.kinds]
        is_tight = any(
            device.is_asynchronous and peak > 0.75 * device.memory_bytes
            for device, peak in zip(self.problem.devices, sums, strict=True)
        )
        return self.kinds[d][is_tight].peak


def simulate(problem: PlacementProblem, placement: np.ndarray) -> types.SimpleNamespace:
    """Simulates one step under a legal placement, int [num_groups].

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
    running = []  # operations of devices that are not asynchronous
    queues = collections.defaultdict(list)  # channel -> requests; the first is under way
    transfers, now = [], 0.0
    has_stream = [d.is_asynchronous for d in problem.devices]
    stream_end = [0.0] * len(names)
    lanes = collections.defaultdict(list)  # lane -> requests; the first may begin or has begun
    waiting = []  # requests that wait for streams
    in_streams = []  # requests whose copies are in streams
    arrivals = collections.deque()  # Events of this instant, first come first served.
    memory = StreamMemory(problem, device, tensors, readers)

    def receive(operations):
        for i in sorted(operations):
            waits_for[i] -= 1
            if waits_for[i] == 0 and has_stream[device[i]]:
                arrivals.append((hand_over, i))
            elif waits_for[i] == 0:
                ready_secs[i] = now

    def pass_on(i):
        reads = [(tensor, readers[tensor]) for tensor in tensors[i]] + [(-1, followers[i])]
        for tensor, operations in reads:
            receive([j for j in operations if device[j] == device[i]])
            for destination in sorted({device[j] for j in operations} - {device[i]}):
                order = (tensor < 0, i if tensor < 0 else tensor, destination)
                request = {"what": (tensor, i, destination), "order": order}
                arrivals.append((enter, request))

    def hand_over(i):
        d, secs = device[i], problem.compute_secs[i, device[i]]
        ready_secs[i] = start_secs[i] = now
        if secs > 0:
            start_secs[i] = max(now, stream_end[d])
            stream_end[d] = start_secs[i] + secs
        end_secs[i] = start_secs[i] + secs
        memory.take(i)
        pass_on(i)

    def enter(request):
        tensor, producer, destination = request["what"]
        ends = device[producer], destination
        streams = [stream_end[d] for d in ends if has_stream[d]]
        if not streams:
            queue(request)
            return
        memory.send(tensor, destination)
        request["requested"] = now
        copying = ends[0] if has_stream[ends[0]] else ends[1]
        if problem.devices[copying].copies_in_stream:
            size = 0 if tensor < 0 else int(problem.tensor_bytes[tensor])
            link = links[ends]
            copy_secs = size / link.bandwidth_bytes_per_sec
            begun = max([now, *(streams if size else [stream_end[copying]])])
            request.update(request=begun, start=begun, end=begun + (link.latency_secs + copy_secs))
            if size:
                stream_end[copying] = begun + copy_secs
            in_streams.append(request)
            return
        from_, to = has_stream[ends[0]], has_stream[ends[1]]
        request["lane"] = ("to", ends[1]) if not from_ else (to, ends[0])
        request["request"] = max(now, *streams)
        lanes[request["lane"]].append(request)
        if len(lanes[request["lane"]]) == 1:
            begin(request)

    def begin(request):
        request["request"] = max(now, request["request"])
        if request["request"] > now:
            waiting.append(request)
        else:
            arrivals.append((queue, request))

    def queue(request):
        request["request"] = now
        queues[channels[device[request["what"][1]], request["what"][2]]].append(request)

    def find_receivers(request):
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

    receive_nothing = [i for i in range(n) if waits_for[i] == 0]
    for i in receive_nothing:
        waits_for[i] = 1
    receive(receive_nothing)
    while True:
        while True:  # (1) ends at this instant, and (2) their effects
            ended = [i for i in running if end_secs[i] == now]
            arrived = [q for q in queues if queues[q] and queues[q][0].get("end") == now]
            for i in sorted(ended):
                running.remove(i)
                free_slots[device[i]] += 1
                pass_on(i)
            copied = [request for request in in_streams if request["end"] == now]
            in_streams = [request for request in in_streams if request["end"] > now]
            copied += [queues[q].pop(0) for q in arrived]
            for request in sorted(copied, key=lambda r: r["order"]):
                transfers.append(request)
                memory.arrive(request)
                receive(find_receivers(request))
                if "lane" in request:
                    lanes[request["lane"]].pop(0)
                    for other in lanes[request["lane"]][:1]:
                        begin(other)
            for request in sorted(
                (r for r in waiting if r["request"] == now), key=lambda r: r["order"]
            ):
                waiting.remove(request)
                arrivals.append((queue, request))
            happened = bool(ended or copied or arrivals)
            while arrivals:
                what, whom = arrivals.popleft()
                what(whom)
            for channel in list(queues):
                serve(channel)
            if not happened:
                break
        started = False  # (3) free slots are filled
        ready = [i for i in range(n) if ready_secs[i] is not None and start_secs[i] is None]
        for i in sorted(ready, key=lambda i: (ready_secs[i], i)):
            if free_slots[device[i]] > 0:
                free_slots[device[i]] -= 1
                starts = max(now, held_until[device[i]])
                start_secs[i], end_secs[i] = now, starts + problem.compute_secs[i, device[i]]
                running.append(i)
                started = True
        if started:
            continue  # Some may have ended already.
        under_way = [queue[0]["end"] for queue in queues.values() if queue]
        under_way += [request["request"] for request in waiting]
        under_way += [request["end"] for request in in_streams]
        if not running and not under_way:
            break
        now = min([end_secs[i] for i in running] + under_way)

    # Memory, from the times alone where there are no streams.
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
            used = max(end_secs[i] for i in find_receivers(request))
            begun = request["requested"] if has_stream[home] else request["start"]
            hold(request["what"][2], size, begun, used)
    peak_bytes = []
    for d in range(len(names)):
        level = sum(
            int(r) for r, where in zip(problem.resident_bytes, device, strict=True) if where == d
        )
        levels = {-1.0: level}
        for when, _, size in sorted(changes[d]):
            level += size
            levels[when] = level  # The last level at an instant counts.
        peak_bytes.append(memory.peak_bytes(d) if has_stream[d] else max(levels.values()))
    records = [(*r["what"], r["request"], r["start"], r["end"]) for r in transfers]
    return types.SimpleNamespace(
        step_secs=max(end_secs), ready_secs=ready_secs, start_secs=start_secs, end_secs=end_secs,
        peak_bytes=peak_bytes, transfers=records,
    )  # fmt: skip
