// The table of collectives: what each one is, in the one place where that is written down. Whoever needs a
// property of a collective asks for it here, and compares with Collective::x only where one x is meant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "talweg/types.h"

namespace talweg {

// How a caller gives the counts of elements.
enum class Counts : std::uint8_t { none, one, per_rank, per_pair };

// What of the collective's logical vector (forest/forest.h) a buffer holds.
enum class Extent : std::uint8_t {
  whole,   // all of it, on every rank
  root,    // all of it, on the root alone
  peer,    // all of it, on the receiver of a message alone
  part,    // the rank's own part
  blocks,  // the blocks of the pairs that the rank is in: those that it sends, or those that it receives
};

// Which counts a rank knows.
enum class Knows : std::uint8_t {
  all,   // and all ranks must have the same
  own,   // its own; the root knows all
  pairs  // those of the pairs that it is in
};

// busbw = algbw * factor, as nccl-tests' doc/PERFORMANCE.md derives it for n ranks: what the slowest link of
// a ring would carry.
enum class BusFactor : std::uint8_t { one, part /* (n-1)/n */, twice_part };

struct CollectiveFacts {
  const char* name;
  bool reduces;     // takes a reduction
  bool sums;        // every rank contributes to every slice; else one rank does, whose data it is
  bool rooted;      // the root is the caller's to name
  bool one_buffer;  // input and output are always the same memory
  Counts counts;
  Extent input;
  Extent output;
  Knows knows;
  BusFactor bus;
};

// Indexed by the enum's wire number.
// clang-format off
inline constexpr std::array<CollectiveFacts, kCollectives> kCollectiveFacts{{
    // name            reduces sums   rooted one_buffer  counts            input           output          knows         busbw
    {"all_reduce",     true,   true,  false, false,      Counts::one,      Extent::whole,  Extent::whole,  Knows::all,   BusFactor::twice_part},
    {"reduce",         true,   true,  true,  false,      Counts::one,      Extent::whole,  Extent::root,   Knows::all,   BusFactor::one},
    {"broadcast",      false,  false, true,  true,       Counts::one,      Extent::root,   Extent::whole,  Knows::all,   BusFactor::one},
    {"reduce_scatter", true,   true,  false, false,      Counts::per_rank, Extent::whole,  Extent::part,   Knows::all,   BusFactor::part},
    {"all_gather",     false,  false, false, false,      Counts::per_rank, Extent::part,   Extent::whole,  Knows::all,   BusFactor::part},
    {"all_to_all",     false,  false, false, false,      Counts::per_pair, Extent::blocks, Extent::blocks, Knows::pairs, BusFactor::part},
    {"gather",         false,  false, true,  false,      Counts::per_rank, Extent::part,   Extent::root,   Knows::own,   BusFactor::part},
    {"scatter",        false,  false, true,  false,      Counts::per_rank, Extent::root,   Extent::part,   Knows::own,   BusFactor::part},
    {"send_recv",      false,  false, false, false,      Counts::one,      Extent::root,   Extent::peer,   Knows::all,   BusFactor::one},
    {"barrier",        false,  true,  false, false,      Counts::none,     Extent::whole,  Extent::whole,  Knows::all,   BusFactor::one},
}};
// clang-format on

constexpr const CollectiveFacts& facts(Collective op) {
  return kCollectiveFacts[static_cast<std::size_t>(op)];
}

constexpr bool moves_data(Collective op) {
  return facts(op).counts != Counts::none;
}
// The vector is made of one part for each rank, or for each pair.
constexpr bool has_parts(Collective op) {
  return facts(op).counts == Counts::per_rank || facts(op).counts == Counts::per_pair;
}
// Sums flow to the roots of trees; results flow from them to all ranks.
constexpr bool goes_up(Collective op) {
  return facts(op).sums && moves_data(op);
}
constexpr bool goes_down(Collective op) {
  return facts(op).output == Extent::whole && moves_data(op);
}

// How many counts a request for `ranks` ranks has; that of a collective without data is one, 0.
constexpr std::size_t counts_wanted(Collective op, std::size_t ranks) {
  if (!has_parts(op)) return 1;
  return facts(op).counts == Counts::per_rank ? ranks : ranks * ranks;
}

constexpr double busbw_factor(Collective op, int ranks) {
  const double n = ranks;
  const double part = (n - 1) / n;
  return facts(op).bus == BusFactor::one ? 1 : facts(op).bus == BusFactor::part ? part : 2 * part;
}

}  // namespace talweg
