"""Output in a notebook that is updated in place."""

from __future__ import annotations

from typing import Any

__all__ = ["UpdatedOutput"]


class UpdatedOutput:
    """HTML below a cell of a notebook, of which each takes the place of the one before."""

    def __init__(self) -> None:
        """Displays nothing yet."""
        self._display: Any = None

    @property
    def is_shown(self) -> bool:
        """True if something was displayed."""
        return self._display is not None

    def show(self, html: str) -> None:
        """Displays HTML in place of what was displayed before."""
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        if self._display is None:
            self._display = display(HTML(html), display_id=True)
        else:
            self._display.update(HTML(html))
