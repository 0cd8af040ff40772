"""Tests of problem files: round trips, and messages about invalid content."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import pathlib
import re
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_error import ProblemError
from tf_placer.problem.problem_file import (
    problem_from_json,
    problem_to_json,
    read_problem,
    write_problem,
)

_TESTDATA = pathlib.Path(__file__).parent / "testdata"
_EXAMPLE = _TESTDATA / "two_devices.json"
_NO_ENTRY = object()


def make_changed(path: str, value: object) -> dict:
    """Makes the example with another value at a path such as "devices.0.slots"."""
    document = json.loads(_EXAMPLE.read_text())
    *parents, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    container = document
    for key in parents:
        container = container[key]
    if value is _NO_ENTRY:
        del container[last]
    elif last == "append":
        container.append(value)
    else:
        container[last] = value
    return document


def random_problem(num_operations: int, num_devices: int, seed: int) -> PlacementProblem:
    """Makes a problem in which operations are in random order and every entry occurs."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(num_operations)
    compute_secs = rng.exponential(1e-3, [num_operations, num_devices])
    compute_secs[rng.random(compute_secs.shape) < 0.2] = math.inf
    compute_secs[:, 0] = rng.random(num_operations)
    reads = np.sort(rng.integers(0, num_operations, [3 * num_operations, 2]), axis=1)
    reads = names[reads[reads[:, 0] < reads[:, 1]]]
    num_tensors, num_reads = len(reads) // 2, len(reads) // 2
    devices = [f"device {index}" for index in range(num_devices)]
    groups = rng.integers(0, 10, num_operations)
    return PlacementProblem(
        devices=tuple(
            ProblemDevice(name, "GPU", 2**60 + 1, 3, 0.1, fixed_secs=0.3) for name in devices
        ),
        links=tuple(
            Link(a, b, rng.random(), rng.random(), None if rng.random() < 0.5 else "buß")
            for a in devices
            for b in devices
            if a != b
        ),
        operation_names=tuple(f"operation/{index} ß" for index in range(num_operations)),
        compute_secs=compute_secs,
        resident_bytes=rng.integers(0, 2**40, num_operations),
        temp_bytes=rng.integers(0, 2**40, num_operations),
        groups=groups,
        tensor_producers=reads[:num_reads, 0],
        tensor_bytes=rng.integers(0, 2**40, num_tensors),
        consumer_start=np.arange(num_tensors + 1),
        consumers=reads[:num_reads, 1],
        control_edges=reads[num_reads:],
        local_bytes=None if rng.random() < 0.5 else np.zeros(num_tensors, np.int64),
        coarse_groups=None if rng.random() < 0.5 else groups // 3,
        layers=None if rng.random() < 0.5 else groups // 6,
        operation_types=None if rng.random() < 0.5 else ["MatMul ß"] * num_operations,
        batch_size=None if rng.random() < 0.5 else 32,
        graph_name="" if rng.random() < 0.5 else "the model 'buß'",
        tensor_shapes=None
        if rng.random() < 0.5
        else [(2, -1)[: t % 3] for t in range(num_tensors)],
    )


class ProblemFileTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "p.json")

    def write(self, text: str | bytes) -> None:
        pathlib.Path(self.path).write_bytes(text.encode() if isinstance(text, str) else text)

    def assert_same(self, one: PlacementProblem, other: PlacementProblem) -> None:
        for field in dataclasses.fields(PlacementProblem):
            left, right = getattr(one, field.name), getattr(other, field.name)
            if isinstance(left, np.ndarray):
                self.assertEqual(left.dtype, right.dtype, field.name)
                np.testing.assert_array_equal(left, right, field.name)
            else:
                self.assertEqual(left, right, field.name)


class RoundTripTest(ProblemFileTestCase):
    def test_reading_gives_exactly_what_was_written(self):
        for seed in range(5):
            problem = random_problem(40, 1 + seed, seed)
            write_problem(problem, self.path)
            self.assert_same(read_problem(self.path), problem)

    def test_a_problem_of_100000_operations_survives_the_round_trip(self):
        problem = random_problem(100_000, 2, 0)
        write_problem(problem, self.path)
        self.assert_same(read_problem(self.path), problem)

    def test_the_example_is_read_correctly(self):
        problem = read_problem(_EXAMPLE)
        self.assertEqual(
            problem.devices,
            (
                ProblemDevice("cpu:0", "CPU", 16 * 10**9, 1),
                ProblemDevice("gpu:0", "GPU", 12 * 10**9),
            ),
        )
        self.assertEqual(problem.links[1], Link("gpu:0", "cpu:0", 0.25, 100.0, "pcie"))
        self.assertEqual(problem.operation_names, ("read", "train", "count"))
        self.assertEqual(problem.compute_secs.tolist(), [[2, math.inf], [4, 1], [0.5, math.inf]])
        self.assertEqual(problem.resident_bytes.tolist(), [100, 30, 0])
        self.assertEqual(problem.temp_bytes.tolist(), [0, 20, 0])
        self.assertEqual(problem.groups.tolist(), [0, 1, 0])
        self.assertEqual(problem.tensor_producers.tolist(), [0])
        self.assertEqual(problem.tensor_bytes.tolist(), [200])
        self.assertEqual(problem.consumer_start.tolist(), [0, 1])
        self.assertEqual(problem.consumers.tolist(), [1])
        self.assertEqual(problem.control_edges.tolist(), [[1, 2]])

    def test_whole_numbers_may_be_written_with_an_exponent_anywhere(self):
        document = json.loads(_EXAMPLE.read_text(), parse_int=float)
        self.assert_same(problem_from_json(document), read_problem(_EXAMPLE))

    @parameterized.parameters(
        ("links.0.channel", None),
        ("links.0.channel", _NO_ENTRY),
        ("operations.1.temp_bytes", _NO_ENTRY),
        ("operations.1.group", 7),
        ("operations.0.compute_secs", [0, None]),
        ("links.0.latency_secs", 0),
        ("tensors.0.consumers", []),
        ("tensors.0.consumers", [1, 1, 2]),
        ("tensors.0.bytes", 0),
        ("tensors", []),
        ("control_edges", []),
        ("control_edges", [[1, 2], [1, 2]]),
    )
    def test_unusual_values_are_allowed(self, path, value):
        problem_from_json(make_changed(path, value))

    def test_the_json_form_is_that_of_the_format(self):
        expected = json.loads(_EXAMPLE.read_text())
        for operation in expected["operations"]:
            operation.setdefault("temp_bytes", 0)
        self.assertEqual(problem_to_json(read_problem(_EXAMPLE)), expected)


class WritingTest(ProblemFileTestCase):
    def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(self):
        self.write("old")
        with (
            mock.patch.object(os, "replace", side_effect=OSError(28, "No space left on device")),
            self.assertRaisesRegex(ProblemError, "cannot write the problem '.*p.json': No space"),
        ):
            write_problem(read_problem(_EXAMPLE), self.path)
        self.assertEqual(pathlib.Path(self.path).read_text(), "old")
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["p.json"])

    def test_a_folder_that_is_missing_is_named(self):
        path = os.path.join(self.path, "q.json")
        with self.assertRaisesRegex(ProblemError, "cannot write the problem '.*q.json': No such"):
            write_problem(read_problem(_EXAMPLE), path)


class UnreadableFileTest(ProblemFileTestCase):
    def test_a_file_that_cannot_be_read_is_named(self):
        missing = "^cannot read the problem '.*p.json': No such file or directory$"
        with self.assertRaisesRegex(FileNotFoundError, missing):
            read_problem(self.path)
        folder = pathlib.Path(os.path.dirname(self.path))
        with self.assertRaisesRegex(IsADirectoryError, "read the problem '.*': Is a directory"):
            read_problem(folder)

    def test_a_machine_in_place_of_a_file_needs_a_profile(self):
        for name in ("2xK80", "1xK80+1xT4"):
            message = rf"No such .* \({re.escape(name)} is a machine: `profile` makes"
            with self.assertRaisesRegex(FileNotFoundError, message):
                read_problem(name)

    @parameterized.named_parameters(
        ("empty", "", "p.json: line 1, column 1 is not JSON: Expecting value"),
        ("comma", '{"format": 1,\n}', "p.json: line 2, column 1 is not JSON: "),
        (
            "not_utf_8",
            b'{"format": "\xff"}',
            "p.json: this is not JSON: it is not text in UTF-8, from byte 12 on",
        ),
        ("too_deep", "[" * 100_000, "p.json: this is not JSON: "),
        ("too_long", "9" * 5000, "p.json: this is not JSON: "),
        ("list", "[]", "p.json: the problem is a list: it must be an object"),
        ("nan", "NaN", "p.json: the problem is NaN: it must be an object"),
    )
    def test_files_without_a_json_object_are_refused(self, text, message):
        self.write(text)
        with self.assertRaisesRegex(ProblemError, message) as caught:
            read_problem(self.path)
        self.assertNotIn("\n", str(caught.exception))

    def test_a_duplicate_entry_is_refused_by_its_place(self):
        text = _EXAMPLE.read_text()
        self.write(text.replace('"bytes": 200', '"bytes": 200, "bytes": 300'))
        with self.assertRaisesRegex(
            ProblemError, r'p.json: .* tensors\[0\] has the entry "bytes" tw'
        ):
            read_problem(self.path)

    @parameterized.parameters(
        ("[2.0, null]", "[NaN, null]", r"operations\[0\].compute_secs\[0\] is NaN"),
        ("[2.0, null]", "[Infinity, null]", r"operations\[0\].compute_secs\[0\] is Infinity"),
        ("[2.0, null]", "[1e999, null]", r"operations\[0\].compute_secs\[0\] is Infinity"),
        ("[2.0, null]", "[-Infinity, 1]", r"operations\[0\].compute_secs\[0\] is -Infinity"),
        ("0.25", "NaN", r"links\[1\].latency_secs is NaN"),
        ("0.25", "1e999", r"links\[1\].latency_secs is Infinity"),
        ("200", "NaN", r"tensors\[0\].bytes is NaN"),
        ("200", "1e999", r"tensors\[0\].bytes is Infinity"),
        ("16e9", "Infinity", r"devices\[0\].memory_bytes is Infinity"),
        ('"gpu:0", "kind"', 'NaN, "kind"', r"devices\[1\].name is NaN"),
    )
    def test_numbers_that_are_not_finite_are_refused(self, old, new, message):
        text = _EXAMPLE.read_text()
        self.assertIn(old, text)
        self.write(text.replace(old, new))
        with self.assertRaisesRegex(ProblemError, f"p.json: {message}"):
            read_problem(self.path)


_EXTRA_LINK = {
    "source": "cpu:0",
    "destination": "gpu:0",
    "latency_secs": 0,
    "bandwidth_bytes_per_sec": 1,
}
_THIRD_DEVICE = {"name": "gpu:1", "kind": "GPU", "memory_bytes": 1, "slots": 1}


class RefusedProblemTest(parameterized.TestCase):
    """Tests one invalid change each, and the message that names it."""

    @parameterized.parameters(
        # The outermost object.
        ("format", 2, "format is 2: it must be 1"),
        ("format", True, "format is true: it must be 1"),
        ("format", "1", 'format is "1": it must be 1'),
        ("format", _NO_ENTRY, 'the problem has no entry "format"'),
        ("devices", _NO_ENTRY, 'the problem has no entry "devices"'),
        ("control_edges", _NO_ENTRY, 'the problem has no entry "control_edges"'),
        ("comment", "hello", 'the problem has an unknown entry "comment"'),
        ("devices", {}, "devices is an object: it must be a list"),
        ("links", None, "links is null: it must be a list"),
        ("operations", "x", 'operations is "x": it must be a list'),
        ("tensors", 3, "tensors is 3: it must be a list"),
        ("control_edges", False, "control_edges is false: it must be a list"),
        # Devices.
        ("devices", [], "devices is empty|compute_secs .* for 0 devices"),
        ("devices.1", [], r"devices\[1\] is a list: it must be an object"),
        ("devices.1.name", _NO_ENTRY, r'devices\[1\] has no entry "name"'),
        ("devices.1.cores", 4, r'devices\[1\] has an unknown entry "cores"'),
        ("devices.1.name", 7, r"devices\[1\].name is 7: it must be text"),
        ("devices.1.kind", None, r"devices\[1\].kind is null: it must be text"),
        ("devices.1.name", "cpu:0", r'devices\[1\].name is "cpu:0", which devices\[0\]'),
        ("devices.0.memory_bytes", -1, r"devices\[0\].memory_bytes is -1: .*from 0 on"),
        ("devices.0.memory_bytes", 1.5, r"devices\[0\].memory_bytes is 1.5: .* whole number"),
        ("devices.0.memory_bytes", True, r"devices\[0\].memory_bytes is true: .* whole number"),
        ("devices.0.memory_bytes", None, r"devices\[0\].memory_bytes is null: .* whole number"),
        ("devices.0.memory_bytes", 2**63, r"devices\[0\].memory_bytes is 92.*: .* 2\*\*63"),
        ("devices.0.memory_bytes", 1e300, r"devices\[0\].memory_bytes is 1e\+300: .* 2\*\*63"),
        ("devices.0.slots", 0, r"devices\[0\].slots is 0 .*from 1 to"),
        ("devices.0.slots", 2**40, r"devices\[0\].slots is 1099511627776 .*from 1 to 2147483647"),
        ("devices.0.slots", "1", r'devices\[0\].slots is "1": it must be a whole number'),
        # Links.
        ("links.0", None, r"links\[0\] is null: it must be an object"),
        ("links.0.source", _NO_ENTRY, r'links\[0\] has no entry "source"'),
        ("links.0.bytes", 1, r'links\[0\] has an unknown entry "bytes"'),
        ("links.0.source", "tpu", r'links\[0\].source is "tpu", and no device is called so'),
        ("links.0.source", ["cpu:0"], r"links\[0\].source is a list, and no device"),
        ("links.0.destination", 1, r"links\[0\].destination is 1, and no device is called so"),
        ("links.0.destination", "cpu:0", r'links\[0\] leads from "cpu:0" to itself'),
        ("links.append", _EXTRA_LINK, r'links\[2\] leads from "cpu:0" to "gpu:0", as links\[0\]'),
        ("links.0.latency_secs", -0.5, r"links\[0\].latency_secs is -0.5 .*0 or more"),
        ("links.0.latency_secs", "1", r'links\[0\].latency_secs is "1" .*a finite number'),
        ("links.0.latency_secs", True, r"links\[0\].latency_secs is true .*a finite number"),
        ("links.0.bandwidth_bytes_per_sec", 0, r"links\[0\].bandwidth_bytes_per_sec is 0 .*than 0"),
        ("links.0.bandwidth_bytes_per_sec", -1, r"links\[0\].bandwidth_bytes_per_sec is -1 "),
        ("links.0.bandwidth_bytes_per_sec", None, r"links\[0\].bandwidth_bytes_per_sec is null"),
        ("links.0.bandwidth_bytes_per_sec", 10**320, "bandwidth_bytes_per_sec is 1000"),
        ("links.0.channel", 3, r"links\[0\].channel is 3: it must be text"),
        ("links", [], r'devices\[0\] \("cpu:0"\) is unreachable: no link leads to it'),
        ("links.0", _NO_ENTRY, r'devices\[1\] \("gpu:0"\) is unreachable: no link leads to it'),
        # Operations.
        ("operations", [], "operations is empty"),
        ("operations.1", 1, r"operations\[1\] is 1: it must be an object"),
        ("operations.1.group", _NO_ENTRY, r'operations\[1\] has no entry "group"'),
        ("operations.1.gruop", 1, r'operations\[1\] has an unknown entry "gruop"'),
        ("operations.1.name", None, r"operations\[1\].name is null: it must be text"),
        ("operations.1.compute_secs", None, r"operations\[1\].compute_secs is null: .* a list"),
        (
            "operations.1.compute_secs",
            [1.0],
            r'operations\[1\].compute_secs \("train"\) has 1 numbers for 2 devices',
        ),
        ("operations.1.compute_secs", [1, 2, 3], r"compute_secs .* has 3 numbers for 2 devices"),
        (
            "operations.1.compute_secs.0",
            -1,
            r'operations\[1\].compute_secs\[0\] is -1.0 \(operation "train" on "cpu:0"\)',
        ),
        ("operations.1.compute_secs.1", "1", r'operations\[1\].compute_secs\[1\] is "1": '),
        ("operations.1.compute_secs.1", True, r"operations\[1\].compute_secs\[1\] is true: "),
        ("operations.1.compute_secs.1", [], r"operations\[1\].compute_secs\[1\] is a list: "),
        ("operations.1.compute_secs.1", 10**320, r"operations\[1\].compute_secs\[1\] is 100.*64"),
        (
            "operations.1.compute_secs",
            [None, None],
            r'operations\[1\] \("train"\) may go nowhere: its compute_secs are all null',
        ),
        (
            "operations.1.resident_bytes",
            -3,
            r'operations\[1\].resident_bytes is -3 \(operation "train"\): .* 0 or more',
        ),
        ("operations.1.resident_bytes", 0.5, r"operations\[1\].resident_bytes is 0.5: .* whole"),
        ("operations.1.temp_bytes", -3, r"operations\[1\].temp_bytes is -3 "),
        ("operations.1.temp_bytes", None, r"operations\[1\].temp_bytes is null: .* whole number"),
        ("operations.1.group", -1, r'operations\[1\].group is -1 \(operation "train"\)'),
        ("operations.1.group", 10**9, r"operations\[1\].group is 1000000000 .* 0 to 1048575"),
        ("operations.1.group", 10**30, r"operations\[1\].group is 10+: it must be less than"),
        ("operations.1.group", "0", r'operations\[1\].group is "0": it must be a whole number'),
        # Copies in streams.
        (
            "devices.1.copies_in_stream",
            True,
            r'devices\[1\].copies_in_stream is true \(device "gpu:0"\): only an asynchronous',
        ),
        ("devices.1.copies_in_stream", 1, r"devices\[1\].copies_in_stream is 1 .* true or false"),
        ("devices.1.asynchronous", "yes", r'devices\[1\].asynchronous is "yes" .* true or false'),
        # Tensors.
        ("tensors.0", [], r"tensors\[0\] is a list: it must be an object"),
        ("tensors.0.size", 1, r'tensors\[0\] has an unknown entry "size"'),
        ("tensors.0.bytes", _NO_ENTRY, r'tensors\[0\] has no entry "bytes"'),
        ("tensors.0.producer", 3, r"tensors\[0\].producer is 3: .* index of an operation, 0 to 2"),
        ("tensors.0.producer", -1, r"tensors\[0\].producer is -1: .* index of an operation"),
        ("tensors.0.producer", 2**32, r"tensors\[0\].producer is 4294967296: .* an operation"),
        ("tensors.0.producer", "read", r'tensors\[0\].producer is "read": .* whole number'),
        ("tensors.0.bytes", -200, r'tensors\[0\].bytes is -200 \(made by operation "read"\)'),
        ("tensors.0.bytes", [], r"tensors\[0\].bytes is a list: it must be a whole number"),
        ("tensors.0.consumers", 1, r"tensors\[0\].consumers is 1: it must be a list"),
        ("tensors.0.consumers", [1, 9], r"tensors\[0\].consumers\[1\] is 9 .*, 0 to 2"),
        ("tensors.0.consumers", [-1], r'tensors\[0\].consumers\[0\] is -1 \(made by .*"read"\)'),
        ("tensors.0.consumers", [1, None], r"tensors\[0\].consumers\[1\] is null: .* whole"),
        # Control edges.
        ("control_edges.0", 1, r"control_edges\[0\] is 1: it must be a list"),
        ("control_edges.0", [1], r"control_edges\[0\] has 1 entries"),
        ("control_edges.0", [1, 2, 0], r"control_edges\[0\] has 3 entries"),
        ("control_edges.0", [1, 3], r"control_edges\[0\]\[1\] is 3: .* an operation, 0 to 2"),
        ("control_edges.append", [0, 1.5], r"control_edges\[1\]\[1\] is 1.5: .* whole number"),
        # Cycles.
        ("tensors.0.consumers", [0], r'a cycle: operations\[0\] \("read"\) -> operations\[0\]'),
        ("control_edges.append", [2, 1], r'cycle: operations\[.\] \("(count|train)"\) -> '),
        ("control_edges.append", [2, 0], r'cycle: .*"(read|train|count)".* -> .* -> .* -> '),
        (
            "tensors.append",
            {"producer": 2, "bytes": 0, "consumers": [0]},
            r'cycle: .*"(read|train|count)".* -> .* -> .* -> ',
        ),
    )
    def test_is_refused_with_one_sentence_that_names_the_entry(self, path, value, message):
        with self.assertRaisesRegex(ProblemError, message) as caught:
            problem_from_json(make_changed(path, value))
        text = str(caught.exception)
        self.assertNotIn("\n", text)
        self.assertLess(len(text), 250)

    def test_a_missing_link_between_reachable_devices_is_named(self):
        document = make_changed("devices.append", _THIRD_DEVICE)
        for operation in document["operations"]:
            operation["compute_secs"].append(None)
        for source, destination in (("cpu:0", "gpu:1"), ("gpu:1", "cpu:0"), ("gpu:1", "gpu:0")):
            document["links"].append({**_EXTRA_LINK, "source": source, "destination": destination})
        with self.assertRaisesRegex(ProblemError, 'links has none from "gpu:0" to "gpu:1"'):
            problem_from_json(document)

    def test_a_device_that_no_link_leads_to_is_named(self):
        document = make_changed("devices.append", _THIRD_DEVICE)
        for operation in document["operations"]:
            operation["compute_secs"].append(None)
        for destination in ("cpu:0", "gpu:0"):
            document["links"].append({**_EXTRA_LINK, "source": "gpu:1", "destination": destination})
        with self.assertRaisesRegex(ProblemError, r'devices\[2\] \("gpu:1"\) is unreachable'):
            problem_from_json(document)

    def test_a_group_whose_operations_have_no_device_in_common_is_named(self):
        document = make_changed("operations.1.group", 0)
        document["operations"][1]["compute_secs"] = [None, 1.0]
        with self.assertRaisesRegex(
            ProblemError,
            r'group 0 may go nowhere: .*operations\[1\] \("train"\) and operations\[0\] \("read"\)',
        ):
            problem_from_json(document)

    @parameterized.parameters(
        ([0, 1, 2.5], r"operations\[2\].coarse_group is 2.5: it must be a whole number"),
        ([0, -1, 0], r'operations\[1\].coarse_group is -1 \(operation "train"\): it must be a num'),
        ([0, 1, None], r'operations\[2\] has no entry "coarse_group"'),
        ([4, 1, 3], r"operations\[2\].coarse_group is 3: it must be 4, as for operations\[0\], wh"),
        ([0, 0, 0], r"coarse group 0 may go nowhere: .*\[1\].*train.* and .*\[0\] \(.read.\)"),
    )
    def test_a_wrong_coarse_group_is_named(self, coarse_groups, message):
        # Operations 0 and 2 are one group.
        document = make_changed("operations.1.compute_secs", [None, 1.0])
        for operation, group in zip(document["operations"], coarse_groups, strict=True):
            if group is not None:
                operation["coarse_group"] = group
        with self.assertRaisesRegex(ProblemError, message):
            problem_from_json(document)

    def test_coarse_groups_are_read(self):
        document = json.loads(_EXAMPLE.read_text())
        for operation, group in zip(document["operations"], [3, 0, 3], strict=True):
            operation["coarse_group"] = group
        problem = problem_from_json(document)
        assert problem.coarse_groups is not None
        self.assertEqual(problem.coarse_groups.tolist(), [3, 0, 3])

    @parameterized.parameters(
        ([0, 1, 2.5], r"operations\[2\].layer is 2.5: it must be a whole number"),
        ([0, -1, 0], r'operations\[1\].layer is -1 \(operation "train"\): it must be a number f'),
        ([0, 2**31, 0], r"operations\[1\].layer is 2147483648 .*: it must be a number from 0 to"),
        ([0, 1, None], r'operations\[2\] has no entry "layer"'),
        (
            [4, 1, 3],
            r"operations\[2\].layer is 3: it must be 4, as for operations\[0\], .* group 0",
        ),
    )
    def test_a_wrong_layer_is_named(self, layers, message):
        # Operations 0 and 2 are one group.
        document = json.loads(_EXAMPLE.read_text())
        for operation, layer in zip(document["operations"], layers, strict=True):
            if layer is not None:
                operation["layer"] = layer
        with self.assertRaisesRegex(ProblemError, message):
            problem_from_json(document)

    def test_a_coarse_group_has_one_layer(self):
        document = json.loads(_EXAMPLE.read_text())
        for operation, layer in zip(document["operations"], [5, 6, 5], strict=True):
            operation["layer"] = layer
        self.assertEqual(problem_from_json(document).layers.tolist(), [5, 6, 5])
        for operation in document["operations"]:
            operation["coarse_group"] = 0
        with self.assertRaisesRegex(
            ProblemError,
            r"operations\[1\].layer is 6: it must be 5, as for operations\[0\], .* coarse group 0",
        ):
            problem_from_json(document)

    @parameterized.parameters(
        (["Mul", 3, "Add"], r"operations\[1\].type is 3"),
        (["Mul", None, "Add"], r'operations\[1\] has no entry "type"'),
    )
    def test_a_wrong_type_is_named(self, types, message):
        document = json.loads(_EXAMPLE.read_text())
        for operation, each in zip(document["operations"], types, strict=True):
            if each is not None:
                operation["type"] = each
        with self.assertRaisesRegex(ProblemError, message):
            problem_from_json(document)

    @parameterized.parameters(
        ([4, -2], r"tensors\[1\].shape\[1\] is -2 .*made by operation \"read\".*-1 for an unknown"),
        ([2.5], r"tensors\[1\].shape\[0\] is 2.5"),
        ([True], r"tensors\[1\].shape\[0\] is true"),
        (7, r"tensors\[1\].shape is 7"),
        (None, r'tensors\[1\] has no entry "shape"'),
    )
    def test_a_wrong_shape_is_named(self, shape, message):
        document = json.loads(_EXAMPLE.read_text())
        tensors = document["tensors"]
        tensors.append(copy.deepcopy(tensors[0]))
        tensors[0]["shape"] = [50, -1]
        if shape is not None:
            tensors[1]["shape"] = shape
        with self.assertRaisesRegex(ProblemError, message):
            problem_from_json(document)

    def test_as_many_shapes_as_tensors_are_needed(self):
        problem = problem_from_json(json.loads(_EXAMPLE.read_text()))
        with self.assertRaisesRegex(ProblemError, "2 tensor_shapes for 1 tensors"):
            dataclasses.replace(problem, tensor_shapes=[(), (3,)])

    def test_reading_does_not_change_the_document(self):
        document = json.loads(_EXAMPLE.read_text())
        original = copy.deepcopy(document)
        problem_from_json(document)
        self.assertEqual(document, original)


if __name__ == "__main__":
    absltest.main()
