"""A backend with actors in this process, whose calls end in random order and which may die."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from tf_placer.search.distributed.actor_backend import WorkerLostError


@dataclasses.dataclass(eq=False)
class _Actor:
    made: Any
    is_dead: bool = False


@dataclasses.dataclass(eq=False)
class _Call:
    actor: _Actor
    method: str
    args: Sequence[Any]
    has_ended: bool = False
    value: Any = None
    error: WorkerLostError | None = None

    def run(self) -> Any:
        """Returns the result of the method; calls among its arguments must have ended."""
        if not self.has_ended:
            self.has_ended = True
            try:
                if self.actor.is_dead:
                    raise WorkerLostError("its process died")
                args = [each.run() if isinstance(each, _Call) else each for each in self.args]
                self.value = getattr(self.actor.made, self.method)(*args)
            except WorkerLostError as error:
                self.error = error
        if self.error is not None:
            raise self.error
        return self.value


class InProcessBackend:
    """Starts actors in this process; see `ActorBackend`.

    Attributes:
        actors, started: the actors, and their number.
        calls, asked: the names and the arguments of called methods, in order.
        deaths: the numbers of calls during which the actor dies.
    """

    def __init__(self, make: Callable[[], Any], rng: random.Random, deaths: Sequence[int] = ()):
        self._make = make
        self._rng = rng
        self.actors: list[_Actor] = []
        self.deaths = set(deaths)
        self.started = 0
        self.calls: list[str] = []
        self.asked: list[Sequence[Any]] = []

    def count_wanted(self) -> int:
        return 1

    def start(self) -> _Actor:
        self.started += 1
        self.actors.append(_Actor(self._make()))
        return self.actors[-1]

    def call(self, actor: _Actor, method: str, *args: Any) -> _Call:
        if method != "ping":
            if len(self.calls) in self.deaths:
                actor.is_dead = True
            self.calls.append(method)
            self.asked.append(args)
        return _Call(actor, method, args)

    def wait(self, calls: Sequence[_Call], timeout_secs: float) -> list[_Call]:
        chosen = [call for call in calls if self._rng.random() < 0.5]
        for call in chosen:
            with contextlib.suppress(WorkerLostError):
                call.run()
        return chosen

    def result(self, call: Any) -> Any:
        return call.run()

    def kill(self, actor: _Actor) -> None:
        actor.is_dead = True

    def close(self) -> None:
        for actor in self.actors:
            self.kill(actor)
