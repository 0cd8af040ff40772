from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.grouping.grouping import OPERATIONS, PINNED
from graph_passes.grouping.single_groups import single_groups
from tests import graphs
from tests.graph_passes.grouping import models


class SingleGroupsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_each_needed_colocation_group_is_a_group(self, name):
        graph = models.op_graph_of(graphs.share_graph(name))
        colocation = find_colocation_groups(graph)
        grouping = single_groups(graph, colocation)
        needed = np.unique(colocation.group[graph.needed])
        self.assertEqual(np.flatnonzero(grouping.group >= 0).tolist(), needed.tolist())
        self.assertEqual(sorted(grouping.group[needed].tolist()), list(range(len(needed))))
        self.assertEqual(grouping.num_groups, len(needed))

        alone = colocation.pinned[needed]
        kinds = np.array(grouping.kinds)[grouping.group[needed]]
        self.assertEqual((kinds == PINNED).tolist(), alone.tolist())
        self.assertEqual(set(kinds[~alone]), {OPERATIONS})
        self.assertEqual(grouping.sealed[grouping.group[needed]].tolist(), alone.tolist())

        first = [graph.num_operations] * grouping.num_groups
        for i in np.flatnonzero(graph.needed).tolist():
            group = grouping.group[colocation.group[i]]
            first[group] = min(first[group], int(graph.position[i]))
        self.assertEqual(first, sorted(first))

        types = grouping.legal_types(colocation)[grouping.group[needed]]
        for bit, device_type in enumerate(sorted(colocation.legal)):
            wanted = colocation.legal[device_type][needed]
            self.assertEqual((types >> bit & 1).astype(bool).tolist(), wanted.tolist())


if __name__ == "__main__":
    tf.test.main()
