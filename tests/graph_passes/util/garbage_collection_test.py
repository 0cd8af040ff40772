from __future__ import annotations

import gc

from absl.testing import absltest

from graph_passes.util.garbage_collection import paused_garbage_collection


class PausedGarbageCollectionTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.assertTrue(gc.isenabled())
        self.addCleanup(gc.enable)

    def test_it_is_paused_and_goes_on(self):
        with paused_garbage_collection():
            self.assertFalse(gc.isenabled())
        self.assertTrue(gc.isenabled())

    def test_it_goes_on_after_an_error(self):
        with self.assertRaisesRegex(ValueError, "the culprit"), paused_garbage_collection():
            raise ValueError("the culprit")
        self.assertTrue(gc.isenabled())

    def test_pause_inside_a_pause_does_not_end_it(self):
        with paused_garbage_collection():
            with paused_garbage_collection():
                self.assertFalse(gc.isenabled())
            self.assertFalse(gc.isenabled())
        self.assertTrue(gc.isenabled())

    def test_what_the_caller_disabled_stays_disabled(self):
        gc.disable()
        with paused_garbage_collection():
            self.assertFalse(gc.isenabled())
        self.assertFalse(gc.isenabled())

    def test_every_call_of_a_function_pauses(self):
        @paused_garbage_collection()
        def is_enabled() -> bool:
            return gc.isenabled()

        self.assertFalse(is_enabled())
        self.assertTrue(gc.isenabled())
        self.assertFalse(is_enabled())
        self.assertTrue(gc.isenabled())


if __name__ == "__main__":
    absltest.main()
