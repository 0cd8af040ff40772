// Lower bounds of the starts of operations. The inputs of a join cannot all be on its device
// without delaying each other there.

#ifndef TF_PLACER_NATIVE_JOINS_H_
#define TF_PLACER_NATIVE_JOINS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace tf_placer {

// The input of `earliest_starts`. An edge leads from an operation to one that depends on it; no two
// edges have the same ends.
struct JoinTables {
  const int32_t* order;         // [num_operations], topological
  const int64_t* first_edge;    // [num_operations + 1], the edges into an operation
  const int32_t* sources;       // [num_edges], the producers
  const double* transfer_secs;  // [num_edges], the least; infinite if always on one device
  const uint8_t* is_forced;     // [num_edges], true if the ends are never on one device
  const double* least_secs;     // [num_operations], on any device
  const double* secs;           // [num_kinds, num_operations], on devices of this number of slots
  const int64_t* slots;         // [num_kinds]
  int64_t num_operations;
  int64_t num_kinds;
};

// Computes the earliest starts of operations.
//
// A path leads into each input of a join: it follows backward the inputs that are made last. The end
// of the path, up to the first transfer, is on the device of the join. If the join starts by some
// time, all operations whose outputs a transfer would deliver too late are certainly on its
// device, which runs them one after the other.
class EarliestStarts {
 public:
  EarliestStarts(const JoinTables& tables, double* starts)
      : tables_(tables),
        starts_(starts),
        last_inputs_(tables.num_operations, {-1, 0.0}),
        num_paths_(tables.num_operations, 0) {}

  void compute() {
    for (int64_t at = 0; at < tables_.num_operations; ++at) {
      const int32_t own = tables_.order[at];
      double made_secs = read_inputs(own);
      if (inputs_.size() > 1) {
        find_paths();
        made_secs = start_of_join(made_secs);
      }
      starts_[own] = made_secs;
    }
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Only the inputs of a join that would arrive last by transfer are considered.
  static constexpr size_t kMaxInputs = 8;
  static constexpr size_t kMaxPathLength = 64;

  // An operation, and the least time of the transfer of its output to the next operation.
  struct Place {
    int32_t operation;
    double transfer_secs;
  };

  // The end of a path. It is on the device of the join if no transfer is behind it.
  struct Part {
    double remote_secs;  // earliest arrival of the input with a transfer behind the part
    double start_secs;
    double secs;
  };

  double end_secs(int32_t operation) const {
    return starts_[operation] + tables_.least_secs[operation];
  }

  double remote_secs(const Place& place) const {
    return end_secs(place.operation) + place.transfer_secs;
  }

  // Lists the inputs that may be on the operation's device; returns the time when all are made.
  double read_inputs(int32_t own) {
    double made_secs = 0.0, last_secs = -kInfinity;
    inputs_.clear();
    for (int64_t edge = tables_.first_edge[own]; edge < tables_.first_edge[own + 1]; ++edge) {
      const Place input = {tables_.sources[edge], tables_.transfer_secs[edge]};
      if (tables_.is_forced[edge]) {
        made_secs = std::max(made_secs, remote_secs(input));
        continue;
      }
      inputs_.push_back(input);
      made_secs = std::max(made_secs, end_secs(input.operation));
      if (end_secs(input.operation) > last_secs) {
        last_secs = end_secs(input.operation);
        last_inputs_[own] = input;
      }
    }
    return made_secs;
  }

  // Finds the paths into the inputs, from their ends back to the first operation on several paths.
  void find_paths() {
    const size_t count = std::min(inputs_.size(), kMaxInputs);
    std::partial_sort(inputs_.begin(), inputs_.begin() + count, inputs_.end(),
                      [this](const Place& one, const Place& other) {
                        return remote_secs(one) > remote_secs(other);
                      });
    inputs_.resize(count);
    paths_.resize(count);
    for (size_t number = 0; number < count; ++number) {
      std::vector<Place>& path = paths_[number];
      path.clear();
      Place at = inputs_[number];
      while (at.operation >= 0 && path.size() < kMaxPathLength) {
        path.push_back(at);
        ++num_paths_[at.operation];
        at = last_inputs_[at.operation];
      }
    }
    // An operation on several paths counts only for the path that ends there, if one does.
    for (std::vector<Place>& path : paths_) {
      const auto is_shared = [this](const Place& at) { return num_paths_[at.operation] > 1; };
      path.erase(std::find_if(path.begin() + 1, path.end(), is_shared), path.end());
    }
    for (const Place& input : inputs_) {
      Place at = input;
      for (size_t length = 0; at.operation >= 0 && length < kMaxPathLength; ++length) {
        num_paths_[at.operation] = 0;
        at = last_inputs_[at.operation];
      }
    }
  }

  // Computes the earliest start of a join with these paths, not before `made_secs`.
  double start_of_join(double made_secs) {
    double best_secs = kInfinity;
    for (int64_t kind = 0; kind < tables_.num_kinds; ++kind) {
      list_parts(kind);
      // A later join needs fewer operations on its device; their number changes at these times.
      std::sort(times_.begin(), times_.end());
      auto next = std::upper_bound(times_.begin(), times_.end(), made_secs);
      double secs = made_secs, end = end_of_turns(secs);
      while (next != times_.end() && *next < end) {
        secs = *next++;
        end = end_of_turns(secs);
      }
      best_secs = std::min(best_secs, std::max(secs, end));
    }
    return best_secs;
  }

  // Lists the parts of each path, the shortest first, and the times from which each suffices.
  void list_parts(int64_t kind) {
    times_.clear();
    parts_.resize(paths_.size());
    for (size_t number = 0; number < paths_.size(); ++number) {
      std::vector<Part>& parts = parts_[number];
      parts.clear();
      Part part = {kInfinity, kInfinity, 0.0};
      double rest_secs = 0.0;
      for (const Place& place : paths_[number]) {
        const double secs = remote_secs(place) + rest_secs;
        if (secs < part.remote_secs) {
          part.remote_secs = secs;
          parts.push_back(part);
          times_.push_back(secs);
        }
        rest_secs += tables_.least_secs[place.operation];
        part.start_secs = starts_[place.operation];
        part.secs += tables_.secs[kind * tables_.num_operations + place.operation] /
                     tables_.slots[kind];
      }
      parts.push_back({-kInfinity, part.start_secs, part.secs});
    }
  }

  // Computes when the device of a join that starts by some time has run all operations on it.
  double end_of_turns(double join_secs) {
    turns_.clear();
    for (const std::vector<Part>& parts : parts_) {
      const auto is_enough = [join_secs](const Part& part) { return part.remote_secs <= join_secs; };
      const Part& part = *std::find_if(parts.begin(), parts.end(), is_enough);
      if (part.secs > 0.0) turns_.push_back({part.start_secs, part.secs});
    }
    std::sort(turns_.begin(), turns_.end());
    double rest_secs = 0.0, end = 0.0;
    for (auto turn = turns_.rbegin(); turn != turns_.rend(); ++turn) {
      rest_secs += turn->second;
      end = std::max(end, turn->first + rest_secs);
    }
    return end;
  }

  const JoinTables& tables_;
  double* const starts_;
  std::vector<Place> last_inputs_;  // by operation; its operation is -1 without an input
  std::vector<int32_t> num_paths_;  // by operation, the paths through it
  // The state of the current join.
  std::vector<Place> inputs_;
  std::vector<std::vector<Place>> paths_;   // from the end
  std::vector<std::vector<Part>> parts_;
  std::vector<double> times_;
  std::vector<std::pair<double, double>> turns_;  // (earliest start, seconds)
};

// Computes the earliest starts of operations, [num_operations].
inline void earliest_starts(const JoinTables& tables, double* starts) {
  EarliestStarts(tables, starts).compute();
}

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_JOINS_H_
