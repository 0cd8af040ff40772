"""Classifies failures of a trial by TensorFlow's errors and by the deaths of processes."""

from __future__ import annotations

import pathlib
import re

from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.processes import ChildDied

__all__ = ["classify_death", "classify_error", "count_oom_kills", "may_have_harmed", "shorten"]

_MAX_MESSAGE_CHARS = 500

# Errors of TensorFlow's Placer, partitioner and executor about impossible devices.
_PLACEMENT_WORDS = (
    "Cannot assign a device for operation",
    "Could not satisfy device specification",
    "Could not satisfy explicit device specification",
    "Cannot colocate nodes",
    "Cannot merge devices",
    "Cannot place the graph because",
    "connects colocation groups with incompatible",
    "No OpKernel was registered to support Op",
    "OpKernel for 'GPU' devices compatible with node",
    "OpKernel for 'CPU' devices compatible with node",
    "Malformed device specification",
    "Creating a partition for",
    "Trying to access resource",
    "No such device",
)
_MEMORY_WORDS = (
    "std::bad_alloc",
    "OOM when allocating",
    "ran out of memory",
    "out of memory",
    "OUT_OF_MEMORY",
    "_ALLOC_FAILED",
    "Dst tensor is not initialized",
)
# A server says so of a fed value that it has no memory for: what sessions feed is always valid.
_UNALLOCATED_FEED_WORDS = "Invalid TensorProto for feed value"
_UNINITIALIZED_WORDS = (
    "uninitialized",
    "not been initialized",
    "not initialized",
    "Could not find variable",
    "Resource does not exist",
)
# A server that restarts during a step, and its clients, raise these errors.
_RESTARTED_WORDS = ("restarted", "is not found")
# The text behind these words helps only readers who have TensorFlow's sources.
_TRACES = (
    r"Original stack trace for|Colocation Debug Info|Traceback \(most recent call last\)"
    r"|Recent warning and error logs"
)
# The graph itself causes these errors; they leave the processes intact.
_HARMLESS_ERRORS = frozenset(
    {
        "FailedPreconditionError",
        "InvalidArgumentError",
        "NotFoundError",
        "OutOfRangeError",
        "TypeError",
        "UnimplementedError",
        "ValueError",
    }
)


def shorten(message: str) -> str:
    """Shortens a message of TensorFlow to one line, without stack traces and repetitions."""
    text = re.split(_TRACES, message)[0]
    nodes = re.findall(r"^\s*\[\[\{\{node ([^}]+)\}\}\]\]", text, re.MULTILINE)
    noise = re.compile(
        r"""Graph\ execution\ error:$ | Detected\ at\ node | File\ " | Node:\ ' | Hint:
        | \[\[ | =+$ | \(\d+\)\  | \d+\ root\ error | \d+\ successful\ op | \d+\ derived\ error
        | Additional\ GRPC\ error | :?\{" | :UNKNOWN:""",
        re.VERBOSE,
    )
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not noise.match(line)]
    if not kept:
        # The lines of listed errors may be the only ones that name the cause.
        listed = (re.match(r"\(\d+\)\s+(.+)", line) for line in lines)
        kept = [match[1] for match in listed if match]
    result = " ".join(" ".join(dict.fromkeys(kept)).split()) or " ".join(message.split())
    # The time stamp and the source location of a log line do not help users.
    result = re.sub(
        r"^.{0,40}\d\d:\d\d.{0,80}\.cc:\d+\] (OP_REQUIRES failed at \S+ : )?", "", result
    )
    result = re.sub(r"\{\{(?:colocation_|function_)?node ([^}]+)\}\}", r"\1", result)
    if len(result) > _MAX_MESSAGE_CHARS:
        result = result[:_MAX_MESSAGE_CHARS] + "…"
    if nodes and nodes[0] not in result:
        result += f" (operation {nodes[0]})"
    return result


def classify_error(error_type: str, message: str, stage: str, steps_done: int) -> Failure:
    """Classifies an exception of a session.

    Args:
        error_type: name of the exception's class, "InvalidArgumentError".
        message: the message of the exception.
        stage: the stage that failed, such as "the initializers".
        steps_done: number of steps that ran before it.

    Returns:
        The failure, with a message for users.
    """
    short = shorten(message)
    if _UNALLOCATED_FEED_WORDS in message:
        return Failure(FailureKind.OUT_OF_MEMORY, f"in {stage}: no memory for a fed value: {short}")
    if error_type in ("ResourceExhaustedError", "MemoryError") or (
        error_type in ("InternalError", "UnknownError", "AbortedError")
        and any(words in message for words in _MEMORY_WORDS)
    ):
        return Failure(FailureKind.OUT_OF_MEMORY, f"in {stage}: {short or error_type}")
    if any(words in message for words in _PLACEMENT_WORDS):
        return Failure(FailureKind.INVALID_PLACEMENT, short)
    if error_type == "DeadlineExceededError":
        return Failure(FailureKind.TIMEOUT, f"{stage} did not end in time: {short}")
    if error_type == "UnavailableError" or (
        error_type == "AbortedError" and any(words in message for words in _RESTARTED_WORDS)
    ):
        return Failure(FailureKind.WORKER_DIED, f"in {stage}, a server went away: {short}")
    if error_type == "OutOfRangeError":
        short = f"the input ended after {steps_done} steps: {short}"
    elif error_type == "FailedPreconditionError" and any(
        words in message for words in _UNINITIALIZED_WORDS
    ):
        short = (
            f"in {stage}: {short}; pass initializers= with the operations that initialize "
            "variables, tables and iterators"
        )
    elif re.search(r"callback (with key=)?pyfunc_", message):
        short = (
            f"in {stage}: {short.rstrip('.')}; a Python function (py_func, numpy_function, "
            "py_function, Dataset.from_generator) exists only in the process that made the graph, "
            "so such a graph cannot be measured"
        )
    else:
        short = f"in {stage}: {error_type}: {short}"
    return Failure(FailureKind.RUNTIME_ERROR, short)


def may_have_harmed(failure: Failure, error_type: str) -> bool:
    """Says whether a failure may have left the processes unfit for another trial."""
    if failure.kind is FailureKind.RUNTIME_ERROR:
        return error_type not in _HARMLESS_ERRORS
    return failure.kind is not FailureKind.INVALID_PLACEMENT


def classify_death(death: ChildDied, stage: str, oom_kills: int) -> Failure:
    """Classifies the death of a process.

    Args:
        death: the death, with the process.
        stage: the stage that failed, such as "the initializers".
        oom_kills: number of processes that the kernel killed for lack of memory since the trial
            began.

    Returns:
        The failure: OUT_OF_MEMORY if the log or the kernel indicates it, else WORKER_DIED.
    """
    message = f"in {stage}, {death}"
    for line in death.child.log_lines():
        if any(words in line for words in _MEMORY_WORDS):
            return Failure(FailureKind.OUT_OF_MEMORY, f"{message} after {shorten(line)}")
    if death.child.exit_code == -9 and oom_kills:
        return Failure(
            FailureKind.OUT_OF_MEMORY, f"{message} by the kernel, which was out of memory"
        )
    tail = death.child.log_tail()
    return Failure(
        FailureKind.WORKER_DIED, f"{message}; its last words: {tail}" if tail else message
    )


def count_oom_kills() -> int:
    """Counts the processes that the kernel has killed for lack of memory; 0 if unknown."""
    try:
        text = pathlib.Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
