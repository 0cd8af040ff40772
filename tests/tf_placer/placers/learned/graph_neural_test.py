import dataclasses
import hashlib
import importlib.resources
import itertools
import json
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers import graphs
from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers import make_placer
from tf_placer.placers.learned.decisions import IMPOSSIBLE
from tf_placer.placers.learned.graph_features import GraphFeatures
from tf_placer.placers.learned.graph_neural import (
    SHIPPED,
    WEIGHTS_SUFFIX,
    GraphNeuralConfig,
    GraphNeuralNetwork,
    GraphNeuralPolicy,
)
from tf_placer.placers.learned.noise import gumbel_noise
from tf_placer.placers.learned.policy import GroupInputs
from tf_placer.problem.problem_groups import group_graph, legal_devices

setUpModule = leave_graphs_as_traced

_SMALL = GraphNeuralConfig(state_units=5, message_rounds=2, scorer_units=6)
# A diamond with a way back, numbered against its order.
_EDGES = [(3, 1), (3, 2), (1, 0), (2, 0), (0, 3)]
_LEGAL = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 0]], np.bool_)


def _network(config=_SMALL, seed=0):
    """A network whose weights are all far from where they start."""
    network = GraphNeuralNetwork(config, seed)
    rng = np.random.default_rng(seed)
    network.set_weights([w + rng.normal(0, 0.5, w.shape) for w in network.get_weights()])
    return network


def _inputs(legal):
    num_groups = len(legal)
    return GroupInputs(
        types=tf.zeros([1, num_groups, 0]),
        features=tf.zeros([1, num_groups, 0]),
        adjacency=tf.zeros([1, num_groups, num_groups]),
        legal=tf.constant(legal[np.newaxis]),
        counted=tf.ones([1, num_groups]),
    )


def _random_graph(seed, num_groups, num_devices):
    """Features of a random graph on devices of different speed, and where its groups may go."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations(range(num_groups), 2))
    edges = [pairs[k] for k in rng.choice(len(pairs), min(len(pairs), 2 * num_groups), False)]
    groups = graphs.group_graph(num_groups, edges)
    groups = dataclasses.replace(groups, edge_bytes=rng.integers(0, 9, len(edges)))
    legal = rng.random([num_groups, num_devices]) < 0.8
    legal[np.arange(num_groups), rng.integers(0, num_devices, num_groups)] = True
    features = GraphFeatures.from_groups(
        groups,
        legal,
        device_secs=rng.uniform(1, 4, legal.shape),
        edge_secs=rng.uniform(0, 2, len(edges)),
        device_fill=rng.uniform(0, 0.3, [*legal.shape, 2]),
    )
    return features, legal


def _diamond(network, device_secs=None, legal=_LEGAL):
    groups = graphs.group_graph(4, _EDGES, work=[1.0, 2.0, 3.0, 4.0], layers=[3, 1, 2, 0])
    features = GraphFeatures.from_groups(
        groups, legal, device_secs=device_secs, edge_secs=np.linspace(0.1, 1.0, len(_EDGES))
    )
    return GraphNeuralPolicy(network, features), _inputs(legal)


def _sample(policy, inputs, noise):
    return tf.function(policy.sample, autograph=False)(inputs, noise)


def _all_placements(legal):
    choices = itertools.product(*(np.flatnonzero(row) for row in legal))
    return np.array(list(choices), np.int32)


def _probabilities(policy, inputs, placements):
    """float64 [count]."""
    log_dists = policy.log_dists(inputs, tf.constant(placements)).numpy().astype(np.float64)
    chosen = np.take_along_axis(log_dists, placements[:, :, None], axis=2)[:, :, 0]
    return np.exp(chosen.sum(axis=1))


class GraphNeuralPolicyTest(tf.test.TestCase, parameterized.TestCase):
    def test_probabilities_of_all_placements_sum_to_one(self):
        policy, inputs = _diamond(_network())
        placements = _all_placements(_LEGAL)
        self.assertLen(placements, 18)
        probabilities = _probabilities(policy, inputs, placements)
        self.assertAllClose(probabilities.sum(), 1.0, atol=1e-5)
        self.assertGreater(probabilities.max(), 2 * probabilities.min())

    def test_what_is_known_of_a_graph_does_not_grow_with_the_weights_that_gather_it(self):
        network = _network()
        policy, _ = _diamond(network)
        before = tf.reduce_max(tf.abs(network.describe(policy.graph)))
        for weight in network.weights:
            if weight.name.startswith(("embed", "round")):
                weight.assign(1e6 * weight)
        after = tf.reduce_max(tf.abs(network.describe(policy.graph)))
        self.assertLess(float(after), 10.0 * float(before))

    def test_placements_are_sampled_as_often_as_they_are_probable(self):
        policy, inputs = _diamond(_network())
        count = 20_000
        noise = np.random.default_rng(0).gumbel(size=[count, 4, 3]).astype(np.float32)
        sampled = _sample(policy, inputs, tf.constant(noise)).numpy()
        self.assertEqual(sampled.dtype, np.int32)
        placements = _all_placements(_LEGAL)
        probabilities = _probabilities(policy, inputs, placements)
        frequencies = [np.mean((sampled == each).all(axis=1)) for each in placements]
        # Five standard deviations; every placement sampled is one of those, so all are legal.
        self.assertAllClose(np.sum(frequencies), 1.0)
        deviations = np.sqrt(probabilities * (1 - probabilities) / count)
        self.assertAllInRange((frequencies - probabilities) / deviations, -5, 5)

    @parameterized.parameters((3, 2), (30, 5), (30, 2), (1, 1))
    def test_the_same_weights_fit_any_number_of_groups_and_devices(self, num_groups, num_devices):
        features, legal = _random_graph(0, num_groups, num_devices)
        policy = GraphNeuralPolicy(_network(), features)
        inputs = _inputs(legal)
        noise = gumbel_noise(7, tf.constant([1, 0], tf.int64), [num_groups, num_devices])
        devices = _sample(policy, inputs, noise)
        log_dists = policy.log_dists(inputs, devices).numpy()
        self.assertEqual(log_dists.shape, (7, num_groups, num_devices))
        self.assertAllClose(np.exp(log_dists).sum(axis=2), np.ones([7, num_groups]), atol=1e-5)
        everywhere = np.broadcast_to(legal, log_dists.shape)
        self.assertAllEqual(log_dists[~everywhere], np.full((~everywhere).sum(), IMPOSSIBLE))
        self.assertTrue(np.take_along_axis(everywhere, devices.numpy()[..., None], axis=2).all())

    def test_sampling_and_scoring_know_the_same(self):
        # Without noise, every group takes the device that is most probable given what it took
        # before, so that the two ways to compute what is on the devices are compared.
        for seed in range(3):
            features, legal = _random_graph(seed, 20, 4)
            policy = GraphNeuralPolicy(_network(seed=seed), features, own_scores=0.5)
            own = policy.own_scores
            own.assign(np.random.default_rng(seed).normal(0, 1, own.shape))
            inputs = _inputs(legal)
            devices = _sample(policy, inputs, tf.zeros([1, 20, 4]))
            log_dists = policy.log_dists(inputs, devices)
            self.assertAllEqual(devices, tf.argmax(log_dists, axis=2, output_type=tf.int32))
            self.assertGreater(len(set(devices.numpy()[0].tolist())), 1)

    def test_scores_of_its_own_move_one_group_and_no_other(self):
        features, legal = _random_graph(0, 20, 4)
        policy, inputs = GraphNeuralPolicy(_network(), features, own_scores=2.0), _inputs(legal)
        devices = tf.constant(legal.argmax(axis=1)[np.newaxis], tf.int32)
        before = policy.log_dists(inputs, devices).numpy()
        own = policy.own_scores
        self.assertEqual(own.shape, (20, 4))
        device = int(devices[0, 7])
        own.assign(tf.tensor_scatter_nd_add(own, [[7, device]], [0.5]))
        after = policy.log_dists(inputs, devices).numpy()
        self.assertAllEqual(np.delete(before, 7, axis=1), np.delete(after, 7, axis=1))
        # Its odds against all others grow by exp(2.0 * 0.5).
        odds = [np.exp(d[0, 7, device]) / (1 - np.exp(d[0, 7, device])) for d in (before, after)]
        self.assertAllClose(odds[1] / odds[0], np.e, rtol=1e-3)

    def test_a_group_depends_on_what_is_placed_before_it_only(self):
        policy, inputs = _diamond(_network(), legal=np.ones([4, 3], np.bool_))
        order = [3, 1, 2, 0]
        placements = _all_placements(np.ones([4, 3], np.bool_))
        log_dists = policy.log_dists(inputs, tf.constant(placements)).numpy()
        for place, group in enumerate(order):
            before = placements[:, order[:place]]
            for prefix in np.unique(before, axis=0):
                rows = log_dists[(before == prefix).all(axis=1), group]
                self.assertAllClose(rows, np.broadcast_to(rows[0], rows.shape), atol=1e-6)
        self.assertNotAllClose(log_dists[0, 0], log_dists[-1, 0])

    def test_renaming_devices_renames_the_probabilities(self):
        network = _network()
        secs = np.array([[1, 2, 3], [3, 1, 1], [2, 2, 5], [1, 4, 1]], np.float64)
        policy, inputs = _diamond(network, secs)
        placements = _all_placements(_LEGAL)
        for renaming in itertools.permutations(range(3)):
            names = np.array(renaming)
            back = np.argsort(names)
            renamed, renamed_inputs = _diamond(network, secs[:, back], _LEGAL[:, back])
            self.assertAllClose(
                _probabilities(policy, inputs, placements),
                _probabilities(renamed, renamed_inputs, names[placements].astype(np.int32)),
                atol=1e-5,
            )

    def test_devices_that_are_alike_are_equally_probable_while_they_are_empty(self):
        policy, inputs = _diamond(_network(), legal=np.ones([4, 3], np.bool_))
        placements = np.array([[0, 1, 1, 1], [2, 2, 2, 2]], np.int32)
        probabilities = np.exp(policy.log_dists(inputs, tf.constant(placements)).numpy())
        # Group 3 is the first, and groups 1 and 2 find one device used.
        self.assertAllClose(probabilities[:, 3], np.full([2, 3], 1 / 3), atol=1e-6)
        self.assertAllClose(probabilities[0, 1, 0], probabilities[0, 1, 2], atol=1e-6)
        self.assertNotAllClose(probabilities[0, 1, 0], probabilities[0, 1, 1])

    def test_before_it_has_learned_all_legal_devices_are_equally_probable(self):
        policy, inputs = _diamond(GraphNeuralNetwork(_SMALL))
        placements = _all_placements(_LEGAL)
        self.assertAllClose(_probabilities(policy, inputs, placements), [1 / 18] * 18)

    def test_the_gradient_is_that_of_finite_differences(self):
        policy, inputs = _diamond(_network())
        placements = tf.constant(_all_placements(_LEGAL)[::5])
        chosen = tf.one_hot(placements, 3)

        @tf.function(autograph=False)
        def objective():
            log_dists = policy.log_dists(inputs, placements)
            return tf.reduce_sum(tf.where(chosen > 0, log_dists, 0.0))

        with tf.GradientTape() as tape:
            value = objective()
        variables = policy.trainable_variables
        self.assertLen(variables, 7 + 2 * _SMALL.message_rounds)
        rng = np.random.default_rng(0)
        for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
            direction = rng.normal(size=variable.shape).astype(np.float32)
            start, step = variable.numpy(), 1e-3
            ends = []
            for sign in (1, -1):
                variable.assign(start + sign * step * direction)
                ends.append(float(objective()))
            variable.assign(start)
            slope = float(tf.reduce_sum(gradient * direction))
            self.assertAllClose(slope, (ends[0] - ends[1]) / (2 * step), rtol=0.03, atol=0.03)

    def test_gradients_are_the_same_on_every_run(self):
        features, legal = _random_graph(0, 30, 4)
        policy, inputs = GraphNeuralPolicy(_network(), features), _inputs(legal)
        placements = _sample(policy, inputs, tf.zeros([1, 30, 4]))

        results = []
        for _ in range(3):
            with tf.GradientTape() as tape:
                log_dists = policy.log_dists(inputs, placements)
                loss = tf.reduce_sum(tf.exp(log_dists) * log_dists)
            results.append(tape.gradient(loss, policy.trainable_variables))
        for result in results[1:]:
            for one, other in zip(results[0], result, strict=True):
                self.assertAllEqual(one, other)

    def test_policies_share_the_weights_of_their_network(self):
        network = _network()
        one, other = (GraphNeuralPolicy(network, _random_graph(seed, 5, 2)[0]) for seed in range(2))
        for mine, its in zip(one.trainable_variables, other.trainable_variables, strict=True):
            self.assertIs(mine, its)


class GraphNeuralNetworkTest(tf.test.TestCase, parameterized.TestCase):
    def _save(self, network):
        path = os.path.join(self.get_temp_dir(), "network.weights.h5")
        network.save_weights(path)
        return path

    def test_starts_from_weights_of_a_file(self):
        network = _network()
        path = self._save(network)
        copy = GraphNeuralNetwork(dataclasses.replace(_SMALL, initial_weights=path), seed=9)
        self.assertAllEqual(
            np.concatenate([w.ravel() for w in network.get_weights()]),
            np.concatenate([w.ravel() for w in copy.get_weights()]),
        )

    def test_weights_are_shipped_with_what_they_were_trained_on(self):
        GraphNeuralNetwork(GraphNeuralConfig(initial_weights=SHIPPED))
        data = importlib.resources.files("tf_placer.placers.learned") / "data"
        about = json.loads((data / "graph_neural.json").read_text())
        weights = (data / f"graph_neural{WEIGHTS_SUFFIX}").read_bytes()
        self.assertEqual(hashlib.sha256(weights).hexdigest(), about["sha256"])
        self.assertLess(len(weights), 500_000)
        with self.assertRaisesRegex(ValueError, "'shipped' does not hold .*initial_weights=none"):
            GraphNeuralNetwork(dataclasses.replace(_SMALL, initial_weights=SHIPPED))

    def test_the_shipped_weights_place_what_they_have_not_seen(self):
        problem = two_chain_problem(12, 3)
        placer = make_placer(
            "graph_neural",
            group_graph(problem),
            legal_devices(problem),
            problem=problem,
            options={"explored": 0, "initial_weights": SHIPPED},
        )
        environment = SimulatedEnvironment(problem)
        placed = [each.median_secs for each in environment.measure(placer.propose(16))]
        guesses = np.random.default_rng(0).integers(0, 3, [16, 24]).astype(np.int32)
        self.assertLess(max(placed), min(m.median_secs for m in environment.measure(guesses)))

    def test_the_seed_decides_the_initial_weights(self):
        one, same, other = (GraphNeuralNetwork(_SMALL, seed).get_weights() for seed in (1, 1, 2))
        self.assertAllEqual(one[0], same[0])
        self.assertNotAllClose(one[0], other[0])

    def test_a_file_that_is_missing_is_named(self):
        with self.assertRaisesRegex(ValueError, "initial_weights: there is no file 'a.weights.h5'"):
            GraphNeuralNetwork(GraphNeuralConfig(initial_weights="a.weights.h5"))
        with self.assertRaisesRegex(ValueError, "initial_weights must be shipped, none, or end in"):
            GraphNeuralNetwork(GraphNeuralConfig(initial_weights="weights.json"))

    @parameterized.parameters(
        {"state_units": 4}, {"message_rounds": 1}, {"message_rounds": 3}, {"scorer_units": 7}
    )
    def test_a_file_of_another_shape_is_refused_in_one_sentence(self, **settings):
        path = self._save(_network(dataclasses.replace(_SMALL, **settings)))
        message = "does not hold weights for state_units=5, message_rounds=2, scorer_units=6; give"
        with self.assertRaisesRegex(ValueError, f"^initial_weights: '{path}' {message}"):
            GraphNeuralNetwork(dataclasses.replace(_SMALL, initial_weights=path))

    def test_a_file_that_holds_no_weights_is_refused(self):
        path = os.path.join(self.get_temp_dir(), "text.weights.h5")
        with open(path, "w") as file:
            file.write("not weights")
        with self.assertRaisesRegex(ValueError, f"^initial_weights: '{path}' does not hold"):
            GraphNeuralNetwork(dataclasses.replace(_SMALL, initial_weights=path))

    @parameterized.parameters(("state_units", 0), ("message_rounds", -1), ("scorer_units", 0))
    def test_settings_outside_their_range_are_refused(self, name, value):
        with self.assertRaisesRegex(ValueError, f"^{name} must be .*, not {value}$"):
            GraphNeuralConfig(**{name: value})


if __name__ == "__main__":
    tf.test.main()
