"""Results of searches for graphs, functions, models and SavedModels."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

from graph_passes.placement import Placement
from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.confirmation.outcome import Outcome
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.report.auto_table import explanation_table
from tf_placer.report.explanation import Explanation
from tf_placer.runs.compared_trials import (
    IN_ONE_PROCESS,
    IN_ONE_PROCESS_BASIS,
    ComparedTrial,
    compare_trials,
)
from tf_placer.runs.result_html import format_result_html
from tf_placer.runs.result_values import make_result_values
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import is_slower_than_one_process
from tf_placer.search.trial_log import ORIGINAL, Trial, best_trial
from tf_placer.text.notes import say
from tf_placer.text.table import table
from tf_placer.text.units import format_step

if TYPE_CHECKING:
    import os

    import tensorflow as tf

__all__ = [
    "FunctionResult",
    "ModelResult",
    "OptimizeResult",
    "SavedModelResult",
    "make_result",
]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OptimizeResult:
    """The result of placing a graph, and the base of all results.

    Attributes:
        graph_def: the graph, with devices if a faster placement was found, else the original; for
            functions, models and SavedModels the graph of their step.
        changed: whether the graph was changed.
        reason: the reason, in short sentences.
        placement: the confirmed placement, or None.
        winner: the label of this placement in `confirmation`, or None.
        speedup: step time of the original / of the placed graph, as confirmed; None if the graph
            is unchanged, or the original does not run.
        speedup_interval: 95 % confidence interval of the speed-up.
        confirmation: original and finalists measured side by side, or None.
        finalists: by label, the best trials of the search, the original first.
        unfitting: by placer, the number of its placements that were not measured because by
            simulation they do not fit.
        trials: all trials of the search.
        explanation: predicted and measured steps, the limits of the best placement, and its gains
            on other machines; None if the costs are unknown, or nothing ran.
        log_dir: the directory with the log, which resumes the search if given again; None if
            nothing was measured.
        kept: the day, "2026-11-28", of the search whose kept answer this is; None if this call
            searched.
        outcome: the outcome of the search.
        answer_kept: whether the store of answers has this result; None without a store.
        one_process_secs: step time of the original in one process on all cores, if the machine is
            worker processes that divide them; None if that was not measured.
    """

    graph_def: tf.compat.v1.GraphDef
    changed: bool
    reason: str
    placement: Placement | None = None
    winner: str | None = None
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    confirmation: Confirmation | None = None
    finalists: dict[str, Trial] = dataclasses.field(default_factory=dict)
    unfitting: dict[str, int] = dataclasses.field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    log_dir: pathlib.Path | None = None
    explanation: Explanation | None = None
    kept: str | None = None
    outcome: Outcome = Outcome.NOTHING_TO_PLACE
    answer_kept: bool | None = None
    one_process_secs: float | None = None

    @property
    def original_secs(self) -> float | None:
        """Step time of the original in the confirmation."""
        return self.confirmation.step_secs(ORIGINAL) if self.confirmation else None

    @property
    def placed_secs(self) -> float | None:
        """Step time of the placed graph, in the confirmation: `original_secs` by `speedup`."""
        if self.confirmation is None or self.winner is None:
            return None
        return self.confirmation.step_secs(self.winner)

    def table(self) -> str:
        """Compares original and finalists in a table for users; empty without trials.

        The columns have the step by measurements and by the simulator, if the costs of operations
        are known; the last column has the basis of a row. Placements that were not measured
        because by simulation they do not fit have a row for each placer, with their number. On a
        machine of worker processes the second row is the original in one process, if that was
        measured.
        """
        headers, rows = self._table_cells()
        alignment = "lrr" + "r" * (len(headers) - 5) + "ll"
        return table(headers, rows, alignment) if rows else ""

    def _table_cells(self) -> tuple[list[str], list[list[object]]]:
        """Returns the headers and rows of the table."""
        predicted = {}
        if self.explanation is not None:
            predicted = {each.label: each.predicted_secs for each in self.explanation.candidates}
        headers = ["placement", "trial", "step", "speed-up", "95 % interval", "basis"]
        rows: list[list[object]] = [
            [
                compared.label,
                compared.trial.index,
                "failed" if compared.step_secs is None else format_step(compared.step_secs),
                "1" if compared.label == ORIGINAL else _ratio(compared.speedup),
                _interval(compared.interval),
                compared.basis,
            ]
            for compared in self.compare_finalists()
        ]
        if rows and self.one_process_secs is not None:
            step = format_step(self.one_process_secs)
            rows.insert(1, [IN_ONE_PROCESS, "", step, "", "", IN_ONE_PROCESS_BASIS])
        if rows:
            rows += [
                [f"{name} ({count})", "", "", "", "", "does not fit, by simulation"]
                for name, count in self.unfitting.items()
            ]
        if any(predicted.values()):
            headers.insert(3, "predicted")
            for row in rows:
                secs = predicted.get(str(row[0]))
                row.insert(3, "" if secs is None else format_step(secs))
        return headers, rows

    def compare_finalists(self) -> tuple[ComparedTrial, ...]:
        """Compares original and finalists, the fastest first; the original if no other ran."""
        if not self.trials and not self.finalists:
            return ()
        finalists = self.finalists or {ORIGINAL: self.trials[0]}
        return compare_trials(finalists, self.confirmation, self.winner, self.outcome)

    def to_json(self) -> dict[str, Any]:
        """Makes a JSON form for programs: the verdict, the finalists and the explanation."""
        values = make_result_values(
            outcome=self.outcome,
            reason=self.reason,
            kept=self.kept,
            answer_kept=self.answer_kept,
            one_process_secs=self.one_process_secs,
            winner=self.winner,
            confirmation=self.confirmation,
            finalists=self.finalists,
            num_trials=len(self.trials),
            explanation=self.explanation,
            log_dir=self.log_dir,
        )
        return {**values, "placed": self.changed}

    def explanation_table(self) -> str:
        """Formats the explanation for users; empty if there is none."""
        if self.explanation is None:
            return ""
        return "\n".join(filter(None, [explanation_table(self.explanation), self._explain_bound()]))

    def _explain_bound(self) -> str:
        """Explains a lower bound above the fastest trial, in a sentence; else ""."""
        best = best_trial(self.trials)
        secs = None if best is None else best.measurement.median_secs
        if (
            best is None
            or secs is None
            or self.explanation is None
            or secs >= self.explanation.limits.lower_bound_secs
        ):
            return ""
        text = f"trial {best.index} took {format_step(secs)}, less than the lower bound: "
        before_secs, again_secs = self.trials[0].measurement.median_secs, self.original_secs
        if before_secs and again_secs and again_secs > before_secs:
            return (
                f"{text}the confirmation, which corrects the bound, was slower (the original took "
                f"{format_step(again_secs)} there, and {format_step(before_secs)} in the search)"
            )
        return f"{text}the bound is no more exact than predicted steps are"

    def __repr__(self) -> str:
        what = self.title
        if self.changed and self.speedup is None:
            what = "placed, and runs as the original does not"
        elif self.changed:
            what = f"placed, {self.speedup:.2f} times as fast"
        if self.is_slower_than_one_process:
            what += ", but slower than one process on all cores"
        return f"<{type(self).__name__}: {what}, {len(self.trials)} trials>"

    @property
    def is_slower_than_one_process(self) -> bool:
        """True if one process on all cores, without workers, runs the original clearly faster."""
        return is_slower_than_one_process(self.placed_secs, self.one_process_secs)

    def __str__(self) -> str:
        return "\n\n".join(filter(None, [self.table(), self.verdict]))

    @property
    def verdict(self) -> str:
        """The outcome and its reason, in short sentences."""
        return f"{self.title}: {self.reason}"

    @property
    def title(self) -> str:
        """The outcome in a word: "placed", "unchanged" or "no verdict"."""
        return "placed" if self.changed else self.outcome.title

    def _repr_html_(self) -> str:
        """Shows the verdict, the table and a picture of the placement in a notebook."""
        return format_result_html(self.verdict, *self._table_cells(), self.log_dir)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FunctionResult(OptimizeResult):
    """The result of placing a function.

    Attributes:
        step: the call that was placed.
    """

    step: PlacedStep = dataclasses.field(kw_only=True)

    @property
    def function(self) -> Any:
        """The function with its operations and variables on their devices.

        A tf.function for a tf.function, a ConcreteFunction for a ConcreteFunction, with the same
        signature and values; the function itself if nothing faster was found. Reading this property
        moves the variables and starts the servers of a machine "local:N", which run until this
        process ends.

        Raises:
            MachineError: this process is not connected to the cluster of the placement.
        """
        return self.step.function


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ModelResult(OptimizeResult):
    """The result of placing a Keras model.

    Attributes:
        step: the training step that was placed.
    """

    step: PlacedStep = dataclasses.field(kw_only=True)

    def apply(self, model: Any) -> None:
        """Puts the placement into a Keras model: its training step, its variables, its optimizer.

        Call it before `fit`; `evaluate` and `predict` run on the devices of the variables, and so
        does the validation in `fit`. Nothing happens if nothing faster was found. If one process on
        all cores was faster than the placement on worker processes, a line says so;
        `is_slower_than_one_process` tells before. The variables stay the same objects; checkpoints
        and weights are saved and loaded as before. To undo it, build the model anew, and load its
        weights.

        Args:
            model: the model that was placed, or another one that is built and compiled alike.

        Raises:
            GraphError: the model is not built or compiled, or is a different one.
            MachineError: this process is not connected to the cluster of the placement.
        """
        if self.is_slower_than_one_process:
            say(
                "the model trains on worker processes from now on; without them, in one process on "
                "all cores, its step was faster: for that build the model anew, and leave out "
                "result.apply"
            )
        if self.changed and self.step.machine.backend.starts_servers:
            say(
                "evaluate, predict and the validation in fit are not placed: they run on the "
                "workers that hold the variables, and may take longer than in this process"
            )
        self.step.apply(model)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SavedModelResult(OptimizeResult):
    """The result of placing signatures of a SavedModel.

    Attributes:
        step: the signatures that were placed.
    """

    step: PlacedSignature = dataclasses.field(kw_only=True)

    @property
    def function(self) -> Any:
        """The only signature as a function with its operations on their devices.

        It has variables of its own, on their devices, too. Reading this property starts the servers
        of a machine "local:N", which run until this process ends.

        Raises:
            GraphError: several signatures were placed.
            MachineError: this process is not connected to the cluster of the placement.
        """
        return self.step.function

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the SavedModel with devices, or unchanged if nothing faster was found.

        Variables, assets and all other files of the SavedModel are copied. Load it by
        `tf_placer.load_placed(directory)`, which puts the variables on their devices.

        Args:
            directory: a new one, or one that this search has written and nobody has changed.

        Raises:
            GraphError: another directory of this name exists, or it cannot be written.
            OSError, ValueError: a file in `log_dir` cannot be read.
        """
        record = None if self.log_dir is None else RunDirectory(self.log_dir).saved_models
        self.step.save(directory, record)


def make_result(step: PlacedStep | PlacedSignature | None, **values: Any) -> OptimizeResult:
    """Makes the result of the kind of the optimization target.

    Args:
        step: the step of a function, a model or a SavedModel; None for a graph.
        values: the fields of `OptimizeResult`.
    """
    if step is None:
        return OptimizeResult(**values)
    if isinstance(step, PlacedSignature):
        return SavedModelResult(**values, step=step)
    kind = ModelResult if step.traced.is_model else FunctionResult
    return kind(**values, step=step)


def _interval(value: tuple[float, float] | None) -> str:
    return "" if value is None else f"{value[0]:.3f} to {value[1]:.3f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}x"
