import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.learned.algorithms.table_agent import new_samples
from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Update
from tf_placer.placers.learned.algorithms.elite_algorithm import EliteAlgorithm
from tf_placer.placers.learned.algorithms.with_cross_entropy import WithCrossEntropy


class _Recorded(Algorithm):
    """Notes at which sample it learns."""

    def __init__(self, batch_size, calls):
        self.batch_size = batch_size
        self.num_samples = 0
        self._calls = calls

    def learn(self, samples):
        self._calls.append(("ppo", len(samples.step_secs)))
        return [Update("ppo", 0.0, 0.0, 0.0, 0.0)]


class _RecordedElites(EliteAlgorithm):
    """Notes at which sample it learns, and from which ones."""

    def __init__(self, batch_size, calls):
        super().__init__(batch_size)
        self._calls = calls
        self._kept = []

    def update(self):
        self._calls.append(("ce", self._kept[-self.batch_size :]))
        return [Update("ce", 0.0, None, 0.0, 0.0)]

    def _add(self, samples):
        self._kept.extend(samples.step_secs.tolist())

    def _list_samples(self):
        return []

    def _set_samples(self, samples):
        pass


def _schedule(every, elites_every, total, *, instead):
    """The kinds of updates by the number of samples after which they happen."""
    calls = []
    algorithm = WithCrossEntropy(
        _Recorded(every, calls), _RecordedElites(elites_every, calls), instead=instead
    )
    schedule = {}
    for last in range(every, total + 1, every):
        batch = np.arange(last - every + 1, last + 1)
        updates = algorithm.learn(new_samples(np.zeros([every, 1]), step_secs=batch))
        schedule[last] = [update.kind for update in updates]
    return schedule, calls


class WithCrossEntropyTest(absltest.TestCase):
    def test_follows_algorithm_1_of_post_over_2400_samples(self):
        schedule, calls = _schedule(12, 60, 2400, instead=True)
        expected = {}
        for n in range(1, 2401):
            if n % 12 == 0 and n % 60 != 0:
                expected[n] = ["ppo"]
            if n % 60 == 0:
                expected[n] = ["ce"]
        self.assertEqual(schedule, expected)
        kinds = [kind for kind, _ in calls]
        self.assertEqual((kinds.count("ppo"), kinds.count("ce")), (160, 40))
        self.assertEqual(kinds[:6], ["ppo"] * 4 + ["ce", "ppo"])
        # Each of the 40 sees exactly the samples since the one before it.
        windows = [kept for kind, kept in calls if kind == "ce"]
        self.assertEqual(windows[1], list(range(61, 121)))

    def test_follows_eagle(self):
        schedule, calls = _schedule(10, 50, 2400, instead=False)
        for n, kinds in schedule.items():
            self.assertEqual(kinds, ["ppo", "ce"] if n % 50 == 0 else ["ppo"])
        kinds = [kind for kind, _ in calls]
        self.assertEqual((kinds.count("ppo"), kinds.count("ce")), (240, 48))

    def test_refuses_cross_entropy_within_a_batch(self):
        with self.assertRaisesRegex(ValueError, "ce_samples must be a multiple of batch_size 12"):
            WithCrossEntropy(_Recorded(12, []), _RecordedElites(50, []), instead=True)


if __name__ == "__main__":
    absltest.main()
