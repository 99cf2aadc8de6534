#include "protocol/aggregation/switchml_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel/blocks.h"
#include "kernel/reduce.h"

namespace talweg::protocol {

SwitchmlSlots::SwitchmlSlots(SwitchmlTerms terms, std::pmr::memory_resource& memory)
    : terms_(std::move(terms)),
      layout_(memory_of(terms_)),
      memory_(memory, layout_.total),
      bucket_(terms_.bytes_per_second, terms_.burst_bytes) {}

SwitchmlSlots::Place SwitchmlSlots::place(std::size_t slot, bool version) {
  std::byte* const base = memory_.data() + (slot * 2 + (version ? 1 : 0)) * layout_.cell;
  return {*reinterpret_cast<SwitchmlCell*>(base), base + layout_.round};
}

void SwitchmlSlots::on(std::size_t worker, std::span<const std::byte> packet, Peer from, std::int64_t now_ns,
                       std::vector<SwitchAction>& actions) {
  wire::SwitchmlHeader header;
  if (wire::decode(packet, header) != nullptr) {
    ++counters_.malformed;
    return;
  }
  if (header.slot >= terms_.slots || header.elements != terms_.elements) {
    ++counters_.out_of_range;
    return;
  }
  // The wire has no way to say so.
  if (bucket_.take(static_cast<double>(packet.size()), now_ns) > 0) {
    ++counters_.busy;
    return;
  }
  const std::size_t workers = terms_.hosts.size();
  const std::span<Peer> peers(
      reinterpret_cast<Peer*>(memory_.data() + layout_.cells * layout_.cell) + header.slot * workers,
      workers);
  peers[worker] = from;
  const Place here = place(header.slot, header.version);
  SwitchmlCell& other = place(header.slot, !header.version).cell;
  const std::uint32_t bit = std::uint32_t{1} << worker;
  if ((here.cell.seen & bit) != 0) {
    if (here.cell.remaining > 0) {
      ++counters_.duplicates;
      return;
    }
    ++counters_.repeated;
    actions.push_back({SwitchAction::To::one, peers.subspan(worker, 1), {}, result(here, header)});
    return;
  }
  if ((other.seen & bit) != 0 && other.remaining > 0) {
    ++counters_.late;
    return;
  }
  ++counters_.contributions;
  other.seen &= ~bit;
  if (here.cell.seen == 0) here.cell.remaining = static_cast<std::uint8_t>(terms_.hosts.size());
  take(here, header, packet.subspan(wire::kSwitchmlHeaderBytes));
  here.cell.seen |= bit;
  if (--here.cell.remaining > 0) return;
  ++counters_.rounds;
  actions.push_back({SwitchAction::To::all, peers, {}, result(here, header)});
}

void SwitchmlSlots::take(const Place& here, const wire::SwitchmlHeader& header,
                         std::span<const std::byte> integers) {
  if (here.cell.seen == 0) {
    kernel::swap_words(here.sums, integers.data(), terms_.elements);
    std::copy(std::begin(header.exponents), std::end(header.exponents), here.cell.exponents);
    return;
  }
  // Through the room for the packet that is to be made.
  std::byte* const swapped = memory_.data() + layout_.cells * layout_.cell + layout_.peers;
  kernel::swap_words(swapped, integers.data(), terms_.elements);
  kernel::reduce_function(DataType::i32, ReduceOp::sum)(here.sums, here.sums, swapped, terms_.elements);
  for (std::size_t i = 0; i < 2; ++i)
    here.cell.exponents[i] = std::max(here.cell.exponents[i], header.exponents[i]);
}

std::span<const std::byte> SwitchmlSlots::result(const Place& here, wire::SwitchmlHeader header) {
  std::byte* const packet = memory_.data() + layout_.cells * layout_.cell + layout_.peers;
  std::copy(std::begin(here.cell.exponents), std::end(here.cell.exponents), header.exponents);
  wire::encode(header, packet);
  kernel::swap_words(packet + wire::kSwitchmlHeaderBytes, here.sums, terms_.elements);
  return {packet, wire::switchml_bytes(terms_.elements)};
}

}  // namespace talweg::protocol
