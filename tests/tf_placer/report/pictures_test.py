"""Tests of the layouts and colors of pictures."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import re
from xml.etree import ElementTree

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.report.colors import DEVICE_COLORS, TRANSPARENT, device_colors, device_marks
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.page.drawings import comparison_svg, copy_svg, device_svg
from tf_placer.report.page.run_view import ComparedPlacement, view_step
from tf_placer.report.pictures.drawing import compute_shares, picture_text
from tf_placer.report.pictures.part_graph import lay_out_part_graph
from tf_placer.report.pictures.placement_picture import (
    is_small,
    make_figure,
    picture_note,
    placement_bytes,
    placement_drawing,
    placement_svg,
)
from tf_placer.report.pictures.run_pictures import step_pictures
from tf_placer.report.pictures.time_picture import draw_copies
from tf_placer.report.pictures.unrolled_grid import lay_out_unrolled_grid

# Brettel, Viénot and Mollon's matrices as Viénot (1999) simplified them, on linear RGB.
_BLIND = {
    "deuteranopia": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
    "protanopia": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
}


def with_layers(problem: PlacementProblem, layers, coarse) -> PlacementProblem:
    return dataclasses.replace(problem, layers=np.array(layers), coarse_groups=np.array(coarse))


def make_unrolled_problem(steps: int) -> PlacementProblem:
    """Makes two layers of some steps, each with a forward and a backward operation."""
    names, layers, coarse = [], [], []
    for layer, step in itertools.product(range(2), range(steps)):
        for scope in ("", "gradients/"):
            names.append(f"{scope}layer_{layer}/step_{step}/MatMul")
            layers.append(layer)
            coarse.append(layer * steps + step)
    problem = make_problem([[1.0, 1.0]] * len(names), names=names)
    return with_layers(problem, layers, coarse)


class KindsTest(absltest.TestCase):
    def test_kinds_and_directions_are_read_from_names(self):
        expected = {
            "stem/conv_0/Conv2D": ("convolution", False),
            "gradients/stem/conv_0/Conv2D_grad/Conv2DBackpropInput": ("convolution", True),
            "gradient_tape/model/dense/MatMul/MatMul_1": ("matrix product", True),
            "layer_0/step_3/MatMul": ("matrix product", False),
            "pool/MaxPool": ("pooling", False),
            "block/FusedBatchNormV3": ("normalization", False),
            "train/update_w/ResourceApplyAdam": ("update", True),
            "embedding/GatherV2": ("lookup", False),
            "mixed/concat": ("concat and split", False),
            "x": ("other", False),
        }
        problem = make_problem([[1.0, 1.0]] * len(expected), names=list(expected))
        kinds = operation_kinds(problem)
        found = zip(kinds.kinds, kinds.backward.tolist(), strict=True)
        self.assertEqual(dict(zip(expected, found, strict=True)), expected)


class GridTest(absltest.TestCase):
    def test_layers_are_rows_and_steps_columns(self):
        problem = make_unrolled_problem(5)
        drawing = lay_out_unrolled_grid(problem, operation_kinds(problem))
        self.assertEqual([text for _, text in drawing.rows], ["layer_0", "layer_1"])
        places = {cell.number: (cell.x, cell.y) for cell in drawing.cells}
        self.assertEqual(
            places,
            {layer * 5 + step: (step, layer) for layer in range(2) for step in range(5)},
        )

    def test_a_model_that_is_not_unrolled_has_no_grid(self):
        problem = make_unrolled_problem(3)
        self.assertIsNone(lay_out_unrolled_grid(problem, operation_kinds(problem)))

    def make_layer(self, *, is_fed: bool, types: list[str]) -> PlacementProblem:
        """Makes a layer of coarse groups of one operation, which may feed each other in turn."""
        count = len(types)
        tensors = [(i, 1, [i + 1]) for i in range(count - 1)] if is_fed else []
        names = [f"dense/op_{i}" for i in range(count)]
        problem = make_problem([[1.0, 1.0]] * count, tensors=tensors, names=names)
        problem = dataclasses.replace(problem, operation_types=tuple(types))
        return with_layers(problem, [0] * count, range(count))

    def test_steps_without_numbers_are_alike_and_feed_each_other(self):
        for is_fed, types, is_grid in (
            (True, ["MatMul"] * 5, True),
            # A layer that five inputs share.
            (False, ["MatMul"] * 5, False),
            # A layer, its activation, and the loss.
            (True, ["MatMul", "Relu", "Sub", "Square", "Mean"], False),
        ):
            problem = self.make_layer(is_fed=is_fed, types=types)
            drawing = lay_out_unrolled_grid(problem, operation_kinds(problem))
            self.assertEqual(drawing is not None, is_grid, types)

    def test_a_chain_without_layers_is_no_unrolled_layer(self):
        problem = self.make_layer(is_fed=True, types=["MatMul"] * 5)
        problem = dataclasses.replace(problem, layers=None)
        self.assertIsNone(lay_out_unrolled_grid(problem, operation_kinds(problem)))

    def test_halves_are_shared_out_by_time(self):
        problem = make_unrolled_problem(5)
        kinds = operation_kinds(problem)
        drawing = lay_out_unrolled_grid(problem, kinds)
        devices = np.zeros(20, np.int32)
        devices[1] = 1
        shares = compute_shares(drawing.parts, np.ones(20), devices, kinds)
        self.assertEqual(shares[0, False], [(0, 1.0)])
        self.assertEqual(shares[0, True], [(1, 1.0)])


class GraphTest(absltest.TestCase):
    def test_branches_stand_above_each_other(self):
        # 0 feeds 1 and 2, which feed 3.
        problem = make_problem(
            [[1.0, 1.0]] * 4,
            tensors=[(0, 1, [1, 2]), (1, 1, [3]), (2, 1, [3])],
            names=["stem/Conv2D", "mixed/a/Conv2D", "mixed/b/Conv2D", "end/concat"],
        )
        drawing = lay_out_part_graph(problem, operation_kinds(problem))
        at = {cell.number: cell for cell in drawing.cells}
        of = [at[part] for part in drawing.parts.tolist()]
        self.assertLess(of[0].x, of[1].x)
        self.assertEqual(of[1].x, of[2].x)
        self.assertNotEqual(of[1].y, of[2].y)
        self.assertLess(of[2].x, of[3].x)
        self.assertLen(drawing.edges, 4)
        # Parts above each other have their names directly above them.
        self.assertEmpty(drawing.columns)
        named = {(x, y): text for x, y, text in drawing.names}
        for part, name in zip(of, ["stem", "a", "b", "end"], strict=True):
            self.assertEqual(named[part.x + part.width / 2, part.y], name)

    def test_every_column_of_a_small_model_has_a_name(self):
        problem = make_problem(
            [[1.0, 1.0]] * 3,
            tensors=[(0, 1, [1]), (1, 1, [2])],
            names=["stem/Conv2D", "loss/sub", "loss/Mean"],
        )
        drawing = lay_out_part_graph(problem, operation_kinds(problem))
        self.assertEqual([text for *_, text in drawing.columns], ["stem", "loss", "loss"])

    def test_the_parts_of_a_keras_model_are_its_layers_in_the_order_of_their_cells(self):
        names = ["left", "right", "left_out", "right_out", "head"]
        names = [f"functional_1/{name}_1/MatMul" for name in names] + ["compile_loss/mse/sub"]
        tensors = [(0, 1, [2]), (1, 1, [3]), (2, 1, [4]), (3, 1, [4]), (4, 1, [5])]
        problem = make_problem([[1.0, 1.0]] * 6, tensors=tensors, names=names)
        # The branches are coarse groups.
        problem = with_layers(problem, [0, 1, 0, 1, 2, 2], [0, 1, 0, 1, 2, 2])
        drawing = lay_out_part_graph(problem, operation_kinds(problem))
        self.assertEqual(
            [text for *_, text in drawing.names],
            ["left", "right", "left_out", "right_out", "head", "compile_loss"],
        )

    def test_names_of_columns_neither_overlap_cells_nor_leave_the_picture(self):
        layer = "a_layer_with_a_rather_long_name_{}"
        names = [f"{layer.format(i)}/MatMul" for i in range(48)]
        tensors = [(i, 1, [i + 1]) for i in range(47)]
        problem = make_problem([[1.0, 1.0]] * 48, tensors=tensors, names=names)
        kinds = operation_kinds(problem)
        drawing = lay_out_part_graph(problem, kinds)
        figure = make_figure(problem, kinds, drawing, [("", np.zeros(48, np.int32))])
        figure.canvas.draw()
        [axes] = figure.axes
        bounds = [text.get_window_extent() for text in axes.texts]
        to_pixels = axes.transData.transform
        above = min(to_pixels((0, cell.y + 0.9))[1] for cell in drawing.cells if cell.y < 1)
        for bound, text in zip(bounds, axes.texts, strict=True):
            self.assertLessEqual(bound.x1, figure.bbox.x1, text)
            self.assertLessEqual(bound.y1, figure.bbox.y1, text)
            if text.get_position()[1] > 0:
                self.assertLessEqual(bound.y1, above, text)

    def test_names_of_branches_overlap_nothing(self):
        count = 12
        names = [f"branch_with_a_long_name_{i}/MatMul" for i in range(count)]
        problem = make_problem(
            [[1.0, 1.0]] * (count + 1),
            tensors=[(i, 1, [count]) for i in range(count)],
            names=[*names, "end/concat"],
        )
        kinds = operation_kinds(problem)
        drawing = lay_out_part_graph(problem, kinds)
        figure = make_figure(problem, kinds, drawing, [("", np.zeros(count + 1, np.int32))])
        figure.canvas.draw()
        [axes] = figure.axes
        self.assertLen(axes.texts, count + 1)
        to_pixels = axes.transData.transform
        column, beside = sorted({cell.x for cell in drawing.cells})
        for text in axes.texts:
            bound, (x, y) = text.get_window_extent(), text.get_position()
            self.assertGreaterEqual(bound.x0, figure.bbox.x0)
            if x < beside:
                # The cell above ends where this name has space.
                self.assertLess(bound.y1, to_pixels((column, y - 0.3))[1])
                self.assertLess(bound.x1, to_pixels((beside, y))[0])
                self.assertRegex(text.get_text(), "^branch.*….*_[0-9]+$")

    def test_arithmetic_of_an_update_closes_no_cycle_of_parts(self):
        # A gradient feeds an update without a scope in the group of the first layer.
        problem = make_problem(
            [[1.0, 1.0]] * 5,
            tensors=[(0, 1, [1]), (1, 1, [2]), (2, 1, [3]), (3, 1, [4])],
            names=["layer_0/MatMul", "layer_1/MatMul", "loss", "gradients/layer_1/MatMul", "mul_1"],
        )
        problem = with_layers(problem, [0, 1, 2, 1, 0], [0, 1, 2, 1, 0])
        kinds = operation_kinds(problem)
        self.assertEqual(kinds.backward.tolist(), [False, False, False, True, True])
        self.assertLen(lay_out_part_graph(problem, kinds).cells, 3)

    def test_columns_of_one_outer_scope_have_names_of_inner_ones(self):
        layers = [f"bert/encoder/layer_{i}/MatMul" for i in range(9)]
        names = ["features/Cast", "bert/embeddings/Gather", *layers, "loss/Mean"]
        problem = make_problem(
            [[1.0, 1.0]] * len(names),
            tensors=[(i, 1, [i + 1]) for i in range(len(names) - 1)],
            names=names,
        )
        drawing = lay_out_part_graph(problem, operation_kinds(problem))
        expected = ["features", "embeddings", *(f"layer_{i}" for i in range(9)), "loss"]
        self.assertEqual([text for *_, text in drawing.columns], expected)

    def test_layers_of_the_same_name_are_told_apart(self):
        parts = [f"encoder/layer_{i}" for i in range(6)] + [f"decoder/layer_{i}" for i in range(4)]
        names = [f"{part}/MatMul" for part in parts]
        problem = make_problem(
            [[1.0, 1.0]] * len(names),
            tensors=[(i, 1, [i + 1]) for i in range(len(names) - 1)],
            names=names,
        )
        drawing = lay_out_part_graph(problem, operation_kinds(problem))
        expected = [*parts[:4], "layer_4", "layer_5", *parts[6:]]
        self.assertEqual([text for *_, text in drawing.columns], expected)

    def test_rows_of_a_long_chain_are_as_high_as_their_own_branches(self):
        # 0 feeds 1, 2 and 3, which feed the first of a chain of 60.
        tensors = [(0, 1, [1, 2, 3]), (1, 1, [4]), (2, 1, [4]), (3, 1, [4])]
        tensors += [(i, 1, [i + 1]) for i in range(4, 63)]
        names = [f"part_{i}/MatMul" for i in range(64)]
        problem = make_problem([[1.0, 1.0]] * 64, tensors=tensors, names=names)
        drawing = lay_out_part_graph(problem, operation_kinds(problem))
        ys = sorted({cell.y for cell in drawing.cells})
        pitch = ys[1]
        self.assertEqual(ys[:3], [0.0, pitch, 2 * pitch])
        self.assertAlmostEqual(ys[4] - ys[3], ys[3] - 2 * pitch)
        self.assertAlmostEqual(drawing.height, ys[-1] + pitch)

    def test_a_served_model_without_scopes_has_cells_with_a_kind(self):
        problem = make_problem(
            [[1.0, 1.0]] * 2,
            tensors=[(0, 1, [1])],
            names=["StatefulPartitionedCall/MatMul", "StatefulPartitionedCall/Softmax"],
        )
        kinds = operation_kinds(problem)
        drawing = lay_out_part_graph(problem, kinds)
        self.assertEqual([text for *_, text in drawing.columns], ["matrix product", "softmax"])
        self.assertNotIn("half", picture_note(drawing, kinds))
        self.assertTrue(is_small(drawing))


class TextTest(absltest.TestCase):
    """Tests of names with characters that have a meaning in formulas, XML or terminals."""

    def setUp(self):
        super().setUp()
        if importlib.util.find_spec("matplotlib") is None:
            self.skipTest("matplotlib is not installed")
        self.names = ["$\\frac{$/a", "x$y$z/b", "\x1b[31m/c", "\u202e<&>/d", "\ud800\0/e", "$x$/f"]
        problem = make_problem([[1.0, 1.0]] * len(self.names), names=self.names)
        renamed = dict(zip(("D0", "D1"), ("$\\bad{$", "GPU\x1b:0"), strict=True))
        self.problem = dataclasses.replace(
            with_layers(problem, range(len(self.names)), range(len(self.names))),
            devices=tuple(
                dataclasses.replace(device, name=renamed[device.name], kind="K$80$\x07")
                for device in problem.devices
            ),
            links=tuple(
                dataclasses.replace(
                    link, source=renamed[link.source], destination=renamed[link.destination]
                )
                for link in problem.links
            ),
        )

    def test_dollars_are_no_formulas_and_control_characters_are_escaped(self):
        for text, expected in (
            ("a$b$", r"a\$b\$"),
            (r"a\$b$", r"a\\$b\$"),
            ("a\x1bb", r"a\x1bb"),
        ):
            self.assertEqual(picture_text(text), expected)

    def test_pictures_of_a_placement_show_names_as_they_are(self):
        kinds = operation_kinds(self.problem)
        placement = np.arange(len(self.names)) % 2
        svg = placement_bytes(self.problem, kinds, [("$\\t{$\x1b", placement)], "svg")
        ElementTree.fromstring(svg)  # The SVG is valid XML.
        # Text is drawn as lines, with the text itself in a comment.
        self.assertIn(r"<!-- $\t{$\x1b -->", svg.decode())
        self.assertIn(r"<!-- 0: $\bad{$ (K$80$\x07) -->", svg.decode())
        self.assertStartsWith(placement_bytes(self.problem, kinds, [("", placement)]), b"\x89PNG")

    def test_charts_of_a_page_show_names_as_they_are_in_the_color_of_its_text(self):
        kinds = operation_kinds(self.problem)
        step = view_step("$\\t{$\x1b", self.problem, np.arange(len(self.names)) % 2)
        compared = [
            ComparedPlacement(step.label, 1.0, speedup=1.2, interval=(1.1, 1.3), is_found=True)
        ]
        charts = [comparison_svg(compared), device_svg([step], kinds, step.trace.step_secs)]
        for svg in charts:
            ElementTree.fromstring(svg)
            self.assertIn("currentColor", svg)
            self.assertIn(r"$\t{$\x1b", svg)
        for reference in re.findall(r'(?:href="|url\()#([^")]+)', "".join(charts)):
            self.assertIn(f'id="{reference}"', "".join(charts))
        self.assertEqual(copy_svg([step]), "")
        self.assertEqual(comparison_svg([ComparedPlacement("failed", None)]), "")

    def test_a_cpu_without_a_color_is_drawn_in_the_color_of_the_text(self):
        gray, ink = "stroke: #8a8a8a", "stroke: currentColor"
        devices = [
            dataclasses.replace(device, kind=kind)
            for device, kind in zip(self.problem.devices, ("CPU", "K80"), strict=True)
        ]
        beside = dataclasses.replace(self.problem, devices=tuple(devices))
        kinds = operation_kinds(beside)
        drawing = placement_drawing(beside, kinds)
        found = []
        for device in (0, 1):
            devices_of_all = np.full(len(self.names), device)
            svg = placement_svg(beside, kinds, drawing, devices_of_all)
            # The legend has a box for each of the two.
            found.append((svg.count(ink), svg.count(gray)))
        (on_cpu, on_gpu) = found
        self.assertEqual(on_cpu[0] - on_gpu[0], len(self.names))
        self.assertEqual(on_gpu[1] - on_cpu[1], len(self.names))

    def test_labels_below_bars_do_not_overlap(self):
        from matplotlib.figure import Figure

        # Transfers from the CPU to a GPU, from there to another one, and back to the CPU.
        for cpu_kind, is_slanted in (("2xE5-2650v4", True), ("CPU", False)):
            problem = make_problem([[1.0] * 3] * 4, tensors=[(0, 4, [1]), (1, 4, [2]), (2, 4, [3])])
            devices = [
                dataclasses.replace(device, kind=kind)
                for device, kind in zip(problem.devices, (cpu_kind, "P100", "P100"), strict=True)
            ]
            problem = dataclasses.replace(problem, devices=tuple(devices))
            step = view_step("found", problem, np.array([0, 1, 2, 0], np.int32))
            figure = Figure(figsize=(4.2, 2.6), layout="constrained")
            axes = figure.add_subplot()
            draw_copies(axes, {"found": step})
            figure.draw_without_rendering()
            labels = axes.get_xticklabels()
            self.assertLen(labels, 3)
            self.assertEqual(labels[0].get_rotation() > 0, is_slanted)
            if not is_slanted:
                boxes = [label.get_window_extent() for label in labels]
                self.assertTrue(all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes)))

    def test_pictures_of_a_step_show_names_as_they_are(self):
        simulator = SimulatedEnvironment(self.problem, threads=1).simulator
        trace = simulator.trace(np.arange(len(self.names)) % 2)
        for picture in step_pictures(trace, trace.step_secs).values():
            self.assertStartsWith(picture, b"\x89PNG")


class ColorsTest(absltest.TestCase):
    def test_a_cpu_is_transparent_beside_other_devices_only(self):
        cpu = ProblemDevice("/job:a/device:CPU:0", "Haswell-18", 1)
        gpu = ProblemDevice("/job:a/device:GPU:0", "K80", 1)
        self.assertEqual(device_colors([cpu, gpu]), [TRANSPARENT, DEVICE_COLORS[0]])
        self.assertEqual(device_marks([cpu, gpu]), ["C", "0"])
        self.assertEqual(device_marks([cpu, cpu]), ["0", "1"])

    def test_the_color_blind_can_tell_the_first_devices_apart(self):
        rgb = np.array(
            [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in DEVICE_COLORS[:5]]
        )
        for name, matrix in _BLIND.items():
            seen = np.clip((rgb**2.2) @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
            for a, b in itertools.combinations(range(5), 2):
                self.assertGreater(np.abs(seen[a] - seen[b]).max(), 0.1, (name, a, b))


if __name__ == "__main__":
    absltest.main()
