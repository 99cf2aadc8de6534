#include "protocol/aggregation/switch_terms.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/aggregation/contributors.h"
#include "protocol/aggregation/job_slots.h"
#include "protocol/aggregation/switchml_slots.h"
#include "wire/aggregation.h"
#include "wire/switchml.h"

namespace talweg::protocol {

namespace {

constexpr std::size_t kCacheLine = 64;

void add_up(JobMemory& m) {
  m.cell = (m.round + m.contributors + m.sums + m.parts + kCacheLine - 1) / kCacheLine * kCacheLine;
  m.total = m.cells * m.cell + m.peers + m.packets;
}

}  // namespace

JobMemory memory_of(const JobTerms& t) {
  JobMemory m;
  m.cells = std::size_t{t.slots} * t.columns * 2;
  m.round = sizeof(Round);
  m.contributors = contributor_words(t.workers) * sizeof(std::uint64_t) * (t.ordered ? 2 : 1);
  m.sums = std::size_t{t.block} * 4;
  m.parts = t.ordered ? t.workers * m.sums : 0;
  m.peers = t.workers * sizeof(Peer);
  m.packets = kMaxSwitchActions * packet_bytes(t);
  add_up(m);
  return m;
}

JobMemory memory_of(const SwitchmlTerms& t) {
  JobMemory m;
  m.cells = std::size_t{t.slots} * 2;
  m.round = sizeof(SwitchmlCell);
  m.sums = std::size_t{t.elements} * 4;
  m.peers = t.hosts.size() * sizeof(Peer);
  m.packets = wire::switchml_bytes(t.elements);
  add_up(m);
  return m;
}

std::string explain(const JobMemory& m) {
  return fmt::format(
      "{} cells (slots x columns x 2 versions) x {} bytes ({} round + {} contributors + {} sums + {} ordered "
      "parts, on whole cache lines) + {} peers + {} packets = {} bytes",
      m.cells, m.cell, m.round, m.contributors, m.sums, m.parts, m.peers, m.packets, m.total);
}

const char* check(const JobTerms& t) {
  if (t.workers == 0) return "a job has at least 1 worker";
  if (t.slots == 0) return "a quota of 0 slots: a job needs at least 1";
  if (t.columns == 0 || t.columns > wire::kMaxColumns) return "a slot has 1 to 64 columns";
  if (t.block == 0) return "a block has at least 1 element";
  if (packet_bytes(t) > wire::kMaxDatagramPayload) return "a slot's blocks do not fit into one datagram";
  if (!(t.bytes_per_second > 0)) return "a quota of 0 bytes per second: a job needs some";
  if (t.burst_bytes < static_cast<double>(packet_bytes(t))) return "a burst smaller than one datagram";
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
