"""Builds the pass once for all tests."""

from __future__ import annotations

import os
import tempfile
import unittest
from unittest import mock

from tf_placer.library_build import LibraryError
from tf_placer.native_pass.loading import build_pass

__all__ = ["in_cache_of_tests", "skip_unless_built"]


def in_cache_of_tests() -> mock._patch_dict:
    """Keeps what is built out of the cache of the person who runs the tests.

    It stays for other test processes: the name of a library says what it was built of.
    """
    directory = os.path.join(tempfile.gettempdir(), f"tf_placer_tests_{os.getuid()}")
    return mock.patch.dict(os.environ, {"XDG_CACHE_HOME": directory})


def skip_unless_built() -> None:
    """Skips the tests of a class where nothing can be compiled."""
    with in_cache_of_tests():
        try:
            build_pass()
        except LibraryError as error:
            if "says" in str(error):
                raise
            raise unittest.SkipTest(str(error)) from None
