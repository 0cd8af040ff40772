"""Curves of a search for TensorBoard."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from tf_placer.placers.update_record import UpdateRecord

__all__ = ["Scalars", "TrainingScalars"]


class Scalars:
    """Writes numbers to an event file."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Begins an event file.

        Args:
            directory: where it goes; made where it does not exist.

        Raises:
            OSError: it cannot be made.
        """
        self._directory = os.fspath(directory)
        os.makedirs(directory, exist_ok=True)
        with self._os_errors():
            self._writer = tf.summary.create_file_writer(self._directory)

    def write(self, points: Iterable[tuple[str, float, int]]) -> None:
        """Puts numbers into the file.

        Args:
            points: the name of the curve, the number, and the horizontal step of each.

        Raises:
            OSError: they cannot be written.
        """
        with self._os_errors(), self._writer.as_default():
            for tag, value, step in points:
                # Unlike what `tf.summary.scalar` writes, all readers of event files take simple
                # values for scalars; it would need TensorBoard to be installed, too.
                summary = tf.compat.v1.Summary()
                summary.value.add(tag=tag, simple_value=value)
                tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)
            self._writer.flush()

    def close(self) -> None:
        """Closes the file.

        Raises:
            OSError: what is left cannot be written.
        """
        with self._os_errors():
            self._writer.close()

    @contextlib.contextmanager
    def _os_errors(self) -> Iterator[None]:
        """TensorFlow's errors as those of other files."""
        try:
            yield
        except tf.errors.OpError as error:
            reason = re.sub(r"{{.*?}} ", "", error.message).splitlines()[0]
            raise OSError(f"cannot write to {self._directory!r}: {reason}") from error


class TrainingScalars:
    """Writes updates as scalars; a horizontal step is a placement that was observed.

    What an update did is under its kind ("ppo/loss"), so that two algorithms that take turns have
    curves of their own; what its batch was like is under "batch".
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Begins an event file; see `Scalars`."""
        self._scalars = Scalars(directory)

    def write(self, updates: Sequence[UpdateRecord]) -> None:
        """Puts updates into the file.

        Args:
            updates: those after what was written before.

        Raises:
            OSError: they cannot be written.
        """
        self._scalars.write(
            (tag, value, update.samples) for update in updates for tag, value in _scalars(update)
        )

    def close(self) -> None:
        """Closes the file.

        Raises:
            OSError: what is left cannot be written.
        """
        self._scalars.close()


def _scalars(update: UpdateRecord) -> Iterator[tuple[str, float]]:
    for name in ("loss", "gradient_norm", "entropy", "divergence"):
        value = getattr(update, name)
        if value is not None:
            yield f"{update.kind}/{name}", value
    for name in ("mean_reward", "baseline", "best_step_secs", "mean_step_secs", "failures"):
        value = getattr(update, name)
        if value is not None:
            # Controllers have batches and baselines of their own.
            batch = "batch" if update.controller is None else f"controller_{update.controller}"
            yield f"{batch}/{name}", value
    if update.staleness is not None:
        yield "weights/staleness", float(update.staleness)
