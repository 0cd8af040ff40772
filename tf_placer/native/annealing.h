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
  double mean_end_secs;  // when operations end on average
  double limit_secs;  // what a move may cost, the last time that one was drawn
  double cut_share;   // of the latest steps with a limit, how many were cut
  int64_t excess_bytes;
  int64_t num_moved;  // groups of the last move
  int64_t num_simulated;
  int64_t num_fruitless;  // moves since the best step since the last kick
  double climb_secs;      // what that costs
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
  double mean_weight;   // of the mean end of operations in the cost of a step, beside its end
  int64_t patience;     // after how many fruitless moves in a row to kick; 0 for never
  int64_t kick;         // how many moves at once that is
  int64_t fitting_steps;  // so many steps take only what fits, and nobody is asked for room
};

class Chain {
 public:
  // Why it ended: all steps are made, or somebody has to make room for a move.
  enum End { kDone, kOverfull };

  Chain(Step& step, const ChainState& state, const DrawnMove& drawn)
      : step_(step), state_(state), record_(*state.record), drawn_(drawn) {}

  // Goes on from another placement.
  void restart(const int32_t* placement) {
    const Tables& tables = step_.tables();
    step_.put(placement);
    std::copy_n(placement, tables.num_groups, state_.placement);
    step_.run<true, false, false>(kInfinity, 0.0, state_.peak_bytes, nullptr);
    note();
    record_.climb_secs = kInfinity;
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
        record_.limit_secs = is_too_large ? kInfinity : cost_secs(plan) * slack;
        if (is_too_large) {
          most_bytes = static_cast<int64_t>(static_cast<double>(record_.excess_bytes) * slack);
        }
      }
      ++record_.num_fruitless;
      if (!simulate_move(plan) || cost_secs(plan, step_.step_secs(), step_.mean_end_secs()) > record_.limit_secs) {
        undo_move();
        continue;
      }
      if (excess_bytes() > most_bytes) {
        undo_move();
        if (!is_drawn || is_too_large || step < plan.fitting_steps) continue;
        *num_made = step + 1;
        return kOverfull;
      }
      accept_move(plan);
    }
    return kDone;
  }

 private:
  // About as many steps decide what the next are likely to be.
  static constexpr double kCutsInMind = 32.0;

  // Computes by how much the last placement that was simulated is too large.
  int64_t excess_bytes() const {
    int64_t excess = 0;
    for (int64_t device = 0; device < step_.tables().num_devices; ++device) {
      excess += std::max<int64_t>(0, state_.peak_bytes[device] - state_.capacities[device]);
    }
    return excess;
  }

  static double cost_secs(const Plan& plan, double step_secs, double mean_end_secs) {
    return step_secs + plan.mean_weight * mean_end_secs;
  }

  // Computes what the step costs where the chain is.
  double cost_secs(const Plan& plan) const {
    return cost_secs(plan, record_.step_secs, record_.mean_end_secs);
  }

  // Notes where the chain is, and whether that is the best.
  void note() {
    const double step_secs = record_.step_secs = step_.step_secs();
    record_.mean_end_secs = step_.mean_end_secs();
    record_.excess_bytes = excess_bytes();
    const bool is_better = record_.excess_bytes == record_.best_excess_bytes
                               ? step_secs < record_.best_secs
                               : record_.excess_bytes < record_.best_excess_bytes;
    if (is_better) {
      record_.best_secs = step_secs;
      record_.best_excess_bytes = record_.excess_bytes;
      std::copy_n(state_.placement, step_.tables().num_groups, state_.best_placement);
      std::copy_n(state_.peak_bytes, step_.tables().num_devices, state_.best_peak_bytes);
    }
  }

  // Simulates the move; returns whether to the end.
  bool simulate_move(const Plan& plan) {
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
    if (times_first) is_cut = !step_.run<false, false, true>(limit_secs, plan.mean_weight, nullptr, nullptr);
    if (!is_cut) {
      int64_t* peaks = state_.peak_bytes;
      is_cut = is_limited && !times_first
                   ? !step_.run<true, false, true>(limit_secs, plan.mean_weight, peaks, nullptr)
                   : !step_.run<true, false, false>(kInfinity, 0.0, peaks, nullptr);
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
  void accept_move(const Plan& plan) {
    for (int64_t at = 0; at < record_.num_moved; ++at) {
      state_.placement[drawn_.groups[at]] = static_cast<int32_t>(drawn_.devices[at]);
    }
    step_.add_up(state_.placement);
    note();
    // Small ups and downs lead nowhere.
    if (record_.excess_bytes > 0 || cost_secs(plan) < record_.climb_secs) {
      record_.climb_secs = cost_secs(plan);
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
  std::vector<int32_t> kicked_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_ANNEALING_H_
