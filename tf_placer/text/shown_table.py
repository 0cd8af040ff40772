"""Results that `print` and notebooks show as their table."""

from __future__ import annotations

import abc
import html

__all__ = ["ShownTable"]

# Pages that are made of notebooks have another font for preformatted text.
_STYLE = "font-family: monospace; white-space: pre; overflow-x: auto"


class ShownTable(abc.ABC):
    """A result with a table, which `print` and notebooks show."""

    @abc.abstractmethod
    def table(self) -> str:
        """Formats the result for people, without a final newline."""

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return f'<pre style="{_STYLE}">{html.escape(self.table())}</pre>'
