import pathlib

from absl.testing import absltest, parameterized

from benchmarks.search_quality.published_graphs import read_task_graph, sort_topologically
from tests.benchmarks.search_quality.task_graphs import write_gxl

# The sink has the first id. One branch runs on another processor.
NODES = [("9", 2, 8, 0), ("1", 3, 0, 0), ("2", 4, 3, 0), ("3", 2, 4, 1)]
EDGES = [("1", "2", 5), ("1", "3", 1), ("2", "9", 7), ("3", "9", 2)]


class PublishedGraphsTest(parameterized.TestCase):
    def read(self, content):
        path = pathlib.Path(self.create_tempdir().full_path, "some graph.gxl")
        path.write_text(content)
        return read_task_graph(path)

    def test_reads_a_graph_in_topological_order(self):
        graph = self.read(write_gxl(NODES, EDGES))
        self.assertEqual(graph.name, "some graph")
        self.assertEqual(graph.num_processors, 2)
        self.assertEqual(graph.optimal_length, 10)
        self.assertEqual(graph.lengths, (3, 4, 2, 2))
        self.assertEqual(graph.edges, ((0, 1, 5), (0, 2, 1), (1, 3, 7), (2, 3, 2)))
        self.assertEqual(graph.inputs, ((), ((0, 5),), ((0, 1),), ((1, 7), (2, 2))))
        self.assertEqual(graph.outputs, (((1, 5), (2, 1)), ((3, 7),), ((3, 2),), ()))
        self.assertEqual(graph.earliest_starts, (0, 3, 3, 7))
        self.assertEqual(graph.rests, (6, 2, 2, 0))
        self.assertFalse(graph.says_solver_time)

    def test_reads_whether_a_solver_took_time(self):
        more = '<attr name="Time to schedule (ms)"><int>7</int></attr>'
        self.assertTrue(self.read(write_gxl(NODES, EDGES, more=more)).says_solver_time)

    @parameterized.parameters(
        ("", "no XML"),
        ("<gxl></gxl>", "no graph"),
        (write_gxl([], []), "no nodes"),
        (
            write_gxl(NODES, EDGES, processors=0),
            '"Number of processors" of the graph must be at least 1',
        ),
        (
            write_gxl(NODES, EDGES).replace("Total schedule length", "Total"),
            "Total schedule length",
        ),
        (write_gxl(NODES, EDGES, length="ten"), "no whole number: 'ten'"),
        (write_gxl([*NODES, NODES[0]], EDGES), "the id 9 of another"),
        (write_gxl(NODES, EDGES).replace(' id="9"', ""), "no id"),
        (write_gxl(NODES, [*EDGES, ("1", "7", 1)]), "the edge from 1 to 7 has no node 7"),
        (
            write_gxl(NODES, EDGES).replace('from="1"', "", 1),
            "the edge from None to 2 has no node None",
        ),
        (write_gxl(NODES, [*EDGES, EDGES[0]]), "from 1 to 2 is there twice"),
        (write_gxl(NODES, [*EDGES, ("9", "1", 1)]), "a cycle"),
        (write_gxl(NODES, [("1", "2", -5), *EDGES[1:]]), "must be at least 0, not -5"),
        (write_gxl([("9", "x", 8, 0), *NODES[1:]], EDGES), '"Weight" of node 9'),
        # Its processor is still busy, its input is on the way, and the length is another.
        (write_gxl([("9", 2, 6, 0), *NODES[1:]], EDGES), "starts node 9 while another runs"),
        (write_gxl([*NODES[:3], ("3", 2, 3, 1)], EDGES), "starts node 3 before its inputs arrive"),
        (write_gxl([("9", 2, 9, 0), *NODES[1:]], EDGES), "ends at 11, not at 10"),
        (write_gxl(NODES, EDGES, processors=1), "more than 1 processors"),
    )
    def test_refuses_other_files_by_name(self, content, message):
        with self.assertRaisesRegex(ValueError, "some graph.gxl.*" + message):
            self.read(content)

    def test_refuses_missing_files(self):
        with self.assertRaises(OSError):
            read_task_graph("/no/such/file.gxl")

    def test_sorts_smallest_first(self):
        self.assertEqual(sort_topologically(4, [(3, 0), (2, 0)]), [1, 2, 3, 0])


if __name__ == "__main__":
    absltest.main()
