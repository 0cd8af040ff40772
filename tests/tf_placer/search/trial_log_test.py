import json
import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.search.log_file import LogLockedError
from tf_placer.search.trial_log import (
    LogError,
    LogMismatchError,
    Trial,
    TrialLog,
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
        with TrialLog.open(self.path, header) as log:
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
        failures = [trial.measurement.failure.kind for trial in trials if not _ran(trial)]
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
        with TrialLog.open(self.path, header) as log:
            self.assertEqual(log.trials, trials)
            log.append(make_trial(9))
        self.assertEqual(self.read_bytes()[: len(content)], content)
        self.assertLen(read_log(self.path)[1], 10)

    def test_fields_that_a_later_version_adds_are_ignored(self):
        lines = self.write_log().splitlines()
        lines[2] = json.dumps({**json.loads(lines[2]), "joules": [1, 2]}).encode()
        self.write_bytes(b"\n".join(lines) + b"\n")
        self.assertEqual(list(read_log(self.path)[1]), TRIALS)

    def test_a_resumed_log_appends_to_what_is_there(self):
        before = self.write_log(TRIALS[:2])
        with TrialLog.open(self.path, HEADER) as log:
            self.assertEqual(list(log.trials), TRIALS[:2])
            for trial in TRIALS[2:]:
                log.append(trial)
            self.assertEqual(list(log.trials), TRIALS)
        self.assertStartsWith(self.read_bytes(), before)
        self.assertEqual(list(read_log(self.path)[1]), TRIALS)

    def test_makes_its_directory_and_takes_any_path_type(self):
        path = self.create_tempdir().full_path
        self.path = os.path.join(path, "a", "b", "trials.jsonl")
        self.write_log()
        self.assertLen(read_log(self.path)[1], 4)

    def test_every_append_is_synced_before_it_returns(self):
        events = []
        with (
            mock.patch.object(os, "fsync", lambda fd: events.append(os.fstat(fd).st_size)),
            TrialLog.open(self.path, HEADER) as log,
        ):
            created = list(events)
            log.append(TRIALS[0])
            self.assertEqual(events[len(created) :], [os.path.getsize(self.path)])
        self.assertLen(created, 2)  # the header and the directory

    def test_a_cut_at_any_byte_loses_only_the_trial_that_was_cut(self):
        content = self.write_log()
        line_ends = [i for i, byte in enumerate(content) if byte == ord("\n")]
        with mock.patch.object(os, "fsync"):
            for size in range(len(content)):
                self.write_bytes(content[:size])
                # A line is whole without its newline.
                whole = sum(end <= size for end in line_ends)
                with TrialLog.open(self.path, HEADER) as log:
                    self.assertEqual(list(log.trials), TRIALS[: max(0, whole - 1)], size)
                    for trial in TRIALS[len(log.trials) :]:
                        log.append(trial)
                self.assertEqual(self.read_bytes(), content, size)

    def test_a_torn_last_line_is_dropped_with_a_warning(self):
        content = self.write_log()
        self.write_bytes(content[:-20])
        with self.assertLogs(level="WARNING") as logs:
            _, trials = read_log(self.path)
        self.assertLen(trials, 3)
        self.assertIn(f"{self.path}:5", logs.output[0])
        self.assertEqual(self.read_bytes(), content[:-20])  # reading changes nothing

    def test_garbage_that_a_power_failure_left_at_the_end_is_dropped(self):
        content = self.write_log()
        for garbage in (b"\0" * 40, b"\0" * 40 + b"\n", b"\xff\xfe\n"):
            self.write_bytes(content + garbage)
            self.write_log(trials=[])
            self.assertEqual(self.read_bytes(), content)

    def test_zeros_instead_of_a_header_count_as_new(self):
        self.write_bytes(b"\0" * 100)
        self.write_log()
        self.assertEqual(list(read_log(self.path)[1]), TRIALS)

    def test_a_file_with_only_a_torn_header_counts_as_new_but_is_no_log_to_read(self):
        header = self.write_log(trials=[])
        for size in (0, 1, 5, len(header) // 2, len(header) - 2):
            self.write_bytes(header[:size])
            with self.assertRaisesRegex(LogError, "trials.jsonl:1: not a search log"):
                read_log(self.path)
            self.assertEqual(self.write_log(trials=[]), header)

    def test_a_torn_middle_line_is_an_error_that_names_file_and_line(self):
        lines = self.write_log().splitlines(keepends=True)
        lines[2] = lines[2][:30] + b"\n"
        self.write_bytes(b"".join(lines))
        for read in (read_log, lambda path: TrialLog.open(path, HEADER)):
            with self.assertRaisesRegex(LogError, r"trials\.jsonl:3: not a line of a search log"):
                read(self.path)
        self.assertEqual(self.read_bytes(), b"".join(lines))  # nothing was changed

    @parameterized.parameters(
        ({"assignment": "delete"}, "no 'assignment'"),
        ({"failure": {"kind": "bored", "message": ""}, "step_secs": None}, "bored"),
        ({"step_secs": None}, "either step times or a failure"),
        ({"step_secs": "soon"}, "could not convert"),
        ({"index": 7}, "trial 7 where 1 should be"),
        ({"repeats": 1}, "repeats trial 1"),
        ({"assignment": 5}, "not iterable"),
    )
    def test_a_line_that_is_not_a_trial_is_an_error_that_says_why(self, changes, message):
        lines = self.write_log().splitlines()
        value = json.loads(lines[2]) | changes
        value = {key: item for key, item in value.items() if item != "delete"}
        lines[2] = json.dumps(value).encode()
        self.write_bytes(b"\n".join(lines) + b"\n")
        with self.assertRaisesRegex(LogError, rf"trials\.jsonl:3: .*{message}"):
            read_log(self.path)

    @parameterized.parameters(
        b"[1]\n", b'{"a": 1}\n', b"7", b"node {\n", b"node {\n}\n", b"\x08\x01"
    )
    def test_another_kind_of_file_is_refused_and_left_alone(self, content):
        self.write_bytes(content)
        for read in (read_log, lambda path: TrialLog.open(path, HEADER)):
            with self.assertRaisesRegex(LogError, r"trials\.jsonl:1: not"):
                read(self.path)
        self.assertEqual(self.read_bytes(), content)

    def test_a_later_format_is_refused(self):
        self.write_bytes(b'{"format": 3}\n')
        with self.assertRaisesRegex(LogError, "later version .* format 3"):
            read_log(self.path)

    @parameterized.parameters(
        ({"graph_fingerprint": "g2"}, "graph_fingerprint", "g1", "g2", "another graph"),
        ({"seed": 4}, "seed", 3, 4, "another seed"),
        (
            {"protocol": {"steps": 15, "dropped": 1}},
            "protocol.steps",
            10,
            15,
            "another measuring protocol",
        ),
        (
            {"machine": {"spec": "local:2", "devices": [{"name": "a"}, {"name": "c"}]}},
            *("machine.devices[1].name", "b", "c", "another machine"),
        ),
        ({"extra": 1}, "extra", None, 1, "another extra"),
    )
    def test_a_log_of_another_search_is_refused_by_name(self, changes, field, old, new, noun):
        content = self.write_log()
        with self.assertRaises(LogMismatchError) as caught:
            TrialLog.open(self.path, HEADER | changes)
        error = caught.exception
        self.assertEqual((error.field, error.logged, error.given), (field, old, new))
        for part in (f"a log of {noun}", self.path, field):
            self.assertIn(part, str(error))
        self.assertEqual(self.read_bytes(), content)
        TrialLog.open(self.path, HEADER).close()  # the refusal left no lock behind

    def test_a_field_that_the_search_lacks_is_a_mismatch(self):
        self.write_log()
        with self.assertRaisesRegex(LogMismatchError, "seed 3, this search has none"):
            TrialLog.open(self.path, {k: v for k, v in HEADER.items() if k != "seed"})

    def test_long_values_are_cut_in_the_message(self):
        self.write_log(header={"configuration": "x" * 5000})
        with self.assertRaises(LogMismatchError) as caught:
            TrialLog.open(self.path, {"configuration": "y" * 5000})
        self.assertLess(len(str(caught.exception)), 1000)

    def test_other_versions_are_a_warning(self):
        self.write_log()
        with (
            self.assertLogs(level="WARNING") as logs,
            TrialLog.open(self.path, HEADER | {"versions": {"tensorflow": "2.21.0"}}) as log,
        ):
            self.assertEqual(log.header["versions"], {"tensorflow": "2.14.0"})
        self.assertRegex(logs.output[0], 'versions.tensorflow was "2.14.0", is "2.21.0"')

    def test_a_second_writer_is_refused_until_the_first_closes(self):
        log = TrialLog.open(self.path, HEADER)
        with self.assertRaisesRegex(LogLockedError, "another search is writing .*trials.jsonl"):
            TrialLog.open(self.path, HEADER)
        self.assertEqual(read_log(self.path)[1], ())
        log.append(TRIALS[0])
        log.close()
        TrialLog.open(self.path, HEADER).close()

    def test_the_lock_holds_against_another_process_and_ends_with_it(self):
        code = (
            "import sys; from tf_placer.search.trial_log import TrialLog\n"
            "log = TrialLog.open(sys.argv[1], {'seed': 1}); print('open', flush=True)\n"
            "sys.stdin.read()"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, self.path],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with child:
            self.assertEqual(child.stdout.readline(), b"open\n")
            with self.assertRaises(LogLockedError):
                TrialLog.open(self.path, {"seed": 1})
            child.kill()
        TrialLog.open(self.path, {"seed": 1}).close()

    def test_a_reader_sees_every_trial_while_a_search_writes(self):
        with TrialLog.open(self.path, HEADER) as log:
            for count, trial in enumerate(TRIALS, start=1):
                log.append(trial)
                self.assertLen(read_log(self.path)[1], count)

    def test_a_trial_out_of_order_is_refused(self):
        with TrialLog.open(self.path, HEADER) as log, self.assertRaisesRegex(ValueError, "is 0"):
            log.append(TRIALS[1])

    def test_numbers_that_json_does_not_have_are_refused(self):
        trial = make_trial(0, measurement=Measurement((float("inf"),)))
        with TrialLog.open(self.path, HEADER) as log:
            before = self.read_bytes()
            with self.assertRaises(ValueError):
                log.append(trial)
            self.assertEqual(self.read_bytes(), before)

    def test_a_trial_that_cannot_be_written_leaves_the_log_as_it_was(self):
        with TrialLog.open(self.path, HEADER) as log:
            log.append(TRIALS[0])
            before = self.read_bytes()
            with (
                mock.patch.object(os, "fsync", side_effect=OSError(28, "No space left")),
                self.assertRaisesRegex(OSError, "No space left"),
            ):
                log.append(TRIALS[1])
            self.assertEqual(self.read_bytes(), before)
            for trial in TRIALS[1:]:
                log.append(trial)
        self.assertEqual(list(read_log(self.path)[1]), TRIALS)

    def test_a_missing_file_is_an_os_error_to_read(self):
        with self.assertRaises(FileNotFoundError):
            read_log(self.path)


def _ran(trial):
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
