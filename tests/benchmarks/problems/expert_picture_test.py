from __future__ import annotations

import numpy as np
from absl.testing import absltest

from benchmarks.problems.expert_picture import device_grid


class ExpertPictureTest(absltest.TestCase):
    def test_cells_have_the_device_of_most_of_their_operations(self):
        devices = {
            "embedding/lookup": 0,
            "layer_0/kernel": 3,
            "layer_0/step_0/a": 1,
            "layer_0/step_0/b": 2,
            "layer_0/step_0/c": 2,
            "layer_0/step_2/a": 1,
            "layer_1/step_1/a": 2,
            # Neither gradients nor layers that are not asked for.
            "gradients/layer_1/step_1/b": 1,
            "layer_10/step_3/a": 1,
        }
        grid = device_grid(["embedding", "layer_0", "layer_1", "softmax"], devices)
        expected = [[0, 0, 0], [2, -1, 1], [-1, 2, -1], [-1, -1, -1]]
        np.testing.assert_array_equal(grid, expected)


if __name__ == "__main__":
    absltest.main()
