import random

from absl.testing import absltest

from benchmarks.search_quality.published_graphs import TaskGraph
from benchmarks.search_quality.schedule_lengths import compute_length, fifo_length
from benchmarks.search_quality.schedule_search import SearchLimits, search_schedule
from tests.benchmarks.search_quality.task_graphs import (
    list_placements,
    random_graph,
    shortest_length,
)


def search(graph, seed=0, max_rounds=5, **options):
    start = [0] * graph.num_tasks
    return search_schedule(graph, start, SearchLimits(max_rounds=max_rounds), seed=seed, **options)


class ScheduleSearchTest(absltest.TestCase):
    def test_finds_the_shortest_schedule(self):
        for seed in range(8):
            graph = random_graph(seed, num_tasks=5, num_processors=3)
            found = search(graph)
            self.assertEqual(found.length, shortest_length(graph))
            self.assertEqual(found.length, compute_length(graph, found.placement, found.order))
            places = {task: place for place, task in enumerate(found.order)}
            self.assertTrue(all(places[a] < places[b] for a, b, _ in graph.edges))

    def test_finds_the_placement_with_the_shortest_fifo_order(self):
        for seed in range(8):
            graph = random_graph(seed, num_tasks=6, num_processors=3)
            found = search(graph, is_fifo=True)
            shortest = min(fifo_length(graph, placement) for placement in list_placements(graph))
            self.assertEqual(found.length, shortest)
            self.assertEqual(found.length, fifo_length(graph, found.placement))

    def test_moves_heavy_clusters_as_one(self):
        # Two chains whose messages cost more than they gain: moving a task at a time never pays.
        edges = tuple((task, task + 2, 100) for task in range(18))
        graph = TaskGraph("two chains", 2, (1,) * 20, edges, 10)
        self.assertEqual(search(graph).length, 10)

    def test_the_seed_decides(self):
        graph = random_graph(3, num_tasks=12, num_processors=3)
        first, second = (search(graph, seed=7, max_rounds=1) for _ in range(2))
        self.assertEqual((first.placement, first.order), (second.placement, second.order))

    def test_ends_when_it_is_short_enough(self):
        graph = random_graph(3, num_tasks=12, num_processors=3)
        start = [random.Random(0).randrange(3) for _ in range(12)]
        limits = SearchLimits(max_rounds=100, enough=10**6)
        self.assertEqual(search_schedule(graph, start, limits).placement, tuple(start))

    def test_needs_a_limit(self):
        graph = random_graph(0)
        with self.assertRaisesRegex(ValueError, "needs a limit"):
            search_schedule(graph, [0] * graph.num_tasks, SearchLimits(enough=3))


if __name__ == "__main__":
    absltest.main()
