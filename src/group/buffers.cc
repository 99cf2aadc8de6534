#include "group/buffers.h"

#include <fmt/format.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "base/collectives.h"
#include "base/data_types.h"
#include "protocol/operation.h"
#include "talweg/error.h"

namespace talweg::group {

namespace {

// All elements of a group's vector, and so all byte counts, stay far inside 63 bits.
constexpr std::size_t kMaxElements = std::size_t{1} << 56;

[[noreturn]] void refuse_call(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
}

void check_kinds(const Call& call) {
  if (static_cast<int>(call.op) >= kCollectives || static_cast<int>(call.type) >= kDataTypes ||
      static_cast<int>(call.reduction) >= kReduceOps)
    refuse_call(fmt::format("a call of collective {}, element type {}, reduction {}: there is no such one",
                            static_cast<int>(call.op), static_cast<int>(call.type),
                            static_cast<int>(call.reduction)));
  if (facts(call.op).counts == Counts::one && call.count > kMaxElements)
    refuse_call(fmt::format("{}: {} elements are out of range", name(call.op), call.count));
}

void check_counts(std::span<const std::size_t> counts, int size, const std::string& what) {
  if (counts.size() != static_cast<std::size_t>(size))
    refuse_call(
        fmt::format("{}: expected one count for each of {} ranks, got {}", what, size, counts.size()));
  std::size_t total = 0;
  for (const std::size_t count : counts)
    if (count > kMaxElements || (total += count) > kMaxElements)
      refuse_call(fmt::format("{}: a count is out of range", what));
}

void check_all_counts(const Call& call, int rank, int size) {
  const Counts counts = facts(call.op).counts;
  if (counts == Counts::none || counts == Counts::one) return;
  const std::string what = name(call.op);
  if (counts == Counts::per_rank) return check_counts(call.counts, size, what);
  check_counts(call.counts, size, what + ": input counts");
  check_counts(call.out_counts, size, what + ": output counts");
  const auto me = static_cast<std::size_t>(rank);
  if (call.counts[me] != call.out_counts[me])
    refuse_call(fmt::format("{}: rank {} sends itself {} elements but expects {}", what, rank,
                            call.counts[me], call.out_counts[me]));
}

void check_buffer(const void* data, std::int64_t count, const char* op, const char* buffer) {
  if (data == nullptr && count > 0)
    refuse_call(fmt::format("{}: the {} is null but {} elements are needed", op, buffer, count));
}

// A call reads its input while it writes its output. So the two may share memory in one way only: the smaller
// begins `offset` elements into the larger (nullopt: in no way).
void check_sharing(const void* in, std::int64_t in_count, const void* out, std::int64_t out_count,
                   DataType type, std::optional<std::int64_t> offset, const char* call) {
  const std::uintptr_t size = facts(type).bytes;
  const auto in_begin = reinterpret_cast<std::uintptr_t>(in);
  const auto out_begin = reinterpret_cast<std::uintptr_t>(out);
  const std::uintptr_t in_end = in_begin + static_cast<std::uintptr_t>(in_count) * size;
  const std::uintptr_t out_end = out_begin + static_cast<std::uintptr_t>(out_count) * size;
  if (in_begin == in_end || out_begin == out_end || in_begin >= out_end || out_begin >= in_end) return;
  const bool out_is_larger = out_count > in_count;
  const std::uintptr_t larger = out_is_larger ? out_begin : in_begin;
  const std::uintptr_t smaller = out_is_larger ? in_begin : out_begin;
  if (offset && larger + static_cast<std::uintptr_t>(*offset) * size == smaller) return;
  refuse_call(
      !offset ? fmt::format("{}: input and output must be distinct buffers", call)
      : in_count == out_count
          ? fmt::format("{}: input and output overlap in part: expected one buffer or distinct ones", call)
          : fmt::format("{}: input and output overlap, and not in this rank's own part: expected the {} "
                        "{} elements into the {}, or distinct buffers",
                        call, out_is_larger ? "input" : "output", *offset,
                        out_is_larger ? "output" : "input"));
}

// Where in the larger of its buffers a rank may have the smaller one.
std::optional<std::int64_t> own_offset(const forest::Request& q, int rank) {
  const CollectiveFacts& what = facts(q.op);
  if (what.counts == Counts::per_pair && q.ranks > 1) return std::nullopt;
  if (what.counts != Counts::per_rank) return 0;
  return std::accumulate(q.counts.begin(), q.counts.begin() + rank, std::int64_t{0});
}

}  // namespace

void check_rank(int rank, int size, const char* what) {
  if (rank < 0 || rank >= size) refuse_call(fmt::format("{} {}: expected 0 .. {}", what, rank, size - 1));
}

forest::Request checked_request(const Call& call, int rank, int size) {
  check_kinds(call);
  const CollectiveFacts& what = facts(call.op);
  if (what.rooted && (call.root < 0 || call.root >= size))
    refuse_call(fmt::format("{}: root {}: expected 0 .. {}", what.name, call.root, size - 1));
  check_all_counts(call, rank, size);
  forest::Request q = protocol::request_of(call, rank, size);
  const std::int64_t in_count = forest::input_count(q, rank);
  const std::int64_t out_count = forest::output_count(q, rank);
  if (what.one_buffer) {
    check_buffer(call.out, out_count, what.name, "buffer");
    return q;
  }
  check_buffer(call.in, in_count, what.name, what.input == Extent::root ? "root's input" : "input");
  check_buffer(call.out, out_count, what.name, what.output == Extent::root ? "root's output" : "output");
  check_sharing(call.in, in_count, call.out, out_count, call.type, own_offset(q, rank), what.name);
  return q;
}

void check_message(const Call& call, int rank, int size) {
  check_kinds(call);
  const bool sends = call.root == rank;
  const int other = sends ? call.peer : call.root;
  if (!sends && call.peer != rank)
    refuse_call(fmt::format("send_recv: rank {} is neither its sender (root) nor its receiver (peer)", rank));
  if (sends || other != kAnyRank) check_rank(other, size, sends ? "send: destination" : "recv: source");
  if (other == rank) refuse_call(fmt::format("send_recv: rank {} is this rank itself", rank));
  check_buffer(sends ? call.in : call.out, static_cast<std::int64_t>(call.count), sends ? "send" : "recv",
               "buffer");
}

}  // namespace talweg::group
