import ctypes
import pathlib
import shutil
import signal
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.native import library
from tf_placer.native.digest import sources_digest
from tf_placer.native.library import (
    CoreError,
    Struct,
    array_of,
    core,
    int64,
    owned,
    pointer_to,
    random_struct,
)


class Numbers(Struct):
    _fields_ = (("values", array_of(np.int32)), ("count", int64))


class StructTest(parameterized.TestCase):
    def test_it_points_to_its_arrays_and_keeps_them(self):
        numbers = Numbers(values=np.arange(5, dtype=np.int32), count=5)
        values = ctypes.cast(numbers.values, ctypes.POINTER(ctypes.c_int32))
        self.assertEqual(values[: numbers.count], [0, 1, 2, 3, 4])
        numbers["values"][1] = 7
        self.assertEqual(values[1], 7)

    @parameterized.parameters(
        (np.arange(5), "values: int32 in C order is needed, not int64"),
        (np.zeros([4, 4], np.int32)[:, 0], "values: int32 in C order"),
    )
    def test_other_arrays_are_refused(self, values, message):
        with self.assertRaisesRegex(ValueError, message):
            Numbers(values=values, count=4)

    def test_every_field_is_needed_and_no_other(self):
        with self.assertRaisesRegex(TypeError, r"wrong fields: \['count'\]"):
            Numbers(values=np.zeros(1, np.int32))
        with self.assertRaisesRegex(TypeError, r"wrong fields: \['sum'\]"):
            Numbers(values=np.zeros(1, np.int32), count=1, sum=2)

    def test_pointers_to_other_arrays_are_refused(self):
        with self.assertRaisesRegex(ValueError, "float64 in C order is needed, not int64"):
            pointer_to(np.arange(3), np.float64)


class OwnedTest(absltest.TestCase):
    """What "frees" the number of a signal sends it."""

    def owned_signal(self, number: signal.Signals, handler):
        self.addCleanup(signal.signal, number, signal.signal(number, handler))
        return owned(int(number), getattr(ctypes.CDLL(None), "raise"))

    def test_it_is_freed_once_nobody_has_it(self):
        freed: list[int] = []
        owner = self.owned_signal(signal.SIGUSR1, lambda number, frame: freed.append(number))
        same = owner
        del owner
        self.assertEmpty(freed)
        del same
        self.assertEqual(freed, [signal.SIGUSR1])

    def test_an_interrupt_meanwhile_is_not_lost(self):
        owner = self.owned_signal(signal.SIGINT, signal.default_int_handler)
        with self.assertRaises(KeyboardInterrupt):
            del owner
            # Python looks for signals when something is called.
            self.fail("the interrupt was lost")


class RandomTest(absltest.TestCase):
    def test_it_draws_what_the_generator_would_draw(self):
        generator, same = np.random.default_rng(3), np.random.default_rng(3)
        struct = random_struct(generator)
        draw = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)(struct.next_double)
        self.assertEqual([draw(struct.state) for _ in range(5)], same.random(5).tolist())
        self.assertEqual(generator.random(), same.random())


class CoreTest(absltest.TestCase):
    def load_from(self, folder):
        with mock.patch.object(library, "_FOLDER", folder):
            return core.__wrapped__()

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.file = next(
            file for pattern in ("core.so", "_core*.so") for file in library._FOLDER.glob(pattern)
        )

    def test_where_it_is_not_the_message_says_how_to_build_it(self):
        with self.assertRaisesRegex(CoreError, f"not in {self.folder}: `pip install -e .`"):
            self.load_from(self.folder)

    def test_without_sources_beside_it_it_is_loaded(self):
        shutil.copy(self.file, self.folder)
        self.assertIn(str(self.folder), self.load_from(self.folder)._name)

    def test_one_of_other_sources_is_refused(self):
        shutil.copy(self.file, self.folder)
        (self.folder / "core.cc").write_text("// something else")
        made_of = core().tf_placer_digest()
        if made_of:
            with self.assertRaisesRegex(CoreError, "made of other sources than those beside it"):
                self.load_from(self.folder)
        else:  # Bazel looks after that.
            self.load_from(self.folder)


class DigestTest(absltest.TestCase):
    def test_it_tells_sources_from_others(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.assertEqual(sources_digest(folder), "")
        digests = {""}
        for name, text in (("a.cc", "1"), ("a.cc", "2"), ("b.h", "2"), ("c.py", "3")):
            (folder / name).write_text(text)
            digests.add(sources_digest(folder))
        self.assertLen(digests, 4)


if __name__ == "__main__":
    absltest.main()
