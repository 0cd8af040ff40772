// A search of the order in which asynchronous devices are handed their operations.
//
// The operations that may wait are handed to each device one after the other. Which is next is
// decided by their priorities: the operations are listed so that each follows those it depends on,
// and among those that may be next the one of the highest priority is first.

#ifndef TF_PLACER_NATIVE_ORDER_H_
#define TF_PLACER_NATIVE_ORDER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tf_placer/native/moves.h"
#include "tf_placer/native/step.h"

namespace tf_placer {

// The best order so far. Python owns the memory.
struct OrderState {
  double* best_secs;          // [1]
  int32_t* next;              // [num_operations], the operation that follows each, or -1
  const int64_t* capacities;  // [num_devices]
  const uint8_t* may_wait;    // [num_operations]
};

class OrderSearch {
 public:
  // Begins with the order in which a legal placement's operations are handed over by themselves.
  OrderSearch(Step& step, const OrderState& state, const int32_t* placement)
      : step_(step),
        state_(state),
        priorities_(step.tables().num_operations),
        missing_(step.tables().num_operations),
        missing_signals_(step.tables().num_barriers),
        last_(step.tables().num_devices),
        next_(step.tables().num_operations),
        follows_(step.tables().num_operations) {
    const Tables& tables = step.tables();
    step_.put(placement);
    step_.run<kNone, false, false>(kInfinity, nullptr, nullptr);
    for (int64_t operation = 0; operation < tables.num_operations; ++operation) {
      priorities_[operation] = -static_cast<double>(step_.moment(operation));
    }
    list_operations();
    step_.set_order(next_.data(), follows_.data());
    secs_ = simulate();
    find_path();
    *state_.best_secs = kInfinity;
    keep_if_better();
  }

  // Tries some changes of priorities, and accepts those to longer steps with a probability.
  //
  // temperature: as a share of the step time; positive.
  void anneal(Random random, double temperature, int64_t num_changes) {
    for (int64_t number = 0; number < num_changes; ++number) {
      changed_.clear();
      change(random);
      list_operations();
      const double secs = simulate();
      if (secs <= secs_ || random.draw() < std::exp((secs_ - secs) / (temperature * secs_))) {
        secs_ = secs;
        find_path();
        keep_if_better();
      } else {
        while (!changed_.empty()) {
          priorities_[changed_.back().first] = changed_.back().second;
          changed_.pop_back();
        }
      }
    }
  }

 private:
  // Priorities begin as whole numbers, so that this is between two of them.
  static constexpr double kLittle = 1e-3;
  // A change that exchanges no places moves an operation by up to this share of all places.
  static constexpr double kFarShare = 0.05;

  double simulate() {
    step_.run<kNone, false, false>(kInfinity, nullptr, nullptr);
    return step_.step_secs();
  }

  // Keeps the order if its step is the shortest so far and fits the memory.
  void keep_if_better() {
    if (secs_ >= *state_.best_secs) return;
    const int64_t num_devices = step_.tables().num_devices;
    std::vector<int64_t> peaks(num_devices);
    step_.run_with_memory<false, false>(kInfinity, peaks.data(), nullptr);
    const bool fits = std::equal(peaks.begin(), peaks.end(), state_.capacities,
                                 [](int64_t peak, int64_t capacity) { return peak <= capacity; });
    if (!fits) return;
    *state_.best_secs = secs_;
    std::copy(next_.begin(), next_.end(), state_.next);
  }

  // Lists the operations by priority, and links those of each device that may wait.
  void list_operations() {
    const Tables& tables = step_.tables();
    const int64_t num_operations = tables.num_operations;
    for (int64_t operation = 0; operation < num_operations; ++operation) {
      missing_[operation] = tables.operations[operation].num_inputs;
    }
    for (int64_t barrier = 0; barrier < tables.num_barriers; ++barrier) {
      missing_signals_[barrier] = tables.barriers[barrier].num_signals;
    }
    std::fill(last_.begin(), last_.end(), -1);
    std::fill(next_.begin(), next_.end(), -1);
    std::fill(follows_.begin(), follows_.end(), 0);
    const auto is_later = [this](int32_t one, int32_t other) {
      return priorities_[one] != priorities_[other] ? priorities_[one] < priorities_[other]
                                                    : one > other;
    };
    const auto receive = [&](int32_t operation) {
      if (--missing_[operation] > 0) return;
      ready_.push_back(operation);
      std::push_heap(ready_.begin(), ready_.end(), is_later);
    };
    ready_.assign(tables.sources, tables.sources + tables.num_sources);
    std::make_heap(ready_.begin(), ready_.end(), is_later);
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end(), is_later);
      const int32_t operation = ready_.back();
      ready_.pop_back();
      const int32_t device = step_.device(operation);
      if (tables.is_asynchronous[device] && state_.may_wait[operation]) {
        if (last_[device] >= 0) {
          next_[last_[device]] = operation;
          follows_[operation] = 1;
        }
        last_[device] = operation;
      }
      const uint32_t end = tables.operations[operation + 1].first_reader;
      for (uint32_t at = tables.operations[operation].first_reader; at < end; ++at) {
        const int64_t reader = tables.readers[at].operation;
        if (reader < num_operations) {
          receive(static_cast<int32_t>(reader));
        } else if (--missing_signals_[reader - num_operations] == 0) {
          const Barrier* const barrier = tables.barriers + (reader - num_operations);
          std::for_each(tables.waiters + barrier->first_waiter,
                        tables.waiters + barrier[1].first_waiter, receive);
        }
      }
    }
  }

  // Finds the operations of the critical path, from the last to the first; for a transfer, the
  // producer.
  void find_path() {
    path_.clear();
    step_.visit_path([this](int32_t job) {
      const int64_t transfer = job - step_.tables().num_operations;
      const int32_t operation =
          transfer < 0 ? job : step_.tables().outputs[step_.output(transfer)].producer;
      if (path_.empty() || path_.back() != operation) path_.push_back(operation);
    });
  }

  // Changes the priority of an operation, in most cases of the critical path: one before which
  // others ran comes before one of them, or one of those comes after it.
  void change(Random random) {
    const auto count = static_cast<int64_t>(path_.size());
    const auto num_operations = static_cast<int64_t>(priorities_.size());
    if (count < 2 || random.draw() < kAnywhereShare) {
      const int64_t operation = random.draw_below(num_operations);
      set(static_cast<int32_t>(operation), priorities_[random.draw_below(num_operations)]);
      return;
    }
    const int64_t at = random.draw_below(count - 1);
    const int32_t late = path_[at];
    int64_t before = at + 1;
    while (before + 1 < count && before < at + kMaxBack && random.draw() < 0.5) ++before;
    const int32_t early = path_[before];
    const double little = kLittle * (1.0 + random.draw());
    const double far = kFarShare * random.draw() * static_cast<double>(num_operations);
    if (random.draw() < 0.5) {
      const double priority = priorities_[early] + little;
      set(late, priorities_[late] < priority ? priority : priorities_[late] + far);
      // Operations that it depends on have to be before it, too.
      for (int64_t cause = at + 1; cause < count && random.draw() < 0.5; ++cause) {
        const int32_t operation = path_[cause];
        if (priorities_[operation] < priority) set(operation, priority + little);
      }
    } else {
      const double priority = priorities_[late] - little;
      set(early, priorities_[early] > priority ? priority : priorities_[early] - far);
    }
  }

  // The share of changes that are not of the critical path.
  static constexpr double kAnywhereShare = 0.1;
  // A change looks for the other operation this far back on the critical path.
  static constexpr int64_t kMaxBack = 10;

  void set(int32_t operation, double priority) {
    changed_.emplace_back(operation, priorities_[operation]);
    priorities_[operation] = priority;
  }

  Step& step_;
  const OrderState state_;
  double secs_;
  std::vector<double> priorities_;
  std::vector<int32_t> path_;
  std::vector<std::pair<int32_t, double>> changed_;  // operations with their former priorities
  std::vector<int32_t> ready_;
  std::vector<int32_t> missing_;
  std::vector<int32_t> missing_signals_;
  std::vector<int32_t> last_;     // by device
  std::vector<int32_t> next_;     // by operation
  std::vector<uint8_t> follows_;  // by operation
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_ORDER_H_
