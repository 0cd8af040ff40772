"""The models of the papers with the papers' settings: full size, and variables as they were then.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017, section
    4.1. It does not say the vocabularies: 10,000 words of a language model, 32,000 word pieces of a
    translation model, as in its end-to-end training.
"""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models import inception_v3 as inception
from benchmarks.models import language_model, translation_model

__all__ = ["inception_v3", "nmt", "rnnlm"]


def rnnlm() -> tuple[tf.Graph, list[str]]:
    """Two LSTM layers of 2048 units, 40 steps, batch 64; the graph and what a step fetches."""
    model = language_model.build(
        layers=2,
        units=2048,
        steps=40,
        batch=64,
        vocabulary=10_000,
        use_resource=False,
        softmax="per_step",
    )
    return model.graph, [model.train_op, model.loss]


def nmt() -> tuple[tf.Graph, list[str]]:
    """Two and two LSTM layers of 1024 units, attention, 40 steps, batch 64; graph and fetches."""
    model = translation_model.build(
        layers=2,
        units=1024,
        source_steps=40,
        target_steps=40,
        batch=64,
        source_vocabulary=32_000,
        target_vocabulary=32_000,
        use_resource=False,
    )
    return model.graph, [model.train_op, model.loss]


def inception_v3() -> tuple[tf.Graph, list[str]]:
    """Batch 32 of 299 x 299 pixels; the graph and what a step fetches."""
    model = inception.build(batch=32, use_resource=False)
    return model.graph, [model.train_op, model.loss]
