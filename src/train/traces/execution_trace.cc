// PyTorch execution traces (a Chakra host trace as JSON): sizes without times. Nodes say by which call they
// were made (rf_id), as Kineto's events do ("Record function id"):
//
//   {"schema": "1.1.1-chakra.0.0.4", "pid": 12402, "nodes": [
//     {"id": 216, "name": "torch::autograd::AccumulateGrad", "ctrl_deps": 215,
//      "inputs": {"values": [[214, 104, 0, 10, 4, "cpu"]], "shapes": [[10]], "types": ["Tensor(float)"]},
//      "attrs": [{"name": "rf_id", "type": "uint64", "value": 125}]}]}
//
// A tensor is [tensor, storage, offset, elements, bytes of one, device].
#include <fmt/format.h>

#include "base/fail.h"
#include "text/json_stream.h"
#include "train/traces/importers.h"
#include "train/traces/kineto_event.h"
#include "train/traces/trace_file.h"

namespace talweg::train {
namespace {

using text::JsonStream;
using Size = ExecutionSizes::Size;

// Adds the tensors of a value up, whether it is one, or a list of them.
void add_tensors(JsonStream& json, Size& size) {
  std::int64_t numbers[5];
  std::size_t count = 0;
  bool tensor = true;
  json.begin_array();
  while (json.next_item()) {
    const auto kind = json.kind();
    if (kind == JsonStream::Kind::array) {
      tensor = false;
      add_tensors(json, size);
    } else if (kind == JsonStream::Kind::number && count < 5) {
      const std::string_view text = json.number();
      std::int64_t value = 0;
      for (const char c : text) {
        if (c < '0' || c > '9' || value > (std::int64_t{1} << 56)) {
          tensor = false;
          break;
        }
        value = value * 10 + (c - '0');
      }
      numbers[count++] = value;
    } else {
      if (kind != JsonStream::Kind::string) tensor = false;
      json.skip();
    }
  }
  if (!tensor || count != 5) return;
  size.elements = std::max<std::int64_t>(0, size.elements) + numbers[3];
  size.element_bytes = numbers[4] <= 16 ? static_cast<int>(numbers[4]) : 0;
}

void read_attributes(JsonStream& json, std::int64_t& function, Size& said) {
  json.begin_array();
  while (json.next_item()) {
    std::string which;
    json.begin_object();
    while (json.next_member()) {
      if (json.key() == "name" && json.kind() == JsonStream::Kind::string) {
        which = json.string();
      } else if (json.key() == "value" && which == "rf_id" && json.kind() == JsonStream::Kind::number) {
        function = json.integer();
      } else if (json.key() == "value" && which == "in_msg_nelems" &&
                 json.kind() == JsonStream::Kind::number) {
        said.elements = json.integer();
      } else if (json.key() == "value" && which == "dtype" && json.kind() == JsonStream::Kind::string) {
        said.element_bytes = element_bytes_of(json.string());
      } else {
        json.skip();
      }
    }
  }
}

void read_node(JsonStream& json, ExecutionSizes& sizes) {
  std::int64_t function = -1;
  Size size, said;
  json.begin_object();
  while (json.next_member()) {
    if (json.key() == "inputs" && json.kind() == JsonStream::Kind::object) {
      json.begin_object();
      while (json.next_member()) {
        if (json.key() != "values" || json.kind() != JsonStream::Kind::array) {
          json.skip();
          continue;
        }
        json.begin_array();  // the first one only
        for (bool first = true; json.next_item(); first = false)
          if (first && json.kind() == JsonStream::Kind::array) {
            add_tensors(json, size);
          } else {
            json.skip();
          }
      }
    } else if (json.key() == "attrs" && json.kind() == JsonStream::Kind::array) {
      read_attributes(json, function, said);
    } else {
      json.skip();
    }
  }
  if (said.elements >= 0) size.elements = said.elements;
  if (said.element_bytes > 0) size.element_bytes = said.element_bytes;
  if (function >= 0 && size.elements >= 0) sizes.by_function[function] = size;
}

}  // namespace

ExecutionSizes read_execution_trace(const std::string& path, const OnRead& on_read) {
  ExecutionSizes sizes;
  TraceFile file(path, on_read);
  JsonStream json([&](char* into, std::size_t most) { return file.read(into, most); }, path);
  bool has_nodes = false;
  json.begin_object();
  while (json.next_member()) {
    if (json.key() == "pid" && json.kind() == JsonStream::Kind::number) {
      sizes.pid = json.integer();
    } else if (json.key() == "nodes" && json.kind() == JsonStream::Kind::array) {
      has_nodes = true;
      json.begin_array();
      while (json.next_item()) read_node(json, sizes);
    } else {
      json.skip();
    }
  }
  json.end();
  if (!has_nodes || sizes.pid < 0)
    json.fail("expected \"pid\" and \"nodes\", as PyTorch's execution traces have them");
  return sizes;
}

}  // namespace talweg::train
