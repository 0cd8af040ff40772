from __future__ import annotations

import os
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from tests.tf_placer.native_pass.built import in_cache_of_tests, skip_unless_built
from tf_placer.native_pass.building import PassError, build_pass, library_path


class BuildingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.create_tempdir().full_path
        self.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.cache}))

    def test_it_is_built_once_in_a_directory_of_the_user_alone(self):
        skip_unless_built()
        with in_cache_of_tests(), mock.patch.dict(os.environ, {"CXX": "no-such-compiler"}):
            path = build_pass()
            self.assertEqual(path, library_path())
        # Nothing is left of the building.
        self.assertEqual({each.suffix for each in path.parent.iterdir()}, {".so"})
        for directory in (path.parent, path.parent.parent):
            self.assertEqual(directory.stat().st_mode & 0o777, 0o700)

    def test_the_file_is_that_of_one_tensorflow(self):
        here = library_path()
        self.assertIn(tf.__version__, here.name)
        with mock.patch.object(tf, "__version__", "2.99.0"):
            self.assertIn("2.99.0", library_path().name)
        with mock.patch.object(tf.version, "GIT_VERSION", "another"):
            self.assertNotEqual(library_path(), here)
        with mock.patch.object(tf.sysconfig, "get_compile_flags", lambda: ["-DANOTHER"]):
            self.assertNotEqual(library_path(), here)

    def test_without_a_compiler_a_sentence_says_what_to_do(self):
        with (
            mock.patch.dict(os.environ, {"CXX": "", "PATH": ""}),
            self.assertRaisesRegex(
                PassError, "there is no C.. compiler: install one .* -m tf_placer build_pass"
            ),
        ):
            build_pass()

    def test_a_compiler_that_fails_is_quoted(self):
        compiler = self.create_tempfile(
            "compiler", "#!/bin/sh\necho a note >&2\necho 'x.cc:1: error: no luck' >&2\nexit 1\n"
        ).full_path
        os.chmod(compiler, 0o700)
        with (
            mock.patch.dict(os.environ, {"CXX": compiler}),
            self.assertRaisesRegex(PassError, "for TensorFlow 2.* says 'x.cc:1: error: no luck'$"),
        ):
            build_pass()
        self.assertEmpty(os.listdir(library_path().parent))

    def test_a_directory_that_others_may_write_to_is_refused(self):
        directory = library_path().parent
        directory.mkdir(parents=True)
        os.chmod(directory, 0o777)
        with self.assertRaisesRegex(PassError, f"others may write to {directory}"):
            build_pass()


if __name__ == "__main__":
    absltest.main()
