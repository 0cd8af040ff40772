"""Faults of processes: signals that are sent to a search, or to some of its processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import time
from collections.abc import Sequence

__all__ = ["NODES", "PAUSES", "SIGNALS", "Fault", "faults_of"]

#: The part of a search that is a node of its cluster, which other nodes replace.
NODES = "node"
# Searches notice within seconds that a process of this computer stands still, and after 30 seconds
# without an answer that one of another computer does.
_MOMENT_SECS, _TOO_LATE_SECS, _LOST_SECS = (0.5, 3.5), (6.0, 10.0), (35.0, 60.0)
_PAUSE_SECS = (5.0, 60.0)
_AT_ONCE = (0.0, 0.0)
_SLOW = [(signal.SIGSTOP, (0.19, 0.19)), (signal.SIGCONT, (0.01, 0.01))] * 30


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault that is injected into a process.

    Attributes:
        name: what it is called.
        part: a regular expression of the command lines of the processes, one of which is hit; or
            `NODES`; or "" for the search itself.
        signals: each signal that is sent, and the least and most seconds until the next one.
        to_group: whether all of its process group get them.
    """

    name: str
    part: str
    signals: Sequence[tuple[signal.Signals, tuple[float, float]]]
    to_group: bool = False

    @property
    def ends_search(self) -> bool:
        """True if the search has to be started again."""
        return not self.part and self.signals[-1][0] != signal.SIGCONT

    def hit(self, pids: Sequence[int], draw: random.Random) -> None:
        """Sends the signals."""
        for number, between_secs in self.signals:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (os.killpg if self.to_group else os.kill)(pid, number)
            time.sleep(draw.uniform(*between_secs))


def _signal(number: signal.Signals, *, to_group: bool) -> Fault:
    return Fault(number.name, "", [(number, _AT_ONCE)], to_group)


#: Signals that end the search; half of them are SIGKILL.
SIGNALS = (
    *[_signal(signal.SIGKILL, to_group=False)] * 6,
    *(
        _signal(number, to_group=to_group)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for to_group in (False, True)
    ),
)

#: A search that stands still for a while, such as one of a computer that sleeps.
PAUSES = (
    Fault("paused", "", [(signal.SIGSTOP, _PAUSE_SECS), (signal.SIGCONT, _AT_ONCE)]),
    Fault("paused and killed", "", [(signal.SIGSTOP, _PAUSE_SECS), (signal.SIGKILL, _AT_ONCE)]),
)


def faults_of(part: str, name: str, *, is_far: bool = False) -> tuple[Fault, ...]:
    """Lists what may be done to a part of a search without an end of it.

    Args:
        part: see `Fault`.
        name: what the part is called.
        is_far: whether it is a process of a cluster.
    """
    stop, go_on = signal.SIGSTOP, (signal.SIGCONT, _AT_ONCE)
    late_secs = _LOST_SECS if is_far else _TOO_LATE_SECS
    found = [
        Fault(f"{name} killed", part, [(signal.SIGKILL, _AT_ONCE)]),
        Fault(f"{name} stopped for a moment", part, [(stop, _MOMENT_SECS), go_on]),
        Fault(f"{name} resumed too late", part, [(stop, late_secs), go_on]),
    ]
    if not is_far:
        found += [
            Fault(f"{name} crashed", part, [(signal.SIGSEGV, _AT_ONCE)]),
            Fault(f"{name} stopped", part, [(stop, _AT_ONCE)]),
            Fault(f"{name} slow", part, _SLOW),
        ]
    return tuple(found)
