"""Ways to spend less on compiling where networks are tiny."""

from __future__ import annotations

import unittest

import tensorflow as tf

__all__ = ["leave_graphs_as_traced", "run_eagerly"]


def run_eagerly(test: unittest.TestCase) -> None:
    """Compiles nothing until the test ends: it would trace for seconds what takes milliseconds."""
    tf.config.run_functions_eagerly(True)
    test.addCleanup(tf.config.run_functions_eagerly, False)


def leave_graphs_as_traced() -> None:
    """Switches the rewriting of graphs off until the tests of the module end; a `setUpModule`.

    Of tiny networks it takes longer than all that it saves.
    """
    rewriting = tf.config.optimizer
    rewriting.set_experimental_options({"disable_meta_optimizer": True})
    unittest.addModuleCleanup(rewriting.set_experimental_options, {"disable_meta_optimizer": False})
