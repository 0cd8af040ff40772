"""A second attempt after the death of a process, for which the placement may not be at fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, cast

from tf_placer.environments.environment import Failure, FailureKind, Measurement

__all__ = ["mark_as_retry", "run_with_retry"]

_Result = TypeVar("_Result")


def _find_failure(result: object) -> Failure | None:
    """Finds the failure in the result of an attempt; None without one.

    The result may be the failure, a failed measurement, or a tuple whose last item is a failure.
    """
    if isinstance(result, Measurement):
        return result.failure
    if isinstance(result, tuple) and result:
        result = result[-1]
    return result if isinstance(result, Failure) else None


def run_with_retry(attempt: Callable[[], _Result], report: Callable[[str], None]) -> _Result:
    """Runs an attempt, and once more if a process died: another program may have killed it.

    Args:
        attempt: the function to run; it starts missing processes.
        report: called with a message for users before the second attempt.

    Returns:
        The result of the last attempt.
    """
    result = attempt()
    failure = _find_failure(result)
    if failure is None or failure.kind is not FailureKind.WORKER_DIED:
        return result
    report(f"{failure.message}: trying once more")
    return mark_as_retry(attempt())


def mark_as_retry(result: _Result) -> _Result:
    """Adds to the message of a process death that it was the second attempt."""
    failure = _find_failure(result)
    if failure is None or failure.kind is not FailureKind.WORKER_DIED:
        return result
    failure = Failure(failure.kind, f"at the second try, too: {failure.message}")
    if isinstance(result, Measurement):
        return dataclasses.replace(result, failure=failure)
    return cast(_Result, (*result[:-1], failure) if isinstance(result, tuple) else failure)
