"""What tf_placer does not do with some kinds of graphs, and what it says instead."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REFUSED", "REFUSED_WITHOUT_COLLECTIONS", "UNPLANNED"]

_NEED_FEEDS = "the initializers need the placeholder '.*', but only steps are fed"

#: What reading a graph says, as a regular expression.
REFUSED: Mapping[str, str] = {
    "accumulated_gradients_v1": _NEED_FEEDS,
    "assign_in_cond_v1": _NEED_FEEDS,
    "iterator_of_fed_arrays": _NEED_FEEDS,
    "loss_scaling_v1": _NEED_FEEDS,
    "queue_runners": "waits for a queue that queue runners fill, and a search starts none",
    "ragged_placeholder": "the feed of 'words/flat_values:0' is not of type int64",
    "sparse_embedding": "SparseTensor.* is neither an operation, a tensor nor the name of one",
    "sparse_placeholder": "SparseTensor.* is neither an operation, a tensor nor the name of one",
}
#: What it says where only the operations are known.
REFUSED_WITHOUT_COLLECTIONS: Mapping[str, str] = {
    name: message for name, message in REFUSED.items() if name != "queue_runners"
}
#: Kinds whose costs cannot be computed: a conditional hands a tensor through.
UNPLANNED = (
    "accumulated_gradients_v2",
    "batch_norm_by_moments_v2",
    "cond_of_variables_v2",
    "decaying_rates",
    "replay_memory",
)
