"""Tests of what is said of problems that were trained or chosen on."""

from __future__ import annotations

from absl.testing import absltest

from benchmarks.comparison.comparison import PROBLEMS
from benchmarks.comparison.seen_problems import describe_seen, find_trained_problems


class SeenProblemsTest(absltest.TestCase):
    def test_the_shipped_weights_have_seen_all_but_six_problems_of_the_comparison(self):
        unseen = set(PROBLEMS) - set(find_trained_problems(PROBLEMS))
        # The commit of the weights says: no language model, transformer or NASNet.
        self.assertEqual(
            {problem.partition(":")[0] for problem in unseen},
            {"rnnlm_2", "rnnlm_4", "rnnlm_large", "bert_base", "decoder_only", "nasnet_a"},
        )

    def test_a_problem_on_another_machine_was_not_seen(self):
        self.assertEqual(find_trained_problems(["nmt_2:4xK80", "nmt_2:2xK80"]), ["nmt_2:4xK80"])

    def test_the_text_names_what_was_chosen_and_trained(self):
        text = describe_seen(["nmt_2:4xK80", "bert_base:eagle-4xP100"], graph_neural=True)
        self.assertIn("were chosen on nmt_2 of these", text)
        self.assertIn("how failures count since, on bert_base.", text)
        self.assertIn("1 of these 2 problems, all but bert_base.", text)
        self.assertNotIn("graph_neural", describe_seen(["nmt_2:4xK80"], graph_neural=False))


if __name__ == "__main__":
    absltest.main()
