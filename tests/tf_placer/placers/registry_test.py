import subprocess
import sys

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers import PLACERS, make_placer

_LEGAL = np.ones([4, 2], np.bool_)


class RegistryTest(absltest.TestCase):
    def test_makes_every_placer_under_its_name(self):
        self.assertEqual(set(PLACERS), {"single_device", "random", "expert", "colocrl"})
        for name in PLACERS:
            placer = make_placer(name, graphs.chain(4), _LEGAL, seed=5)
            self.assertEqual(placer.name, name)
            self.assertEqual(placer.seed, 5)

    def test_options_reach_the_placer(self):
        options = {"batch_size": "6", "hidden_units": 16, "shape_layout": "terminated"}
        placer = make_placer("colocrl", graphs.chain(4), _LEGAL, options=options)
        self.assertEqual(placer.batch_size, 6)
        self.assertEqual(placer.config.hidden_units, 16)
        self.assertEqual(placer.config.shape_layout, "terminated")
        self.assertEqual(placer.config.learning_rate, 1e-4)

    def test_an_unknown_placer_is_named_and_the_known_ones_listed(self):
        with self.assertRaisesRegex(ValueError, "'colocate'.*colocrl, expert, random"):
            make_placer("colocate", graphs.chain(4), _LEGAL)

    def test_an_unknown_option_is_named_and_the_known_ones_listed(self):
        with self.assertRaisesRegex(ValueError, "'colocrl' has no option 'rate'.*learning_rate"):
            make_placer("colocrl", graphs.chain(4), _LEGAL, options={"rate": 1})
        with self.assertRaisesRegex(ValueError, "'random' has no option 'rate'.*none"):
            make_placer("random", graphs.chain(4), _LEGAL, options={"rate": 1})

    def test_heuristics_do_not_import_tensorflow(self):
        program = (
            "import sys, numpy as np\n"
            "from tests.tf_placer.placers import graphs\n"
            "from tf_placer.placers import make_placer\n"
            "for name in ('single_device', 'random', 'expert'):\n"
            "    make_placer(name, graphs.chain(4), np.ones([4, 2], bool)).propose(3)\n"
            "print('tensorflow' in sys.modules)\n"
        )
        printed = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertEqual(printed.strip(), "False")


if __name__ == "__main__":
    absltest.main()
