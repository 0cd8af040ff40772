"""Progress of a search in a notebook: one bar that is updated in place."""

from __future__ import annotations

import html
import sys
from typing import Any

from tf_placer.report.progress import format_progress
from tf_placer.search.budget import Progress
from tf_placer.search.callbacks import Callback
from tf_placer.search.trial_log import Trial

__all__ = ["NotebookProgress", "is_notebook"]


def is_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules


class NotebookProgress(Callback):
    """Shows the used share of the budget as a bar, with the last trial and the last note."""

    def __init__(self) -> None:
        """Displays nothing yet."""
        self._share = 0.0
        self._trial = self._note = ""
        self._display: Any = None

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Updates the bar and the line of the last trial."""
        by_secs = progress.elapsed_secs / max(progress.elapsed_secs + progress.eta_secs, 1e-9)
        self._share = max(by_secs, progress.trial_count / progress.budget.max_trials)
        self._trial = format_progress(trial, progress)
        self._show()

    def on_note(self, line: str) -> None:
        """Replaces the last note."""
        self._note = line
        self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        lines = "<br>".join(html.escape(line) for line in (self._trial, self._note) if line)
        bar = f'<progress value="{self._share:.3f}" max="1" style="width: 100%"></progress>'
        shown = HTML(f"{bar}<br><small>{lines}</small>")
        if self._display is None:
            self._display = display(shown, display_id=True)
        else:
            self._display.update(shown)
