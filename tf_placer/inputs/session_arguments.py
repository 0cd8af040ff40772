"""Flattens the fetches and feeds of `Session.run`, nested or composite, to plain names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow.python.client import session as tf_session
from tensorflow.python.util import nest

from graph_passes.errors import StepError
from graph_passes.util.messages import quote

__all__ = ["flatten_feeds", "list_names"]

# Longer representations of a wrong value would make the error message hard to read.
_MAX_VALUE_CHARS = 200


def list_names(items: Any) -> list[str]:
    """Lists the names of operations and tensors.

    Args:
        items: operations, tensors, variables, sparse and ragged tensors, indexed slices, values of
            types that the user has registered with TensorFlow, or names; one, or any nesting of
            lists, tuples, dictionaries and classes of `attrs`.

    Returns:
        A name for each operation and tensor, in the order in which a session lists them.

    Raises:
        StepError: an item is none of these, or the items are nested too deeply.
    """
    try:
        return _list_names(items)
    except RecursionError:
        raise StepError("what is fetched or fed is nested too deeply, or holds itself") from None


def _list_names(items: Any) -> list[str]:
    if isinstance(items, str):
        return [items]
    if isinstance(items, Mapping):
        return _list_names(list(items.values()))
    if isinstance(items, Sequence) and not isinstance(items, bytes):
        return [name for item in items for name in _list_names(item)]
    attributes = getattr(type(items), "__attrs_attrs__", None)
    if attributes is not None:
        return _list_names([getattr(items, attribute.name) for attribute in attributes])
    return [_find_name(element) for element in _split_fetch(items)]


def flatten_feeds(feed_dict: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Flattens the feeds of a session.

    Args:
        feed_dict: values by any key that a session takes, or by name; None for no feeds.

    Returns:
        Values by tensor name ("x:0").

    Raises:
        StepError: a key cannot be fed, or its value has another structure than the key.
    """
    if feed_dict is None:
        return {}
    if not isinstance(feed_dict, Mapping):
        raise StepError(f"feeds map placeholders to values, unlike {type(feed_dict).__name__!r}")
    given = {}
    # The keys must not go into another dictionary, because variables can be hashed only inside of
    # their graph.
    for key, value in feed_dict.items():
        for element, part in _split_feed(key, value):
            name = _find_name(element)
            name = name if ":" in name else f"{name}:0"
            if name in given:
                raise StepError(f"{quote(name)} is fed twice")
            given[name] = part
    return given


def _split_fetch(item: Any) -> list[Any]:
    """Splits a composite fetch into its tensors, as a session does."""
    for kind, fetch, *_ in tf_session._REGISTERED_EXPANSIONS:
        if isinstance(item, kind):
            return list(fetch(item)[0])
    return [item]


def _split_feed(key: Any, value: Any) -> list[tuple[Any, Any]]:
    """Splits a composite feed, as a session does, but refuses missing parts, as it does not."""
    if isinstance(key, tuple):
        keys, values = nest.flatten(key), nest.flatten(value)
        if len(keys) != len(values):
            raise StepError(f"a key of the feeds has {len(keys)} parts, its value {len(values)}")
        return [pair for each in zip(keys, values, strict=True) for pair in _split_feed(*each)]
    for kind, _, feed, feed_parts in tf_session._REGISTERED_EXPANSIONS:
        if kind is object or not isinstance(key, kind):
            continue
        if feed is None:
            raise StepError(f"a session cannot be fed {type(key).__name__!r}")
        try:
            pairs = list(feed(key, value))
        except (AttributeError, TypeError, ValueError) as error:
            raise StepError(
                f"{_describe(key)} cannot be fed {type(value).__name__!r}: {error}"
            ) from error
        if feed_parts is not None and len(pairs) != len(list(feed_parts(key))):
            raise StepError(
                f"{_describe(key)} has {len(list(feed_parts(key)))} parts, and its feed "
                f"{len(pairs)}"
            )
        return pairs
    return [(key, value)]


def _describe(key: Any) -> str:
    first = next(iter(_split_fetch(key)), None)
    name = getattr(first, "name", None)
    return type(key).__name__ + ("" if name is None else f" of {name!r}")


def _find_name(item: Any) -> str:
    # A session fetches the value of a variable, not its handle.
    element = getattr(item, "_as_graph_element", None)
    item = item if element is None else element()
    name = item if isinstance(item, str) else getattr(item, "name", None)
    if not isinstance(name, str):
        text = repr(item)
        text = text if len(text) <= _MAX_VALUE_CHARS else f"a value of type {type(item).__name__}"
        raise StepError(f"{text} is neither an operation, a tensor nor the name of one")
    return name
