from __future__ import annotations

import importlib.util
import pathlib
import sys

from absl.testing import absltest

from tf_placer.scripts.import_hook import run_after_import


class AfterImportTest(absltest.TestCase):
    def test_runs_once_after_the_import_and_not_for_find_spec(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        (directory / "imported_once.py").write_text("VALUE = 3")
        self.enter_context(absltest.mock.patch.object(sys, "path", [str(directory), *sys.path]))
        self.enter_context(absltest.mock.patch.object(sys, "meta_path", [*sys.meta_path]))
        seen = []
        run_after_import({"imported_once": lambda module: seen.append(module.VALUE)})
        for _ in range(2):
            self.assertIsNotNone(importlib.util.find_spec("imported_once"))
        self.assertEmpty(seen)
        for _ in range(2):
            importlib.import_module("imported_once")
        self.assertEqual(seen, [3])
        del sys.modules["imported_once"]
        importlib.import_module("imported_once")
        self.assertEqual(seen, [3])

    def test_a_missing_module_raises_as_usual(self):
        self.enter_context(absltest.mock.patch.object(sys, "meta_path", [*sys.meta_path]))
        run_after_import({"there_is_no_such_module": print})
        self.assertIsNone(importlib.util.find_spec("there_is_no_such_module"))


if __name__ == "__main__":
    absltest.main()
