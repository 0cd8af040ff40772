"""Tests of `import tf_placer` itself."""

from __future__ import annotations

import os
import subprocess
import sys

from absl.testing import absltest

import tf_placer


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120
    )


class PackageTest(absltest.TestCase):
    def test_import_does_not_import_tensorflow(self):
        done = run_python("import sys, tf_placer; assert 'tensorflow' not in sys.modules")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_public_name_resolves(self):
        for name in tf_placer.__all__:
            self.assertEqual(getattr(tf_placer, name).__name__, name)

    def test_completion_shows_the_public_names_alone(self):
        self.assertEqual(dir(tf_placer), sorted([*tf_placer.__all__, "__version__"]))

    def test_optimize_is_the_function_whatever_was_imported_before(self):
        import tf_placer.live.entry_points

        self.assertTrue(callable(tf_placer.optimize))
        self.assertIs(tf_placer.optimize, tf_placer.live.entry_points.optimize)

    def test_other_names_are_refused(self):
        with self.assertRaisesRegex(AttributeError, "'tf_placer' has no attribute 'no_such_name'"):
            _ = tf_placer.no_such_name

    def test_the_version_is_a_literal_that_packaging_can_read(self):
        self.assertRegex(tf_placer.__version__, r"^\d+\.\d+\.\d+$")

    def test_without_tensorflow_names_say_how_to_install_it(self):
        done = run_python(
            "import sys; sys.modules['tensorflow'] = None\n"
            "import tf_placer\n"
            "try: tf_placer.optimize\n"
            "except ImportError as error: print(error)"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pip install 'tf_placer[cpu]'", done.stdout)

    def test_without_tensorflow_commands_say_how_to_install_it(self):
        done = run_python(
            "import sys; sys.modules['tensorflow'] = None\n"
            "from tf_placer.cli import main as cli\n"
            "cli.main(['optimize', '--input_graph=x.pb'])"
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^tf_placer: .*pip install 'tf_placer\[cpu\]'.*\n$")


if __name__ == "__main__":
    absltest.main()
