// When operations can start at the earliest, where what they wait for cannot all be on one device
// without waiting for its turn there.

#ifndef TF_PLACER_NATIVE_JOINS_H_
#define TF_PLACER_NATIVE_JOINS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace tf_placer {

// What `earliest_starts` reads. An edge leads from an operation to one that waits for it; no two
// have the same ends.
struct JoinTables {
  const int32_t* order;          // [num_operations], topological
  const int64_t* first_edge;     // [num_operations + 1], the edges into an operation
  const int32_t* sources;        // [num_edges], where they come from
  const double* transfer_secs;   // [num_edges], the least if not on one device; infinite if it is
  const uint8_t* is_forced;      // [num_edges], whether the ends are never on one device
  const int32_t* num_followers;  // [num_operations], the edges out of an operation
  const double* least_secs;      // [num_operations], on any device
  const double* secs;            // [num_kinds, num_operations], on devices with as many slots
  const int64_t* slots;          // [num_kinds]
  int64_t num_operations;
  int64_t num_kinds;
};

// The way into an operation along which nothing else comes in or goes out.
struct Way {
  double start_secs;     // of its first operation
  double transfer_secs;  // the least that it takes if it is not all on one device
};

// Computes [num_operations] for when operations can start at the earliest.
//
// A join either has all of its inputs, each with the way into it, on its own device, which then
// runs them one after the other; or some of them come from elsewhere, later by a transfer. Whatever
// is better is a bound.
inline void earliest_starts(const JoinTables& tables, double* starts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Of more inputs only those that come last from elsewhere are looked at.
  constexpr size_t kMostInputs = 8;
  struct Input {
    int32_t source;
    double remote_secs;
  };
  const int64_t count = tables.num_operations;
  std::vector<Way> ways(count);
  // What the ways take in all, on devices of each kind.
  std::vector<double> sums(tables.secs, tables.secs + tables.num_kinds * count);
  std::vector<Input> inputs;
  std::array<std::pair<double, double>, kMostInputs> jobs;
  for (int64_t at = 0; at < count; ++at) {
    const int32_t own = tables.order[at];
    const int64_t first = tables.first_edge[own], end = tables.first_edge[own + 1];
    double base_secs = 0.0;
    inputs.clear();
    for (int64_t edge = first; edge < end; ++edge) {
      const int32_t source = tables.sources[edge];
      const double secs = tables.transfer_secs[edge];
      const double here_secs = starts[source] + tables.least_secs[source];
      if (tables.is_forced[edge]) {
        base_secs = std::max(base_secs, here_secs + secs);
        continue;
      }
      base_secs = std::max(base_secs, here_secs);
      inputs.push_back({source, here_secs + std::min(ways[source].transfer_secs, secs)});
    }
    if (inputs.size() > 1) {
      const auto comes_later = [](const Input& one, const Input& other) {
        return one.remote_secs > other.remote_secs;
      };
      const size_t most = std::min(inputs.size(), kMostInputs);
      std::partial_sort(inputs.begin(), inputs.begin() + most, inputs.end(), comes_later);
      inputs.resize(most);
      // The first `local` are on the device of the join, the others come from elsewhere.
      double best_secs = kInfinity;
      for (size_t local = 0; local <= most; ++local) {
        double value = base_secs;
        if (local < most) value = std::max(value, inputs[local].remote_secs);
        if (local > 1) {
          double local_secs = kInfinity;
          for (int64_t kind = 0; kind < tables.num_kinds; ++kind) {
            for (size_t number = 0; number < local; ++number) {
              const int32_t source = inputs[number].source;
              jobs[number] = {ways[source].start_secs, sums[kind * count + source]};
            }
            std::sort(jobs.begin(), jobs.begin() + local);
            double rest_secs = 0.0, end_secs = 0.0;
            for (size_t number = local; number-- > 0;) {
              rest_secs += jobs[number].second;
              end_secs =
                  std::max(end_secs, jobs[number].first + rest_secs / tables.slots[kind]);
            }
            local_secs = std::min(local_secs, end_secs);
          }
          value = std::max(value, local_secs);
        }
        best_secs = std::min(best_secs, value);
      }
      base_secs = best_secs;
    }
    starts[own] = base_secs;
    ways[own] = {base_secs, kInfinity};
    if (end - first == 1) {
      const int32_t source = tables.sources[first];
      if (tables.num_followers[source] == 1 && !tables.is_forced[first]) {
        ways[own] = {ways[source].start_secs,
                     std::min(ways[source].transfer_secs, tables.transfer_secs[first])};
        for (int64_t kind = 0; kind < tables.num_kinds; ++kind) {
          sums[kind * count + own] += sums[kind * count + source];
        }
      }
    }
  }
}

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_JOINS_H_
