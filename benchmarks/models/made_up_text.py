"""Text of made-up languages that can be learned."""

from __future__ import annotations

import numpy as np

__all__ = ["make_up_text", "make_up_translations"]

_START = 0


def _zipf_tokens(
    vocabulary: int, shape: tuple[int, int], random: np.random.Generator
) -> np.ndarray:
    frequencies = 1.0 / np.arange(1, vocabulary + 1)
    return random.choice(vocabulary, shape, p=frequencies / frequencies.sum())


def make_up_text(
    vocabulary: int, shape: tuple[int, int], random: np.random.Generator
) -> np.ndarray:
    """Draws sequences of tokens in which both frequencies and order can be learned.

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
    drawn = _zipf_tokens(vocabulary, shape, random)
    jumps = random.random(shape) < 0.1
    tokens = np.empty(shape, np.int32)
    tokens[:, 0] = drawn[:, 0]
    for step in range(1, shape[1]):
        tokens[:, step] = np.where(jumps[:, step], drawn[:, step], successors[tokens[:, step - 1]])
    return tokens


def make_up_translations(
    vocabularies: tuple[int, int], steps: tuple[int, int], batch: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws pairs of sentences whose translation can be learned.

    Tokens are drawn from Zipf's law. A translation is the sentence from its end to its start (over
    again, if it is shorter than the translation), each token replaced by its one fixed counterpart.

    Args:
        vocabularies: number of source tokens and of target tokens, with the one that starts a
            translation; the dictionary is always the same.
        steps: tokens of a sentence and of a translation.
        batch: number of pairs.
        random: what draws the sentences.

    Returns:
        int32 [batch, source_steps] and int32 [batch, target_steps + 1], with the start.
    """
    dictionary = np.random.default_rng(0).permutation(vocabularies[0]) % (vocabularies[1] - 1) + 1
    source = _zipf_tokens(vocabularies[0], (batch, steps[0]), random).astype(np.int32)
    target = np.full((batch, steps[1] + 1), _START, np.int32)
    target[:, 1:] = dictionary[source[:, (-1 - np.arange(steps[1])) % steps[0]]]
    return source, target
