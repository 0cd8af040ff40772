"""Manual placements of the catalog's models, the Expert of the papers, by name scopes.

Gradients and updates have the scope of their layer in their names ("gradients/layer_0/step_3/...",
"train/update_layer_0/kernel/..."), so that they go where the layer is. With L layers and G GPUs,
layer i is on GPU i, and on GPU floor(i G / L) where there are more layers than GPUs.

- RNNLM: the layers as above, the embedding with the first, the softmax with the last.
- NMT, `expert_merged`: a layer of the encoder and of the decoder as above, the embeddings with the
  first, the attention and the softmax with the last. `expert_split`: the attention and the softmax
  count as two more layers.
- GNMT: layers, attention and softmax in turn, one GPU each and then the first again; the embeddings
  with the first layer.
- Inception-V3, ResNet, NASNet: one GPU. Towers: one GPU each, the variables on the CPU.
- BERT: nobody has a rule.
- Decoder-only: the layers in contiguous parts, the embedding and the softmax, which share their
  weights, with the first. Mixture of experts: the same, and expert i on GPU i mod G.
- Two towers: the embeddings on the CPU, all else on one GPU.

The papers leave some of it open: where the embedding and the softmax of RNNLM are, what happens
with more layers than GPUs, and how four layers, attention and softmax are on a GPU each of four.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, 2017, sections
    4.2 (`expert_merged`) and 4.4 (`expert_split`, towers).
    Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
    Optimization, 2018, section 4.
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    2021, section IV.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.models.catalog import MODELS

__all__ = ["expert_placements"]

_CPU = 0
# A pattern of name scopes, and the device as a function of the number in the name (0 without a
# number). The first pattern that matches a name decides.
_Rules = Sequence[tuple[str, Callable[[int], int]]]
_LAYER = r"layer_(\d+)"


def expert_placements(
    model_name: str,
    operation_names: Sequence[str],
    groups: np.ndarray,
    legal: np.ndarray,
    num_gpus: int,
) -> Mapping[str, np.ndarray]:
    """Places a model as people do.

    A group goes where most of its operations with a rule belong, to the first of several such
    devices, and to the first GPU if none has a rule. One that may not go there goes to the first
    device where it may.

    Args:
        model_name: one of `MODELS`.
        operation_names: of the operations, with the name scopes of the model's module.
        groups: int32 [num_operations], the group of each operation, -1 for those in none.
        legal: bool [num_groups, num_devices], true where a group may go; device 0 is the CPU, the
            others are GPUs.
        num_gpus: how many of the GPUs to use.

    Returns:
        int32 [num_groups], a device for each group, by the name of the rule: none if nobody has a
        rule for the model, two for NMT.

    Raises:
        ValueError: there is no such model, or there are not as many GPUs.
    """
    if model_name not in MODELS:
        raise ValueError(f"there is no model {model_name!r}; there are {', '.join(MODELS)}")
    if not 1 <= num_gpus < legal.shape[1]:
        raise ValueError(
            f"num_gpus must be from 1 to {legal.shape[1] - 1}, the GPUs of `legal`, not {num_gpus}"
        )
    entry = MODELS[model_name]
    make_rules = _towers if "towers" in entry.settings else _RULES[entry.module]
    layers = _num_layers(operation_names)
    return {
        name: _placement(rules, operation_names, groups, legal)
        for name, rules in make_rules(layers, num_gpus).items()
    }


def _num_layers(operation_names: Sequence[str]) -> int:
    found = (re.search(rf"(?:^|/){_LAYER}/", name) for name in operation_names)
    return 1 + max((int(match[1]) for match in found if match), default=0)


def _placement(
    rules: _Rules, operation_names: Sequence[str], groups: np.ndarray, legal: np.ndarray
) -> np.ndarray:
    patterns = [(_pattern(scope), device_of) for scope, device_of in rules]
    votes = np.zeros(legal.shape, np.int64)
    for name, group in zip(operation_names, groups.tolist(), strict=True):
        device = _device(name, patterns)
        if group >= 0 and device is not None:
            votes[group, device] += 1
    wanted = np.where(votes.any(axis=1), votes.argmax(axis=1), 1)
    allowed = legal[np.arange(len(legal)), wanted]
    return np.where(allowed, wanted, legal.argmax(axis=1)).astype(np.int32)


def _pattern(scope: str) -> re.Pattern[str]:
    """Finds a scope in a name: a part of its own, that of an update, or one numbered twice."""
    return re.compile(rf"(?:^|/|update_)(?:{scope})(?:_grad)?(?:_\d+)?(?:/|$)")


def _device(
    name: str, patterns: Sequence[tuple[re.Pattern[str], Callable[[int], int]]]
) -> int | None:
    for pattern, device_of in patterns:
        if match := pattern.search(name):
            return device_of(int(match[1]) if pattern.groups else 0)
    return None


def _gpu_of_part(parts: int, gpus: int) -> Callable[[int], int]:
    """Makes the function that gives the device of part i: GPU i is device i + 1."""
    return lambda part: 1 + (part if parts <= gpus else part * gpus // parts)


def _on(device: int) -> Callable[[int], int]:
    return lambda _: device


def _language_model(layers: int, gpus: int) -> dict[str, _Rules]:
    gpu = _gpu_of_part(layers, gpus)
    last = _on(gpu(layers - 1))
    return {"expert": [(_LAYER, gpu), ("embedding", _on(gpu(0))), ("softmax|loss", last)]}


def _translation_model(layers: int, gpus: int) -> dict[str, _Rules]:
    merged = _gpu_of_part(layers, gpus)
    split = _gpu_of_part(layers + 2, gpus)
    last = layers - 1
    return {
        "expert_merged": _translation_rules(merged, merged(last), merged(last)),
        "expert_split": _translation_rules(split, split(last + 1), split(last + 2)),
    }


def _gnmt(layers: int, gpus: int) -> dict[str, _Rules]:
    def gpu(part: int) -> int:
        return 1 + part % gpus

    return {"expert": _translation_rules(gpu, gpu(layers), gpu(layers + 1))}


def _translation_rules(layer: Callable[[int], int], attention: int, softmax: int) -> _Rules:
    return [
        (_LAYER, layer),
        ("source_embedding|target_embedding", _on(layer(0))),
        # The attention reads what the encoder says.
        ("attention|encoder", _on(attention)),
        ("softmax|loss", _on(softmax)),
    ]


def _one_gpu(layers: int, gpus: int) -> dict[str, _Rules]:
    del layers, gpus
    return {"expert": []}


def _towers(layers: int, gpus: int) -> dict[str, _Rules]:
    del layers
    rules: _Rules = [
        ("train", _on(_CPU)),
        (r"tower_(\d+)", lambda tower: 1 + tower % gpus),
        (".*", _on(_CPU)),
    ]
    return {"expert": rules}


def _nobody(layers: int, gpus: int) -> dict[str, _Rules]:
    del layers, gpus
    return {}


def _transformer(layers: int, gpus: int) -> dict[str, _Rules]:
    rules: _Rules = [
        (r"expert_(\d+)", lambda expert: 1 + expert % gpus),
        (_LAYER, _gpu_of_part(layers, gpus)),
    ]
    return {"expert": rules}


def _two_towers(layers: int, gpus: int) -> dict[str, _Rules]:
    del layers, gpus
    return {"expert": [(r"embedding_\w+?", _on(_CPU))]}


def _wide_and_deep(layers: int, gpus: int) -> dict[str, _Rules]:
    del layers, gpus
    # The weights of the wide part are tables with one number per row.
    return {"expert": [(r"embedding_\w+?|wide", _on(_CPU))]}


_RULES: Mapping[str, Callable[[int, int], dict[str, _Rules]]] = {
    "bert": _nobody,
    "decoder_only": _transformer,
    "gnmt": _gnmt,
    "inception_v3": _one_gpu,
    "language_model": _language_model,
    "mixture_of_experts": _transformer,
    "nasnet": _one_gpu,
    "resnet": _one_gpu,
    "translation_model": _translation_model,
    "two_towers": _two_towers,
    "wide_and_deep": _wide_and_deep,
}
