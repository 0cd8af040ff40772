"""Supervision of actors: heartbeats, and the replacement of actors that are lost.

Ray could restart its actors and call their methods again. But Ray 2, when tried, did so silently,
restarted an actor that dies while it starts forever, and never noticed a stopped one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection
from typing import Any

from tf_placer.errors import SearchError
from tf_placer.search.distributed.actor_backend import ActorBackend, WorkerLostError

__all__ = ["Heartbeat", "PauseAwareClock", "SupervisedActor", "Timeouts"]

_MAX_LOSSES_IN_A_ROW = 5
# A search reads the clock several times a second; a longer gap means that the process was paused.
_MAX_COUNTED_PAUSE_SECS = 1.0


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """Limits on waiting for actors, in seconds.

    Attributes:
        poll_interval: the time between two checks for an interrupt of the search.
        ping_interval: the time between an answer and the next ping.
        max_silence: the time without an answer after which an actor counts as lost.
        max_start: the time to start the processes of an actor, without its first measurement.
        recheck_interval: the time between two measurements of the original graph by a worker that
            was set aside.
        max_without_worker: the time without any worker after which the search gives up.
    """

    poll_interval: float = 0.2
    ping_interval: float = 5.0
    max_silence: float = 30.0
    max_start: float = 660.0
    recheck_interval: float = 120.0
    max_without_worker: float = 300.0


class PauseAwareClock:
    """A clock that skips pauses of this process.

    A search that was suspended has not received its messages. By this clock, the pause does not
    count towards the time-outs of actors.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Starts at zero.

        Args:
            clock: returns the time in seconds.
        """
        self._clock = clock
        self._read_secs = clock()
        self._secs = 0.0

    def __call__(self) -> float:
        """Returns the seconds so far, and counts at most one second since the last call."""
        now_secs = self._clock()
        self._secs += min(now_secs - self._read_secs, _MAX_COUNTED_PAUSE_SECS)
        self._read_secs = now_secs
        return self._secs


class Heartbeat:
    """The heartbeat of an actor, which is pinged at intervals.

    Attributes:
        call: the ping under way; None between two.
        answer_secs: time of the last answer; None before the first, while it has no machine.
    """

    def __init__(
        self,
        backend: ActorBackend,
        handle: Any,
        clock: PauseAwareClock,
        timeouts: Timeouts,
        start_secs: float = math.inf,
    ) -> None:
        """Sends the first ping.

        Args:
            backend: calls the actor.
            handle: handle of the actor, from `ActorBackend.start`.
            clock: returns the time in seconds.
            timeouts: limits on waiting.
            start_secs: limit on waiting for the first answer.
        """
        self._backend = backend
        self._handle = handle
        self._clock = clock
        self._timeouts = timeouts
        self._start_secs = start_secs
        self.answer_secs: float | None = None
        self.call: Any = None
        self._ping_secs = 0.0
        self._ping()

    def record_answer(self) -> None:
        """Records that the actor has just answered any call."""
        self.answer_secs = self._clock()

    def update(self, ended: Collection[Any]) -> None:
        """Handles an answer to the ping.

        Args:
            ended: the calls that have ended.

        Raises:
            WorkerLostError: the actor is gone.
        """
        if self.call is not None and self.call in ended:
            call, self.call = self.call, None
            self._backend.result(call)
            self.record_answer()

    def check(self) -> None:
        """Sends the next ping when it is due.

        Raises:
            WorkerLostError: the actor has not answered for too long.
        """
        now_secs, answer_secs = self._clock(), self.answer_secs
        if self.call is None:
            if answer_secs is None or now_secs - answer_secs >= self._timeouts.ping_interval:
                self._ping()
            return
        limit_secs = self._start_secs if answer_secs is None else self._timeouts.max_silence
        if now_secs - self._ping_secs >= limit_secs:
            last_secs = self._ping_secs if answer_secs is None else answer_secs
            raise WorkerLostError(f"it has not answered for {now_secs - last_secs:.0f} s")

    def _ping(self) -> None:
        self.call = self._backend.call(self._handle, "ping")
        self._ping_secs = self._clock()


class SupervisedActor:
    """An actor that is replaced if it is lost, and whose call is then repeated.

    It runs one method at a time. The results of its methods depend only on their arguments, so a
    repeated call returns the same.

    Attributes:
        name: name for people.
        doing: the method under way; empty if there is none.
    """

    def __init__(
        self,
        backend: ActorBackend,
        name: str,
        say: Callable[[str], None],
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the actor.

        Args:
            backend: starts the actor.
            name: name for people.
            say: called with a message for people when the actor is lost.
            timeouts: limits on waiting.
            clock: returns the time in seconds.
        """
        self.name = name
        self.doing = ""
        self._backend = backend
        self._say = say
        self._timeouts = timeouts or Timeouts()
        self._clock = PauseAwareClock(clock)
        self._args: tuple[Any, ...] = ()
        self._call: Any = None
        self._losses = 0
        self._start()

    def begin(self, method: str, *args: Any) -> None:
        """Calls a method; none may be under way.

        Args:
            method: name of the method.
            args: its arguments, or earlier calls whose results are the arguments.
        """
        assert not self.doing
        self.doing, self._args = method, args
        self._call = self._backend.call(self._handle, method, *args)

    @property
    def calls(self) -> list[Any]:
        """The calls under way."""
        return [call for call in (self._call, self._heartbeat.call) if call is not None]

    def update(self, ended: Collection[Any]) -> tuple[str, Any, Any] | None:
        """Handles calls that have ended, and replaces the actor if it is lost.

        Args:
            ended: the calls that have ended.

        Returns:
            The name of the method that has ended, its result, and the call, which may be an
            argument of another one; None if no method has ended.

        Raises:
            SearchError: the method raised an error, or too many actors in a row were lost.
        """
        try:
            self._heartbeat.update(ended)
            if self._call is not None and self._call in ended:
                done = self.doing, self._backend.result(self._call), self._call
                self.doing, self._args, self._call = "", (), None
                self._heartbeat.record_answer()
                self._losses = 0
                return done
            self._heartbeat.check()
        except WorkerLostError as error:
            if error.has_failed:
                raise SearchError(f"{self.name} failed: {error}") from None
            self._replace(str(error))
        return None

    def _replace(self, reason: str) -> None:
        self._losses += 1
        if self._losses >= _MAX_LOSSES_IN_A_ROW:
            raise SearchError(f"{self.name} was lost {self._losses} times in a row: {reason}")
        self._say(f"{self.name} is lost: {reason}; another one takes its place")
        self._backend.kill(self._handle)
        self._start()
        if self.doing:
            self._call = self._backend.call(self._handle, self.doing, *self._args)

    def _start(self) -> None:
        self._handle = self._backend.start()
        self._heartbeat = Heartbeat(
            self._backend, self._handle, self._clock, self._timeouts, self._timeouts.max_start
        )
