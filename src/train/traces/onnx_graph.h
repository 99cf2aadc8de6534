// An ONNX graph, as far as it tells how much its nodes compute: operators, their constants' sizes and the
// shapes of what flows between them. Shapes that the file does not say are worked out for the operators of
// common networks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace talweg::train {

using Shape = std::vector<std::int64_t>;

struct OnnxNode {
  std::string name, op;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, std::vector<std::int64_t>> attributes;  // whole numbers and lists of them
};

struct OnnxGraph {
  struct Constant {
    Shape shape;
    int element_bytes = 0;
    bool is_real = false;
  };
  std::string name;
  std::vector<OnnxNode> nodes;  // each behind those that it reads
  std::map<std::string, Constant> constants;
  std::map<std::string, Shape> shapes;
  std::vector<std::string> inputs;    // without constants
  bool has_open_sizes = false;        // named ones, such as a batch's, taken as 1
  bool has_open_inner_sizes = false;  // others than the first of a tensor: shapes may not fit each other
};

// Throws Error{bad_file}, also where a node reads what neither an earlier node nor the file has, or where an
// input has no element.
OnnxGraph read_onnx(const std::string& bytes, const std::string& origin);

// How many elements; of at most 2^50. Throws Error{bad_file}.
std::int64_t elements_of_shape(const Shape& shape, const std::string& origin);

// Adds the shapes of a node's outputs, where they are not known and follow from its inputs'. Throws
// Error{bad_file} where it is a product whose inputs do not fit each other.
void infer_shapes(OnnxGraph& graph, const OnnxNode& node, const std::string& origin);

}  // namespace talweg::train
