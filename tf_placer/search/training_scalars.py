"""Writers of curves for TensorBoard."""

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
        """Creates an event file.

        Args:
            directory: directory for the file, made if it does not exist.

        Raises:
            OSError: the file cannot be created.
        """
        self._directory = os.fspath(directory)
        os.makedirs(directory, exist_ok=True)
        with self._convert_errors():
            self._writer = tf.summary.create_file_writer(self._directory)

    def write(self, points: Iterable[tuple[str, float, int]]) -> None:
        """Appends points of curves to the file.

        Args:
            points: the name of the curve, the value, and the horizontal step of each point.

        Raises:
            OSError: the points cannot be written.
        """
        with self._convert_errors(), self._writer.as_default():
            for tag, value, step in points:
                # Not `tf.summary.scalar`, which needs TensorBoard to be installed, and whose values
                # some readers of event files do not take for scalars.
                summary = tf.compat.v1.Summary()
                summary.value.add(tag=tag, simple_value=value)
                tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)
            self._writer.flush()

    def close(self) -> None:
        """Closes the file.

        Raises:
            OSError: buffered points cannot be written.
        """
        with self._convert_errors():
            self._writer.close()

    @contextlib.contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Converts TensorFlow's errors to OSError."""
        try:
            yield
        except tf.errors.OpError as error:
            reason = re.sub(r"{{.*?}} ", "", error.message).splitlines()[0]
            raise OSError(f"cannot write to {self._directory!r}: {reason}") from error


class TrainingScalars:
    """Writes updates of a placer as scalars, by the number of observed placements.

    The statistics of an update are under its kind ("ppo/loss"), so that two algorithms that take
    turns have separate curves; the statistics of its batch are under "batch".
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Creates an event file; see `Scalars`."""
        self._scalars = Scalars(directory)

    def write(self, updates: Sequence[UpdateRecord]) -> None:
        """Appends updates to the file.

        Args:
            updates: the new updates.

        Raises:
            OSError: the updates cannot be written.
        """
        self._scalars.write(
            (tag, value, update.samples) for update in updates for tag, value in _scalars(update)
        )

    def close(self) -> None:
        """Closes the file.

        Raises:
            OSError: buffered points cannot be written.
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
            # Each controller has its own batches and baseline.
            batch = "batch" if update.controller is None else f"controller_{update.controller}"
            yield f"{batch}/{name}", value
    if update.staleness is not None:
        yield "weights/staleness", float(update.staleness)
