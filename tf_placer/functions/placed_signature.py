"""Signatures of a SavedModel with a placement."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import weakref
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2

from graph_passes.errors import GraphError
from graph_passes.placement import Placement
from tf_placer.functions.connection import connect
from tf_placer.functions.loaded_model import load_on_devices
from tf_placer.inputs.saved_model_files import link_saved_model, write_saved_model
from tf_placer.inputs.saved_signature import SavedSignature
from tf_placer.machines.machine import Machine
from tf_placer.temporary_directory import temporary_directory

__all__ = ["PlacedSignature"]


@dataclasses.dataclass(frozen=True, eq=False)
class PlacedSignature:
    """Signatures of a SavedModel with their machine and placement.

    Attributes:
        signature: the signatures.
        machine: the machine to run on.
        placement: the devices of its operations; None to keep the original devices.
    """

    signature: SavedSignature
    machine: Machine
    placement: Placement | None = None

    @functools.cached_property
    def function(self) -> Any:
        """The only signature as a function of this process, with variables of its own.

        Raises:
            GraphError: there are several signatures.
            MachineError: this process is not connected to the cluster.
        """
        if len(self.signature.names) > 1:
            raise GraphError(
                f"{self.signature.title} are no single function: save the result, and load it by "
                "tf_placer.load_placed"
            )
        if self.placement is not None:
            connect(self.machine)
        # The function may read files of the SavedModel at every call, so that the directory must
        # live as long as the function.
        with contextlib.ExitStack() as stack:
            directory = os.path.join(stack.enter_context(temporary_directory()), "model")
            os.mkdir(directory)
            function = self._load(directory)
            weakref.finalize(function, stack.pop_all().close)
        return function

    def save(
        self, directory: str | os.PathLike[str], record: str | os.PathLike[str] | None = None
    ) -> None:
        """Writes the SavedModel with devices, or unchanged if there is no placement.

        Args:
            directory: the new directory, or one of the record.
            record: the file in which a search records the SavedModels that it writes, or None.

        Raises:
            GraphError: the directory exists, is not empty and is not in the record, or cannot be
                written.
            OSError, ValueError: the record cannot be read.
        """
        write_saved_model(directory, self._build_saved_model(), self.signature.directory, record)

    def _load(self, directory: str) -> Any:
        """Loads the function from a directory of links to the files of the SavedModel."""
        saved_model = self._build_saved_model()
        link_saved_model(directory, saved_model, self.signature.directory)
        loaded = load_on_devices(directory, saved_model, self.signature.number)
        function = loaded.signatures[self.signature.names[0]]
        # The function alone would not keep its variables alive.
        function._tf_placer_loaded = loaded
        return function

    def _build_saved_model(self) -> saved_model_pb2.SavedModel:
        if self.placement is None:
            return self.signature.saved_model
        return self.signature.build_placed_model(self.placement.assignment)
