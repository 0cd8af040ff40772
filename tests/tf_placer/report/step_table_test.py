import dataclasses
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem, make_trace
from tf_placer.machines.machine import Link
from tf_placer.report.step_table import step_table
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.step_report import step_report

# D0 runs "read" 0-1 and "left" 1-5, D1 "right" 4-6 and "join" 7-8; the link carries the output of
# "read" from 1 to 4 and the output of "left" from 5 to 7.
WORKED_TABLE = """\
step 8.000 s, at least 8.000 s (joins; critical path 6.000 s, work 4.000 s): 1.000 × the bound
does not fit: D0 holds 137 B of at most 130 B

device  operations     busy  of step  compute  copying   peak  memory
------  ----------  -------  -------  -------  -------  -----  ------
D0               2  5.000 s    62.5%  5.000 s  5.000 s  137 B   130 B
D1               2  3.000 s    37.5%  3.000 s  5.000 s  110 B   110 B

link      transfers  bytes     busy  waiting
--------  ---------  -----  -------  -------
D0 -> D1          2   30 B  5.000 s      0 s

critical path: 6.000 s of operations (75.0%), 2.000 s of transfers (25.0%)
waits on it: 2 for inputs, 1 for transfers
on the critical path  where     number     time  of step  longest
--------------------  --------  ------  -------  -------  -------
other                 D0             2  5.000 s    62.5%  left
transfer              D0 -> D1       1  2.000 s    25.0%  left
other                 D1             1  1.000 s    12.5%  join

fullest is D0, 137 B at 1.000 s:
    100 B for the whole step, 30 B outputs, 7 B temporary
at its peak  of    bytes
-----------  ----  -----
output       read   20 B
output       left   10 B
temporary    left    7 B"""


def make_table(problem, placement):
    return step_table(step_report(make_trace(problem, placement)), lower_bounds(problem), problem)


def large_problem(rng):
    """Makes a problem with long names, many path segments, and more links than are shown."""
    num_operations = 120
    problem = make_problem(
        rng.lognormal(-3, 1, [num_operations, 5]).tolist(),
        names=[
            f"gradients/model/layer_{i}/a/scope/of/{'x' * 60}/{i}" for i in range(num_operations)
        ],
        tensors=[(i, 2**20, [i + 1]) for i in range(num_operations - 1)],
        temp_bytes=[2**30] * num_operations,
        memory_bytes=[2**34] * 5,
    )
    names = [f"/job:worker/replica:0/task:{task}/device:GPU:0" for task in range(5)]
    return dataclasses.replace(
        problem,
        devices=tuple(
            dataclasses.replace(device, name=name)
            for device, name in zip(problem.devices, names, strict=True)
        ),
        links=tuple(
            Link(source, destination, 1e-5, 1e8, "a channel with a long name")
            for source, destination in itertools.permutations(names, 2)
        ),
    )


class StepTableTest(absltest.TestCase):
    def test_a_step_worked_by_hand(self):
        problem = make_problem(
            [[1.0, 1.0], [4.0, 4.0], [2.0, 2.0], [1.0, 1.0]],
            names=["read", "left", "right", "join"],
            tensors=[(0, 20, [1, 2]), (1, 10, [3]), (2, 30, [3])],
            resident_bytes=[100, 0, 0, 50],
            temp_bytes=[0, 7, 0, 0],
            latency_secs=1.0,
            bandwidth_bytes_per_sec=10.0,
            memory_bytes=[130, 110],
        )
        self.assertEqual(make_table(problem, [0, 0, 1, 1]), WORKED_TABLE)

    def test_fits_a_terminal_whatever_the_names(self):
        rng = np.random.default_rng(1)
        problem = large_problem(rng)
        text = make_table(problem, rng.integers(0, 5, problem.num_groups))
        self.assertLessEqual(max(map(len, text.split("\n"))), 100)
        self.assertRegex(text, r"\ntask:\d/GPU:0 -> task:\d/GPU:0  ")
        self.assertNotIn("replica", text)
        # Rows that do not fit are counted.
        self.assertRegex(text, r"\nand 15 more with \d+ transfers, [\d.]+ [MG]iB, [\d.]+ m?s\n")
        self.assertRegex(text, r"\nand \d+ others, [\d.]+ m?s\n")
        self.assertLess(text.count("\n"), 50)

    def test_long_names_keep_their_start_and_end(self):
        name = "gradients/" + "x" * 100 + "/MatMul_7"
        text = make_table(make_problem([[1.0]], names=[name]), [0])
        self.assertRegex(text, r"gradients/x+…x+/MatMul_7")

    def test_the_path_is_summed_up_by_kind_and_place(self):
        problem = dataclasses.replace(
            make_problem([[2.0, 9.0], [1.0, 9.0], [4.0, 9.0], [9.0, 1.0]], names=list("abcd")),
            operation_types=("MatMul", "Conv2D", "MatMul", "MatMul"),
            control_edges=np.array([[0, 1], [1, 2], [2, 3]]),
        )
        text = make_table(problem, [0, 0, 0, 1])
        self.assertRegex(text, r"\nmatrix product +D0 +2 +6\.000 s +75\.0% +c\n")
        self.assertRegex(text, r"\nconvolution +D0 +1 +1\.000 s +12\.5% +b\n")
        self.assertRegex(text, r"\nmatrix product +D1 +1 +1\.000 s +12\.5% +d(\n|$)")

    def test_a_step_without_transfers_or_memory_leaves_their_tables_out(self):
        text = make_table(make_problem([[1.0]] * 2), [0, 0])
        self.assertNotIn("link", text)
        self.assertNotIn("resident", text)
        self.assertNotIn("fit", text)
        self.assertIn("1.000 × the bound", text)

    def test_a_problem_that_cannot_fit_is_named(self):
        text = make_table(make_problem([[1.0]], resident_bytes=[20], memory_bytes=[10]), [0])
        self.assertIn("does not fit: D0 holds 20 B of at most 10 B", text)
        self.assertIn("no placement fits: 20 B are resident, the devices hold 10 B", text)

    def test_a_step_that_takes_no_time_has_no_ratio(self):
        text = make_table(make_problem([[0.0]]), [0])
        self.assertStartsWith(text, "step 0 s, at least 0 s (critical path 0 s, work 0 s)\n")
        self.assertNotIn("nan", text)


if __name__ == "__main__":
    absltest.main()
