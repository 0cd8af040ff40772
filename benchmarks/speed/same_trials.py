"""Compares the simulated searches of two checkouts trial by trial: one seed gives the same in both.

Prints for each problem and placer whether the results are the same, and the steps of all placements
in the order in which they were simulated. Runs that are in the directory already are not made
again.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.table_file import write_table
from tf_placer.text.table import table

__all__ = ["main"]

# The searches of the changes end by the clock.
_CLOCKS = ("elapsed_secs", "output", "log_dir", "changes")


def main() -> None:
    """Makes the runs and prints the table; the status is 1 if a search differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkouts", nargs=2, required=True, help="two folders of the project")
    parser.add_argument("--problems", nargs="+", required=True, help="problem files")
    parser.add_argument("--placers", nargs="+", required=True, help="names of placers")
    parser.add_argument("--max_trials", type=int, default=72, help="of each search (default 72)")
    parser.add_argument("--seed", type=int, default=1, help="of each search (default 1)")
    parser.add_argument("--out_dir", required=True, help="keeps what was found")
    args = parser.parse_args()
    rows, differs = [], False
    for problem in args.problems:
        cells = [pathlib.Path(problem).stem]
        for placer in args.placers:
            options = [f"--placer={placer}", f"--seed={args.seed}"]
            options += [f"--problem={pathlib.Path(problem).absolute()}"]
            options += [f"--max_trials={args.max_trials}"]
            found = []
            for number, checkout in enumerate(args.checkouts):
                directory = pathlib.Path(args.out_dir, str(number), f"{cells[0]}-{placer}")
                found.append(_search(checkout, directory.absolute(), options))
            is_same = found[0] == found[1]
            differs |= not is_same
            cells.append(f"same {found[0][0].get('trials', 'error')}" if is_same else "DIFFERENT")
            print(problem, placer, cells[-1], file=sys.stderr, flush=True)
        rows.append(cells)
    write_table(table(["problem", *args.placers], rows, "l" * (1 + len(args.placers))))
    sys.exit(differs)


def _search(
    checkout: str, directory: pathlib.Path, options: Sequence[str]
) -> tuple[dict[str, Any], list[Any]]:
    """Searches, and returns the result without its times, and the steps in order."""
    result = directory / "answer.json"
    if not result.exists():
        directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tf_placer", "search", "--json", *options]
        command.append(f"--log_dir={directory / 'log'}")
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        # A search that fails is to fail alike.
        result.write_text(done.stdout or json.dumps({"error": done.stderr.splitlines()[-1:]}))
    values = json.loads(result.read_text())
    log = directory / "log" / "search.json"
    samples = json.loads(log.read_text())["samples"] if log.exists() else []
    steps = [secs for _, _, secs in samples]
    return {name: value for name, value in values.items() if name not in _CLOCKS}, steps


if __name__ == "__main__":
    main()
