import json
import os

from absl.testing import absltest, parameterized

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.search.trial_log import (
    LogError,
    Trial,
    TrialLog,
    best_trial,
    read_log,
)

GOLDEN = os.path.join(os.path.dirname(__file__), "testdata", "trials_v1.jsonl")
HEADER = {
    "graph_fingerprint": "g1",
    "machine": {"spec": "local:2", "devices": [{"name": "a"}, {"name": "b", "cores": (0, 1)}]},
    "protocol": {"steps": 10, "dropped": 1},
    "seed": 3,
    "versions": {"tensorflow": "2.14.0"},
}


def make_trial(index, **changes):
    fields = {
        "index": index,
        "placer": "random",
        "batch": index,
        "assignment": (0, 1, index),
        "measurement": Measurement((0.1, 0.30000000000000004), setup_secs=0.7),
        "repeats": None,
        "elapsed_secs": 1.5 * index,
        "time": "2026-01-02T03:04:05+00:00",
    }
    return Trial(**(fields | changes))


TRIALS = [
    make_trial(0, placer="original", assignment=None),
    make_trial(1),
    make_trial(2, measurement=Measurement(failure=Failure(FailureKind.TIMEOUT, "30 s\n“late”"))),
    make_trial(3, repeats=1),
]


class TrialLogTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "trials.jsonl")

    def write_log(self, trials=TRIALS, header=HEADER):
        with TrialLog(self.path, header) as log:
            for trial in trials:
                log.append(trial)
        return self.read_bytes()

    def read_bytes(self):
        with open(self.path, "rb") as file:
            return file.read()

    def write_bytes(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def test_what_is_written_is_read_again(self):
        self.write_log()
        header, trials = read_log(self.path)
        self.assertEqual(list(trials), TRIALS)
        self.assertEqual(header["format"], 2)
        self.assertEqual(header["seed"], 3)
        self.assertEqual(header["machine"]["devices"][1]["cores"], [0, 1])

    def test_each_line_is_json_with_the_documented_fields(self):
        lines = [json.loads(line) for line in self.write_log().splitlines()]
        self.assertEqual(next(iter(lines[0])), "format")
        self.assertEqual(
            lines[3],
            {
                "index": 2,
                "placer": "random",
                "batch": 2,
                "assignment": [0, 1, 2],
                "step_secs": None,
                "failure": {"kind": "timeout", "message": "30 s\n“late”"},
                "setup_secs": 0.0,
                "repeats": None,
                "elapsed_secs": 3.0,
                "time": "2026-01-02T03:04:05+00:00",
            },
        )

    def test_the_golden_log_of_format_1_stays_readable(self):
        header, trials = read_log(GOLDEN)
        self.assertEqual(header["configuration"], {"learning_rate": 0.0003, "batch_size": 4})
        self.assertEqual([trial.index for trial in trials], list(range(9)))
        self.assertEqual(
            trials[4],
            Trial(
                index=4,
                placer="colocrl",
                batch=0,
                assignment=(0, 0, 0),
                measurement=Measurement((0.401,), setup_secs=1.25),
                repeats=1,
                elapsed_secs=12.25,
                time="2026-11-20T12:00:12+00:00",
            ),
        )
        self.assertIsNone(trials[0].assignment)
        self.assertEqual(trials[5].measurement.failure.message, "no kernel for “Lookup”")
        failures = [trial.measurement.failure.kind for trial in trials if not _has_run(trial)]
        self.assertEqual(failures, list(_golden_failures()))

    def test_the_golden_log_of_format_2_stays_readable(self):
        header, trials = read_log(GOLDEN.replace("_v1", "_v2"))
        self.assertEqual(header["protocol"]["most_blocks"], 8)
        self.assertEqual(trials[0].measurement.drift, 1.0)
        measured = trials[1].measurement
        self.assertEqual(measured.reference_secs, (0.42, 0.41, 0.44))
        self.assertAlmostEqual(measured.median_secs, 0.21 / 1.05)

    def test_the_golden_log_can_be_resumed(self):
        header, trials = read_log(GOLDEN)
        with open(GOLDEN, "rb") as file:
            content = file.read()
        self.write_bytes(content)
        del header["format"]
        with TrialLog(self.path, header) as log:
            self.assertEqual(log.trials, trials)
            log.append(make_trial(9))
        self.assertEqual(self.read_bytes()[: len(content)], content)
        self.assertLen(read_log(self.path)[1], 10)

    def test_fields_that_a_later_version_adds_are_ignored(self):
        lines = self.write_log().splitlines()
        lines[2] = json.dumps({**json.loads(lines[2]), "joules": [1, 2]}).encode()
        self.write_bytes(b"\n".join(lines) + b"\n")
        self.assertEqual(list(read_log(self.path)[1]), TRIALS)

    @parameterized.parameters(
        ({"assignment": "delete"}, 'no entry "assignment"'),
        ({"failure": {"kind": "bored", "message": ""}, "step_secs": None}, "bored"),
        ({"step_secs": None}, "either step times or a failure"),
        ({"step_secs": "soon"}, "step_secs is .soon.: it must be a list"),
        ({"index": 7}, "trial 7 where 1 should be"),
        ({"repeats": 1}, "repeats trial 1"),
        ({"assignment": 5}, "assignment is 5: it must be a list"),
    )
    def test_a_line_that_is_not_a_trial_is_an_error_that_says_why(self, changes, message):
        lines = self.write_log().splitlines()
        value = json.loads(lines[2]) | changes
        value = {key: item for key, item in value.items() if item != "delete"}
        lines[2] = json.dumps(value).encode()
        self.write_bytes(b"\n".join(lines) + b"\n")
        with self.assertRaisesRegex(LogError, rf"trials\.jsonl:3: .*{message}"):
            read_log(self.path)

    def test_a_trial_out_of_order_is_refused(self):
        with TrialLog(self.path, HEADER) as log, self.assertRaisesRegex(ValueError, "is 0"):
            log.append(TRIALS[1])

    def test_the_best_trial_has_the_lowest_median_and_is_the_earlier_of_equals(self):
        timeout = Measurement(failure=Failure(FailureKind.TIMEOUT, "too slow"))
        medians = [0.3, None, 0.2, 0.1, 0.1, 0.4]
        trials = [
            make_trial(number, measurement=timeout if secs is None else Measurement((secs,)))
            for number, secs in enumerate(medians)
        ]
        self.assertEqual(best_trial(trials).index, 3)
        self.assertEqual(best_trial(trials[:2]).index, 0)
        self.assertIsNone(best_trial(trials[1:2]))
        self.assertIsNone(best_trial([]))


def _has_run(trial):
    return trial.measurement.failure is None


def _golden_failures():
    return (
        FailureKind.OUT_OF_MEMORY,
        FailureKind.INVALID_PLACEMENT,
        FailureKind.TIMEOUT,
        FailureKind.WORKER_DIED,
        FailureKind.RUNTIME_ERROR,
    )


if __name__ == "__main__":
    absltest.main()
