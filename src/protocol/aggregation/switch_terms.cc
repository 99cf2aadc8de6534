#include "protocol/aggregation/switch_terms.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/aggregation/contributors.h"
#include "protocol/aggregation/gaps.h"
#include "protocol/aggregation/job_slots.h"
#include "protocol/aggregation/switchml_slots.h"
#include "protocol/aggregation/tolerance.h"
#include "wire/aggregation.h"
#include "wire/switchml.h"

namespace talweg::protocol {

namespace {

constexpr std::size_t kCacheLine = 64;
// Columns that a datagram is worth: beyond these another one costs as little.
constexpr std::size_t kMostColumns = 16;
// With fewer columns of the usual block, part of each datagram would stay empty.
constexpr std::size_t kFewColumns = 4;

void add_up(JobMemory& m) {
  m.cell = (m.round + m.contributors + m.sums + m.parts + kCacheLine - 1) / kCacheLine * kCacheLine;
  m.total = m.cells * m.cell + m.peers + m.gaps + m.sent + m.tolerance + m.held_back + m.packets;
}

}  // namespace

JobMemory memory_of(const JobTerms& t) {
  JobMemory m;
  m.cells = std::size_t{t.slots} * t.columns * versions(t);
  m.round = sizeof(Round);
  m.contributors =
      contributor_words(t.workers) * sizeof(std::uint64_t) * (1 + (t.ordered ? 1 : 0) + (t.tolerant ? 1 : 0));
  m.sums = std::size_t{t.block} * 4;
  m.parts = t.ordered ? t.workers * m.sums : 0;
  m.peers = t.workers * sizeof(Peer);
  m.gaps = t.workers * sizeof(Gaps);
  m.sent = results_kept(t) * sizeof(std::uint16_t);
  if (t.tolerant)
    m.tolerance = std::size_t{t.slots} * t.columns * sizeof(Lingering) + t.workers * sizeof(Attendance);
  if (t.above) m.held_back = t.slots * sizeof(std::int64_t);
  m.packets = kMaxSwitchActions * packet_bytes(t);
  add_up(m);
  return m;
}

JobMemory memory_of(const SwitchmlTerms& t) {
  JobMemory m;
  m.cells = std::size_t{t.slots} * 2;
  m.round = sizeof(SwitchmlCell);
  m.sums = std::size_t{t.elements} * 4;
  m.peers = std::size_t{t.slots} * t.hosts.size() * sizeof(Peer);
  m.packets = wire::switchml_bytes(t.elements);
  add_up(m);
  return m;
}

std::string explain(const JobMemory& m) {
  return fmt::format(
      "{} cells (slots x columns x {} versions) x {} bytes ({} round + {} contributors + {} sums + {} "
      "ordered parts, on whole cache lines) + {} peers + {} gaps + {} results sent{}{} + {} packets = {} "
      "bytes",
      m.cells, m.tolerance > 0 ? 3 : 2, m.cell, m.round, m.contributors, m.sums, m.parts, m.peers, m.gaps,
      m.sent, m.tolerance > 0 ? fmt::format(" + {} tolerance", m.tolerance) : "",
      m.held_back > 0 ? fmt::format(" + {} held back", m.held_back) : "", m.packets, m.total);
}

std::optional<BlockShape> shape_of_blocks(std::size_t payload, std::size_t block, bool tolerant) {
  const std::size_t names = tolerant ? wire::kMaxAbsent * 2 : 0;
  const auto bytes = [names](std::size_t columns, std::size_t elements) {
    return wire::aggregation_payload(columns, elements, 4) + columns * names;
  };
  const std::size_t one = bytes(1, 0);
  if (block == 0 && payload >= bytes(kFewColumns, kUsualBlock)) block = kUsualBlock;
  if (block == 0 && payload > one) block = (payload - one) / 4 / 8 * 8;
  if (block == 0 || bytes(1, block) > payload) return std::nullopt;
  const std::size_t columns = std::clamp<std::size_t>(
      (payload - wire::kAggregationHeadBytes) / (bytes(1, block) - wire::kAggregationHeadBytes), 1,
      kMostColumns);
  return BlockShape{static_cast<std::uint16_t>(block), static_cast<std::uint8_t>(columns),
                    bytes(columns, block)};
}

std::size_t slots_that_fit(std::size_t own_window, std::size_t switch_window, std::size_t workers,
                           std::size_t lanes, std::size_t datagram, std::size_t quota) {
  const std::size_t at_switch = switch_window / (workers * datagram);
  const std::size_t at_worker = own_window / (lanes * datagram);
  return std::clamp<std::size_t>(std::min(at_switch, at_worker), 1, quota);
}

const char* check(const JobTerms& t) {
  if (t.workers == 0) return "a job has at least 1 worker";
  if (t.slots == 0) return "a quota of 0 slots: a job needs at least 1";
  if (t.columns == 0 || t.columns > wire::kMaxColumns) return "a slot has 1 to 64 columns";
  if (t.block == 0) return "a block has at least 1 element";
  if (packet_bytes(t) > wire::kMaxDatagramPayload) return "a slot's blocks do not fit into one datagram";
  if (!(t.bytes_per_second > 0)) return "a quota of 0 bytes per second: a job needs some";
  if (t.burst_bytes < static_cast<double>(packet_bytes(t))) return "a burst smaller than one datagram";
  if (!(t.result_bytes_per_second >= 0)) return "a rate of results below 0";
  if (t.tolerant && t.above) return "nothing may be missing of sums that a switch above makes";
  if (t.linger_ns < 0) return "a time before now to linger for";
  return nullptr;
}

const char* check(const SwitchmlTerms& t) {
  if (t.hosts.empty()) return "a job has at least 1 worker";
  if (t.hosts.size() > kMaxSwitchmlWorkers) return "SwitchML's protocol has at most 32 workers";
  if (t.slots == 0 || t.slots > wire::kSwitchmlSlots) return "SwitchML's protocol has 1 to 32768 slots";
  if (t.elements != 64 && t.elements != 256) return "SwitchML's packets have 64 or 256 elements";
  if (!(t.bytes_per_second > 0)) return "a quota of 0 bytes per second: a job needs some";
  if (t.burst_bytes < static_cast<double>(wire::switchml_bytes(t.elements)))
    return "a burst smaller than one packet";
  std::vector<std::uint64_t> hosts = t.hosts;
  std::sort(hosts.begin(), hosts.end());
  if (std::adjacent_find(hosts.begin(), hosts.end()) != hosts.end()) return "two workers have one host";
  return nullptr;
}

}  // namespace talweg::protocol
