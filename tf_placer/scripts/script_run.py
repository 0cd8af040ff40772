"""Runs a script that stays as it is, with a training step that is placed.

What is kept in the directory of the search says how far it is: without a step the script runs until
it is about to train; with a step and no result there is a search; with a result the script runs
placed. Between these the process begins anew, so that each has the memory of GPUs for itself, and a
process that is killed goes on where it was.
"""

from __future__ import annotations

import functools
import os
import pathlib
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tf_placer.live.run_directory import RunDirectory, check_writable
from tf_placer.machines.local_cluster import LocalCluster, LocalClusterError
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.scratch import remove_scratch
from tf_placer.scripts.watched_runs import watch_runs
from tf_placer.start_up_messages import without_start_up_messages

__all__ = ["run_script", "search_directory"]


def search_directory(script: str) -> str:
    """Names the directory of a script's search where none is given: beside the script's output."""
    return f"{pathlib.Path(script).stem}.tf_placer"


def run_script(
    script: str,
    args: Sequence[str],
    *,
    machine: str | None,
    placement: str | None,
    log_dir: str,
    search_secs: float,
) -> None:
    """Runs a script as `python SCRIPT ARGS...` would, with its training step placed.

    Args:
        script: a Python file.
        args: its arguments.
        machine: where to place: "attached", "local:N" or "grpc://HOST:PORT,..."; None for the
            machine that was searched for, or else the attached one.
        placement: a placement file, or the directory of a search; None to search.
        log_dir: the directory of the search.
        search_secs: how long the search may take.

    Raises:
        SystemExit: as the script ends.
        GraphError, LogError, MachineError, SearchError, OSError: the step cannot be searched for;
            the script does not run then.
    """
    beginning = _Beginning(script, args)
    if not os.path.isfile(script):
        raise FileNotFoundError(2, "no such script", script)
    # The script may go elsewhere.
    directory = RunDirectory(log_dir)
    remove_scratch(directory.path)
    watching: _Watching | None = None
    if placement is not None:
        watching = _placing(os.path.abspath(placement), machine)
    elif not directory.has_request:
        check_writable(directory.path)
        watching = _seeking(directory, machine, search_secs, beginning)
    elif directory.read_result() is None:
        _check_machine(directory, machine)
        with without_start_up_messages():
            is_answered = _search(directory, search_secs)
        if is_answered:
            beginning.again(None)
    else:
        watching = _placing(os.fspath(directory.path), machine)
    if watching is not None:
        watch_runs(watching)
    try:
        _run(script, args)
    finally:
        if watching is not None:
            watching.say_if_no_step(script)


class _Beginning:
    """What the process was when it began, so that it can begin anew."""

    def __init__(self, script: str, args: Sequence[str]) -> None:
        self._directory, self._environ = os.getcwd(), dict(os.environ)
        self._script = [script, *args]

    def again(self, cluster: LocalCluster | None) -> NoReturn:
        """Begins anew. Nothing that the script has open is ended in any other way."""
        self._execute(sys.orig_argv[1:], cluster)

    def plainly(self, cluster: LocalCluster | None) -> NoReturn:
        """Begins anew as `python SCRIPT ARGS...`."""
        options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        self._execute([*options, *self._script], cluster)

    def _execute(self, args: Sequence[str], cluster: LocalCluster | None) -> NoReturn:
        if cluster is not None:
            cluster.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(self._directory)
        os.execve(sys.executable, [sys.executable, *args], self._environ)


class _Watching:
    """Makes what looks for steps when the script has imported TensorFlow, and has to do with it."""

    def __init__(
        self, machine: Machine, make: Callable[[_Watching], Any], *, connects: bool
    ) -> None:
        """Prepares to watch.

        Args:
            machine: where sessions go that name no target.
            make: makes what looks for steps.
            connects: whether functions and models may be placed on the machine.
        """
        self._machine, self._make, self._connects = machine, make, connects
        self.cluster: LocalCluster | None = None

    @functools.cached_property
    def _steps(self) -> Any:
        return self._make(self)

    def target(self) -> str:
        """Starts the servers of a machine "local:N" for the first session."""
        if self._machine.kind != "local":
            return self._machine.target
        if self.cluster is None:
            self.cluster = LocalCluster(self._machine)
            self.cluster.keep_until_exit()
            self.cluster.wait_until_ready()
        return self.cluster.target

    def eager_begins(self) -> None:
        """Connects to the machine while there is nothing yet that would be lost by that."""
        if self._connects:
            from tf_placer.functions.connection import connect

            try:
                connect(self._machine)
            except (MachineError, LocalClusterError) as error:
                _say(f"functions and models run as they came: {error}")

    def graph_extended(self, session: Any) -> None:
        """Passes it on."""
        self._steps.graph_extended(session)

    def session_runs(self, session: Any, fetches: Any, feeds: Mapping[Any, Any] | None) -> None:
        """Passes it on."""
        self._steps.session_runs(session, fetches, feeds)

    def function_called(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Passes it on."""
        placed: Callable[..., Any] | None = self._steps.function_called(function, args, kwargs)
        return placed

    def model_trains(
        self, model: Any, look: Callable[[Callable[[Any], Any]], Any]
    ) -> Callable[[Any], None] | None:
        """Passes it on."""
        take: Callable[[Any], None] | None = self._steps.model_trains(model, look)
        return take

    def say_if_no_step(self, script: str) -> None:
        """Says at the end of the script if it did not train."""
        if "_steps" not in vars(self) or not self._steps.is_explained:
            _say(
                f"{script} ran as it came: no training step was met. That is one run of a session, "
                "one call of a tf.function or the fit of a Keras model that computes a loss from "
                "data and updates trainable variables or returns their gradients: what runs "
                "operation by operation has to be put into one tf.function"
            )


def _seeking(
    directory: RunDirectory, machine: str | None, search_secs: float, beginning: _Beginning
) -> _Watching | None:
    # Now, when the script holds no memory of GPUs.
    found = find_machine(machine)
    if found.kind == "described":
        raise MachineError(
            f"machine {found.spec!r} is described, not attached: no script runs there"
        )
    if len(found.devices) < 2:
        _say(
            f"the machine has one device only, {found.devices[0].name}: the script runs as it "
            "came. --machine local:2 uses two worker processes, --machine grpc://HOST:PORT a "
            "cluster"
        )
        return None

    def make(watching: _Watching) -> Any:
        from tf_placer.scripts.step_seeker import StepSeeker

        return StepSeeker(
            directory,
            found,
            search_secs,
            say=_say,
            begin_again=lambda: beginning.again(watching.cluster),
            begin_plainly=lambda: beginning.plainly(watching.cluster),
        )

    return _Watching(found, make, connects=False)


def _placing(path: str, machine: str | None) -> _Watching:
    if not os.path.exists(path):
        raise FileNotFoundError(2, "no such placement", path)
    directory = RunDirectory(path if os.path.isdir(path) else os.path.dirname(path))
    if directory.has_request:
        _check_machine(directory, machine)
        found = directory.read_machine()
    else:
        found = find_machine(machine)

    def make(watching: _Watching) -> Any:
        del watching
        from tf_placer.scripts.kept_step import read_kept_step
        from tf_placer.scripts.step_placer import StepPlacer

        return StepPlacer(read_kept_step(path), found, say=_say)

    is_placed = directory.placement.exists() or not os.path.isdir(path)
    return _Watching(found, make, connects=is_placed)


def _check_machine(directory: RunDirectory, machine: str | None) -> None:
    """Makes sure that a search is for the machine that is asked for, if one is."""
    spec = directory.read_machine().spec
    if machine is not None and machine != spec:
        raise MachineError(
            f"{os.fspath(directory.path)!r} is a search for machine {spec!r}, not {machine!r}: "
            "another --log_dir has the script searched for again"
        )


def _search(directory: RunDirectory, search_secs: float) -> bool:
    """Searches for the step that is kept there; says whether there is a result to be used."""
    from tf_placer.live.optimization import optimize
    from tf_placer.scripts.kept_step import kept_source

    source, request, config = kept_source(directory)
    result = optimize(
        source,
        machine=request.machine,
        max_trials=request.max_trials,
        max_secs=search_secs,
        log_dir=directory.path,
        session_config=config,
    )
    for text in (result.table(), result.explanation_table()):
        if text:
            print(text, end="\n\n", file=sys.stderr)
    _say(f"{'placed' if result.changed else 'unchanged'} - {result.reason}")
    return directory.read_result() is not None


def _run(script: str, args: Sequence[str]) -> None:
    """Runs a script; its errors are shown as Python shows them."""
    sys.argv = [script, *args]
    # What `python -m` has put first is needed by what is imported later.
    sys.path.append(sys.path[0])
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        error = error.with_traceback(trace or error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)


def _say(line: str) -> None:
    print(f"tf_placer: {line}", file=sys.stderr, flush=True)
