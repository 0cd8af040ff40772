"""The models in sizes whose step takes 0.1 to 0.3 s on one core of a server.

They keep what makes their full sizes interesting to place: layers, steps and branches that can run
at the same time.
"""

from __future__ import annotations

from benchmarks.models import inception_v3, language_model, translation_model
from benchmarks.models.inception_v3 import InceptionV3
from benchmarks.models.language_model import LanguageModel
from benchmarks.models.translation_model import TranslationModel

__all__ = ["small_inception", "small_language_model", "small_translation"]


def small_language_model() -> LanguageModel:
    """Builds a model of four layers of twelve steps, each step with a softmax layer of its own."""
    return language_model.build(
        layers=4, units=256, steps=12, batch=128, vocabulary=2000, softmax="per_step"
    )


def small_inception() -> InceptionV3:
    """Builds a model half as wide, for small images, with a learning rate for small batches."""
    return inception_v3.build(batch=24, image_size=107, classes=10, width=0.5, learning_rate=0.01)


def small_translation() -> TranslationModel:
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
