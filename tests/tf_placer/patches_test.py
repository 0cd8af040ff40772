"""Tests of the methods of TensorFlow and Keras that are wrapped, in the versions installed here."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pathlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from absl.testing import absltest

from tf_placer.patches import PATCHES, wrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = "tensorflow.BaseSession.run"
FIT = "keras.Model.fit"
# It changes what single operations hold, and no class.
SETS_BODIES = "tf_placer/functions/placed_concrete_function.py"
CHANGED = ("keras", "tensorflow", "tf_keras")


def around(log: list[str], name: str) -> Callable[..., Any]:
    def call(inner: Callable[..., Any], *args: Any) -> Any:
        log.append(name)
        return inner(*args)

    return call


def foreign_changes(source: str) -> Iterator[int]:
    """The lines where a module may change a class or a module of TensorFlow or Keras.

    That is `setattr` and `delattr` of anything but `self`, and what is assigned to an attribute of
    something that was imported from there, or of a class that the module has not defined itself.
    """
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    imported = {"tf", *CHANGED}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                origin = getattr(node, "module", None) or alias.name
                if origin.partition(".")[0] in CHANGED:
                    imported.add(alias.asname or alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("setattr", "delattr") and ast.unparse(node.args[0]) != "self":
                yield node.lineno
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            base = ast.unparse(node.value)
            is_class = base.rpartition(".")[2][:1].isupper() and base not in own
            if is_class or base.partition(".")[0] in imported:
                yield node.lineno


class ListTest(absltest.TestCase):
    def test_installed_versions_have_the_methods_that_are_listed(self):
        for name, patch in PATCHES.items():
            package = name.partition(".")[0]
            if importlib.util.find_spec(package) is None:
                continue
            version = importlib.import_module(package).__version__
            with self.subTest(name, version=version):
                method = getattr(patch.find_class(), patch.method, None)
                is_listed = int(version.partition(".")[0]) in patch.versions
                self.assertEqual(method is not None, is_listed)
                if method is not None:
                    found = tuple(inspect.signature(method).parameters)
                    self.assertEqual(found[: len(patch.parameters)], patch.parameters)

    def test_the_manual_lists_all(self):
        page = (ROOT / "docs" / "scripts.md").read_text()
        _, _, table = page.partition("## Instrumentation of TensorFlow")
        named = set(re.findall(r"`((?:[A-Z]\w+|config)\.\w+)`", table.partition("\n## ")[0]))
        self.assertEqual(named, {f"{patch.kind}.{patch.method}" for patch in PATCHES.values()})

    def test_only_this_module_patches_classes(self):
        for folder in ("graph_passes", "tf_placer"):
            for path in sorted((ROOT / folder).rglob("*.py")):
                name = path.relative_to(ROOT).as_posix()
                if name not in ("tf_placer/patches.py", SETS_BODIES):
                    self.assertEmpty(list(foreign_changes(path.read_text())), name)

    def test_the_check_finds_patches(self):
        for change in (
            "keras.Model.fit = mine",
            "module.Model.fit = mine",
            "def change(kind): setattr(kind, 'fit', mine)",
            "from tensorflow.python.client import session as s\ns.BaseSession.run = mine",
            "from tensorflow.python.client.session import BaseSession\nBaseSession.run = mine",
            "from tensorflow.python.framework import ops\nops.uid, other = mine, 1",
            "import tensorflow as flow\ndel flow.function",
        ):
            self.assertLen(list(foreign_changes(change)), 1, change)
        self.assertEmpty(list(foreign_changes("class A: ...\nA.x = 1\nself.y = model.fit = A.x")))


class WrapTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.kind = PATCHES[RUN].find_class()
        self.run = self.kind.run
        self.log: list[str] = []
        self.enterContext(absltest.mock.patch.object(self.kind, "run", self.original))

    def original(self, *args: Any) -> str:
        self.log.append("run")
        return f"ran {args[-1]}"

    def calls(self) -> list[str]:
        self.log.clear()
        self.assertEqual(self.kind.run(None, "it"), "ran it")
        return [*self.log]

    def test_removal_restores_the_original_method(self):
        for name in (RUN, FIT):
            patch = PATCHES[name]
            kind = patch.find_class()
            before, own = getattr(kind, patch.method), patch.method in vars(kind)
            undo = wrap(name, around(self.log, "around"))
            self.assertIs(getattr(kind, patch.method).__wrapped__, before)
            self.assertTrue(undo())
            self.assertFalse(undo())
            self.assertIs(getattr(kind, patch.method), before)
            self.assertEqual(patch.method in vars(kind), own)

    def test_the_last_wrapper_is_called_first_and_any_can_be_removed(self):
        before = self.kind.run
        for first_to_go, rest in ((0, ["outer", "run"]), (1, ["inner", "run"])):
            undos = [wrap(RUN, around(self.log, name)) for name in ("inner", "outer")]
            self.assertIs(self.kind.run.__wrapped__, before)
            self.assertEqual(self.calls(), ["outer", "inner", "run"])
            undos[first_to_go]()
            self.assertEqual(self.calls(), rest)
            undos[1 - first_to_go]()
            self.assertIs(self.kind.run, before)

    def test_replacements_by_other_code_are_kept_and_wrapped(self):
        undo_first = wrap(RUN, around(self.log, "first"))
        ours = self.kind.run

        def others(*args: Any) -> Any:
            self.log.append("others")
            return ours(*args)

        self.kind.run = others
        undo_second = wrap(RUN, around(self.log, "second"))
        self.assertEqual(self.calls(), ["second", "others", "first", "run"])
        undo_first()
        self.assertEqual(self.calls(), ["second", "others", "run"])
        undo_second()
        self.assertIs(self.kind.run, others)
        self.assertEqual(self.calls(), ["others", "run"])

    def test_a_call_may_take_itself_away(self):
        def once(inner: Callable[..., Any], *args: Any) -> Any:
            self.log.append(f"once {undo()}")
            return inner(*args)

        before = self.kind.run
        undo = wrap(RUN, once)
        self.assertEqual(self.calls(), ["once True", "run"])
        self.assertIs(self.kind.run, before)

    def test_concurrent_wrapping_restores_the_original_method(self):
        before = self.kind.run

        def wrap_often() -> None:
            for _ in range(500):
                wrap(RUN, around([], "thread"))()

        threads = [threading.Thread(target=wrap_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIs(self.kind.run, before)

    def test_only_what_is_listed_is_wrapped(self):
        with self.assertRaises(KeyError):
            wrap("tensorflow.BaseSession.close", around(self.log, "around"))


if __name__ == "__main__":
    absltest.main()
