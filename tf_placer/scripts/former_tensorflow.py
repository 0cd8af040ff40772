"""Advice for scripts that were written for TensorFlow 1 or Keras 2."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import types

from graph_passes.util.messages import quote

__all__ = ["advise_on_former_tensorflow"]

_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
# Parts of the names of modules that are not in the names by which scripts know them.
_LEVELS = ("_api", "compat", "v1", "v2")
_EAGER = "is not compatible with eager execution"
_MISSING_NAME = re.compile(r"cannot import name '(\w+)' from")


def advise_on_former_tensorflow(error: BaseException, script: str) -> str | None:
    """Advises on a script that has ended because it was written for TensorFlow 1 or Keras 2.

    Args:
        error: the error that has ended the script.
        script: the Python file.

    Returns:
        A sentence without a full stop; None for any other error.
    """
    if isinstance(error, RuntimeError) and _EAGER in str(error):
        return (
            "the script builds a graph as in TensorFlow 1: call "
            "tf.compat.v1.disable_v2_behavior() right after its import of TensorFlow"
        )
    owner, name = _find_missing_name(error)
    package = owner.partition(".")[0]
    if package in ("keras", "tf_keras") or owner.startswith(("tensorflow.keras", "tf.keras")):
        return _advise_on_keras(name)
    if package != "tensorflow":
        return None
    path = [part for part in (*owner.split(".")[1:], name) if part not in _LEVELS]
    if not path:
        return None
    dotted_name = quote(".".join(("tf", *path)))
    if path[0] == "examples":
        return (
            "TensorFlow 2 has no 'tensorflow.examples': tf.keras.datasets.mnist.load_data() has "
            "the images of its tutorials"
        )
    if path[0] == "estimator":
        return f"{dotted_name} went with TensorFlow 2.16: TensorFlow 2.14 and 2.15 have estimators"
    if _is_in_compat_v1(path):
        return (
            f"{dotted_name} belongs to TensorFlow 1: write 'import tensorflow.compat.v1 as tf' and "
            f"'tf.disable_v2_behavior()' in place of 'import tensorflow as tf', or let "
            f"'tf_upgrade_v2 --infile {script} --outfile NEW.py' convert the script, and call "
            "tf.compat.v1.disable_v2_behavior() after its imports"
        )
    if path[0] == "contrib":
        return (
            f"TensorFlow 2 has no {dotted_name}: 'tf_upgrade_v2 --infile {script} --outfile "
            "NEW.py' converts what has a successor; of the rest, cells of recurrent networks are "
            "in tf.compat.v1.nn.rnn_cell, with tf_keras, and layers in tf.compat.v1.layers"
        )
    return None


def _find_missing_name(error: BaseException) -> tuple[str, str]:
    """Finds the module, or the class of an object, that lacks a name, and the name.

    Returns:
        Both, "" for each that is unknown.
    """
    if isinstance(error, AttributeError) and error.name is not None:
        owner = error.obj
        # Modules of Keras that are imported late have a class of their own.
        if isinstance(owner, types.ModuleType):
            return getattr(owner, "__name__", ""), error.name
        return type(owner).__module__, error.name
    if isinstance(error, ModuleNotFoundError):
        owner, _, name = (error.name or "").rpartition(".")
        return owner, name
    if isinstance(error, ImportError) and (match := _MISSING_NAME.match(str(error))):
        return error.name or "", match[1]
    return "", ""


def _advise_on_keras(name: str) -> str | None:
    if os.environ.get(_LEGACY_KERAS) in ("1", "true", "True"):
        return None
    install = (
        "" if importlib.util.find_spec("tf_keras") else "'pip install --no-deps tf_keras', and "
    )
    return (
        f"Keras 3 has no {quote(name)}: if it is of Keras 2 or of tf.layers, {install}set "
        f"{_LEGACY_KERAS}=1 to run the script with Keras 2"
    )


def _is_in_compat_v1(path: list[str]) -> bool:
    """Says whether TensorFlow has a name for scripts of TensorFlow 1."""
    tensorflow = sys.modules.get("tensorflow")
    try:
        functools.reduce(getattr, path, tensorflow.compat.v1)  # type: ignore[union-attr]
    except Exception:  # A late import of Keras may raise anything.
        return False
    return True
