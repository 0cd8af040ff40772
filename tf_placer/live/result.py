"""Results of searches for graphs, functions, models and SavedModels."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

from graph_passes.placement import Placement
from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.report.auto_table import explanation_table
from tf_placer.report.explanation import Explanation
from tf_placer.search.trial_log import ORIGINAL, Trial
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

_FAILED = "failed in the confirmation"


@dataclasses.dataclass(frozen=True, eq=False)
class OptimizeResult:
    """The result of placing a graph, and the base of all results.

    Attributes:
        graph_def: the graph, with devices if a faster placement was found, else the original; for
            functions, models and SavedModels the graph of their step.
        changed: whether the graph was changed.
        reason: the reason in one sentence.
        placement: the confirmed placement, or None.
        winner: the label of this placement in `confirmation`, or None.
        speedup: step time of the original / of the placed graph, as confirmed; None if they were
            not compared.
        speedup_interval: 95 % confidence interval of the speed-up.
        confirmation: original and finalists measured side by side, or None.
        finalists: by label, the best trials of the search, the original first.
        trials: all trials of the search.
        explanation: predicted and measured steps, the limits of the best placement, and its gains
            on other machines; None if the costs are unknown, or nothing ran.
        log_dir: the directory with the log, which resumes the search if given again; None if
            nothing was measured.
        kept: the day, "2026-11-28", of the search whose kept answer this is; None if this call
            searched.
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
    trials: tuple[Trial, ...] = ()
    log_dir: pathlib.Path | None = None
    explanation: Explanation | None = None
    kept: str | None = None

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
        """Compares original and finalists in a table for users; empty if no placement ran.

        Step times are the original's step time divided by the speed-ups: on a machine whose speed
        drifts, only ratios can be compared. The last column has the basis of a row.
        """
        rows = [
            [
                compared["label"],
                compared["trial"],
                "failed" if compared["step_secs"] is None else format_step(compared["step_secs"]),
                "1" if compared["label"] == ORIGINAL else _ratio(compared["speedup"]),
                _interval(compared["speedup_interval"]),
                compared["basis"],
            ]
            for compared in self._compare_finalists()
        ]
        headers = ["placement", "trial", "step", "speed-up", "95 % interval", ""]
        return table(headers, rows, "lrrrll") if rows else ""

    def to_json(self) -> dict[str, Any]:
        """Makes a JSON form for programs: the verdict, the finalists and the explanation."""
        return {
            "placed": self.changed,
            "reason": self.reason,
            "kept": self.kept,
            "winner": self.winner,
            "speedup": self.speedup,
            "speedup_interval": self.speedup_interval and list(self.speedup_interval),
            "original_secs": self.original_secs,
            "placed_secs": self.placed_secs,
            "placements": self._compare_finalists(),
            "trials": len(self.trials),
            "explanation": None if self.explanation is None else self.explanation.to_json(),
            "log_dir": None if self.log_dir is None else str(self.log_dir),
        }

    def _compare_finalists(self) -> list[dict[str, Any]]:
        """Compares original and finalists: label, trial, step, speed-up and their basis."""
        if not self.finalists:
            return []
        original = self.finalists[ORIGINAL].measurement.median_secs
        original_secs = self.original_secs or original
        rows = []
        for label, trial in self.finalists.items():
            searched_secs = trial.measurement.median_secs
            speedup, interval, basis = None, None, ""
            if label != ORIGINAL:
                if searched_secs and original:
                    speedup = original / searched_secs
                speedup, interval, basis = self._look_up_comparison(label, speedup)
            secs = original_secs / speedup if original_secs and speedup else searched_secs
            if label == ORIGINAL:
                secs = original_secs
            elif basis == _FAILED:
                secs = None
            rows.append(
                {
                    "label": label,
                    "trial": trial.index,
                    "step_secs": secs,
                    "speedup": 1.0 if label == ORIGINAL else speedup,
                    "speedup_interval": interval and list(interval),
                    "basis": basis,
                }
            )
        return rows

    def _look_up_comparison(
        self, label: str, searched: float | None
    ) -> tuple[float | None, tuple[float, float] | None, str]:
        """Returns the speed-up of a finalist, its interval and their basis."""
        comparison = self.confirmation.comparisons.get(label) if self.confirmation else None
        if comparison is None:
            return searched, None, "in the search"
        if label == self.winner and comparison.speedup is None:
            return None, None, "found: runs, as the original does not"
        if label == self.winner:
            return comparison.speedup, comparison.interval, "found: faster beyond the noise"
        if comparison.interval is not None:
            return comparison.speedup, comparison.interval, "not faster beyond the noise"
        if comparison.speedup is not None:
            return comparison.speedup, None, "one round"
        return None, None, _FAILED if comparison.reason.startswith("failed") else "runs"

    def explanation_table(self) -> str:
        """Formats the explanation for users; empty if there is none."""
        return "" if self.explanation is None else explanation_table(self.explanation)


@dataclasses.dataclass(frozen=True, eq=False)
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


@dataclasses.dataclass(frozen=True, eq=False)
class ModelResult(OptimizeResult):
    """The result of placing a Keras model.

    Attributes:
        step: the training step that was placed.
    """

    step: PlacedStep = dataclasses.field(kw_only=True)

    def apply(self, model: Any) -> None:
        """Puts the placement into a Keras model: its training step, its variables, its optimizer.

        Call it before `fit`; `evaluate` and `predict` run on the devices of the variables. Nothing
        happens if nothing faster was found. The variables stay the same objects; checkpoints and
        weights are saved and loaded as before.

        Args:
            model: the model that was placed, or another one that is built and compiled alike.

        Raises:
            GraphError: the model is not built or compiled, or is a different one.
            MachineError: this process is not connected to the cluster of the placement.
        """
        self.step.apply(model)


@dataclasses.dataclass(frozen=True, eq=False)
class SavedModelResult(OptimizeResult):
    """The result of placing a signature of a SavedModel.

    Attributes:
        step: the signature that was placed.
    """

    step: PlacedSignature = dataclasses.field(kw_only=True)

    @property
    def function(self) -> Any:
        """The signature as a function with its operations on their devices.

        It has variables of its own, on their devices, too. Reading this property starts the servers
        of a machine "local:N", which run until this process ends.

        Raises:
            MachineError: this process is not connected to the cluster of the placement.
        """
        return self.step.function

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the SavedModel with devices, or unchanged if nothing faster was found.

        Variables, assets and all other files of the SavedModel are copied. To put the variables
        on their devices, load it so:

            options = tf.saved_model.LoadOptions(
                experimental_variable_policy=(
                    tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES
                )
            )
            loaded = tf.saved_model.load(directory, options=options)

        Args:
            directory: a new one.

        Raises:
            GraphError: the directory exists, or cannot be written.
        """
        self.step.save(directory)


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
