// Plain simulated annealing, to compare `auto` with.
//
// A move takes a group; a group and its neighbors in the graph; or a group to the device of a
// neighbor. The temperature falls exponentially over a budget of core seconds. Steps are those of
// the compiled core of tf_placer, so both minimize the same function, but memory is not simulated.

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "tf_placer/native/step.h"
#include "tf_placer/native/tables.h"

namespace {

using tf_placer::kInfinity;
using tf_placer::kNone;
using tf_placer::Step;
using tf_placer::Tables;

// The groups that exchange tensors with each group.
struct Neighbors {
  const int64_t* start;   // [num_groups + 1], indices into `groups`
  const int32_t* groups;
};

struct Parameters {
  double core_secs;          // the budget
  int64_t max_steps;         // the budget in steps, if it is less
  double first_temperature;  // as a share of the step time
  double last_temperature;
  uint64_t seed;
};

struct Result {
  double step_secs;
  double core_secs;
  int64_t num_simulated;
};

double thread_secs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Annealer {
 public:
  Annealer(const Tables& tables, const Neighbors& neighbors, const Parameters& parameters,
           const int32_t* start)
      : tables_(tables),
        neighbors_(neighbors),
        parameters_(parameters),
        random_(parameters.seed),
        step_(tables),
        placement_(start, start + tables.num_groups),
        best_(placement_) {
    for (int64_t group = 0; group < tables.num_groups; ++group) {
      const uint8_t* legal = tables.group_is_legal + group * tables.num_devices;
      if (std::count(legal, legal + tables.num_devices, 1) > 1) movable_.push_back(group);
    }
    step_.put(start);
    step_.run<kNone, false, false>(kInfinity, nullptr, nullptr);
    current_secs_ = best_secs_ = step_.step_secs();
  }

  Result run() {
    const double begin_secs = thread_secs();
    const double ratio = parameters_.last_temperature / parameters_.first_temperature;
    double used = 0.0, temperature = parameters_.first_temperature;
    int64_t number = 1;
    for (; number < parameters_.max_steps && !movable_.empty(); ++number) {
      if (number % kStepsPerClock == 0) {
        used = std::max((thread_secs() - begin_secs) / parameters_.core_secs,
                        static_cast<double>(number) /
                            static_cast<double>(parameters_.max_steps));
        if (used >= 1.0) break;
        temperature = parameters_.first_temperature * std::pow(ratio, used);
      }
      draw_move();
      try_move(current_secs_ * (1.0 - temperature * std::log(1.0 - draw())));
    }
    return {best_secs_, thread_secs() - begin_secs, number};
  }

  const std::vector<int32_t>& best() const { return best_; }

 private:
  enum Kind { kOne, kNeighborhood, kJoin, kNumKinds };
  static constexpr int64_t kStepsPerClock = 16;

  // Draws from 0 to 1, without 1.
  double draw() { return std::generate_canonical<double, 53>(random_); }
  int64_t draw_below(int64_t count) {
    return static_cast<int64_t>(draw() * static_cast<double>(count));
  }

  // Adds a group to the move if it may go to the device and is not there.
  void add(int32_t group, int32_t device) {
    const bool is_legal = tables_.group_is_legal[group * tables_.num_devices + device];
    if (is_legal && placement_[group] != device) move_.emplace_back(group, placement_[group]);
  }

  // Draws the groups of a move, with their current devices, and their new device.
  void draw_move() {
    do {
      move_.clear();
      const int32_t group = movable_[draw_below(static_cast<int64_t>(movable_.size()))];
      const int64_t begin = neighbors_.start[group], end = neighbors_.start[group + 1];
      const int64_t kind = draw_below(kNumKinds);
      device_ = static_cast<int32_t>(draw_below(tables_.num_devices));
      if (kind == kJoin && begin < end) {
        device_ = placement_[neighbors_.groups[begin + draw_below(end - begin)]];
      }
      add(group, device_);
      if (kind == kNeighborhood) {
        for (int64_t at = begin; at < end; ++at) add(neighbors_.groups[at], device_);
      }
      // A placement on one device has no joins, but other moves follow.
    } while (move_.empty());
  }

  void try_move(double limit_secs) {
    for (const auto& [group, source] : move_) step_.move(group, source, device_);
    if (!step_.run<kNone, false, true>(limit_secs, nullptr, nullptr) ||
        step_.step_secs() > limit_secs) {
      for (const auto& [group, source] : move_) step_.move(group, device_, source);
      return;
    }
    for (const auto& [group, source] : move_) placement_[group] = device_;
    step_.add_up(placement_.data());
    current_secs_ = step_.step_secs();
    if (current_secs_ < best_secs_) {
      best_secs_ = current_secs_;
      best_ = placement_;
    }
  }

  const Tables& tables_;
  const Neighbors neighbors_;
  const Parameters parameters_;
  std::mt19937_64 random_;
  Step step_;
  std::vector<int32_t> placement_, best_, movable_;
  std::vector<std::pair<int32_t, int32_t>> move_;  // (group, source)
  int32_t device_ = 0;
  double current_secs_, best_secs_;
};

}  // namespace

extern "C" {

// Anneals from a legal placement, [num_groups], and replaces it by the best one; returns 0, or -1
// if there is too little memory.
int64_t anneal(const Tables* tables, const Neighbors* neighbors, const Parameters* parameters,
               int32_t* placement, Result* result) {
  try {
    Annealer annealer(*tables, *neighbors, *parameters, placement);
    *result = annealer.run();
    std::copy(annealer.best().begin(), annealer.best().end(), placement);
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

}  // extern "C"
