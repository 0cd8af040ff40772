// A chain of simulated annealing.

#ifndef TF_PLACER_NATIVE_ANNEALING_H_
#define TF_PLACER_NATIVE_ANNEALING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tf_placer/native/moves.h"
#include "tf_placer/native/step.h"

namespace tf_placer {

struct ChainRecord {
  double step_secs;
  double limit_secs;  // the longest step that the last drawn move may lead to
  double cut_share;   // a moving average of the share of cut steps among those with a limit
  int64_t excess_bytes;
  int64_t num_moved;  // groups of the last move
  int64_t num_simulated;
  int64_t num_fruitless;  // moves since `climb_secs` fell
  double climb_secs;      // the shortest step since the last restart
  double best_secs;
  int64_t best_excess_bytes;
};

// The current and the best placement of a chain. Python owns the memory.
struct ChainState {
  ChainRecord* record;
  int32_t* placement;   // [num_groups]
  int64_t* peak_bytes;  // [num_devices], peaks of the last simulated placement
  int32_t* best_placement;
  int64_t* best_peak_bytes;
  const int64_t* capacities;  // [num_devices]
};

// The parameters of the next steps of a chain.
struct ChainParameters {
  double temperature;   // as a share of the step time; positive
  double coarse_share;  // probability that a move takes a cluster
  int64_t patience;     // fruitless moves in a row before a perturbation; 0 for never
  int64_t perturbation_moves;  // moves in a perturbation
  int64_t fitting_steps;  // first steps that reject overfull moves, instead of returning
};

class Chain {
 public:
  // The reason of an end: all steps are made, or the caller has to make room for a move.
  enum End { kDone, kOverfull };

  // follows_critical_path: whether most moves start from the critical path.
  Chain(Step& step, const ChainState& state, const DrawnMove& drawn, bool follows_critical_path)
      : step_(step),
        state_(state),
        record_(*state.record),
        drawn_(drawn),
        follows_critical_path_(follows_critical_path) {
    // A critical path is never longer.
    hot_groups_.reserve(step.max_jobs());
    hot_secs_.reserve(step.max_jobs());
    hot_transfers_.reserve(2 * step.tables().max_transfers);
  }

  // The critical path of the current placement; empty if the chain does not follow it.
  const HotSpots& hot_spots() const { return hot_spots_; }

  // Continues from another placement.
  void restart(const int32_t* placement) {
    const Tables& tables = step_.tables();
    step_.put(placement);
    std::copy_n(placement, tables.num_groups, state_.placement);
    step_.run_with_memory<false, false>(kInfinity, state_.peak_bytes, nullptr);
    update_record();
    find_hot_spots();
    record_.climb_secs = record_.step_secs;
    record_.num_fruitless = 0;
  }

  // Makes some steps; returns the reason of the end, and in `num_made` the number of steps made,
  // one more if a move was given.
  End anneal(const MoveDrawer& drawer, Random random, const ChainParameters& parameters,
             bool is_given, int64_t num_steps, int64_t* num_made) {
    *num_made = num_steps += is_given;
    for (int64_t step = 0; step < num_steps; ++step) {
      const bool is_drawn = !is_given || step > 0;
      if (is_drawn && parameters.patience > 0 && record_.num_fruitless >= parameters.patience) {
        // A perturbation is simulated, so it counts as a step.
        perturb(drawer, parameters.perturbation_moves);
        continue;
      }
      const bool is_too_large = record_.excess_bytes > 0;
      int64_t most_bytes = 0;
      if (is_drawn) {
        // Draw the acceptance limit first, so that the simulation of a worse move can be cut.
        const double slack = 1.0 - parameters.temperature * std::log(1.0 - random.draw());
        record_.num_moved = drawer.draw(state_.placement, parameters.coarse_share);
        if (record_.num_moved == 0) continue;
        record_.limit_secs = is_too_large ? kInfinity : record_.step_secs * slack;
        if (is_too_large) {
          most_bytes = static_cast<int64_t>(static_cast<double>(record_.excess_bytes) * slack);
        }
      }
      ++record_.num_fruitless;
      if (!simulate_move() || step_.step_secs() > record_.limit_secs) {
        undo_move();
        continue;
      }
      if (excess_bytes() > most_bytes) {
        undo_move();
        if (!is_drawn || is_too_large || step < parameters.fitting_steps) continue;
        *num_made = step + 1;
        return kOverfull;
      }
      accept_move();
    }
    return kDone;
  }

 private:
  static constexpr double kCutAverageSteps = 32.0;
  // The least weight of a job on the critical path, relative to the mean weight and absolute.
  static constexpr double kMinWeightShare = 1e-3, kMinWeightSecs = 1e-300;

  // Computes the excess bytes of the last simulated placement.
  int64_t excess_bytes() const {
    int64_t excess = 0;
    for (int64_t device = 0; device < step_.tables().num_devices; ++device) {
      excess += std::max<int64_t>(0, state_.peak_bytes[device] - state_.capacities[device]);
    }
    return excess;
  }


  // Records the current placement, also as the best if it is better.
  void update_record() {
    record_.step_secs = step_.step_secs();
    record_.excess_bytes = excess_bytes();
    const bool is_better = record_.excess_bytes == record_.best_excess_bytes
                               ? record_.step_secs < record_.best_secs
                               : record_.excess_bytes < record_.best_excess_bytes;
    if (is_better) {
      record_.best_secs = record_.step_secs;
      record_.best_excess_bytes = record_.excess_bytes;
      std::copy_n(state_.placement, step_.tables().num_groups, state_.best_placement);
      std::copy_n(state_.peak_bytes, step_.tables().num_devices, state_.best_peak_bytes);
    }
  }

  // Finds the critical path of the last step, which was simulated to its end.
  void find_hot_spots() {
    if (!follows_critical_path_) return;
    const Tables& tables = step_.tables();
    const auto group_of = [&tables](int64_t operation) {
      return tables.operations[operation].group;
    };
    hot_groups_.clear();
    hot_secs_.clear();
    hot_transfers_.clear();
    double sum_secs = 0.0;
    int32_t next = -1;
    step_.visit_path([&](int32_t job) {
      int32_t group;
      if (job < tables.num_operations) {
        group = group_of(job);
      } else {
        const int32_t output = step_.output(job - tables.num_operations);
        group = group_of(tables.outputs[output].producer);
        // The next job on the path waited for the transfer at its destination.
        if (next >= 0 && next < tables.num_operations) {
          hot_transfers_.push_back(group);
          hot_transfers_.push_back(group_of(next));
        }
      }
      hot_groups_.push_back(group);
      hot_secs_.push_back(step_.secs(job));
      sum_secs += step_.secs(job);
      next = job;
    });
    // Jobs that take no time get a small weight, too.
    const double least_secs = kMinWeightShare * sum_secs / static_cast<double>(hot_secs_.size());
    double cumulated = 0.0;
    for (double& secs : hot_secs_) secs = cumulated += secs + least_secs + kMinWeightSecs;
    hot_spots_ = {hot_groups_.data(), hot_secs_.data(), hot_transfers_.data(),
                  static_cast<int64_t>(hot_groups_.size()),
                  static_cast<int64_t>(hot_transfers_.size() / 2)};
  }

  // Simulates the move; returns whether the simulation came to the end of the step.
  bool simulate_move() {
    ++record_.num_simulated;
    for (int64_t at = 0; at < record_.num_moved; ++at) {
      const int64_t group = drawn_.groups[at];
      step_.move(group, state_.placement[group], static_cast<int32_t>(drawn_.devices[at]));
    }
    const double limit_secs = record_.limit_secs;
    const bool is_limited = limit_secs < kInfinity;
    bool is_cut = false;
    // Memory never changes times, so simulate it only after the step time if most steps are cut.
    const bool times_first = is_limited && record_.cut_share > 0.5;
    if (times_first) is_cut = !step_.run<kNone, false, true>(limit_secs, nullptr, nullptr);
    if (!is_cut) {
      int64_t* peaks = state_.peak_bytes;
      is_cut = is_limited && !times_first
                   ? !step_.run_with_memory<false, true>(limit_secs, peaks, nullptr)
                   : !step_.run_with_memory<false, false>(kInfinity, peaks, nullptr);
    }
    if (is_limited) record_.cut_share += (is_cut - record_.cut_share) / kCutAverageSteps;
    return !is_cut;
  }

  void undo_move() {
    for (int64_t at = 0; at < record_.num_moved; ++at) {
      const int64_t group = drawn_.groups[at];
      step_.move(group, static_cast<int32_t>(drawn_.devices[at]), state_.placement[group]);
    }
  }

  // Makes the placement after the move the current one.
  void accept_move() {
    for (int64_t at = 0; at < record_.num_moved; ++at) {
      state_.placement[drawn_.groups[at]] = static_cast<int32_t>(drawn_.devices[at]);
    }
    step_.add_up(state_.placement);
    update_record();
    find_hot_spots();
    // Only a new minimum counts as progress, because fluctuations are none.
    if (record_.excess_bytes > 0 || record_.step_secs < record_.climb_secs) {
      record_.climb_secs = record_.step_secs;
      record_.num_fruitless = 0;
    }
  }

  // Restarts from a perturbation of the best placement, or from the best if that does not fit.
  void perturb(const MoveDrawer& drawer, int64_t num_moves) {
    const int64_t num_groups = step_.tables().num_groups;
    perturbed_.assign(state_.best_placement, state_.best_placement + num_groups);
    for (int64_t number = 0; number < num_moves; ++number) {
      const int64_t count = drawer.draw(perturbed_.data(), 0.0);
      for (int64_t at = 0; at < count; ++at) {
        perturbed_[drawn_.groups[at]] = static_cast<int32_t>(drawn_.devices[at]);
      }
    }
    ++record_.num_simulated;
    restart(perturbed_.data());
    if (record_.excess_bytes > record_.best_excess_bytes) {
      perturbed_.assign(state_.best_placement, state_.best_placement + num_groups);
      restart(perturbed_.data());
    }
  }

  Step& step_;
  const ChainState state_;
  ChainRecord& record_;
  const DrawnMove drawn_;
  const bool follows_critical_path_;
  HotSpots hot_spots_ = {nullptr, nullptr, nullptr, 0, 0};
  std::vector<int32_t> hot_groups_, hot_transfers_;
  std::vector<double> hot_secs_;
  std::vector<int32_t> perturbed_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_ANNEALING_H_
