"""Progress of a search in a notebook: one bar that is updated in place."""

from __future__ import annotations

import html
import math
import time

from tf_placer.report.progress import format_trial_and_best
from tf_placer.search.budget import Progress
from tf_placer.search.callbacks import Callback
from tf_placer.search.trial_log import Trial
from tf_placer.text.notebook import UpdatedOutput
from tf_placer.text.units import format_duration

__all__ = ["NotebookProgress"]

# The first word of the notes on interrupts.
_INTERRUPTED = "interrupted"
# The first word of the notes that a stage goes on, which are outdated by whatever follows.
_STILL = "still "


class NotebookProgress(Callback):
    """Shows the used share of the budget as a bar, with the last trial, last note and stage.

    The note that an interrupt was heard stays until another one. The times are beside the stage,
    because those of the last trial are soon outdated. At the end, all notes are there to unfold.
    """

    def __init__(self) -> None:
        """Displays nothing yet."""
        self._begin_secs, self._max_secs = time.monotonic(), math.inf
        self._trials_share = 0.0
        self._trial = self._interrupt = self._note = self._stage = ""
        self._notes: dict[str, None] = {}
        self._has_ended = False
        self._output = UpdatedOutput()

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Updates the bar and the line of the last trial."""
        self._begin_secs = time.monotonic() - progress.elapsed_secs
        self._max_secs = progress.elapsed_secs + progress.eta_secs
        self._trials_share = progress.trial_count / progress.budget.max_trials
        self._trial = format_trial_and_best(trial, progress)
        self._drop_outdated()
        self._show()

    def on_note(self, line: str) -> None:
        """Replaces the last note."""
        if not line.startswith(_STILL):
            self._notes[line] = None
        if line.startswith(_INTERRUPTED):
            self._interrupt = line
        else:
            self._note = line
        self._show()

    def on_stage(self, name: str) -> None:
        """Replaces the stage."""
        self._notes.pop(self._stage, None)
        self._stage = name
        self._drop_outdated()
        self._show()

    def finish(self, *, is_complete: bool = True, is_failed: bool = False) -> None:
        """Fills the bar, because searches mostly end before their time limit.

        Args:
            is_complete: whether the search came to its end; if not, the bar stays as it is.
            is_failed: whether the search ended with an error.
        """
        if self._output.is_shown:
            self._trials_share = 1.0 if is_complete else self._trials_share
            self._notes.pop(self._stage, None)
            self._stage, self._has_ended = "", True
            took = format_duration(time.monotonic() - self._begin_secs)
            ended = f"{'failed' if is_failed else 'ended'} after {took}"
            self._note = f"{_INTERRUPTED}, {ended}" if self._interrupt else ended
            self._interrupt = ""
            self._show()

    def _drop_outdated(self) -> None:
        if self._note.startswith(_STILL):
            self._note = ""

    def _show(self) -> None:
        used_secs, stage = time.monotonic() - self._begin_secs, self._stage
        note = "" if self._note == stage else self._note
        if stage and math.isfinite(self._max_secs):
            used, most = format_duration(used_secs), format_duration(self._max_secs)
            stage = f"{stage} | {used} of at most {most}"
        lines = "<br>".join(
            html.escape(line) for line in (self._trial, self._interrupt, note, stage) if line
        )
        secs_share = used_secs / max(self._max_secs, 1e-9)
        share = min(1.0, max(secs_share, self._trials_share))
        bar = f'<progress value="{share:.3f}" max="1" style="width: 100%"></progress>'
        self._output.show(f"{bar}<br><small>{lines}{self._fold_notes()}</small>")

    def _fold_notes(self) -> str:
        """Makes the notes of a search that has ended, folded; "" while it runs."""
        if not self._notes or not self._has_ended:
            return ""
        notes = "<br>".join(map(html.escape, self._notes))
        return f"<details><summary>notes: {len(self._notes)}</summary>{notes}</details>"
