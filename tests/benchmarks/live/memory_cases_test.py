"""Tests of the cases of models that do not fit, without their searches."""

from __future__ import annotations

import pathlib
import re
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.live import memory_cases
from benchmarks.live.memory_cases import format_results, place_by_hand
from benchmarks.live.memory_models import CASES
from graph_passes.errors import GraphError
from graph_passes.placement import Placement
from graph_passes.restrictions import match_names
from tests import graphs
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.search.config import SearchConfig

MIB = 1 << 20
RESULT = {
    "thread": "serving 1",
    "changed": True,
    "alone_error": "ResourceExhaustedError: OOM when allocating tensor",
    "values": "equal",
    "search_secs": 61.0,
    "steps": {
        "TensorFlow alone": "out of memory",
        "layer split": "out of memory",
        "tables on the CPU": [0.030, 0.020],
        "all on the CPU": [0.200, 0.300],
        "placed": [0.010, 0.020],
    },
}


class MemoryCasesTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))

    def test_the_best_placement_by_hand_is_compared_round_by_round(self):
        text = format_results({"first": RESULT})
        self.assertRegex(
            text,
            r"first +serving 1 +out of memory +14\.14 ms +tables on the CPU +24\.49 ms +"
            r"1\.73x \(1\.00 to 3\.00\) +equal +1 min 01 s",
        )
        self.assertIn("first: ResourceExhaustedError: OOM", text)

    def test_failures_have_no_step(self):
        steps = dict.fromkeys(RESULT["steps"], "out of memory")
        value = RESULT | {"changed": False, "steps": steps, "alone_error": None, "values": ""}
        del steps["placed"]
        text = format_results({"first": value})
        self.assertRegex(text, r"out of memory +unchanged +none fits +1 min 01 s$")

    def test_a_case_with_a_result_is_not_run_again(self):
        case = CASES["numa_nodes"]
        (self.directory / case.name).mkdir()
        (self.directory / case.name / "case.json").write_text('{"kept": 1}')
        found = memory_cases._run_case(case, self.directory, mock.Mock())
        self.assertEqual(found, {"kept": 1})

    def test_hand_rules_are_pins_and_all_else_is_on_the_first_gpu(self):
        made = graphs.two_branches()
        workload = read_workload(made.graph, made.fetches, made.feeds)
        machine = find_machine("2xK80")
        name = next(n.name for n in workload.graph_def.node if n.op == "MatMul")
        placed = place_by_hand(workload, machine, {name: "GPU:1"}, {}).assignment
        others = {d for n, d in placed.items() if n != name and "MatMul" in n}
        self.assertTrue(placed[name].endswith("GPU:1"))
        self.assertEqual(others, {machine.devices[1].name})
        with self.assertRaisesRegex(GraphError, "no operation of the step matches 'missing'"):
            place_by_hand(workload, machine, {"missing": "GPU:1"}, {})

    def test_the_line_about_memory_is_told_of_an_error(self):
        message = """Graph execution error:
            File "memory_cases.py", line 1, in main
            OOM when allocating tensor with shape[60000,32]
            Original stack trace"""
        self.assertStartsWith(memory_cases._summarize(message), "OOM when allocating")
        self.assertEqual(memory_cases._summarize("Another error\nin memory.py"), "Another error")

    def test_slots_of_keras_follow_the_layer_in_the_name_of_their_variable(self):
        case = CASES["four_gpus"]
        target, machine = case.make_target(self.directory), find_machine("4xK80")
        placed = place_by_hand(
            target.workload, machine, case.hand["layer split"], target.variables
        ).assignment
        for operation, name in target.variables.items():
            block = re.search(r"block_(\d)", name)
            gpu = int(block[1]) // 2 if block else 0
            self.assertEqual(placed[operation], machine.devices[1 + gpu].name, name)

    def test_values_are_compared_up_to_rounding(self):
        compare = memory_cases._compare_values
        one = {"values": [1.0, 2.0]}
        self.assertEqual(compare(one, one), "equal")
        self.assertEqual(compare(one, {"values": [1.0, 2.00002]}), "within 1e-05")
        self.assertRegex(compare(one, {"values": [1.0, 3.0]}), "differs by up to 1")
        self.assertEqual(compare(one, {"error": "ValueError: no"}), "ValueError: no")

    def test_a_small_gpu_has_the_memory_of_the_case(self):
        machine = find_machine(CASES["served_in_parts"].name_machine(self.directory))
        self.assertEqual([each.memory_bytes for each in machine.devices[1:]], [44 * MIB] * 2)

    @parameterized.parameters(*CASES)
    def test_models_exceed_a_gpu_and_their_rules_can_be_honored(self, name):
        case = CASES[name]
        machine = find_machine(case.name_machine(self.directory))
        target = case.make_target(self.directory)
        workload = target.workload
        for label, rules in case.hand.items():
            with self.subTest(label):
                placed = place_by_hand(workload, machine, rules, target.variables)
                self.assertIsInstance(placed, Placement)
                self.assertNotEmpty(placed.assignment)
        settings = SearchConfig(machine=machine, **case.settings)
        names = [node.name for node in workload.graph_def.node]
        for pattern in [*settings.pin, *sum(settings.keep_together, ())]:
            self.assertNotEmpty(match_names(pattern, names))
        if isinstance(case.machine, tuple) and name != "idle_gpu":
            self.assertGreater(_count_variable_bytes(workload), case.machine[0] * MIB)


def _count_variable_bytes(workload) -> int:
    total = 0
    for node in workload.graph_def.node:
        if node.op in ("VarHandleOp", "VariableV2"):
            shape = [dim.size for dim in node.attr["shape"].shape.dim]
            total += int(np.prod(shape)) * tf.dtypes.as_dtype(node.attr["dtype"].type).size
    return total


if __name__ == "__main__":
    tf.test.main()
