"""The models in sizes whose step takes 0.1 to 0.3 s on one core of a server.

They keep what makes their full sizes interesting to place: layers, and steps that can run at the
same time.
"""

from __future__ import annotations

from benchmarks.models import language_model, translation_model
from benchmarks.models.training_model import TrainingModel

__all__ = ["small_language_model", "small_translation"]


def small_language_model() -> TrainingModel:
    """Builds a model of four layers of twelve steps, each step with a softmax layer of its own."""
    return language_model.build(
        layers=4, units=256, steps=12, batch=128, vocabulary=2000, softmax="per_step"
    )


def small_translation() -> TrainingModel:
    """Builds a model of two layers of sixteen steps on both sides."""
    return translation_model.build(
        layers=2,
        units=256,
        source_steps=16,
        target_steps=16,
        batch=64,
        source_vocabulary=2000,
        target_vocabulary=2000,
    )
