// A placement problem as tables that the event loop walks through in order.
//
// Python makes them (simulation/step_tables.py), with records of the same layout. What is needed
// together is in one cache line.

#ifndef TF_PLACER_NATIVE_TABLES_H_
#define TF_PLACER_NATIVE_TABLES_H_

#include <cstdint>

namespace tf_placer {

struct Operation {
  int32_t group;
  int32_t num_inputs;     // how many outputs and barriers it waits for
  uint32_t first_input;   // of `inputs`; the last is before the first of the next operation
  uint32_t first_reader;  // of `readers`, in the same way
  int64_t start_bytes;    // what it takes when it starts
  int64_t end_bytes;      // what of that nobody needs after its end
};

// What an operation hands to others: a tensor, or the signal to its control successors, which is a
// tensor without bytes but for its place in the order of transfers.
struct Output {
  int64_t bytes;        // what a transfer carries, and the destination holds
  int64_t local_bytes;  // what is held where it was made
  int32_t order;        // among the requests of one instant
  uint32_t producer;
  uint32_t first_reader;  // of `readers`
  uint32_t num_readers;
};

// Who waits for an output: an operation, or, behind all operations, a barrier.
struct Reader {
  uint32_t operation;
  uint32_t output;
};

struct Link {
  double latency_secs;
  double bandwidth;  // bytes per second
  int64_t channel;   // the number of a server
};

// Operations that all wait for the signals of the same operations, such as those of gradients for
// all updates of statistics. It is passed on each device for itself.
struct Barrier {
  int32_t num_signals;
  uint32_t first_waiter;  // of `waiters`; the last is before the first of the next barrier
};

// What is the same for every placement.
struct Tables {
  const Operation* operations;     // [num_operations + 1]
  const Output* outputs;           // [num_outputs], sorted by producer and order
  const Reader* readers;           // [num_reads], sorted by output, none twice for one output
  const uint32_t* inputs;          // outputs by the operation that waits for them
  const Barrier* barriers;         // [num_barriers + 1]
  const int32_t* waiters;          // operations, sorted by barrier
  const uint32_t* group_barrier_start;  // [num_groups + 1], of `group_barriers`
  const int32_t* group_barriers;   // the barriers of a group's operations, once for each of these
  const int32_t* sources;          // [num_sources], the operations that wait for nothing, in order
  const double* compute_secs;      // [num_devices, num_operations], infinite where not legal
  const double* tail_secs;         // [num_operations], no step ends sooner after one is ready
  const Link* links;               // [num_devices, num_devices]
  const double* transfer_share;    // [num_devices]
  const double* transfer_overhead_secs;  // [num_devices]
  const double* group_secs;        // [num_groups, num_devices], of all operations of a group
  const int64_t* group_bytes;      // [num_groups], what is resident
  const uint8_t* group_is_legal;   // [num_groups, num_devices]
  const int64_t* group_start;      // [num_groups + 1], of `group_operations`
  const int32_t* group_operations;  // [num_operations], sorted by group
  const uint8_t* is_asynchronous;  // [num_devices], whether it has a stream of operations
  const int64_t* memory_bytes;     // [num_devices]
  const int32_t* slots;            // [num_servers], of the devices and, behind them, the channels
  int64_t num_operations;
  int64_t num_outputs;
  int64_t num_barriers;
  int64_t num_sources;
  int64_t num_devices;
  int64_t num_groups;
  int64_t num_servers;
  int64_t max_transfers;  // no placement has more
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_TABLES_H_
