// A step, event by event.
//
// Operations and transfers are both *jobs*: each waits in the queue of its *server* (a device with
// slots, or a channel that carries one transfer at a time) and then runs for a known time. Jobs 0 to
// num_operations - 1 are the operations, the others the transfers in the order in which they were
// requested; servers 0 to num_devices - 1 are the devices, the others the channels.
//
// Only what runs is in the heap of events, so the size of the heap does not depend on the graph.

#ifndef TF_PLACER_NATIVE_STEP_H_
#define TF_PLACER_NATIVE_STEP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include "tf_placer/native/tables.h"

namespace tf_placer {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What part of its overhead a device loses to a transfer if its last one ended `gap_secs` ago: the
// rules are those of `tf_placer/problem/README.md`.
inline double overhead_part(double gap_secs) {
  constexpr double kRestSecs = 0.01, kLeast = 0.25;
  return kLeast + (1.0 - kLeast) * std::sqrt(std::clamp(gap_secs / kRestSecs, 0.0, 1.0));
}

// Records none of which is in two cache lines. What is never touched takes no memory.
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

class Step {
 public:
  explicit Step(const Tables& tables)
      : tables_(tables),
        max_jobs_(tables.num_operations + tables.max_transfers),
        jobs_(max_jobs_),
        ranks_(max_jobs_),
        transfers_(tables.max_transfers),
        servers_(tables.num_servers),
        events_(max_running(tables)),
        arrived_(max_jobs_ + 1),
        changed_devices_(tables.num_devices),
        changed_channels_(tables.num_servers),
        requested_(tables.num_devices),
        request_(tables.num_devices),
        originals_(tables.num_outputs),
        copies_(tables.max_transfers),
        missing_signals_(tables.num_barriers * tables.num_devices),
        num_waiters_(tables.num_barriers * tables.num_devices),
        held_(tables.num_devices),
        resident_bytes_(tables.num_devices),
        total_secs_(tables.num_devices),
        started_secs_(tables.num_devices) {
    for (int64_t operation = 0; operation < tables.num_operations; ++operation) {
      ranks_[operation].order = operation;
    }
  }

  // Puts every group somewhere; returns whether all may go there. Where one may not, nothing is put.
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

  // Moves one group to where it may go.
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

  // Adds up what the groups of each device take. Moves add and subtract, and errors grow.
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

  // Simulates the step of where everything is.
  //
  // kMemory: whether to find out what devices hold: `peaks` [num_devices] gets the most.
  // kTimes: whether to note when jobs start and end: `times` [max_jobs] gets that.
  // kLimit: whether a step that is longer than `limit_secs` may be cut.
  //
  // Returns whether the step was simulated to its end.
  template <bool kMemory, bool kTimes, bool kLimit>
  bool run(double limit_secs, int64_t* peaks, Times* times);

  double step_secs() const { return step_secs_; }
  // Visits the jobs of the critical path of a step that was simulated to its end, from the last to
  // the first: each started when the one before had ended.
  template <typename Visit>
  void visit_path(const Visit& visit) const {
    for (int32_t job = last_job_; job >= 0; job = jobs_[job].cause) visit(job);
  }
  double secs(int64_t job) const { return jobs_[job].secs; }
  int64_t num_transfers() const { return num_jobs_ - tables_.num_operations; }
  double requested_secs(int64_t job) const { return jobs_[job].ready_secs; }
  int32_t destination(int64_t transfer) const {
    return jobs_[tables_.num_operations + transfer].device;
  }
  int32_t source(int64_t transfer) const { return transfers_[transfer].source; }
  int32_t output(int64_t transfer) const { return transfers_[transfer].output; }
  int64_t order(int64_t transfer) const {
    return ranks_[tables_.num_operations + transfer].order;
  }
  const Tables& tables() const { return tables_; }
  int64_t max_jobs() const { return max_jobs_; }

 private:
  struct Job {
    double secs;          // how long it takes
    int32_t device;       // where an operation runs or a transfer goes
    int32_t num_missing;  // how many inputs an operation still waits for
    double ready_secs;    // when it was ready or requested
    int32_t next;         // what is behind it in the queue; without meaning for the last
    int32_t cause;        // the job that it waited for last, or -1
  };

  // What is needed of a job that is not in order of arrival: its place among the jobs that were
  // ready at the same time, and what is below it in a heap, or -1.
  struct Rank {
    int64_t order;
    int32_t left;
    int32_t right;
  };

  struct Transfer {
    int32_t output;
    int32_t source;
    int32_t channel;
    int32_t padding;
  };

  // The jobs that wait are a list, at the end of which nearly all join, and a heap beside it of
  // those that do not.
  struct Server {
    double last_ready_secs;  // of the last job of the queue
    int64_t last_order;
    double held_until_secs;  // no operation gets on before
    double sends_until_secs;  // the last of its transfers up to now ends, if they have an overhead
    int32_t first;           // of the queue, or -1
    int32_t last;            // of the queue; without meaning when that is empty
    int32_t root;            // of the heap beside the queue, or -1
    int32_t last_ended;      // the last job that ended
    int32_t slots;
    int32_t free_slots;
    bool is_changed;  // whether something happened since it last chose what to start
  };

  struct Event {
    double secs;
    int64_t job;
  };

  // A tensor where it was made: how many readers still need it, and the transfer of it that was
  // requested last, or -1. Readers elsewhere need it until their transfer has ended.
  struct Original {
    int32_t num_users;
    int32_t last_copy;
    int32_t device;
  };

  // A tensor where it was sent: how many readers still need it, and the transfer of the same tensor
  // that was requested before this one, or -1.
  struct Copy {
    int32_t num_users;
    int32_t earlier_copy;
  };

  // What a device holds, and up to when its peak is known.
  struct Held {
    int64_t bytes;
    double known_secs;
  };

  static int64_t max_running(const Tables& tables) {
    int64_t slots = 0;
    for (int64_t device = 0; device < tables.num_devices; ++device) slots += tables.slots[device];
    return std::min(slots, tables.num_operations) + tables.num_servers - tables.num_devices;
  }

  // Counts the operations of a group among those of a device that wait for barriers.
  void count_waiters(int64_t group, int32_t device, int32_t by) {
    const uint32_t end = tables_.group_barrier_start[group + 1];
    for (uint32_t at = tables_.group_barrier_start[group]; at < end; ++at) {
      num_waiters_[tables_.group_barriers[at] * tables_.num_devices + device] += by;
    }
  }

  // Prepares the state before the step; returns how many jobs are ready at once.
  template <bool kMemory>
  int64_t start(int64_t* peaks);

  // Counts an input of an operation; returns how many jobs have become ready.
  int64_t receive(uint32_t reader, int32_t cause, int64_t count) {
    const int32_t num_missing = jobs_[reader].num_missing - 1;
    jobs_[reader].num_missing = num_missing;
    jobs_[reader].cause = cause;
    // Without a branch, which nothing could predict.
    arrived_[count] = static_cast<int32_t>(reader);
    return count + (num_missing == 0);
  }

  // Counts a signal that a device has; returns how many jobs have become ready.
  int64_t receive_signal(int64_t barrier, int32_t device, int32_t cause, int64_t count) {
    if (--missing_signals_[barrier * tables_.num_devices + device] > 0) return count;
    const uint32_t end = tables_.barriers[barrier + 1].first_waiter;
    for (uint32_t at = tables_.barriers[barrier].first_waiter; at < end; ++at) {
      const int32_t waiter = tables_.waiters[at];
      if (jobs_[waiter].device == device) count = receive(waiter, cause, count);
    }
    return count;
  }

  // Requests the transfer of an output, which `cause` has made; returns how many jobs have become
  // ready.
  template <bool kMemory>
  int64_t request(int32_t output, int32_t where, int32_t cause, int64_t count) {
    const int32_t source = jobs_[cause].device;
    const Link& link = tables_.links[source * tables_.num_devices + where];
    const int64_t transfer = num_jobs_ - tables_.num_operations;
    transfers_[transfer] = {output, source, static_cast<int32_t>(link.channel), 0};
    ranks_[num_jobs_].order =
        static_cast<int64_t>(tables_.outputs[output].order) * tables_.num_devices + where;
    jobs_[num_jobs_].secs =
        link.latency_secs + static_cast<double>(tables_.outputs[output].bytes) / link.bandwidth;
    jobs_[num_jobs_].device = where;
    jobs_[num_jobs_].cause = cause;
    arrived_[count] = static_cast<int32_t>(num_jobs_);
    ++num_jobs_;
    if (kMemory) {
      copies_[transfer] = {0, originals_[output].last_copy};
      originals_[output].last_copy = static_cast<int32_t>(transfer);
    }
    return count + 1;
  }

  // Counts what a device held until now, but not what comes and goes at one instant.
  void note_peak(int64_t* peaks, int64_t device, double now) {
    if (held_[device].known_secs != now) {
      held_[device].known_secs = now;
      peaks[device] = std::max(peaks[device], held_[device].bytes);
    }
  }

  // The heap of events.

  void add_event(int64_t count, double secs, int64_t job) {
    rise(count, {secs, job});
  }

  // Takes the first event out of a heap, which has `count` without it.
  void remove_first(int64_t count) {
    const Event event = events_[count];
    int64_t at = 0, child = 1;
    // The place goes down to the end without a look at the event, which belongs there nearly always:
    // no branch depends on times, which nothing could predict.
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

  // Puts an event at a place of the heap, or above what comes after it there.
  void rise(int64_t at, Event event) {
    while (at > 0) {
      const int64_t parent = (at - 1) >> 1;
      if (events_[parent].secs <= event.secs) break;
      events_[at] = events_[parent];
      at = parent;
    }
    events_[at] = event;
  }

  // Puts an event at a place of the heap, or below what comes before it there.
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
      // `one` is in its place and comes before `other`.
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
  int32_t take_first(Server& server) {
    const int32_t first = server.first;
    if (server.root >= 0) {
      const int32_t root = server.root;
      // It is not the last of the queue: that came after everything that is in the heap.
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

  // A share of a sum of seconds that is more than rounding can make of it.
  static constexpr double kRounding = 1e-9;

  const Tables tables_;
  const int64_t max_jobs_;
  Records<Job> jobs_;        // first the operations
  Records<Rank> ranks_;
  Records<Transfer> transfers_;
  Records<Server> servers_;
  Records<Event> events_;
  Records<int32_t> arrived_;  // what became ready in one round
  Records<int32_t> changed_devices_;
  Records<int32_t> changed_channels_;
  Records<int32_t> requested_;  // by device, the output that was last requested for it
  Records<int32_t> request_;    // the transfer of that
  Records<Original> originals_;
  Records<Copy> copies_;
  Records<int32_t> missing_signals_;  // [num_barriers, num_devices], until they are passed
  Records<int32_t> num_waiters_;      // [num_barriers, num_devices]
  Records<Held> held_;
  Records<int64_t> resident_bytes_;
  Records<double> total_secs_;    // what all operations of a device take
  Records<double> started_secs_;  // what those of them take that have started
  double step_secs_ = 0.0;
  int32_t last_job_ = -1;  // the one that ended last
  int64_t num_jobs_ = 0;
};

template <bool kMemory>
int64_t Step::start(int64_t* peaks) {
  for (int64_t device = 0; device < tables_.num_devices; ++device) {
    requested_[device] = -1;
    started_secs_[device] = 0.0;
    if (kMemory) {
      peaks[device] = held_[device].bytes = resident_bytes_[device];
      held_[device].known_secs = 0.0;
    }
  }
  if (kMemory) {
    for (int64_t output = 0; output < tables_.num_outputs; ++output) {
      originals_[output] = {static_cast<int32_t>(tables_.outputs[output].num_readers), -1,
                            jobs_[tables_.outputs[output].producer].device};
    }
  }
  for (int64_t operation = 0; operation < tables_.num_operations; ++operation) {
    jobs_[operation].num_missing = tables_.operations[operation].num_inputs;
  }
  for (int64_t barrier = 0; barrier < tables_.num_barriers; ++barrier) {
    std::fill_n(missing_signals_ + barrier * tables_.num_devices, tables_.num_devices,
                tables_.barriers[barrier].num_signals);
  }
  for (int64_t number = 0; number < tables_.num_servers; ++number) {
    const int32_t slots = tables_.slots[number];
    servers_[number] = {0.0, 0, 0.0, -kInfinity, -1, -1, -1, -1, slots, slots, false};
  }
  for (int64_t at = 0; at < tables_.num_sources; ++at) jobs_[tables_.sources[at]].cause = -1;
  std::copy_n(tables_.sources, tables_.num_sources, static_cast<int32_t*>(arrived_));
  return tables_.num_sources;
}

template <bool kMemory, bool kTimes, bool kLimit>
bool Step::run(double limit_secs, int64_t* peaks, Times* times) {
  const int64_t num_operations = tables_.num_operations, num_devices = tables_.num_devices;
  const Operation* const operations = tables_.operations;
  const Output* const outputs = tables_.outputs;
  const Reader* const readers = tables_.readers;
  const uint32_t* const inputs = tables_.inputs;
  int64_t num_arrived = start<kMemory>(peaks);
  int64_t num_events = 0, num_changed_devices = 0, num_changed_channels = 0;
  double now = 0.0;
  num_jobs_ = num_operations;
  // A sum of seconds beyond this is certainly beyond the limit.
  double cut_secs = limit_secs;
  if (kLimit) {
    double most_secs = limit_secs;
    for (int64_t device = 0; device < num_devices; ++device) {
      most_secs = std::max(most_secs, total_secs_[device]);
    }
    cut_secs += kRounding * most_secs;
  }

  while (true) {
    // All that ends now ends; what becomes ready by that arrives.
    while (num_events > 0 && events_[0].secs == now) {
      const int32_t ended = static_cast<int32_t>(events_[0].job);
      last_job_ = ended;
      remove_first(--num_events);
      if (kTimes) times[ended].end_secs = now;
      const int32_t device = jobs_[ended].device;
      if (ended < num_operations) {
        Server& server = servers_[device];
        ++server.free_slots;
        server.last_ended = ended;
        if (!server.is_changed) {
          server.is_changed = true;
          changed_devices_[num_changed_devices++] = device;
        }
        if (kMemory) {
          note_peak(peaks, device, now);
          int64_t freed_bytes = operations[ended].end_bytes;
          const uint32_t end = operations[ended + 1].first_input;
          for (uint32_t at = operations[ended].first_input; at < end; ++at) {
            const uint32_t output = inputs[at];
            if (originals_[output].device == device) {
              if (--originals_[output].num_users == 0) freed_bytes += outputs[output].local_bytes;
            } else {
              int32_t copy = originals_[output].last_copy;
              while (jobs_[num_operations + copy].device != device) {
                copy = copies_[copy].earlier_copy;
              }
              if (--copies_[copy].num_users == 0) freed_bytes += outputs[output].bytes;
            }
          }
          held_[device].bytes -= freed_bytes;
        }
        const uint32_t end = operations[ended + 1].first_reader;
        for (uint32_t at = operations[ended].first_reader; at < end; ++at) {
          const uint32_t reader = readers[at].operation;
          const int32_t output = static_cast<int32_t>(readers[at].output);
          if (reader >= num_operations) {
            const int64_t barrier = reader - num_operations;
            for (int32_t where = 0; where < num_devices; ++where) {
              if (num_waiters_[barrier * num_devices + where] == 0) continue;
              num_arrived = where == device
                                ? receive_signal(barrier, where, ended, num_arrived)
                                : request<kMemory>(output, where, ended, num_arrived);
            }
            continue;
          }
          const int32_t where = jobs_[reader].device;
          if (where == device) {
            num_arrived = receive(reader, ended, num_arrived);
            continue;
          }
          if (requested_[where] != output) {
            requested_[where] = output;
            request_[where] = static_cast<int32_t>(num_jobs_ - num_operations);
            num_arrived = request<kMemory>(output, where, ended, num_arrived);
          }
          if (kMemory) ++copies_[request_[where]].num_users;
        }
      } else {
        const int64_t transfer = ended - num_operations;
        const int32_t output = transfers_[transfer].output;
        const int32_t number = transfers_[transfer].channel;
        Server& server = servers_[number];
        server.free_slots = 1;
        server.last_ended = ended;
        if (!server.is_changed) {
          server.is_changed = true;
          changed_channels_[num_changed_channels++] = number;
        }
        if (kMemory) {
          // The readers of the copy do not need the original any more.
          originals_[output].num_users -= copies_[transfer].num_users;
          if (originals_[output].num_users == 0) {
            const int32_t source = transfers_[transfer].source;
            note_peak(peaks, source, now);
            held_[source].bytes -= outputs[output].local_bytes;
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
      }
    }

    // What has arrived joins the queue of its server, nearly always at the end.
    for (int64_t at = 0; at < num_arrived; ++at) {
      const int32_t job = arrived_[at];
      int64_t order = job;
      int32_t number;
      if (job < num_operations) {
        // What waits for it follows, as fast as it can.
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
      add_event(num_events++, now + secs, started);
      if (kMemory) {
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
          // The device has this operation and the rest of its own to do from now on.
          const double rest_secs = total_secs_[device] - started_secs_[device];
          if (begin_secs + rest_secs / server.slots > cut_secs) return false;
          started_secs_[device] += secs;
        }
        add_event(num_events++, begin_secs + secs, started);
        if (kMemory) {
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
  return true;
}

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_STEP_H_
