"""Runs an unchanged script with its training step placed.

The files in the directory of the search determine the stage. Without a step, the script runs until
it is about to train. With a step but no result, the step is searched for a placement. With a
placement, the script runs placed. The process restarts between the stages, so that each one has all
GPU memory and a killed process resumes at its stage. Without a placement the script is not changed.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graph_passes.clearing_advice import CLEARING_FLAG
from graph_passes.errors import GraphError
from graph_passes.restrictions import (
    Restrictions,
    check_keep_together,
    check_pins,
    resolve_restrictions,
)
from graph_passes.util.messages import shorten_text
from tf_placer import emulated
from tf_placer.confirmation.outcome import Outcome
from tf_placer.errors import NoAnswerError, describe_error
from tf_placer.files import read_json
from tf_placer.machines.emulated_machine import PREFIX
from tf_placer.machines.emulation_state import find_emulated_spec
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.runs.own_files import check_own_step
from tf_placer.runs.run_directory import RunDirectory, check_writable
from tf_placer.runs.verdict import explain_unkept
from tf_placer.scripts.former_tensorflow import advise_on_former_tensorflow
from tf_placer.scripts.instrumentation import Watcher, instrument
from tf_placer.scripts.keras_without_xla import disable_keras_xla
from tf_placer.scripts.main_script import run_main_script
from tf_placer.scripts.missing_gpu import advise_on_missing_gpu
from tf_placer.scripts.process_restart import ProcessRestart, Stage
from tf_placer.scripts.script_search import (
    forget_step,
    is_answer_wanted,
    is_search_wanted,
    needs_script,
    read_refusal,
    search_for_step,
)
from tf_placer.scripts.script_watcher import ScriptWatcher
from tf_placer.start_up_messages import hide_start_up_messages
from tf_placer.temporary_directory import remove_stale_directories
from tf_placer.text.notes import say
from tf_placer.text.sentences import join_sentences
from tf_placer.text.units import format_step

__all__ = ["prepare_script", "search_directory"]

_SEARCH_SECS = 600.0
_DEFAULT_MACHINE = "attached"
_CHANGED = "the training step has changed since the search in"


def search_directory(script: str) -> str:
    """Returns the default directory of a script's search, in the working directory."""
    return f"{pathlib.Path(script).stem}.tf_placer"


def prepare_script(
    script: str,
    args: Sequence[str],
    *,
    machine: str | None,
    placement: str | None,
    log_dir: str,
    search_secs: float | None,
    answers: str | None = None,
    require_answer: bool = False,
    clear_devices: bool = False,
    pin: Mapping[str, str] | None = None,
    keep_together: Sequence[Sequence[str]] = (),
    answer: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[[], None]:
    """Prepares to run a script as `python SCRIPT ARGS...` would, with its training step placed.

    Args:
        script: a Python file.
        args: the arguments of the script.
        machine: the machine: "attached", "local:N", "numa", "grpc://HOST:PORT,..." or
            "emulated:NAME"; None for the machine of the search in `log_dir`, or else the attached
            one.
        placement: a placement file, or the directory of a search; None to search.
        log_dir: the directory of the search.
        search_secs: the time limit of the search; None for the limit of an earlier call, or else
            ten minutes.
        answers: the store of answers; see `SearchConfig`.
        require_answer: whether an answer of the store has to take the place of a search.
        clear_devices: whether the step is placed without the devices of the script.
        pin: devices by pattern; see `SearchConfig`.
        keep_together: sets of patterns; see `SearchConfig`.
        answer: called at the end of the script with JSON values about its placement.

    Returns:
        A function that runs the script and raises its errors.

    Raises:
        GraphError, MachineError, OSError, ValueError: an argument is invalid, or a file or the
            machine cannot be used.
        NoAnswerError: an answer is required, and there is none.
    """
    start = ProcessRestart()
    if search_secs is not None and not search_secs > 0:
        raise ValueError(f"--search_secs must be more than 0, not {search_secs:g}")
    if not os.path.isfile(script):
        raise FileNotFoundError(2, "no such script", script)
    pins, together = check_pins(pin or {}), check_keep_together(keep_together)
    if placement is not None and (pins or together):
        raise ValueError(
            "--pin and --keep_together are for a search: leave out --placement, which never does"
        )
    # Made here, because the script may change the working directory.
    directory = RunDirectory(log_dir)
    if machine is not None and machine.startswith(PREFIX) and not emulated.is_emulating(machine):
        start.restart(start.stage, emulated.make_environment(_find_machine(machine)))
    if find_emulated_spec() is not None:
        disable_keras_xla()
    remove_stale_directories(directory.path)
    # Programs must not take the answer for a former step for that of this one.
    compares = answer is not None or answers is not None
    has_store = answers is not None or require_answer
    watcher: ScriptWatcher | None = None

    def tell_of_search(line: str) -> None:
        # The step of the script may be another one.
        start.tell(f"the search in {os.fspath(directory.path)!r}: {line}")

    if start.stage is Stage.ORIGINAL:
        pass
    elif placement is not None:
        watcher = _place(
            os.path.abspath(placement),
            machine,
            script,
            require_answer,
            start,
            compares=compares,
            clear_devices=clear_devices,
            is_given=True,
        )
    elif not directory.has_request:
        check_writable(directory.path)
        check_own_step(directory)
        found = _find_machine(machine)
        restrictions = resolve_restrictions(pins, together, [each.name for each in found.devices])
        watcher = _seek(
            directory,
            found,
            search_secs,
            start,
            may_search=not require_answer,
            restrictions=restrictions,
            clear_devices=clear_devices,
        )
    else:
        _check_machine(directory, machine)
        restrictions = _check_restrictions(directory, pins, together)
        is_cleared = _check_clearing(directory, clear_devices=clear_devices)
        is_wanted = start.stage is Stage.FIRST and is_search_wanted(directory, search_secs)
        if is_wanted and needs_script(directory):
            watcher = _seek(
                directory,
                directory.read_machine(),
                search_secs,
                start,
                may_search=not require_answer,
                restrictions=restrictions,
                clear_devices=is_cleared,
            )
        elif is_wanted or (
            # The search of the directory is not repeated: its result goes into the store.
            start.stage is Stage.FIRST
            and not require_answer
            and is_answer_wanted(directory, answers, start.tell)
        ):
            try:
                with hide_start_up_messages():
                    search_for_step(
                        directory,
                        search_secs,
                        start.tell if is_wanted else tell_of_search,
                        answers=answers,
                        require_answer=require_answer,
                    )
            except NoAnswerError as error:
                # Programs get the error alone, so it has to tell of the change, too.
                change = f"{_CHANGED} {os.fspath(directory.path)!r}"
                has_changed = any(note.startswith(change) for note in start.notes)
                text = join_sentences(change if has_changed else None, str(error))
                missing = NoAnswerError(text)
                if answer is not None and has_changed:
                    values = _describe_run(script, directory, None, start.notes, missing)
                    answer({**values, "step_changed": True})
                raise missing from error
            start.restart(Stage.SEARCHED)
        else:
            # The restarted script has to find the same settings in its arguments.
            can_look_up_again = (
                require_answer
                and start.stage is Stage.FIRST
                and not directory.trials.exists()
                and (machine or _DEFAULT_MACHINE) == directory.read_machine().spec
                and (restrictions is None or bool(pins or together))
                and is_cleared == clear_devices
            )
            watcher = _place(
                os.fspath(directory.path),
                machine,
                script,
                require_answer,
                start,
                compares=compares,
                if_fastest=True,
                can_look_up_again=can_look_up_again,
            )
    if watcher is not None:
        instrument(watcher)
    source = directory if placement is None else _find_search(placement)

    def run() -> None:
        error: Exception | None = None
        try:
            _run(script, args, watcher, start, require_answer=require_answer)
        except Exception as raised:
            error = raised
            raise
        except SystemExit as ended:
            error = ended.__cause__ if isinstance(ended.__cause__, NoAnswerError) else None
            raise
        finally:
            if answer is not None:
                answer(
                    _describe_run(script, source, watcher, start.notes, error, has_store=has_store)
                )

    return run


def _run(
    script: str,
    args: Sequence[str],
    watcher: ScriptWatcher | None,
    start: ProcessRestart,
    *,
    require_answer: bool,
) -> None:
    """Runs a script, and has it fail if an answer is required and it has no step to look up.

    Raises:
        BaseException: the script has raised it.
        SystemExit: its cause is a NoAnswerError.
    """
    try:
        run_main_script(script, args)
    except SystemExit as ended:
        missing = _report_missing_step(script, watcher, start, is_required=require_answer)
        if require_answer and missing is not None and not ended.code:
            raise SystemExit(1) from NoAnswerError(missing)
        raise
    except Exception as error:
        if watcher is not None and watcher.may_have_broken:
            text = shorten_text(" ".join(f"{type(error).__name__}: {error}".split()))
            start.tell(f"{script} failed when placed, and is restarted without a placement: {text}")
            start.restart(Stage.ORIGINAL)
        advice = advise_on_former_tensorflow(error, script) or advise_on_missing_gpu(error)
        if advice is not None:
            _say_after_traceback(error, advice)
        raise
    missing = _report_missing_step(script, watcher, start, is_required=require_answer)
    if require_answer and missing is not None:
        raise SystemExit(1) from NoAnswerError(missing)


def _say_after_traceback(error: BaseException, line: str) -> None:
    """Has Python print a line after the traceback of an error that ends the process."""
    show = sys.excepthook

    def show_and_say(
        kind: type[BaseException], value: BaseException, trace: types.TracebackType | None
    ) -> None:
        show(kind, value, trace)
        if value is error:
            say(line)

    sys.excepthook = show_and_say


def _describe_run(
    script: str,
    directory: RunDirectory,
    watcher: ScriptWatcher | None,
    notes: Sequence[str],
    error: Exception | None,
    *,
    has_store: bool = False,
) -> dict[str, Any]:
    """Describes the placement of a script that has ended as JSON values.

    Args:
        script: the Python file.
        directory: the directory of its search, which may not be there.
        watcher: the watcher of the script; None if nothing was watched.
        notes: the lines that the user was told.
        error: the error that has ended the script; None if it has ended by itself.
        has_store: whether answers are looked up and kept.
    """
    # Imported after the script, which may set what NumPy reads when it is imported.
    from tf_placer.runs.result_values import make_result_values, read_result_values

    has_changed = None if watcher is None else watcher.has_changed_step
    unknown = {**make_result_values(log_dir=directory.path), "placement": None}
    try:
        # The result is of a former step if the step has changed or an answer is missing.
        is_missing = has_changed is True or isinstance(error, NoAnswerError)
        values = unknown if is_missing else read_result_values(directory)
    except (OSError, ValueError) as unreadable:
        values = unknown
        notes = [*notes, describe_error(unreadable)]
    return {
        **values,
        "placed": watcher is not None and watcher.has_placed,
        # The step of this run need not be that of the directory unless they were compared.
        "answer_kept": values["answer_kept"] if has_store and has_changed is False else None,
        "step_changed": has_changed,
        "script": script,
        "notes": [*notes],
        "error": None
        if error is None
        else {"kind": type(error).__name__, "message": shorten_text(str(error))},
    }


def _find_search(placement: str) -> RunDirectory:
    """Finds the directory of the search that a placement is of."""
    path = os.path.abspath(placement)
    return RunDirectory(path if os.path.isdir(path) else os.path.dirname(path))


def _report_missing_step(
    script: str, watcher: ScriptWatcher | None, start: ProcessRestart, *, is_required: bool
) -> str | None:
    """Says that no training step was found, if so, and returns what was said.

    Args:
        script: the script.
        watcher: the watcher of the script.
        start: what tells it.
        is_required: whether the run fails without an answer.
    """
    if watcher is None or watcher.is_explained:
        return None
    line = (
        f"{script} ran unchanged: no training step was found. That is one run of a session, "
        "one call of a tf.function or the fit of a Keras model that computes a loss from "
        "data and updates trainable variables or returns their gradients: what runs "
        "operation by operation has to be put into one tf.function"
    )
    if is_required:
        line += (
            ". An answer is required, so the run fails: leave out --require_answer where a script "
            "only evaluates"
        )
    start.tell(line)
    return line


def _seek(
    directory: RunDirectory,
    machine: Machine,
    search_secs: float | None,
    start: ProcessRestart,
    *,
    may_search: bool,
    restrictions: Restrictions | None,
    clear_devices: bool,
) -> ScriptWatcher | None:
    if len(machine.devices) < 2:
        start.tell(
            f"the machine has one device only, {machine.devices[0].name}: the script runs "
            "unchanged. --machine local:2 uses two worker processes, --machine grpc://HOST:PORT a "
            "cluster"
        )
        return None

    def make() -> Watcher:
        from tf_placer.scripts.training_step_detector import TrainingStepDetector

        return TrainingStepDetector(
            directory,
            machine,
            search_secs or _SEARCH_SECS,
            say=start.tell,
            restart=start.restart,
            may_search=may_search,
            restrictions=restrictions,
            clear_devices=clear_devices,
        )

    return ScriptWatcher(make, start.tell)


def _place(
    path: str,
    machine: str | None,
    script: str,
    require_answer: bool,
    start: ProcessRestart,
    *,
    compares: bool = False,
    clear_devices: bool = False,
    if_fastest: bool = False,
    can_look_up_again: bool = False,
    is_given: bool = False,
) -> ScriptWatcher | None:
    """Returns a watcher that places the step; None if there is no placement.

    Args:
        path: a placement file, or the directory of a search.
        machine: the machine that was asked for, if any.
        script: the Python file.
        require_answer: whether the script ends when its step is another one.
        start: the start of this process.
        compares: whether the step of the script is compared with that of the search where there
            is no placement.
        clear_devices: whether the script's devices give way to the placement.
        if_fastest: whether the script runs unplaced if one process on all cores is faster.
        can_look_up_again: whether an answer for a step that has changed is looked up, for which
            the directory forgets the former step.
        is_given: whether the user names the path by --placement.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(2, "no such placement", path)
    is_directory = os.path.isdir(path)
    directory = RunDirectory(path if is_directory else os.path.dirname(path))
    file = os.fspath(directory.placement) if is_directory else path
    if directory.has_request:
        _check_machine(directory, machine, is_given=is_given)
        found = directory.read_machine()
    elif is_directory and not directory.placement.exists():
        raise GraphError(f"{path!r} has no placement.json, and no search has begun there")
    else:
        found = _find_machine(machine)
    is_placed = os.path.exists(file)
    slower = _explain_slower(directory) if is_placed and if_fastest else None
    if is_placed:
        read_json(file)  # Refuses a damaged placement before the script runs.
    note = None
    if slower is not None:
        is_placed = False
        note = f"{script} runs unchanged: {slower}"
    elif not is_placed:
        why = _explain_unplaced(directory, is_given=is_given)
        if require_answer and directory.read_result() is None:
            raise NoAnswerError(f"no answer for {script}: {why}")
        note = f"{script} runs unchanged: {why}"
    if note is not None and not require_answer:
        start.tell(note)
        if not compares:
            return None
        note = None

    def look_up_again() -> None:
        start.tell(f"{_CHANGED} {path!r}: the script is restarted to look for an answer for it")
        forget_step(directory)
        start.restart(Stage.FIRST)

    def make() -> Watcher:
        from graph_passes.placement import read_placement
        from tf_placer.scripts.step_cache import read_cached_step
        from tf_placer.scripts.step_placer import StepPlacer

        step = read_cached_step(path)
        if clear_devices:
            step = dataclasses.replace(step, is_cleared=True)
        placement = read_placement(file) if is_placed else None
        return StepPlacer(
            step,
            placement,
            found,
            say=start.tell,
            must_fit=require_answer,
            unplaced_note=note,
            look_up_again=look_up_again if can_look_up_again else None,
            is_given=is_given,
        )

    return ScriptWatcher(make, start.tell)


def _explain_slower(directory: RunDirectory) -> str | None:
    """Explains that one process on all cores is faster than the placement; None if it is not."""
    result = directory.read_result()
    if result is None or not result.is_slower_than_one_process:
        return None
    placed_secs, secs = result.placed_secs, result.one_process_secs
    assert placed_secs is not None and secs is not None
    return (
        f"in one process on all cores a step took {format_step(secs)}, on workers "
        f"{format_step(placed_secs)} with the placement found; "
        f"--placement {os.fspath(directory.path)!r} has it placed nevertheless, and use another "
        "--log_dir if the step has changed"
    )


def _explain_unplaced(directory: RunDirectory, *, is_given: bool) -> str:
    # A user who names the directory by --placement has to leave that out, too.
    how = "another --log_dir, without --placement," if is_given else "another --log_dir"
    path = os.fspath(directory.path)
    refusal, result = read_refusal(directory), directory.read_result()
    if refusal is not None:
        return (
            f"its step cannot be searched for: {refusal.reason}; delete {path!r} to have it tried "
            "again"
        )
    if result is None:
        return f"the search in {path!r} has not ended; run without --placement to resume it"
    if result.outcome is Outcome.INTERRUPTED:
        return f"the search in {path!r} was interrupted; the next run resumes it"
    if not (result.is_complete or directory.trials.exists()):
        without = "--placement and --answers" if is_given else "--answers"
        return (
            f"an earlier search on such a machine found nothing faster; run without {without} and "
            f"with another --log_dir than {path!r} to search again"
        )
    found = "found nothing faster" if result.outcome.is_verdict else "came to no verdict"
    if result.has_placer_ended and explain_unkept(result) is None:
        # With more time, the search would end after the same trials.
        then = " and has no other placement to try; use"
    else:
        secs = "" if result.max_secs is None else f" of more than {result.max_secs:g}"
        then = f"; a --search_secs{secs} resumes it, and use"
    return f"the search in {path!r} {found}{then} {how} if the step has changed"


def _find_machine(spec: str | None) -> Machine:
    found = find_machine(spec)
    if not found.backend.is_timed:
        raise MachineError(
            f"machine {found.spec!r} is described, not attached: no script runs there"
        )
    return found


def _check_machine(directory: RunDirectory, machine: str | None, *, is_given: bool = False) -> None:
    """Checks that a search, which --placement names if `is_given`, is for the given machine."""
    spec = directory.read_machine().spec
    if machine is not None and machine != spec:
        _find_machine(machine)  # An unknown machine is the error, not the directory.
        how = "another --log_dir has the script searched for again"
        if is_given:
            how = (
                "leave out --machine to use it there; another --log_dir, without --placement, has "
                "the script searched for"
            )
        raise MachineError(
            f"{os.fspath(directory.path)!r} is a search for machine {spec!r}, not {machine!r}: "
            f"{how}"
        )


def _check_restrictions(
    directory: RunDirectory,
    pin: Mapping[str, str],
    keep_together: tuple[tuple[str, ...], ...],
) -> Restrictions | None:
    """Checks that a search is for the given pins, if any, and returns its own.

    Raises:
        GraphError, ValueError: it is for others.
    """
    searched = directory.read_restrictions()
    if not pin and not keep_together:
        return searched
    devices = [device.name for device in directory.read_machine().devices]
    if searched != resolve_restrictions(pin, keep_together, devices):
        raise ValueError(
            f"{os.fspath(directory.path)!r} is a search with other pins: another --log_dir has the "
            "script searched for again"
        )
    return searched


def _check_clearing(directory: RunDirectory, *, clear_devices: bool) -> bool:
    """Checks that a search clears the devices of the script if asked for; returns whether it does.

    Raises:
        ValueError: it keeps them.
    """
    is_cleared = directory.read_is_cleared()
    if clear_devices and not is_cleared:
        raise ValueError(
            f"{os.fspath(directory.path)!r} is a search with the devices of the script: another "
            f"--log_dir has the script searched for without them ({CLEARING_FLAG})"
        )
    return is_cleared
