"""Checked access to what the files of machines and device classes say."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from graph_passes.json_text import shown
from tf_placer.machines.machine import MachineError

__all__ = ["Entries"]

# Beyond any number of bytes, and of operations per second, that there will be.
_LARGEST = 10**18


class Entries:
    """A JSON object whose entries are checked as they are read.

    Every error names the file and the entry: "box.json: links[3].latency_secs is negative: -1".

    Attributes:
        where: the file and the entry that the object is in it.
    """

    def __init__(self, value: object, where: str, names: Collection[str]) -> None:
        """Takes an object.

        Args:
            value: what the file has there.
            where: as errors shall name it; ends with ":" for the file itself.
            names: the entries that there may be.

        Raises:
            MachineError: this is no object, or has other entries.
        """
        self.where = where
        if not isinstance(value, dict):
            raise MachineError(f"{where.removesuffix(':')} is not an object: {shown(value)}")
        self._value = value
        unknown = next((name for name in value if name not in names), None)
        if unknown is not None:
            name = unknown if unknown.isidentifier() else shown(unknown)
            expected = ", ".join(names)
            raise MachineError(f"{self.place(name)} is not known: expected {expected}")

    def __contains__(self, name: str) -> bool:
        """Whether the object has such an entry."""
        return name in self._value

    def place(self, name: str) -> str:
        """Names the file and an entry, as errors do."""
        return f"{self.where} {name}" if self.where.endswith(":") else f"{self.where}.{name}"

    def __getitem__(self, name: str) -> Any:
        """An entry of any kind.

        Raises:
            MachineError: there is none.
        """
        if name not in self._value:
            raise MachineError(f"{self.place(name)} is missing")
        return self._value[name]

    def text(self, name: str) -> str:
        """Reads a text that is not empty."""
        value = self[name]
        if not isinstance(value, str) or not value:
            raise MachineError(f"{self.place(name)} is not a name: {shown(value)}")
        return value

    def number(self, name: str, *, positive: bool = False) -> float:
        """Reads a finite number that is not negative, and not 0 where it must be `positive`."""
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MachineError(f"{self.place(name)} is not a number: {shown(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise MachineError(f"{self.place(name)} is not finite: {shown(value)}")
        if abs(value) > _LARGEST:
            raise MachineError(f"{self.place(name)} is more than {_LARGEST:g}")
        if value < 0 or (positive and not value):
            wrong = "not positive" if positive else "negative"
            raise MachineError(f"{self.place(name)} is {wrong}: {shown(value)}")
        return float(value)

    def whole(self, name: str) -> int:
        """Reads a whole number above 0; it may be written like 12e9."""
        value = self.number(name, positive=True)
        if not value.is_integer():
            raise MachineError(f"{self.place(name)} is not a whole number: {shown(self[name])}")
        return int(value)

    def items(self, name: str) -> list[tuple[Any, str]]:
        """Reads the items of a list, each with its place."""
        value = self[name]
        if not isinstance(value, list):
            raise MachineError(f"{self.place(name)} is not a list: {shown(value)}")
        return [(item, f"{self.place(name)}[{i}]") for i, item in enumerate(value)]
