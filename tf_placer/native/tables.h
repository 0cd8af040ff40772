// A placement problem as tables that the event loop reads in order.
//
// Python builds the tables (simulation/step_tables.py), with records of the same layout. Fields
// that are read together are in one cache line.

#ifndef TF_PLACER_NATIVE_TABLES_H_
#define TF_PLACER_NATIVE_TABLES_H_

#include <cstdint>

namespace tf_placer {

struct Operation {
  int32_t group;
  int32_t num_inputs;     // the number of outputs and barriers that it waits for
  uint32_t first_input;   // index into `inputs`; they end at the first of the next operation
  uint32_t first_reader;  // index into `readers`, in the same way
  int64_t start_bytes;    // memory allocated at its start
  int64_t end_bytes;      // memory of that freed at its end
};

// An output of an operation: a tensor, or the signal to its control successors, which is a tensor
// without bytes that has a place in the order of transfers.
struct Output {
  int64_t bytes;        // the size of a transfer, and of the copy at the destination
  int64_t local_bytes;  // the memory on the device of the producer
  int32_t order;        // among the requests of one instant
  uint32_t producer;
  uint32_t first_reader;  // index into `readers`
  uint32_t num_readers;
};

// A reader of an output: an operation, or a barrier, whose numbers follow those of operations.
struct Reader {
  uint32_t operation;
  uint32_t output;
};

struct Link {
  double latency_secs;
  double bandwidth;  // bytes per second
  int64_t channel;   // the number of a server
};

// A set of operations that all wait for the signals of the same operations, as gradients wait for
// all updates of statistics. Each device passes it separately.
struct Barrier {
  int32_t num_signals;
  uint32_t first_waiter;  // index into `waiters`; they end at the first of the next barrier
};

// The data that is the same for every placement.
struct Tables {
  const Operation* operations;     // [num_operations + 1]
  const Output* outputs;           // [num_outputs], sorted by producer and order
  const Reader* readers;           // [num_reads], sorted by output, none twice for one output
  const uint32_t* inputs;          // outputs, sorted by the operation that waits for them
  const Barrier* barriers;         // [num_barriers + 1]
  const int32_t* waiters;          // operations, sorted by barrier
  const uint32_t* group_barrier_start;  // [num_groups + 1], indices into `group_barriers`
  const int32_t* group_barriers;   // the barriers of a group's operations, once per operation
  const int32_t* sources;          // [num_sources], the operations without inputs, in order
  const double* compute_secs;      // [num_devices, num_operations], infinite where not legal
  const double* tail_secs;         // [num_operations], least time from its readiness to the end
  const Link* links;               // [num_devices, num_devices]
  const double* transfer_share;    // [num_devices]
  const double* transfer_overhead_secs;  // [num_devices]
  const double* group_secs;        // [num_groups, num_devices], sums over the operations
  const int64_t* group_bytes;      // [num_groups], resident memory
  const uint8_t* group_is_legal;   // [num_groups, num_devices]
  const int64_t* group_start;      // [num_groups + 1], indices into `group_operations`
  const int32_t* group_operations;  // [num_operations], sorted by group
  const uint8_t* is_asynchronous;  // [num_devices], true if it has a stream of operations
  const uint8_t* copies_in_stream;  // [num_devices], true if its copies run in that stream
  const int64_t* memory_bytes;     // [num_devices]
  const int32_t* slots;            // [num_servers], of the devices, then of the channels
  int64_t num_operations;
  int64_t num_outputs;
  int64_t num_barriers;
  int64_t num_sources;
  int64_t num_devices;
  int64_t num_groups;
  int64_t num_servers;
  int64_t max_transfers;  // an upper bound for all placements
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_TABLES_H_
