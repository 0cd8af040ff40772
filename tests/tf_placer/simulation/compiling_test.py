from __future__ import annotations

import importlib.util
import pathlib
from unittest import mock

from absl.testing import absltest

from tf_placer.simulation import compiling


def add_one(number):
    return number + 1


class CompiledTest(absltest.TestCase):
    def module(self, text):
        """A module with this text."""
        path = pathlib.Path(self.create_tempfile("other.py", text).full_path)
        spec = importlib.util.spec_from_file_location("other", path)
        assert spec is not None
        return importlib.util.module_from_spec(spec)

    def compiled_name(self, *modules):
        """The name under which a function is kept that depends on modules."""
        names = []

        def njit(**options):
            def keep(function):
                names.append(function.__qualname__)
                return function

            return keep

        def function():
            pass

        with mock.patch.object(compiling.numba, "njit", njit):
            compiling.compiled(function, *modules)
        return names[0]

    def test_a_compiled_function_does_what_it_did(self):
        self.assertEqual(compiling.compiled(add_one)(1), 2)

    def test_what_is_kept_is_not_used_any_more_once_another_file_has_changed(self):
        name = self.compiled_name(self.module("ONE = 1"))
        self.assertEqual(self.compiled_name(self.module("ONE = 1")), name)
        self.assertNotEqual(self.compiled_name(self.module("ONE = 2")), name)

    def test_without_a_folder_for_compiled_code_it_is_compiled_for_this_process(self):
        def njit(cache=False, **options):
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return lambda function: (function, options)

        with mock.patch.object(compiling.numba, "njit", njit):
            function, options = compiling.compiled(add_one)
        self.assertIs(function, add_one)
        self.assertTrue(options["nogil"])

    def test_without_the_files_it_depends_on_it_is_compiled_for_this_process(self):
        module = self.module("ONE = 1")
        module.__file__ = "/nowhere/other.py"
        with mock.patch.object(compiling.numba, "njit", lambda **options: lambda _: options):
            options = compiling.compiled(add_one, module)
        self.assertNotIn("cache", options)


if __name__ == "__main__":
    absltest.main()
