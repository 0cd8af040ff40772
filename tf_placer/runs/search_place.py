"""Where a search has its files: in another place when no more can be written there."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable

from tf_placer.errors import error_text
from tf_placer.runs.run_directory import Request, RunDirectory

__all__ = ["SearchPlace"]


@dataclasses.dataclass(frozen=True)
class SearchPlace:
    """The directory of a search, and what a new one needs.

    Attributes:
        directory: of the search.
        request: what is asked.
        graph: a serialised GraphDef.
        session_config: the serialised ConfigProto of the user's sessions.
        say: called with a line for people.
    """

    directory: RunDirectory
    request: Request
    graph: bytes
    session_config: bytes
    say: Callable[[str], None]

    def of_log(self, error: OSError) -> pathlib.Path:
        """Moves the directory among the temporary files.

        Args:
            error: why.

        Returns:
            Where the log goes on.

        Raises:
            OSError: the error that it is given, where no file can be written there either.
        """
        try:
            self.directory.move(self.request, self.graph, self.session_config)
        except OSError:
            raise error from None
        path = os.fspath(self.directory.path)
        self.say(
            f"{error_text(error)}: from now on the search is in {path!r}, with all of its trials"
        )
        return self.directory.trials
