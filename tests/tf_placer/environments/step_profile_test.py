"""Tests of what the worker sends of a traced step."""

from __future__ import annotations

import json

from absl.testing import absltest

from tf_placer.environments.step_profile import OperationProfile, StepProfile


class StepProfileTest(absltest.TestCase):
    def test_reads_json_of_the_worker(self):
        operations = {
            "x": {
                "compute_secs": 2e-6,
                "runs": 3,
                "temp_bytes": 40,
                "output_bytes": {0: 12, 2: 0},
            }
        }
        sent = json.loads(json.dumps({"step_secs": [0.5, 0.25], "operations": operations}))
        profile = StepProfile.from_json(sent)
        self.assertEqual(profile.step_secs, (0.5, 0.25))
        self.assertEqual(profile.operations, {"x": OperationProfile(2e-6, 3, 40, {0: 12, 2: 0})})


if __name__ == "__main__":
    absltest.main()
