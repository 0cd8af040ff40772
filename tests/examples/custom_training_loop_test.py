"""Test of the training loop with and without its added line, on two worker processes."""

from __future__ import annotations

import contextlib
import io
from unittest import mock

import tensorflow as tf
from absl.testing import flagsaver

import tf_placer
from examples import custom_training_loop
from graph_passes.placement import Placement
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import trace_call
from tf_placer.live.result import FunctionResult
from tf_placer.machines.lookup import find_machine

_MACHINE = "local:2"
_SMALL = {"size": 8, "depth": 2, "batch": 4, "trained_on": _MACHINE}


def split(function, example, *, machine, **settings) -> FunctionResult:
    """Stands in for `optimize_function`: puts every other matrix product on the second device."""
    del settings
    found = find_machine(machine)
    traced = trace_call(function, example)
    devices = tuple(device.name for device in found.devices)
    products = [node.name for node in traced.workload.graph_def.node if node.op == "MatMul"]
    assignment = {name: devices[number % 2] for number, name in enumerate(products)}
    step = PlacedStep(traced, found, Placement("", devices, assignment))
    return FunctionResult(traced.workload.graph_def, True, "a split without a search", step=step)


class CustomTrainingLoopTest(tf.test.TestCase):
    def train(self, directory: str, steps: int, *, place: bool) -> str:
        """Runs the script up to a step; returns what it prints."""
        output = io.StringIO()
        settings = {**_SMALL, "directory": directory, "steps": steps, "place": place}
        with flagsaver.flagsaver(**settings), contextlib.redirect_stdout(output):
            custom_training_loop.main([])
        return output.getvalue()

    def test_checkpoints_of_placed_and_unplaced_runs_are_interchangeable(self):
        printed = {}
        with mock.patch.object(tf_placer, "optimize_function", split):
            for name, places in (
                ("plain", (False, False)),
                ("placed first", (True, False)),
                ("placed last", (False, True)),
            ):
                directory = self.create_tempdir(name.replace(" ", "_")).full_path
                for steps, place in zip((10, 20), places, strict=True):
                    output = self.train(directory, steps, place=place)
                    self.assertEqual("a split" in output, place)
                    printed.setdefault(name, []).append(output.splitlines()[-1])
        self.assertRegex(printed["plain"][0], "^step 10: loss ")
        self.assertRegex(printed["plain"][1], "^step 20: loss ")
        self.assertNotEqual(*(line.partition("loss")[2] for line in printed["plain"]))
        self.assertEqual(printed["placed first"], printed["plain"])
        self.assertEqual(printed["placed last"], printed["plain"])


if __name__ == "__main__":
    tf.test.main()
