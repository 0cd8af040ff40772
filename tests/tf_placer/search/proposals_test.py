"""Tests of how a placer is asked, measured for and shown what came of it."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer
from tf_placer.search.proposals import propose_and_observe, proposed


class Numbered(Placer):
    """Proposes placement after placement, up to a number of them, in batches."""

    name, batch_size = "numbered", 3

    def __init__(self, last: int):
        super().__init__(graphs.chain(2), np.ones([2, 9], bool), seed=0)
        self.next, self.last, self.observed = 0, last, []

    def propose(self, count):
        numbers = np.arange(self.next, min(self.next + count, self.last))
        return np.repeat(numbers[:, None], 2, axis=1)

    def observe(self, placements, measurements):
        self.observed.append([m.median_secs for m in measurements])
        self.next += len(placements)


def measure(placements):
    return placements, [Measurement((1.0 + row[0],)) for row in placements]


class ProposeAndObserveTest(absltest.TestCase):
    def test_goes_on_until_nothing_more_is_wanted(self):
        placer, counts = Numbered(9), iter([3, 2, 0])
        batches = list(propose_and_observe(placer, lambda: next(counts), measure))
        self.assertEqual(placer.observed, [[1.0, 2.0, 3.0], [4.0, 5.0]])
        self.assertLen(batches, 2)

    def test_goes_on_until_nothing_is_measured_and_that_is_not_observed(self):
        placer = Numbered(4)
        for _ in propose_and_observe(
            placer, lambda: 3, lambda rows: measure(rows) if len(rows) else None
        ):
            pass
        self.assertEqual(placer.observed, [[1.0, 2.0, 3.0], [4.0]])

    def test_a_placer_may_be_asked_by_somebody_else(self):
        asked = []

        def ask(placer, count):
            asked.append(count)
            return proposed(placer, count)

        next(propose_and_observe(Numbered(9), lambda: 2, measure, ask=ask))
        self.assertEqual(asked, [2])

    def test_more_than_was_asked_for_is_refused(self):
        placer = Numbered(9)
        placer.propose = lambda count: np.zeros([count + 1, 2], np.int32)
        with self.assertRaisesRegex(ValueError, "'numbered' was asked for up to 2 .* shape"):
            proposed(placer, 2)


if __name__ == "__main__":
    absltest.main()
