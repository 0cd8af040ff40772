"""The static mapping of Scotch, called in the shared library."""

from __future__ import annotations

import contextlib
import ctypes
import functools

import numpy as np

from tf_placer.placers.heuristics.weighted_graph import WeightedGraph, scale_to_integers

__all__ = ["map_graph", "require_scotch"]

# File names of Debian and other distributions. Version 7.0 introduced the execution contexts that
# make the result reproducible.
_FILES = ("libscotch-7.0.so", "libscotch.so.7.0", "libscotch.so.7", "libscotch.so")
_CONTEXT_DOUBLES = 64
_DETERMINISTIC = 0
# Scotch may add up bytes times link costs in 32-bit integers, depending on its build.
_MAX_TOTAL_TRAFFIC = 1 << 30
_NUM_SEEDS = 1 << 31


def require_scotch(placer: str) -> None:
    """Makes sure that the library is installed.

    Args:
        placer: the placer that needs it, for the message.

    Raises:
        ImportError: it is not installed; the message tells how to install it.
    """
    if _library() is None:
        raise ImportError(
            f"placer {placer!r} needs Scotch 7.0, which is not installed: apt-get install "
            "libscotch-7.0"
        )


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Loads the library; returns None if version 7 is not installed."""
    for file in _FILES:
        try:
            library = ctypes.CDLL(file)
            has_contexts = hasattr(library, "SCOTCH_contextBindGraph")
        except OSError:
            continue
        if has_contexts:
            return library
    return None


def map_graph(graph: WeightedGraph, link_costs: np.ndarray, *, seed: int) -> np.ndarray:
    """Maps the nodes of a graph to devices, with the default strategy of Scotch.

    Scotch minimizes the sum over all edges of their bytes times the cost of the cheapest route
    between the devices of their ends, also over other devices, and loads the devices in proportion
    to their powers.

    Args:
        graph: the graph, with the powers of the devices.
        link_costs: int32 [num_devices, num_devices], symmetric and positive off the diagonal.
        seed: seeds Scotch.

    Returns:
        int64 [num_nodes], the device of each node.

    Raises:
        ImportError: Scotch is not installed.
        RuntimeError: Scotch failed; it prints the reason to standard error.

    References:
        Pellegrini and Roman, Scotch: A Software Package for Static Mapping by Dual Recursive
        Bipartitioning of Process and Architecture Graphs, HPCN Europe 1996.
    """
    num_devices = len(graph.powers)
    if num_devices == 1 or not graph.num_nodes:
        return np.zeros(graph.num_nodes, np.int64)
    require_scotch("scotch")
    with contextlib.ExitStack() as stack:
        scotch = _Scotch(stack, seed)
        weights = scale_to_integers(graph.edge_bytes, _MAX_TOTAL_TRAFFIC // int(link_costs.max()))
        source = scotch.build_graph(graph.start, graph.neighbors, graph.work, weights)
        sources, targets = np.nonzero(link_costs)
        ends = np.arange(num_devices + 1) * (num_devices - 1)
        powers = graph.scale_powers()
        target = scotch.build_graph(ends, targets, powers, link_costs[sources, targets])
        return scotch.compute_mapping(source, scotch.build_architecture(target), graph.num_nodes)


class _Scotch:
    """The objects of the library, which are freed when the stack is closed."""

    def __init__(self, stack: contextlib.ExitStack, seed: int) -> None:
        library = _library()
        assert library is not None
        self._library = library
        self._stack = stack
        self._kept: list[np.ndarray] = []  # The library keeps pointers to these arrays.
        self._number = {4: ctypes.c_int32, 8: ctypes.c_int64}[library.SCOTCH_numSizeof()]
        # One thread, so that the same seed gives the same mapping.
        self._context = self._new("context", 8 * _CONTEXT_DOUBLES)
        self._call("contextOptionSetNum", self._context, _DETERMINISTIC, self._number(1))
        library.SCOTCH_contextRandomSeed(self._context, self._number(seed % _NUM_SEEDS))
        self._call("contextThreadSpawn", self._context, 1, None)

    def build_graph(
        self, start: np.ndarray, neighbors: np.ndarray, weights: np.ndarray, edges: np.ndarray
    ) -> ctypes.Array[ctypes.c_double]:
        """Builds a graph with weights, bound to the context."""
        plain = self._new("graph", self._library.SCOTCH_graphSizeof())
        self._call(
            "graphBuild",
            plain,
            self._number(0),
            self._number(len(weights)),
            self._array(start),
            None,
            self._array(weights),
            None,
            self._number(len(neighbors)),
            self._array(neighbors),
            self._array(edges),
        )
        self._call("graphCheck", plain)
        bound = self._new("graph", self._library.SCOTCH_graphSizeof())
        self._call("contextBindGraph", self._context, plain, bound)
        return bound

    def build_architecture(
        self, graph: ctypes.Array[ctypes.c_double]
    ) -> ctypes.Array[ctypes.c_double]:
        """Builds the target machine from a graph with powers as nodes and costs as edges."""
        architecture = self._new("arch", self._library.SCOTCH_archSizeof())
        strategy = self._new("strat", self._library.SCOTCH_stratSizeof())
        self._call("archBuild", architecture, graph, self._number(0), None, strategy)
        return architecture

    def compute_mapping(
        self,
        graph: ctypes.Array[ctypes.c_double],
        architecture: ctypes.Array[ctypes.c_double],
        num_nodes: int,
    ) -> np.ndarray:
        """Maps a graph onto a machine, and returns the devices of the nodes, int64 [num_nodes]."""
        strategy = self._new("strat", self._library.SCOTCH_stratSizeof())
        devices = np.zeros(num_nodes, np.dtype(self._number))
        self._call("graphMap", graph, architecture, strategy, self._pointer(devices))
        return devices.astype(np.int64)

    def _new(self, kind: str, size_bytes: int) -> ctypes.Array[ctypes.c_double]:
        """Makes an object of the library, which is freed when the stack is closed."""
        memory = (ctypes.c_double * (size_bytes // 8 + 1))()
        self._call(f"{kind}Init", memory)
        self._stack.callback(getattr(self._library, f"SCOTCH_{kind}Exit"), memory)
        return memory

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, f"SCOTCH_{name}")(*arguments):
            raise RuntimeError(f"SCOTCH_{name} failed; it printed the reason to standard error")

    def _array(self, values: np.ndarray) -> ctypes.c_void_p:
        """Converts to the integers of the library, and keeps the array alive."""
        array = np.ascontiguousarray(values, np.dtype(self._number))
        self._kept.append(array)
        return self._pointer(array)

    @staticmethod
    def _pointer(array: np.ndarray) -> ctypes.c_void_p:
        return array.ctypes.data_as(ctypes.c_void_p)
