from __future__ import annotations

import dataclasses
import math

from absl.testing import absltest, parameterized

from benchmarks.paper_tables.causes import (
    CAUSES,
    find_period,
    list_variants,
    mix_machines,
    simulate_model,
)
from benchmarks.paper_tables.causes_report import CauseStep, causes_page, compare_order
from benchmarks.paper_tables.published_tables import TABLES
from tf_placer.machines.catalog import make_described_machine


def read_settings(machine):
    """Lists what a step depends on: links, and classes of devices without names and sources."""
    classes = [
        dataclasses.replace(machine.find_class(device), name="", source="")
        for device in machine.devices
    ]
    return machine.links, classes, [device.memory_bytes for device in machine.devices]


class MixMachinesTest(parameterized.TestCase):
    @parameterized.parameters("2xK80", "4xK80", "post-8xK80", "eagle-4xP100")
    def test_no_cause_makes_the_default_machine_and_all_the_one_of_its_time(self, name):
        base = make_described_machine(name)
        period = make_described_machine(find_period(name))
        self.assertEqual(read_settings(mix_machines(base, period, ())), read_settings(base))
        every = [cause.name for cause in CAUSES]
        self.assertEqual(read_settings(mix_machines(base, period, every)), read_settings(period))

    def test_a_cause_changes_its_own_settings_only(self):
        base = make_described_machine("2xK80")
        period = make_described_machine("colocrl-2017-2xK80")
        staged = mix_machines(base, period, ["staging"])
        self.assertEqual(staged.classes, base.classes)
        for own, link in zip(base.links, staged.links, strict=True):
            between_gpus = "GPU" in own.source and "GPU" in own.destination
            self.assertEqual(
                link.bandwidth_bytes_per_sec != own.bandwidth_bytes_per_sec, between_gpus
            )
            self.assertEqual(link.latency_secs, own.latency_secs)
        in_stream = mix_machines(base, period, ["stream"])
        self.assertEqual(in_stream.links, base.links)
        gpu = in_stream.find_class(in_stream.devices[1])
        self.assertEqual(
            gpu, dataclasses.replace(base.find_class(base.devices[1]), copies_in_stream=True)
        )

    def test_variants_are_none_each_and_all(self):
        [row, *_] = TABLES["colocrl_2"].rows
        first, *single, without_sums, every = list_variants(row)
        self.assertEqual(every, ("sums", *without_sums))
        self.assertEqual(first, ())
        self.assertEqual([name for (name,) in single], list(every))
        self.assertNotIn("normalization", every)  # It is an RNNLM.
        [*_, inception] = TABLES["colocrl_2"].rows
        self.assertIn("normalization", list_variants(inception)[-1])
        # The copies of 2018 had streams of their own.
        self.assertNotIn("stream", list_variants(TABLES["post_1"].rows[0])[-1])


class SimulateModelTest(absltest.TestCase):
    def test_all_rows_of_a_small_model_are_simulated_with_each_set_of_causes(self):
        steps = simulate_model("rnnlm_2", small=True)
        rows = [row for row in TABLES["colocrl_2"].rows if row.model == "rnnlm_2"]
        self.assertLen({step.row for step in steps}, len(rows))
        by_key = {(step.row, step.method, step.causes): step.secs for step in steps}
        self.assertLen(by_key, len(steps))
        self.assertTrue(all(math.isfinite(step.secs) and step.secs > 0 for step in steps))
        # On one device there is nothing to copy, and sums are with all else.
        for cause in ("sums", "staging", "operations"):
            self.assertEqual(by_key[0, "Single-GPU", (cause,)], by_key[0, "Single-GPU", ()])
        self.assertGreater(by_key[0, "Expert", ("sums",)], by_key[0, "Expert", ()])
        self.assertGreater(by_key[0, "Single-CPU", ("processor",)], by_key[0, "Single-CPU", ()])
        self.assertGreater(by_key[0, "Expert", ("polling",)], by_key[0, "Expert", ()])
        again = simulate_model("rnnlm_2", small=True)
        self.assertEqual(again, steps)


class CompareOrderTest(absltest.TestCase):
    def test_pairs_in_another_order_are_named_with_the_printed_faster_one_first(self):
        order = compare_order({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 5.0, "c": 4.0})
        self.assertEqual((order.num_pairs, order.wrong), (3, (("b", "c"),)))

    def test_times_that_are_nearly_equal_have_no_order(self):
        order = compare_order({"a": 1.0, "b": 1.09, "c": 3.0}, {"a": 2.0, "b": 1.0, "c": 4.0})
        self.assertEqual((order.num_pairs, order.wrong), (2, ()))

    def test_equal_times_are_not_in_a_printed_order(self):
        self.assertEqual(
            compare_order({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 1.0}).wrong, (("a", "b"),)
        )


class CausesPageTest(absltest.TestCase):
    def test_counts_the_rows_whose_order_is_the_printed_one(self):
        [row, *_] = TABLES["post_1"].rows
        self.assertEqual(row.title, "RNNLM")  # Printed: 0.44, 0.89, 1.81.

        def steps_of(causes, *secs):
            titles = ("Single GPU", "Expert", "Metis")
            return [
                CauseStep("post_1", 0, title, causes, each, each < 4)
                for title, each in zip(titles, secs, strict=True)
            ]

        steps = [
            *steps_of((), 2, 1, 3),
            *steps_of(("sums",), 2, 3, 5),
            *steps_of(("x",), 3, 1, 2),
            *steps_of(("sums", "x"), 1, 2, 3),
        ]
        page = causes_page(
            [TABLES["post_1"]],
            lambda table: [column for column in table.columns if column.is_baseline],
            [("sums", "sums are far")],
            steps,
        )
        self.assertIn("Reproduced, of 1 rows: 0 with none, 0 with all but sums, 1 with all.", page)
        self.assertIn("no, 1 of 3 pairs: not Single GPU before Expert", page)
        self.assertIn("| RNNLM | 2 | Metis | 4.11 | 1.50 | 2.50 † | 3.00 | 1.81 | 3.00 |", page)


if __name__ == "__main__":
    absltest.main()
