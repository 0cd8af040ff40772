"""Tests of `python -m tf_placer` in processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from unittest import mock

import tensorflow as tf

import tf_placer
from tests.tf_placer.process_tree import descendants, wait_until_gone
from tests.tf_placer.small_problem import small_problem
from tf_placer.cli import main as cli_main
from tf_placer.cli.main import COMMANDS
from tf_placer.private_network import find_open_reason
from tf_placer.problem.problem_file import write_problem

tf1 = tf.compat.v1
_ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}

# Runs a session on the servers, waits for a line, and exits with code 7.
_SERVED = """
import os, sys
import tensorflow as tf
with tf.Graph().as_default():
    product = tf.constant(3.0) * 2.0
    with tf.compat.v1.Session(os.environ["TF_PLACER_TARGET"]) as session:
        print(session.run(product), sys.argv, flush=True)
sys.stdin.readline()
sys.exit(7)
"""
# Runs a function on the second server.
_SERVED_FUNCTION = """
import os
import tensorflow as tf
import tf_placer
tf_placer.connect(tf_placer.find_machine(os.environ["TF_PLACER_MACHINE"]))
@tf.function
def double(x):
    with tf.device("/job:worker/task:1"):
        return 2.0 * x
product = double(tf.constant(3.0))
print(float(product), product.device)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tf_placer", *arguments],
        env=_ENVIRON,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class CommandLineTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Runs a command; returns exit code, standard output and standard error."""
        process = start(*arguments)
        output, errors = process.communicate(timeout=120)
        self.assertNotIn("Traceback", errors)
        return process.returncode, output, errors

    def test_every_command_has_help_and_the_help_lists_exit_codes(self):
        code, output, errors = self.call("--help")
        self.assertEqual((code, errors), (0, ""))
        for command in COMMANDS:
            self.assertRegex(output, rf"\n    {command}\s")
            with (
                contextlib.redirect_stdout(io.StringIO()) as explained,
                self.assertRaises(SystemExit) as raised,
            ):
                cli_main.main([command, "--help"])
            self.assertEqual(raised.exception.code, 0)
            self.assertStartsWith(explained.getvalue(), f"usage: tf_placer {command}")
        self.assertRegex(" ".join(output.split()), "Exit codes: 0, .* 1, .* 2, ")
        self.assertEqual(self.call("machines")[0], 0)
        self.assertEqual(self.call("search", "--problem=no.json", "--output=r.json")[0], 1)
        code, output, _ = self.call("search", "--json")
        self.assertEqual((code, json.loads(output)["error"]["kind"]), (2, "ArgumentError"))
        code, output, _ = self.call("search", "--flagfile=no.flags", "--json")
        self.assertEqual((code, json.loads(output)["error"]["kind"]), (1, "FileNotFoundError"))

    def test_the_installed_command_finds_modules_in_the_working_directory(self):
        (self.directory / "my_placers.py").write_text(
            "from tf_placer.placers.heuristics.single_cpu import SingleCpu\n"
            "class Mine(SingleCpu):\n"
            "    'Mine.'\n"
        )
        (self.directory / "random.py").write_text("raise AssertionError('no module of Python')")
        program = self.directory / "bin" / "tf_placer"
        program.parent.mkdir()
        # As pip writes it: the first entry of sys.path is the directory of the program.
        program.write_text("import sys\nfrom tf_placer.cli.main import main\nsys.exit(main())\n")
        paths = [path for path in sys.path if path]
        done = subprocess.run(
            [sys.executable, program, "placers", "my_placers:Mine"],
            cwd=self.directory,
            env={**_ENVIRON, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("my_placers:Mine", done.stdout)

    def test_suggests_the_flag_that_an_unknown_one_is_near_to(self):
        for arguments, last in (
            (["run", "--max_secs", "60", "x.py"], "--max_secs (did you mean --search_secs?)"),
            (["machines", "--jsn=x"], "--jsn=x (did you mean --json?)"),
            (["machines", "--quite"], "--quite"),
        ):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as ended:
                cli_main.main(arguments)
            self.assertEqual(ended.exception.code, 2)
            *_, line = errors.getvalue().splitlines()
            self.assertEndsWith(line, f"error: unrecognized arguments: {last}")

    def test_a_wrong_value_is_one_sentence_and_a_missing_argument_is_told_with_the_usage(self):
        for arguments, start in (
            (["search", "--placer=gone:Mine"], "tf_placer search: error: argument --placer: no pl"),
            (["search", "--seed=x"], "tf_placer search: error: argument --seed: invalid int value"),
            (["serch"], "tf_placer: error: argument COMMAND: invalid choice: 'serch'"),
            (["search"], "usage: tf_placer search [-h] "),
        ):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as ended:
                cli_main.main(arguments)
            self.assertEqual(ended.exception.code, 2)
            self.assertStartsWith(errors.getvalue(), start)
            is_usage = start.startswith("usage")
            self.assertEqual(len(errors.getvalue().splitlines()) > 1, is_usage, errors.getvalue())

    def test_prints_the_numbers_of_characters_that_a_terminal_cannot_show(self):
        log = {"format": 2, "placer": "µ", "versions": {}}
        trial = {
            **{"index": 0, "placer": "µ\ud7ff", "batch": 0, "assignment": None, "failure": None},
            **{"step_secs": [0.1], "setup_secs": 0.5, "repeats": None, "elapsed_secs": 1.0},
            "time": "2026-01-01T00:00:00+00:00",
        }
        lines = "".join(json.dumps(each) + "\n" for each in (log, trial))
        (self.directory / "trials.jsonl").write_text(lines)
        environ = {**_ENVIRON, "PYTHONIOENCODING": "ascii"}
        with mock.patch.dict(_ENVIRON, environ):
            code, output, errors = self.call("log", str(self.directory))
        self.assertEqual(code, 0, errors)
        self.assertIn("\\xb5\\ud7ff", output)

    def test_no_message_is_long(self):
        code, _, errors = self.call("search", "--problem=" + "x" * 100_000, "--output=r.json")
        self.assertEqual(code, 1)
        self.assertLess(len(errors), 2000)
        self.assertRegex(errors, r"^tf_placer: .* … .*File name too long\n$")

    def test_bad_input_says_one_sentence_at_the_end_and_fails(self):
        (self.directory / "cut.pb").write_bytes(b"\x0a\xff")
        code, output, errors = self.call(
            "optimize", f"--input_graph={self.directory}/cut.pb", "--machine=local:2"
        )
        self.assertEqual((code, output), (1, ""))
        last = errors.splitlines()[-1]
        self.assertRegex(last, "^tf_placer: '.*cut.pb' is not a graph, or is cut short: ")
        self.assertRegex(errors, "(?m)^tf_placer: reading .*cut.pb$")
        # On a busy computer a line says that it is still reading.
        said = errors.count("tf_placer:") - errors.count("tf_placer: still ")
        self.assertEqual(said, 2)
        self.assertEqual(os.listdir(self.directory), ["cut.pb"])

    def shell(self, line: str) -> tuple[str, str]:
        """Runs a shell line with `tf` as the program; returns its output and errors."""
        program = f'tf() {{ "{sys.executable}" -m tf_placer "$@"; }}; set -o pipefail\n'
        done = subprocess.run(
            ["bash", "-c", program + line],
            cwd=self.directory,
            env=_ENVIRON,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_answers_and_files_go_through_pipes(self):
        write_problem(small_problem(), self.directory / "p.json")
        search = "tf search --problem p.json --placer random --max_trials 20"
        output, errors = self.shell(f"{search} --json | {sys.executable} -m json.tool")
        self.assertEqual((json.loads(output)["step_secs"], errors), (4.5, ""))
        output, errors = self.shell(
            f"{search} --output - |"
            " tf simulate --problem p.json --assignment - --output /dev/stdout"
            " | cat"
        )
        self.assertEqual(json.loads(output)["step_secs"], 4.5)
        # The text for people is not in the pipe.
        self.assertIn("trials:       20 of random", errors)
        self.assertIn("step 4.500 s, at least 3.000 s", errors)
        output, _ = self.shell(
            f"cat p.json | {search} --problem - --output >(cat >copy.json); wait"
        )
        self.assertNotIn("result:", output)  # A pipe is no file to come back to.
        self.assertEqual(json.loads((self.directory / "copy.json").read_text())["step_secs"], 4.5)
        self.assertEqual(sorted(os.listdir(self.directory)), ["copy.json", "p.json"])

    def test_a_closed_pipe_ends_a_command_silently(self):
        output, errors = self.shell("set +o pipefail; tf machines --json | head -c 10")
        self.assertEqual((output, errors), ('{"format":', ""))

    def test_names_an_output_that_cannot_be_written(self):
        _, errors = self.shell("tf machines >/dev/full; test $? = 1")
        self.assertEqual(errors, "tf_placer: standard output: No space left on device\n")

    def test_without_standard_files_a_command_still_does_its_work(self):
        write_problem(small_problem(), self.directory / "p.json")
        search = "tf search --problem p.json --placer random --max_trials 20 --output r.json"
        for streams in ("2>/dev/full", ">&-", "2>&-", "<&- >&- 2>&-"):
            self.shell(f"{search} {streams}")
            self.assertEqual(json.loads((self.directory / "r.json").read_text())["trials"], 20)
            (self.directory / "r.json").unlink()
        _, errors = self.shell("tf search --problem - --output r.json <&-; test $? = 1")
        self.assertEqual(errors, "tf_placer: cannot read the problem '-': it is closed\n")

    def test_an_interrupt_while_python_ends_shows_nothing(self):
        code = (
            "import atexit, os, signal, sys; from tf_placer.cli.main import main; "
            "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT)); "
            "sys.argv = ['tf_placer', '--version']; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, -signal.SIGINT)

    def test_skips_garbage_collection_at_exit(self):
        with (
            mock.patch.object(cli_main, "gc") as collector,
            mock.patch.object(sys, "argv", ["tf_placer", "machines", "--json"]),
            mock.patch.object(signal, "signal"),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            # Another program that calls the command continues after it.
            cli_main.main(["machines", "--json"])
            collector.freeze.assert_not_called()
            cli_main.main()
        collector.freeze.assert_called_once_with()

    def test_it_tells_its_version(self):
        self.assertEqual(self.call("--version"), (0, f"tf_placer {tf_placer.__version__}\n", ""))

    def test_arguments_come_from_a_file(self):
        write_problem(small_problem(), self.directory / "p.json")
        flags = self.directory / "flags"
        flags.write_text(f"# a search\n--problem={self.directory}/p.json\n--max_trials=7\n--json\n")
        code, output, _ = self.call("search", f"--flagfile={flags}", "--placer=random")
        self.assertEqual((code, json.loads(output)["trials"]), (0, 7))
        code, output, errors = self.call("search", "--flagfile=none")
        self.assertEqual(
            (code, output, errors), (1, "", "tf_placer: none: No such file or directory\n")
        )
        # Arguments of a script are not expanded.
        script = self.directory / "script.py"
        script.write_text("import sys; print(sys.argv[1:])")
        _, output, _ = self.call("run", str(script), "--flagfile=none")
        self.assertEqual(output, "['--flagfile=none']\n")

    def test_a_served_machine_runs_sessions_until_it_is_interrupted(self):
        process = start("serve", "local:2", "--open")
        assert process.stdout is not None
        line = process.stdout.readline()
        self.assertRegex(
            line, r"^local:2 serves sessions at grpc://localhost:\d+ until interrupted"
        )
        target = line.split()[4]
        with tf.Graph().as_default():
            with tf.device("/job:worker/task:1"):
                y = tf.constant(3.0) * 2.0
            with tf1.Session(target) as session:
                self.assertEqual(session.run(y), 6.0)
        started = descendants(process.pid)
        self.assertLen([command for command in started.values() if "local_server" in command], 2)
        code, _, errors = self.call(
            "serve", "local:2", "--open", f"--port={target.rpartition(':')[2]}"
        )
        self.assertEqual(code, 1)
        self.assertRegex(errors.splitlines()[-1], "^tf_placer: cannot listen on port ")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertRegex(errors, "the servers of local:2 listen without a password, because --open")
        self.assertEqual(wait_until_gone(started), [])

    def test_a_command_is_served_in_a_network_of_its_own(self):
        process = start(
            *("serve", "local:1", "--port", "2222", "--", sys.executable, "-c", _SERVED, "-v", "--")
        )
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "6.0 ['-c', '-v', '--']\n")
        with socket.socket() as outside:
            # If the kernel forbids private networks, the port is open, and a message says so.
            is_open = outside.connect_ex(("localhost", 2222)) == 0
        started = descendants(process.pid)
        _, errors = process.communicate("go on\n", timeout=60)
        self.assertEqual(process.returncode, 7, errors)
        self.assertEqual("listen without a password" in errors, is_open, errors)
        self.assertEqual(is_open, find_open_reason() is not None)
        self.assertEqual(wait_until_gone(started), [])

    def test_functions_of_a_served_command_run_on_all_servers(self):
        process = start("serve", "local:2", "--", sys.executable, "-c", _SERVED_FUNCTION)
        output, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(output, "6.0 /job:worker/replica:0/task:1/device:CPU:0\n")

    def test_a_served_command_ends_with_a_server_that_is_killed(self):
        process = start("serve", "local:1", "--", "sh", "-c", "echo; sleep 1000 & sleep 1000")
        assert process.stdout is not None
        process.stdout.readline()
        started = descendants(process.pid)
        self.assertTrue(any("sleep" in command for command in started.values()))
        process.kill()
        self.assertEqual(wait_until_gone(started), [])
        process.communicate(timeout=60)

    def test_servers_without_a_command_must_be_open(self):
        code, _, errors = self.call("serve", "local:2")
        self.assertEqual(code, 1)
        self.assertRegex(errors, "tf_placer: name a command to run with the servers: .* --open")
        code, _, errors = self.call("serve", "local:1", "--", "./no_such_command")
        self.assertEqual(code, 1)
        self.assertEndsWith(errors, "cannot run './no_such_command': there is no such command\n")


if __name__ == "__main__":
    tf.test.main()
