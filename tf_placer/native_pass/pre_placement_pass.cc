// Sets the devices of operations by their names, before TensorFlow's own Placer runs. The Placer
// treats them as if the program had set them.
//
// TensorFlow calls this pass for each graph of a session or function. A called function is inlined
// before the Placer runs, and its operations get other names. So the functions of a graph's library
// are placed with the graph, in a phase before all passes of TensorFlow, which begin with phase 0.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace {

using tensorflow::FunctionDef;
using tensorflow::Node;
using tensorflow::NodeDef;
using Devices = std::unordered_map<std::string, std::string>;  // By name of the operation.

// Guards the variables below, because TensorFlow instantiates functions on several threads.
std::mutex mutex;
std::shared_ptr<const Devices> current;  // Null while nothing is to be placed.
std::set<std::string> printed;           // Lines on standard error that need no repetition.

const std::string& RequestedDevice(const Node& node) { return node.requested_device(); }
const std::string& RequestedDevice(const NodeDef& node) { return node.device(); }
void RequestDevice(Node* node, const std::string& device) { node->set_requested_device(device); }
void RequestDevice(NodeDef* node, const std::string& device) { node->set_device(device); }

// Places nodes and prints a line; returns false, without a change, if this is another graph. Names
// like "MatMul" occur in many graphs, so a graph needs at least half of the names.
template <class T, class Nodes>
bool Place(const Devices& devices, const Nodes& nodes, const std::string& what) {
  std::vector<std::pair<T*, const std::string*>> found;
  for (T* node : nodes) {
    const auto entry = devices.find(node->name());
    if (entry != devices.end()) found.emplace_back(node, &entry->second);
  }
  if (2 * found.size() < devices.size()) return false;
  std::size_t placed = 0;
  for (const auto& [node, device] : found) {
    // Operations that request a device keep it.
    if (RequestedDevice(*node).empty()) RequestDevice(node, *device);
    if (RequestedDevice(*node) == *device) ++placed;
  }
  const std::string line = what + ": placed " + std::to_string(placed) + " of " +
                           std::to_string(devices.size()) + " operations";
  std::lock_guard<std::mutex> lock(mutex);
  if (printed.insert(line).second) std::fprintf(stderr, "tf_placer: %s\n", line.c_str());
  return true;
}

std::string Title(const FunctionDef& function) {
  return "function '" + function.signature().name() + "'";
}

class PlaceByName : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    std::shared_ptr<const Devices> devices;
    {
      std::lock_guard<std::mutex> lock(mutex);
      devices = current;
    }
    if (devices == nullptr || options.graph == nullptr || *options.graph == nullptr) {
      return absl::OkStatus();
    }
    if (options.flib_def != nullptr) {
      TF_RETURN_IF_ERROR(PlaceLibrary(*devices, options.flib_def));
    }
    const bool is_function = options.is_function_graph && options.function_def != nullptr;
    Place<Node>(*devices, (*options.graph)->op_nodes(),
                is_function ? Title(*options.function_def) : "the graph of a session");
    return absl::OkStatus();
  }

 private:
  static absl::Status PlaceLibrary(const Devices& devices,
                                   tensorflow::FunctionLibraryDefinition* library) {
    for (const std::string& name : library->ListFunctionNames()) {
      const auto record = library->FindRecord(name);
      if (record == nullptr) continue;
      FunctionDef function = record->fdef();
      std::vector<NodeDef*> nodes;
      for (NodeDef& node : *function.mutable_node_def()) nodes.push_back(&node);
      if (!Place<NodeDef>(devices, nodes, Title(function))) continue;
      TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
    }
    return absl::OkStatus();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, -1, PlaceByName);

}  // namespace

// Sets the placement of later graphs: `count` names and devices of operations; 0 to stop placing.
extern "C" __attribute__((visibility("default"))) void tf_placer_place(
    std::int64_t count, const char* const* names, const char* const* devices) {
  auto placed = std::make_shared<Devices>();
  for (std::int64_t i = 0; i < count; ++i) placed->emplace(names[i], devices[i]);
  std::lock_guard<std::mutex> lock(mutex);
  current = count > 0 ? placed : nullptr;
  printed.clear();
}
