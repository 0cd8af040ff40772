"""A process of a fleet that does one thing at a time, and is replaced when it dies or hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from tf_placer.errors import SearchError
from tf_placer.search.distributed.attention import Attention
from tf_placer.search.distributed.fleet import ArgumentLostError, Fleet, WorkerLostError
from tf_placer.search.distributed.pooled_worker import PoolTimes

__all__ = ["LastingActor"]

# So many losses in a row, without a call that has ended between, end the search.
_MOST_LOSSES = 5


class LastingActor:
    """Calls methods of an actor, and starts another one in its place when it is lost.

    Attributes:
        name: for people.
        doing: the method under way; empty where it waits.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        say: Callable[[str], None],
        times: PoolTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the actor.

        Args:
            fleet: starts it.
            name: for people.
            say: called with a line for people when it is lost.
            times: how long to wait for what.
            clock: gives the time in seconds.
        """
        self.name = name
        self.doing = ""
        self._fleet = fleet
        self._say = say
        self._times = times or PoolTimes()
        self._attention = Attention(clock)
        self._losses = 0
        self._handle: Any = None
        self._call: Any = None
        self._ping: Any = None
        # None before its first answer.
        self._heard_secs: float | None = None
        self._asked_secs = 0.0
        self._start()

    def begin(self, method: str, *args: Any) -> Any:
        """Calls a method; it must be doing nothing.

        Returns:
            The call, which may be an argument of a call of another actor.
        """
        assert not self.doing
        self.doing = method
        self._call = self.send(method, *args)
        return self._call

    def send(self, method: str, *args: Any) -> Any:
        """Calls a method whose result is for another actor."""
        return self._fleet.call(self._handle, method, *args)

    @property
    def calls(self) -> list[Any]:
        """What to wait for."""
        return [call for call in (self._call, self._ping) if call is not None]

    def outcome(self, ended: Collection[Any]) -> Any:
        """Takes in what has ended.

        Args:
            ended: calls.

        Returns:
            What the method returned, and what it was, in a tuple; None if it goes on.

        Raises:
            SearchError: the method cannot be done, or one actor after the other is lost.
            WorkerLostError: the actor was lost, and another one is starting.
            ArgumentLostError: an argument of the method is lost, and the actor has done nothing.
        """
        try:
            if self._ping is not None and self._ping in ended:
                ping, self._ping = self._ping, None
                self._fleet.result(ping)
                self._heard_secs = self._attention()
            if self._call is not None and self._call in ended:
                call, self._call = self._call, None
                result = self._fleet.result(call)
                method, self.doing = self.doing, ""
                self._heard_secs, self._losses = self._attention(), 0
                return method, result
            self._look_for_silence()
        except ArgumentLostError as error:
            self.doing = ""
            self._count_loss(f"an argument is lost: {error}")
            raise
        except WorkerLostError as error:
            if error.has_failed:
                raise SearchError(f"{self.name} cannot go on: {error}") from None
            self.replace(str(error))
            raise
        return None

    def replace(self, reason: str) -> None:
        """Ends the actor and starts another one, which does nothing yet.

        Raises:
            SearchError: that was done too often.
        """
        self._count_loss(reason)
        self._say(f"{self.name} is lost: {reason}; another one takes its place")
        self._fleet.kill(self._handle)
        self._start()

    def _count_loss(self, reason: str) -> None:
        self._losses += 1
        if self._losses >= _MOST_LOSSES:
            raise SearchError(f"{self.name} was lost {self._losses} times in a row: {reason}")

    def _start(self) -> None:
        self._handle = self._fleet.start()
        self.doing, self._call = "", None
        self._ping = self._fleet.call(self._handle, "ping")
        self._heard_secs = None
        self._asked_secs = self._attention()

    def _look_for_silence(self) -> None:
        """Asks whether it is there, and gives it up when it does not answer.

        Raises:
            WorkerLostError: it does not answer.
        """
        now_secs = self._attention()
        heard_secs = self._heard_secs
        limit_secs = self._times.start if heard_secs is None else self._times.silence
        if self._ping is not None and now_secs - self._asked_secs >= limit_secs:
            raise WorkerLostError(f"it has not answered for {now_secs - self._asked_secs:.0f} s")
        is_due = heard_secs is not None and now_secs - heard_secs >= self._times.ping
        if self._ping is None and is_due:
            self._ping, self._asked_secs = self._fleet.call(self._handle, "ping"), now_secs
