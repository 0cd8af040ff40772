from unittest import mock

from absl.testing import absltest

from tf_placer.placers.auto import auto_search
from tf_placer.placers.auto.annealing import Annealer
from tf_placer.placers.auto.warm_up import warm_up
from tf_placer.simulation.simulator import Simulator


class WarmUpTest(absltest.TestCase):
    def test_runs_what_a_search_has_compiled(self):
        with (
            mock.patch.object(Annealer, "run", autospec=True, side_effect=Annealer.run) as steps,
            mock.patch.object(
                Simulator, "simulate", autospec=True, side_effect=Simulator.simulate
            ) as simulate,
            mock.patch.object(auto_search, "ExhaustiveSearch") as exhaustive,
        ):
            exhaustive.return_value.expected.return_value = (1e9, 1e9)
            warm_up()
        steps.assert_called()
        simulate.assert_called()


if __name__ == "__main__":
    absltest.main()
