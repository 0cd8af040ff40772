"""How many updates per second a parameter server takes.

Lets a controller learn from a batch once, and has what it computed applied again and again, as a
search does: the gradients go to the parameter server, and the weights come back.

    python -m benchmarks.distributed.server_rate
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.provenance import provenance
from benchmarks.problems.synthetic import unrolled_lstm
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.files import write_json
from tf_placer.placers.learned.training_values import Parameters
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.distributed.learners import Controller, ParameterServer
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_fleet import RayFleet, connected
from tf_placer.search.distributed.workers import Workers, require_ray

__all__ = ["main", "server_rate"]

_MAX_SECS = 300.0
_SMALL = {"hidden_units": 32, "attention_units": 32}
#: What is trained, by name: the networks of `waiting_workers`, and those of the paper.
_NETWORKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Post": ("post", {}),
    "ColocRL, 32 units, batch of 4": ("colocrl", {**_SMALL, "batch_size": 4}),
    "ColocRL, 512 units, batch of 8": ("colocrl", {"batch_size": 8}),
}


def server_rate(placer: str, options: Mapping[str, Any], updates: int) -> dict[str, Any]:
    """Measures how long a parameter server has for an update, and a controller for its part.

    This process must be connected.

    Args:
        placer: name of the placer.
        options: of the placer.
        updates: how many are timed.

    Returns:
        The number of weights, and seconds: the least, because other work only makes it longer.
    """
    problem = unrolled_lstm(4, 8)
    groups, legal = group_graph(problem), legal_devices(problem)
    setup = PlacerSetup(placer, groups, legal, 0, dict(options))
    kinds = ParameterServer, Controller
    fleets = [RayFleet(Workers("ray"), kind, setup, is_near=True) for kind in kinds]
    server, controller = (fleet.start() for fleet in fleets)
    serving, learning = fleets

    def done(call: Any) -> Any:
        """Waits for a call, and gives what it returned."""
        if not serving.ended([call], _MAX_SECS):
            raise RuntimeError(f"nothing came back within {_MAX_SECS:g} s")
        return serving.result(call)

    parameters = serving.call(server, "begin", None)
    first: Parameters = done(parameters)
    learn_secs, apply_secs = [], []
    for batch in range(updates):
        began_secs = time.monotonic()
        actions, placements = done(learning.call(controller, "sample", parameters, 1, batch))
        measurements = SimulatedEnvironment(problem).measure(placements)
        arguments: tuple[Any, ...] = (parameters, {}, 0, actions, measurements)
        learned = learning.call(controller, "learn", *arguments)
        done(learned)
        learned_secs = time.monotonic()
        parameters = serving.call(server, "apply", parameters, learned)
        done(parameters)
        learn_secs.append(learned_secs - began_secs)
        apply_secs.append(time.monotonic() - learned_secs)
    for fleet in fleets:
        fleet.close()
    return {
        "weights": sum(int(each.size) for each in first.weights),
        "learn_secs": round(min(learn_secs), 5),
        "apply_secs": round(min(apply_secs), 5),
    }


def main() -> None:
    """Measures all networks, and keeps what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=100, help="how many are timed")
    parser.add_argument(
        "--out_dir", default="benchmarks/results/distributed", help="where the file goes"
    )
    args = parser.parse_args()
    require_ray()
    rates = {}
    with connected(Workers("ray")):
        for name, (placer, options) in _NETWORKS.items():
            rates[name] = server_rate(placer, options, args.updates)
            print(json.dumps({name: rates[name]}), flush=True)
    path = pathlib.Path(args.out_dir, "server_rates.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"rates": rates, "made_by": provenance()})


if __name__ == "__main__":
    main()
