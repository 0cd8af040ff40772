"""A second try for what failed because a process died, which need not be the placement's fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, cast

from tf_placer.environments.environment import Failure, FailureKind, Measurement

__all__ = ["mark_as_retry", "run_with_retry"]

_Result = TypeVar("_Result")


def _failure_in(result: object) -> Failure | None:
    """Finds the failure in what a try gave: itself, or that of a measurement; None without any.

    A failure may be the last item of a tuple, behind whose it is.
    """
    if isinstance(result, Measurement):
        return result.failure
    if isinstance(result, tuple) and result:
        result = result[-1]
    return result if isinstance(result, Failure) else None


def run_with_retry(attempt: Callable[[], _Result], report: Callable[[str], None]) -> _Result:
    """Tries something, and once more if a process died meanwhile: somebody may have killed it.

    Args:
        attempt: what is tried; it starts processes where they are missing.
        report: called with a line for people before the second try.

    Returns:
        What the last try gave.
    """
    result = attempt()
    failure = _failure_in(result)
    if failure is None or failure.kind is not FailureKind.WORKER_DIED:
        return result
    report(f"{failure.message}: trying once more")
    return mark_as_retry(attempt())


def mark_as_retry(result: _Result) -> _Result:
    """Says of a process that died that it was the second time."""
    failure = _failure_in(result)
    if failure is None or failure.kind is not FailureKind.WORKER_DIED:
        return result
    failure = Failure(failure.kind, f"at the second try, too: {failure.message}")
    if isinstance(result, Measurement):
        return dataclasses.replace(result, failure=failure)
    return cast(_Result, (*result[:-1], failure) if isinstance(result, tuple) else failure)
