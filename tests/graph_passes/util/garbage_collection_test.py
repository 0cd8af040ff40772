from __future__ import annotations

import gc

from absl.testing import absltest

from graph_passes.util.garbage_collection import pause_garbage_collection


class PausedGarbageCollectionTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.assertTrue(gc.isenabled())
        self.addCleanup(gc.enable)

    def test_pauses_and_resumes(self):
        with pause_garbage_collection():
            self.assertFalse(gc.isenabled())
        self.assertTrue(gc.isenabled())

    def test_resumes_after_an_error(self):
        with self.assertRaisesRegex(ValueError, "the culprit"), pause_garbage_collection():
            raise ValueError("the culprit")
        self.assertTrue(gc.isenabled())

    def test_nested_pause_ends_with_the_outer_one(self):
        with pause_garbage_collection():
            with pause_garbage_collection():
                self.assertFalse(gc.isenabled())
            self.assertFalse(gc.isenabled())
        self.assertTrue(gc.isenabled())

    def test_stays_disabled_if_the_caller_had_disabled_it(self):
        gc.disable()
        with pause_garbage_collection():
            self.assertFalse(gc.isenabled())
        self.assertFalse(gc.isenabled())

    def test_decorated_function_pauses_in_every_call(self):
        @pause_garbage_collection()
        def is_enabled() -> bool:
            return gc.isenabled()

        self.assertFalse(is_enabled())
        self.assertTrue(gc.isenabled())
        self.assertFalse(is_enabled())
        self.assertTrue(gc.isenabled())


if __name__ == "__main__":
    absltest.main()
