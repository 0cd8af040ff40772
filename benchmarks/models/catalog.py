"""The models of the papers on device placement with the papers' settings, and five later ones.

The papers' models have the variables of their time, ref variables; the later ones have resource
variables. Where a paper does not say a setting, the note of the model says what is assumed.

References:
    ColocRL: Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, 2017.
    Post: Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
    Optimization, 2018.
    EAGLE: Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large
    Models, 2021.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.models.training_model import TrainingModel

__all__ = ["MODELS", "CatalogModel", "build_model"]


@dataclasses.dataclass(frozen=True)
class CatalogModel:
    """A model with its settings.

    Attributes:
        name: for files and flags.
        title: for people.
        module: the module of `benchmarks.models` that builds it.
        settings: of full size, as `build` of the module takes them.
        small: those that differ where a run should take seconds.
        note: which paper, and what is assumed.
    """

    name: str
    title: str
    module: str
    settings: Mapping[str, Any]
    small: Mapping[str, Any]
    note: str


_RNNLM: Mapping[str, Any] = {
    "units": 2048,
    "steps": 40,
    "batch": 64,
    "vocabulary": 10_000,
    "softmax": "per_step",
    "use_resource": False,
}
_SMALL_RNNLM: Mapping[str, Any] = {"units": 32, "steps": 6, "batch": 16, "vocabulary": 100}
_NMT: Mapping[str, Any] = {
    "units": 1024,
    "source_steps": 40,
    "target_steps": 40,
    "batch": 64,
    "source_vocabulary": 32_000,
    "target_vocabulary": 32_000,
    "use_resource": False,
}
_SMALL_NMT: Mapping[str, Any] = {
    "units": 32,
    "source_steps": 5,
    "target_steps": 5,
    "batch": 16,
    "source_vocabulary": 100,
    "target_vocabulary": 100,
}
_GNMT: Mapping[str, Any] = {
    **_NMT,
    "layers": 4,
    "source_steps": 50,
    "target_steps": 50,
    "batch": 256,
}
_SMALL_GNMT: Mapping[str, Any] = {**_SMALL_NMT, "layers": 3}
_SMALL_IMAGES: Mapping[str, Any] = {
    "batch": 4,
    "image_size": 75,
    "classes": 10,
    "width": 0.125,
    # The published rate is for large batches.
    "learning_rate": 0.01,
}
_SMALL_RESNET: Mapping[str, Any] = {"batch": 4, "image_size": 32, "classes": 10, "width": 0.125}
_TRANSFORMER: Mapping[str, Any] = {"layers": 12, "units": 768, "heads": 12}
_SMALL_TRANSFORMER: Mapping[str, Any] = {
    "layers": 2,
    "units": 32,
    "heads": 4,
    "length": 16,
    "batch": 4,
    "vocabulary": 100,
}


_ENTRIES = (
    CatalogModel(
        "rnnlm_2",
        "RNNLM, 2 layers",
        "language_model",
        {**_RNNLM, "layers": 2},
        _SMALL_RNNLM,
        "ColocRL, section 4.1. It does not say the vocabulary: 10,000 words.",
    ),
    CatalogModel(
        "rnnlm_4",
        "RNNLM, 4 layers",
        "language_model",
        {**_RNNLM, "layers": 4, "units": 1024},
        _SMALL_RNNLM,
        "Post, section 4. It does not say units, steps and vocabulary: steps and vocabulary of "
        "ColocRL. With the 2048 units of ColocRL it would not fit on a K80, where the paper's "
        "takes 0.44 s: 1024.",
    ),
    CatalogModel(
        "nmt_2",
        "NMT, 2 layers",
        "translation_model",
        {**_NMT, "layers": 2},
        _SMALL_NMT,
        "ColocRL, section 4.1: 2 layers on each side. 32,000 word pieces, as in its end-to-end "
        "training; additive attention.",
    ),
    CatalogModel(
        "nmt_4",
        "NMT, 4 layers",
        "translation_model",
        {**_NMT, "layers": 4},
        _SMALL_NMT,
        "Post, section 4. It does not say units, steps and vocabulary: those of ColocRL.",
    ),
    CatalogModel(
        "nmt_8",
        "NMT, 8 layers",
        "translation_model",
        {**_NMT, "layers": 8},
        _SMALL_NMT,
        "Post, section 4. It does not say units, steps and vocabulary: those of ColocRL.",
    ),
    CatalogModel(
        "gnmt_4",
        "GNMT, 4 layers",
        "gnmt",
        {**_GNMT, "units": 256},
        _SMALL_GNMT,
        "EAGLE, section IV: 256 units, batch 256, sentences of 20 to 50 words: all are of 50, "
        "unrolled. The rest as Google's code for translation has it, but without dropout: plain "
        "gradient descent, gradients of norm 5 at most, 32,000 word pieces.",
    ),
    CatalogModel(
        "gnmt_4_wide",
        "GNMT, 4 layers of 1024",
        "gnmt",
        {**_GNMT, "units": 1024},
        {**_SMALL_GNMT, "units": 64},
        "The same with the units of Google's code, with which memory and step are like those that "
        "EAGLE reports.",
    ),
    CatalogModel(
        "rnnlm_large",
        "RNNLM, 2 layers of 4096",
        "language_model",
        {**_RNNLM, "layers": 2, "units": 4096, "batch": 256},
        {**_SMALL_RNNLM, "units": 64},
        "ColocRL, section 4.3. It does not say the vocabulary: 10,000 words.",
    ),
    CatalogModel(
        "nmt_large",
        "NMT, 2 layers of 2048",
        "translation_model",
        {**_NMT, "layers": 2, "units": 2048, "batch": 256},
        {**_SMALL_NMT, "units": 64},
        "ColocRL, section 4.3. 32,000 word pieces, as in its end-to-end training.",
    ),
    CatalogModel(
        "inception_v3",
        "Inception-V3",
        "inception_v3",
        {"batch": 32, "use_resource": False},
        _SMALL_IMAGES,
        "ColocRL, section 4.1, and Post, section 4. Fused batch normalization, auxiliary "
        "classifier, RMSProp.",
    ),
    CatalogModel(
        "inception_v3_batch_1",
        "Inception-V3, batch 1",
        "inception_v3",
        {"batch": 1, "use_resource": False},
        {**_SMALL_IMAGES, "batch": 1},
        "EAGLE, section IV. As for batch 32.",
    ),
    CatalogModel(
        "inception_v3_towers",
        "Inception-V3, synchronous towers",
        "inception_v3",
        {"batch": 128, "towers": 4, "asynchronous": False, "use_resource": False},
        {**_SMALL_IMAGES, "batch": 8},
        "ColocRL, section 4.4: 4 replicas of batch 32, one update with their mean gradients.",
    ),
    CatalogModel(
        "inception_v3_async_towers",
        "Inception-V3, asynchronous towers",
        "inception_v3",
        {"batch": 128, "towers": 4, "asynchronous": True, "use_resource": False},
        {**_SMALL_IMAGES, "batch": 8},
        "ColocRL, section 4.4: 4 replicas of batch 32, each of which updates without waiting.",
    ),
    CatalogModel(
        "resnet_50",
        "ResNet-50",
        "resnet",
        {"depth": 50, "batch": 32, "use_resource": False},
        {**_SMALL_RESNET, "blocks": (1, 1, 1, 1)},
        "Post, section 4. He et al., Deep Residual Learning for Image Recognition, 2015; momentum.",
    ),
    CatalogModel(
        "resnet_101",
        "ResNet-101",
        "resnet",
        {"depth": 101, "batch": 32, "use_resource": False},
        {**_SMALL_RESNET, "blocks": (1, 1, 2, 1)},
        "Post, section 4. He et al., Deep Residual Learning for Image Recognition, 2015; momentum.",
    ),
    CatalogModel(
        "resnet_200",
        "ResNet-200",
        "resnet",
        {"depth": 200, "batch": 32, "use_resource": False},
        {**_SMALL_RESNET, "blocks": (1, 2, 2, 1)},
        "Post, section 4. He et al., Identity Mappings in Deep Residual Networks, 2016; momentum.",
    ),
    CatalogModel(
        "bert_base",
        "BERT-Base",
        "bert",
        {**_TRANSFORMER, "length": 384, "batch": 24, "vocabulary": 30_522, "use_resource": False},
        _SMALL_TRANSFORMER,
        "EAGLE, section IV: length 384, batch 24. Devlin et al., BERT, 2019.",
    ),
    CatalogModel(
        "decoder_only",
        "Decoder-only transformer",
        "decoder_only",
        {**_TRANSFORMER, "length": 512, "batch": 8, "vocabulary": 50_257},
        _SMALL_TRANSFORMER,
        "Radford et al., Language Models are Unsupervised Multitask Learners, 2019, the smallest "
        "size, for sequences of 512 tokens.",
    ),
    CatalogModel(
        "mixture_of_experts",
        "Mixture of experts",
        "mixture_of_experts",
        {**_TRANSFORMER, "length": 512, "batch": 8, "vocabulary": 50_257, "experts": 8},
        {**_SMALL_TRANSFORMER, "experts": 4},
        "Fedus, Zoph, Shazeer, Switch Transformers, 2021: every second block of the decoder-only "
        "transformer asks one of 8 experts.",
    ),
    CatalogModel(
        "nasnet_a",
        "NASNet-A, mobile",
        "nasnet",
        {"batch": 32, "cells": 4, "filters": 44},
        {"batch": 4, "image_size": 32, "classes": 10, "cells": 1, "filters": 4},
        "Zoph et al., Learning Transferable Architectures for Scalable Image Recognition, 2018: 4 "
        "normal cells between reductions, 1056 channels at the end.",
    ),
    CatalogModel(
        "two_towers",
        "Two-tower recommender",
        "two_towers",
        {"rows": 20_000_000, "embedding_units": 64, "batch": 4096},
        {"rows": 400, "embedding_units": 8, "hidden_units": (16, 8), "batch": 32},
        "Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item "
        "Recommendations, 2019: large embedding tables, in-batch softmax.",
    ),
    CatalogModel(
        "wide_and_deep",
        "Wide and deep recommender",
        "wide_and_deep",
        {"rows": 8_000_000, "embedding_units": 64, "batch": 4096},
        {"rows": 400, "embedding_units": 8, "hidden_units": (16, 8), "batch": 32},
        "Cheng et al., Wide & Deep Learning for Recommender Systems, 2016: FTRL for the wide part, "
        "Adagrad for the deep one; the size of TensorFlow's issue 37563.",
    ),
)

MODELS: Mapping[str, CatalogModel] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""All models by name."""


def build_model(name: str, *, small: bool = False) -> TrainingModel:
    """Builds a model of the catalog; TensorFlow and its module are imported only now.

    Args:
        name: one of `MODELS`.
        small: with a size whose steps take milliseconds.

    Returns:
        The model in a graph of its own.

    Raises:
        ValueError: there is no such model.
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; there are {', '.join(MODELS)}")
    entry = MODELS[name]
    module = importlib.import_module(f"benchmarks.models.{entry.module}")
    settings = {**entry.settings, **(entry.small if small else {})}
    model: TrainingModel = module.build(**settings)
    return model
