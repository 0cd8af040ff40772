"""Tests of the measuring protocols."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.environments.measuring_protocol import (
    ALONE_PROTOCOLS,
    COLOCRL,
    EAGLE,
    POST,
    PROTOCOLS,
    MeasuringProtocol,
)


class MeasuringProtocolTest(absltest.TestCase):
    def test_presets_are_as_published(self):
        self.assertEqual((COLOCRL.steps, COLOCRL.dropped), (10, 1))
        self.assertEqual((POST.steps, POST.dropped), (11, 1))
        self.assertEqual((EAGLE.steps, EAGLE.dropped), (15, 5))

    def test_a_step_must_count(self):
        for steps, dropped in ((0, 0), (3, 3), (3, -1)):
            with self.assertRaises(ValueError):
                MeasuringProtocol(steps, dropped)

    def test_counted_steps_are_those_that_are_not_dropped(self):
        self.assertEqual([each.counted for each in (COLOCRL, POST, EAGLE)], [9, 10, 10])

    def test_protocols_are_known_by_name_and_turns_are_the_default(self):
        self.assertEqual(PROTOCOLS, ("turns", "colocrl", "post", "eagle"))
        self.assertEqual([ALONE_PROTOCOLS[name] for name in PROTOCOLS[1:]], [COLOCRL, POST, EAGLE])


if __name__ == "__main__":
    absltest.main()
