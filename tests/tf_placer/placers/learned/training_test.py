"""Training in parts: one controller learns what the placer itself learns."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.tf_placer.placers.learned.eagerly import leave_graphs_as_traced, run_eagerly
from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers import make_placer
from tf_placer.placers.learned.training import Training
from tf_placer.problem.problem_groups import group_graph, legal_devices

setUpModule = leave_graphs_as_traced

_OUT_OF_MEMORY = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "it is too large"))


def _measure(placements: np.ndarray) -> list[Measurement]:
    """Fails where all is on device 0; else it is the faster the more is on device 1."""
    return [
        _OUT_OF_MEMORY if not row.any() else Measurement((1.0 + float((row != 1).sum()),))
        for row in placements
    ]


class TrainingTest(parameterized.TestCase, tf.test.TestCase):
    def placer(self, name: str, **options):
        problem = build_task_problem([(1, 1, 1)] * 4, [(0, 1, 1), (1, 2, 1), (2, 3, 1)])
        return make_placer(
            name, group_graph(problem), legal_devices(problem), seed=3, options=options
        )

    @parameterized.parameters(
        ("colocrl", {"hidden_units": 4, "batch_size": 4, "attention_units": 4}),
        ("post", {"batch_size": 4, "ce_samples": 12, "ascent_steps": 3}),
        ("post", {"batch_size": 4, "ce_samples": 8, "algorithm": "ppo+ce_gradient"}),
    )
    def test_one_controller_learns_what_the_placer_learns(self, name, options):
        if name != "post" or "algorithm" in options:
            run_eagerly(self)  # One of them compiled is enough.
        placer = self.placer(name, **options)
        server, controller = (Training(self.placer(name, **options)) for _ in range(2))
        state, num_updates, records = {}, 0, []
        for batch in range(5):
            proposed = placer.propose(100)
            parameters = server.parameters()
            actions, placements = controller.sample(parameters, 1, batch)
            self.assertAllEqual(placements, proposed)
            measurements = _measure(placements)
            placer.observe(proposed, measurements)
            learned, steps = controller.learn(parameters, state, num_updates, actions, measurements)
            if batch == 2:  # Another process does it once more, in place of one that died.
                controller = Training(self.placer(name, **options))
                learned, steps = controller.learn(
                    parameters, state, num_updates, actions, measurements
                )
            state, records = learned.state, [*records, *learned.records]
            num_updates += learned.counts
            server.apply(steps)
            for mine, other in zip(
                server.parameters().weights, placer.agent.trainable_variables, strict=True
            ):
                self.assertAllClose(mine, other.numpy(), rtol=1e-6, atol=1e-7)
        self.assertNotEmpty(records)
        for record, expected in zip(records, placer.updates, strict=True):
            self.assertEqual(record.kind, expected.kind)
            self.assertAllClose(record.mean_reward, expected.mean_reward)
            self.assertAllClose(record.baseline, expected.baseline)

    def test_controllers_sample_different_placements_and_have_baselines_of_their_own(self):
        run_eagerly(self)
        options = {"hidden_units": 8, "attention_units": 8, "baseline_moves": "batch"}
        options |= {"baseline_start": "failing", "failure_factor": None}
        training = Training(self.placer("colocrl", **options))
        parameters = training.parameters()
        sampled = [training.sample(parameters, number, 0) for number in (1, 2)]
        self.assertNotAllEqual(sampled[0][1], sampled[1][1])
        states = [
            training.learn(parameters, {}, 0, actions, [Measurement((secs,))] * len(placements))[0]
            for secs, (actions, placements) in zip((1.0, 4.0), sampled, strict=True)
        ]
        averages = [float(each.state["signal/average"]) for each in states]
        # Twice the worst root so far is the failure reward, where the average begins.
        self.assertAllClose(averages, [-(0.9 * 2 + 0.1), -(0.9 * 4 + 0.2)])

    def test_failures_are_ignored_after_so_many_updates_of_all_controllers(self):
        run_eagerly(self)
        options = {"hidden_units": 8, "attention_units": 8, "ignore_failures_after": 5}
        training = Training(self.placer("colocrl", **options))
        parameters = training.parameters()
        actions, placements = training.sample(parameters, 1, 0)
        learned, _ = training.learn(
            parameters, {}, 0, actions, [Measurement((1.0,))] * len(placements)
        )
        failed = [_OUT_OF_MEMORY] * len(placements)
        for num_updates, counts in ((4, True), (5, False)):
            again, steps = training.learn(parameters, learned.state, num_updates, actions, failed)
            self.assertEqual((again.counts, len(steps.gradients)), (counts, int(counts)))

    def test_parameters_of_another_agent_are_refused(self):
        run_eagerly(self)
        small, large = (
            Training(self.placer("colocrl", hidden_units=units, attention_units=8))
            for units in (8, 16)
        )
        with self.assertRaises(ValueError):
            small.restore(large.parameters())


if __name__ == "__main__":
    tf.test.main()
