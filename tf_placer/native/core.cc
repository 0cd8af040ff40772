// The C interface for Python. It uses no Python objects, so it runs without the interpreter lock.
//
// A function that allocates memory returns null or -1 if there is too little.

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "tf_placer/native/annealing.h"
#include "tf_placer/native/joins.h"
#include "tf_placer/native/moves.h"
#include "tf_placer/native/order.h"
#include "tf_placer/native/step.h"
#include "tf_placer/native/tables.h"

#ifndef TF_PLACER_NATIVE_DIGEST
#define TF_PLACER_NATIVE_DIGEST ""
#endif

namespace {

using tf_placer::Chain;
using tf_placer::ChainParameters;
using tf_placer::ChainState;
using tf_placer::DrawnMove;
using tf_placer::HotSpots;
using tf_placer::JoinTables;
using tf_placer::kInfinity;
using tf_placer::kNone;
using tf_placer::MoveDrawer;
using tf_placer::MoveTables;
using tf_placer::OrderSearch;
using tf_placer::OrderState;
using tf_placer::Random;
using tf_placer::Step;
using tf_placer::Tables;
using tf_placer::Times;

// A transfer of a traced step.
struct TracedTransfer {
  double request_secs;
  double start_secs;
  double end_secs;
  double hold_secs;      // the time when its destination begins to hold the tensor
  int64_t begin_moment;  // see `Step::moment`
  int64_t end_moment;
  int64_t order;  // among the requests of one instant
  int32_t output;
  int32_t source;
  int32_t destination;
  int32_t cause;  // the job that it waited for last, or -1
};

// The state of a chain that Python does not own.
struct ChainSpace {
  ChainSpace(const Tables& tables, const ChainState& state, const DrawnMove& drawn,
             bool follows_critical_path)
      : step(tables), drawn(drawn), chain(step, state, drawn, follows_critical_path) {}

  Step step;
  const DrawnMove drawn;
  Chain chain;
};

// The state of a search of an order that Python does not own.
struct OrderSpace {
  OrderSpace(const Tables& tables, const OrderState& state, const int32_t* placement)
      : step(tables), search(step, state, placement) {}

  Step step;
  OrderSearch search;
};

// PyCapsule_GetPointer and PyCapsule_GetContext, set at run time, because the core is built without
// the headers of any version of Python.
void* (*capsule_pointer)(void* capsule, const char* name) = nullptr;
void* (*capsule_context)(void* capsule) = nullptr;

}  // namespace

extern "C" {

// Sets the functions that read Python capsules.
void tf_placer_set_capsule_readers(void* (*pointer)(void*, const char*), void* (*context)(void*)) {
  capsule_pointer = pointer;
  capsule_context = context;
}

// Calls the function in the context of a capsule with its pointer; Python calls this when it
// destroys the capsule.
void tf_placer_free_capsule(void* capsule) {
  const auto free = reinterpret_cast<void (*)(void*)>(capsule_context(capsule));
  if (free != nullptr) free(capsule_pointer(capsule, nullptr));
}

// Returns the digest of the sources of this build, or "" if the build set none.
const char* tf_placer_digest() { return TF_PLACER_NATIVE_DIGEST; }

// Computes the earliest starts of operations, [num_operations]; returns 0, or -1 without memory.
int64_t tf_placer_earliest_starts(const JoinTables* tables, double* starts) {
  try {
    tf_placer::earliest_starts(*tables, starts);
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

// Makes the working space for one step at a time. The arrays of `tables` must outlive it.
Step* tf_placer_make_step(const Tables* tables) {
  try {
    return new Step(*tables);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void tf_placer_free_step(Step* step) { delete step; }

// Simulates one step per placement.
//
// placements: [num_placements, num_groups].
// memory: whether to simulate the memory of devices.
// limit_secs: longer steps may be cut.
// step_secs: [num_placements], receives the step times; infinite for cut steps and illegal
//   placements.
// is_legal: [num_placements], receives whether the placements are legal.
// peak_bytes: [num_placements, num_devices], receives the peak memory of each device; 0 for cut
//   steps, illegal placements, and without `memory`.
void tf_placer_simulate(Step* step, const int32_t* placements, int64_t num_placements, bool memory,
                        double limit_secs, double* step_secs, uint8_t* is_legal,
                        int64_t* peak_bytes) {
  const int64_t num_groups = step->tables().num_groups, num_devices = step->tables().num_devices;
  for (int64_t index = 0; index < num_placements; ++index) {
    int64_t* const peaks = peak_bytes + index * num_devices;
    is_legal[index] = step->put(placements + index * num_groups);
    bool is_known = is_legal[index];
    if (is_known) {
      if (limit_secs < kInfinity) {
        is_known = memory ? step->run_with_memory<false, true>(limit_secs, peaks, nullptr)
                          : step->run<kNone, false, true>(limit_secs, peaks, nullptr);
      } else if (memory) {
        step->run_with_memory<false, false>(kInfinity, peaks, nullptr);
      } else {
        step->run<kNone, false, false>(kInfinity, peaks, nullptr);
      }
    }
    step_secs[index] = is_known ? step->step_secs() : kInfinity;
    if (!is_known || !memory) std::fill_n(peaks, num_devices, 0);
  }
}

// Simulates one step of a legal placement in every detail.
//
// times: [num_operations], receives the start and end of each operation.
// ready_secs: [num_operations], receives the time when each operation was ready.
// causes: [num_operations], receives the job that each waited for last, or -1.
// moments: [num_operations], receives the moment when each was enqueued, or -1; see `Step::moment`.
// transfers: [max_transfers], receives the transfers, in the order of their requests.
//
// Returns the number of transfers.
int64_t tf_placer_trace(Step* step, const int32_t* placement, double* step_secs,
                        int64_t* peak_bytes, Times* times, double* ready_secs,
                        int32_t* causes, int64_t* moments, TracedTransfer* transfers) {
  const int64_t num_operations = step->tables().num_operations;
  try {
    std::vector<Times> job_times(step->max_jobs());
    step->put(placement);
    step->run_with_memory<true, false>(kInfinity, peak_bytes, job_times.data());
    *step_secs = step->step_secs();
    for (int64_t operation = 0; operation < num_operations; ++operation) {
      times[operation] = job_times[operation];
      ready_secs[operation] = step->requested_secs(operation);
      causes[operation] = step->cause(operation);
      moments[operation] = step->moment(operation);
    }
    for (int64_t number = 0; number < step->num_transfers(); ++number) {
      const Times& when = job_times[num_operations + number];
      transfers[number] = {step->requested_secs(num_operations + number),
                           when.start_secs,
                           when.end_secs,
                           step->hold_secs(number, when.start_secs),
                           step->moment(num_operations + number),
                           step->end_moment(number),
                           step->order(number),
                           step->output(number),
                           step->source(number),
                           step->destination(number),
                           step->cause(num_operations + number)};
    }
    return step->num_transfers();
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

// Draws a move; returns the number of groups that it moves.
int64_t tf_placer_draw_move(const MoveTables* tables, const HotSpots* hot, const DrawnMove* drawn,
                            const Random* random, const int32_t* placement, double coarse_share) {
  return MoveDrawer(*tables, *hot, *drawn, *random).draw(placement, coarse_share);
}

// Makes a chain without a placement. The memory that the arguments point to must outlive it.
ChainSpace* tf_placer_make_chain(const Tables* tables, const ChainState* state,
                                 const DrawnMove* drawn, bool follows_critical_path) {
  try {
    return new ChainSpace(*tables, *state, *drawn, follows_critical_path);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void tf_placer_free_chain(ChainSpace* space) { delete space; }

// Continues from another placement, [num_groups].
void tf_placer_restart(ChainSpace* space, const int32_t* placement) {
  space->chain.restart(placement);
}

// Makes some steps of a chain; returns the reason of its end, see `Chain::End`.
//
// is_given: whether the first move is in `drawn` already.
// num_made: receives the number of steps made, one more if a move was given.
int64_t tf_placer_anneal(ChainSpace* space, const MoveTables* tables, const Random* random,
                         const ChainParameters* parameters, bool is_given, int64_t num_steps,
                         int64_t* num_made) {
  const MoveDrawer drawer(*tables, space->chain.hot_spots(), space->drawn, *random);
  try {
    return space->chain.anneal(drawer, *random, *parameters, is_given, num_steps, num_made);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

// Makes a search of the order in which devices are handed operations. The memory that the arguments
// point to must outlive it, but for the placement, [num_groups].
OrderSpace* tf_placer_make_order(const Tables* tables, const OrderState* state,
                                 const int32_t* placement) {
  try {
    return new OrderSpace(*tables, *state, placement);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void tf_placer_free_order(OrderSpace* space) { delete space; }

// Tries some changes of the order; returns 0, or -1 without memory.
int64_t tf_placer_anneal_order(OrderSpace* space, const Random* random, double temperature,
                               int64_t num_changes) {
  try {
    space->search.anneal(*random, temperature, num_changes);
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

}  // extern "C"
