"""Supervision of actors: signs of life, and another one in the place of one that is lost.

Ray could restart its actors and call their methods again. As tried with Ray 2, it says nothing of
it, restarts one that dies while it starts for ever, and never notices one that is stopped.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection
from typing import Any

from tf_placer.errors import SearchError
from tf_placer.search.distributed.fleet import Fleet, WorkerLostError

__all__ = ["Heartbeat", "PauseAwareClock", "SupervisedActor", "Timeouts"]

_MOST_LOSSES_IN_A_ROW = 5
# A search looks several times a second. What is longer between two looks was spent elsewhere.
_MOST_PAUSE_SECS = 1.0


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """Limits on waiting for actors, in seconds.

    Attributes:
        poll: between two looks at whether the search was interrupted.
        ping: between an answer and the next question whether an actor is there.
        silence: without an answer, after which an actor counts as lost.
        start: of the processes of an actor, at most, beside what it measures then.
        check: between two measurements of the graph as it came by a worker that was set aside.
        machine: without any worker, after which no machine is waited for any more.
    """

    poll: float = 0.2
    ping: float = 5.0
    silence: float = 30.0
    start: float = 660.0
    check: float = 120.0
    machine: float = 300.0


class PauseAwareClock:
    """A clock that skips pauses of this process.

    A search that was stopped, or did something else for long, has not heard what it was told
    meanwhile: it must not take that for silence of others.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begins at zero.

        Args:
            clock: gives the time in seconds.
        """
        self._clock = clock
        self._read_secs = clock()
        self._secs = 0.0

    def __call__(self) -> float:
        """Computes the seconds so far, of which the last pause is one at most."""
        now_secs = self._clock()
        self._secs += min(now_secs - self._read_secs, _MOST_PAUSE_SECS)
        self._read_secs = now_secs
        return self._secs


class Heartbeat:
    """Signs of life of an actor, which is asked for them.

    Attributes:
        call: the question under way; None between two.
        heard_secs: time of the last answer; None before the first, while it has no machine.
    """

    def __init__(
        self,
        fleet: Fleet,
        handle: Any,
        clock: PauseAwareClock,
        timeouts: Timeouts,
        start_secs: float = math.inf,
    ) -> None:
        """Asks for the first one.

        Args:
            fleet: calls the actor.
            handle: of the actor, from `Fleet.start`.
            clock: gives the time in seconds.
            timeouts: how often to ask, and how long to wait.
            start_secs: how long to wait for the first answer.
        """
        self._fleet = fleet
        self._handle = handle
        self._clock = clock
        self._timeouts = timeouts
        self._start_secs = start_secs
        self.heard_secs: float | None = None
        self.call: Any = None
        self._asked_secs = 0.0
        self._ask()

    def hear(self) -> None:
        """Notes that the actor has just answered, whatever that was."""
        self.heard_secs = self._clock()

    def update(self, ended: Collection[Any]) -> None:
        """Takes in an answer.

        Args:
            ended: calls that have ended.

        Raises:
            WorkerLostError: the actor is gone.
        """
        if self.call is not None and self.call in ended:
            call, self.call = self.call, None
            self._fleet.result(call)
            self.hear()

    def check(self) -> None:
        """Asks again when that is due.

        Raises:
            WorkerLostError: the actor has not answered for too long.
        """
        now_secs, heard_secs = self._clock(), self.heard_secs
        if self.call is None:
            if heard_secs is None or now_secs - heard_secs >= self._timeouts.ping:
                self._ask()
            return
        limit_secs = self._start_secs if heard_secs is None else self._timeouts.silence
        if now_secs - self._asked_secs >= limit_secs:
            last_secs = self._asked_secs if heard_secs is None else heard_secs
            raise WorkerLostError(f"it has not answered for {now_secs - last_secs:.0f} s")

    def _ask(self) -> None:
        self.call = self._fleet.call(self._handle, "ping")
        self._asked_secs = self._clock()


class SupervisedActor:
    """An actor that does one thing at a time, which is done again by another one if it is lost.

    What its methods return depends on their arguments alone, so nobody notices.

    Attributes:
        name: for people.
        doing: the method under way; empty where it waits.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        say: Callable[[str], None],
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the actor.

        Args:
            fleet: starts it.
            name: for people.
            say: called with a line for people when it is lost.
            timeouts: how long to wait for what.
            clock: gives the time in seconds.
        """
        self.name = name
        self.doing = ""
        self._fleet = fleet
        self._say = say
        self._timeouts = timeouts or Timeouts()
        self._clock = PauseAwareClock(clock)
        self._args: tuple[Any, ...] = ()
        self._call: Any = None
        self._losses = 0
        self._start()

    def begin(self, method: str, *args: Any) -> None:
        """Calls a method; it must be doing nothing.

        Args:
            method: name of the method.
            args: its arguments, or calls that have returned them.
        """
        assert not self.doing
        self.doing, self._args = method, args
        self._call = self._fleet.call(self._handle, method, *args)

    @property
    def calls(self) -> list[Any]:
        """What to wait for."""
        return [call for call in (self._call, self._heartbeat.call) if call is not None]

    def outcome(self, ended: Collection[Any]) -> tuple[str, Any, Any] | None:
        """Takes in what has ended; replaces the actor if it is lost.

        Args:
            ended: calls.

        Returns:
            The method that has ended, what it returned, and the call, which may be an argument of
            another one; None if it goes on.

        Raises:
            SearchError: the method cannot be done, or one actor after the other is lost.
        """
        try:
            self._heartbeat.update(ended)
            if self._call is not None and self._call in ended:
                done = self.doing, self._fleet.result(self._call), self._call
                self.doing, self._args, self._call = "", (), None
                self._heartbeat.hear()
                self._losses = 0
                return done
            self._heartbeat.check()
        except WorkerLostError as error:
            if error.has_failed:
                raise SearchError(f"{self.name} cannot go on: {error}") from None
            self._replace(str(error))
        return None

    def _replace(self, reason: str) -> None:
        self._losses += 1
        if self._losses >= _MOST_LOSSES_IN_A_ROW:
            raise SearchError(f"{self.name} was lost {self._losses} times in a row: {reason}")
        self._say(f"{self.name} is lost: {reason}; another one takes its place")
        self._fleet.kill(self._handle)
        self._start()
        if self.doing:
            self._call = self._fleet.call(self._handle, self.doing, *self._args)

    def _start(self) -> None:
        self._handle = self._fleet.start()
        self._heartbeat = Heartbeat(
            self._fleet, self._handle, self._clock, self._timeouts, self._timeouts.start
        )
