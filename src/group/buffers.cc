#include "group/buffers.h"

#include <fmt/format.h>

#include "talweg/error.h"

namespace talweg::group {

void check_buffer(const void* data, std::int64_t count, const char* what) {
  if (data == nullptr && count > 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is null but {} elements are needed", what, count));
}

void check_sharing(const void* in, std::int64_t in_count, const void* out, std::int64_t out_count,
                   DataType type, std::optional<std::int64_t> offset, const char* call) {
  const std::uintptr_t size = size_of(type);
  const auto in_begin = reinterpret_cast<std::uintptr_t>(in);
  const auto out_begin = reinterpret_cast<std::uintptr_t>(out);
  const std::uintptr_t in_end = in_begin + static_cast<std::uintptr_t>(in_count) * size;
  const std::uintptr_t out_end = out_begin + static_cast<std::uintptr_t>(out_count) * size;
  if (in_begin == in_end || out_begin == out_end || in_begin >= out_end || out_begin >= in_end) return;
  const bool out_is_larger = out_count > in_count;
  const std::uintptr_t larger = out_is_larger ? out_begin : in_begin;
  const std::uintptr_t smaller = out_is_larger ? in_begin : out_begin;
  if (offset && larger + static_cast<std::uintptr_t>(*offset) * size == smaller) return;
  throw Error(
      ErrorCode::invalid_argument,
      !offset ? fmt::format("{}: input and output must be distinct buffers", call)
      : in_count == out_count
          ? fmt::format("{}: input and output overlap in part: expected one buffer or distinct ones", call)
          : fmt::format("{}: input and output overlap, and not in this rank's own part: expected the {} "
                        "{} elements into the {}, or distinct buffers",
                        call, out_is_larger ? "input" : "output", *offset,
                        out_is_larger ? "output" : "input"));
}

}  // namespace talweg::group
