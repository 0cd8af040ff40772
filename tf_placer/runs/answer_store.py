"""A store of finished answers, by the structure of the step and the machine that they are for.

    store = AnswerStore(config.answers, workload, config)
    store.look_up()         # the answer that was kept for this step on this machine, or None
    store.find_similar()    # a placement of this step like that of a similar step, or None
    store.keep(result, finalists, placement)

An answer is one JSON file, named by a hash of the machine (see `compute_machine_identity`) and the
canonical form of the step (see `find_canonical_form`). Names of operations do not count.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import hashlib
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from graph_passes.canonical_form import CanonicalForm, find_canonical_form
from graph_passes.colocation import ColocationGroups, find_colocation_groups
from graph_passes.devices import device_type_of
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.grouping.single_groups import single_groups
from graph_passes.placement import Placement, assignment_of, operation_groups
from graph_passes.restricted_colocation import restrict_colocation
from graph_passes.util.atomic_write import remove_unfinished_files
from graph_passes.util.json_records import check_format, read_record
from tf_placer.errors import describe_error
from tf_placer.files import read_json, write_json
from tf_placer.inputs.workload import Workload
from tf_placer.machines.machine_identity import compute_machine_identity
from tf_placer.report.explanation import Explanation
from tf_placer.runs.run_result import RunResult
from tf_placer.runs.verdict import explain_unkept
from tf_placer.search.config import DEFAULT_ANSWERS, SearchConfig, find_answers
from tf_placer.search.trial_log import ORIGINAL, Trial
from tf_placer.text.sentences import join_sentences

__all__ = ["Answer", "AnswerStore", "Similarity"]

_FORMAT = 1
# Only files that begin so are removed, because users may name any directory.
_CONTENT = "an answer of tf_placer"
_BEGIN = f'{{"content": "{_CONTENT}"'.encode()
_FILE_NAME = re.compile("[0-9a-f]{16}_[0-9a-f]{48}[.]json")
_MAX_BYTES = 100_000_000
# A placement of a step that has less in common is no better start than a baseline.
_LEAST_COMMON_SHARE = 0.5
_MAX_COMPARED = 16
# Modes of new directories.
_PRIVATE, _BY_UMASK = 0o700, 0o777


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """A kept answer for a step.

    Attributes:
        day: the day of the search in UTC, "2026-11-28".
        result: the result of the search, with a note that it was kept.
        finalists: the finalists of the search by label.
        placement: the placement of this step; None if nothing was faster.
    """

    day: str
    result: RunResult
    finalists: Mapping[str, Trial]
    placement: Placement | None


@dataclasses.dataclass(frozen=True)
class Similarity:
    """The comparison of a step with that of a kept answer.

    Attributes:
        common_share: the share of the step's operations that have a counterpart, 0 to 1.
        num_operations: number of operations of the step.
        num_kept_operations: number of operations of the step of the answer.
        is_one_in_the_other: whether all operations of one of them are in the other, with the same
            attributes and inputs: only what is fetched, fed or pinned differs.
        batch_sizes: the batch size of the step and that of the answer, if what is fed differs in
            nothing else; None otherwise.
    """

    common_share: float
    num_operations: int
    num_kept_operations: int
    is_one_in_the_other: bool
    batch_sizes: tuple[int, int] | None


@dataclasses.dataclass(frozen=True, eq=False)
class _Record:
    """The content of a file.

    Attributes:
        kept: the time of the search, ISO 8601 in UTC.
        placer: the placer of the search.
        placer_options: its settings that differ from the defaults.
        result: the result.
        finalists: the finalists by label.
        operations: the names of the operations of the step, in canonical order.
        labels: their labels; see `CanonicalForm`.
        placed: the positions of operations in this order, by the device that they are placed on.
        measurement: the measurement of the placement.
        provenance: the provenance of the placement.
        feed_shapes: the shape of each fed tensor, by its name; empty in files of earlier versions.
    """

    kept: str
    placer: str
    placer_options: Mapping[str, Any]
    result: RunResult
    finalists: Mapping[str, Trial]
    operations: tuple[str, ...]
    labels: tuple[str, ...]
    placed: Mapping[str, tuple[int, ...]]
    measurement: Mapping[str, Any]
    provenance: Mapping[str, Any]
    feed_shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the fields against each other.

        Raises:
            ValueError: they do not agree.
        """
        datetime.datetime.fromisoformat(self.kept)
        if self.result.explanation is not None:
            Explanation.from_json(self.result.explanation)
        positions = [position for each in self.placed.values() for position in each]
        known = range(len(self.operations))
        if len(set(positions)) < len(positions) or not all(each in known for each in positions):
            raise ValueError("'placed' has a position twice, or one that is not there")
        if len(self.labels) != len(self.operations):
            raise ValueError("'labels' and 'operations' do not agree")
        if self.finalists.keys() != self.result.finalists.keys() or (
            self.finalists and ORIGINAL not in self.finalists
        ):
            raise ValueError("'finalists' and 'result' do not agree")

    def find_devices(self) -> list[str | None]:
        """Lists the device of each operation; None for one that is not placed."""
        devices: list[str | None] = [None] * len(self.operations)
        for device, positions in self.placed.items():
            for position in positions:
                devices[position] = device
        return devices


class AnswerStore:
    """The kept answers, for one step on one machine.

    Files are written atomically, so several processes may use a store at a time; of two answers for
    the same step the later one stays. Files that cannot be read are ignored with a warning. The
    answers that were used longest ago are removed when all together have more than 100 MB.
    """

    def __init__(
        self, directory: str | os.PathLike[str], workload: Workload, config: SearchConfig
    ) -> None:
        """Stores the arguments; nothing is read yet.

        Args:
            directory: the directory of the store, or `DEFAULT_ANSWERS` for that of the user.
            workload: the graph and its step.
            config: the settings of the search, with the machine and the session configuration that
                were found.
        """
        self.path = find_answers(directory)
        self._workload, self._config = workload, config
        self._graph = workload.op_graph
        self._devices = tuple(device.name for device in config.found_machine.devices)

    @property
    def has_choice(self) -> bool:
        """True if the step has operations that are not pinned."""
        groups = self._colocation.group[self._graph.needed]
        return not self._colocation.pinned[groups].all()

    def look_up(self) -> Answer | None:
        """Finds the answer for this step on this machine.

        An answer that nothing is faster is one for the same placer, with the same settings, and as
        much time and as many trials at most, unless no search may follow. The placement of an
        answer is checked to be legal for the graph.

        Returns:
            The answer; None if there is none.
        """
        record = self._read(self._file)
        if record is None:
            return None
        placement = None
        if record.result.winner is not None:
            assignment = self._assign(record)
            if assignment is None:
                logging.warning("%s is not used: its placement is not legal here", self._file)
                return None
            placement = Placement(
                graph_fingerprint(self._workload.graph_def),
                self._devices,
                assignment,
                record.measurement,
                {**record.provenance, "kept": record.kept},
            )
        elif not self._config.require_answer and not self._is_enough(record):
            return None
        with contextlib.suppress(OSError):  # A store may be read-only.
            os.utime(self._file)
        day = record.kept[:10]
        notes = [record.result.note, f"kept answer of {day}, not measured again"]
        result = dataclasses.replace(
            record.result,
            note=join_sentences(*notes),
            kept=day,
            answer_kept=True,
            answer_store=str(self.path),
        )
        return Answer(day, result, record.finalists, placement)

    def find_similar(self) -> Placement | None:
        """Finds a placement of this step like that of the most similar step on this machine.

        Operations of the two steps correspond if they have the same name, or else the same label.

        Returns:
            The placement, which need not be legal; None if no kept placement is for a step that has
            half of the operations.
        """
        found, most = None, _LEAST_COMMON_SHARE * len(self._form.operations)
        for file in self._list_files(f"{self._machine}_*.json")[:_MAX_COMPARED]:
            record = self._read(file)
            if record is None or record.result.winner is None:
                continue
            common = self._match(record)
            if len(common) > most:
                most = len(common)
                share = most / len(self._form.operations)
                found = Placement(
                    "",
                    self._devices,
                    {name: device for name, device in common.items() if device in self._devices},
                    provenance={"file": str(file), "kept": record.kept, "common": share},
                )
        return found

    def compare_most_similar(self) -> Similarity | None:
        """Compares the step with that of the most similar answer on this machine.

        Returns:
            The comparison; None if there is no answer for the machine, or one for the very step,
            which is not thorough enough or not legal here.
        """
        if self._file.exists():
            return None
        num_operations = len(self._form.operations)
        compared = [
            Similarity(
                len(self._match(record)) / max(num_operations, 1),
                num_operations,
                len(record.operations),
                _is_one_in_the_other(self._form.labels, record.labels),
                _find_batch_sizes(self._feed_shapes, record.feed_shapes),
            )
            for file in self._list_files(f"{self._machine}_*.json")[:_MAX_COMPARED]
            if (record := self._read(file)) is not None
        ]
        # The same operations, fetched or fed otherwise, are closer than others of these names.
        return max(
            compared,
            key=lambda each: (each.common_share, each.is_one_in_the_other),
            default=None,
        )

    def keep(
        self, result: RunResult, finalists: Mapping[str, Trial], placement: Placement | None
    ) -> bool:
        """Keeps the answer of a search that has ended by itself with a verdict.

        Other results are left out, and those after which a placement may still be faster. An
        answer that cannot be written causes a warning.

        Args:
            result: the result.
            finalists: its finalists by label.
            placement: the placement that was found, or None.

        Returns:
            Whether the answer is kept.
        """
        if explain_unkept(result) is not None:
            return False
        operations = [self._graph.names[i] for i in self._form.operations.tolist()]
        placed: dict[str, list[int]] = {}
        for position, name in enumerate(operations):
            if placement is not None and name in placement.assignment:
                placed.setdefault(placement.assignment[name], []).append(position)
        settings = self._config.to_json()
        value = {
            "content": _CONTENT,
            "format": _FORMAT,
            "kept": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "placer": settings["placer"],
            "placer_options": settings["placer_options"],
            # The report alone needs the device of each group of the original.
            "result": dataclasses.replace(result, original_assignment=None).to_json(),
            "finalists": {label: trial.to_json() for label, trial in finalists.items()},
            "operations": operations,
            "labels": self._form.labels,
            "placed": placed,
            "measurement": {} if placement is None else placement.measurement,
            "provenance": {} if placement is None else placement.provenance,
            "feed_shapes": self._feed_shapes,
        }
        try:
            # A directory that the user names may be for colleagues, as the umask says.
            mode = _PRIVATE if self.path == find_answers(DEFAULT_ANSWERS) else _BY_UMASK
            self.path.mkdir(parents=True, exist_ok=True, mode=mode)
            remove_unfinished_files(self.path)
            write_json(self._file, value)
            self._remove_oldest()
        except (OSError, ValueError) as error:
            logging.warning("the answer is not kept: %s", describe_error(error))
            return False
        return True

    @functools.cached_property
    def _colocation(self) -> ColocationGroups:
        colocation = find_colocation_groups(self._graph)
        return restrict_colocation(self._graph, colocation, self._config.restrictions)

    @functools.cached_property
    def _form(self) -> CanonicalForm:
        step = self._workload.step
        filling = [name for runner in step.queue_runners for name in runner.enqueue]
        return find_canonical_form(
            self._graph, self._colocation, [*step.fetches, *filling], step.feeds
        )

    @property
    def _feed_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: np.shape(value) for name, value in self._workload.step.feeds.items()}

    @functools.cached_property
    def _machine(self) -> str:
        config = self._config
        machine = compute_machine_identity(config.found_machine, config.found_session_config)
        if config.goal:
            # An answer within other limits, or that merely fits, answers another question.
            goal = json.dumps([machine, config.goal], sort_keys=True)
            machine = hashlib.sha256(goal.encode()).hexdigest()
        return machine[:16]

    @property
    def _file(self) -> pathlib.Path:
        return self.path / f"{self._machine}_{self._form.digest[:48]}.json"

    def _read(self, file: pathlib.Path) -> _Record | None:
        """Reads a file; returns None, with a warning, if it is damaged."""
        try:
            value = read_json(file)
            check_format(value, _FORMAT)
            return read_record(_Record, value)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logging.warning("%s is not used: it is no answer that can be read: %s", file, error)
            return None

    def _is_enough(self, record: _Record) -> bool:
        """Says whether a search that found nothing was as thorough as the one asked for."""
        settings, result = self._config.to_json(), record.result
        max_secs = math.inf if result.max_secs is None else result.max_secs
        return (
            record.placer == settings["placer"]
            and record.placer_options == json.loads(json.dumps(settings["placer_options"]))
            and self._config.max_trials <= result.max_trials
            and self._config.max_secs <= max_secs
        )

    def _assign(self, record: _Record) -> dict[str, str] | None:
        """Finds the device of each operation; None if that of a colocation group is not legal."""
        colocation, graph = self._colocation, self._graph
        if len(record.operations) != len(self._form.operations):
            return None
        device_of: dict[int, str] = {}
        groups = colocation.group[self._form.operations].tolist()
        for group, device in zip(groups, record.find_devices(), strict=True):
            if device is not None and device_of.setdefault(group, device) != device:
                return None
        needed = np.unique(colocation.group[graph.needed])
        if set(device_of) != set(needed[~colocation.pinned[needed]].tolist()):
            return None
        grouping = single_groups(graph, colocation)
        row = np.zeros(grouping.num_groups, np.int32)
        for group, device in device_of.items():
            is_here = device == colocation.required.get(group, device) and device in self._devices
            if not is_here or not colocation.legal[device_type_of(device)][group]:
                return None
            row[grouping.group[group]] = self._devices.index(device)
        # Operations outside of the step follow those that read them, as in a search.
        followed = operation_groups(graph, colocation, grouping)
        return assignment_of(graph.names, followed, self._devices, row)

    def _match(self, record: _Record) -> dict[str, str | None]:
        """Matches operations of another step with those of this one.

        Returns:
            The device of each operation that has a counterpart, by its name here.
        """
        devices = record.find_devices()
        by_name = dict(zip(record.operations, devices, strict=True))
        names = [self._graph.names[i] for i in self._form.operations.tolist()]
        common = {name: by_name[name] for name in names if name in by_name}
        by_label: dict[str, collections.deque[str | None]] = {}
        for name, label, device in zip(record.operations, record.labels, devices, strict=True):
            if name not in common:
                by_label.setdefault(label, collections.deque()).append(device)
        for name, label in zip(names, self._form.labels, strict=True):
            if name not in common and by_label.get(label):
                common[name] = by_label[label].popleft()
        return common

    def _list_files(self, pattern: str) -> list[pathlib.Path]:
        """Lists the files of answers, those that were used last first."""
        used_secs: dict[pathlib.Path, float] = {}
        for file in self.path.glob(pattern):
            if _FILE_NAME.fullmatch(file.name):
                with contextlib.suppress(OSError):  # Another process may remove files.
                    used_secs[file] = file.stat().st_mtime
        return sorted(used_secs, key=lambda file: (-used_secs[file], file.name))

    def _remove_oldest(self) -> None:
        """Removes answers, those that were used longest ago first, until the others are few."""
        num_bytes = 0
        for file in self._list_files("*.json"):
            with contextlib.suppress(OSError):
                num_bytes += file.stat().st_size
                if num_bytes > _MAX_BYTES and _is_own(file):
                    file.unlink()


def _is_one_in_the_other(labels: Sequence[str], others: Sequence[str]) -> bool:
    """Returns whether all labels of one of two steps are labels of the other."""
    counts, other_counts = collections.Counter(labels), collections.Counter(others)
    return counts <= other_counts or other_counts <= counts


def _find_batch_sizes(
    shapes: Mapping[str, tuple[int, ...]], others: Mapping[str, tuple[int, ...]]
) -> tuple[int, int] | None:
    """Finds the batch sizes of two steps whose feeds have the same shapes but for the batch."""
    # The names may differ, but keep their order where only a prefix does.
    ordered, others_ordered = ([each[name] for name in sorted(each)] for each in (shapes, others))
    # The sizes of a shape without the first one; the number of dimensions tells scalars apart.
    rests, others_rests = (
        [(len(shape), shape[1:]) for shape in each] for each in (ordered, others_ordered)
    )
    if rests != others_rests:
        return None
    differing = {
        (shape[0], other[0])
        for shape, other in zip(ordered, others_ordered, strict=True)
        if shape != other
    }
    return differing.pop() if len(differing) == 1 else None


def _is_own(file: pathlib.Path) -> bool:
    with open(file, "rb") as opened:
        return opened.read(len(_BEGIN)) == _BEGIN
