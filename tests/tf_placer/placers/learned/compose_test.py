import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests.tf_placer.placers import graphs, placer_conformance
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced, run_eagerly
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers import make_placer
from tf_placer.placers.presets import PRESETS
from tf_placer.problem.problem_groups import group_graph, legal_devices

# Small networks, for the presets that have networks.
SMALL = {"hidden_units": 8, "attention_units": 4, "device_units": 4}

setUpModule = leave_graphs_as_traced


def _run_as_it_can(name):
    """Eagerly, but for what cannot be: TensorFlow gives an empty gather of an array no type."""
    tf.config.run_functions_eagerly(PRESETS[name].policy != "graph_neural")


def _small(name):
    return SMALL if PRESETS[name].policy == "seq2seq" else {}


class _Conformance(placer_conformance.PlacerConformance):
    def setUp(self):
        super().setUp()
        run_eagerly(self)

    def test_proposals_depend_on_seed_and_observations_only(self):
        # Nor may it matter in which order the parts of a compiled function run.
        tf.config.run_functions_eagerly(False)
        super().test_proposals_depend_on_seed_and_observations_only()


class ConformanceTest(_Conformance, absltest.TestCase):
    """A preset with groups that stay, as sampled and learned by all others, too."""

    def new_placer(self, groups, legal, seed):
        return make_placer("colocrl", groups, legal, seed=seed, options=SMALL)


class LearnedGroupsConformanceTest(_Conformance, absltest.TestCase):
    # Further steps of an update are as the first; systems_test.py has them.
    system, settings = "eagle_ppo_ce", {"ce_samples": 20, "epochs": 1, "ce_steps": 1}

    def new_placer(self, groups, legal, seed):
        options = SMALL | {"num_groups": 4} | self.settings
        return make_placer(self.system, groups, legal, seed=seed, options=options)

    def test_proposals_depend_on_seed_and_observations_only(self):
        # Either algorithm compiles the same steps with a loss of its own.
        self.system, self.settings = "eagle", {"epochs": 1}
        super().test_proposals_depend_on_seed_and_observations_only()


class ComposeTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        run_eagerly(self)

    @parameterized.parameters("colocrl", "post", "eagle", "eagle_gcn", "graph_neural")
    def test_a_policy_may_start_at_what_another_placer_proposes(self, name):
        _run_as_it_can(name)
        groups, legal = graphs.two_chains(4), np.ones([8, 2], np.bool_)
        expert = make_placer("expert", groups, legal).propose(1)[0]
        self.assertCountEqual(expert.tolist(), [0] * 4 + [1] * 4)
        untrained = {"initial_weights": None, "explored": 0} if name == "graph_neural" else {}
        shares = []
        for options in ({}, {"start": "expert", "start_uniform": 0.1}):
            placer = make_placer(
                name, groups, legal, seed=3, options=_small(name) | untrained | options
            )
            placements = placer.propose(placer.batch_size)
            shares.append(np.mean(placements == expert))
        # Learned groups hold units of both devices, at first.
        self.assertGreater(shares[1], 0.7 if name == "eagle" else 0.85)
        self.assertLess(shares[0], shares[1])

    def test_it_may_start_at_none_that_learns_or_is_not_there(self):
        groups, legal = graphs.two_chains(4), np.ones([8, 2], np.bool_)
        for start, message in (
            ("eagle", "'start' takes a placer that does not learn, not 'eagle'"),
            ("auto", "'start' takes a placer that does not learn"),
            ("exprt", "no placer 'exprt' .did you mean 'expert'"),
            ("heft", "placer 'heft' needs to know what the operations cost"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make_placer("post", groups, legal, options={"start": start})

    @parameterized.parameters("metis", "fluid")
    def test_learned_groups_may_start_at_those_of_a_heuristic(self, heuristic):
        groups, legal = graphs.two_chains(4), np.ones([8, 2], np.bool_)
        options = SMALL | {"num_groups": 2, "grouper_start": heuristic, "grouper_uniform": 1e-6}
        placer = make_placer("eagle", groups, legal, options=options)
        # Each chain is a group, and so on one device.
        for placement in placer.propose(10):
            self.assertLen(set(placement[:4].tolist()), 1)
            self.assertLen(set(placement[4:].tolist()), 1)

    def test_a_start_may_be_a_placement(self):
        groups, legal = graphs.two_chains(4), np.ones([8, 2], np.bool_)
        start = np.array([0, 1] * 4, np.int32)
        options = {"start": "best.json", "start_uniform": 1e-6}
        placer = make_placer("post", groups, legal, options=options, start=start)
        self.assertAllEqual(placer.propose(5), np.tile(start, [5, 1]))
        for source in ("best.json", "original"):
            with self.assertRaisesRegex(ValueError, f"placement '{source}' is not known here"):
                make_placer("post", groups, legal, options={"start": source})

    @parameterized.parameters("metis", "fluid")
    def test_units_of_a_group_go_where_the_group_goes(self, grouper):
        options = SMALL | {"grouper": grouper, "num_groups": 2}
        legal = np.ones([8, 3], np.bool_)
        placer = make_placer("colocrl", graphs.two_chains(4), legal, options=options)
        for placement in placer.propose(8):
            self.assertLen(set(placement[:4].tolist()), 1)
            self.assertLen(set(placement[4:].tolist()), 1)

    def test_a_unit_stays_where_it_may_go_when_its_group_goes_elsewhere(self):
        options = SMALL | {"grouper": "metis", "num_groups": 1}
        legal = np.ones([4, 2], np.bool_)
        legal[0] = [True, False]
        legal[1] = [False, True]
        placer = make_placer("colocrl", graphs.chain(4), legal, options=options)
        for placement in placer.propose(8):
            self.assertEqual(placement[:2].tolist(), [0, 1])
            self.assertEqual(placement[2], placement[3])

    def test_a_device_that_no_group_may_use_stays_empty(self):
        legal = np.ones([4, 3], np.bool_)
        legal[:, 1] = False
        for name in ("colocrl", "eagle", "post", "eagle_gcn", "graph_neural"):
            _run_as_it_can(name)
            placer = make_placer(name, graphs.chain(4), legal, options=_small(name))
            self.assertNotIn(1, placer.propose(8))

    @parameterized.parameters("metis", "fluid", "feed_forward")
    def test_more_groups_than_units_are_one_group_per_unit(self, grouper):
        options = SMALL | {"grouper": grouper, "num_groups": 100}
        legal = np.ones([3, 2], np.bool_)
        placer = make_placer("eagle", graphs.chain(3), legal, options=options)
        self.assertEqual(placer.agent.policy.num_groups, 3)

    def test_costs_reach_the_graph_network(self):
        _run_as_it_can("graph_neural")
        problem = make_problem([[1.0, 4.0]] * 4, tensors=[(k, 8, [k + 1]) for k in range(3)])
        groups, legal = group_graph(problem), legal_devices(problem)
        with self.assertRaisesRegex(ValueError, "the problem has 4 groups on 2 devices"):
            make_placer("graph_neural", groups, legal[:, :1], problem=problem)
        for options in ({}, {"grouper": "metis", "num_groups": 2}):
            placer = make_placer("graph_neural", groups, legal, options=options, problem=problem)
            secs = placer.agent.policy.graph.device_secs.numpy()
            np.testing.assert_allclose(secs[:, 1], 4 * secs[:, 0])
            self.assertEqual(placer.propose(1).shape, (1, 4))

    @parameterized.parameters(
        ("eagle", {"policy": "softmax"}, "policy softmax is for groups that stay as they are"),
        ("eagle", {"policy": "graph_neural"}, "graph_neural is for groups that stay"),
        ("colocrl", {"algorithm": "ce"}, "algorithm ce needs policy softmax"),
        ("post", {"ce_samples": 30}, "ce_samples must be a multiple of batch_size 12, not 30"),
    )
    def test_refuses_parts_that_do_not_go_together(self, name, options, message):
        with self.assertRaisesRegex(ValueError, message):
            make_placer(name, graphs.chain(4), np.ones([4, 2], np.bool_), options=options)


if __name__ == "__main__":
    absltest.main()
