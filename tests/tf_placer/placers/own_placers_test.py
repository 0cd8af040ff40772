import dataclasses
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.placers import graphs, problems, users_placers
from tests.tf_placer.placers.placer_conformance import PlacerConformance
from tf_placer.placers import (
    PLACERS,
    describe_placer,
    find_granularity,
    is_learned,
    list_placers,
    make_placer,
    needs_problem,
)
from tf_placer.placers.own_placers import check_is_importable, find_own_placer, name_placer
from tf_placer.placers.registry import find_placer

_LEGAL = np.ones([4, 2], bool)
_MODULE = "tests.tf_placer.placers.users_placers"


class GivenPlacerTest(PlacerConformance, parameterized.TestCase):
    """Placers that are given as objects."""

    def new_placer(self, groups, legal, seed):
        return make_placer(name_placer(users_placers.LastDevice), groups, legal, seed=seed)

    def test_is_named_by_module_and_class(self):
        self.assertEqual(name_placer(users_placers.LastDevice), f"{_MODULE}:LastDevice")
        self.assertEqual(name_placer(users_placers.make_last_device), f"{_MODULE}:make_last_device")

    @parameterized.parameters(users_placers.LastDevice, users_placers.make_last_device)
    def test_is_made_under_its_name(self, given):
        name = name_placer(given)
        placer = make_placer(name, graphs.chain(4), _LEGAL, seed=3)
        self.assertIsInstance(placer, users_placers.LastDevice)
        self.assertEqual((placer.name, placer.seed), (name, 3))
        self.assertEqual(placer.propose(1).tolist(), [[1, 1, 1, 1]])

    def test_its_properties_follow_from_the_class(self):
        entry = find_placer(name_placer(users_placers.LastDevice))
        self.assertEqual(entry.summary, "Everything on the last device")
        self.assertEqual(entry.reference, _MODULE)
        self.assertFalse(needs_problem(entry.name) or is_learned(entry.name))
        self.assertEqual(find_granularity(entry.name), "coarse")
        self.assertTrue(needs_problem(name_placer(users_placers.Shifted)))

    def test_gets_the_problem_and_the_options_that_its_arguments_ask_for(self):
        groups = graphs.chain(4)
        problem = problems.build_group_problem(groups, _LEGAL)
        name = name_placer(users_placers.Shifted)
        placer = make_placer(name, groups, _LEGAL, problem=problem, options={"shift": "0"})
        self.assertIs(placer.problem, problem)
        self.assertEqual(placer.propose(1).tolist(), [[0, 0, 0, 0]])
        [setting] = describe_placer(name).settings
        self.assertEqual(
            (setting.name, setting.value, setting.help), ("shift", 1, "devices to skip")
        )
        with self.assertRaisesRegex(ValueError, "Shifted' has no option 'shif' .*mean 'shift'"):
            make_placer(name, groups, _LEGAL, problem=problem, options={"shif": 1})
        with self.assertRaisesRegex(ValueError, "Shifted' needs to know what the operations cost"):
            make_placer(name, groups, _LEGAL)

    def test_what_makes_no_placer_is_refused(self):
        for given, message in (
            (
                users_placers.WithoutBase,
                "WithoutBase' is no placer: make it a subclass of .*placer.Placer",
            ),
            (users_placers.WithoutPropose, "WithoutPropose' has no method propose: add it"),
            (
                users_placers.Unannotated,
                "config of placer .*Unannotated' .*: annotate it with a dataclass",
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                find_placer(name_placer(given))
        for given in (
            None,
            5,
            users_placers.LastDevice(graphs.chain(4), _LEGAL),
            users_placers.ENTRY,
        ):
            with self.assertRaisesRegex(ValueError, "or a class or a function that makes one, not"):
                name_placer(given)

    @parameterized.parameters(
        (
            users_placers.Fails,
            r"Fails' cannot be made: KeyError: 'nothing there' \(.*users_placers.py:\d+\)",
        ),
        (
            users_placers.WithoutSuper,
            r"WithoutSuper' .* calls by super\(\).__init__\(groups, legal, seed=seed\)",
        ),
        (users_placers.make_text, "make_text' was made as no whole Placer"),
        (lambda groups: None, "cannot be made: TypeError: .* unexpected keyword argument 'seed'"),
    )
    def test_what_fails_when_it_is_made_is_named(self, given, message):
        with self.assertRaisesRegex(ValueError, message):
            make_placer(name_placer(given), graphs.chain(4), _LEGAL)

    def test_other_processes_need_a_name_at_the_top_of_a_module(self):
        class Local(users_placers.LastDevice):
            pass

        for given in (Local, lambda groups, legal, seed: None):
            with self.assertRaisesRegex(ValueError, "is not at the top of a module: define it"):
                check_is_importable(name_placer(given))
        for name in (name_placer(users_placers.LastDevice), "auto", "mine:Mine"):
            check_is_importable(name)
        # This process has the object, and needs no import.
        self.assertIsInstance(make_placer(name_placer(Local), graphs.chain(4), _LEGAL), Local)


class NamedPlacerTest(parameterized.TestCase):
    """Placers that are named by "module:name"."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        sys.path.insert(0, str(self.directory))
        self.addCleanup(sys.path.remove, str(self.directory))

    def write_module(self, name: str, code: str) -> None:
        (self.directory / f"{name}.py").write_text(textwrap.dedent(code))
        self.addCleanup(sys.modules.pop, name, None)

    def test_is_imported(self):
        placer = make_placer(f"{_MODULE}:LastDevice", graphs.chain(4), _LEGAL)
        self.assertEqual(placer.name, f"{_MODULE}:LastDevice")

    def test_an_entry_says_all_itself(self):
        entry = find_placer(f"{_MODULE}:ENTRY")
        self.assertEqual(entry, dataclasses.replace(users_placers.ENTRY, name=f"{_MODULE}:ENTRY"))
        self.assertEqual(find_granularity(entry.name), "fine")
        self.assertIsInstance(
            make_placer(entry.name, graphs.chain(4), _LEGAL), users_placers.LastDevice
        )

    def test_a_missing_module_is_named_beside_the_nearest_placer(self):
        with self.assertRaisesRegex(
            ValueError,
            "no placer 'colocrl:publishd' .*mean 'colocrl:published'.*no module 'colocrl'",
        ):
            find_placer("colocrl:publishd")
        with self.assertRaisesRegex(ValueError, "no module 'no_such.module': run the command"):
            find_placer("no_such.module:Mine")
        for path in ("own_file.py", "./own_file.py"):
            self.write_module("own_file", "class Mine: ...\n")
            with self.assertRaisesRegex(ValueError, f"finds no module '{path}': run the command"):
                find_placer(f"{path}:Mine")

    def test_a_module_that_cannot_be_imported_is_named_with_the_reason(self):
        self.write_module("own_broken", "\nimport a_missing_module\n")
        self.write_module("own_wrong", "class Mine:\n")
        self.write_module("own_exits", "raise SystemExit('bye')\n")
        for name, message in (
            ("own_broken:Mine", r"imported: ModuleNotFound.*a_missing_module.*own_broken.py:2\)"),
            (
                "own_wrong:Mine",
                "'own_wrong:Mine' cannot be imported: IndentationError: .*, line [0-9]+.$",
            ),
            ("own_exits:Mine", "'own_exits:Mine' cannot be imported: SystemExit: bye"),
            (f"{_MODULE}:Mine", "cannot be imported: AttributeError: .* no attribute 'Mine'"),
            (f"{_MODULE}:NUMBER", "NUMBER' is neither a class, .* but a value of type int"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                find_placer(name)

    def test_a_module_that_searches_when_it_is_imported_is_refused(self):
        # Each of its searches would start the next one.
        self.write_module(
            "own_search",
            """
            from tests.tf_placer.placers.users_placers import LastDevice
            from tf_placer.placers.own_placers import check_no_import_is_running
            check_no_import_is_running()
            """,
        )
        with self.assertRaisesRegex(ValueError, "its module searches .*own_search.py:4"):
            find_placer("own_search:LastDevice")

    @parameterized.parameters(
        # The program, the name of its placer, and the error of a live search.
        ("class Mine: ...\nif __name__ == '__main__': ", "program:Mine", "^$"),
        ("class Mine: ...\n", "__main__:Mine", "module of its own, .*, or put all that .* under"),
    )
    def test_a_program_is_imported_only_if_that_does_not_run_it(self, code, name, message):
        path = self.directory / "program.py"
        path.write_text(
            "from tf_placer.placers.own_placers import *\n"
            f"{code}print(name := name_placer(Mine)); check_is_importable(name)\n"
        )
        for command in ([str(path)], ["-m", "program"]):
            done = subprocess.run(
                [sys.executable, *command],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.stdout, f"{name}\n", done.stderr)
            self.assertRegex(done.stderr, message)
            self.assertEqual(done.returncode, int(message != "^$"))

    def test_typed_programs_have_no_file_to_import(self):
        code = "from tf_placer.placers.own_placers import *\nclass Mine: ...\n"
        code += "check_is_importable(name_placer(Mine))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
        )
        self.assertRegex(done.stderr, "'Mine' from the program itself, .*import it from there\n$")


class RegisteredPlacerTest(absltest.TestCase):
    """Placers that installed packages register by entry points."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        sys.path.insert(0, str(self.directory))
        self.addCleanup(sys.path.remove, str(self.directory))

    def install(self, package: str, **placers: str) -> None:
        """Installs a package as pip does, as far as its entry points go."""
        folder = self.directory / f"{package}-1.5.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        lines = ["[tf_placer.placers]", *(f"{name} = {path}" for name, path in placers.items())]
        (folder / "entry_points.txt").write_text("\n".join(lines))

    def test_has_the_name_of_its_entry_point(self):
        self.install("my_placers", mine=f"{_MODULE}:LastDevice", exact=f"{_MODULE}:ENTRY")
        entry = find_placer("mine")
        self.assertEqual((entry.name, entry.reference), ("mine", "my_placers 1.5"))
        self.assertEqual(make_placer("mine", graphs.chain(4), _LEGAL).name, "mine")
        self.assertEqual(find_granularity("exact"), "fine")
        notes = []
        self.assertEqual(list(list_placers(notes.append)), [*PLACERS, "exact", "mine"])
        self.assertEmpty(notes)

    def test_names_of_this_package_win(self):
        self.install("my_placers", heft=f"{_MODULE}:LastDevice")
        self.assertIs(find_placer("heft"), PLACERS["heft"])
        notes = []
        self.assertEqual(list_placers(notes.append), dict(PLACERS))
        [note] = notes
        self.assertRegex(note, "'heft' of my_placers 1.5 cannot be used: tf_placer has a placer of")
        self.assertIn(f"{_MODULE}:LastDevice", note)

    def test_a_name_of_two_packages_is_refused_with_both(self):
        self.install("my_placers", mine=f"{_MODULE}:LastDevice")
        self.install("your_placers", mine=f"{_MODULE}:Shifted")
        with self.assertRaisesRegex(
            ValueError, "'mine' is registered by my_placers 1.5 and your_placers 1.5: give one of"
        ):
            find_placer("mine")

    def test_a_broken_one_is_named_with_its_package_and_leaves_the_others(self):
        self.install("my_placers", gone="no_such_module:Mine", mine=f"{_MODULE}:LastDevice")
        self.install("your_placers", wrong=f"{_MODULE}:Mine")
        with self.assertRaisesRegex(
            ValueError, "'gone' of my_placers 1.5 .* no module 'no_such_module'"
        ):
            find_placer("gone")
        notes = []
        self.assertEqual(list(list_placers(notes.append)), [*PLACERS, "mine"])
        self.assertRegex(notes[0], "'gone' of my_placers 1.5 cannot be used")
        self.assertRegex(notes[1], "'wrong' of your_placers 1.5 cannot be imported: AttributeErr")

    def test_an_unknown_name_suggests_a_registered_one(self):
        self.install("my_placers", rotation=f"{_MODULE}:LastDevice")
        self.assertIsNone(find_own_placer("rotatoin"))
        with self.assertRaisesRegex(ValueError, "'rotatoin' .*mean 'rotation'.*expert.*rotation"):
            find_placer("rotatoin")


if __name__ == "__main__":
    absltest.main()
