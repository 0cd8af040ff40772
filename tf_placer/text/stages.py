"""Progress messages about long work that has several stages."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from types import TracebackType

from tf_placer.text.units import format_duration

__all__ = ["Stages"]

_INTERVAL_SECS = 10.0


class Stages:
    """Reports the beginning of each stage of long work and, every ten seconds, that it continues.

    Attributes:
        how_far: returns the progress of the whole work as text; empty at first.

    Example:
        with Stages(print) as stages:
            stages.begin("reading the graph")
            ...
            stages.begin("measuring the links, about 12 s")
            ...
    """

    def __init__(
        self,
        report: Callable[[str], None],
        on_stage: Callable[[str], None] | None = None,
        *,
        first_secs: float | None = None,
    ) -> None:
        """Initializes the stages; entering the context starts the reports.

        Args:
            report: called with lines of text for people, also from another thread.
            on_stage: called with each stage when it begins, even if no line reports it.
            first_secs: seconds until the first line about a stage that was not reported when it
                began; ten by default.
        """
        self.how_far: Callable[[], str] = str
        self._report, self._on_stage = report, on_stage
        self._first_secs = first_secs
        self._stage = ""
        self._said: set[str] = set()
        self._stage_start_secs = self._last_secs = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._remind, daemon=True)

    def begin(self, stage: str) -> None:
        """Begins a stage and reports it."""
        self.enter(stage)
        self.say(stage)

    def begin_once(self, stage: str) -> None:
        """Begins a stage, and reports it unless the same line was reported so before."""
        (self.enter if stage in self._said else self.begin)(stage)
        self._said.add(stage)

    def enter(self, stage: str) -> None:
        """Begins a stage, which is reported only if it takes long."""
        with self._lock:
            if self._on_stage is not None and stage != self._stage:
                self._on_stage(stage)
            self._stage = stage
            self._stage_start_secs = self._last_secs = time.monotonic()

    def say(self, line: str) -> None:
        """Reports a line about the stage."""
        self.tell(functools.partial(self._report, line))

    def tell(self, report: Callable[[], None]) -> None:
        """Calls a function that reports by itself, while no line is reported."""
        with self._lock:
            self._last_secs = time.monotonic()
            report()

    def _remind(self) -> None:
        while not self._ended.wait(_INTERVAL_SECS / 20):
            with self._lock:
                now_secs = time.monotonic()
                is_first = self._last_secs == self._stage_start_secs
                wait_secs = _INTERVAL_SECS
                if self._first_secs is not None and is_first:
                    wait_secs = self._first_secs
                if self._stage and now_secs - self._last_secs >= wait_secs:
                    self._last_secs = now_secs
                    took = format_duration(now_secs - self._stage_start_secs)
                    how_far = self.how_far()
                    rest = f"; {how_far}" if how_far else ""
                    self._report(f"still {self._stage}: {took} so far{rest}")

    def __enter__(self) -> Stages:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
