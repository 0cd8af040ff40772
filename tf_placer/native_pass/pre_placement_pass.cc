// Sets the devices of operations by their names, before TensorFlow's own Placer runs, which judges
// them as if the program had set them.
//
// Graphs of sessions and of functions come here one by one. A function that another one calls is
// inlined before the Placer sees it, under other names, so the functions of a graph's library are
// placed along with it: this runs before all passes of TensorFlow, which begin with phase 0.

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

struct Placement {
  std::vector<std::string> names;
  std::unordered_map<std::string, std::string> devices;
};

// Functions are made ready on many threads at a time.
std::mutex mutex;
std::shared_ptr<const Placement> current;  // Null before there is one.
std::set<std::string> said;                // Lines that need not be said again.
// Of the graphs that were left as they are, the most names that one had; -1 before the first.
std::int64_t most_found_in_session = -1;
std::int64_t most_found_in_function = -1;

const std::string& RequestedDevice(const Node& node) { return node.requested_device(); }
const std::string& RequestedDevice(const NodeDef& node) { return node.device(); }
void RequestDevice(Node* node, const std::string& device) { node->set_requested_device(device); }
void RequestDevice(NodeDef* node, const std::string& device) { node->set_device(device); }

// The nodes that the placement names, each with the device that it shall have.
template <class T>
using Found = std::vector<std::pair<T*, const std::string*>>;

template <class T, class Nodes>
Found<T> FindNodes(const Placement& placement, const Nodes& nodes) {
  Found<T> found;
  for (T* node : nodes) {
    const auto entry = placement.devices.find(node->name());
    if (entry != placement.devices.end()) found.emplace_back(node, &entry->second);
  }
  return found;
}

void Say(const std::string& line) {
  if (said.insert(line).second) std::fprintf(stderr, "tf_placer: %s\n", line.c_str());
}

std::string Number(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// Names like "MatMul" are in many graphs: one that has less than half of the names is another one.
bool IsPlacedGraph(const Placement& placement, std::size_t found) {
  return 2 * found >= placement.names.size();
}

// Says the first time, and then only of graphs that are more like the placed one. Programs have
// many small functions that nobody has seen.
void SayOther(const Placement& placement, std::size_t found, const std::string& what,
              std::int64_t* most_found) {
  std::lock_guard<std::mutex> lock(mutex);
  if (static_cast<std::int64_t>(found) <= *most_found) return;
  *most_found = static_cast<std::int64_t>(found);
  Say(what + " stays as it is: it has " + std::to_string(found) + " of the " +
      Number(placement.names.size(), "operation") + " of the placement");
}

template <class T>
void Place(const Placement& placement, const Found<T>& found, const std::string& what) {
  std::size_t placed = 0;
  std::set<std::string> names;
  for (const auto& [node, device] : found) {
    names.insert(node->name());
    // An operation that came with a device keeps it.
    if (RequestedDevice(*node).empty()) RequestDevice(node, *device);
    if (RequestedDevice(*node) == *device) ++placed;
  }
  std::string line = what + ": placed " + Number(placed, "operation");
  if (placed < found.size()) {
    line += ", " + std::to_string(found.size() - placed) + " kept the device they came with";
  }
  line += ", " + Number(placement.names.size() - names.size(), "name") + " not found";
  for (const std::string& name : placement.names) {
    if (names.count(name) == 0) {
      line += ", such as '" + name + "'";
      break;
    }
  }
  std::lock_guard<std::mutex> lock(mutex);
  Say(line);
}

std::string FunctionTitle(const FunctionDef& function) {
  return "function '" + function.signature().name() + "'";
}

// TensorFlow wraps some operations that run eagerly in functions of these names.
bool IsSingleOperation(const FunctionDef& function) {
  return function.signature().name().rfind("__wrapped__", 0) == 0;
}

// A session whose graph has grown keeps variables where they were. Whatever goes along with them
// must be there, too.
const Node* AssignedElsewhere(const Found<Node>& found) {
  for (const auto& [node, device] : found) {
    if (node->has_assigned_device_name() && RequestedDevice(*node).empty() &&
        node->assigned_device_name() != *device) {
      return node;
    }
  }
  return nullptr;
}

class PlaceByName : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    std::shared_ptr<const Placement> placement;
    {
      std::lock_guard<std::mutex> lock(mutex);
      placement = current;
    }
    if (placement == nullptr || options.graph == nullptr || *options.graph == nullptr) {
      return absl::OkStatus();
    }
    bool is_placed_inside = false;
    if (options.flib_def != nullptr) {
      TF_RETURN_IF_ERROR(PlaceLibrary(*placement, options.flib_def, &is_placed_inside));
    }
    PlaceGraph(*placement, options, is_placed_inside);
    return absl::OkStatus();
  }

 private:
  static void PlaceGraph(const Placement& placement,
                         const tensorflow::GraphOptimizationPassOptions& options,
                         bool is_placed_inside) {
    const bool is_function = options.is_function_graph && options.function_def != nullptr;
    const std::string what =
        is_function ? FunctionTitle(*options.function_def) : "the graph of a session";
    const auto found = FindNodes<Node>(placement, (*options.graph)->op_nodes());
    if (!IsPlacedGraph(placement, found.size())) {
      if (is_placed_inside || (is_function && IsSingleOperation(*options.function_def))) return;
      SayOther(placement, found.size(), what,
               is_function ? &most_found_in_function : &most_found_in_session);
      return;
    }
    // The arguments of a function are where its caller has them.
    if (const Node* node = is_function ? nullptr : AssignedElsewhere(found)) {
      std::lock_guard<std::mutex> lock(mutex);
      Say(what + " stays as it is: '" + node->name() + "' was placed on " +
          node->assigned_device_name() + " when an earlier part of the graph ran");
      return;
    }
    Place(placement, found, what);
  }

  static absl::Status PlaceLibrary(const Placement& placement,
                                   tensorflow::FunctionLibraryDefinition* library,
                                   bool* is_any_placed) {
    for (const std::string& name : library->ListFunctionNames()) {
      const auto record = library->FindRecord(name);
      if (record == nullptr) continue;
      std::size_t count = 0;
      for (const NodeDef& node : record->fdef().node_def()) {
        count += placement.devices.count(node.name());
      }
      if (!IsPlacedGraph(placement, count)) continue;
      FunctionDef function = record->fdef();
      std::vector<NodeDef*> nodes;
      for (NodeDef& node : *function.mutable_node_def()) nodes.push_back(&node);
      Place(placement, FindNodes<NodeDef>(placement, nodes), FunctionTitle(function));
      TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
      *is_any_placed = true;
    }
    return absl::OkStatus();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, -1, PlaceByName);

}  // namespace

// Places from now on by these names and devices, `count` of each.
extern "C" __attribute__((visibility("default"))) void tf_placer_place(
    std::int64_t count, const char* const* names, const char* const* devices) {
  auto placement = std::make_shared<Placement>();
  for (std::int64_t i = 0; i < count; ++i) {
    placement->names.emplace_back(names[i]);
    placement->devices.emplace(names[i], devices[i]);
  }
  std::lock_guard<std::mutex> lock(mutex);
  // Without names there is nothing to do.
  current = count > 0 ? placement : nullptr;
  said.clear();
  most_found_in_session = -1;
  most_found_in_function = -1;
}
