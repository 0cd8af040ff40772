// A discrete event simulation of a step.
//
// Operations and transfers are both *jobs*: each waits in the queue of its *server* (a device with
// slots, or a channel that carries one transfer at a time) and then runs for a known time. Jobs 0
// to num_operations - 1 are the operations, the others the transfers in the order of their
// requests; servers 0 to num_devices - 1 are the devices, the others the channels.
//
// Only running jobs are in the heap of events, so its size does not depend on the graph.

#ifndef TF_PLACER_NATIVE_STEP_H_
#define TF_PLACER_NATIVE_STEP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "tf_placer/native/allocator.h"
#include "tf_placer/native/tables.h"

namespace tf_placer {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Computes the share of its overhead that a device loses to a transfer if its last one ended
// `gap_secs` ago, by the rules of `tf_placer/problem/README.md`.
inline double overhead_part(double gap_secs) {
  constexpr double kRestSecs = 0.01, kLeast = 0.25;
  return kLeast + (1.0 - kLeast) * std::sqrt(std::clamp(gap_secs / kRestSecs, 0.0, 1.0));
}

// An array whose records do not cross cache lines. Untouched pages take no memory.
template <typename T>
class Records {
 public:
  explicit Records(int64_t count) {
    const size_t size = (static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(T) + 63) / 64;
    records_ = static_cast<T*>(std::aligned_alloc(64, size * 64));
    if (records_ == nullptr) throw std::bad_alloc();
  }
  ~Records() { std::free(records_); }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;
  operator T*() const { return records_; }

 private:
  T* records_;
};

struct Times {
  double start_secs;
  double end_secs;
};

// The simulation of memory: none; the bytes that devices hold; or, on asynchronous devices, the
// blocks of an allocator.
enum Memory { kNone, kBytes, kBlocks };

class Step {
 public:
  explicit Step(const Tables& tables)
      : tables_(tables),
        max_jobs_(tables.num_operations + tables.max_transfers),
        has_streams_(std::any_of(tables.is_asynchronous,
                                 tables.is_asynchronous + tables.num_devices,
                                 [](uint8_t is_asynchronous) { return is_asynchronous != 0; })),
        jobs_(max_jobs_),
        ranks_(max_jobs_),
        transfers_(tables.max_transfers),
        servers_(tables.num_servers),
        events_(max_events(tables)),
        ended_(max_events(tables)),
        arrived_(2 * max_jobs_ + 2),
        changed_devices_(tables.num_devices),
        changed_channels_(tables.num_servers),
        originals_(tables.num_outputs),
        copies_(tables.max_transfers),
        missing_signals_(tables.num_barriers * tables.num_devices),
        num_waiters_(tables.num_barriers * tables.num_devices),
        held_(tables.num_devices),
        resident_bytes_(tables.num_devices),
        total_secs_(tables.num_devices),
        started_secs_(tables.num_devices),
        streams_(tables.num_devices),
        lanes_(kLanes * tables.num_devices),
        num_wanting_(tables.num_devices),
        allocators_(has_streams_ ? tables.num_devices : 0),
        first_output_(tables.num_operations + 1),
        moments_(has_streams_ ? max_jobs_ : 0),
        end_moments_(has_streams_ ? tables.max_transfers : 0),
        request_secs_(has_streams_ ? tables.max_transfers : 0) {
    std::fill_n(static_cast<int32_t*>(num_wanting_), tables.num_devices, 0);
    int64_t output = 0;
    for (int64_t operation = 0; operation <= tables.num_operations; ++operation) {
      while (output < tables.num_outputs && tables.outputs[output].producer < operation) ++output;
      first_output_[operation] = static_cast<int32_t>(output);
    }
    for (int64_t operation = 0; operation < tables.num_operations; ++operation) {
      ranks_[operation].order = operation;
    }
  }

  // Sets the placement; returns whether it is legal. An illegal placement is not set.
  bool put(const int32_t* placement) {
    const int64_t num_devices = tables_.num_devices;
    for (int64_t group = 0; group < tables_.num_groups; ++group) {
      if (!tables_.group_is_legal[group * num_devices + placement[group]]) return false;
    }
    if (tables_.num_barriers > 0) {
      std::fill_n(static_cast<int32_t*>(num_waiters_), tables_.num_barriers * num_devices, 0);
      for (int64_t group = 0; group < tables_.num_groups; ++group) {
        count_waiters(group, placement[group], 1);
      }
    }
    const Operation* operations = tables_.operations;
    for (int64_t operation = 0; operation < tables_.num_operations; ++operation) {
      const int32_t device = placement[operations[operation].group];
      jobs_[operation].secs = tables_.compute_secs[device * tables_.num_operations + operation];
      jobs_[operation].device = device;
    }
    add_up(placement);
    return true;
  }

  // Moves one group to a legal device.
  void move(int64_t group, int32_t source, int32_t destination) {
    const double* secs = tables_.compute_secs + destination * tables_.num_operations;
    for (int64_t at = tables_.group_start[group]; at < tables_.group_start[group + 1]; ++at) {
      const int32_t operation = tables_.group_operations[at];
      jobs_[operation].secs = secs[operation];
      jobs_[operation].device = destination;
    }
    count_waiters(group, source, -1);
    count_waiters(group, destination, 1);
    const double* group_secs = tables_.group_secs + group * tables_.num_devices;
    resident_bytes_[source] -= tables_.group_bytes[group];
    resident_bytes_[destination] += tables_.group_bytes[group];
    total_secs_[source] -= group_secs[source];
    total_secs_[destination] += group_secs[destination];
  }

  // Adds up the seconds and bytes of the groups of each device again, because rounding errors grow
  // with the moves.
  void add_up(const int32_t* placement) {
    for (int64_t device = 0; device < tables_.num_devices; ++device) {
      resident_bytes_[device] = 0;
      total_secs_[device] = 0.0;
    }
    for (int64_t group = 0; group < tables_.num_groups; ++group) {
      const int32_t device = placement[group];
      resident_bytes_[device] += tables_.group_bytes[group];
      total_secs_[device] += tables_.group_secs[group * tables_.num_devices + device];
    }
  }

  // Sets the order in which asynchronous devices are handed operations; the arrays must outlive it.
  //
  // next: [num_operations], the operation of the same device that each is handed over before, or
  //   -1; null for no order.
  // follows: [num_operations], whether an operation is the next one of another.
  void set_order(const int32_t* next, const uint8_t* follows) {
    next_ = next;
    follows_ = follows;
  }

  // Simulates the step of the current placement.
  //
  // kMemory: the simulation of memory; `peaks` [num_devices] receives the peaks.
  // kTimes: whether `times` [max_jobs] receives the starts and ends of jobs.
  // kLimit: whether a step that is longer than `limit_secs` may be cut.
  //
  // Returns whether the step was simulated to its end.
  template <Memory kMemory, bool kTimes, bool kLimit>
  bool run(double limit_secs, int64_t* peaks, Times* times) {
    // Checks for streams would slow down the steps of problems that have none.
    return has_streams_ ? run_jobs<kMemory, kTimes, kLimit, true>(limit_secs, peaks, times)
                        : run_jobs<kMemory, kTimes, kLimit, false>(limit_secs, peaks, times);
  }

  // Simulates the step with memory. Blocks are simulated only if memory is nearly full.
  template <bool kTimes, bool kLimit>
  bool run_with_memory(double limit_secs, int64_t* peaks, Times* times) {
    if (!run<kBytes, kTimes, kLimit>(limit_secs, peaks, times)) return false;
    for (int64_t device = 0; device < tables_.num_devices; ++device) {
      const double roomy_bytes = kRoomyShare * static_cast<double>(tables_.memory_bytes[device]);
      if (has_stream(device) && static_cast<double>(peaks[device]) > roomy_bytes) {
        return run<kBlocks, kTimes, false>(kInfinity, peaks, times);
      }
    }
    return true;
  }

  double step_secs() const { return step_secs_; }
  int32_t cause(int64_t job) const { return jobs_[job].cause; }
  // Visits the jobs of the critical path of a step that was simulated to its end, from the last to
  // the first: each started when the one before had ended.
  template <typename Visit>
  void visit_path(const Visit& visit) const {
    for (int32_t job = last_job_; job >= 0; job = jobs_[job].cause) visit(job);
  }
  double secs(int64_t job) const { return jobs_[job].secs; }
  int64_t num_transfers() const { return num_jobs_ - tables_.num_operations; }
  double requested_secs(int64_t job) const { return jobs_[job].ready_secs; }
  int32_t device(int64_t operation) const { return jobs_[operation].device; }
  int32_t destination(int64_t transfer) const {
    return jobs_[tables_.num_operations + transfer].device;
  }
  int32_t source(int64_t transfer) const { return transfers_[transfer].source; }
  int32_t output(int64_t transfer) const { return transfers_[transfer].output; }
  // The position of a job in the sequence of all enqueued operations, requested transfers and ended
  // transfers of asynchronous devices; -1 on other devices.
  int64_t moment(int64_t job) const {
    const int64_t transfer = job - tables_.num_operations;
    if (!has_streams_) return -1;
    return (transfer < 0 ? has_stream(jobs_[job].device) : has_lane(transfer)) ? moments_[job] : -1;
  }
  int64_t end_moment(int64_t transfer) const { return has_streams_ ? end_moments_[transfer] : -1; }
  // The time when the destination of a transfer begins to hold the tensor.
  double hold_secs(int64_t transfer, double start_secs) const {
    return has_streams_ && has_lane(transfer) ? request_secs_[transfer] : start_secs;
  }
  int64_t order(int64_t transfer) const {
    return ranks_[tables_.num_operations + transfer].order;
  }
  const Tables& tables() const { return tables_; }
  int64_t max_jobs() const { return max_jobs_; }

 private:
  struct Job {
    double secs;          // its duration
    int32_t device;       // the device of an operation, or the destination of a transfer
    int32_t num_missing;  // missing inputs of an operation; kInstant if the job took no time
    double ready_secs;    // the time when it was ready or requested
    int32_t next;         // the next job in the queue; undefined for the last
    int32_t cause;        // the job that it waited for last, or -1
  };

  static constexpr int32_t kInstant = -1;

  // The fields of a job for the heap of jobs out of order: its position among the jobs that were
  // ready at the same time, and its children in the heap, or -1.
  struct Rank {
    int64_t order;
    int32_t left;
    int32_t right;
  };

  struct Transfer {
    int32_t output;
    int32_t source;
    int32_t channel;
    int32_t next;  // the next transfer in its lane, or -1
  };

  // The stream of an asynchronous device, which runs its enqueued operations in order.
  struct Stream {
    double end_secs;  // the end of all enqueued operations and copies
    int32_t last;     // the last enqueued job that takes time, or -1
  };

  // The transfers of a kind from or to an asynchronous device, one after the other: from it to
  // other asynchronous devices, from it to synchronous devices, and from those to it.
  static constexpr int64_t kLanes = 3;
  struct Lane {
    int32_t first;  // the transfer under way, or -1
    int32_t last;
  };

  // Waiting jobs are in a linked list sorted by arrival, where nearly all are appended, or else in
  // a heap beside it.
  struct Server {
    double last_ready_secs;  // the ready time of the last job of the queue
    int64_t last_order;
    double held_until_secs;   // operations make no progress before
    double sends_until_secs;  // the end of the last of its transfers, if they have an overhead
    int32_t first;            // the first job of the queue, or -1
    int32_t last;             // the last job of the queue; undefined when it is empty
    int32_t root;             // the root of the heap beside the queue, or -1
    int32_t last_ended;       // the last job that ended and took time
    int32_t slots;
    int32_t free_slots;
    bool is_changed;  // true if an event happened since its last choice of jobs to start
  };

  struct Event {
    double secs;
    int64_t job;
  };

  // A tensor on the device of its producer: the number of readers that still need it, and its last
  // requested transfer, or -1. Readers on other devices need it until their transfer has ended.
  struct Original {
    int32_t num_users;
    int32_t last_copy;
    int32_t device;
    int32_t block;  // the block in the allocator of its device
  };

  // A copy of a tensor on another device: the number of readers that still need it, and the
  // transfer of the same tensor that was requested before this one, or -1.
  struct Copy {
    int32_t num_users;
    int32_t earlier_copy;
    int32_t block;
  };

  // The memory of a device, and the time up to which its peak is known.
  struct Held {
    int64_t bytes;
    double known_secs;
  };

  static int64_t max_events(const Tables& tables) {
    int64_t slots = 0;
    for (int64_t device = 0; device < tables.num_devices; ++device) slots += tables.slots[device];
    const bool in_streams = std::any_of(tables.copies_in_stream,
                                        tables.copies_in_stream + tables.num_devices,
                                        [](uint8_t is_in_stream) { return is_in_stream != 0; });
    return std::min(slots, tables.num_operations) + tables.num_servers +
           (kLanes - 1) * tables.num_devices + (in_streams ? tables.max_transfers : 0);
  }

  // Counts the operations of a group among those of a device that wait for barriers.
  void count_waiters(int64_t group, int32_t device, int32_t by) {
    const uint32_t end = tables_.group_barrier_start[group + 1];
    for (uint32_t at = tables_.group_barrier_start[group]; at < end; ++at) {
      num_waiters_[tables_.group_barriers[at] * tables_.num_devices + device] += by;
    }
  }

  // Simulates the step. kStreams: whether a device is asynchronous.
  template <Memory kMemory, bool kTimes, bool kLimit, bool kStreams>
  bool run_jobs(double limit_secs, int64_t* peaks, Times* times);

  // Prepares the state before the step; returns the number of jobs ready at the start.
  template <Memory kMemory>
  int64_t start(int64_t* peaks);

  // Counts an arrived input of an operation; returns the number of ready jobs.
  int64_t receive(uint32_t reader, int32_t cause, int64_t count) {
    const int32_t num_missing = jobs_[reader].num_missing - 1;
    jobs_[reader].num_missing = num_missing;
    jobs_[reader].cause = cause;
    // Avoid a branch, because it would be unpredictable.
    arrived_[count] = static_cast<int32_t>(reader);
    return count + (num_missing == 0);
  }

  // Counts a signal that arrived at a device; returns the number of ready jobs.
  int64_t receive_signal(int64_t barrier, int32_t device, int32_t cause, int64_t count) {
    if (--missing_signals_[barrier * tables_.num_devices + device] > 0) return count;
    const uint32_t end = tables_.barriers[barrier + 1].first_waiter;
    for (uint32_t at = tables_.barriers[barrier].first_waiter; at < end; ++at) {
      const int32_t waiter = tables_.waiters[at];
      if (jobs_[waiter].device == device) count = receive(waiter, cause, count);
    }
    return count;
  }

  // Requests the transfer of an output of `cause`; returns the number of ready jobs.
  template <Memory kMemory>
  int64_t request(int32_t output, int32_t where, int32_t cause, int64_t count) {
    const int32_t source = jobs_[cause].device;
    const Link& link = tables_.links[source * tables_.num_devices + where];
    const int64_t transfer = num_jobs_ - tables_.num_operations;
    transfers_[transfer] = {output, source, static_cast<int32_t>(link.channel), -1};
    ranks_[num_jobs_].order =
        static_cast<int64_t>(tables_.outputs[output].order) * tables_.num_devices + where;
    jobs_[num_jobs_].secs =
        link.latency_secs + static_cast<double>(tables_.outputs[output].bytes) / link.bandwidth;
    jobs_[num_jobs_].device = where;
    jobs_[num_jobs_].num_missing = 0;
    jobs_[num_jobs_].cause = cause;
    arrived_[count] = static_cast<int32_t>(num_jobs_);
    ++num_jobs_;
    if (kMemory != kNone) {
      copies_[transfer] = {0, originals_[output].last_copy, -1};
      originals_[output].last_copy = static_cast<int32_t>(transfer);
    }
    return count + 1;
  }

  // Updates the peak of a device by the memory until now, ignoring changes within one instant.
  void note_peak(int64_t* peaks, int64_t device, double now) {
    if (held_[device].known_secs != now) {
      held_[device].known_secs = now;
      peaks[device] = std::max(peaks[device], held_[device].bytes);
    }
  }

  // Asynchronous devices.

  bool has_stream(int64_t device) const { return tables_.is_asynchronous[device] != 0; }

  // Tells whether a transfer waits for streams.
  bool has_lane(int64_t transfer) const {
    return has_stream(transfers_[transfer].source) || has_stream(destination(transfer));
  }

  // The device in whose stream a transfer would run: the asynchronous one at its ends, or the
  // sender of two.
  int64_t copying_device(int64_t transfer) const {
    const int64_t source = transfers_[transfer].source;
    return has_stream(source) ? source : destination(transfer);
  }

  // Tells whether a transfer runs in a stream of operations, without a lane and a channel.
  bool is_in_stream(int64_t transfer) const {
    return tables_.copies_in_stream[copying_device(transfer)] != 0;
  }

  Lane& lane(int64_t transfer) const {
    const int64_t source = transfers_[transfer].source, destination = this->destination(transfer);
    if (!has_stream(source)) return lanes_[kLanes * destination + 2];
    return lanes_[kLanes * source + (has_stream(destination) ? 0 : 1)];
  }

  // Allocates bytes on an asynchronous device; returns their block.
  template <Memory kMemory>
  int32_t hold(int64_t device, int64_t bytes, int64_t* peaks) {
    if (bytes == 0) return -1;
    int32_t block = -1;
    if (kMemory == kBlocks) {
      block = allocators_[device].allocate(bytes);
      peaks[device] = allocators_[device].end();
    } else {
      held_[device].bytes += bytes;
      peaks[device] = std::max(peaks[device], held_[device].bytes);
    }
    return block;
  }

  // Frees memory of a device: a block, or bytes without a block.
  void let_go(int64_t device, int64_t bytes, int32_t block) {
    if (block >= 0) {
      allocators_[device].free(block);
    } else {
      held_[device].bytes -= bytes;
    }
  }

  // Frees the inputs of an operation that no other operation needs.
  template <Memory kMemory>
  void let_go_inputs(int64_t operation, int64_t device) {
    const uint32_t end = tables_.operations[operation + 1].first_input;
    for (uint32_t at = tables_.operations[operation].first_input; at < end; ++at) {
      const uint32_t output = tables_.inputs[at];
      if (originals_[output].device == device) {
        if (--originals_[output].num_users == 0) {
          let_go(device, tables_.outputs[output].local_bytes, originals_[output].block);
        }
        continue;
      }
      int32_t copy = originals_[output].last_copy;
      while (jobs_[tables_.num_operations + copy].device != device) {
        copy = copies_[copy].earlier_copy;
      }
      if (--copies_[copy].num_users == 0) {
        let_go(device, tables_.outputs[output].bytes, copies_[copy].block);
      }
    }
  }

  // Passes the outputs of an operation to readers on its device, and by transfers to other devices.
  // Returns the number of arrived jobs; they waited for `cause` last.
  template <Memory kMemory>
  int64_t pass_on(int32_t operation, int32_t cause, int64_t count) {
    const int32_t device = jobs_[operation].device;
    const Reader* const readers = tables_.readers;
    const uint32_t end = tables_.operations[operation + 1].first_reader;
    uint32_t at = tables_.operations[operation].first_reader;
    while (at < end) {
      const uint32_t output = readers[at].output;
      const uint32_t stop = at + tables_.outputs[output].num_readers;
      // The devices that need a transfer are in this range.
      int32_t first = static_cast<int32_t>(tables_.num_devices), last = -1;
      for (; at < stop; ++at) {
        const uint32_t reader = readers[at].operation;
        if (reader >= tables_.num_operations) {
          const int64_t barrier = reader - tables_.num_operations;
          for (int32_t where = 0; where < tables_.num_devices; ++where) {
            if (num_waiters_[barrier * tables_.num_devices + where] == 0) continue;
            if (where == device) {
              count = receive_signal(barrier, where, cause, count);
            } else {
              num_wanting_[where] = 1;
              first = std::min(first, where);
              last = std::max(last, where);
            }
          }
        } else if (jobs_[reader].device == device) {
          count = receive(reader, cause, count);
        } else {
          const int32_t where = jobs_[reader].device;
          ++num_wanting_[where];
          first = std::min(first, where);
          last = std::max(last, where);
        }
      }
      for (int32_t where = first; where <= last; ++where) {
        if (num_wanting_[where] == 0) continue;
        count = request<kMemory>(static_cast<int32_t>(output), where, operation, count);
        jobs_[num_jobs_ - 1].cause = cause;
        if (kMemory != kNone) {
          copies_[num_jobs_ - 1 - tables_.num_operations].num_users = num_wanting_[where];
        }
        num_wanting_[where] = 0;
      }
    }
    return count;
  }

  // Enqueues an operation on its asynchronous device; returns the number of arrived jobs.
  template <Memory kMemory, bool kTimes>
  int64_t hand_over(int32_t operation, double now, int64_t count, int64_t* peaks, Times* times) {
    const int32_t device = jobs_[operation].device, cause = jobs_[operation].cause;
    const double secs = jobs_[operation].secs;
    jobs_[operation].ready_secs = now;
    moments_[operation] = num_moments_++;
    double start_secs = now;
    if (secs > 0.0) {
      Stream& stream = streams_[device];
      if (stream.end_secs > now) {
        start_secs = stream.end_secs;
        jobs_[operation].cause = stream.last;
      }
      stream = {start_secs + secs, operation};
    }
    if (kTimes) times[operation] = {start_secs, start_secs + secs};
    if (kMemory != kNone) take_memory<kMemory>(operation, device, peaks);
    count = pass_on<kMemory>(operation, cause, count);
    const int32_t next = next_ == nullptr ? -1 : next_[operation];
    return next < 0 ? count : receive(next, cause, count);
  }

  // Allocates the memory of an operation when it is enqueued, and frees the memory that only it
  // needed.
  template <Memory kMemory>
  void take_memory(int32_t operation, int32_t device, int64_t* peaks) {
    const int32_t end = first_output_[operation + 1];
    int64_t temp_bytes = tables_.operations[operation].start_bytes;
    for (int32_t output = first_output_[operation]; output < end; ++output) {
      temp_bytes -= tables_.outputs[output].local_bytes;
    }
    const int32_t temp = hold<kMemory>(device, temp_bytes, peaks);
    for (int32_t output = first_output_[operation]; output < end; ++output) {
      originals_[output].block =
          hold<kMemory>(device, tables_.outputs[output].local_bytes, peaks);
    }
    let_go(device, temp_bytes, temp);
    for (int32_t output = first_output_[operation]; output < end; ++output) {
      if (tables_.outputs[output].num_readers > 0) continue;
      let_go(device, tables_.outputs[output].local_bytes, originals_[output].block);
    }
    let_go_inputs<kMemory>(operation, device);
  }

  // Appends a transfer to its lane, or to a stream, on request. It waits for the operations that
  // are enqueued now on the devices at its ends.
  template <Memory kMemory, bool kTimes>
  int64_t join_lane(int32_t job, double now, int64_t count, int64_t* num_events, int64_t* peaks,
                    Times* times) {
    const int64_t transfer = job - tables_.num_operations;
    const int32_t ends[] = {transfers_[transfer].source, jobs_[job].device};
    const int64_t copying = copying_device(transfer);
    const bool is_in_stream = this->is_in_stream(transfer);
    // A signal copies nothing, so it needs no memory that the receiver still uses.
    const bool is_signal = tables_.outputs[transfers_[transfer].output].bytes == 0;
    double begin_secs = now;
    for (const int32_t device : ends) {
      if (!has_stream(device) || streams_[device].end_secs <= begin_secs) continue;
      if (is_in_stream && is_signal && device != copying) continue;
      begin_secs = streams_[device].end_secs;
      jobs_[job].cause = streams_[device].last;
    }
    jobs_[job].ready_secs = begin_secs;
    moments_[job] = num_moments_++;
    request_secs_[transfer] = now;
    if (kMemory != kNone) {
      const int64_t bytes = tables_.outputs[transfers_[transfer].output].bytes;
      if (has_stream(ends[1])) {
        copies_[transfer].block = hold<kMemory>(ends[1], bytes, peaks);
      } else {
        note_peak(peaks, ends[1], now);
        held_[ends[1]].bytes += bytes;
      }
    }
    if (is_in_stream) {
      // The stream continues while the program learns of the copy, which is the latency.
      const double bandwidth = tables_.links[ends[0] * tables_.num_devices + ends[1]].bandwidth;
      const double copy_secs =
          static_cast<double>(tables_.outputs[transfers_[transfer].output].bytes) / bandwidth;
      if (!is_signal) streams_[copying] = {begin_secs + copy_secs, job};
      if (kTimes) times[job].start_secs = begin_secs;
      add_event((*num_events)++, begin_secs + jobs_[job].secs, job);
      return count;
    }
    Lane& lane = this->lane(transfer);
    if (lane.first >= 0) {
      transfers_[lane.last - tables_.num_operations].next = job;
      lane.last = job;
      return count;
    }
    lane = {job, job};
    return begin(job, now, count, num_events);
  }

  // Removes an ended transfer from its lane, and begins the next one.
  int64_t leave_lane(int32_t ended, double now, int64_t count, int64_t* num_events) {
    const int64_t transfer = ended - tables_.num_operations;
    Lane& lane = this->lane(transfer);
    lane.first = transfers_[transfer].next;
    if (lane.first < 0) return count;
    if (jobs_[lane.first].ready_secs < now) jobs_[lane.first].cause = ended;
    return begin(lane.first, now, count, num_events);
  }

  // Lets a transfer join the queue of its channel, now or when the streams reach it. Until then,
  // its events have a number behind those of all jobs.
  int64_t begin(int32_t job, double now, int64_t count, int64_t* num_events) {
    const int32_t waiting = job + static_cast<int32_t>(max_jobs_);
    if (jobs_[job].ready_secs > now) {
      add_event((*num_events)++, jobs_[job].ready_secs, waiting);
      return count;
    }
    arrived_[count] = waiting;
    return count + 1;
  }

  // Sorts the events of one instant: operations, transfers, and transfers that wait for streams.
  void sort_ended(int64_t count) {
    int32_t* const ended = ended_;
    std::sort(ended, ended + count, [this](int32_t one, int32_t other) {
      return rank_of_ended(one) < rank_of_ended(other);
    });
  }

  std::pair<int, int64_t> rank_of_ended(int32_t job) const {
    if (job < tables_.num_operations) return {0, job};
    if (job < max_jobs_) return {1, ranks_[job].order};
    return {2, ranks_[job - max_jobs_].order};
  }

  // The heap of events. Left to itself, the compiler calls these functions and `take_first` instead
  // of inlining them, which costs a seventh of all time.

  [[gnu::always_inline]] void add_event(int64_t count, double secs, int64_t job) {
    rise(count, {secs, job});
  }

  // Removes the first event from the heap, which has `count` events without it.
  [[gnu::always_inline]] void remove_first(int64_t count) {
    const Event event = events_[count];
    int64_t at = 0, child = 1;
    // Move the gap down to a leaf without comparing the last event, which nearly always belongs
    // there: so no branch depends on times, which would be unpredictable.
    while (child + 1 < count) {
      child += events_[child + 1].secs < events_[child].secs;
      events_[at] = events_[child];
      at = child;
      child = 2 * at + 1;
    }
    if (child < count) {
      events_[at] = events_[child];
      at = child;
    }
    rise(at, event);
  }

  // Puts an event at a place of the heap, or above its later ancestors.
  void rise(int64_t at, Event event) {
    while (at > 0) {
      const int64_t parent = (at - 1) >> 1;
      if (events_[parent].secs <= event.secs) break;
      events_[at] = events_[parent];
      at = parent;
    }
    events_[at] = event;
  }

  // Puts an event at a place of the heap, or below its earlier descendants.
  void sink(int64_t count, int64_t at, Event event) {
    int64_t child = 2 * at + 1;
    while (child < count) {
      if (child + 1 < count && events_[child + 1].secs < events_[child].secs) ++child;
      if (events_[child].secs >= event.secs) break;
      events_[at] = events_[child];
      at = child;
      child = 2 * at + 1;
    }
    events_[at] = event;
  }

  // Delays the end of every operation that runs on a device.
  void delay(int64_t count, int64_t device, double secs) {
    for (int64_t at = 0; at < count; ++at) {
      const int64_t job = events_[at].job;
      if (job < tables_.num_operations && jobs_[job].device == device) events_[at].secs += secs;
    }
    for (int64_t at = count / 2 - 1; at >= 0; --at) sink(count, at, events_[at]);
  }

  // The heap beside a queue: a skew heap (Sleator and Tarjan, "Self-adjusting heaps", SIAM Journal
  // on Computing 15(1), 1986).

  bool is_before(int32_t job, int32_t other) const {
    const double secs = jobs_[job].ready_secs, other_secs = jobs_[other].ready_secs;
    return secs != other_secs ? secs < other_secs : ranks_[job].order < ranks_[other].order;
  }

  int32_t merge(int32_t one, int32_t other) {
    if (one < 0) return other;
    if (other < 0) return one;
    if (is_before(other, one)) std::swap(one, other);
    const int32_t root = one;
    while (true) {
      // Invariant: `one` is in its final place and comes before `other`.
      int32_t below = ranks_[one].right;
      ranks_[one].right = ranks_[one].left;
      if (below < 0) {
        ranks_[one].left = other;
        return root;
      }
      if (is_before(other, below)) std::swap(below, other);
      ranks_[one].left = below;
      one = below;
    }
  }

  void wait_aside(Server& server, int32_t job) {
    ranks_[job].left = ranks_[job].right = -1;
    server.root = merge(server.root, job);
  }

  // Takes the first job that waits for a server, or -1.
  [[gnu::always_inline]] int32_t take_first(Server& server) {
    const int32_t first = server.first;
    if (server.root >= 0) {
      const int32_t root = server.root;
      // `first` is not the last job of the queue, which is after all jobs in the heap.
      if (first >= 0 && is_before(first, root)) {
        server.first = jobs_[first].next;
        return first;
      }
      server.root = merge(ranks_[root].left, ranks_[root].right);
      return root;
    }
    if (first >= 0) server.first = first == server.last ? -1 : jobs_[first].next;
    return first;
  }

  // An upper bound of the relative rounding error of a sum of seconds.
  static constexpr double kRounding = 1e-9;
  // Up to this share of a device's memory, fragmentation into blocks does not matter.
  static constexpr double kRoomyShare = 0.75;

  const Tables tables_;
  const int64_t max_jobs_;
  const bool has_streams_;
  Records<Job> jobs_;        // first the operations
  Records<Rank> ranks_;
  Records<Transfer> transfers_;
  Records<Server> servers_;
  Records<Event> events_;
  Records<int32_t> ended_;    // the events of one instant
  Records<int32_t> arrived_;  // the jobs that became ready in one round
  Records<int32_t> changed_devices_;
  Records<int32_t> changed_channels_;
  Records<Original> originals_;
  Records<Copy> copies_;
  Records<int32_t> missing_signals_;  // [num_barriers, num_devices], until they are passed
  Records<int32_t> num_waiters_;      // [num_barriers, num_devices]
  Records<Held> held_;
  Records<int64_t> resident_bytes_;
  Records<double> total_secs_;    // by device, the sum of all operations
  Records<double> started_secs_;  // by device, the sum of started operations
  Records<Stream> streams_;       // by device
  Records<Lane> lanes_;           // [num_devices, kLanes]
  Records<int32_t> num_wanting_;  // by device, the readers there of one output
  std::vector<Allocator> allocators_;  // by device
  std::vector<int32_t> first_output_;  // by operation
  // Positions in the sequence of enqueued operations, requested transfers and ended transfers, many
  // of which may happen at one instant.
  Records<int64_t> moments_;      // by job
  Records<int64_t> end_moments_;  // by transfer
  Records<double> request_secs_;  // by transfer
  int64_t num_moments_ = 0;
  const int32_t* next_ = nullptr;    // see `set_order`
  const uint8_t* follows_ = nullptr;
  double step_secs_ = 0.0;
  int32_t last_job_ = -1;  // the job that ended last
  int64_t num_jobs_ = 0;
};

template <Memory kMemory>
int64_t Step::start(int64_t* peaks) {
  num_moments_ = 0;
  for (int64_t device = 0; device < tables_.num_devices; ++device) {
    started_secs_[device] = 0.0;
    streams_[device] = {0.0, -1};
    std::fill_n(lanes_ + kLanes * device, kLanes, Lane{-1, -1});
    if (kMemory != kNone) {
      peaks[device] = held_[device].bytes = resident_bytes_[device];
      held_[device].known_secs = 0.0;
    }
    if (kMemory == kBlocks && has_stream(device)) {
      allocators_[device].clear();
      peaks[device] = held_[device].bytes = 0;
      hold<kMemory>(device, resident_bytes_[device], peaks);
    }
  }
  if (kMemory != kNone) {
    for (int64_t output = 0; output < tables_.num_outputs; ++output) {
      originals_[output] = {static_cast<int32_t>(tables_.outputs[output].num_readers), -1,
                            jobs_[tables_.outputs[output].producer].device, -1};
    }
  }
  for (int64_t operation = 0; operation < tables_.num_operations; ++operation) {
    jobs_[operation].num_missing = tables_.operations[operation].num_inputs;
  }
  if (next_ != nullptr) {
    for (int64_t operation = 0; operation < tables_.num_operations; ++operation) {
      jobs_[operation].num_missing += follows_[operation];
    }
  }
  for (int64_t barrier = 0; barrier < tables_.num_barriers; ++barrier) {
    std::fill_n(missing_signals_ + barrier * tables_.num_devices, tables_.num_devices,
                tables_.barriers[barrier].num_signals);
  }
  for (int64_t number = 0; number < tables_.num_servers; ++number) {
    const int32_t slots = tables_.slots[number];
    servers_[number] = {0.0, 0, 0.0, -kInfinity, -1, -1, -1, -1, slots, slots, false};
  }
  int64_t num_arrived = 0;
  for (int64_t at = 0; at < tables_.num_sources; ++at) {
    const int32_t source = tables_.sources[at];
    jobs_[source].cause = -1;
    if (next_ != nullptr && follows_[source]) continue;
    arrived_[num_arrived++] = source;
  }
  return num_arrived;
}

template <Memory kMemory, bool kTimes, bool kLimit, bool kStreams>
bool Step::run_jobs(double limit_secs, int64_t* peaks, Times* times) {
  const int64_t num_operations = tables_.num_operations, num_devices = tables_.num_devices;
  const Operation* const operations = tables_.operations;
  const Output* const outputs = tables_.outputs;
  const Reader* const readers = tables_.readers;
  int64_t num_arrived = start<kMemory>(peaks);
  int64_t num_events = 0, num_changed_devices = 0, num_changed_channels = 0;
  double now = 0.0;
  num_jobs_ = num_operations;
  // A sum of seconds above this is above the limit in spite of rounding errors.
  double cut_secs = limit_secs;
  if (kLimit) {
    double most_secs = limit_secs;
    for (int64_t device = 0; device < num_devices; ++device) {
      most_secs = std::max(most_secs, total_secs_[device]);
    }
    cut_secs += kRounding * most_secs;
  }

  while (true) {
    // Process all ends at this instant; jobs that become ready arrive.
    int64_t num_ended = 0;
    if (kStreams) {
      while (num_events > 0 && events_[0].secs == now) {
        ended_[num_ended++] = static_cast<int32_t>(events_[0].job);
        remove_first(--num_events);
      }
      if (num_ended > 1) sort_ended(num_ended);
    }
    int64_t number = 0;
    while (kStreams ? number < num_ended : num_events > 0 && events_[0].secs == now) {
      int32_t ended;
      if (kStreams) {
        ended = ended_[number++];
      } else {
        // The order of the ends of one instant matters only to streams.
        ended = static_cast<int32_t>(events_[0].job);
        remove_first(--num_events);
      }
      if (kStreams && ended >= max_jobs_) {
        arrived_[num_arrived++] = ended;
        continue;
      }
      last_job_ = ended;
      if (kTimes) times[ended].end_secs = now;
      const int32_t device = jobs_[ended].device;
      if (ended < num_operations) {
        Server& server = servers_[device];
        ++server.free_slots;
        if (jobs_[ended].num_missing == 0) server.last_ended = ended;
        if (!server.is_changed) {
          server.is_changed = true;
          changed_devices_[num_changed_devices++] = device;
        }
        if (kMemory != kNone) {
          note_peak(peaks, device, now);
          held_[device].bytes -= operations[ended].end_bytes;
          let_go_inputs<kMemory>(ended, device);
        }
        num_arrived = pass_on<kMemory>(ended, ended, num_arrived);
      } else {
        const int64_t transfer = ended - num_operations;
        const int32_t output = transfers_[transfer].output;
        const bool has_lane = kStreams && this->has_lane(transfer);
        const bool has_channel = !has_lane || !is_in_stream(transfer);
        if (has_channel) {
          const int32_t channel = transfers_[transfer].channel;
          Server& server = servers_[channel];
          server.free_slots = 1;
          if (jobs_[ended].num_missing == 0) server.last_ended = ended;
          if (!server.is_changed) {
            server.is_changed = true;
            changed_channels_[num_changed_channels++] = channel;
          }
        }
        if (kStreams) end_moments_[transfer] = num_moments_++;
        if (kMemory != kNone) {
          // The readers of the copy no longer need the original.
          originals_[output].num_users -= copies_[transfer].num_users;
          if (originals_[output].num_users == 0) {
            const int32_t source = transfers_[transfer].source;
            note_peak(peaks, source, now);
            let_go(source, outputs[output].local_bytes, originals_[output].block);
          }
        }
        const uint32_t first_reader = outputs[output].first_reader;
        const uint32_t end = first_reader + outputs[output].num_readers;
        for (uint32_t at = first_reader; at < end; ++at) {
          const uint32_t reader = readers[at].operation;
          if (reader >= num_operations) {
            num_arrived = receive_signal(reader - num_operations, device, ended, num_arrived);
          } else if (jobs_[reader].device == device) {
            num_arrived = receive(reader, ended, num_arrived);
          }
        }
        if (has_lane && has_channel) {
          num_arrived = leave_lane(ended, now, num_arrived, &num_events);
        }
      }
    }

    // Arrived jobs join the queue of their server, nearly always at the end. Enqueuing an operation
    // on an asynchronous device lets further jobs arrive.
    for (int64_t at = 0; at < num_arrived; ++at) {
      int32_t job = arrived_[at];
      if (kStreams && job >= max_jobs_) {
        job -= static_cast<int32_t>(max_jobs_);
      } else if (kStreams && job >= num_operations && has_lane(job - num_operations)) {
        num_arrived = join_lane<kMemory, kTimes>(job, now, num_arrived, &num_events, peaks, times);
        continue;
      } else if (kStreams && job < num_operations && has_stream(jobs_[job].device)) {
        const int32_t device = jobs_[job].device;
        if (kLimit) {
          // The operations of the device that are not enqueued yet, and the operations that depend
          // on this one, are still to follow.
          started_secs_[device] += jobs_[job].secs;
          const double begin_secs = std::max(now, streams_[device].end_secs);
          const double rest_secs = total_secs_[device] - started_secs_[device];
          if (begin_secs + jobs_[job].secs + rest_secs > cut_secs) return false;
          if (now + tables_.tail_secs[job] > cut_secs) return false;
        }
        num_arrived = hand_over<kMemory, kTimes>(job, now, num_arrived, peaks, times);
        continue;
      }
      int64_t order = job;
      int32_t number;
      if (job < num_operations) {
        // The operations that depend on this one are still to follow.
        if (kLimit && now + tables_.tail_secs[job] > cut_secs) return false;
        number = jobs_[job].device;
        if (!servers_[number].is_changed) changed_devices_[num_changed_devices++] = number;
      } else {
        order = ranks_[job].order;
        number = transfers_[job - num_operations].channel;
        if (!servers_[number].is_changed) changed_channels_[num_changed_channels++] = number;
      }
      Server& server = servers_[number];
      server.is_changed = true;
      jobs_[job].ready_secs = now;
      if (server.first < 0) {
        server.first = job;
      } else if (server.last_ready_secs < now || server.last_order < order) {
        jobs_[server.last].next = job;
      } else {
        // Many jobs may become ready at one instant, in any order.
        wait_aside(server, job);
        continue;
      }
      server.last = job;
      server.last_order = order;
      server.last_ready_secs = now;
    }
    num_arrived = 0;

    for (int64_t at = 0; at < num_changed_channels; ++at) {
      Server& server = servers_[changed_channels_[at]];
      server.is_changed = false;
      if (server.free_slots == 0) continue;
      const int32_t started = take_first(server);
      if (started < 0) continue;
      server.free_slots = 0;
      if (jobs_[started].ready_secs < now) jobs_[started].cause = server.last_ended;
      const int64_t transfer = started - num_operations;
      if (kTimes) times[started].start_secs = now;
      const double secs = jobs_[started].secs;
      const int32_t device = jobs_[started].device;
      const int32_t source = transfers_[transfer].source;
      for (const int32_t end : {source, device}) {
        const double share = tables_.transfer_share[end];
        const double overhead_secs = tables_.transfer_overhead_secs[end];
        if (share > 0.0 || overhead_secs > 0.0) {
          Server& held = servers_[end];
          const Link& link = tables_.links[source * num_devices + device];
          const double bytes = static_cast<double>(outputs[transfers_[transfer].output].bytes);
          double lost_secs = share * bytes / link.bandwidth;
          if (overhead_secs > 0.0) {
            lost_secs += overhead_secs * overhead_part(now - held.sends_until_secs);
            held.sends_until_secs = std::max(held.sends_until_secs, now + secs);
          }
          if (held.free_slots < held.slots) {
            delay(num_events, end, lost_secs);
          } else {
            held.held_until_secs = std::max(held.held_until_secs, now) + lost_secs;
          }
        }
      }
      if (now + secs == now) jobs_[started].num_missing = kInstant;
      add_event(num_events++, now + secs, started);
      if (kMemory != kNone && !(kStreams && has_lane(transfer))) {
        note_peak(peaks, device, now);
        held_[device].bytes += outputs[transfers_[transfer].output].bytes;
      }
    }
    num_changed_channels = 0;
    // A transfer without duration ends before devices choose.
    if (num_events > 0 && events_[0].secs == now) continue;

    for (int64_t at = 0; at < num_changed_devices; ++at) {
      const int32_t device = changed_devices_[at];
      Server& server = servers_[device];
      server.is_changed = false;
      while (server.free_slots > 0) {
        const int32_t started = take_first(server);
        if (started < 0) break;
        --server.free_slots;
        if (jobs_[started].ready_secs < now) jobs_[started].cause = server.last_ended;
        if (kTimes) times[started].start_secs = now;
        const double secs = jobs_[started].secs;
        const double begin_secs = std::max(now, server.held_until_secs);
        if (kLimit) {
          // The device still has to run this operation and the rest of its operations.
          const double rest_secs = total_secs_[device] - started_secs_[device];
          if (begin_secs + rest_secs / server.slots > cut_secs) return false;
          started_secs_[device] += secs;
        }
        if (begin_secs + secs == now) jobs_[started].num_missing = kInstant;
        add_event(num_events++, begin_secs + secs, started);
        if (kMemory != kNone) {
          note_peak(peaks, device, now);
          held_[device].bytes += operations[started].start_bytes;
        }
      }
    }
    num_changed_devices = 0;
    if (num_events == 0) break;
    now = events_[0].secs;
    if (kLimit && now > limit_secs) return false;
  }
  step_secs_ = now;
  for (int64_t device = 0; device < num_devices; ++device) {
    if (streams_[device].end_secs <= step_secs_) continue;
    step_secs_ = streams_[device].end_secs;
    last_job_ = streams_[device].last;
  }
  return true;
}

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_STEP_H_
