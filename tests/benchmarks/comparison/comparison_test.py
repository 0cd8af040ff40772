"""Tests of what is compared."""

from __future__ import annotations

from absl.testing import absltest, parameterized

from benchmarks.comparison.comparison import COMPARISONS, Comparison
from benchmarks.harness.run_placers import ALL_PLACERS
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.models.catalog import MODELS
from tf_placer.machines.catalog import make_described_machine
from tf_placer.placers import PLACERS, check_options


class ComparisonTest(parameterized.TestCase):
    def test_placers_have_their_options_and_random_ones_all_seeds(self):
        comparison = Comparison(
            ("nmt_2:4xK80",), ("heft", "post:published:b=2:a=1"), SearchBudget(1.0), (3, 4)
        )
        keys = comparison.keys()
        label = "post:published a=1 b=2"
        self.assertEqual(list(keys), [("nmt_2 on 4xK80", "heft"), ("nmt_2 on 4xK80", label)])
        self.assertEqual([key.seed for key in keys["nmt_2 on 4xK80", "heft"]], [3])
        runs = keys["nmt_2 on 4xK80", label]
        self.assertEqual([(key.placer, key.seed) for key in runs], [("post:published", 3),
                         ("post:published", 4)])  # fmt: skip

    @parameterized.parameters(*COMPARISONS)
    def test_models_machines_placers_and_options_exist(self, name):
        for runs in COMPARISONS[name].keys().values():
            self.assertIn(runs[0].model, MODELS)
            make_described_machine(runs[0].machine)
            self.assertIn(runs[0].placer, ALL_PLACERS)
            if runs[0].placer in PLACERS:
                check_options(runs[0].placer, dict(runs[0].options))


if __name__ == "__main__":
    absltest.main()
