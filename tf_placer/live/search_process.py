"""The process of a live search, run as `python -m tf_placer.live.search_process`.

It imports little itself, so that the fork server of its workers and the search import TensorFlow,
which takes seconds, at the same time.
"""

from __future__ import annotations

import os

from tf_placer.environments.worker_fork_server import start_early
from tf_placer.interrupts import Interrupts
from tf_placer.processes import Parent

__all__: list[str] = []


def _main() -> None:
    interrupts = Interrupts()
    interrupts.listen()
    parent = Parent()
    if parent.settings["forks"]:
        start_early(os.path.join(parent.settings["request"], "template.log"))
    from tf_placer.live.run import answer_request

    answer_request(parent, interrupts)


if __name__ == "__main__":
    _main()
