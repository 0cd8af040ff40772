// What Python calls. It holds no Python object, and so runs beside the interpreter.
//
// A function that may lack memory returns null or -1 then.

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "tf_placer/native/annealing.h"
#include "tf_placer/native/joins.h"
#include "tf_placer/native/moves.h"
#include "tf_placer/native/step.h"
#include "tf_placer/native/tables.h"

#ifndef TF_PLACER_NATIVE_DIGEST
#define TF_PLACER_NATIVE_DIGEST ""
#endif

namespace {

using tf_placer::Chain;
using tf_placer::ChainState;
using tf_placer::DrawnMove;
using tf_placer::HotSpots;
using tf_placer::JoinTables;
using tf_placer::kInfinity;
using tf_placer::kNone;
using tf_placer::MoveDrawer;
using tf_placer::MoveTables;
using tf_placer::Plan;
using tf_placer::Random;
using tf_placer::Step;
using tf_placer::Tables;
using tf_placer::Times;

// A transfer of a traced step.
struct TracedTransfer {
  double request_secs;
  double start_secs;
  double end_secs;
  double hold_secs;      // when its destination begins to hold what is sent
  int64_t begin_moment;  // see `Step::moment`
  int64_t end_moment;
  int64_t order;  // among the requests of one instant
  int32_t output;
  int32_t source;
  int32_t destination;
  int32_t cause;  // the job that it waited for last, or -1
};

// The state of a chain beside what Python owns.
struct ChainSpace {
  ChainSpace(const Tables& tables, const ChainState& state, const DrawnMove& drawn, bool looks)
      : step(tables), drawn(drawn), chain(step, state, drawn, looks) {}

  Step step;
  const DrawnMove drawn;
  Chain chain;
};

// PyCapsule_GetPointer and PyCapsule_GetContext: the core is not built for a version of Python.
void* (*capsule_pointer)(void* capsule, const char* name) = nullptr;
void* (*capsule_context)(void* capsule) = nullptr;

}  // namespace

extern "C" {

// Takes the functions by which capsules of Python are read.
void tf_placer_set_capsule_readers(void* (*pointer)(void*, const char*), void* (*context)(void*)) {
  capsule_pointer = pointer;
  capsule_context = context;
}

// Calls the function in the context of a capsule with its pointer; Python calls this when the
// capsule goes.
void tf_placer_free_capsule(void* capsule) {
  const auto free = reinterpret_cast<void (*)(void*)>(capsule_context(capsule));
  if (free != nullptr) free(capsule_pointer(capsule, nullptr));
}

// Returns what the sources were that this was made of, if whoever made it said so.
const char* tf_placer_digest() { return TF_PLACER_NATIVE_DIGEST; }

// Computes [num_operations] for when operations can start at the earliest; returns 0, or -1 if there
// is no memory.
int64_t tf_placer_earliest_starts(const JoinTables* tables, double* starts) {
  try {
    tf_placer::earliest_starts(*tables, starts);
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

// Makes the working space for one step at a time. What `tables` points to must outlive it.
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
// memory: whether to find out what devices hold.
// limit_secs: what is longer may be cut.
// step_secs: [num_placements], gets the step times; infinite where cut or not legal.
// is_legal: [num_placements], gets whether every group may go where it was put.
// peak_bytes: [num_placements, num_devices], gets the most that each device holds; 0 where not
//   legal, cut, or not asked for.
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
// times: [num_operations], gets when they started and ended.
// ready_secs: [num_operations], gets when they were ready.
// causes: [num_operations], gets the job that each waited for last, or -1.
// moments: [num_operations], gets when each was handed over, or -1; see `Step::moment`.
// transfers: [max_transfers], gets the transfers, in the order in which they were requested.
//
// Returns how many transfers there are.
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

// Draws a move; returns how many groups go elsewhere.
int64_t tf_placer_draw_move(const MoveTables* tables, const HotSpots* hot, const DrawnMove* drawn,
                            const Random* random, const int32_t* placement, double coarse_share) {
  return MoveDrawer(*tables, *hot, *drawn, *random).draw(placement, coarse_share);
}

// Makes a chain that is nowhere yet. What the arguments point to must outlive it.
ChainSpace* tf_placer_make_chain(const Tables* tables, const ChainState* state,
                                 const DrawnMove* drawn, bool looks) {
  try {
    return new ChainSpace(*tables, *state, *drawn, looks);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void tf_placer_free_chain(ChainSpace* space) { delete space; }

// Goes on from another placement, [num_groups].
void tf_placer_restart(ChainSpace* space, const int32_t* placement) {
  space->chain.restart(placement);
}

// Makes some steps of a chain; returns why it ended, see `Chain::End`.
//
// is_given: whether the first move is in `drawn` already.
// num_made: gets how many steps were made, one more if a move was given.
int64_t tf_placer_anneal(ChainSpace* space, const MoveTables* tables, const Random* random,
                         const Plan* plan, bool is_given, int64_t num_steps, int64_t* num_made) {
  const MoveDrawer drawer(*tables, space->chain.hot_spots(), space->drawn, *random);
  try {
    return space->chain.anneal(drawer, *random, *plan, is_given, num_steps, num_made);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

}  // extern "C"
