"""Tests of reading NUMA nodes, in directories such as Linux makes."""

from __future__ import annotations

import os
import pathlib
from unittest import mock

from absl.testing import absltest, parameterized

from tests.tf_placer.machines.sysfs import write_nodes
from tf_placer.machines.numa_nodes import NumaNode, format_cores, parse_cores, read_numa_nodes

_GIB = 2**30


class ReadNumaNodesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def read(self, nodes, usable=range(64)):
        write_nodes(self.directory, nodes)
        with mock.patch.object(os, "sched_getaffinity", lambda pid: set(usable)):
            return read_numa_nodes(self.directory)

    @parameterized.parameters(1, 2, 4)
    def test_reads_cores_and_memory_of_each_node(self, count):
        nodes = self.read({k: (f"{8 * k}-{8 * k + 7}", (k + 1) * _GIB) for k in range(count)})
        expected = [NumaNode(tuple(range(8 * k, 8 * k + 8)), (k + 1) * _GIB) for k in range(count)]
        self.assertEqual(nodes, expected)

    def test_hyperthreads_have_the_numbers_behind_all_cores(self):
        nodes = self.read({0: ("0-1,4-5", _GIB), 1: ("2-3,6-7", _GIB)})
        self.assertEqual([node.cores for node in nodes], [(0, 1, 4, 5), (2, 3, 6, 7)])

    def test_nodes_are_in_the_order_of_their_numbers(self):
        nodes = self.read({10: ("20", 3 * _GIB), 9: ("9", 2 * _GIB), 1: ("1", _GIB)})
        self.assertEqual([node.cores for node in nodes], [(1,), (9,), (20,)])

    def test_a_node_of_memory_alone_has_no_process(self):
        nodes = self.read({0: ("0-1", _GIB), 1: ("2-3", _GIB), 2: ("", 64 * _GIB)})
        self.assertLen(nodes, 2)

    def test_a_node_without_memory_has_unknown_memory(self):
        nodes = self.read({0: ("0-1", _GIB), 1: ("2-3", 0)})
        self.assertEqual(nodes[1], NumaNode((2, 3), None))
        (self.directory / "node0" / "meminfo").unlink()
        self.assertEqual(read_numa_nodes(self.directory)[0], NumaNode((0, 1), None))

    def test_cores_that_the_process_may_not_use_do_not_count(self):
        described = {0: ("0-3", _GIB), 1: ("4-7", _GIB), 2: ("8-11", _GIB)}
        nodes = self.read(described, usable=[1, 2, 6])
        self.assertEqual([node.cores for node in nodes], [(1, 2), (6,)])

    def test_cores_that_are_offline_do_not_count(self):
        # Linux leaves them out of the lists of the nodes and of what a process may use.
        nodes = self.read({0: ("0,2-3", _GIB), 1: ("", _GIB)}, usable=[0, 2, 3])
        self.assertEqual([node.cores for node in nodes], [(0, 2, 3)])

    def test_there_may_be_no_description(self):
        self.assertEqual(read_numa_nodes(self.directory / "missing"), [])
        self.assertEqual(self.read({}), [])

    def test_the_nodes_of_this_computer_have_its_cores_once(self):
        nodes = read_numa_nodes()
        if not nodes:
            self.skipTest("Linux does not describe the nodes of this computer")
        cores = [core for node in nodes for core in node.cores]
        self.assertCountEqual(cores, os.sched_getaffinity(0))


class CoresTest(parameterized.TestCase):
    @parameterized.parameters(
        ("", []),
        ("0", [0]),
        ("0-2,8", [0, 1, 2, 8]),
        ("0-7,16-23", [*range(8), *range(16, 24)]),
        ("3,5,7", [3, 5, 7]),
        ("0-1,3-4,6", [0, 1, 3, 4, 6]),
    )
    def test_parses_what_it_formats(self, text, cores):
        self.assertEqual(parse_cores(text), cores)
        self.assertEqual(format_cores(cores), text)

    @parameterized.parameters(
        ("a", "'a'"),
        ("-1", "'-1'"),
        ("1,", "''"),
        ("7-0", "'7-0'"),
        ("1-2-3", "'1-2-3'"),
        (" 1", "' 1'"),
        ("\uff11", "'\uff11'"),
        ("0-999999999", "'0-999999999'"),
    )
    def test_names_what_is_no_core(self, text, culprit):
        with self.assertRaisesRegex(ValueError, f"^{culprit} is neither the number of a core nor"):
            parse_cores(text)


if __name__ == "__main__":
    absltest.main()
