from absl.testing import absltest

from tests.tf_placer.doubles import update_record
from tf_placer.report.training_table import training_table


class TrainingTableTest(absltest.TestCase):
    def test_a_line_for_each_update(self):
        updates = [
            update_record(0, kind="ppo"),
            update_record(1, kind="ce", loss=None, gradient_norm=None, best_step_secs=None),
        ]
        self.assertEqual(
            training_table(updates).split("\n"),
            [
                "update  samples  kind  reward  baseline  entropy  divergence  loss  gradient  "
                "mean step  best step  failures",
                "------  -------  ----  ------  --------  -------  ----------  ----  --------  "
                "---------  ---------  --------",
                "     0       10  ppo       -1      -1.5      0.5        0.01  0.25         2  "
                " 200.0 ms   100.0 ms      1/10",
                "     1       20  ce      -0.5      -1.5      0.5        0.01                  "
                " 200.0 ms                 1/10",
            ],
        )

    def test_leaves_optional_columns_out_of_short_lines(self):
        lines = training_table([update_record(0), update_record(1)], width=80).split("\n")
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertEqual(lines[-1], "no room here for: divergence, gradient, baseline")
        for name in ("update", "samples", "reward", "best step", "failures"):
            self.assertIn(name, lines[0])

    def test_of_many_updates_twenty_are_shown_from_the_first_to_the_last(self):
        lines = training_table([update_record(number) for number in range(200)]).split("\n")
        shown = [int(line.split()[0]) for line in lines[2:-1]]
        self.assertLen(shown, 20)
        self.assertEqual((shown[0], shown[-1]), (0, 199))
        self.assertEqual(shown, sorted(set(shown)))
        self.assertEqual(lines[-1], "180 updates between these are not shown")

    def test_twenty_are_all_shown(self):
        lines = training_table([update_record(number) for number in range(20)]).split("\n")
        self.assertEqual([int(line.split()[0]) for line in lines[2:]], list(range(20)))

    def test_a_loss_that_is_no_number_is_shown_as_that(self):
        self.assertIn(" nan ", training_table([update_record(0, loss=float("nan"))]))

    def test_says_how_many_updates_a_gradient_cut_short(self):
        norms = [2.0, float("inf"), None, float("nan")]
        updates = [update_record(index, gradient_norm=norm) for index, norm in enumerate(norms)]
        lines = training_table(updates).split("\n")
        self.assertIn(" inf ", lines[3])
        self.assertRegex(lines[-1], "not finite: 2; a lower learning_rate")


if __name__ == "__main__":
    absltest.main()
