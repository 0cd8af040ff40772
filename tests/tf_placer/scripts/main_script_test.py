"""Tests of scripts as the main module, beside Python itself."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

from absl.testing import absltest, parameterized

_PATH = os.pathsep.join(path or os.getcwd() for path in sys.path)
_RUN = (
    "from tf_placer.scripts.main_script import run_main_script; import sys; "
    "run_main_script(sys.argv[1], sys.argv[2:])"
)


class MainScriptTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def call(self, *command: str) -> tuple:
        """Exit code, standard output and standard error."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": _PATH},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    @parameterized.named_parameters(
        ("an exit code", "import sys; print(sys.argv); sys.exit(3)"),
        ("a message at the exit", "import sys; sys.exit('no data')"),
        ("an exit that runs nothing else", "import os; os._exit(4)"),
        ("an error", "def f():\n    raise OSError('mine')\nf()"),
        ("an error behind another", "try:\n    1 / 0\nexcept ValueError:\n    pass"),
        ("an error of syntax", "print(1)\nx = = 2"),
        ("an interrupt", "print(1, flush=True)\nraise KeyboardInterrupt"),
        ("a closed standard output", "import os\nos.close(1)\nprint(1, flush=True)"),
        (
            "its own view of errors",
            "import sys, traceback\n"
            "sys.excepthook = lambda *a: print(a[0], len(traceback.extract_tb(a[2])))\n"
            "raise ValueError(1)",
        ),
        (
            "its names in the main module, to the end",
            "import __main__, atexit, pickle, threading, time\n"
            "class A: pass\n"
            "def last(): print(type(pickle.loads(pickle.dumps(A()))), __main__.A)\n"
            "atexit.register(last)\n"
            "threading.Thread(target=lambda: (time.sleep(0.1), last())).start()",
        ),
        (
            "what a main module has",
            "import sys\nprint(__name__, __file__, __package__, __spec__, sys.path[0])\n"
            "def f(a: int): pass\nprint(f.__annotations__)",
        ),
        (
            "processes that are made afresh",
            "import multiprocessing, os\n"
            "def work(): print('work', flush=True); os._exit(5)\n"
            "if __name__ == '__main__':\n"
            "    os.mkdir('elsewhere'); os.chdir('elsewhere')\n"
            "    p = multiprocessing.get_context('spawn').Process(target=work)\n"
            "    p.start(); p.join(); print(p.exitcode); os.chdir('..'); os.rmdir('elsewhere')",
        ),
    )
    def test_a_script_has_what_it_has_under_python(self, text: str):
        (self.directory / "train.py").write_text(textwrap.dedent(text))
        alone = self.call("train.py", "--x=1")
        self.assertEqual(self.call("-c", _RUN, "train.py", "--x=1"), alone)
        self.assertNotIn("main_script", alone[2])

    def test_a_link_is_beside_the_modules_of_its_script(self):
        (self.directory / "there").mkdir()
        (self.directory / "there" / "train.py").write_text("import beside; print(beside.VALUE)")
        (self.directory / "there" / "beside.py").write_text("VALUE = 3")
        (self.directory / "link.py").symlink_to(self.directory / "there" / "train.py")
        self.assertEqual(self.call("-c", _RUN, "link.py"), (0, "3\n", ""))


if __name__ == "__main__":
    absltest.main()
