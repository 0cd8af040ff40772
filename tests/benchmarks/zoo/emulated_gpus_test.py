"""Graphs of the zoo compute on emulated GPUs what they compute without them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import unittest

from absl.testing import absltest

from benchmarks.zoo.catalog import KINDS
from tests.tf_placer.native_pass.built import in_cache_of_tests
from tf_placer import emulated
from tf_placer.library_build import LibraryError
from tf_placer.machines.lookup import find_machine

# Every sixth kind runs, but for those whose values depend on chance on GPUs.
_STRIDE = 6
_BY_CHANCE = frozenset(["variable_by_name_of_operation"])
_RUN = """
import sys
from benchmarks.zoo.placements import count_kind

for kind in sys.argv[2:]:
    count_kind(kind, 1, f"{sys.argv[1]}/{kind}.json")
"""


class EmulatedGpusTest(absltest.TestCase):
    def test_a_placement_of_every_sixth_kind_is_accepted_and_computes_the_same(self):
        kinds = [kind for kind in list(KINDS)[::_STRIDE] if kind not in _BY_CHANCE]
        runs = pathlib.Path(self.create_tempdir().full_path)
        with in_cache_of_tests():
            try:
                environ = emulated.make_environment(find_machine("emulated:2xK80,values"))
            except LibraryError as error:
                if "says" in str(error):
                    raise
                raise unittest.SkipTest(str(error)) from None
        # TensorFlow for CPUs computes with oneDNN where it may, which rounds differently.
        environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "TF_ENABLE_ONEDNN_OPTS": "0"}
        command = [sys.executable, "-c", _RUN, str(runs), *kinds]
        subprocess.run(command, env=environ, check=True, capture_output=True)
        counted = [json.loads((runs / f"{kind}.json").read_text()) for kind in kinds]
        self.assertEqual([counts["problem"] for counts in counted if counts["problem"]], [])
        for counts in counted:
            outcome = (counts["placements"], counts["accepted"], counts["equal"])
            self.assertEqual(outcome, (1, 1, 1))


if __name__ == "__main__":
    absltest.main()
