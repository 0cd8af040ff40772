"""Tests of the store of answers."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import pathlib
import stat
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.colocation import find_colocation_groups
from graph_passes.placement import Placement
from tests.graph_parts import new_graph
from tests.tf_placer.scripted import confirmation, run_result, search_config, trial
from tf_placer.confirmation.outcome import Outcome
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.runs import answer_store
from tf_placer.runs.answer_store import AnswerStore
from tf_placer.search.config import DEFAULT_ANSWERS
from tf_placer.search.trial_log import ORIGINAL

tf1 = tf.compat.v1
FIRST, SECOND = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))


def build(prefix: str = "", *, depth: int = 4, batch: int = 5, scale: float = 0.5) -> Workload:
    """Builds two chains of products from one input, with a variable each."""
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [None, 3], name=f"{prefix}x")
        ends = []
        for tower in range(2):
            weights = tf1.get_variable(f"{prefix}w{tower}", [3, 3], use_resource=True)
            value = x
            for k in range(depth):
                value = tf.matmul(value, weights, name=f"{prefix}t{tower}_{k}")
            ends.append(tf.reduce_sum(value, name=f"{prefix}t{tower}_end"))
        loss = tf.multiply(tf.add_n(ends), scale, name=f"{prefix}loss")
    return read_workload(graph, [loss.name], {x: np.zeros([batch, 3], np.float32)})


def place(workload: Workload, prefix: str = "") -> Placement:
    """Places the second tower on the second device."""
    graph = workload.op_graph
    colocation = find_colocation_groups(graph)
    second = {
        int(colocation.group[i])
        for i, name in enumerate(graph.names)
        if name.startswith((f"{prefix}t1", f"{prefix}w1"))
    }
    assignment = {
        name: SECOND if colocation.group[i] in second else FIRST
        for i, name in enumerate(graph.names)
        if graph.needed[i] and not colocation.pinned[colocation.group[i]]
    }
    return Placement("made by hand", (FIRST, SECOND), assignment, {"speedup": 1.25}, {"trial": 1})


FASTER = run_result(Outcome.FASTER, confirmed=confirmation({"auto": 1.25}), winner="auto")
NOT_FASTER = run_result(Outcome.NOT_FASTER, confirmed=confirmation({"auto": 1.0}))
FINALISTS = {ORIGINAL: trial(0, None), "auto": trial(1, [0, 1], 0.08)}


def keep_in_process(directory: str, number: int) -> None:
    workload = build()
    for _ in range(5):
        AnswerStore(directory, workload, search_config()).keep(FASTER, FINALISTS, place(workload))
        found = AnswerStore(directory, workload, search_config()).look_up()
        assert found is not None, number


class AnswerStoreTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path) / "answers"

    def open(self, workload: Workload, **changes) -> AnswerStore:
        return AnswerStore(self.directory, workload, search_config(**changes))

    def keep_placed(self, **changes) -> pathlib.Path:
        """Keeps an answer, and returns its file."""
        workload = build()
        self.open(workload, **changes).keep(FASTER, FINALISTS, place(workload))
        [file] = self.directory.iterdir()
        return file

    def test_leaves_out_a_result_after_which_a_placement_may_be_faster(self):
        noisy = run_result(Outcome.NOT_FASTER, confirmed=confirmation({"auto": 1.02}, noise=0.1))
        self.assertFalse(self.open(build()).keep(noisy, FINALISTS, None))
        self.assertEmpty(list(self.directory.glob("*")))

    def test_finds_the_answer_of_the_same_step(self):
        self.keep_placed()
        workload = build()
        answer = self.open(workload).look_up()
        # Initial values and the like, outside of the step, follow what reads them.
        found = {
            name: device
            for name, device in answer.placement.assignment.items()
            if workload.op_graph.needed[workload.op_graph.index[name]]
        }
        self.assertEqual(found, dict(place(workload).assignment))
        self.assertEqual(answer.placement.measurement, {"speedup": 1.25})
        self.assertEqual(answer.placement.provenance["trial"], 1)
        self.assertEqual(answer.result.winner, "auto")
        self.assertEqual(answer.result.confirmation, FASTER.confirmation)
        self.assertEqual(answer.finalists, FINALISTS)
        self.assertEqual(answer.result.note, f"kept answer of {answer.day}, not measured again")

    def test_finds_the_answer_of_a_step_with_other_names(self):
        self.keep_placed()
        # In the order of names, the towers are behind the rest here.
        renamed = build("z/")
        answer = self.open(renamed).look_up()
        for name, device in place(renamed, "z/").assignment.items():
            self.assertEqual(answer.placement.assignment[name], device, name)

    def test_finds_the_answer_of_a_step_with_other_numbers(self):
        self.keep_placed()
        self.assertIsNotNone(self.open(build(scale=0.25)).look_up())

    def test_another_step_or_machine_is_a_miss(self):
        self.keep_placed()
        for workload in (build(depth=5), build(batch=6)):
            self.assertIsNone(self.open(workload).look_up())
        config = tf1.ConfigProto(inter_op_parallelism_threads=1)
        self.assertIsNone(self.open(build(), session_config=config).look_up())
        with mock.patch.object(answer_store, "compute_machine_identity", return_value="f" * 64):
            self.assertIsNone(self.open(build()).look_up())

    def test_an_answer_is_one_for_the_same_pins(self):
        self.keep_placed()
        workload = build()
        for pins in (
            {"pin": {"t1_*": SECOND}},
            {"pin": {"t0_*": SECOND}},
            {"keep_together": [["t0_*", "t1_*"]]},
        ):
            self.assertIsNone(self.open(workload, **pins).look_up())
        pinned = self.open(workload, pin={"t1_*": "/task:1"})
        pinned.keep(FASTER, FINALISTS, place(workload))
        self.assertEqual(pinned.look_up().result.winner, "auto")
        # Names do not count, as without pins.
        self.assertIsNotNone(self.open(build("z/"), pin={"z/t1_*": SECOND}).look_up())
        self.assertIsNone(self.open(build("z/"), pin={"z/t1_*": FIRST}).look_up())
        self.assertIsNotNone(self.open(workload).look_up())

    def test_only_verdicts_of_complete_searches_are_kept(self):
        workload = build()
        for result in (
            dataclasses.replace(FASTER, is_complete=False),
            run_result(Outcome.NOT_CONFIRMED),
            run_result(Outcome.NO_TIME),
            run_result(Outcome.NOTHING_RUNS),
            run_result(Outcome.INTERRUPTED),
        ):
            self.open(workload).keep(result, {}, None)
        self.assertFalse(self.directory.exists())

    def test_nothing_faster_is_an_answer_for_searches_that_are_no_longer(self):
        self.open(build()).keep(NOT_FASTER, FINALISTS, None)
        answer = self.open(build("z/")).look_up()
        self.assertIsNone(answer.placement)
        self.assertEqual(answer.result.outcome, Outcome.NOT_FASTER)
        self.assertIsNotNone(self.open(build(), max_secs=10.0, max_trials=3).look_up())
        for change in ({"max_secs": 61.0}, {"max_trials": 101}, {"placer": "expert"}):
            self.assertIsNone(self.open(build(), **change).look_up(), change)
            # It is the best answer there is if no search may follow.
            self.assertIsNotNone(self.open(build(), require_answer=True, **change).look_up())
        # A faster placement is one, whoever has found it.
        self.open(build()).keep(FASTER, FINALISTS, place(build()))
        self.assertIsNotNone(self.open(build(), max_secs=61.0, placer="expert").look_up())

    def test_settings_of_the_placer_survive_json(self):
        options = {"placer": "post", "placer_options": {"batch_size": 4}}
        self.open(build(), **options).keep(NOT_FASTER, FINALISTS, None)
        self.assertIsNotNone(self.open(build(), **options).look_up())
        self.assertIsNone(self.open(build(), placer="post").look_up())

    def test_a_damaged_file_is_a_miss_with_a_warning(self):
        file = self.keep_placed()
        text = file.read_text()

        def edit(**entries) -> str:
            return json.dumps({**json.loads(text), **entries})

        placed = json.loads(text)["placed"]
        result = json.loads(text)["result"]
        for damaged in (
            "",
            text[: len(text) // 2],
            "[]",
            edit(format=2),
            edit(placed={FIRST: [0, 0]}),
            edit(placed={FIRST: [10**6]}),
            edit(labels=[]),
            edit(finalists={}),
            edit(kept="yesterday"),
            edit(result={**result, "explanation": {}}),
            edit(result={**result, "winner": None}),
        ):
            file.write_text(damaged)
            with self.assertLogs("absl", "WARNING") as logs:
                self.assertIsNone(self.open(build()).look_up(), damaged)
            self.assertIn(str(file), logs.output[0])
            self.assertIsNone(self.open(build(depth=5)).find_similar())
        # An answer whose placement does not fit the graph is none, whatever the reason.
        split = {FIRST: placed[FIRST] + placed[SECOND][::2], SECOND: placed[SECOND][1::2]}
        part = {FIRST: placed[FIRST]}
        unknown = {"/job:x/task:0/device:CPU:0": placed[FIRST], SECOND: placed[SECOND]}
        for wrong in (split, part, unknown, {}):
            file.write_text(edit(placed=wrong))
            with self.assertLogs("absl", "WARNING") as logs:
                self.assertIsNone(self.open(build()).look_up(), wrong)
            self.assertIn("not legal here", logs.output[0])
        # The next answer replaces the file.
        self.keep_placed()
        self.assertIsNotNone(self.open(build()).look_up())

    def test_a_similar_step_suggests_a_placement(self):
        self.keep_placed()
        # One more layer: the operations of the others have their names.
        deeper = build(depth=5)
        similar = self.open(deeper).find_similar()
        for name, device in place(deeper).assignment.items():
            if name in build().op_graph.index:
                self.assertEqual(similar.assignment[name], device, name)
        self.assertNotIn("t1_4", similar.assignment)
        self.assertGreater(similar.provenance["common"], 0.7)
        # Another batch and other names: the operations correspond by their structure.
        renamed = build("z/", batch=7)
        similar = self.open(renamed).find_similar()
        self.assertEqual(similar.provenance["common"], 1.0)
        for tower in range(2):
            of_tower = {similar.assignment[f"z/t{tower}_{k}"] for k in range(4)}
            self.assertLen(of_tower, 1)
        self.assertLen(set(similar.assignment.values()), 2)

    def test_a_step_with_another_batch_size_is_told_apart(self):
        self.keep_placed()
        for workload, batch_sizes in (
            (build("z/", batch=7), (7, 5)),
            (build(depth=5), None),
        ):
            self.assertEqual(self.open(workload).compare_most_similar().batch_sizes, batch_sizes)
        # The very step is no other one.
        self.assertIsNone(self.open(build()).compare_most_similar())

    def test_the_batch_is_the_first_dimension_of_what_is_fed(self):
        find = answer_store._find_batch_sizes
        self.assertEqual(find({"x:0": (8, 3), "y:0": (8,)}, {"x:0": (4, 3), "y:0": (4,)}), (8, 4))
        self.assertEqual(find({"x:0": (8, 3), "r:0": ()}, {"x:0": (4, 3), "r:0": ()}), (8, 4))
        for others in ({}, {"x:0": (4,)}, {"x:0": ()}, {"x:0": (8, 2)}, {"x:0": (8, 3)}):
            self.assertIsNone(find({"x:0": (8, 3)}, others), others)
        self.assertIsNone(find({"x:0": (8,)}, {"x:0": ()}))
        self.assertIsNone(find({"x:0": (8, 3), "y:0": (2,)}, {"x:0": (4, 3), "y:0": (1,)}))

    def test_the_most_similar_step_is_chosen(self):
        for depth in (9, 6, 12):
            workload = build(depth=depth)
            self.open(workload).keep(FASTER, FINALISTS, place(workload))
        files = {file: json.loads(file.read_text()) for file in self.directory.iterdir()}
        similar = self.open(build(depth=5)).find_similar()
        self.assertLen(files, 3)
        # All have the operations of the shallow one, so the one that was used last is taken.
        self.assertIn(pathlib.Path(similar.provenance["file"]), files)
        similar = self.open(build(depth=10)).find_similar()
        names = files[pathlib.Path(similar.provenance["file"])]["operations"]
        self.assertIn("t0_11", names)

    def test_steps_with_little_in_common_suggest_nothing(self):
        self.keep_placed()
        with new_graph() as graph:
            x = tf1.placeholder(tf.float32, [2], name="x")
            for k in range(9):
                x = tf.sin(x, name=f"sin_{k}")
        other = read_workload(graph, [x.name], {"x:0": np.zeros([2], np.float32)})
        self.assertIsNone(self.open(other).find_similar())

    def test_unchanged_answers_and_other_machines_suggest_nothing(self):
        self.open(build()).keep(NOT_FASTER, FINALISTS, None)
        self.assertIsNone(self.open(build(depth=5)).find_similar())
        self.keep_placed()
        with mock.patch.object(answer_store, "compute_machine_identity", return_value="f" * 64):
            self.assertIsNone(self.open(build(depth=5)).find_similar())

    def test_the_answers_that_were_used_longest_ago_are_removed(self):
        foreign = self.directory / f"{'0' * 16}_{'0' * 48}.json"
        for number, depth in enumerate((2, 3, 4)):
            workload = build(depth=depth)
            self.open(workload).keep(FASTER, FINALISTS, place(workload))
            for file in self.directory.iterdir():
                if file.stat().st_mtime > 1e6:
                    os.utime(file, (number, number))
        foreign.write_text("of somebody else")
        os.utime(foreign, (0, 0))
        # A use makes the oldest one the newest.
        self.assertIsNotNone(self.open(build(depth=2)).look_up())
        size = max(file.stat().st_size for file in self.directory.iterdir())
        with mock.patch.object(answer_store, "_MAX_BYTES", 3 * size):
            workload = build(depth=5)
            self.open(workload).keep(FASTER, FINALISTS, place(workload))
        found = [depth for depth in (2, 3, 4, 5) if self.open(build(depth=depth)).look_up()]
        self.assertEqual(found, [2, 4, 5])
        self.assertEqual(foreign.read_text(), "of somebody else")

    def test_a_store_that_cannot_be_written_keeps_nothing(self):
        self.directory.write_text("a file")
        with self.assertLogs("absl", "WARNING") as logs:
            self.open(build()).keep(FASTER, FINALISTS, place(build()))
        self.assertIn("the answer is not kept", logs.output[0])

    def test_the_default_store_is_private_and_in_the_cache(self):
        cache = self.create_tempdir().full_path
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": cache}):
            store = AnswerStore(DEFAULT_ANSWERS, build(), search_config())
            self.assertEqual(store.path, pathlib.Path(cache, "tf_placer", "answers"))
            store.keep(FASTER, FINALISTS, place(build()))
            self.assertEqual(stat.S_IMODE(store.path.stat().st_mode), 0o700)
            self.assertIsNotNone(store.look_up())

    def test_a_store_that_the_user_names_has_the_modes_of_the_umask(self):
        self.addCleanup(os.umask, os.umask(0o027))
        file = self.keep_placed()
        self.assertEqual(stat.S_IMODE(self.directory.stat().st_mode), 0o750)
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o640)

    def test_processes_may_keep_answers_at_a_time(self):
        spawn = multiprocessing.get_context("fork")
        processes = [
            spawn.Process(target=keep_in_process, args=(str(self.directory), number))
            for number in range(3)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
            self.assertEqual(process.exitcode, 0)
        self.assertLen(list(self.directory.iterdir()), 1)


if __name__ == "__main__":
    tf.test.main()
