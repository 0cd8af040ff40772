"""Tests of the machines of the catalog."""

from __future__ import annotations

import itertools
import json
import re

from absl.testing import absltest, parameterized

from tf_placer.machines.catalog import (
    find_machine_source,
    format_catalog,
    list_catalog_names,
    make_described_machine,
)
from tf_placer.machines.gpu_memory import compute_plan_bytes, compute_usable_bytes
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Link, Machine, MachineError
from tf_placer.machines.networked_computers import describe_network

_PREFIX = "/job:localhost/replica:0/task:0/device:"
_LARGEST = {
    "NxK80": 16,
    "post-NxK80": 16,
    "NxP100": 16,
    "eagle-NxP100": 16,
    "colocrl-2017-NxK80": 16,
    "post-2018-NxK80": 16,
    "eagle-2020-NxP100": 16,
    "NxV100": 8,
    "NxV100-32GB": 8,
    "NxV100-PCIe": 16,
    "NxT4": 8,
    "NxL4": 8,
    "NxA10": 8,
    "NxA10G": 8,
    "NxA100-40GB": 16,
    "NxA100": 16,
    "NxH100": 16,
    "NxH200": 16,
    "NxB200": 8,
}
_SOCKETS = ("NxEPYC-7742-socket", "NxXeon-8480C-socket")


def _find_link(machine: Machine, source: str, destination: str) -> Link:
    """Finds the link between two devices, such as "CPU:0" and "GPU:1"."""
    ends = (_PREFIX + source, _PREFIX + destination)
    return next(link for link in machine.links if (link.source, link.destination) == ends)


class CatalogTest(parameterized.TestCase):
    def test_lists_the_documented_names(self):
        self.assertEqual(list_catalog_names(), ", ".join([*_LARGEST, *_SOCKETS]))

    @parameterized.parameters(*_LARGEST.items())
    def test_every_number_of_gpus_up_to_the_maximum_makes_a_machine(self, name, largest):
        for gpus in range(1, largest + 1):
            spec = name.replace("N", str(gpus), 1)
            machine = make_described_machine(spec)
            self.assertEqual((machine.spec, machine.kind), (spec, "described"))
            names = [f"{_PREFIX}CPU:0", *(f"{_PREFIX}GPU:{i}" for i in range(gpus))]
            self.assertEqual([device.name for device in machine.devices], names)
            pairs = [(link.source, link.destination) for link in machine.links]
            self.assertEqual(pairs, list(itertools.permutations(names, 2)))
            for link in machine.links:
                self.assertGreater(link.latency_secs, 0)
                self.assertBetween(link.bandwidth_bytes_per_sec, 5e9, 1e12)
            for device in machine.devices:
                device_class = machine.find_class(device)
                self.assertEqual(device_class.type, device.type)
                self.assertLessEqual(device_class.launch_secs, 1e-4)
                self.assertNotEmpty(device_class.source)
                self.assertGreater(device.memory_bytes, 10e9)
        for gpus in (0, largest + 1):
            with self.assertRaisesRegex(MachineError, f"from 1 to {largest} GPUs, not {gpus}"):
                make_described_machine(name.replace("N", str(gpus), 1))

    @parameterized.parameters(*_LARGEST)
    def test_json_round_trip_preserves_the_machine(self, name):
        machine = make_described_machine(name.replace("N", "3", 1))
        self.assertEqual(Machine.from_json(json.loads(json.dumps(machine.to_json()))), machine)

    def test_an_unknown_name_is_an_error_with_the_command_that_lists_names(self):
        message = r"'4xK81' \(did you mean '4xK80'.*: expected .*`python -m tf_placer machines`"
        with self.assertRaisesRegex(MachineError, message):
            make_described_machine("4xK81")

    def test_machines_of_the_papers_have_the_published_memory(self):
        self.assertEqual(make_described_machine("4xK80").devices[0].memory_bytes, 50_000_000_000)
        post = make_described_machine("post-2xK80").devices
        self.assertEqual([d.memory_bytes for d in post], [26_000_000_000, *[11 * 2**30] * 2])
        self.assertEqual(make_described_machine("4xP100").devices[0].memory_bytes, 125_000_000_000)

    def test_machines_of_clouds_have_the_published_memory(self):
        # Total memory by nvidia-smi, in MiB.
        for name, mib in (
            *(("1xV100-32GB", 32510), ("1xT4", 15360), ("1xL4", 23034)),
            *(("1xA10", 23028), ("1xA10G", 23028), ("1xB200", 183359)),
        ):
            self.assertEqual(make_described_machine(name).devices[1].memory_bytes, mib * 2**20)

    def test_a_computer_with_one_gpu_has_the_processor_that_clouds_rent_with_it(self):
        one, two = (make_described_machine(name).devices[0] for name in ("1xT4", "2xT4"))
        self.assertEqual((one.model, one.memory_bytes), ("CPU-4-cores", 32 * 2**30))
        self.assertEqual((two.model, two.memory_bytes), ("CPU", 192 * 2**30))
        # A computer of one's own is the same with one GPU.
        one, two = (make_described_machine(name).devices[0] for name in ("1xK80", "2xK80"))
        self.assertEqual(one, two)

    def test_the_table_has_a_line_for_every_machine(self):
        table = format_catalog()
        for name, largest in _LARGEST.items():
            self.assertRegex(table, rf"\n{re.escape(name)} +{largest} ")
        for name in _SOCKETS:
            self.assertRegex(table, rf"\n{re.escape(name)} +2 +1\.000 TiB +all .* - +{name[2:]}\n")
        self.assertLess(table.count("\n"), 30)
        # TensorFlow leaves 0.94 of a P100, and a plan uses 0.97 of that.
        self.assertRegex(table, r"\nNxP100 +16 +15\.90 GiB +14\.50 GiB +7\.44 +549 +9 +11\.5 ")
        plan_bytes = compute_plan_bytes(compute_usable_bytes(int(15.9 * 2**30)))
        self.assertAlmostEqual(plan_bytes / 2**30, 0.97 * 0.94 * 15.9, places=2)


class TopologyTest(absltest.TestCase):
    def test_gpus_of_a_k80_board_share_a_channel_to_the_cpu_in_each_direction(self):
        machine = make_described_machine("4xK80")
        up = [_find_link(machine, f"GPU:{i}", "CPU:0").channel for i in range(4)]
        down = [_find_link(machine, "CPU:0", f"GPU:{i}").channel for i in range(4)]
        self.assertEqual(up[0], up[1])
        self.assertEqual(up[2], up[3])
        self.assertEqual(down[0], down[1])
        self.assertLen({*up, *down}, 4)

    def test_copies_between_k80_boards_use_the_channel_to_the_cpu(self):
        machine = make_described_machine("4xK80")
        within, across = (
            _find_link(machine, "GPU:0", "GPU:1"),
            _find_link(machine, "GPU:1", "GPU:2"),
        )
        self.assertIsNone(within.channel)
        self.assertEqual(across.channel, _find_link(machine, "GPU:0", "CPU:0").channel)
        self.assertGreater(within.bandwidth_bytes_per_sec, across.bandwidth_bytes_per_sec)

    def test_every_gpu_of_a_cube_mesh_has_six_links(self):
        machine = make_described_machine("8xV100")
        for i in range(8):
            direct = [
                link
                for j in range(8)
                if j != i
                and (link := _find_link(machine, f"GPU:{i}", f"GPU:{j}")).channel is None
                and link.bandwidth_bytes_per_sec > 20e9
            ]
            self.assertEqual(sum(link.bandwidth_bytes_per_sec for link in direct), 6 * 24e9)
            self.assertLen(direct, 4)

    def test_links_of_a_cube_mesh_are_symmetric(self):
        machine = make_described_machine("8xV100")
        for i, j in itertools.combinations(range(8), 2):
            there, back = (_find_link(machine, f"GPU:{a}", f"GPU:{b}") for a, b in ((i, j), (j, i)))
            self.assertEqual(there.bandwidth_bytes_per_sec, back.bandwidth_bytes_per_sec)

    def test_a_v100_of_more_memory_has_the_same_links(self):
        larger, smaller = make_described_machine("8xV100-32GB"), make_described_machine("8xV100")
        self.assertEqual(larger.links, smaller.links)

    def test_links_from_a_gpu_to_an_nvswitch_share_a_channel(self):
        machine = make_described_machine("4xH100")
        channels = [_find_link(machine, "GPU:1", f"GPU:{j}").channel for j in (0, 2, 3)]
        self.assertLen(set(channels), 1)
        self.assertNotEqual(channels[0], _find_link(machine, "GPU:1", "CPU:0").channel)
        self.assertNotEqual(channels[0], _find_link(machine, "GPU:0", "GPU:1").channel)


class SocketsTest(parameterized.TestCase):
    @parameterized.parameters(*_SOCKETS)
    def test_every_socket_is_a_worker_process_with_half_of_the_computer(self, name):
        machine = make_described_machine(name.replace("N", "2", 1))
        self.assertEqual(
            [device.name for device in machine.devices],
            [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)],
        )
        # The classes of both sockets together are those of computers with GPUs.
        both = {"NxEPYC-7742-socket": "8xA100", "NxXeon-8480C-socket": "8xH100"}[name]
        computer = make_described_machine(both)
        whole, half = (each.find_class(each.devices[0]) for each in (computer, machine))
        for number in ("peak_flops", "memory_bytes", "memory_bandwidth_bytes_per_sec"):
            self.assertEqual(2 * getattr(half, number), getattr(whole, number), number)
        self.assertLen(machine.links, 2)
        self.assertEqual(Machine.from_json(json.loads(json.dumps(machine.to_json()))), machine)

    def test_one_socket_has_no_links(self):
        self.assertEqual(make_described_machine("1xEPYC-7742-socket").links, ())

    def test_there_are_at_most_two(self):
        for number in (0, 3):
            message = f"machine '{number}xEPYC-7742-socket': .* from 1 to 2 sockets, not {number}$"
            with self.assertRaisesRegex(MachineError, message):
                make_described_machine(f"{number}xEPYC-7742-socket")


class MixTest(parameterized.TestCase):
    def test_has_the_cpu_of_the_first_part_and_the_gpus_of_all_in_order(self):
        machine = make_described_machine("1xA100+2xT4")
        self.assertEqual((machine.spec, machine.kind), ("1xA100+2xT4", "described"))
        models = [device.model for device in machine.devices]
        self.assertEqual(models, ["2xEPYC-7742", "A100", "T4", "T4"])
        names = [_PREFIX + name for name in ("CPU:0", "GPU:0", "GPU:1", "GPU:2")]
        self.assertEqual([device.name for device in machine.devices], names)
        pairs = [(link.source, link.destination) for link in machine.links]
        self.assertEqual(pairs, list(itertools.permutations(names, 2)))
        self.assertEqual(Machine.from_json(json.loads(json.dumps(machine.to_json()))), machine)
        first_is_t4 = make_described_machine("2xT4+1xA100").devices[0]
        self.assertEqual(first_is_t4, make_described_machine("2xT4").devices[0])

    def test_copies_between_parts_pass_the_processor_at_the_slower_speed(self):
        machine = make_described_machine("2xA100+1xL4+1xT4")
        for source, destination, rate in (
            ("GPU:0", "GPU:2", 18e9),  # PCIe 4.0 on both sides.
            ("GPU:2", "GPU:0", 18e9),
            ("GPU:0", "GPU:3", 9e9),  # The T4 has PCIe 3.0.
            ("GPU:3", "GPU:2", 9e9),
        ):
            link = _find_link(machine, source, destination)
            self.assertEqual(link.bandwidth_bytes_per_sec, rate)
            # The copy takes the path of the sender to the processor.
            self.assertEqual(link.channel, _find_link(machine, source, "CPU:0").channel)

    def test_gpus_of_one_part_are_connected_as_in_their_own_machine(self):
        machine, v100 = make_described_machine("1xT4+4xV100"), make_described_machine("4xV100")
        for i, j in itertools.permutations(range(4), 2):
            mixed = _find_link(machine, f"GPU:{i + 1}", f"GPU:{j + 1}")
            own = _find_link(v100, f"GPU:{i}", f"GPU:{j}")
            self.assertEqual(mixed.bandwidth_bytes_per_sec, own.bandwidth_bytes_per_sec)
        a100 = make_described_machine("1xT4+2xA100")
        self.assertEqual(_find_link(a100, "GPU:1", "GPU:2").bandwidth_bytes_per_sec, 270e9)

    def test_no_pcie_path_is_faster_than_those_of_the_computer(self):
        for gpu, rate in (("GPU:0", 11.5e9), ("GPU:1", 11.5e9)):
            link = _find_link(make_described_machine("1xT4+2xL4"), "CPU:0", gpu)
            self.assertEqual(link.bandwidth_bytes_per_sec, rate)
        between = _find_link(make_described_machine("1xT4+2xL4"), "GPU:1", "GPU:2")
        self.assertEqual(between.bandwidth_bytes_per_sec, 9e9)
        slow_card = _find_link(make_described_machine("1xL4+1xT4"), "CPU:0", "GPU:1")
        self.assertEqual(slow_card.bandwidth_bytes_per_sec, 11.5e9)

    def test_parts_share_no_switch(self):
        machine = make_described_machine("1xK80+2xK80")
        channels = [_find_link(machine, f"GPU:{i}", "CPU:0").channel for i in range(3)]
        self.assertNotEqual(channels[0], channels[1])
        self.assertEqual(channels[1], channels[2])

    def test_a_mix_of_one_kind_without_other_links_is_that_machine(self):
        self.assertEqual(
            make_described_machine("1xT4+2xT4").links, make_described_machine("3xT4").links
        )

    def test_the_source_names_the_parts_and_the_rule(self):
        source = find_machine_source("1xA100+2xT4")
        for text in ("the computer of the first part", "1xA100: NVIDIA DGX", "2xT4: T4 cards"):
            self.assertIn(text, source)
        self.assertEqual(find_machine_source("unknown"), "")

    @parameterized.parameters(
        ("1xA100+2xT5", r"unknown part '2xT5' \(did you mean '2xT4'\?\): expected a name of"),
        ("1xA100+", "unknown part '': expected a name"),
        ("A100+1xT4", r"unknown part 'A100' \(did you mean '1xA100'"),
        ("1xA100+9xT4", "'9xT4': such a machine has from 1 to 8 GPUs, not 9"),
        ("1xA100+0xT4", "'0xT4': such a machine has from 1 to 8 GPUs, not 0"),
        ("2xEPYC-7742-socket+1xT4", "'2xEPYC-7742-socket': only GPUs can be mixed, not sockets"),
        ("16xK80+1xT4", "a mix has at most 16 GPUs, not 17"),
        ("+".join(["1xT4"] * 17), "a mix has at most 16 GPUs, not 17"),
        ("+".join(["1xT4"] * 10**5), "unknown part '1xT4.1xT4"),
    )
    def test_rejects_wrong_parts(self, spec, message):
        with self.assertRaisesRegex(MachineError, f"^machine '.*: {message}") as caught:
            make_described_machine(spec)
        self.assertLess(len(str(caught.exception)), 600)


class NetworkedComputersTest(parameterized.TestCase):
    def test_each_computer_is_a_task_with_the_links_of_its_own(self):
        machine = make_described_machine("2x4xV100@10Gb")
        one = make_described_machine("4xV100")
        self.assertEqual((machine.spec, machine.kind), ("2x4xV100@10Gb", "described"))
        for task in range(2):
            prefix = f"/job:worker/replica:0/task:{task}/device:"
            devices = machine.devices[5 * task : 5 * task + 5]
            self.assertEqual(
                [device.name.removeprefix(prefix) for device in devices],
                ["CPU:0", *(f"GPU:{number}" for number in range(4))],
            )
            self.assertEqual([device.model for device in devices], [d.model for d in one.devices])
            for i, j in itertools.permutations(range(5), 2):
                own = one.links[i * 4 + j - (j > i)]
                [link] = [
                    each
                    for each in machine.links
                    if (each.source, each.destination) == (devices[i].name, devices[j].name)
                ]
                self.assertEqual(
                    (link.latency_secs, link.bandwidth_bytes_per_sec),
                    (own.latency_secs, own.bandwidth_bytes_per_sec),
                )
        self.assertEqual(Machine.from_json(json.loads(json.dumps(machine.to_json()))), machine)

    def test_channels_are_of_one_computer_and_all_that_it_sends_shares_one(self):
        machine = make_described_machine("3x2xK80@10Gb")
        tasks_of: dict[str | None, set[tuple[str, bool]]] = {}
        for link in machine.links:
            task = link.source.partition("/device:")[0]
            is_network = not link.destination.startswith(f"{task}/")
            tasks_of.setdefault(link.channel, set()).add((task, is_network))
        tasks_of.pop(None)
        for tasks in tasks_of.values():
            self.assertLen(tasks, 1)
        self.assertLen([tasks for tasks in tasks_of.values() if {True} == {n for _, n in tasks}], 3)

    def test_the_slower_of_network_and_pcie_counts(self):
        # 10 Gb are 1.25 GB, of which 1448 of 1538 bytes are payload; a K80 sends 10 GB/s at most.
        for gigabits, rate in (("10", 1.25e9 * 1448 / 1538), ("2.5", 0.3125e9 * 1448 / 1538)):
            machine = make_described_machine(f"2x1xK80@{gigabits}Gb")
            across = [
                link for link in machine.links if link.source.partition("/device:")[0][-1] == "0"
                and link.destination.partition("/device:")[0][-1] == "1"
            ]  # fmt: skip
            self.assertLen(across, 4)
            for link in across:
                self.assertAlmostEqual(link.bandwidth_bytes_per_sec, rate)
        fast = make_described_machine("2x1xK80@400Gb")
        gpus = [device.name for device in fast.devices if device.type == "GPU"]
        [link] = [each for each in fast.links if [each.source, each.destination] == gpus]
        own = _find_link(make_described_machine("1xK80"), "GPU:0", "CPU:0")
        self.assertEqual(link.bandwidth_bytes_per_sec, own.bandwidth_bytes_per_sec)

    def test_a_network_that_is_faster_than_reported_is_told(self):
        # 10 Gb are 1.25 GB/s with headers, and 6.8 Gb are 0.8 GB/s without.
        told = describe_network("2x4xV100@10Gb")
        self.assertStartsWith(told, "the network of 2x4xV100@10Gb is planned with 1.2 GB/s;")
        self.assertEndsWith(told, "no more than 0.8 GB/s, which is 2x4xV100@6.8Gb")
        for name in ("2x4xV100@6.8Gb", "2x4xV100@1Gb", "4xV100", "machine.json"):
            self.assertIsNone(describe_network(name))

    def test_the_source_has_the_network_and_the_computer(self):
        source = find_machine_source("2x1xA100+2xT4@10Gb")
        for text in ("with a network", "the computer of the first part", "1xA100: NVIDIA DGX"):
            self.assertIn(text, source)

    @parameterized.parameters(
        ("1x4xV100@10Gb", "from 2 to 8 computers can have a network, not 1"),
        ("9x1xV100@10Gb", "from 2 to 8 computers can have a network, not 9"),
        ("8x8xV100@10Gb", "have at most 40 CPUs and GPUs in all, not 72"),
        ("2x4xV100@0Gb", "a network of 0 Gb carries nothing"),
        ("2x4xV101@10Gb", r"unknown machine '4xV101' \(did you mean '4xV100'\?\)"),
        ("2x9xV100@10Gb", "such a machine has from 1 to 8 GPUs, not 9"),
        ("2x2xEPYC-7742-socket@10Gb", "only computers with GPUs can have a network"),
        ("2x4xV100", r"\(did you mean '2x4xV100@10Gb'\?\)"),
        ("2x4xV100@10GB", r"\(did you mean '2x4xV100@10Gb'\?\)"),
    )
    def test_rejects_wrong_names(self, spec, message):
        with self.assertRaisesRegex(MachineError, message):
            find_machine(spec)


if __name__ == "__main__":
    absltest.main()
