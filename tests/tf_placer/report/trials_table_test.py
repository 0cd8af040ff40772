import os

from absl.testing import absltest

from tf_placer.environments.environment import Measurement
from tf_placer.report.trials_table import log_table
from tf_placer.search.trial_log import Trial, read_log

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "search", "testdata", "trials_v1.jsonl")

GOLDEN_TABLE = """\
format:                1
graph_fingerprint:     sha256:0d0f
grouping_fingerprint:  sha256:77aa
machine:               local:2
protocol:              steps 10, dropped 1
placer:                colocrl
configuration:         learning_rate 0.0003, batch_size 4
seed:                  7
versions:              tf_placer 0.1.0, tensorflow 2.21.0

trial  placer    batch  groups        step    spread  speed-up   searching  note
-----  --------  -----  --------  --------  --------  --------  ----------  ----
    0  original      0  original  332.5 ms  2.500 ms    1.000x       4.2 s
    1  single        0  3         401.0 ms       0 s    0.829x       8.5 s
    2  single        1  0/3                                          9.0 s  out_of_memory: ...
    3  colocrl       0  1/2       255.0 ms  5.000 ms    1.304x        12 s  best
    4  colocrl       0  3         401.0 ms       0 s    0.829x        12 s  as trial 1
    5  colocrl       0  2/1                                           13 s  invalid_placement...
    6  colocrl       0  2/1                                     1 min 13 s  timeout: no step...
    7  colocrl       1  1/2                                     1 min 14 s  worker_died: ...
    8  colocrl       1  1/2                                     1 min 15 s  runtime_error: ...

9 trials; best 255.0 ms (trial 3, colocrl); repeats: 1; failures: 1 out_of_memory, ..."""


class LogTableTest(absltest.TestCase):
    def test_the_golden_log_is_shown_with_header_trials_and_outcome(self):
        lines = log_table(*read_log(GOLDEN)).split("\n")
        expected = GOLDEN_TABLE.split("\n")
        self.assertLen(lines, len(expected))
        for line, start in zip(lines, expected, strict=True):
            if start.endswith("..."):
                self.assertStartsWith(line, start[:-3])
            elif start.startswith("---"):
                self.assertStartsWith(line, start)
            else:
                self.assertEqual(line, start)

    def test_it_fits_a_line_of_the_terminal(self):
        header, trials = read_log(GOLDEN)
        header = {**header, "configuration": {"a_long_name": "x" * 200}}
        lines = log_table(header, trials, width=88).split("\n")
        self.assertLessEqual(max(map(len, lines[:-1])), 88)
        # A long note continues on the next lines.
        self.assertIn("no room here for: batch, spread, searching", lines)

    def test_a_log_without_trials_says_so(self):
        self.assertEqual(log_table({"format": 1}, []), "format:  1\n\nno trials")

    def test_a_log_in_which_nothing_ran_says_so(self):
        trials = [trial for trial in read_log(GOLDEN)[1] if trial.measurement.failure]
        self.assertIn(
            "5 trials, none of which ran; failures: 1 out_of_memory", log_table({}, trials)
        )

    def test_without_a_time_of_the_original_there_is_no_speedup(self):
        trials = read_log(GOLDEN)[1][2:4]
        self.assertNotRegex(log_table({}, trials), r"\dx")
        self.assertRegex(log_table({}, read_log(GOLDEN)[1]), r"\dx")

    def test_long_values_and_messages_are_cut_to_one_line(self):
        header = {"configuration": {"key": "x\n" * 500}, "list": list(range(500))}
        trial = Trial(0, "original", 0, None, Measurement((1.0,)), None, 1.0, "")
        for line in log_table(header, [trial]).split("\n"):
            self.assertLess(len(line), 130)


if __name__ == "__main__":
    absltest.main()
