"""Tests of the table of compared machines."""

from __future__ import annotations

import dataclasses
from unittest import mock

from absl.testing import absltest

from tf_placer.report import machine_comparison
from tf_placer.report.compared_machine import ComparedMachine
from tf_placer.report.machine_comparison import MachineComparison

_GIB = 2**30
_ONE = ComparedMachine(
    name="1xA100",
    kind="A100",
    device_type="GPU",
    accelerators=1,
    step_secs=0.040,
    one_device_secs=0.040,
    lower_bound_secs=0.040,
    data_parallel_secs=None,
    fullest_device="GPU:0",
    peak_bytes=12 * _GIB,
    memory_bytes=75 * _GIB,
    idle=(),
    spare=0,
)


def change(count: int, step_secs: float | None, **others: object) -> ComparedMachine:
    """Makes a machine with this many A100."""
    return dataclasses.replace(
        _ONE, name=f"{count}xA100", accelerators=count, step_secs=step_secs, **others
    )


class MachineComparisonTest(absltest.TestCase):
    def assert_row(self, table: str, *cells: str):
        rows = [[cell for cell in line.split("  ") if cell.strip()] for line in table.split("\n")]
        stripped = [tuple(cell.strip() for cell in row) for row in rows]
        self.assertIn(cells, stripped)

    def test_shows_machines_in_their_order(self):
        compared = MachineComparison((change(4, 0.010, idle=("GPU:3",), spare=1), _ONE))
        table = compared.table()
        memory = "GPU:0 16% of 75.00 GiB"
        four = ("4xA100", "4", "≤ 3", "10.00 ms", "4.00x", "40.00 ms")
        self.assert_row(table, *four, memory)
        self.assert_row(table, "1xA100", "1", "1", "40.00 ms", "1.00x", "40.00 ms", memory)
        self.assertIn("fastest placement: 4xA100, 10.00 ms per step", table)
        self.assertIn("\nenough: ", table)
        # The CPU works on none of them.
        for absent in ("price", "data par", "cheapest", "on CPU"):
            self.assertNotIn(absent, table)

    def test_a_table_with_all_columns_fits_a_window(self):
        machines = [
            change(
                count, 0.3456, one_device_secs=None, data_parallel_secs=0.3456, spare=1,
                cpu_share=0.3, displaced_share=0.2, price_per_hour=1234.5, fullest_device="GPU:15",
                peak_bytes=int(123.4 * _GIB), memory_bytes=int(131.5 * _GIB),
            )
            for count in (8, 16)
        ]  # fmt: skip
        machines[0] = dataclasses.replace(
            machines[0], name="plans/of_the_large_model/post-2018-8xK80.json"
        )
        table = MachineComparison(tuple(machines)).table().partition("\n\n")[0]
        self.assertRegex(table, r"\npost-2018-8xK80 ")
        self.assertIn("data par.", table)
        self.assertIn("price/h", table)
        self.assertLessEqual(max(map(len, table.splitlines())), 120)

    def test_no_column_of_gpus_that_are_enough_says_that_all_are_needed(self):
        table = MachineComparison((_ONE, change(4, 0.010))).table()
        self.assertNotIn("enough", table)

    def test_prices_give_the_cost_of_a_million_steps(self):
        # A million steps of 40 ms take 100/9 hours, those of 10 ms a quarter.
        compared = MachineComparison(
            (
                dataclasses.replace(_ONE, price_per_hour=1.8),
                change(4, 0.010, price_per_hour=9.0),
                change(8, 0.009),
            )
        )
        costs = [each.cost_per_million_steps for each in compared.machines]
        self.assertSequenceAlmostEqual(costs[:2], [20.0, 25.0])
        self.assertIsNone(costs[2])
        self.assertRegex(compared.table(), r"4xA100 .* 9\.00 +25\.00\n")
        self.assertIn(
            "cheapest of the 2 with a price: 1xA100, 20.00 per million steps", compared.table()
        )
        all_priced = MachineComparison(compared.machines[:2])
        self.assertIn("cheapest: 1xA100, 20.00 per million steps", all_priced.table())
        one_priced = MachineComparison(compared.machines[::2])
        self.assertNotIn("cheapest", one_priced.table())

    def test_says_that_fewer_do_as_well(self):
        for step_secs, is_enough in ((0.0101, True), (0.0103, False)):
            compared = MachineComparison((_ONE, change(8, 0.010), change(4, step_secs)))
            sentence = (
                "4 GPUs would do as well as 8 for a placed step: 4xA100 is within 2 % of 8xA100"
            )
            self.assertEqual(sentence in compared.list_findings(), is_enough)

    def test_machines_of_another_kind_are_not_fewer_of_the_same(self):
        one = MachineComparison((_ONE, change(2, 0.040))).list_findings()
        self.assertIn(
            "1 GPU would do as well as 2 for a placed step: 1xA100 is within 2 % of 2xA100", one
        )
        other = dataclasses.replace(_ONE, name="1xB200", kind="B200", step_secs=0.010)
        for finding in MachineComparison((other, change(8, 0.010))).list_findings():
            self.assertNotIn("would do as well", finding)

    def test_names_what_is_about_as_fast_as_the_fastest(self):
        machines = (change(2, 0.0101), change(4, 0.0100), change(8, 0.0103))
        self.assertEqual(
            MachineComparison(machines).list_findings()[0],
            "fastest placement: 4xA100, 10.00 ms per step; within 2 % of it: 2xA100",
        )

    def test_says_what_a_step_without_a_placement_takes_on_one_gpu(self):
        # A million steps of 40 ms take 11.1 hours.
        priced = dataclasses.replace(_ONE, name="a", price_per_hour=1.8)
        compared = MachineComparison((priced, dataclasses.replace(_ONE, name="b"), change(4, 0.01)))
        self.assertIn(
            "without a placement, with everything on the one GPU: a 40.00 ms (20.00 per million), "
            "b 40.00 ms",
            compared.list_findings(),
        )

    def test_says_that_unused_devices_are_not_needed(self):
        findings = MachineComparison((change(8, 0.010, spare=3),)).list_findings()
        self.assertIn(
            "enough: at most 5 GPUs of the 8 of 8xA100 would do as well, as a placement on so "
            "few is within 2 %",
            findings,
        )

    def test_says_that_computers_of_a_network_are_not_needed(self):
        one = change(8, 0.010)
        network = dataclasses.replace(change(8, 0.011, spare=4), name="2x4xA100@10Gb")
        self.assertIn(
            "enough: at most 4 GPUs of the 8 of 2x4xA100@10Gb would do as well, as a placement on "
            "so few is within 2 %",
            MachineComparison((one, network)).list_findings(),
        )

    def test_says_once_what_holds_for_several_machines(self):
        def rename(kind: str, machine: ComparedMachine) -> ComparedMachine:
            return dataclasses.replace(machine, name=machine.name.replace("A100", kind), kind=kind)

        machines = [change(8, 0.010), change(4, 0.010, spare=2)]
        kinds = ("A100", "H100", "V100")
        alike = [rename(kind, each) for kind in kinds for each in machines]
        other = rename("T4", change(8, 0.020, spare=1))
        found = MachineComparison((*alike, other)).list_findings()
        self.assertEqual(
            found[1:],
            [
                "4 GPUs would do as well as 8 for a placed step: 4xA100 is within 2 % of 8xA100, "
                "4xH100 of 8xH100 and 4xV100 of 8xV100",
                "enough: at most 2 GPUs of the 4 of 4xA100, 4xH100 and 4xV100 and at most 7 GPUs "
                "of the 8 of 8xT4 would do as well, as a placement on so few is within 2 %",
            ],
        )

    def test_sentences_are_wrapped_to_the_terminal(self):
        machines = tuple(
            change(count, 0.010 + count, spare=1, data_parallel_secs=0.001) for count in (2, 3, 4)
        )
        compared = MachineComparison(machines)
        for columns, width in ((None, 120), (60, 60), (300, 120)):
            with mock.patch.object(machine_comparison, "terminal_width", return_value=columns):
                sentences = compared.table().partition("\n\n")[2]
            self.assertLessEqual(max(map(len, sentences.split("\n"))), width)
            self.assertGreater(max(map(len, sentences.split("\n"))), width - 20)
            joined = sentences.replace("\n    ", " ").split("\n")
            self.assertEqual(joined, compared.list_findings())

    def test_says_that_the_smaller_machine_has_spare_devices_too(self):
        findings = MachineComparison((change(8, 0.010), change(4, 0.010, spare=2))).list_findings()
        self.assertIn(
            "4 GPUs would do as well as 8 for a placed step: 4xA100 is within 2 % of 8xA100",
            findings,
        )
        self.assertStartsWith(
            findings[-1], "enough: at most 2 GPUs of the 4 of 4xA100 would do as well"
        )

    def test_says_if_one_device_is_too_small_or_all_are(self):
        split = change(4, 0.010, one_device_secs=None)
        table = MachineComparison((change(1, None, one_device_secs=None), split)).table()
        self.assertRegex(table, "1xA100 +1 +none +too small ")
        self.assertRegex(table, "4xA100 +4 +10.00 ms +too small ")
        none = MachineComparison((change(1, None, one_device_secs=None),))
        self.assertEqual(
            none.list_findings(),
            ["the graph fits on none of them: take more GPUs, or GPUs with more memory"],
        )
        self.assertFalse(none.to_json()["machines"][0]["fits"])

    def test_says_how_much_memory_would_do_where_nothing_fits(self):
        short = change(
            1, None, least_memory_bytes=20 * _GIB, least_memory="20.00 GiB on GPU:0 would do"
        )
        expected = "nothing fits on 1xA100: 20.00 GiB on GPU:0 would do"
        self.assertEqual(MachineComparison((short,)).list_findings()[1:], [expected])
        self.assertIn(expected, MachineComparison((short, change(4, 0.010))).list_findings())
        both = MachineComparison((short, dataclasses.replace(short, name="1xV100")))
        self.assertEqual(
            both.list_findings()[1:],
            ["nothing fits on 1xA100 and 1xV100: 20.00 GiB on GPU:0 would do"],
        )

    def test_says_where_data_parallelism_may_be_faster(self):
        findings = MachineComparison(
            (
                _ONE,
                change(4, 0.012, data_parallel_secs=0.010),
                change(8, 0.0105, data_parallel_secs=0.010),
            )
        ).list_findings()
        self.assertIn(
            "data parallelism may be faster, try it, too: up to 1.2 times on 4xA100", findings
        )

    def test_data_parallelism_may_be_cheaper(self):
        # A million steps of 6 ms take 5/3 hours, of 9.00 each; on one GPU they cost 20.00.
        one = dataclasses.replace(_ONE, price_per_hour=1.8)
        for bound_secs, sentence in (
            (0.006, "a million steps of data parallelism cost at least: 4xA100 15.00"),
            # 22.50 is more than the 20.00 of one GPU, although less than the 30.00 of four.
            (
                0.009,
                "a million steps of data parallelism cost at least: 4xA100 22.50; none is cheaper "
                "than the placement on 1xA100",
            ),
        ):
            four = change(4, 0.012, data_parallel_secs=bound_secs, price_per_hour=9.0)
            compared = MachineComparison((one, four))
            self.assertIn(sentence, compared.list_findings())
            self.assertRegex(compared.table(), r"4xA100 .* 9\.00 +30\.00\n")

    def test_all_costs_of_data_parallelism_are_named(self):
        # The placement on one GPU is the cheapest, with 20.00 per million steps.
        one = dataclasses.replace(_ONE, price_per_hour=1.8)
        machines = [
            change(2, 0.030, data_parallel_secs=0.018, price_per_hour=3.6),
            change(4, 0.020, data_parallel_secs=0.006, price_per_hour=9.0),
            change(8, 0.020, data_parallel_secs=0.005, price_per_hour=18.0),
        ]
        self.assertIn(
            "a million steps of data parallelism cost at least: 4xA100 15.00, 2xA100 18.00, 8xA100 "
            "25.00",
            MachineComparison((one, *machines)).list_findings(),
        )

    def test_says_what_is_on_the_cpu(self):
        short = change(2, 0.020, cpu_share=0.7, displaced_share=0.61)
        self.assertIn(
            "with everything on one GPU and activations that wait on the CPU (offload), a step "
            "takes about 15.00 ms on 2xA100",
            MachineComparison((dataclasses.replace(short, offload_secs=0.015),)).list_findings(),
        )
        compared = MachineComparison((short, change(4, 0.010, cpu_share=0.7)))
        self.assertRegex(compared.table(), r"2xA100 .* 70%")
        found = [each for each in compared.list_findings() if "on the CPU" in each]
        self.assertLen(found, 1)
        self.assertStartsWith(
            found[0], "2xA100 61% of the step on the CPU, because the memory of the GPUs is"
        )
        # A remark that holds for several machines is made once.
        both = MachineComparison((short, dataclasses.replace(short, name="4xA100")))
        found = [each for each in both.list_findings() if "memory of the GPUs" in each]
        self.assertLen(found, 1)
        self.assertStartsWith(found[0], "2xA100 61%, 4xA100 61% of the step")

    def test_says_why_the_cpu_works_where_memory_is_not_short(self):
        machines = (
            change(1, 0.040, cpu_share=0.57, cpu_work="matrix product"),
            change(2, 0.030, cpu_share=0.09, cpu_work="matrix product"),
            change(4, 0.020, cpu_share=0.322, cpu_work="matrix product"),
            change(8, 0.020, cpu_share=0.25, cpu_work="lookup"),
            change(16, 0.020, cpu_share=0.9, cpu_work="update", displaced_share=0.8),
            change(32, 0.020, cpu_share=0.9),
            change(64, 0.060, one_device_secs=0.050, cpu_share=0.43, cpu_work="update"),
            change(128, 0.050, one_device_secs=None, cpu_share=0.43, cpu_work="convolution"),
            change(256, 0.020, cpu_share=0.15, cpu_work="lookup", cpu_work_fits=False),
        )
        findings = MachineComparison(machines).list_findings()
        found, without_room = [each for each in findings if "mostly" in each]
        # The placement on 64xA100 is slower than one GPU, so its CPU shortens nothing.
        self.assertEqual(
            found,
            "the CPU of the machine's description computes at the same time as the GPUs, not for "
            "want of memory, but because the step is shorter so: in 32% to 57% of the step on "
            "1xA100 and 4xA100, mostly matrix products; in 25% of the step on 8xA100, mostly "
            "lookups; in 43% of the step on 128xA100, mostly convolutions; the launches of the "
            "work of GPUs take no time of the CPU in a simulation: to plan without the CPU, pin "
            "'*' to '/GPU:*'",
        )
        self.assertEqual(
            without_room,
            "the CPU of the machine's description computes what has no room on the GPUs in "
            "addition: in 15% of the step on 256xA100, mostly lookups",
        )

    def test_says_where_the_model_is_too_large_for_data_parallelism(self):
        machines = (_ONE, *(change(count, 0.01, lacks_shared_memory=True) for count in (2, 4)))
        self.assertIn(
            "no data parallelism on 2xA100 and 4xA100: the whole model with a share of the batch "
            "does not fit on each GPU",
            MachineComparison(machines).list_findings(),
        )

    def test_shows_the_table_when_printed_and_the_fastest_machine_in_a_line(self):
        compared = MachineComparison((_ONE, change(4, 0.010)))
        self.assertEqual(str(compared), compared.table())
        self.assertEqual(
            repr(compared),
            "<MachineComparison of 2 machines: fastest placement: 4xA100, 10.00 ms per step>",
        )


if __name__ == "__main__":
    absltest.main()
