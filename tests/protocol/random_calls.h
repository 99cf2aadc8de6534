// Collectives drawn at random, with the result that a serial reference has for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "forest/planner.h"

namespace talweg::protocol {

// One collective as one rank calls it, with the reference result worked out element by element.
struct RandomCall {
  forest::Request request;
  std::string planner;
  ReduceOp reduction = ReduceOp::sum;
  std::int64_t chunk = 64;
  bool in_place = false;
  int priority = 0;

  std::int64_t total() const {
    return std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0});
  }
};

// By the square of the rank: three times that of rank 1 is not what ranks 0, 1 and 2 give together.
inline std::int32_t contribution(int rank, std::int64_t element, std::uint64_t call) {
  const std::int64_t own = 7 * element + 11 * rank * rank + 13 * static_cast<std::int64_t>(call);
  return static_cast<std::int32_t>(own % 997);
}

inline std::int32_t fold(ReduceOp reduction, std::int32_t a, std::int32_t b) {
  switch (reduction) {
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::bit_xor:
      return a ^ b;
    default:
      return a + b;
  }
}

struct Buffers {
  std::vector<std::int32_t> in, out, expected;
};

// Input: element i of the logical vector as this rank holds it. Expected: sum over contributors, or the
// owner's.
inline Buffers buffers_for(const RandomCall& call, int rank, std::uint64_t number) {
  const forest::Request& q = call.request;
  Buffers b;
  b.in.assign(static_cast<std::size_t>(forest::input_count(q, rank)), 0);
  b.out.assign(static_cast<std::size_t>(forest::output_count(q, rank)), -1);
  b.expected = b.out;
  // Part by part: of one owner each, where the collective concatenates, and the whole vector elsewhere.
  std::int64_t begin = 0;
  for (std::size_t part = 0; part < q.counts.size(); begin += q.counts[part++]) {
    if (q.counts[part] == 0) continue;
    const std::int64_t in = forest::input_offset(q, rank, {begin, q.counts[part]});
    const std::int64_t out = forest::output_offset(q, rank, {begin, q.counts[part]});
    const int owner = static_cast<int>(part);
    for (std::int64_t k = 0; k < q.counts[part]; ++k) {
      const std::int64_t i = begin + k;
      if (in >= 0) b.in[static_cast<std::size_t>(in + k)] = contribution(rank, i, number);
      if (out < 0) continue;
      std::int32_t value = 0;
      switch (q.op) {
        case Collective::all_reduce:
        case Collective::reduce:
        case Collective::reduce_scatter:
          value = contribution(0, i, number);
          for (int r = 1; r < q.ranks; ++r) value = fold(call.reduction, value, contribution(r, i, number));
          if (call.reduction == ReduceOp::avg) value /= q.ranks;
          break;
        case Collective::all_gather:
        case Collective::gather:
          value = contribution(owner, i, number);
          break;
        case Collective::all_to_all:
          value = contribution(owner / q.ranks, i, number);
          break;
        default:
          value = contribution(q.root, i, number);
      }
      b.expected[static_cast<std::size_t>(out + k)] = value;
    }
  }
  return b;
}

// Of vectors, or parts of them, shorter than `most`.
inline RandomCall random_call(Random& random, int size, std::int64_t most = 400) {
  RandomCall call;
  std::vector<std::string> able;
  do {
    call.request = {};
    call.request.op = static_cast<Collective>(random.below(kCollectives));
    call.request.ranks = size;
    call.request.root = static_cast<int>(random.below(static_cast<std::uint64_t>(size)));
    call.request.element_size = 4;
    const auto some = [&] {
      return random.below(4) == 0 ? 0
                                  : static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most)));
    };
    std::size_t parts = 1;
    switch (call.request.op) {
      case Collective::reduce_scatter:
      case Collective::all_gather:
      case Collective::gather:
      case Collective::scatter:
        parts = static_cast<std::size_t>(size);
        break;
      case Collective::all_to_all:
        parts = static_cast<std::size_t>(size * size);
        break;
      default:
        break;
    }
    for (std::size_t i = 0; i < parts; ++i) call.request.counts.push_back(some());
    if (call.request.op == Collective::barrier) call.request.counts = {0};
    able.clear();
    for (const forest::Planner& p : forest::planners())
      if (p.serves(call.request)) able.push_back(p.name);
  } while (able.empty() || call.request.op == Collective::send_recv);
  call.planner = able[random.below(able.size())];
  call.chunk = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most) / 4));
  call.in_place = call.request.op == Collective::all_reduce && random.below(2) == 0;
  call.priority = static_cast<int>(random.below(3));
  constexpr ReduceOp kReductions[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::bit_xor,
                                      ReduceOp::avg};
  if (call.request.op == Collective::all_reduce || call.request.op == Collective::reduce ||
      call.request.op == Collective::reduce_scatter)
    call.reduction = kReductions[random.below(std::size(kReductions))];
  return call;
}

}  // namespace talweg::protocol
