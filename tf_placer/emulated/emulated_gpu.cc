// Emulated GPUs in TensorFlow's runtime on a computer without GPUs: a pluggable device whose memory
// is host memory, whose streams are timelines, and whose kernels have the types and host-memory
// arguments of the CUDA build. TensorFlow's executor, Placer, BFC allocator, rendezvous and event
// manager are the real ones.
//
// The roofline model of the device determines the duration of a kernel (with the same rules as
// tf_placer/costs/analytic.py). In the mode "values" a kernel computes the values of the CPU's
// kernel. In the mode "times" it computes only shapes, and values only if they may affect control
// flow.
//
// The environment variable TF_PLACER_EMULATED names the file that describes the machine and the
// kernels, with a record per line and fields separated by tabs (tf_placer/emulated/description.py
// writes it).

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tensorflow/c/experimental/grappler/grappler.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/util/device_name_utils.h"

#if __has_include("tsl/profiler/lib/profiler_factory.h")
#include "tsl/profiler/lib/profiler_factory.h"
#include "tsl/profiler/lib/profiler_interface.h"
#include "tsl/profiler/protobuf/xplane.pb.h"
#else  // Until TensorFlow 2.14.
#include "tensorflow/tsl/profiler/lib/profiler_factory.h"
#include "tensorflow/tsl/profiler/lib/profiler_interface.h"
#include "tensorflow/tsl/profiler/protobuf/xplane.pb.h"
#endif

namespace {

using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

using Nanos = std::int64_t;

// Limits of the mode "times", in which larger tensors would cost the host real time.
constexpr std::int64_t kMaxComputedElements = 1024;
constexpr std::uint64_t kMaxCopiedBytes = 64 << 10;
// Larger tensors of conditions, such as those of dropout, do not affect control flow.
constexpr std::int64_t kMaxFilledConditions = 1 << 20;
constexpr int kHost = -1;

// ---------------------------------------------------------------------------------------------
// The emulated machine

struct DeviceModel {
  std::string name;
  std::uint64_t memory_bytes = 0;
  double flops_per_sec = 0;
  double bytes_per_sec = 0;
  double launch_secs = 0;
};

// A channel, which carries one transfer at a time.
struct Channel {
  std::mutex mutex;
  std::map<Nanos, Nanos> busy;  // The end of each reserved transfer, by its start.
};

struct Link {
  double latency_secs = 0;
  double bytes_per_sec = 0;
  Channel* channel = nullptr;
};

struct KernelEntry {
  std::string op;
  std::vector<std::pair<std::string, std::vector<DataType>>> constraints;
  std::vector<std::string> host_arguments;
  std::string rule;       // The rule for the amount of work.
  bool forwards = false;  // The CUDA kernel may write its output over an input.
};

struct Machine {
  bool computes_values = true;
  double slowdown = 1.0;
  std::vector<DeviceModel> devices;
  std::map<std::pair<int, int>, Link> links;  // By ordinals of sender and receiver, or kHost.
  std::vector<KernelEntry> kernels;
};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool ParseKernel(const std::vector<std::string>& fields, KernelEntry* kernel) {
  kernel->op = fields[1];
  for (const std::string& constraint : Split(fields.size() > 2 ? fields[2] : "", ';')) {
    const std::size_t equals = constraint.find('=');
    std::vector<DataType> types;
    for (const std::string& name : Split(constraint.substr(equals + 1), ',')) {
      DataType type;
      // Another version of TensorFlow may lack a type.
      if (tensorflow::DataType_Parse(name, &type)) types.push_back(type);
    }
    if (types.empty()) return false;
    kernel->constraints.emplace_back(constraint.substr(0, equals), types);
  }
  if (fields.size() > 3) kernel->host_arguments = Split(fields[3], ',');
  if (fields.size() > 4) kernel->rule = fields[4];
  kernel->forwards = fields.size() > 5 && fields[5] == "forwards";
  return true;
}

const Machine* ReadMachine() {
  auto* machine = new Machine;
  const char* path = std::getenv("TF_PLACER_EMULATED");
  std::ifstream file(path == nullptr ? "" : path);
  std::map<std::string, Channel*> channels;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = Split(line, '\t');
    if (fields.empty()) continue;
    if (fields[0] == "mode") {
      machine->computes_values = fields[1] == "values";
    } else if (fields[0] == "slowdown") {
      machine->slowdown = std::stod(fields[1]);
    } else if (fields[0] == "device") {
      machine->devices.push_back({fields[1], std::stoull(fields[2]), std::stod(fields[3]),
                                  std::stod(fields[4]), std::stod(fields[5])});
    } else if (fields[0] == "link") {
      Channel*& channel = channels[fields[5]];
      if (channel == nullptr) channel = new Channel;
      machine->links[{std::stoi(fields[1]), std::stoi(fields[2])}] = {
          std::stod(fields[3]), std::stod(fields[4]), channel};
    } else if (fields[0] == "kernel") {
      KernelEntry kernel;
      if (ParseKernel(fields, &kernel)) machine->kernels.push_back(kernel);
    }
  }
  return machine;
}

const Machine& TheMachine() {
  static const Machine* machine = ReadMachine();
  return *machine;
}

// ---------------------------------------------------------------------------------------------
// Timelines

Nanos Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Nanos WallNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void SleepUntil(Nanos time) {
  const Nanos now = Now();
  if (time > now) std::this_thread::sleep_for(std::chrono::nanoseconds(time - now));
}

Nanos ToNanos(double secs) { return static_cast<Nanos>(secs * TheMachine().slowdown * 1e9); }

struct Stream {
  int ordinal = 0;
  int number = 0;  // The index among the streams of its device.
  std::mutex mutex;
  Nanos busy_until = 0;
};

struct Event {
  std::atomic<Nanos> time{0};
};

Stream* Unwrap(SP_Stream stream) { return reinterpret_cast<Stream*>(stream); }
Event* Unwrap(SP_Event event) { return reinterpret_cast<Event*>(event); }

std::mutex streams_mutex;
std::set<Stream*> streams;

// A kernel or a copy on a stream, for traces.
struct TraceEvent {
  int ordinal, stream;
  bool is_copy;
  std::string name, detail;
  Nanos start, end;
};

std::atomic<bool> is_tracing{false};
std::mutex trace_mutex;
std::vector<TraceEvent> trace;

void RecordTraceEvent(const Stream& stream, bool is_copy, const std::string& name,
                      const std::string& detail, Nanos start, Nanos end) {
  if (!is_tracing) return;
  const std::lock_guard<std::mutex> lock(trace_mutex);
  trace.push_back({stream.ordinal, stream.number, is_copy, name, detail, start, end});
}

Nanos GetBusyUntil(Stream* stream) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  return stream->busy_until;
}

void WaitFor(Stream* stream, Nanos time) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  stream->busy_until = std::max(stream->busy_until, time);
}

void Run(Stream* stream, double secs, const std::string& operation, const std::string& type) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  const Nanos start = std::max(stream->busy_until, Now());
  stream->busy_until = start + ToNanos(secs);
  RecordTraceEvent(*stream, false, operation, type, start, stream->busy_until);
}

// Reserves a channel at the first time from `earliest` on at which it is free long enough. A later
// request may use an earlier gap, because the sender of the first request may still be computing.
Nanos Reserve(Channel* channel, Nanos earliest, Nanos nanos) {
  const std::lock_guard<std::mutex> lock(channel->mutex);
  std::map<Nanos, Nanos>& busy = channel->busy;
  const Nanos now = Now();
  while (!busy.empty() && busy.begin()->second < now) busy.erase(busy.begin());
  Nanos start = earliest;
  for (const auto& [from, until] : busy) {
    if (start + nanos <= from) break;
    start = std::max(start, until);
  }
  if (nanos > 0) busy[start] = start + nanos;
  return start;
}

Nanos Transfer(int source, int destination, std::uint64_t bytes, Nanos earliest, Nanos* start) {
  *start = earliest;
  const auto found = TheMachine().links.find({source, destination});
  if (found == TheMachine().links.end()) return earliest;
  const Link& link = found->second;
  const Nanos nanos = ToNanos(link.latency_secs + bytes / link.bytes_per_sec);
  *start = Reserve(link.channel, earliest, nanos);
  return *start + nanos;
}

void CopyOnStream(Stream* stream, int source, int destination, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  const Nanos earliest = std::max(stream->busy_until, Now());
  Nanos start = earliest;
  if (source == destination) {
    const DeviceModel& model = TheMachine().devices[source];
    stream->busy_until = start + ToNanos(model.launch_secs + 2.0 * bytes / model.bytes_per_sec);
  } else {
    stream->busy_until = Transfer(source, destination, bytes, earliest, &start);
  }
  const char* name = source == kHost ? "MemcpyH2D" : destination == kHost ? "MemcpyD2H"
                     : source == destination ? "MemcpyD2D" : "MemcpyP2P";
  RecordTraceEvent(*stream, true, name, std::to_string(bytes) + " bytes", start, stream->busy_until);
}

void CopyBytes(void* destination, const void* source, std::uint64_t bytes) {
  if (TheMachine().computes_values || bytes <= kMaxCopiedBytes) {
    std::memcpy(destination, source, bytes);
  }
}

// ---------------------------------------------------------------------------------------------
// Memory

std::mutex regions_mutex;
std::map<const char*, std::pair<std::uint64_t, int>> regions;  // Bytes and ordinal, by start.

int FindOrdinal(const SP_Device* device) { return device->ordinal; }

int FindOrdinal(const SP_DeviceMemoryBase* memory, int otherwise) {
  const std::lock_guard<std::mutex> lock(regions_mutex);
  const char* address = static_cast<const char*>(memory->opaque);
  auto found = regions.upper_bound(address);
  if (found == regions.begin()) return otherwise;
  --found;
  return address < found->first + found->second.first ? found->second.second : otherwise;
}

void Allocate(const SP_Device* device, std::uint64_t size, std::int64_t,
              SP_DeviceMemoryBase* memory) {
  // Reserve addresses only: pages that are never accessed take no memory of the host.
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = address == MAP_FAILED ? nullptr : address;
  memory->size = memory->opaque == nullptr ? 0 : size;
  if (memory->opaque == nullptr) return;
  const std::lock_guard<std::mutex> lock(regions_mutex);
  regions[static_cast<const char*>(address)] = {size, FindOrdinal(device)};
}

void Deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) {
  if (memory->opaque != nullptr) {
    const std::lock_guard<std::mutex> lock(regions_mutex);
    regions.erase(static_cast<const char*>(memory->opaque));
    munmap(memory->opaque, memory->size);
  }
  memory->opaque = nullptr;
  memory->size = 0;
}

void* HostAllocate(const SP_Device*, std::uint64_t size) {
  return std::aligned_alloc(64, (size + 63) / 64 * 64);
}
void HostDeallocate(const SP_Device*, void* memory) { std::free(memory); }
TF_Bool AllocatorStats(const SP_Device*, SP_AllocatorStats*) { return 0; }
TF_Bool MemoryUsage(const SP_Device* device, std::int64_t* free, std::int64_t* total) {
  *free = *total = TheMachine().devices[FindOrdinal(device)].memory_bytes;
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Streams, events and copies: the interface that TensorFlow calls

void CreateStream(const SP_Device* device, SP_Stream* stream, TF_Status*) {
  auto* made = new Stream;
  made->ordinal = FindOrdinal(device);
  const std::lock_guard<std::mutex> lock(streams_mutex);
  made->number = std::count_if(streams.begin(), streams.end(), [made](const Stream* other) {
    return other->ordinal == made->ordinal;
  });
  streams.insert(made);
  *stream = reinterpret_cast<SP_Stream>(made);
}

void DestroyStream(const SP_Device*, SP_Stream stream) {
  const std::lock_guard<std::mutex> lock(streams_mutex);
  streams.erase(Unwrap(stream));
  delete Unwrap(stream);
}

void DependOnStream(const SP_Device*, SP_Stream dependent, SP_Stream other, TF_Status*) {
  WaitFor(Unwrap(dependent), GetBusyUntil(Unwrap(other)));
}
void StreamStatus(const SP_Device*, SP_Stream, TF_Status*) {}

void CreateEvent(const SP_Device*, SP_Event* event, TF_Status*) {
  *event = reinterpret_cast<SP_Event>(new Event);
}
void DestroyEvent(const SP_Device*, SP_Event event) { delete Unwrap(event); }
SE_EventStatus EventStatus(const SP_Device*, SP_Event event) {
  return Now() >= Unwrap(event)->time ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
}
void RecordEvent(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status*) {
  Unwrap(event)->time = GetBusyUntil(Unwrap(stream));
}
void WaitForEvent(const SP_Device* const, SP_Stream stream, SP_Event event, TF_Status* const) {
  WaitFor(Unwrap(stream), Unwrap(event)->time);
}

void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status*) {
  *timer = reinterpret_cast<SP_Timer>(new std::pair<Nanos, Nanos>);
}
std::pair<Nanos, Nanos>* Unwrap(SP_Timer timer) {
  return reinterpret_cast<std::pair<Nanos, Nanos>*>(timer);
}
void DestroyTimer(const SP_Device*, SP_Timer timer) { delete Unwrap(timer); }
void StartTimer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status*) {
  Unwrap(timer)->first = std::max(GetBusyUntil(Unwrap(stream)), Now());
}
void StopTimer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status*) {
  Unwrap(timer)->second = std::max(GetBusyUntil(Unwrap(stream)), Now());
}
std::uint64_t TimerNanos(SP_Timer timer) { return Unwrap(timer)->second - Unwrap(timer)->first; }

void CopyToHost(const SP_Device* device, SP_Stream stream, void* host,
                const SP_DeviceMemoryBase* memory, std::uint64_t bytes, TF_Status*) {
  CopyBytes(host, memory->opaque, bytes);
  CopyOnStream(Unwrap(stream), FindOrdinal(device), kHost, bytes);
}
void CopyToDevice(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* memory,
                  const void* host, std::uint64_t bytes, TF_Status*) {
  CopyBytes(memory->opaque, host, bytes);
  CopyOnStream(Unwrap(stream), kHost, FindOrdinal(device), bytes);
}
void CopyBetweenDevices(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* destination,
                        const SP_DeviceMemoryBase* source, std::uint64_t bytes, TF_Status*) {
  CopyBytes(destination->opaque, source->opaque, bytes);
  const int own = FindOrdinal(device);
  CopyOnStream(Unwrap(stream), FindOrdinal(source, own), FindOrdinal(destination, own), bytes);
}

void CopyNow(int source, int destination, std::uint64_t bytes) {
  Nanos start;
  if (source != destination) SleepUntil(Transfer(source, destination, bytes, Now(), &start));
}
void CopyToHostNow(const SP_Device* device, void* host, const SP_DeviceMemoryBase* memory,
                   std::uint64_t bytes, TF_Status*) {
  CopyBytes(host, memory->opaque, bytes);
  CopyNow(FindOrdinal(device), kHost, bytes);
}
void CopyToDeviceNow(const SP_Device* device, SP_DeviceMemoryBase* memory, const void* host,
                     std::uint64_t bytes, TF_Status*) {
  CopyBytes(memory->opaque, host, bytes);
  CopyNow(kHost, FindOrdinal(device), bytes);
}
void CopyBetweenDevicesNow(const SP_Device* device, SP_DeviceMemoryBase* destination,
                           const SP_DeviceMemoryBase* source, std::uint64_t bytes, TF_Status*) {
  CopyBytes(destination->opaque, source->opaque, bytes);
  const int own = FindOrdinal(device);
  CopyNow(FindOrdinal(source, own), FindOrdinal(destination, own), bytes);
}

void BlockForEvent(const SP_Device*, SP_Event event, TF_Status*) { SleepUntil(Unwrap(event)->time); }
void BlockUntilDone(const SP_Device*, SP_Stream stream, TF_Status*) {
  SleepUntil(GetBusyUntil(Unwrap(stream)));
}
void SynchronizeAll(const SP_Device* device, TF_Status*) {
  Nanos last = 0;
  {
    const std::lock_guard<std::mutex> lock(streams_mutex);
    for (Stream* stream : streams) {
      if (stream->ordinal == FindOrdinal(device)) last = std::max(last, GetBusyUntil(stream));
    }
  }
  SleepUntil(last);
}

void SetBytes(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, std::uint8_t pattern,
              std::uint64_t bytes, TF_Status*) {
  if (TheMachine().computes_values || bytes <= kMaxCopiedBytes) {
    std::memset(memory->opaque, pattern, bytes);
  }
}
void SetZero(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* memory,
             std::uint64_t bytes, TF_Status* status) {
  SetBytes(device, stream, memory, 0, bytes, status);
}
void SetWords(const SP_Device*, SP_Stream, SP_DeviceMemoryBase* memory, std::uint32_t pattern,
              std::uint64_t bytes, TF_Status*) {
  if (TheMachine().computes_values || bytes <= kMaxCopiedBytes) {
    std::fill_n(static_cast<std::uint32_t*>(memory->opaque), bytes / sizeof(pattern), pattern);
  }
}

TF_Bool CallOnHost(const SP_Device*, SP_Stream stream, SE_StatusCallbackFn function, void* argument) {
  const Nanos time = GetBusyUntil(Unwrap(stream));
  std::thread([time, function, argument] {
    SleepUntil(time);
    TF_Status* status = TF_NewStatus();
    function(argument, status);
    TF_DeleteStatus(status);
  }).detach();
  return 1;
}

void CountDevices(const SP_Platform*, int* count, TF_Status*) {
  *count = static_cast<int>(TheMachine().devices.size());
}
void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status*) {
  const DeviceModel& model = TheMachine().devices[params->ordinal];
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->device_handle = const_cast<DeviceModel*>(&model);
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = model.name.c_str();
  params->device->device_vendor = "emulated";
  params->device->pci_bus_id = "";
}
void DestroyDevice(const SP_Platform*, SP_Device*) {}
void CreateDeviceFunctions(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status*) {
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
}
void DestroyDeviceFunctions(const SP_Platform*, SP_DeviceFns*) {}

void CreateStreamExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status*) {
  SP_StreamExecutor* functions = params->stream_executor;
  functions->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  functions->allocate = Allocate;
  functions->deallocate = Deallocate;
  functions->host_memory_allocate = HostAllocate;
  functions->host_memory_deallocate = HostDeallocate;
  functions->get_allocator_stats = AllocatorStats;
  functions->device_memory_usage = MemoryUsage;
  functions->create_stream = CreateStream;
  functions->destroy_stream = DestroyStream;
  functions->create_stream_dependency = DependOnStream;
  functions->get_stream_status = StreamStatus;
  functions->create_event = CreateEvent;
  functions->destroy_event = DestroyEvent;
  functions->get_event_status = EventStatus;
  functions->record_event = RecordEvent;
  functions->wait_for_event = WaitForEvent;
  functions->create_timer = CreateTimer;
  functions->destroy_timer = DestroyTimer;
  functions->start_timer = StartTimer;
  functions->stop_timer = StopTimer;
  functions->memcpy_dtoh = CopyToHost;
  functions->memcpy_htod = CopyToDevice;
  functions->memcpy_dtod = CopyBetweenDevices;
  functions->sync_memcpy_dtoh = CopyToHostNow;
  functions->sync_memcpy_htod = CopyToDeviceNow;
  functions->sync_memcpy_dtod = CopyBetweenDevicesNow;
  functions->block_host_for_event = BlockForEvent;
  functions->block_host_until_done = BlockUntilDone;
  functions->synchronize_all_activity = SynchronizeAll;
  functions->mem_zero = SetZero;
  functions->memset = SetBytes;
  functions->memset32 = SetWords;
  functions->host_callback = CallOnHost;
}
void DestroyStreamExecutor(const SP_Platform*, SP_StreamExecutor*) {}
void CreateTimerFunctions(const SP_Platform*, SP_TimerFns* functions, TF_Status*) {
  functions->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  functions->nanoseconds = TimerNanos;
}
void DestroyTimerFunctions(const SP_Platform*, SP_TimerFns*) {}
void DestroyPlatform(SP_Platform*) {}
void DestroyPlatformFunctions(SP_PlatformFns*) {}

// ---------------------------------------------------------------------------------------------
// The duration of a kernel

// The rule for the work of a kernel (see tf_placer/emulated/description.py).
struct WorkRule {
  std::string name;
  std::vector<int> numbers;
};

WorkRule ParseRule(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  WorkRule rule{parts.empty() ? "bytes" : parts[0], {}};
  for (std::size_t i = 1; i < parts.size(); ++i) rule.numbers.push_back(std::stoi(parts[i]));
  return rule;
}

bool IsHandle(DataType type) {
  return tensorflow::IsRefType(type) || type == tensorflow::DT_RESOURCE;
}

bool HasSize(DataType type) {
  return type != tensorflow::DT_RESOURCE && type != tensorflow::DT_VARIANT &&
         type != tensorflow::DT_STRING;
}

// The shapes and bytes of the inputs and outputs of a kernel.
struct Operands {
  std::vector<TensorShape> inputs, outputs;  // Empty for handles.
  std::vector<double> input_bytes;
  double read = 0, written = 0, largest = 0;
  int handles = 0;
  bool is_int32_alone = true;
};

void AddType(DataType type, Operands* operands) {
  if (tensorflow::RemoveRefType(type) != tensorflow::DT_INT32) operands->is_int32_alone = false;
}

Operands FindOperands(const OpKernel& kernel, OpKernelContext* context) {
  Operands operands;
  for (int i = 0; i < context->num_inputs(); ++i) {
    const DataType type = kernel.input_type(i);
    AddType(type, &operands);
    double bytes = 0;
    TensorShape shape;
    if (IsHandle(type)) {
      ++operands.handles;
    } else if (context->has_input(i)) {
      const Tensor& tensor = context->input(i);
      shape = tensor.shape();
      if (HasSize(type)) bytes = static_cast<double>(tensor.TotalBytes());
    }
    operands.inputs.push_back(shape);
    operands.input_bytes.push_back(bytes);
    operands.read += bytes;
    operands.largest = std::max(operands.largest, bytes);
  }
  for (int i = 0; i < context->num_outputs(); ++i) {
    const DataType type = kernel.output_type(i);
    AddType(type, &operands);
    TensorShape shape;
    Tensor* tensor = IsHandle(type) ? nullptr : context->mutable_output(i);
    if (tensor != nullptr) {
      shape = tensor->shape();
      if (HasSize(type)) operands.written += static_cast<double>(tensor->TotalBytes());
    }
    operands.outputs.push_back(shape);
  }
  return operands;
}

double CountElements(const TensorShape& shape) { return static_cast<double>(shape.num_elements()); }

// Counts the products that each output element of a convolution sums up.
double CountMultiplications(const TensorShape& filter, int kept) {
  double product = 1;
  for (int i = 0; i + kept < filter.dims(); ++i) product *= static_cast<double>(filter.dim_size(i));
  return product;
}

double CountEinsumMultiplications(const std::string& equation,
                                  const std::vector<TensorShape>& inputs) {
  std::map<std::string, std::int64_t> sizes;
  const std::vector<std::string> operands = Split(equation.substr(0, equation.find("->")), ',');
  for (std::size_t k = 0; k < operands.size() && k < inputs.size(); ++k) {
    const std::string& subscripts = operands[k];
    const std::size_t dots = subscripts.find("...");
    const std::string before = subscripts.substr(0, dots);
    const std::string after = dots == std::string::npos ? "" : subscripts.substr(dots + 3);
    std::vector<std::string> labels;
    for (char label : before) labels.emplace_back(1, label);
    // The dots stand for any number of dimensions, which align from the right.
    const int hidden = dots == std::string::npos
                           ? 0
                           : inputs[k].dims() - static_cast<int>(before.size() + after.size());
    for (int i = hidden; i > 0; --i) labels.push_back("." + std::to_string(i));
    for (char label : after) labels.emplace_back(1, label);
    for (std::size_t i = 0; i < labels.size() && static_cast<int>(i) < inputs[k].dims(); ++i) {
      std::int64_t& size = sizes[labels[i]];
      size = std::max(size, static_cast<std::int64_t>(inputs[k].dim_size(i)));
    }
  }
  double product = 1;
  for (const auto& size : sizes) product *= static_cast<double>(size.second);
  return product;
}

// ---------------------------------------------------------------------------------------------
// Kernels

struct KernelTraits {
  WorkRule rule;
  bool forwards = false;  // The CUDA kernel may write its output over an input.
};

std::unordered_map<std::string, KernelTraits>& Traits() {
  static auto* traits = new std::unordered_map<std::string, KernelTraits>;
  return *traits;
}

// The result of a shape function: output shapes for input shapes and values.
struct Inferred {
  std::vector<TensorShape> inputs;
  std::string values;
  std::vector<TensorShape> outputs;
};

// The common part of kernels with and without a callback.
class Emulation {
 public:
  Emulation(OpKernelConstruction* construction, const OpKernel& own)
      : own_(own),
        def_(construction->def()),
        version_(construction->graph_def_version()),
        traits_(Traits()[own.type_string()]) {
    if (def_.attr().count("equation")) equation_ = def_.attr().at("equation").s();
    for (const char* name : {"transpose_a", "adj_x"}) {
      if (def_.attr().count(name) && def_.attr().at(name).b()) transposes_first_ = true;
    }
    tensorflow::OpRegistry::Global()->LookUp(def_.op(), &registered_).IgnoreError();
    computes_shapes_only_ = !TheMachine().computes_values && CanComputeShapesOnly();
    updates_state_ = !TheMachine().computes_values && traits_.rule.name == "updates";
  }

  // Computes only output shapes, if no values are needed or no kernel can compute them. Returns
  // false if the kernel has to run.
  bool ComputeShapes(OpKernelContext* context, bool has_kernel) {
    if (updates_state_) return SkipUpdate(context);
    if (!computes_shapes_only_) return false;
    std::vector<TensorShape> shapes;
    if (!InferShapes(context, &shapes)) return false;
    std::int64_t elements = 0;
    for (const TensorShape& shape : shapes) elements += shape.num_elements();
    for (int i = 0; i < context->num_inputs(); ++i) elements += context->input(i).NumElements();
    if (elements <= kMaxComputedElements && has_kernel) return false;
    // Hold the workspace until the outputs are allocated.
    Tensor workspace;
    if (IsConvolution() && !AllocateWorkspace(context, shapes, &workspace)) return true;
    return Allocate(context, shapes);
  }

  // Occupies the stream of the device for the duration of the kernel.
  void OccupyStream(OpKernelContext* context) const {
    if (!context->status().ok()) return;
    TF_Status* status = TF_NewStatus();
    SP_Stream stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext*>(context), status);
    if (TF_GetCode(status) == TF_OK && stream != nullptr) {
      const DeviceModel& model = TheMachine().devices[Unwrap(stream)->ordinal];
      const double secs = ComputeSeconds(FindOperands(own_, context), model);
      if (secs > 0) Run(Unwrap(stream), secs, own_.name(), own_.type_string());
    }
    TF_DeleteStatus(status);
  }

 private:
  double ComputeSeconds(const Operands& operands, const DeviceModel& model) const {
    if (operands.is_int32_alone && !operands.outputs.empty()) return 0;
    const std::string& rule = traits_.rule.name;
    if (rule == "free") return 0;
    double bytes = operands.read + operands.written;
    if (rule == "reduction" && !operands.inputs.empty() && !operands.outputs.empty() &&
        operands.inputs[0].num_elements() == operands.outputs[0].num_elements()) {
      return 0;
    }
    if (rule == "picks" && !operands.input_bytes.empty()) {
      bytes = operands.read - operands.input_bytes[0] + 2 * operands.written;
    }
    if (rule == "updates" && operands.handles > 0) {
      bytes = operands.read + 2 * operands.handles * operands.largest;
    }
    return model.launch_secs +
           std::max(ComputeFlops(operands) / model.flops_per_sec, bytes / model.bytes_per_sec);
  }

  double ComputeFlops(const Operands& operands) const {
    const auto& [rule, numbers] = traits_.rule;
    const auto& inputs = operands.inputs;
    const auto& outputs = operands.outputs;
    if (rule == "matmul" && inputs.size() > 1 && inputs[0].dims() > 1 && !outputs.empty()) {
      const int inner = inputs[0].dims() - (transposes_first_ ? 2 : 1);
      return 2 * CountElements(outputs[0]) * static_cast<double>(inputs[0].dim_size(inner));
    }
    if (rule == "convolution" && inputs.size() > 1 && !outputs.empty()) {
      return 2 * CountElements(outputs[0]) * CountMultiplications(inputs[1], numbers[0]);
    }
    if (rule == "convolution_input_gradient" && inputs.size() > 2) {
      return 2 * CountElements(inputs[2]) * CountMultiplications(inputs[1], numbers[0]);
    }
    if (rule == "convolution_filter_gradient" && inputs.size() > 2 && !outputs.empty()) {
      return 2 * CountElements(inputs[2]) * CountMultiplications(outputs[0], numbers[0]);
    }
    if (rule == "einsum") return 2 * CountEinsumMultiplications(equation_, inputs);
    if (rule == "cell") {
      // The numbers are the number of products, the data input, and the weight inputs.
      const TensorShape& data = inputs[numbers[1]];
      const double width = data.dims() ? static_cast<double>(data.dim_size(data.dims() - 1)) : 1;
      double weights = 0;
      for (std::size_t i = 2; i < numbers.size(); ++i) weights += CountElements(inputs[numbers[i]]);
      return 2.0 * numbers[0] * CountElements(data) / std::max(width, 1.0) * weights;
    }
    return 0;
  }

  bool CanComputeShapesOnly() const {
    if (own_.num_outputs() == 0 || own_.num_inputs() == 0 || registered_ == nullptr ||
        !registered_->shape_inference_fn) {
      return false;
    }
    bool is_whole_numbers = true;  // Sizes, positions and conditions, which are always computed.
    const auto look = [&is_whole_numbers](DataType type) {
      if (!tensorflow::DataTypeIsInteger(type) && type != tensorflow::DT_BOOL) {
        is_whole_numbers = false;
      }
      return HasSize(type) && !tensorflow::IsRefType(type);
    };
    for (int i = 0; i < own_.num_inputs(); ++i) {
      if (!look(own_.input_type(i))) return false;
    }
    for (int i = 0; i < own_.num_outputs(); ++i) {
      if (!look(own_.output_type(i)) ||
          own_.output_memory_types()[i] == tensorflow::HOST_MEMORY) {
        return false;
      }
    }
    return !is_whole_numbers;
  }

  // Forwards a large state unchanged, instead of updating it.
  bool SkipUpdate(OpKernelContext* context) {
    std::int64_t elements = 0;
    for (int i = 0; i < context->num_inputs(); ++i) {
      if (IsHandle(own_.input_type(i))) continue;
      elements += context->input(i).NumElements();
    }
    if (elements <= kMaxComputedElements) return false;
    if (own_.type_string() == "Assign") return SkipAssign(context);
    if (own_.type_string() == "AssignVariableOp") return false;  // It reuses the buffer of its input.
    if (context->num_outputs() > 0) context->forward_ref_input_to_ref_output(0, 0);
    return true;
  }

  bool SkipAssign(OpKernelContext* context) {
    const Tensor value = context->input(1);
    Tensor variable;
    {
      tensorflow::mutex_lock lock(*context->input_ref_mutex(0));
      variable = context->mutable_input(0, /*lock_held=*/true);
    }
    if (!variable.IsInitialized() || variable.shape() != value.shape()) {
      Tensor made;
      const auto status = context->allocate_temp(value.dtype(), value.shape(), &made);
      if (!status.ok()) {
        context->SetStatus(status);
        return true;
      }
      context->replace_ref_input(0, made, /*lock_held=*/false);
    }
    context->forward_ref_input_to_ref_output(0, 0);
    return true;
  }

  bool InferShapes(OpKernelContext* context, std::vector<TensorShape>* shapes) {
    using tensorflow::PartialTensorShape;
    std::vector<TensorShape> inputs;
    std::string values;
    std::vector<const Tensor*> known(own_.num_inputs(), nullptr);
    std::vector<PartialTensorShape> partial;
    for (int i = 0; i < own_.num_inputs(); ++i) {
      const Tensor& tensor = context->input(i);
      inputs.push_back(tensor.shape());
      partial.emplace_back(tensor.shape());
      if (own_.input_memory_types()[i] == tensorflow::HOST_MEMORY) {
        known[i] = &tensor;
        values.append(tensor.tensor_data().data(), tensor.tensor_data().size());
      }
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (inferred_ && inferred_->values == values && inferred_->inputs == inputs) {
        *shapes = inferred_->outputs;
        return true;
      }
    }
    tensorflow::shape_inference::InferenceContext inference(
        version_, tensorflow::AttrSlice(def_), registered_->op_def, partial, known, {}, {});
    if (!inference.construction_status().ok() ||
        !inference.Run(registered_->shape_inference_fn).ok()) {
      return false;
    }
    for (int i = 0; i < own_.num_outputs(); ++i) {
      tensorflow::TensorShapeProto proto;
      inference.ShapeHandleToProto(inference.output(i), &proto);
      TensorShape shape;
      if (!PartialTensorShape(proto).AsTensorShape(&shape)) {
        if (i == 0) return false;
        // Reserve space of batch normalization, which only its gradient reads.
        shape = TensorShape({0});
      }
      shapes->push_back(shape);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    inferred_ = std::make_unique<Inferred>(Inferred{inputs, values, *shapes});
    return true;
  }

  bool IsConvolution() const { return traits_.rule.name.compare(0, 4, "conv") == 0; }

  // Allocates the workspace of a convolution, which holds copies of inputs and outputs in the
  // layout of its kernel. Returns false if there is not enough memory.
  bool AllocateWorkspace(OpKernelContext* context, const std::vector<TensorShape>& shapes,
                         Tensor* workspace) const {
    std::int64_t bytes = 0;
    for (int i = 0; i < context->num_inputs(); ++i) bytes += context->input(i).TotalBytes();
    for (int i = 0; i < context->num_outputs(); ++i) {
      bytes += shapes[i].num_elements() * tensorflow::DataTypeSize(own_.output_type(i));
    }
    const auto status =
        context->allocate_temp(tensorflow::DT_INT8, TensorShape({bytes}), workspace);
    if (!status.ok()) context->SetStatus(status);
    return status.ok();
  }

  bool Allocate(OpKernelContext* context, const std::vector<TensorShape>& shapes) const {
    for (int i = 0; i < own_.num_outputs(); ++i) {
      Tensor* tensor = nullptr;
      std::vector<int> candidates;
      for (int k = 0; traits_.forwards && i == 0 && k < own_.num_inputs(); ++k) {
        if (own_.input_type(k) == own_.output_type(i)) candidates.push_back(k);
      }
      const auto status =
          context->forward_input_or_allocate_output(candidates, i, shapes[i], &tensor);
      if (!status.ok()) {
        context->SetStatus(status);
        return true;
      }
      Fill(tensor);
    }
    return true;
  }

  // Sets small tensors to values that control flow and checks accept: true or 0.
  static void Fill(Tensor* tensor) {
    if (tensor->dtype() == tensorflow::DT_BOOL && tensor->NumElements() <= kMaxFilledConditions) {
      std::memset(tensor->data(), 1, tensor->TotalBytes());
    } else if (tensor->NumElements() <= kMaxComputedElements) {
      std::memset(tensor->data(), 0, tensor->TotalBytes());
    }
  }

  const OpKernel& own_;
  const tensorflow::NodeDef def_;
  const int version_;
  const KernelTraits traits_;
  const tensorflow::OpRegistrationData* registered_ = nullptr;
  std::string equation_;
  bool transposes_first_ = false;
  bool computes_shapes_only_ = false;
  bool updates_state_ = false;
  std::mutex mutex_;
  std::unique_ptr<Inferred> inferred_;  // Guarded by mutex_.
};

// Creates the CPU's kernel of an operation; returns null and sets the status if there is none.
std::unique_ptr<OpKernel> MakeHostKernel(OpKernelConstruction* construction, absl::Status* status) {
  std::shared_ptr<const tensorflow::NodeProperties> properties;
  *status = tensorflow::NodeProperties::CreateFromNodeDef(
      construction->def(), tensorflow::OpRegistry::Global(), &properties);
  OpKernel* kernel = nullptr;
  if (status->ok()) {
    auto* device = static_cast<tensorflow::DeviceBase*>(construction->device());
    *status = tensorflow::CreateOpKernel(
        tensorflow::DeviceType("CPU"), device, device->GetAllocator({}),
        construction->function_library(), construction->resource_manager(), properties,
        construction->graph_def_version(), &kernel);
  }
  return std::unique_ptr<OpKernel>(kernel);
}

class EmulatedKernel : public OpKernel {
 public:
  EmulatedKernel(OpKernelConstruction* construction, std::unique_ptr<OpKernel> kernel,
                 absl::Status status)
      : OpKernel(construction),
        emulation_(construction, *this),
        kernel_(std::move(kernel)),
        status_(std::move(status)) {}

  void Compute(OpKernelContext* context) override {
    if (!emulation_.ComputeShapes(context, kernel_ != nullptr)) {
      OP_REQUIRES_OK(context, status_);
      kernel_->Compute(context);
    }
    emulation_.OccupyStream(context);
  }

  bool IsExpensive() override { return kernel_ == nullptr || kernel_->IsExpensive(); }

 private:
  Emulation emulation_;
  const std::unique_ptr<OpKernel> kernel_;
  const absl::Status status_;  // The reason for a missing kernel, for the mode "values".
};

class EmulatedAsyncKernel : public tensorflow::AsyncOpKernel {
 public:
  EmulatedAsyncKernel(OpKernelConstruction* construction, std::unique_ptr<OpKernel> kernel)
      : AsyncOpKernel(construction),
        emulation_(construction, *this),
        kernel_(std::move(kernel)) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    if (emulation_.ComputeShapes(context, /*has_kernel=*/true)) {
      emulation_.OccupyStream(context);
      done();
      return;
    }
    kernel_->AsAsync()->ComputeAsync(context, [this, context, done = std::move(done)] {
      emulation_.OccupyStream(context);
      done();
    });
  }

 private:
  Emulation emulation_;
  const std::unique_ptr<OpKernel> kernel_;
};

OpKernel* MakeKernel(OpKernelConstruction* construction) {
  absl::Status status;
  std::unique_ptr<OpKernel> kernel = MakeHostKernel(construction, &status);
  if (kernel != nullptr && kernel->AsAsync() != nullptr) {
    return new EmulatedAsyncKernel(construction, std::move(kernel));
  }
  // Constructors of some CPU kernels reject layouts. In the mode "times" that is no error, because
  // shapes need no kernel.
  if (kernel == nullptr && TheMachine().computes_values) {
    construction->SetStatus(status);
    return nullptr;
  }
  return new EmulatedKernel(construction, std::move(kernel), std::move(status));
}

// ---------------------------------------------------------------------------------------------
// Traces

// Assigns the numbers by which a plane refers to events and statistics.
class Names {
 public:
  explicit Names(tensorflow::profiler::XPlane* plane) : plane_(plane) {}

  std::int64_t FindEvent(const std::string& name) {
    const auto [entry, is_new] = events_.emplace(name, events_.size() + 1);
    if (is_new) {
      auto& metadata = (*plane_->mutable_event_metadata())[entry->second];
      metadata.set_id(entry->second);
      metadata.set_name(name);
    }
    return entry->second;
  }

  std::int64_t FindStat(const std::string& name) {
    const auto [entry, is_new] = stats_.emplace(name, stats_.size() + 1);
    if (is_new) {
      auto& metadata = (*plane_->mutable_stat_metadata())[entry->second];
      metadata.set_id(entry->second);
      metadata.set_name(name);
    }
    return entry->second;
  }

 private:
  tensorflow::profiler::XPlane* plane_;
  std::map<std::string, std::int64_t> events_, stats_;
};

void AddPlane(int ordinal, Nanos wall_offset, tensorflow::profiler::XSpace* space) {
  tensorflow::profiler::XPlane* plane = space->add_planes();
  plane->set_id(ordinal);
  plane->set_name("/device:GPU:" + std::to_string(ordinal));
  Names names(plane);
  std::map<int, tensorflow::profiler::XLine*> lines;
  for (const TraceEvent& traced : trace) {
    if (traced.ordinal != ordinal) continue;
    tensorflow::profiler::XLine*& line = lines[traced.stream];
    if (line == nullptr) {
      line = plane->add_lines();
      line->set_id(traced.stream);
      line->set_name("Stream #" + std::to_string(traced.stream));
      line->set_timestamp_ns(traced.start + wall_offset);
    }
    auto* event = line->add_events();
    event->set_metadata_id(names.FindEvent(traced.is_copy ? traced.name : traced.detail));
    event->set_offset_ps((traced.start + wall_offset - line->timestamp_ns()) * 1000);
    event->set_duration_ps((traced.end - traced.start) * 1000);
    auto* detail = event->add_stats();
    detail->set_metadata_id(names.FindStat(traced.is_copy ? "memcpy_details" : "kernel_details"));
    detail->set_str_value(traced.detail);
    if (traced.is_copy) continue;
    auto* operation = event->add_stats();
    operation->set_metadata_id(names.FindStat("tf_op"));
    operation->set_str_value(traced.name + ":" + traced.detail);
  }
}

// Records the kernels and copies of streams. TensorFlow calls pluggable profilers only for requests
// without a device type; this one also serves requests for GPUs, such as those of session traces.
class Tracer : public tsl::profiler::ProfilerInterface {
 public:
  absl::Status Start() override {
    const std::lock_guard<std::mutex> lock(trace_mutex);
    trace.clear();
    is_tracing = true;
    return absl::OkStatus();
  }

  absl::Status Stop() override {
    is_tracing = false;
    return absl::OkStatus();
  }

  absl::Status CollectData(tensorflow::profiler::XSpace* space) override {
    const std::lock_guard<std::mutex> lock(trace_mutex);
    const Nanos wall_offset = WallNow() - Now();
    for (std::size_t i = 0; i < TheMachine().devices.size(); ++i) {
      AddPlane(static_cast<int>(i), wall_offset, space);
    }
    trace.clear();
    return absl::OkStatus();
  }
};

std::unique_ptr<tsl::profiler::ProfilerInterface> MakeTracer(
    const tensorflow::ProfileOptions& options) {
  if (options.device_type() != tensorflow::ProfileOptions::GPU &&
      options.device_type() != tensorflow::ProfileOptions::UNSPECIFIED) {
    return nullptr;
  }
  return std::make_unique<Tracer>();
}

// ---------------------------------------------------------------------------------------------
// Optimization of graphs

void CopyGraph(void*, const TF_Buffer* graph, const TF_GrapplerItem*, TF_Buffer* optimized,
               TF_Status*) {
  void* copy = std::malloc(graph->length);
  std::memcpy(copy, graph->data, graph->length);
  optimized->data = copy;
  optimized->length = graph->length;
  optimized->data_deallocator = [](void* data, std::size_t) { std::free(data); };
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status*) {
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "EMULATED";
  params->platform->type = "GPU";
  params->platform->use_bfc_allocator = 1;
  SP_PlatformFns* functions = params->platform_fns;
  functions->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  functions->get_device_count = CountDevices;
  functions->create_device = CreateDevice;
  functions->destroy_device = DestroyDevice;
  functions->create_device_fns = CreateDeviceFunctions;
  functions->destroy_device_fns = DestroyDeviceFunctions;
  functions->create_stream_executor = CreateStreamExecutor;
  functions->destroy_stream_executor = DestroyStreamExecutor;
  functions->create_timer_fns = CreateTimerFunctions;
  functions->destroy_timer_fns = DestroyTimerFunctions;
  params->destroy_platform = DestroyPlatform;
  params->destroy_platform_fns = DestroyPlatformFunctions;
}

void TF_InitKernel() {
  // The CPU wheel already registers GPU kernels that need no GPU, some of them only for some types.
  const tensorflow::KernelList registered = tensorflow::GetAllRegisteredKernels();
  std::unordered_map<std::string, std::set<DataType>> have_types;
  std::unordered_set<std::string> have_all_types, on_host;
  for (const auto& kernel : registered.kernel()) {
    if (kernel.device_type() == "CPU") on_host.insert(kernel.op());
    if (kernel.device_type() != "GPU") continue;
    if (kernel.constraint_size() != 1) have_all_types.insert(kernel.op());
    for (const auto& constraint : kernel.constraint()) {
      for (int type : constraint.allowed_values().list().type()) {
        have_types[kernel.op()].insert(static_cast<DataType>(type));
      }
    }
  }
  for (KernelEntry entry : TheMachine().kernels) {
    if (have_all_types.count(entry.op) || !on_host.count(entry.op)) continue;
    if (const auto have = have_types.find(entry.op); have != have_types.end()) {
      if (entry.constraints.size() != 1) continue;
      std::vector<DataType>& types = entry.constraints[0].second;
      types.erase(std::remove_if(types.begin(), types.end(),
                                 [&](DataType type) { return have->second.count(type) > 0; }),
                  types.end());
      if (types.empty()) continue;
    }
    Traits()[entry.op] = {ParseRule(entry.rule), entry.forwards};
    tensorflow::KernelDefBuilder builder(entry.op.c_str());
    builder.Device("GPU");
    for (const auto& [name, types] : entry.constraints) {
      builder.TypeConstraint(name.c_str(), absl::MakeConstSpan(types));
    }
    for (const std::string& argument : entry.host_arguments) builder.HostMemory(argument.c_str());
    // Registrations are never deleted: they are valid as long as the process.
    new tensorflow::kernel_factory::OpKernelRegistrar(builder.Build(), "EmulatedKernel",
                                                      MakeKernel);
  }
  tsl::profiler::RegisterProfilerFactory(MakeTracer);
}

// Disables the layout optimizer in the mode "values": it would give convolutions on GPUs a layout
// for which the CPU has no kernels.
void TF_InitGraph(TP_OptimizerRegistrationParams* params, TF_Status*) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->device_type = "GPU";
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  if (TheMachine().computes_values) {
    params->optimizer_configs->layout_optimizer = TF_TriState_Off;
  }
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->optimizer->optimize_func = CopyGraph;
}

}  // extern "C"
#pragma GCC visibility pop
