from __future__ import annotations

import ctypes
import os
import pathlib
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from tf_placer.library_build import LibraryError, build_library, find_library

_HEADER = "tensorflow/c/tf_datatype.h"


class LibraryBuildTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.create_tempdir().full_path
        self.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.cache}))
        code = f'#include "{_HEADER}"\nextern "C" __attribute__((visibility("default"))) '
        code += "int float_type() { return TF_FLOAT; }\n"
        self.source = pathlib.Path(self.create_tempfile("tiny/tiny.cc", code).full_path)

    def build(self) -> pathlib.Path:
        return build_library(self.source, _HEADER, what="the tiny library")

    def test_builds_once_in_a_directory_of_the_user_alone(self):
        path = self.build()
        self.assertEqual(ctypes.CDLL(str(path)).float_type(), tf.float32.as_datatype_enum)
        with mock.patch.dict(os.environ, {"CXX": "no-such-compiler"}):
            self.assertEqual(self.build(), path)
        self.assertEqual(os.listdir(path.parent), [path.name])
        for directory in (path.parent, path.parent.parent):
            self.assertEqual(directory.stat().st_mode & 0o777, 0o700)

    def test_each_tensorflow_has_a_file_of_its_own(self):
        here = find_library(self.source)
        self.assertIn(tf.__version__, here.name)
        with mock.patch.object(tf, "__version__", "2.99.0"):
            self.assertIn("2.99.0", find_library(self.source).name)
        with mock.patch.object(tf.version, "GIT_VERSION", "another"):
            self.assertNotEqual(find_library(self.source), here)
        with mock.patch.object(tf.sysconfig, "get_compile_flags", lambda: ["-DANOTHER"]):
            self.assertNotEqual(find_library(self.source), here)

    def test_without_a_compiler_a_sentence_says_what_to_do(self):
        with (
            mock.patch.dict(os.environ, {"CXX": "", "PATH": ""}),
            self.assertRaisesRegex(
                LibraryError, r"the tiny library is not built .* no C.. compiler: install one"
            ),
        ):
            self.build()

    def test_without_headers_a_sentence_says_what_to_do(self):
        with self.assertRaisesRegex(LibraryError, "no/such.h; install the package of TensorFlow"):
            build_library(self.source, "no/such.h", what="the tiny library")

    def test_quotes_a_compiler_that_fails(self):
        compiler = self.create_tempfile(
            "compiler", "#!/bin/sh\necho a note >&2\necho 'x.cc:1: error: no luck' >&2\nexit 1\n"
        ).full_path
        os.chmod(compiler, 0o700)
        with (
            mock.patch.dict(os.environ, {"CXX": compiler}),
            self.assertRaisesRegex(
                LibraryError, "for TensorFlow 2.* says 'x.cc:1: error: no luck'$"
            ),
        ):
            self.build()
        self.assertEmpty(os.listdir(find_library(self.source).parent))

    def test_refuses_a_directory_that_others_may_write_to(self):
        directory = find_library(self.source).parent
        directory.mkdir(parents=True)
        os.chmod(directory, 0o777)
        with self.assertRaisesRegex(LibraryError, f"others may write to {directory}"):
            self.build()


if __name__ == "__main__":
    absltest.main()
