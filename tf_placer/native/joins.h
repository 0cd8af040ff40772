// When operations can start at the earliest, where what they wait for cannot all be on one device
// without waiting for its turn there.

#ifndef TF_PLACER_NATIVE_JOINS_H_
#define TF_PLACER_NATIVE_JOINS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace tf_placer {

// What `earliest_starts` reads. An edge leads from an operation to one that waits for it; no two
// have the same ends.
struct JoinTables {
  const int32_t* order;         // [num_operations], topological
  const int64_t* first_edge;    // [num_operations + 1], the edges into an operation
  const int32_t* sources;       // [num_edges], where they come from
  const double* transfer_secs;  // [num_edges], the least if not on one device; infinite if it is
  const uint8_t* is_forced;     // [num_edges], whether the ends are never on one device
  const double* least_secs;     // [num_operations], on any device
  const double* secs;           // [num_kinds, num_operations], on devices with as many slots
  const int64_t* slots;         // [num_kinds]
  int64_t num_operations;
  int64_t num_kinds;
};

// Computes when operations can start at the earliest.
//
// Into each input of a join leads a way: back from operation to operation along what is made last.
// From its end, as much of it is on the device of the join as is not sent from elsewhere. If the
// join is to start by some time, what would be there too late if it were sent is on its device for
// certain, and that does one thing after the other.
class EarliestStarts {
 public:
  EarliestStarts(const JoinTables& tables, double* starts)
      : tables_(tables),
        starts_(starts),
        last_inputs_(tables.num_operations, {-1, 0.0}),
        num_ways_(tables.num_operations, 0) {}

  void compute() {
    for (int64_t at = 0; at < tables_.num_operations; ++at) {
      const int32_t own = tables_.order[at];
      double made_secs = read_inputs(own);
      if (inputs_.size() > 1) {
        find_ways();
        made_secs = start_of_join(made_secs);
      }
      starts_[own] = made_secs;
    }
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Of more inputs only those that come last from elsewhere are looked at.
  static constexpr size_t kMostInputs = 8;
  // How many operations a way has at most.
  static constexpr size_t kLongest = 64;

  // An operation, and the least that it takes to send what it makes to what comes next.
  struct Place {
    int32_t operation;
    double transfer_secs;
  };

  // The end of a way. It is on the device of the join if nothing behind it is sent.
  struct Part {
    double remote_secs;  // when the join has its input at the earliest if something is
    double start_secs;
    double secs;
  };

  double end_secs(int32_t operation) const {
    return starts_[operation] + tables_.least_secs[operation];
  }

  double remote_secs(const Place& place) const {
    return end_secs(place.operation) + place.transfer_secs;
  }

  // Lists the inputs that may be where the operation is; returns when all inputs are made.
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

  // Finds the ways into the inputs, from their ends back to what is on several of them.
  void find_ways() {
    const size_t count = std::min(inputs_.size(), kMostInputs);
    std::partial_sort(inputs_.begin(), inputs_.begin() + count, inputs_.end(),
                      [this](const Place& one, const Place& other) {
                        return remote_secs(one) > remote_secs(other);
                      });
    inputs_.resize(count);
    ways_.resize(count);
    for (size_t number = 0; number < count; ++number) {
      std::vector<Place>& way = ways_[number];
      way.clear();
      Place at = inputs_[number];
      while (at.operation >= 0 && way.size() < kLongest) {
        way.push_back(at);
        ++num_ways_[at.operation];
        at = last_inputs_[at.operation];
      }
    }
    // What is on several ways counts for the one that ends there, if one does.
    for (std::vector<Place>& way : ways_) {
      const auto is_shared = [this](const Place& at) { return num_ways_[at.operation] > 1; };
      way.erase(std::find_if(way.begin() + 1, way.end(), is_shared), way.end());
    }
    for (const Place& input : inputs_) {
      Place at = input;
      for (size_t length = 0; at.operation >= 0 && length < kLongest; ++length) {
        num_ways_[at.operation] = 0;
        at = last_inputs_[at.operation];
      }
    }
  }

  // Computes when a join with these ways can start at the earliest, and not before `made_secs`.
  double start_of_join(double made_secs) {
    double best_secs = kInfinity;
    for (int64_t kind = 0; kind < tables_.num_kinds; ++kind) {
      list_parts(kind);
      // A later join has less on its device, at these times.
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

  // Lists the parts of each way, the shortest first, and the times from which each is enough.
  void list_parts(int64_t kind) {
    times_.clear();
    parts_.resize(ways_.size());
    for (size_t number = 0; number < ways_.size(); ++number) {
      std::vector<Part>& parts = parts_[number];
      parts.clear();
      Part part = {kInfinity, kInfinity, 0.0};
      double rest_secs = 0.0;
      for (const Place& place : ways_[number]) {
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

  // Computes when the device of a join that is to start by some time has done what is on it.
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
  std::vector<Place> last_inputs_;  // by operation; that of those without an input is -1
  std::vector<int32_t> num_ways_;   // on which an operation is
  // Of one join.
  std::vector<Place> inputs_;
  std::vector<std::vector<Place>> ways_;   // from the end
  std::vector<std::vector<Part>> parts_;
  std::vector<double> times_;
  std::vector<std::pair<double, double>> turns_;  // (when it can start, how long it takes)
};

// Computes [num_operations] for when operations can start at the earliest.
inline void earliest_starts(const JoinTables& tables, double* starts) {
  EarliestStarts(tables, starts).compute();
}

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_JOINS_H_
