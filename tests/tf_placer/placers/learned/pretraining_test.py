import dataclasses
from unittest import mock

import numpy as np
import tensorflow as tf

from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced
from tests.tf_placer.small_problem import small_problem, without_memory
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers.learned.graph_neural import (
    GraphNeuralConfig,
    GraphNeuralNetwork,
    GraphNeuralPolicy,
)
from tf_placer.placers.learned.pretraining import (
    PretrainedProblem,
    build_graph_neural_agent,
    pretrain,
)

setUpModule = leave_graphs_as_traced
_SMALL = GraphNeuralConfig(state_units=16, message_rounds=2, scorer_units=16)


def _network(seed=0):
    return GraphNeuralNetwork(_SMALL, seed)


def _step_secs(problem, placements):
    return [each.step_secs[0] for each in SimulatedEnvironment(problem).measure(placements)]


def _sample(network, problem, count, seed=0):
    agent = build_graph_neural_agent(network, problem)
    return agent.placements(agent.sample(count, tf.constant([seed, 0], tf.int64)))


class PretrainingTest(tf.test.TestCase):
    def test_what_was_learned_carries_over_to_a_larger_graph_and_another_machine(self):
        network = _network()
        problems = [two_chain_problem(3), two_chain_problem(4, 3), two_chain_problem(5)]
        results = pretrain(network, problems, updates=120)
        for result, problem in zip(results, problems, strict=True):
            self.assertEqual(result.updates, 40)
            self.assertLess(result.last_mean_secs, result.first_mean_secs)
            self.assertAllClose(result.best_secs, len(problem.groups) / 2 * 1e-3)
        rng = np.random.default_rng(0)
        for unseen in (two_chain_problem(12), two_chain_problem(12, 4)):
            guessed = rng.integers(0, unseen.num_devices, [20, 24]).astype(np.int32)
            # Before training all 20 would be as good as these: the worst of one sample of 20 is
            # below the best of another by chance once in C(40, 20) = 1.4e11 times.
            self.assertLess(
                max(_step_secs(unseen, _sample(network, unseen, 20))),
                min(_step_secs(unseen, guessed)),
            )

    def test_the_seed_decides_the_weights_and_all_is_traced_at_the_first_update(self):
        def count_traces(name):
            method = getattr(GraphNeuralPolicy, name)
            return self.enter_context(
                mock.patch.object(GraphNeuralPolicy, name, autospec=True, side_effect=method)
            )

        functions = [count_traces(name) for name in ("sample", "log_dists")]
        weights, counts = [], []

        def note(done, results):
            counts.append([function.call_count for function in functions])

        def interrupt(done, results):
            if done == 2:
                raise KeyboardInterrupt

        for seed, updates, report in ((1, 2, note), (1, 10, interrupt), (2, 2, None)):
            network = GraphNeuralNetwork(dataclasses.replace(_SMALL, message_rounds=1))
            results = pretrain(
                network, [two_chain_problem(3)], updates=updates, seed=seed, report=report
            )
            self.assertEqual([result.updates for result in results], [2])
            weights.append(np.concatenate([w.ravel() for w in network.get_weights()]))
        self.assertEqual(counts[0], counts[1])
        self.assertGreater(min(counts[0]), 0)
        # An interrupt keeps what was learned.
        self.assertAllEqual(weights[0], weights[1])
        self.assertNotAllClose(weights[0], weights[2])

    def test_problems_take_turns(self):
        turns = []
        pretrain(
            _network(),
            # Nothing to learn, so that learning is not compiled.
            [without_memory(two_chain_problem(size)) for size in (2, 3)],
            updates=3,
            report=lambda done, results: turns.append((done, [r.updates for r in results])),
        )
        self.assertEqual(turns, [(1, [1, 0]), (2, [1, 1]), (3, [2, 1])])

    def test_the_same_weights_place_groups_where_they_may_go(self):
        # The source may go on the CPU only.
        self.assertEqual(set(_sample(_network(), small_problem(), 20)[:, 0].tolist()), {0})

    def test_a_problem_that_fits_nowhere_teaches_nothing(self):
        network = _network()
        before = network.get_weights()
        results = pretrain(network, [without_memory(two_chain_problem(2))], updates=2)
        self.assertEqual(results, [PretrainedProblem(updates=2)])
        for one, other in zip(before, network.get_weights(), strict=True):
            self.assertAllEqual(one, other)

    def test_too_much_memory_teaches_even_where_nothing_has_fitted_yet(self):
        problem = two_chain_problem(8, num_devices=4)
        # Four of the 16 operations fit on each device, so that one random placement in 70 does.
        problem = dataclasses.replace(
            problem,
            resident_bytes=np.full(16, 10**9),
            tensor_bytes=np.ones(14, np.int64),
            devices=[dataclasses.replace(d, memory_bytes=4 * 10**9 + 99) for d in problem.devices],
            local_bytes=None,
        )
        network = _network()
        results = pretrain(network, [problem], updates=100)
        self.assertFalse(np.isfinite(results[0].first_mean_secs))
        measured = SimulatedEnvironment(problem).measure(_sample(network, problem, 20))
        self.assertGreater(sum(each.failure is None for each in measured), 10)

    def test_placements_that_are_all_alike_teach_nothing(self):
        network = _network()
        before = network.get_weights()
        pretrain(network, [two_chain_problem(2, num_devices=1)], updates=2)
        for one, other in zip(before, network.get_weights(), strict=True):
            self.assertAllEqual(one, other)

    def test_nothing_to_do_is_refused(self):
        with self.assertRaisesRegex(ValueError, "there is no problem to train on"):
            pretrain(_network(), [], updates=1)
        with self.assertRaisesRegex(ValueError, "updates must be positive, not 0"):
            pretrain(_network(), [two_chain_problem(2)], updates=0)


if __name__ == "__main__":
    tf.test.main()
