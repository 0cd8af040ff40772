from absl.testing import absltest

from benchmarks.search_quality.solver_bounds import BoundRun, run_one, table_of_runs


class SolverBoundsTest(absltest.TestCase):
    def test_bounds_are_below_the_step(self):
        run = run_one(groups=6, devices=2, number=0)
        self.assertLessEqual(run.known_secs, run.bound_secs)
        self.assertLessEqual(run.bound_secs, run.step_secs)

    def test_the_table_has_means_and_shares(self):
        runs = [BoundRun(8, 0, 9, 2.0, 1.0, 1.99, 0.1), BoundRun(8, 1, 9, 2.0, 2.0, 2.0, 0.3)]
        cells = [cell.strip() for cell in table_of_runs(runs).splitlines()[-1].split("|")]
        self.assertEqual(
            cells[1:-1], ["8", "2", "0.750", "50%", "0.998", "100%", "0.20 s", "0.30 s"]
        )


if __name__ == "__main__":
    absltest.main()
