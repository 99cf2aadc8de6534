// ONNX graphs: a layer for each node that computes, with times from a roofline, as in models.h: the longer of
// what its multiplications and additions take on the device, and of what its inputs, outputs and weights take
// to go through the memory. Backward, products do that twice (once for the gradient of the input, once for
// that of the weights), everything else once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/fail.h"
#include "train/traces/importers.h"
#include "train/traces/onnx_graph.h"

namespace talweg::train {
namespace {

constexpr std::size_t kMostReads = std::size_t{1} << 22;  // over all nodes, of earlier layers' outputs

bool is_product(const OnnxNode& node) {
  return node.op == "Conv" || node.op == "Gemm" || node.op == "MatMul";
}

// These only say how numbers are looked at.
bool takes_no_time(const std::string& op) {
  static constexpr const char* kOps[] = {"Constant",  "Shape",    "Reshape", "Flatten",        "Squeeze",
                                         "Unsqueeze", "Identity", "Dropout", "ConstantOfShape"};
  return std::any_of(std::begin(kOps), std::end(kOps), [&](const char* o) { return op == o; });
}

class OnnxImporter {
 public:
  OnnxImporter(OnnxGraph graph, const std::string& origin, const Device& device)
      : g_(std::move(graph)), origin_(origin), device_(device) {}

  TraceJob read() {
    TraceJob read{.kind = TraceKind::onnx};
    Job& job = read.job;
    job.name = g_.name.empty() ? name_of_file(origin_) : g_.name;
    job.origin = Origin::estimated;
    if (const Shape* in = g_.inputs.empty() ? nullptr : shape(g_.inputs[0]); in != nullptr && !in->empty())
      job.batch = static_cast<int>(std::clamp<std::int64_t>((*in)[0], 0, 1 << 30));
    for (const OnnxNode& node : g_.nodes) {
      infer_shapes(g_, node, origin_);
      add(node, job);
    }
    if (job.layers.empty())
      throw_error(ErrorCode::bad_file, "{}: expected nodes that compute, got none", origin_);
    read.notes.push_back(fmt::format("times are estimated, for a device such as {}", device_.name));
    if (g_.has_open_sizes)
      read.notes.emplace_back("sizes that the graph leaves open, such as the batch's, are taken as 1");
    if (unknown_ > 0)
      read.notes.push_back(fmt::format(
          "{} nodes cost nothing but a kernel, as the shape of their output is not known", unknown_));
    return checked(std::move(read), origin_);
  }

 private:
  const Shape* shape(const std::string& value) const {
    if (const auto at = g_.shapes.find(value); at != g_.shapes.end()) return &at->second;
    const auto at = g_.constants.find(value);
    return at != g_.constants.end() ? &at->second.shape : nullptr;
  }

  void add(const OnnxNode& node, Job& job) {
    std::set<int> from;
    for (const std::string& input : node.inputs)
      if (const auto at = made_by_.find(input); at != made_by_.end())
        from.insert(at->second.begin(), at->second.end());
    reads_ += from.size();
    if (reads_ > kMostReads)
      throw_error(ErrorCode::bad_file, "{}: expected layers that read at most {} others in all", origin_,
                  kMostReads);
    if (takes_no_time(node.op)) {
      for (const std::string& output : node.outputs) made_by_[output] = from;
      return;
    }
    const auto index = static_cast<int>(job.layers.size());
    if (index == kMostLayers)
      throw_error(ErrorCode::bad_file, "{}: expected at most {} nodes that compute", origin_, kMostLayers);
    for (const std::string& output : node.outputs) made_by_[output] = {index};
    Layer& layer = job.layers.emplace_back();
    layer.name = unique(node.name.empty() ? node.op : node.name);
    layer.after.assign(from.begin(), from.end());
    if (layer.after == std::vector<int>{index - 1}) layer.after.clear();
    layer.gradient = {gradient(node)};
    const Cost cost = cost_of(node);
    const double passes = is_product(node) ? 2 : 1;
    layer.forward = time_of(cost.flops, cost.bytes, node);
    layer.backward = time_of(passes * cost.flops, passes * cost.bytes, node);
  }

  std::string unique(const std::string& wanted) {
    std::string name = wanted;
    for (int& last = last_of_[wanted]; !names_.insert(name).second;)
      name = fmt::format("{}.{}", wanted, ++last + 1);
    return name;
  }

  // Of weights that are trained: not what normalisation keeps of earlier batches. Shared ones count once.
  std::int64_t gradient(const OnnxNode& node) {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto at = g_.constants.find(node.inputs[i]);
      if (at == g_.constants.end() || !at->second.is_real || (node.op == "BatchNormalization" && i >= 3))
        continue;
      if (counted_.insert(node.inputs[i]).second)
        bytes += elements_of_shape(at->second.shape, origin_) * at->second.element_bytes;
    }
    return bytes;
  }

  double elements(const std::string& value) const {
    const Shape* s = shape(value);
    return s == nullptr ? 0 : static_cast<double>(elements_of_shape(*s, origin_));
  }

  struct Cost {
    double flops = 0, bytes = 0;
  };
  Cost cost_of(const OnnxNode& node) {
    const Shape* out = node.outputs.empty() ? nullptr : shape(node.outputs[0]);
    if (out == nullptr) {
      if (is_product(node)) lacks_shape(node, "its output");
      ++unknown_;
      return {};
    }
    double moved = elements(node.outputs[0]);
    for (const std::string& input : node.inputs) moved += elements(input);
    return {flops(node, *out), moved * static_cast<double>(device_.element.value)};
  }

  double flops(const OnnxNode& node, const Shape& out) const {
    const auto made = static_cast<double>(elements_of_shape(out, origin_));
    if (!is_product(node)) return made;
    const Shape* a = node.inputs.empty() ? nullptr : shape(node.inputs[0]);
    const Shape* b = node.inputs.size() < 2 ? nullptr : shape(node.inputs[1]);
    if (node.op == "Conv") {
      if (b == nullptr || b->empty() || (*b)[0] == 0) lacks_shape(node, "its weights");
      return 2 * made * static_cast<double>(elements_of_shape(*b, origin_)) / static_cast<double>((*b)[0]);
    }
    if (a == nullptr || a->size() < 2) lacks_shape(node, "its input");
    const auto transposed = node.attributes.find("transA");
    const bool turned = node.op == "Gemm" && transposed != node.attributes.end() &&
                        !transposed->second.empty() && transposed->second[0] != 0;
    return 2 * made * static_cast<double>((*a)[a->size() - (turned ? 2 : 1)]);
  }

  [[noreturn]] void lacks_shape(const OnnxNode& node, const char* of) const {
    throw_error(ErrorCode::bad_file,
                "{}: node \"{}\" ({}): expected the shape of {} in the file (onnx.shape_inference adds it)",
                origin_, node.name, node.op, of);
  }

  Nanoseconds time_of(double flops, double bytes, const OnnxNode& node) const {
    const double time = std::max(flops / device_.flops, bytes / device_.memory) / device_.efficiency * 1e9;
    if (!(time < static_cast<double>(kLongest.value)))
      throw_error(ErrorCode::bad_file, "{}: node \"{}\": expected a layer of less than an hour", origin_,
                  node.name);
    return std::max(Nanoseconds{std::llround(time)}, device_.least_kernel);
  }

  OnnxGraph g_;
  const std::string& origin_;
  const Device& device_;
  std::map<std::string, std::set<int>> made_by_;  // by value: layers
  std::set<std::string> names_, counted_;
  std::map<std::string, int> last_of_;  // by name: how many more were tried to have it
  std::size_t reads_ = 0;
  int unknown_ = 0;
};

}  // namespace

TraceJob import_onnx(const std::string& bytes, const std::string& origin, const Device& device) {
  return OnnxImporter(read_onnx(bytes, origin), origin, device).read();
}

}  // namespace talweg::train
