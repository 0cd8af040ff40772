"""Tests of which families a policy has seen, and of the page about those that it has not."""

import importlib.resources
import itertools
import json

from absl.testing import absltest

from benchmarks.comparison.comparison import PROBLEMS
from benchmarks.search_quality.policy_families import families_markdown
from benchmarks.search_quality.policy_training import FAMILIES, HELD_OUT, training_keys


class TrainingKeysTest(absltest.TestCase):
    def test_every_problem_of_the_comparison_is_of_one_family(self):
        self.assertCountEqual(itertools.chain.from_iterable(FAMILIES.values()), PROBLEMS)

    def test_families_that_are_held_out_are_not_seen(self):
        models = {key.model for key in training_keys(["resnet", "inception"])}
        self.assertNotIn("resnet_50", models)
        self.assertNotIn("inception_v3_towers", models)
        self.assertContainsSubset({"nmt_2", "rnnlm_large", "two_towers"}, models)
        self.assertLen(training_keys([]), len(PROBLEMS))
        with self.assertRaisesRegex(ValueError, "no family 'resnets'; there are language models,"):
            training_keys(["resnets"])

    def test_the_shipped_policy_has_not_seen_what_is_held_out(self):
        data = importlib.resources.files("tf_placer.placers.learned") / "data"
        seen = json.loads((data / "graph_neural.json").read_text())["problems"]
        self.assertNotEmpty(seen)
        held_out = [text.replace(":", "-") for name in HELD_OUT for text in FAMILIES[name]]
        self.assertEmpty([name for name in held_out for path in seen if f"/{name}-" in path])
        self.assertLen([path for path in seen if "generated" not in path], 21 - len(held_out))


class FamiliesMarkdownTest(absltest.TestCase):
    def test_steps_are_told_by_what_auto_found(self):
        page = families_markdown(
            {
                ("towers", "a:2xK80"): [0.2, 0.4, 0.1, 0.4],
                ("towers", "b:2xK80"): [1.0, 1.0, 2.0, 4.0],
                ("large", "c:2xK80"): [None, None, 3.0, 6.0],
            },
            {"a:2xK80": 0.1, "b:2xK80": 1.0, "c:2xK80": 1.5},
        )
        rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:1] == "|"][2:]
        self.assertEqual(rows[0], ["towers", "a:2xK80", "0.1", "2.00", "4.00", "1.00", "4.00"])
        self.assertEqual(rows[2][3:], ["none", "none", "2.00", "4.00"])
        # Geometric means of what all found: the square roots of 2, 4, 2 and 16.
        self.assertEqual(rows[3][-4:], ["1.41", "2.00", "1.41", "4.00"])
        self.assertIn("of the 2 that all fit", rows[3])


if __name__ == "__main__":
    absltest.main()
