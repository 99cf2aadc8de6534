// PlanWord: what rank 0 says of plans when it comes to a call, for that call and those after it.
//
// Rank 0 alone plans. Every other node of a group learns from its words which forest carries which calls, so
// that all take the same one at the same call, whatever their processors and compilers make of floating
// point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "forest/forest.h"

namespace talweg::steer {

inline constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct PlanWord {
  std::uint64_t call = 0;  // the number of the call that it is for
  bool forget = false;     // what was said before holds for earlier calls only
  // With `forget`, where plans are now made for another network: what its links and then its groups carry, in
  // bit/s.
  std::vector<double> rates;
  bool report =
      false;  // every rank tells rank 0 now what its connections have carried since it was asked last
  // Where plans follow the network: the next call that must not begin before rank 0 has said of it whether
  // plans stay.
  std::optional<std::uint64_t> next_turn;
  // What the rest is about: calls that ask for this.
  std::optional<forest::Request> request;
  std::shared_ptr<const forest::Forest> forest;  // null: the plan that was said last stays
  // Of the forest, as rank 0 has it: what its calls are known by. 0: not told, which words that travel are
  // not.
  std::uint32_t digest = 0;
  // Of these calls the first from this one on has a word of its own.
  std::uint64_t next = kNever;
};

std::vector<std::byte> to_bytes(const PlanWord& word);
// Throws Error{corrupted} that says what is wrong. A forest is for the word's request; beyond that see
// forest_from_bytes().
PlanWord word_from_bytes(std::span<const std::byte> bytes);

// A word as it arrives, part by part.
class WordParts {
 public:
  // The word, when this was the `last` part of it. Throws Error{corrupted} also when it is longer than any.
  std::optional<PlanWord> add(std::span<const std::byte> part, bool last);

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace talweg::steer
