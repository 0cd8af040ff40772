"""Searches a placement for the cached training step of a script, or records why it cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable

from graph_passes.errors import GraphError
from graph_passes.util.json_records import read_record
from tf_placer.confirmation.outcome import Outcome
from tf_placer.errors import NoAnswerError, SearchError, describe_error
from tf_placer.files import read_json, write_json
from tf_placer.runs.own_files import REFUSAL, TRAINED_BY
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.verdict import explain_unkept
from tf_placer.search.config import find_answers
from tf_placer.text import notes
from tf_placer.text.stages import Stages
from tf_placer.text.units import format_bytes

__all__ = [
    "SECS_WITHOUT_A_LINE",
    "Refusal",
    "forget_step",
    "is_answer_wanted",
    "is_search_wanted",
    "needs_script",
    "read_refusal",
    "search_for_step",
]

#: Seconds until a line says what the user waits for.
SECS_WITHOUT_A_LINE = 4.0


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The record of a failed search, which prevents another one with the same time limit.

    Attributes:
        reason: the cause, as a clause.
        search_secs: the time limit of the failed search, in seconds.
    """

    reason: str
    search_secs: float


def read_refusal(directory: RunDirectory) -> Refusal | None:
    """Reads the record of a failed search; None if there is none."""
    try:
        return read_record(Refusal, read_json(directory.path / REFUSAL))
    except (OSError, ValueError):
        return None


def is_search_wanted(directory: RunDirectory, search_secs: float | None) -> bool:
    """Says whether a search should start or resume.

    Args:
        directory: the directory of the search, with a request.
        search_secs: the time limit that the user gives; None if there is none.

    Raises:
        OSError, ValueError: the directory cannot be read.
    """
    result = directory.read_result()
    refusal = read_refusal(directory)
    if refusal is None and (result is None or result.outcome is Outcome.INTERRUPTED):
        return True
    if search_secs is None:
        return False
    if refusal is not None:
        return search_secs > refusal.search_secs
    assert result is not None
    return search_secs > (math.inf if result.max_secs is None else result.max_secs)


def is_answer_wanted(
    directory: RunDirectory, answers: str | None, say: Callable[[str], None]
) -> bool:
    """Says whether a store should get the answer of the search that has ended in a directory.

    Args:
        directory: the directory of the search, with a request.
        answers: the store of answers; None for none.
        say: prints a line for the user where the answer is not worth keeping.

    Raises:
        OSError, ValueError: the directory cannot be read.
    """
    result = directory.read_result()
    if answers is None or result is None or result.kept is not None:
        return False
    # Earlier versions did not write which store it is.
    if result.answer_kept and result.answer_store in (None, str(find_answers(answers))):
        return False
    if needs_script(directory):
        say("--answers keeps nothing: the step calls Python functions")
        return False
    if (why := explain_unkept(result)) is not None:
        secs = "" if result.max_secs is None else f" of more than {result.max_secs:g}"
        say(
            f"--answers keeps nothing of the search in '{directory.path}': {why}; a --search_secs"
            f"{secs} resumes it"
        )
        return False
    return True


def needs_script(directory: RunDirectory) -> bool:
    """Says whether the step calls Python functions, which only the script's process has."""
    try:
        return b"PyFunc" in directory.graph.read_bytes()
    except OSError:
        return False


def forget_step(directory: RunDirectory) -> None:
    """Removes the step of a directory without trials, its answer, and the directory if it is empty.

    Raises:
        OSError: a file cannot be removed.
    """
    directory.remove_request()
    # The last one marks the directory as one of a script.
    names = (directory.result.name, directory.placement.name, REFUSAL, TRAINED_BY)
    for name in names:
        (directory.path / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # The directory has other files.
        directory.path.rmdir()


def search_for_step(
    directory: RunDirectory,
    search_secs: float | None,
    say: Callable[[str], None],
    *,
    answers: str | None = None,
    require_answer: bool = False,
) -> None:
    """Searches for a placement; prints errors and does not raise them, with one exception.

    Args:
        directory: the directory of the search, with a request.
        search_secs: the time limit; None for the limit in the request.
        say: prints a line for the user.
        answers: the store of answers; see `SearchConfig`.
        require_answer: whether an answer of the store has to take the place of the search.

    Raises:
        NoAnswerError: an answer is required, and there is none.
    """
    with Stages(notes.say, first_secs=SECS_WITHOUT_A_LINE) as stages:
        stages.enter("starting TensorFlow")
        from tf_placer.live.entry_points import optimize
        from tf_placer.live.process import SearchKilledError
        from tf_placer.scripts.step_cache import read_cached_workload
        from tf_placer.search.config import SearchConfig

    refusal = directory.path / REFUSAL
    refusal.unlink(missing_ok=True)
    allowed_secs = search_secs or 0.0
    try:
        with Stages(notes.say, first_secs=SECS_WITHOUT_A_LINE) as stages:
            stages.enter(f"reading the step in '{directory.path}', {_describe_size(directory)}")
            workload, config = read_cached_workload(directory)
        allowed_secs = search_secs or config.max_secs
        asked = SearchConfig(
            # Looked up again, because the sessions of the script may see fewer devices.
            machine=config.found_machine.spec,
            max_trials=config.max_trials,
            max_secs=allowed_secs,
            log_dir=directory.path,
            session_config=config.session_config,
            answers=answers,
            require_answer=require_answer,
            pin=config.pin,
            keep_together=config.keep_together,
        )
        result = optimize(workload, config=asked)
    except NoAnswerError:
        if not directory.trials.exists():
            # The next run finds the step of the script as it is then.
            forget_step(directory)
        raise
    except Exception as error:
        reason = describe_error(error)
        if not isinstance(error, ImportError | OSError | RuntimeError | ValueError):
            reason = f"{type(error).__name__}: {reason}"
        reason = " ".join(reason.split())
        say(f"the step cannot be searched for: {reason}")
        # Other causes, such as a full disk, may be gone the next time.
        is_cause_kept = isinstance(error, GraphError | SearchError)
        if is_cause_kept and not isinstance(error, SearchKilledError):
            _write(refusal, Refusal(reason, allowed_secs))
        return
    # An answer of the store was shown when it was found.
    shown = () if result.kept is not None else (result.table(), result.explanation_table())
    for text in filter(None, shown):
        notes.write_note(text, end="\n\n")
    # A placement that one process on all cores beats is not used.
    title = "found" if result.is_slower_than_one_process else result.title
    say(f"{title} - {result.reason}")
    if directory.read_result() is None and result.log_dir is None:
        _write(refusal, Refusal(result.reason, allowed_secs))


def _describe_size(directory: RunDirectory) -> str:
    """Describes the size of the files of a step."""
    files = (directory.graph, directory.path / "restored")
    return format_bytes(sum(file.stat().st_size for file in files if file.exists()))


def _write(path: pathlib.Path, refusal: Refusal) -> None:
    with contextlib.suppress(OSError):  # Without the record, the next run searches again.
        write_json(path, dataclasses.asdict(refusal))
