"""Sentences for people that are joined from parts."""

from __future__ import annotations

__all__ = ["join_sentences"]


def join_sentences(*parts: str | None) -> str:
    """Joins sentences by full stops; each after the first begins with a capital letter.

    Args:
        parts: sentences without full stops at their ends; None and "" are left out.

    Returns:
        The sentences, the last without a full stop.
    """
    first, *others = [part for part in parts if part] or [""]
    return ". ".join([first, *(each[0].upper() + each[1:] for each in others)])
