// One call of a group as a value: what a program asks for, whichever face it came through (the named
// functions of talweg/group.h, C, Python, PyTorch). Group::start takes it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "talweg/types.h"

namespace talweg {

inline constexpr int kAnyRank = -1;

struct CallOptions {
  std::chrono::milliseconds timeout{0};  // 0: the group's
  // 0 .. 7: what this rank sends of a call with a higher one overtakes, at chunk granularity. It is this
  // rank's own: others may give another, or none, and the results are the same; a call is only sped up by
  // the ranks that give it.
  int priority = 0;
  bool will_wait =
      false;  // a hint: the caller waits at once, so the progress thread need not wake up for this
};

// Counts are elements. What `in` and `out` hold is what the named function of the operation says; the buffers
// belong to the caller and must stay untouched until the work is done. What `counts` and `out_counts` point
// to is read during start() only.
struct Call {
  Collective op = Collective::barrier;
  DataType type = DataType::u8;
  ReduceOp reduction = ReduceOp::sum;     // all_reduce, reduce, reduce_scatter
  const void* in = nullptr;               // read; a broadcast has one buffer, which is `out`
  void* out = nullptr;                    // written
  std::size_t count = 0;                  // all_reduce, reduce, broadcast, send_recv
  std::span<const std::size_t> counts{};  // one for each rank: reduce_scatter, all_gather, gather, scatter;
                                          // all_to_all: of `in`, by destination
  std::span<const std::size_t> out_counts{};  // all_to_all: of `out`, by source
  int root = 0;  // reduce, broadcast, gather, scatter; send_recv: the sender, or kAnyRank for a receiver
  int peer = 0;  // send_recv: the receiver. A rank that is neither sender nor receiver has no such call
  std::uint32_t tag = 0;  // send_recv
  CallOptions options{};
};

}  // namespace talweg
