"""Tests of finding a Python interpreter for child processes, without TensorFlow."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from tf_placer import interpreter as module
from tf_placer.errors import SearchError
from tf_placer.interpreter import (
    build_python_environment,
    find_interpreter,
    format_command_line,
    is_notebook,
)


def version_of(python: str) -> str:
    return subprocess.run(
        [python, "-I", "-c", "import sys; print(*sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


class InterpreterTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(module._search_interpreter.cache_clear)
        self.addCleanup(multiprocessing.set_executable, multiprocessing.spawn.get_executable())
        multiprocessing.set_executable(None)

    def test_it_is_the_program_of_this_process(self):
        self.assertEqual(find_interpreter(), sys.executable)

    def test_an_embedded_interpreter_finds_the_python_of_its_version(self):
        expected = version_of(sys.executable)
        other = pathlib.Path(self.create_tempdir().full_path, "python3")
        other.write_text("#!/bin/sh\necho '(2, 7)'\n")
        other.chmod(0o700)
        # /bin/true stands for a program that embeds one: it is not started to find out.
        for own in (None, "", "/bin/true", "/no/such/python3", str(other)):
            with self.subTest(own), mock.patch.object(sys, "executable", own):
                self.assertEqual(version_of(find_interpreter()), expected)

    def test_multiprocessing_executable_has_priority(self):
        link = pathlib.Path(self.create_tempdir().full_path, "my_python")
        link.symlink_to(sys.executable)
        multiprocessing.set_executable(os.fspath(link))
        self.assertEqual(find_interpreter(), str(link))

    def test_names_the_remedy_if_there_is_no_interpreter(self):
        with (
            mock.patch.multiple(
                sys, executable=None, _base_executable=None, exec_prefix="/no", base_exec_prefix=""
            ),
            self.assertRaisesRegex(
                SearchError,
                r"no Python 3.* is found .* sys.executable is None, and there is no '/no/bin/py.*"
                r"; multiprocessing.set_executable\(PATH\) names one",
            ),
        ):
            find_interpreter()


class PythonEnvironmentTest(absltest.TestCase):
    def paths(self, *entries: object) -> list[str]:
        with mock.patch.object(sys, "path", list(entries)):
            return build_python_environment({})["PYTHONPATH"].split(os.pathsep)

    def test_omits_path_entries_that_are_no_strings(self):
        self.assertEqual(self.paths("/a", pathlib.Path("/b"), b"/c", None, "/d"), ["/a", "/d"])

    def test_omits_paths_with_the_separator(self):
        self.assertEqual(self.paths("/a:/b", "/c"), ["/c"])

    def test_relative_paths_stay_what_they_are_here(self):
        self.assertEqual(self.paths("", "x"), [os.getcwd(), os.path.join(os.getcwd(), "x")])

    def test_omits_relative_paths_in_a_deleted_directory(self):
        self.addCleanup(os.chdir, os.getcwd())
        gone = self.create_tempdir("gone").full_path
        os.chdir(gone)
        os.rmdir(gone)
        self.assertEqual(self.paths("", "x", "/a"), ["/a"])

    def test_a_process_that_ignores_the_variables_of_python_does_not_pass_them_on(self):
        code = (
            f"import sys; sys.path[:] = {sys.path}; "
            "from tf_placer.interpreter import build_python_environment; "
            "print(sorted(n for n in build_python_environment() if n.startswith('PYTHON')))"
        )
        done = subprocess.run(
            [sys.executable, "-E", "-c", code],
            env={**os.environ, "PYTHONHOME": "/no", "PYTHONPATH": "/no"},
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(done.stdout, "['PYTHONPATH']\n")


class CommandLineTest(absltest.TestCase):
    def test_quotes_arguments_for_a_shell(self):
        with mock.patch.object(sys, "argv", ["train.py", "two words"]):
            self.assertEqual(format_command_line(), "train.py 'two words'")

    def test_names_our_command_and_scripts_of_others(self):
        for program, shown in (
            ("/venv/bin/tf_placer", "tf_placer"),
            ("/checkout/tf_placer/__main__.py", "tf_placer"),
            ("/other/__main__.py", "/other/__main__.py"),
            ("plan.py", "plan.py"),
        ):
            with mock.patch.object(sys, "argv", [program, "a"]):
                self.assertEqual(format_command_line(), f"{shown} a")

    def test_escapes_invalid_utf8(self):
        with mock.patch.object(sys, "argv", [os.fsdecode(b"caf\xe9"), "cafe"]):
            self.assertEqual(format_command_line(), r"'caf\udce9' cafe")

    def test_an_embedded_interpreter_may_have_none(self):
        with mock.patch.object(sys, "argv", []):
            self.assertEqual(format_command_line(), "")
            del sys.argv
            self.assertEqual(format_command_line(), "")
            sys.argv = [pathlib.Path("a"), b"b"]
            self.assertEqual(format_command_line(), "a b")


class NotebookTest(absltest.TestCase):
    def test_a_notebook_is_a_process_with_the_kernel_and_its_displays(self):
        self.assertFalse(is_notebook())
        with mock.patch.dict(sys.modules, IPython=mock.Mock()):
            self.assertFalse(is_notebook())
            with mock.patch.dict(sys.modules, ipykernel=mock.Mock()):
                self.assertTrue(is_notebook())


if __name__ == "__main__":
    absltest.main()
