#include "train/traces/onnx_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/fail.h"
#include "train/traces/protobuf.h"

namespace talweg::train {
namespace {

constexpr std::size_t kMostDimensions = 16;
constexpr std::size_t kMostGraphNodes = std::size_t{1} << 20;  // sixteen times as many as a job has layers

struct ElementType {
  int bytes;
  bool is_real;
};
// TensorProto.DataType
ElementType element_type(std::int64_t type) {
  static constexpr std::array<ElementType, 17> kTypes = {{{0, false},
                                                          {4, true},
                                                          {1, false},
                                                          {1, false},
                                                          {2, false},
                                                          {2, false},
                                                          {4, false},
                                                          {8, false},
                                                          {0, false},
                                                          {1, false},
                                                          {2, true},
                                                          {8, true},
                                                          {4, false},
                                                          {8, false},
                                                          {8, true},
                                                          {16, true},
                                                          {2, true}}};
  return type >= 0 && type < static_cast<std::int64_t>(kTypes.size()) ? kTypes[static_cast<std::size_t>(type)]
                                                                      : ElementType{0, false};
}

void add_dimension(Protobuf& message, Shape& shape, std::int64_t value) {
  if (value < 0 || shape.size() == kMostDimensions)
    message.fail("expected at most 16 sizes of a tensor, each at least 0");
  shape.push_back(value);
}

void read_constant(Protobuf tensor, OnnxGraph& graph) {
  std::string name;
  OnnxGraph::Constant constant;
  while (tensor.next()) {
    if (tensor.field() == 1)
      tensor.integers([&](std::int64_t size) { add_dimension(tensor, constant.shape, size); });
    if (tensor.field() == 2) {
      const ElementType type = element_type(tensor.integer());
      constant.element_bytes = type.bytes;
      constant.is_real = type.is_real;
    }
    if (tensor.field() == 8) name = tensor.bytes();
  }
  graph.constants[name] = std::move(constant);
}

// ValueInfoProto{name = 1, type = 2 {tensor_type = 1 {shape = 2 {dim = 1 {dim_value = 1, dim_param = 2}}}}}
std::string read_value(Protobuf value, OnnxGraph& graph) {
  std::string name;
  std::optional<Shape> shape;
  while (value.next()) {
    if (value.field() == 1) name = value.bytes();
    if (value.field() != 2) continue;
    for (Protobuf type = value.message(); type.next();) {
      if (type.field() != 1) continue;
      for (Protobuf tensor = type.message(); tensor.next();) {
        if (tensor.field() != 2) continue;
        shape.emplace();
        for (Protobuf list = tensor.message(); list.next();) {
          if (list.field() != 1) continue;
          std::int64_t size = 1;
          bool open = true;
          for (Protobuf dimension = list.message(); dimension.next();)
            if (dimension.field() == 1) {
              size = dimension.integer();
              open = false;
            }
          graph.has_open_sizes = graph.has_open_sizes || open;
          graph.has_open_inner_sizes = graph.has_open_inner_sizes || (open && !shape->empty());
          add_dimension(list, *shape, size);
        }
      }
    }
  }
  if (shape) graph.shapes[name] = *shape;
  return name;
}

OnnxNode read_onnx_node(Protobuf message) {
  OnnxNode node;
  while (message.next()) {
    switch (message.field()) {
      case 1:
        node.inputs.emplace_back(message.bytes());
        break;
      case 2:
        node.outputs.emplace_back(message.bytes());
        break;
      case 3:
        node.name = message.bytes();
        break;
      case 4:
        node.op = message.bytes();
        break;
      case 5: {
        std::string name;
        std::vector<std::int64_t> values;
        for (Protobuf attribute = message.message(); attribute.next();) {
          if (attribute.field() == 1) name = attribute.bytes();
          if (attribute.field() == 3 || attribute.field() == 8)
            attribute.integers([&](std::int64_t value) { values.push_back(value); });
        }
        node.attributes[name] = std::move(values);
        break;
      }
      default:
        break;
    }
  }
  return node;
}

void read_graph(Protobuf message, OnnxGraph& graph) {
  std::vector<std::string> inputs;
  while (message.next()) {
    switch (message.field()) {
      case 1:
        if (graph.nodes.size() == kMostGraphNodes)
          message.fail(fmt::format("expected a graph of at most {} nodes", kMostGraphNodes));
        graph.nodes.push_back(read_onnx_node(message.message()));
        break;
      case 2:
        graph.name = message.bytes();
        break;
      case 5:
        read_constant(message.message(), graph);
        break;
      case 11:
        inputs.push_back(read_value(message.message(), graph));
        break;
      case 15:  // sparse: SparseTensorProto{values = 1}
        for (Protobuf sparse = message.message(); sparse.next();)
          if (sparse.field() == 1) read_constant(sparse.message(), graph);
        break;
      case 12:
      case 13:
        read_value(message.message(), graph);
        break;
      default:
        break;
    }
  }
  for (const std::string& name : inputs)
    if (!graph.constants.contains(name)) graph.inputs.push_back(name);
}

std::int64_t attribute(const OnnxNode& node, const char* name, std::size_t index, std::int64_t otherwise) {
  const auto at = node.attributes.find(name);
  return at != node.attributes.end() && index < at->second.size() ? at->second[index] : otherwise;
}

// Of one dimension that a window slides along.
std::optional<std::int64_t> slid(const OnnxNode& node, std::size_t i, std::size_t dimensions, std::int64_t in,
                                 std::int64_t window) {
  constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
  const std::int64_t stride = attribute(node, "strides", i, 1), dilation = attribute(node, "dilations", i, 1);
  const std::int64_t pads = attribute(node, "pads", i, 0),
                     pads_behind = attribute(node, "pads", i + dimensions, 0);
  for (const std::int64_t value : {in, window, stride, dilation, pads, pads_behind})
    if (value < 0 || value > kMostSize) return std::nullopt;
  if (stride == 0 || window == 0 || node.attributes.contains("auto_pad")) return std::nullopt;
  __extension__ const __int128 reach = static_cast<__int128>(dilation) * (window - 1) + 1;
  __extension__ const __int128 room = static_cast<__int128>(in) + pads + pads_behind - reach;
  if (room < 0) return std::nullopt;
  const bool up = attribute(node, "ceil_mode", 0, 0) != 0;
  return static_cast<std::int64_t>((room + (up ? stride - 1 : 0)) / stride + 1);
}

std::optional<Shape> slid_shape(const OnnxNode& node, const Shape& in, std::int64_t channels,
                                const Shape& window) {
  if (in.size() != window.size() + 2) return std::nullopt;
  Shape out = {in[0], channels};
  for (std::size_t i = 0; i < window.size(); ++i) {
    const auto size = slid(node, i, window.size(), in[i + 2], window[i]);
    if (!size) return std::nullopt;
    out.push_back(*size);
  }
  return out;
}

const Shape* shape_of(const OnnxGraph& graph, const OnnxNode& node, std::size_t input) {
  if (input >= node.inputs.size()) return nullptr;
  if (const auto at = graph.shapes.find(node.inputs[input]); at != graph.shapes.end()) return &at->second;
  const auto at = graph.constants.find(node.inputs[input]);
  return at != graph.constants.end() ? &at->second.shape : nullptr;
}

bool keeps_shape(const std::string& op) {
  static constexpr const char* kOps[] = {"Relu",
                                         "BatchNormalization",
                                         "LeakyRelu",
                                         "Sigmoid",
                                         "Tanh",
                                         "Clip",
                                         "Dropout",
                                         "LRN",
                                         "Softmax",
                                         "LogSoftmax",
                                         "Identity",
                                         "Elu",
                                         "HardSwish",
                                         "Gelu",
                                         "Erf",
                                         "HardSigmoid",
                                         "LayerNormalization",
                                         "Cast",
                                         "Sqrt",
                                         "Exp",
                                         "PRelu"};
  return std::any_of(std::begin(kOps), std::end(kOps), [&](const char* o) { return op == o; });
}

std::optional<Shape> product_shape(const OnnxNode& node, const Shape& a, const Shape& b) {
  if (node.op == "Gemm") {
    if (a.size() != 2 || b.size() != 2) return std::nullopt;
    const bool ta = attribute(node, "transA", 0, 0) != 0, tb = attribute(node, "transB", 0, 0) != 0;
    return Shape{a[ta ? 1 : 0], b[tb ? 0 : 1]};
  }
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  Shape out = a.size() >= b.size() ? a : b;
  out[out.size() - 2] = a[a.size() - 2];
  out[out.size() - 1] = b[b.size() - 1];
  return out;
}

// As ONNX broadcasts: from the last dimension on, a size of 1 is stretched to the other's.
Shape broadcast(const Shape& a, const Shape& b) {
  Shape out = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& size = out[out.size() - shorter.size() + i];
    if (size == 1) size = shorter[i];
  }
  return out;
}

std::optional<Shape> inferred(const OnnxGraph& graph, const OnnxNode& node) {
  const Shape* a = shape_of(graph, node, 0);
  const Shape* b = shape_of(graph, node, 1);
  if (a == nullptr) return std::nullopt;
  if (keeps_shape(node.op)) return *a;
  if (node.op == "Conv" && b != nullptr && b->size() > 2)
    return slid_shape(node, *a, (*b)[0], Shape(b->begin() + 2, b->end()));
  if (node.op == "MaxPool" || node.op == "AveragePool") {
    const auto window = node.attributes.find("kernel_shape");
    return window != node.attributes.end() && a->size() > 1 ? slid_shape(node, *a, (*a)[1], window->second)
                                                            : std::nullopt;
  }
  if (node.op == "GlobalAveragePool" && a->size() > 2) {
    Shape out = *a;
    std::fill(out.begin() + 2, out.end(), 1);
    return out;
  }
  if (node.op == "Flatten" && a->size() > 1 && attribute(node, "axis", 0, 1) == 1) {
    std::int64_t rest = 1;
    for (std::size_t i = 1; i < a->size(); ++i)
      if (__builtin_mul_overflow(rest, (*a)[i], &rest)) return std::nullopt;
    return Shape{(*a)[0], rest};
  }
  if (node.op == "Concat") {
    const std::int64_t axis = attribute(node, "axis", 0, 1);
    if (axis < 0 || axis >= static_cast<std::int64_t>(a->size())) return std::nullopt;
    Shape out = *a;
    std::int64_t& size = out[static_cast<std::size_t>(axis)];
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      const Shape* part = shape_of(graph, node, i);
      if (part == nullptr || part->size() != out.size() ||
          __builtin_add_overflow(size, (*part)[static_cast<std::size_t>(axis)], &size))
        return std::nullopt;
    }
    return out;
  }
  if (b == nullptr) return std::nullopt;
  if (node.op == "Gemm" || node.op == "MatMul") return product_shape(node, *a, *b);
  if (node.op == "Add" || node.op == "Mul" || node.op == "Sub" || node.op == "Div" || node.op == "Sum")
    return broadcast(*a, *b);
  return std::nullopt;
}

// "node \"fc\" (Gemm)"
std::string called(const OnnxNode& node) {
  return fmt::format("node \"{}\" ({})", node.name, node.op);
}

void check_graph(const OnnxGraph& graph, const std::string& origin) {
  for (const std::string& input : graph.inputs)
    if (const auto at = graph.shapes.find(input); at != graph.shapes.end())
      if (!at->second.empty() && at->second.front() == 0)  // a batch of none; behind it a cache may be empty
        throw_error(ErrorCode::bad_file, "{}: input \"{}\": expected sizes of at least 1, got 0", origin,
                    input);
  std::set<std::string_view> known(graph.inputs.begin(), graph.inputs.end());
  for (const auto& [name, constant] : graph.constants) known.insert(name);
  for (const OnnxNode& node : graph.nodes) {
    for (const std::string& input : node.inputs)
      if (!input.empty() && !known.contains(input))
        throw_error(
            ErrorCode::bad_file,
            "{}: {} reads \"{}\": expected an input of the graph, weights in the file, or the output of "
            "an earlier node",
            origin, called(node), input);
    known.insert(node.outputs.begin(), node.outputs.end());
  }
}

// What a product sums over has one size in both of its inputs. 1 may stand for a size that is not known.
void check_product(const OnnxGraph& graph, const OnnxNode& node, const std::string& origin) {
  const Shape *a = shape_of(graph, node, 0), *b = shape_of(graph, node, 1);
  if (graph.has_open_inner_sizes || a == nullptr || b == nullptr || a->size() < 2 || b->size() < 2) return;
  std::int64_t left = a->back(), right = (*b)[b->size() - 2];
  if (node.op == "Conv") {
    left = (*a)[1];
    if (__builtin_mul_overflow((*b)[1], attribute(node, "group", 0, 1), &right)) return;
  } else if (node.op == "Gemm") {
    if (attribute(node, "transA", 0, 0) != 0) left = (*a)[0];
    if (attribute(node, "transB", 0, 0) != 0) right = b->back();
  } else if (node.op != "MatMul") {
    return;
  }
  if (left != right && left != 1 && right != 1)
    throw_error(ErrorCode::bad_file, "{}: {}: expected inputs that fit each other, got sizes of {} and {}",
                origin, called(node), left, right);
}

}  // namespace

OnnxGraph read_onnx(const std::string& bytes, const std::string& origin) {
  OnnxGraph graph;
  bool has_graph = false;
  for (Protobuf model(bytes, origin); model.next();) {
    if (model.field() != 7) continue;
    if (has_graph) model.fail("expected one graph: these are two models in one file");
    has_graph = true;
    read_graph(model.message(), graph);
  }
  if (!has_graph)
    throw_error(ErrorCode::bad_file, "{}: expected an ONNX model with a graph: the file is cut", origin);
  check_graph(graph, origin);
  return graph;
}

std::int64_t elements_of_shape(const Shape& shape, const std::string& origin) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements) || elements > kMostElements)
      throw_error(ErrorCode::bad_file, "{}: expected tensors of at most 2^50 elements", origin);
  return elements;
}

void infer_shapes(OnnxGraph& graph, const OnnxNode& node, const std::string& origin) {
  check_product(graph, node, origin);
  if (node.outputs.empty() || graph.shapes.contains(node.outputs[0])) return;
  if (auto shape = inferred(graph, node)) graph.shapes[node.outputs[0]] = std::move(*shape);
}

}  // namespace talweg::train
