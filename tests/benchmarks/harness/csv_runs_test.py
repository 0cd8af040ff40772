import dataclasses
import pathlib

from absl.testing import absltest

from benchmarks.harness.numbered_runs import NumberedRun, run_numbers


@dataclasses.dataclass(frozen=True)
class Run(NumberedRun):
    ratio: float
    count: int
    fits: bool


def make_run(number):
    return Run(number, float("inf") if number == 1 else 0.1 + number, number * 10, number % 2 == 0)


class NumberedRunsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path, "folder", "runs.csv")
        self.made = []

    def run_numbers(self, count, make=make_run):
        def recorded(number):
            self.made.append(number)
            return make(number)

        return run_numbers(Run, self.path, count, recorded, lambda run: f"{run.count} so far")

    def test_makes_all_runs(self):
        self.assertEqual(self.run_numbers(3), [make_run(number) for number in range(3)])

    def test_goes_on_where_it_stopped(self):
        def stop_at_2(number):
            if number == 2:
                raise KeyboardInterrupt
            return make_run(number)

        with self.assertRaises(KeyboardInterrupt):
            self.run_numbers(4, stop_at_2)
        self.assertEqual(self.run_numbers(4), [make_run(number) for number in range(4)])
        self.assertEqual(self.made, [0, 1, 2, 2, 3])

    def test_returns_no_more_than_was_asked_for(self):
        self.run_numbers(4)
        self.assertLen(self.run_numbers(2), 2)
        self.assertLen(self.run_numbers(4), 4)
        self.assertLen(self.made, 4)


if __name__ == "__main__":
    absltest.main()
