// What all ranks do next: drawn from a seed, the same on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "talweg/types.h"

namespace talweg::soak {

struct Step {
  enum class Kind { collective, messages, regroup, disagree };
  Kind kind = Kind::collective;
  std::size_t group = 0;     // 0: all ranks; the others are re-drawn now and then
  std::vector<int> members;  // regroup: who is in it from now on, in this order
  Collective op = Collective::barrier;
  DataType type = DataType::u8;
  ReduceOp reduction = ReduceOp::sum;
  int root = 0;
  // Elements: of the vector (one), of each rank (reduce_scatter, all_gather, gather, scatter), of each pair,
  // row by row (all_to_all); messages: to the rank `shift` further on.
  std::vector<std::size_t> counts;
  int shift = 1;
  bool in_place = false;
  bool any_source = false;
  bool at_once = false;  // waited for where it is made
  int priority = 0;
  std::uint64_t seed = 0;
};

// `sizes[g]`: ranks in each group.
Step draw(Random& random, const std::vector<int>& sizes, std::size_t max_bytes);
std::string to_string(const Step& step);

}  // namespace talweg::soak
