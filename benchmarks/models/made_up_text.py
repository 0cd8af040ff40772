"""Text of a made-up language that can be learnt."""

from __future__ import annotations

import numpy as np

__all__ = ["made_up_text"]


def made_up_text(
    vocabulary: int, shape: tuple[int, int], random: np.random.Generator
) -> np.ndarray:
    """Sequences of tokens in which both frequencies and order can be learnt.

    Nine times of ten a token is followed by its one fixed successor, otherwise by a token drawn
    from Zipf's law.

    Args:
        vocabulary: number of tokens; the language of a vocabulary is always the same.
        shape: number of sequences and their length.
        random: what draws the text.

    Returns:
        int32 of this shape.
    """
    successors = np.random.default_rng(0).permutation(vocabulary)
    frequencies = 1.0 / np.arange(1, vocabulary + 1)
    frequencies /= frequencies.sum()
    drawn = random.choice(vocabulary, shape, p=frequencies)
    jumps = random.random(shape) < 0.1
    tokens = np.empty(shape, np.int32)
    tokens[:, 0] = drawn[:, 0]
    for step in range(1, shape[1]):
        tokens[:, step] = np.where(jumps[:, step], drawn[:, step], successors[tokens[:, step - 1]])
    return tokens
