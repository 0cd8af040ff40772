import subprocess
import sys

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer.placers import graphs, problems
from tf_placer.environments.environment import Measurement
from tf_placer.placers.making import (
    check_options,
    describe_placer,
    find_start,
    find_start_source,
    make_placer,
)
from tf_placer.placers.registry import PLACERS, needs_problem

_LEGAL = np.ones([4, 2], np.bool_)


class MakingTest(parameterized.TestCase):
    @parameterized.parameters(sorted(PLACERS))
    def test_makes_every_placer_under_its_name(self, name):
        groups = graphs.chain(4)
        problem = problems.build_group_problem(groups, _LEGAL) if needs_problem(name) else None
        start = np.zeros(len(_LEGAL), np.int32) if PLACERS[name].needs_start else None
        try:
            placer = make_placer(name, groups, _LEGAL, seed=5, problem=problem, start=start)
        except ImportError as error:
            self.skipTest(str(error))  # It needs an extra.
        self.assertEqual(placer.name, name)
        self.assertEqual(placer.seed, 5)

    def test_refuses_to_make_a_placer_without_the_costs_that_it_needs(self):
        with self.assertRaisesRegex(ValueError, "'heft' needs to know what the operations cost"):
            make_placer("heft", graphs.chain(4), _LEGAL)

    def test_options_reach_the_placer(self):
        options = {"batch_size": "6", "policy": "softmax"}
        placer = make_placer("colocrl", graphs.chain(4), _LEGAL, options=options)
        self.assertEqual(placer.batch_size, 6)
        self.assertEqual(placer.agent.policy.name, "softmax")

    @parameterized.parameters(
        ("post", {}, 20_000, 0.1 * (1 - 60 / 20_000)),
        ("post", {}, None, 0.1 * (1 - 60 / 2400)),
        ("post", {"total_samples": 240}, 20_000, 0.1 * (1 - 60 / 240)),
        ("post:published", {}, 20_000, 0.1 * (1 - 60 / 2400)),
    )
    def test_exploration_of_cross_entropy_minimization_ends_with_the_search(
        self, name, options, max_samples, exploration
    ):
        legal = np.ones([4, 2], np.bool_)
        placer = make_placer(name, graphs.chain(4), legal, options=options, max_samples=max_samples)
        for _ in range(5):
            placements = placer.propose(12)
            # Placements are the faster, the more groups they have on device 0.
            secs = 1.0 + placements.sum(axis=1)
            placer.observe(placements, [Measurement((float(each),)) for each in secs])
        probabilities = placer.agent.policy.probabilities()
        # The elites are all on device 0, but for exploration.
        self.assertAlmostEqual(probabilities.min(), exploration / 2, places=6)

    def test_converts_options_to_the_types_of_the_settings(self):
        options = {"batch_size": "6", "policy": "softmax", "failure_reward": "none"}
        expected = {"batch_size": 6, "policy": "softmax", "failure_reward": None}
        self.assertEqual(check_options("colocrl", options), expected)
        self.assertEqual(check_options("random", None), {})

    def test_describes_components_and_settings(self):
        described = describe_placer("eagle", {"num_groups": "32"})
        self.assertEqual(
            described.components,
            {"grouper": "feed_forward", "policy": "seq2seq", "algorithm": "ppo"},
        )
        settings = {setting.name: setting for setting in described.settings}
        self.assertEqual(settings["num_groups"].value, 32)
        self.assertEqual(settings["num_groups"].part, "feed_forward")
        self.assertEqual(settings["learning_rate"].value, 1e-4)
        for setting in described.settings:
            self.assertNotEmpty(setting.help, setting.name)
        self.assertEqual(describe_placer("random").settings, [])

    def test_refuses_an_invalid_start_with_the_options(self):
        for start, message in (
            ("exprt", "no placer 'exprt'.*did you mean 'expert'"),
            ("eagle", "'start' takes a placer that does not learn, not 'eagle'"),
            ("auto", "'start' takes a placer that does not learn, not 'auto'"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                check_options("post", {"start": start})
        for start in ("expert", "original", "best.json"):
            self.assertEqual(check_options("post", {"start": start}), {"start": start})

    def test_finds_the_start_of_a_placer(self):
        self.assertEqual(find_start("warm_softmax", None), "best")
        self.assertEqual(find_start("warm_softmax", {"start": "expert"}), "expert")
        self.assertIsNone(find_start("warm_softmax", {"start": None}))
        self.assertIsNone(find_start("post", {}))
        self.assertIsNone(find_start("auto", None))

    def test_finds_a_start_that_the_caller_must_give(self):
        for start in ("original", "best.json"):
            self.assertEqual(find_start_source("post", {"start": start}), start)
        self.assertIsNone(find_start_source("post", {"start": "expert"}))
        self.assertIsNone(find_start_source("post", {"start": None}))
        self.assertIsNone(find_start_source("post", None))
        self.assertIsNone(find_start_source("auto", None))

    def test_an_unknown_placer_is_named_and_the_nearest_one_suggested(self):
        for call in (describe_placer, lambda name: check_options(name, {})):
            with self.assertRaisesRegex(ValueError, "'colocr'.*did you mean 'colocrl'.*expert"):
                call("colocr")
        with self.assertRaisesRegex(ValueError, "'colocr'.*did you mean 'colocrl'.*expert"):
            make_placer("colocr", graphs.chain(4), _LEGAL)

    def test_an_unknown_option_is_named_and_the_nearest_one_suggested(self):
        with self.assertRaisesRegex(
            ValueError, "'colocrl' has no option 'learning_rat'.*did you mean 'learning_rate'"
        ):
            make_placer("colocrl", graphs.chain(4), _LEGAL, options={"learning_rat": 1})
        with self.assertRaisesRegex(ValueError, "'random' has no option 'rate'.*none"):
            make_placer("random", graphs.chain(4), _LEGAL, options={"rate": 1})

    def test_heuristics_do_not_import_tensorflow(self):
        program = (
            "import sys, numpy as np\n"
            "from tests.tf_placer.placers import graphs\n"
            "from tf_placer.placers import make_placer\n"
            "for name in ('single_device', 'random', 'expert'):\n"
            "    make_placer(name, graphs.chain(4), np.ones([4, 2], bool)).propose(3)\n"
            "print('tensorflow' in sys.modules)\n"
        )
        printed = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertEqual(printed.strip(), "False")


if __name__ == "__main__":
    absltest.main()
