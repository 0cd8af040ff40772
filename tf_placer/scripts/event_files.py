"""Event files of a script, which are whole when its process is restarted."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from typing import Any

__all__ = ["flush_event_files"]

# A file system that hangs must not keep the script from going on.
_MAX_SECS = 10.0


def flush_event_files() -> None:
    """Writes out the events that open writers of summaries hold, in full records.

    A restart runs no exit handlers, so that files would end within a record otherwise, which
    readers of event files refuse. Errors are ignored, as of a full disk.
    """
    tf: Any = sys.modules.get("tensorflow")
    if tf is None:
        return
    kinds = (tf.compat.v1.summary.FileWriter, tf.summary.SummaryWriter)
    # By the type itself: proxies of a script may run code where they are asked for their class.
    writers = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    if writers:
        thread = threading.Thread(target=_flush, args=(tf, writers), daemon=True)
        thread.start()
        thread.join(_MAX_SECS)


def _flush(tf: Any, writers: list[Any]) -> None:
    # Threads execute eagerly, unless the script has disabled that.
    is_eager = tf.executing_eagerly()
    for writer in writers:
        if is_eager or isinstance(writer, tf.compat.v1.summary.FileWriter):
            with contextlib.suppress(Exception):
                writer.flush()
