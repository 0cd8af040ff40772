"""Ten models of public threads that do not fit, or leave devices idle: alone, by hand and placed.

For each case TensorFlow runs the model alone, a search places it, and the placement takes turns
with placements written by hand, in fresh processes each round, on GPUs that are emulated by shapes
and times. Then a user's program runs the model under the placement, on GPUs that compute values,
and on the CPU; both must give the same. A case that has a result is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import tf_placer
from benchmarks.harness.provenance import provenance
from benchmarks.harness.table_file import write_table
from benchmarks.live.memory_models import CASES, MemoryCase
from graph_passes.errors import GraphError
from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement, read_placement, write_placement
from graph_passes.restrictions import match_names, resolve_restrictions
from tf_placer import emulated
from tf_placer.confirmation.equal_values import describe_difference
from tf_placer.environments.environment import Failure
from tf_placer.environments.session import SessionEnvironment
from tf_placer.errors import describe_error
from tf_placer.files import read_json, write_json
from tf_placer.inputs.workload import Workload
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine
from tf_placer.processes import environment_without_gpus
from tf_placer.text.table import table
from tf_placer.text.units import format_duration, format_step

__all__ = ["format_results", "main", "place_by_hand", "time_in_turns"]

_ALONE, _PLACED = "TensorFlow alone", "placed"
_VALUES = ",values"
_STEPS_OF_VALUES = 3
_WARM_UP_STEPS, _TIMED_STEPS = 2, 8


def place_by_hand(
    workload: Workload,
    machine: Machine,
    rules: Mapping[str, str],
    variables: Mapping[str, str],
) -> Placement:
    """Places a step by rules that a user would write.

    Args:
        workload: the step.
        machine: the machine.
        rules: devices by patterns of names, as pins; all else goes to the first GPU, or to the
            first device without GPUs, where it can be there.
        variables: names of variables by their operation, which the patterns match, too.

    Raises:
        GraphError: a rule matches nothing, or cannot be honored.
    """
    names = tuple(device.name for device in machine.devices)
    pins = dict(rules)
    for pattern, device in rules.items():
        pins |= {name: device for name, of in variables.items() if match_names(pattern, [of])}
    grouped = group_operations(workload.op_graph, "fine", resolve_restrictions(pins, (), names))
    legal = grouped.grouping.legal_devices(grouped.colocation, names)
    default = next((n for n, each in enumerate(machine.devices) if each.type == "GPU"), 0)
    row = np.where(legal[:, default], default, legal.argmax(axis=1)).astype(np.int32)
    return Placement("", names, grouped.assignment(row, names))


def time_in_turns(
    workload: Workload,
    machines: Mapping[str, Machine],
    placements: Mapping[str, Mapping[str, str]],
    rounds: int,
) -> dict[str, list[float] | str]:
    """Times placements, each in fresh processes in every round, in random order.

    Args:
        workload: the step.
        machines: by label the machine that it runs on.
        placements: by label the devices of operations.
        rounds: number of rounds.

    Returns:
        By label the median step of each round in seconds, or a failure in words.
    """
    found: dict[str, list[float] | str] = {label: [] for label in placements}
    random = np.random.default_rng(0)
    with contextlib.ExitStack() as stack:
        graph = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()), "graph.pb")
        graph.write_bytes(workload.graph_def.SerializeToString())
        environments = {
            spec: stack.enter_context(
                SessionEnvironment(
                    graph, workload.step, machine, lambda row: {}, meta_optimizer=True
                )
            )
            for spec, machine in {each.spec: each for each in machines.values()}.items()
        }
        for _ in range(rounds):
            for label in random.permutation(list(placements)).tolist():
                secs = found[label]
                if isinstance(secs, str):
                    continue
                environment = environments[machines[label].spec]
                measured = _time_steps(environment, label, placements[label])
                if isinstance(measured, Failure):
                    found[label] = measured.kind.value.replace("_", " ")
                else:
                    secs.append(measured)
    return found


def _time_steps(
    environment: SessionEnvironment, label: str, assignment: Mapping[str, str]
) -> float | Failure:
    """Times steps in fresh processes; returns their median in seconds."""
    environment.restart()
    opened = environment.open_session(label, assignment)
    if isinstance(opened, Failure):
        return opened
    measured = environment.run_steps(label, _WARM_UP_STEPS + _TIMED_STEPS)
    environment.stop()
    if isinstance(measured, Failure):
        return measured
    return statistics.median(measured[_WARM_UP_STEPS:])


def _run_child(
    case: MemoryCase, directory: pathlib.Path, machine: str | None, placement: pathlib.Path | None
) -> dict[str, Any]:
    """Runs a case in a process of its own, as a user's program.

    Args:
        case: the case.
        directory: the files of the case.
        machine: the emulated machine whose GPUs the process has; None for none.
        placement: the file of the placement; None to leave all to TensorFlow.

    Returns:
        The "values" of its steps, or its "error" in a line.
    """
    environ = environment_without_gpus()
    if machine is not None:
        environ = emulated.make_environment(find_machine(machine))
    # Kernels of emulated GPUs are those of the CPU without oneDNN.
    environ |= {"TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    output = directory / "child.json"
    command = [sys.executable, "-m", __spec__.name, "--run", case.name]
    command += ["--out_dir", str(directory.parent), "--output", str(output)]
    if placement is not None:
        command += [
            "--placement",
            str(placement),
            "--machine",
            machine or case.name_machine(directory),
        ]
    output.unlink(missing_ok=True)
    with (directory / "child.log").open("a") as log:
        done = subprocess.run(command, env=environ, stdout=log, stderr=log, check=False)
    if not output.exists():
        return {"error": f"the process ended with {done.returncode}: see {log.name}"}
    value: dict[str, Any] = read_json(output)
    return value


def _be_child(args: argparse.Namespace) -> None:
    """Runs steps of a case, and writes their values or the error of TensorFlow."""
    directory = pathlib.Path(args.out_dir, args.run)
    try:
        placed = None
        target = CASES[args.run].make_target(directory)
        if args.placement is not None:
            placed = (args.machine, read_placement(args.placement))
        values = target.run(_STEPS_OF_VALUES, placed)
        result: dict[str, Any] = {"values": [np.asarray(value).tolist() for value in values]}
    except Exception as error:  # The error is the result.
        print(error, file=sys.stderr)
        result = {"error": f"{type(error).__name__}: {_summarize(describe_error(error))}"}
    write_json(pathlib.Path(args.output), result)


def _summarize(message: str) -> str:
    """Finds the line of TensorFlow's message that is about memory, or the first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next(filter(_is_of_memory, lines), lines[0])


def _is_of_memory(line: str) -> bool:
    # TensorFlow says so of a copy for which the GPU has no memory.
    return any(
        text in line for text in ("OOM when", "out of memory", "Dst tensor is not initialized")
    )


def _compare_values(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    """Says how far the values of two processes agree."""
    for each in (expected, actual):
        if "error" in each:
            return str(each["error"])
    a, b = (np.asarray(each["values"], np.float32) for each in (expected, actual))
    if np.array_equal(a, b):
        return "equal"
    difference = describe_difference({"the value": a}, {"the value": b})
    if difference is not None:
        return difference
    scale = max(float(np.abs(a).max()), float(np.finfo(np.float32).tiny))
    return f"within {float(np.abs(a - b).max()) / scale:.0e}"


def _run_case(case: MemoryCase, out_dir: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    """Runs a case, or reads its result of an earlier run."""
    directory = out_dir / case.name
    done = directory / "case.json"
    if done.exists():
        value: dict[str, Any] = read_json(done)
        return value
    directory.mkdir(parents=True, exist_ok=True)
    start_secs = time.monotonic()
    target = case.make_target(directory)
    spec = case.name_machine(directory)
    machine = find_machine(spec)
    is_emulated = machine.kind == "emulated"
    workload = target.workload
    hand: dict[str, Any] = {}
    for label, rules in case.hand.items():
        try:
            hand[label] = place_by_hand(workload, machine, rules, target.variables).assignment
        except GraphError as error:
            raise GraphError(f"{case.name}, {label}: {error}") from error
    config = tf_placer.SearchConfig(
        machine=spec,
        max_secs=args.max_secs,
        max_trials=args.max_trials,
        log_dir=directory / "search",
        **case.settings,
    )
    result = target.optimize(config)
    print(f"\n{case.name}\n{result.table()}\n{result.reason}\n", flush=True)
    search_secs = time.monotonic() - start_secs
    alone = _run_child(case, directory, spec, None) if is_emulated else {}
    placements: dict[str, Mapping[str, str]] = dict(hand)
    if "error" not in alone:
        placements[_ALONE] = {}
    if result.placement is not None:
        placements[_PLACED] = result.placement.assignment
    machines = dict.fromkeys(placements, machine)
    if not is_emulated:
        # TensorFlow alone computes on all cores in one process.
        machines[_ALONE] = find_machine("attached")
    steps = time_in_turns(workload, machines, placements, args.rounds)
    if "error" in alone:
        steps[_ALONE] = "out of memory" if _is_of_memory(alone["error"]) else "fails"
    values = ""
    if result.placement is not None:
        path = directory / "placement.json"
        write_placement(result.placement, path)
        expected = _run_child(case, directory, None, None)
        actual = _run_child(case, directory, spec + _VALUES if is_emulated else None, path)
        values = _compare_values(expected, actual)
    result_value = {
        "thread": case.thread,
        "asks": case.asks,
        "machine": spec if isinstance(case.machine, str) else list(case.machine),
        "settings": case.settings,
        "changed": result.changed,
        "reason": result.reason,
        "alone_error": alone.get("error"),
        "values": values,
        "steps": steps,
        "trials": len(result.trials),
        "search_secs": round(search_secs, 1),
        "secs": round(time.monotonic() - start_secs, 1),
    }
    write_json(done, result_value)
    return result_value


def _format_steps(measured: Any) -> str:
    """Formats the steps of a label: their geometric mean, or the failure."""
    if isinstance(measured, str) or not measured:
        return measured or ""
    return format_step(statistics.geometric_mean(measured))


def _ratio(first: Any, second: Any) -> str:
    """Formats the ratio of two labels, by rounds: its geometric mean and its range."""
    if isinstance(first, str) or isinstance(second, str) or not first or not second:
        return ""
    ratios: list[float] = [a / b for a, b in zip(first, second, strict=True)]
    return f"{statistics.geometric_mean(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"


def format_results(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Formats the results by case in a table, and the errors of TensorFlow below it."""
    headers = ["case", "thread", "TensorFlow alone", "placed", "best by hand", "its step"]
    headers += ["placed is faster", "values", "search"]
    rows, errors = [], []
    for name, value in results.items():
        steps = value["steps"]
        by_hand = {
            label: each
            for label, each in steps.items()
            if label not in (_ALONE, _PLACED) and not isinstance(each, str)
        }
        best = min(by_hand, key=lambda label: statistics.geometric_mean(by_hand[label]), default="")
        placed = steps.get(_PLACED, "unchanged" if not value["changed"] else "")
        rows.append(
            [
                name,
                value["thread"],
                _format_steps(steps[_ALONE]),
                _format_steps(placed),
                best or "none fits",
                _format_steps(by_hand.get(best, "")),
                _ratio(by_hand.get(best, ""), placed),
                value["values"],
                format_duration(value["search_secs"]),
            ]
        )
        if value["alone_error"]:
            errors.append(f"{name}: {value['alone_error']}")
    text = table(headers, rows, "llrrlrrll")
    return text + "\n\nTensorFlow alone ends with\n" + "\n".join(errors) if errors else text


def _write(results: Mapping[str, Mapping[str, Any]], out_dir: pathlib.Path) -> None:
    """Writes the table, as text and tab-separated, and all results as JSON."""
    write_table(format_results(results), out_dir / "table.txt")
    write_json(out_dir / "cases.json", {**provenance(), "cases": dict(results)})
    lines = ["case\tlabel\tround\tstep_secs"]
    for name, value in results.items():
        for label, secs in value["steps"].items():
            if isinstance(secs, str):
                lines.append(f"{name}\t{label}\t\t{secs}")
                continue
            lines += [f"{name}\t{label}\t{n}\t{each:.6g}" for n, each in enumerate(secs)]
    (out_dir / "steps.tsv").write_text("\n".join(lines) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the cases and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES), help="by comma (default all)")
    parser.add_argument("--max_secs", type=float, default=120.0, help="of a search (default 120)")
    parser.add_argument("--max_trials", type=int, default=40, help="of a search (default 40)")
    parser.add_argument("--rounds", type=int, default=3, help="of times in turns (default 3)")
    parser.add_argument("--out_dir", default="benchmarks/results/memory_cases")
    for name in ("run", "output", "placement", "machine"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.run is not None:
        _be_child(args)
        return
    names = args.cases.split(",")
    if unknown := set(names) - CASES.keys():
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}")
    out_dir = pathlib.Path(args.out_dir)
    results = {}
    for name in names:
        results[name] = _run_case(CASES[name], out_dir, args)
        _write(results, out_dir)


if __name__ == "__main__":
    main()
