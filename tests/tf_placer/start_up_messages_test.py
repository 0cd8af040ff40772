import os
import subprocess
import sys
import textwrap

from absl.testing import absltest, parameterized

from tf_placer.start_up_messages import is_start_up_message

_ABSL = b"I0000 00:00:1795444525.959379   22934 port.cc:153] oneDNN custom operations are on."
_FATAL = b"F0000 00:00:1795444525.959379   22934 session.cc:1] Check failed: it is broken"


def run(code, **environ):
    """Runs code beside which messages may come; returns what it wrote to standard error."""
    code = textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", f"import os, sys\n{code}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**{k: v for k, v in os.environ.items() if "TF_CPP" not in k}, **environ},
    )
    return done.returncode, done.stderr


class MessageTest(parameterized.TestCase):
    @parameterized.parameters(
        _ABSL,
        b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        b"W0000 00:00:1795444525.959379   22934 gpu_device.cc:2344] Cannot dlopen some libraries",
        b"2026-11-23 14:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This",
        b"2026-11-23 14:00:00.123456: W tensorflow/core/framework/op.cc:1] That",
        b"To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow",
        # TensorFlow writes this when functions on several servers are released.
        b"I0000 00:00:1795939626.735272    4958 kernel_and_device.cc:101] Ignoring error status "
        b"when releasing multi-device function handle UNIMPLEMENTED: Releasing a",
    )
    def test_recognizes_information_and_warnings(self, line):
        self.assertTrue(is_start_up_message(line))

    @parameterized.parameters(
        _FATAL,
        b"E0000 00:00:1795444525.959379   22934 cuda.cc:1] failed call to cuInit",
        b"2026-11-23 14:00:00.123456: E tensorflow/core/x.cc:1] Out of memory",
        b"tf_placer: there is no graph.pb",
        b"WARNING: the machine has changed",
        b"W1123 16:00:00.123456 22934 session.py:17] what Python says is no business of TensorFlow",
        b"",
    )
    def test_recognizes_no_other_lines(self, line):
        self.assertFalse(is_start_up_message(line))


class WithoutStartUpMessagesTest(absltest.TestCase):
    def test_errors_and_what_python_writes_come_through(self):
        code, written = run(
            f"""
            from tf_placer.start_up_messages import hide_start_up_messages
            with hide_start_up_messages():
                os.write(2, {_ABSL!r} + b"\\n" + {_FATAL!r} + b"\\nhalf a line")
                print("10 % done", file=sys.stderr)
            print("after", file=sys.stderr)
            os.write(2, b"again\\n")
            """
        )
        self.assertEqual(code, 0)
        lines = written.splitlines()
        self.assertCountEqual(lines[:2], [b"10 % done", _FATAL])
        self.assertEqual(lines[2:], [b"half a lineafter", b"again"])

    def test_the_last_words_of_an_aborted_process_come_through(self):
        code, written = run(
            f"""
            from tf_placer.start_up_messages import hide_start_up_messages
            with hide_start_up_messages():
                os.write(2, {_ABSL!r} + b"\\n" + {_FATAL!r} + b"\\n")
                os.abort()
            """
        )
        self.assertLess(code, 0)
        self.assertEqual(written, _FATAL + b"\n")

    def test_exceptions_propagate_and_streams_are_restored(self):
        code, written = run(
            """
            from tf_placer.start_up_messages import hide_start_up_messages
            before = sys.stderr, dict(os.environ)
            try:
                with hide_start_up_messages():
                    sys.exit("no")
            except SystemExit as error:
                print(error, (sys.stderr, dict(os.environ)) == before, file=sys.stderr)
            """
        )
        self.assertEqual((code, written), (0, b"no True\n"))

    def test_a_full_disk_is_ignored(self):
        code = """
            import sys
            from tf_placer.start_up_messages import hide_start_up_messages
            with hide_start_up_messages():
                sys.stderr.buffer.write(b"lost")
            print("done", flush=True)
            """
        done = subprocess.run(
            ["sh", "-c", '"$0" -c "$1" 2>/dev/full', sys.executable, textwrap.dedent(code)],
            env={k: v for k, v in os.environ.items() if "TF_CPP" not in k},
            stdout=subprocess.PIPE,
        )
        self.assertEqual(done.stdout, b"done\n")

    def test_without_the_filter_process_all_messages_appear(self):
        code, written = run(
            f"""
            import multiprocessing
            from tf_placer.start_up_messages import hide_start_up_messages
            multiprocessing.set_executable("/no/python")
            sys.executable = sys._base_executable = None
            sys.exec_prefix = sys.base_exec_prefix = "/no"
            with hide_start_up_messages():
                os.write(2, {_ABSL!r} + b"\\n")
            """
        )
        self.assertEqual((code, written), (0, _ABSL + b"\n"))

    def test_a_log_level_disables_the_filter(self):
        _, written = run(
            f"""
            from tf_placer.start_up_messages import hide_start_up_messages
            with hide_start_up_messages():
                os.write(2, {_ABSL!r} + b"\\n")
            """,
            TF_CPP_MIN_LOG_LEVEL="0",
        )
        self.assertEqual(written, _ABSL + b"\n")

    def test_a_command_that_starts_tensorflow_writes_nothing_else(self):
        code, written = run(
            """
            sys.argv[1:] = ["placers", "colocrl"]
            from tf_placer.cli.main import main
            main()
            """
        )
        self.assertEqual((code, written), (0, b""))


if __name__ == "__main__":
    absltest.main()
