import ctypes
import pathlib
import shutil
import signal
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.native import library
from tf_placer.native.digest import compute_sources_digest
from tf_placer.native.library import (
    CoreError,
    Struct,
    array_of,
    core,
    int64,
    make_owner,
    pointer_to,
    random_struct,
)


class Numbers(Struct):
    _fields_ = (("values", array_of(np.int32)), ("count", int64))


class StructTest(parameterized.TestCase):
    def test_points_to_its_arrays_and_keeps_them_alive(self):
        numbers = Numbers(values=np.arange(5, dtype=np.int32), count=5)
        values = ctypes.cast(numbers.values, ctypes.POINTER(ctypes.c_int32))
        self.assertEqual(values[: numbers.count], [0, 1, 2, 3, 4])
        numbers["values"][1] = 7
        self.assertEqual(values[1], 7)

    @parameterized.parameters(
        (np.arange(5), "values: int32 in C order is needed, not int64"),
        (np.zeros([4, 4], np.int32)[:, 0], "values: int32 in C order"),
    )
    def test_refuses_arrays_of_other_dtypes_or_orders(self, values, message):
        with self.assertRaisesRegex(ValueError, message):
            Numbers(values=values, count=4)

    def test_refuses_missing_and_unknown_fields(self):
        with self.assertRaisesRegex(TypeError, r"wrong fields: \['count'\]"):
            Numbers(values=np.zeros(1, np.int32))
        with self.assertRaisesRegex(TypeError, r"wrong fields: \['sum'\]"):
            Numbers(values=np.zeros(1, np.int32), count=1, sum=2)

    def test_refuses_pointers_to_arrays_of_other_dtypes(self):
        with self.assertRaisesRegex(ValueError, "float64 in C order is needed, not int64"):
            pointer_to(np.arange(3), np.float64)


class OwnedTest(absltest.TestCase):
    """Tests with a function that "frees" the number of a signal by raising the signal."""

    def make_owner(self, number: signal.Signals, handler):
        self.addCleanup(signal.signal, number, signal.signal(number, handler))
        return make_owner(int(number), getattr(ctypes.CDLL(None), "raise"))

    def test_frees_with_the_last_reference(self):
        freed: list[int] = []
        owner = self.make_owner(signal.SIGUSR1, lambda number, frame: freed.append(number))
        same = owner
        del owner
        self.assertEmpty(freed)
        del same
        self.assertEqual(freed, [signal.SIGUSR1])

    def test_keeps_an_interrupt_while_it_frees(self):
        owner = self.make_owner(signal.SIGINT, signal.default_int_handler)
        with self.assertRaises(KeyboardInterrupt):
            del owner
            # Python checks for signals at calls.
            self.fail("the interrupt was lost")


class RandomTest(absltest.TestCase):
    def test_draws_the_same_numbers_as_the_generator(self):
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

    def test_a_missing_core_raises_with_build_instructions(self):
        with self.assertRaisesRegex(CoreError, f"not in {self.folder}: `pip install -e .`"):
            self.load_from(self.folder)

    def test_loads_a_core_without_sources(self):
        shutil.copy(self.file, self.folder)
        self.assertIn(str(self.folder), self.load_from(self.folder)._name)

    def test_refuses_a_core_of_other_sources(self):
        shutil.copy(self.file, self.folder)
        (self.folder / "core.cc").write_text("// something else")
        made_of = core().tf_placer_digest()
        if made_of:
            with self.assertRaisesRegex(CoreError, "made of other sources than those beside it"):
                self.load_from(self.folder)
        else:  # Bazel embeds no digest.
            self.load_from(self.folder)


class DigestTest(absltest.TestCase):
    def test_digests_depend_on_the_cpp_sources_alone(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.assertEqual(compute_sources_digest(folder), "")
        digests = {""}
        for name, text in (("a.cc", "1"), ("a.cc", "2"), ("b.h", "2"), ("c.py", "3")):
            (folder / name).write_text(text)
            digests.add(compute_sources_digest(folder))
        self.assertLen(digests, 4)


if __name__ == "__main__":
    absltest.main()
