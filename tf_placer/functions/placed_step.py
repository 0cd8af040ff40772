"""A function or a Keras model with a placement."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from graph_passes.errors import GraphError
from graph_passes.host_copies import HostCopy
from graph_passes.placement import Placement
from graph_passes.renaming import map_names, rename_placement
from tf_placer.functions.connection import connect, full_name, is_connected
from tf_placer.functions.data_sets import check_before_connection, check_before_move
from tf_placer.functions.keras_models import set_train_step
from tf_placer.functions.moved_variables import move_variables
from tf_placer.functions.traced_call import TracedCall, trace_call
from tf_placer.machines.machine import Machine
from tf_placer.text.notes import say

__all__ = ["PlacedStep"]


@dataclasses.dataclass(frozen=True, eq=False)
class PlacedStep:
    """A traced step with its machine and placement.

    Attributes:
        traced: the step.
        machine: the machine to run on.
        placement: the devices of its operations; None to keep the original devices.
        copies: the tensors that wait on the CPU.
    """

    traced: TracedCall
    machine: Machine
    placement: Placement | None = None
    copies: tuple[HostCopy, ...] = ()

    @functools.cached_property
    def function(self) -> Any:
        """The function on its devices; its variables are moved there.

        Without a placement it is the function itself, and a line says so.

        Raises:
            GraphError: a data set uses a variable that is to move.
            MachineError: this process is not connected to the cluster.
        """
        if self.placement is None:
            say("nothing was placed: result.function is your function, unchanged")
            return self.traced.target
        return self._place(self.traced, self.placement)

    def apply(self, model: Any) -> None:
        """Replaces the training step of a Keras model by the placed one.

        Without a placement the model stays as it is, and a line says so.

        Raises:
            GraphError: the model is not built or compiled, or has another step, or a data set uses
                a variable that is to move.
            MachineError: this process is not connected to the cluster.
        """
        if self.placement is None:
            say("nothing was placed: the model stays as it is")
            return
        traced, placement = self.traced, self.placement
        if model is not traced.target:
            traced = trace_call(model, traced.example_inputs)
            here, there = (each.workload.op_graph for each in (self.traced, traced))
            if set(here.names) != set(there.names):
                names = map_names(here.graph_def, there.graph_def)
                if names is None:
                    raise GraphError(
                        f"the model {model.name!r} is not the one that was placed: its step differs"
                    )
                placement = rename_placement(placement, names)
        set_train_step(model, self._place(traced, placement), self.traced.batch_size)

    def check(self) -> None:
        """Checks that no data set of this process prevents placing the step.

        Raises:
            GraphError: a data set uses a variable of the step.
            MachineError: a data set assigns to a variable, and the assignments would be lost.
        """
        check_before_move(self.traced.variables.values())
        if not is_connected(self.machine):
            check_before_connection()

    def _place(self, traced: TracedCall, placement: Placement) -> Any:
        first = self.machine.devices[0].name
        # A session runs operations without a device on its machine, but a function runs them in
        # this process, so they get the machine's first device.
        default = "" if self.machine.backend.in_one_process else first
        devices = placement.assignment
        targets = {
            variable.ref(): full_name(devices.get(name, default) or variable.device)
            for name, variable in traced.variables.items()
        }
        # Connecting recreates all variables, so none of them may be used by a data set.
        is_anew = not is_connected(self.machine)
        variables = [each.deref() for each in targets]
        check_before_move(v for v in variables if is_anew or v.device != targets[v.ref()])
        connect(self.machine)
        move_variables(targets)
        return traced.place(
            lambda name: traced.kept.get(name, devices.get(name, default)), self.copies
        )
