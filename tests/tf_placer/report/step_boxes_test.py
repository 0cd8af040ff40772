"""Tests of the boxes and colors that the page and the pictures draw a step with."""

from __future__ import annotations

import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem, make_trace, random_traces
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.step_boxes import box_colors, color_legends, step_boxes, transfer_boxes


class StepBoxesTest(absltest.TestCase):
    def test_boxes_lie_in_the_row_of_their_device_and_in_time(self):
        # Two slots: op0 and op1 run together, op2 follows the shorter one.
        problem = make_problem([[3.0, 9.0], [1.0, 9.0], [1.0, 9.0], [9.0, 5.0]], slots=[2, 1])
        boxes = step_boxes(make_trace(problem, [0, 0, 0, 1]))
        edges = np.stack([boxes.left, boxes.right, boxes.top, boxes.bottom], axis=1)
        of = dict(zip(boxes.operations.tolist(), edges, strict=True))
        np.testing.assert_allclose(of[0], (0.0, 3000.0, 0.05, 0.5), rtol=1e-6)
        np.testing.assert_allclose(of[1], (0.0, 1000.0, 0.5, 0.95), rtol=1e-6)
        np.testing.assert_allclose(of[2], (1000.0, 2000.0, 0.5, 0.95), rtol=1e-6)
        np.testing.assert_allclose(of[3], (0.0, 5000.0, 1.05, 1.95), rtol=1e-6)

    def test_no_box_covers_another(self):
        for trace in random_traces(seed=0, count=20):
            senders = np.arange(trace.problem.num_devices)
            for boxes in (step_boxes(trace), transfer_boxes(trace, senders)):
                edges = zip(boxes.left, boxes.right, boxes.top, boxes.bottom, strict=True)
                for a, b in itertools.combinations(edges, 2):
                    apart_in_time = a[1] <= b[0] or b[1] <= a[0]
                    self.assertTrue(apart_in_time or a[3] <= b[2] + 1e-6 or b[3] <= a[2] + 1e-6)

    def test_transfers_lie_in_the_row_of_their_sender(self):
        problem = make_problem([[1.0, 9.0], [9.0, 2.0]], tensors=[(0, 4, [1])])
        boxes = transfer_boxes(make_trace(problem, [0, 1]), np.array([5, 6]))
        edges = [boxes.left, boxes.right, boxes.top, boxes.bottom]
        np.testing.assert_allclose(np.ravel(edges), (1000.0, 5000.0, 5.05, 5.95), rtol=1e-6)

    def test_every_color_is_in_its_legend(self):
        for trace in random_traces(seed=1, count=5):
            kinds = operation_kinds(trace.problem)
            colors = box_colors(trace, kinds, np.arange(trace.problem.num_operations))
            legends = color_legends(trace.problem, kinds, most_layers=100)
            self.assertEqual(set(colors), set(legends))
            for by, legend in legends.items():
                self.assertContainsSubset(colors[by], [color for _, color in legend])


if __name__ == "__main__":
    absltest.main()
