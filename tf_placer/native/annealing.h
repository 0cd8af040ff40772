// A chain of simulated annealing: where it is, the best that it found, and its steps.

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
  double limit_secs;  // what a move may take, the last time that one was drawn
  double cut_share;   // of the latest steps with a limit, how many were cut
  int64_t excess_bytes;
  int64_t num_moved;  // groups of the last move
  int64_t num_simulated;
  int64_t num_fruitless;  // moves since the shortest step since the last kick
  double climb_secs;      // which was that
  double best_secs;
  int64_t best_excess_bytes;
};

// Where a chain is, and the best that it found. Python owns it.
struct ChainState {
  ChainRecord* record;
  int32_t* placement;   // [num_groups]
  int64_t* peak_bytes;  // [num_devices], of the last placement that was simulated
  int32_t* best_placement;
  int64_t* best_peak_bytes;
  const int64_t* capacities;  // [num_devices]
};

// How a chain goes on.
struct Plan {
  double temperature;   // as a share of the step time; positive
  double coarse_share;  // how often moves take clusters
  int64_t patience;     // after how many fruitless moves in a row to kick; 0 for never
  int64_t kick;         // how many moves at once that is
  int64_t fitting_steps;  // so many steps take only what fits, and nobody is asked for room
};

class Chain {
 public:
  // Why it ended: all steps are made, or somebody has to make room for a move.
  enum End { kDone, kOverfull };

  // looks: whether it looks at the critical path, where most moves then begin.
  Chain(Step& step, const ChainState& state, const DrawnMove& drawn, bool looks)
      : step_(step), state_(state), record_(*state.record), drawn_(drawn), looks_(looks) {
    // A look never needs more.
    hot_groups_.reserve(step.max_jobs());
    hot_secs_.reserve(step.max_jobs());
    hot_transfers_.reserve(2 * step.tables().max_transfers);
  }

  // What the step waits for where the chain is; nothing if it does not look.
  const HotSpots& hot_spots() const { return hot_spots_; }

  // Goes on from another placement.
  void restart(const int32_t* placement) {
    const Tables& tables = step_.tables();
    step_.put(placement);
    std::copy_n(placement, tables.num_groups, state_.placement);
    step_.run_with_memory<false, false>(kInfinity, state_.peak_bytes, nullptr);
    note();
    look();
    record_.climb_secs = record_.step_secs;
    record_.num_fruitless = 0;
  }

  // Makes some steps; returns why it ended, and in `num_made` how many it made, one more if a move
  // was given.
  End anneal(const MoveDrawer& drawer, Random random, const Plan& plan, bool is_given,
             int64_t num_steps, int64_t* num_made) {
    *num_made = num_steps += is_given;
    for (int64_t step = 0; step < num_steps; ++step) {
      const bool is_drawn = !is_given || step > 0;
      if (is_drawn && plan.patience > 0 && record_.num_fruitless >= plan.patience) {
        // That simulates, and so is a step.
        kick(drawer, plan.kick);
        continue;
      }
      const bool is_too_large = record_.excess_bytes > 0;
      int64_t most_bytes = 0;
      if (is_drawn) {
        // How much worse may be taken is drawn first, so that what is worse need not be simulated to
        // its end.
        const double slack = 1.0 - plan.temperature * std::log(1.0 - random.draw());
        record_.num_moved = drawer.draw(state_.placement, plan.coarse_share);
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
        if (!is_drawn || is_too_large || step < plan.fitting_steps) continue;
        *num_made = step + 1;
        return kOverfull;
      }
      accept_move();
    }
    return kDone;
  }

 private:
  // About as many steps decide what the next are likely to be.
  static constexpr double kCutsInMind = 32.0;
  // How often at least what is on the critical path is drawn, by how often on average.
  static constexpr double kLeastShare = 1e-3, kLeastSecs = 1e-300;

  // Computes by how much the last placement that was simulated is too large.
  int64_t excess_bytes() const {
    int64_t excess = 0;
    for (int64_t device = 0; device < step_.tables().num_devices; ++device) {
      excess += std::max<int64_t>(0, state_.peak_bytes[device] - state_.capacities[device]);
    }
    return excess;
  }


  // Notes where the chain is, and whether that is the best.
  void note() {
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

  // Finds what the step waits for that was simulated last, and to its end.
  void look() {
    if (!looks_) return;
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
        // What comes behind a transfer is what had to wait for it, where it went.
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
    // What takes no time is drawn now and then, too.
    const double least_secs = kLeastShare * sum_secs / static_cast<double>(hot_secs_.size());
    double cumulated = 0.0;
    for (double& secs : hot_secs_) secs = cumulated += secs + least_secs + kLeastSecs;
    hot_spots_ = {hot_groups_.data(), hot_secs_.data(), hot_transfers_.data(),
                  static_cast<int64_t>(hot_groups_.size()),
                  static_cast<int64_t>(hot_transfers_.size() / 2)};
  }

  // Simulates the move; returns whether to the end.
  bool simulate_move() {
    ++record_.num_simulated;
    for (int64_t at = 0; at < record_.num_moved; ++at) {
      const int64_t group = drawn_.groups[at];
      step_.move(group, state_.placement[group], static_cast<int32_t>(drawn_.devices[at]));
    }
    const double limit_secs = record_.limit_secs;
    const bool is_limited = limit_secs < kInfinity;
    bool is_cut = false;
    // Memory never changes times, so it need not be looked at for what takes too long.
    const bool times_first = is_limited && record_.cut_share > 0.5;
    if (times_first) is_cut = !step_.run<kNone, false, true>(limit_secs, nullptr, nullptr);
    if (!is_cut) {
      int64_t* peaks = state_.peak_bytes;
      is_cut = is_limited && !times_first
                   ? !step_.run_with_memory<false, true>(limit_secs, peaks, nullptr)
                   : !step_.run_with_memory<false, false>(kInfinity, peaks, nullptr);
    }
    if (is_limited) record_.cut_share += (is_cut - record_.cut_share) / kCutsInMind;
    return !is_cut;
  }

  void undo_move() {
    for (int64_t at = 0; at < record_.num_moved; ++at) {
      const int64_t group = drawn_.groups[at];
      step_.move(group, static_cast<int32_t>(drawn_.devices[at]), state_.placement[group]);
    }
  }

  // Goes on from where the move leads.
  void accept_move() {
    for (int64_t at = 0; at < record_.num_moved; ++at) {
      state_.placement[drawn_.groups[at]] = static_cast<int32_t>(drawn_.devices[at]);
    }
    step_.add_up(state_.placement);
    note();
    look();
    // Small ups and downs lead nowhere.
    if (record_.excess_bytes > 0 || record_.step_secs < record_.climb_secs) {
      record_.climb_secs = record_.step_secs;
      record_.num_fruitless = 0;
    }
  }

  // Goes on from the best placement after some moves at once, if that fits.
  void kick(const MoveDrawer& drawer, int64_t num_moves) {
    const int64_t num_groups = step_.tables().num_groups;
    kicked_.assign(state_.best_placement, state_.best_placement + num_groups);
    for (int64_t number = 0; number < num_moves; ++number) {
      const int64_t count = drawer.draw(kicked_.data(), 0.0);
      for (int64_t at = 0; at < count; ++at) {
        kicked_[drawn_.groups[at]] = static_cast<int32_t>(drawn_.devices[at]);
      }
    }
    ++record_.num_simulated;
    restart(kicked_.data());
    if (record_.excess_bytes > record_.best_excess_bytes) {
      kicked_.assign(state_.best_placement, state_.best_placement + num_groups);
      restart(kicked_.data());
    }
  }

  Step& step_;
  const ChainState state_;
  ChainRecord& record_;
  const DrawnMove drawn_;
  const bool looks_;
  HotSpots hot_spots_ = {nullptr, nullptr, nullptr, 0, 0};
  std::vector<int32_t> hot_groups_, hot_transfers_;
  std::vector<double> hot_secs_;
  std::vector<int32_t> kicked_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_ANNEALING_H_
