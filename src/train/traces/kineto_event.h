// One event of a Kineto (PyTorch profiler) trace, with the fields that importing needs:
//
//   {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 12402, "tid": 12402, "ts": 4668518571554.179,
//    "dur": 459.7, "args": {"External id": 14, "Sequence number": 59, "Record function id": 755,
//    "Input Dims": [[16, 2048], [200, 2048], [200]], "Input type": ["float", "float", "float"]}}
//
// Times are microseconds, whole in old traces and with three decimals in new ones; too many digits for a
// double.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "talweg/types.h"
#include "text/json_stream.h"

namespace talweg::train {

enum class EventKind : std::uint8_t { other, cpu_op, annotation, runtime, kernel, copy };

struct KinetoEvent {
  EventKind kind = EventKind::other;
  bool complete = false;  // ph is X
  std::string name;
  std::int64_t pid = -1, tid = -1;
  std::int64_t begin = 0, duration = 0;                                      // ns
  std::int64_t correlation = -1, stream = -1, sequence = -1, function = -1;  // -1: not there
  std::int64_t elements = -1;  // of the first input: all of it, if it is a list of tensors
  int element_bytes = 0;       // 0: not known
  std::string collective;      // "allreduce"; empty: not there
  std::int64_t in_elements = -1, out_elements = -1;
  std::int64_t group_size = -1;  // ranks that a collective is among
};

// The next value of the stream, which is an event. Throws Error{bad_file} of a complete event without ts or
// dur, of a negative dur and of numbers beyond 64 bits.
void read_event(text::JsonStream& json, KinetoEvent& event);

// "4668518571554.179" in nanoseconds, rounded; empty: no number, or beyond what 64 bits hold.
std::optional<std::int64_t> nanoseconds_of_microseconds(std::string_view text);
// "Float", "float", "c10::Half", "long int"; 0: not known.
int element_bytes_of(std::string_view type);
// "allreduce", "_allgather_base", "AllReduce_Sum_f32_RING_LL"; empty: none.
std::optional<Collective> collective_of(std::string_view text);

}  // namespace talweg::train
