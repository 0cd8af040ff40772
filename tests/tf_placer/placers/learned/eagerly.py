"""Running what is compiled step by step instead, where a test needs only few of them."""

from __future__ import annotations

import unittest

import tensorflow as tf

__all__ = ["run_eagerly"]


def run_eagerly(test: unittest.TestCase) -> None:
    """Compiles nothing until the test ends: it would trace for seconds what takes milliseconds."""
    tf.config.run_functions_eagerly(True)
    test.addCleanup(tf.config.run_functions_eagerly, False)
