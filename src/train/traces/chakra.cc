// Chakra's execution traces (schema/protobuf/et_def.proto), one file for each rank: messages, each behind its
// length. The first is GlobalMetadata{version = 1}, the others are
//
//   Node{id = 1, name = 2, type = 3, ctrl_deps = 4, data_deps = 5, start_time_micros = 6, duration_micros = 7, ..., attr = 10}
//   NodeType: COMP_NODE 4, COMM_SEND_NODE 5, COMM_RECV_NODE 6, COMM_COLL_NODE 7
//   AttributeProto{name = 1, int32_val = 7, int64_val = 9, uint32_val = 11, uint64_val = 13, bool_val = 27, string_val = 29}
//
// Nodes say what they wait for, but not what layer they are of. So what a rank computes before a transfer
// (and after the one before it) is taken as one layer's backward pass, and what it computes before the first
// node whose name says "backward" as the forward pass of all. Where there are nodes of a device, those of the
// host (is_cpu_op) are left out, since they only launch the former.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/fail.h"
#include "train/traces/importers.h"
#include "train/traces/protobuf.h"
#include "train/traces/trace_file.h"
#include "train/traces/turns.h"

namespace talweg::train {
namespace {

constexpr std::size_t kMostChakra = std::size_t{2} << 30;
constexpr std::size_t kMostChakraNodes = std::size_t{4} << 20;  // each takes 150 bytes at least
constexpr std::uint64_t kLatestUs = std::uint64_t{1} << 62;  // what a node takes behind it stays in 64 bits

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  std::uint64_t type = 0;
  std::uint64_t begin_us = 0, duration_us = 0;
  bool of_host = false;
  std::int64_t collective = -1, bytes = 0;
  std::vector<std::uint64_t> after{};  // data_deps: ids of what it waits for
};
constexpr std::uint64_t kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7;

// As CollectiveCommType numbers them.
constexpr Collective kCollectiveOf[] = {
    Collective::all_reduce,     Collective::reduce,    Collective::all_gather, Collective::gather,
    Collective::scatter,        Collective::broadcast, Collective::all_to_all, Collective::reduce_scatter,
    Collective::reduce_scatter, Collective::barrier};

struct ChakraAttribute {
  std::string_view name;
  std::int64_t number = 0;
};

ChakraAttribute read_attribute(Protobuf message) {
  ChakraAttribute a;
  while (message.next()) {
    const std::uint32_t field = message.field();
    if (field == 1) {
      a.name = message.bytes();
    } else if (field == 7 || field == 9 || field == 11 || field == 13 || field == 27) {
      a.number = message.integer();
    }
  }
  return a;
}

ChakraNode read_node(Protobuf message) {
  ChakraNode n;
  while (message.next()) {
    switch (message.field()) {
      case 1:
        n.id = message.varint();
        break;
      case 2:
        n.name = message.bytes();
        break;
      case 3:
        n.type = message.varint();
        break;
      case 5:
        message.integers([&](std::int64_t id) { n.after.push_back(static_cast<std::uint64_t>(id)); });
        break;
      case 6:
        n.begin_us = message.varint();
        break;
      case 7:
        n.duration_us = message.varint();
        break;
      case 10: {
        const ChakraAttribute a = read_attribute(message.message());
        if (a.name == "is_cpu_op") n.of_host = a.number != 0;
        if (a.name == "comm_type") n.collective = a.number;
        if (a.name == "comm_size") n.bytes = a.number;
        break;
      }
      default:
        break;
    }
  }
  if (n.bytes < 0 || n.bytes > kLargest.value)
    message.fail(
        fmt::format("node {}: comm_size: expected 0 to {} bytes, got {}", n.id, kLargest.value, n.bytes));
  if (n.type == kCollective &&
      (n.collective < 0 || n.collective >= static_cast<int>(std::size(kCollectiveOf))))
    message.fail(fmt::format("node {}: comm_type: expected 0 to 9, got {}", n.id, n.collective));
  if (n.duration_us > static_cast<std::uint64_t>(kLongest.value) / 1000)
    message.fail(fmt::format("node {}: expected a duration of at least 0 and at most an hour, got {} us",
                             n.id, static_cast<std::int64_t>(n.duration_us)));
  if (n.begin_us > kLatestUs)
    message.fail(
        fmt::format("node {}: expected a start of at most {} us, got {}", n.id, kLatestUs, n.begin_us));
  return n;
}

using ChakraIndex = std::unordered_map<std::uint64_t, std::size_t>;  // of nodes, by their ids

// What waits for others can come behind them all. Only data_deps count: ctrl_deps name the operator around,
// which converters leave out.
void check_order(const std::vector<ChakraNode>& nodes, const ChakraIndex& index, const std::string& path) {
  std::vector<std::vector<std::size_t>> next(nodes.size());
  std::vector<std::size_t> missing(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::uint64_t id : nodes[i].after) {
      const auto at = index.find(id);
      if (at == index.end())
        throw_error(ErrorCode::bad_file, "{}: node {} waits for node {}, which is not there: the file is cut",
                    path, nodes[i].id, id);
      next[at->second].push_back(i);
    }
    missing[i] = nodes[i].after.size();
    if (missing[i] == 0) ready.push_back(i);
  }
  std::size_t run = 0;
  for (; !ready.empty(); ++run) {
    const std::size_t done = ready.back();
    ready.pop_back();
    for (const std::size_t i : next[done])
      if (--missing[i] == 0) ready.push_back(i);
  }
  if (run == nodes.size()) return;
  const auto stuck = std::ranges::find_if(missing, [](std::size_t count) { return count > 0; });
  throw_error(ErrorCode::bad_file, "{}: node {} waits for itself, perhaps through others: a cycle", path,
              nodes[static_cast<std::size_t>(stuck - missing.begin())].id);
}

std::vector<ChakraNode> read_chakra(const std::string& path, const OnRead& on_read) {
  const std::string bytes = read_trace(path, kMostChakra, on_read);
  std::vector<ChakraNode> nodes;
  ChakraIndex index;
  Protobuf file(bytes, path);
  for (bool first = true; !file.at_end(); first = false) {
    const std::uint64_t length = file.read_varint();
    const std::string_view message = file.read_bytes(length);
    const auto at = static_cast<std::size_t>(message.data() - bytes.data());
    if (first) continue;
    if (message.empty()) file.fail("expected a node, got a message of no bytes");
    if (nodes.size() == kMostChakraNodes)
      file.fail(fmt::format("expected at most {} nodes", kMostChakraNodes));
    nodes.push_back(read_node(Protobuf(message, path, at)));
    if (!index.emplace(nodes.back().id, nodes.size() - 1).second)
      throw_error(ErrorCode::bad_file, "{}: node {} is there twice", path, nodes.back().id);
  }
  check_order(nodes, index, path);
  std::erase_if(nodes, [](const ChakraNode& n) { return n.type < kCompute || n.type > kCollective; });
  const bool has_device = std::any_of(nodes.begin(), nodes.end(),
                                      [](const ChakraNode& n) { return !n.of_host && n.type == kCompute; });
  if (has_device) std::erase_if(nodes, [](const ChakraNode& n) { return n.of_host && n.type == kCompute; });
  std::stable_sort(nodes.begin(), nodes.end(), [](const ChakraNode& a, const ChakraNode& b) {
    return a.begin_us != b.begin_us ? a.begin_us < b.begin_us : a.id < b.id;
  });
  return nodes;
}

bool goes_back(const ChakraNode& n) {
  return n.name.find("ackward") != std::string::npos || n.name.find("bwd") != std::string::npos ||
         n.name.find("BWD") != std::string::npos;
}

// Of one rank: what it computes before each transfer, after the last one, and in the forward pass.
struct ChakraRank {
  std::uint64_t begins = 0;            // us: the sum over its nodes, wrapping around
  std::int64_t forward = 0, rest = 0;  // us
  int in_flight = 1;                   // the most transfers that were under way at once
  struct Run {
    std::int64_t compute = 0, transfer = 0;  // us
    Exchange exchange;
    bool operator==(const Run&) const = default;
  };
  std::vector<Run> runs;
  bool operator==(const ChakraRank&) const = default;
};

// Where traces are made up, transfers have no time at which they began, and none is known to overlap another.
void take_turns(ChakraRank& rank, const std::vector<UnderWay>& transfers) {
  if (std::ranges::any_of(transfers, [](const UnderWay& t) { return t.begin == 0; })) return;
  const Turns turns = turns_of(transfers, 0);
  rank.in_flight = turns.in_flight;
  for (std::size_t i = 0; i < transfers.size(); ++i)
    rank.runs[i].transfer = transfers[i].end - turns.begins[i];
}

ChakraRank rank_of(const std::vector<ChakraNode>& nodes) {
  ChakraRank rank;
  const bool says = std::any_of(nodes.begin(), nodes.end(), goes_back);
  bool back = !says;
  std::int64_t compute = 0;
  std::vector<UnderWay> transfers;
  for (const ChakraNode& n : nodes) {
    const auto duration = static_cast<std::int64_t>(n.duration_us);
    rank.begins += n.begin_us;
    if (n.type == kCompute) {
      back = back || goes_back(n);
      (back ? compute : rank.forward) += duration;
      continue;
    }
    if (n.type == kReceive) continue;  // the sender's node says it, too
    const Collective op = n.type == kSend ? Collective::send_recv : kCollectiveOf[n.collective];
    rank.runs.push_back({std::exchange(compute, 0), duration, {op, {}, {n.bytes}, {}, {}}});
    const auto begin = static_cast<std::int64_t>(n.begin_us);
    transfers.push_back({begin, begin + duration});
  }
  rank.rest = compute;
  take_turns(rank, transfers);
  return rank;
}

// No file says of which rank it is. No two ranks begin and take the same to the microsecond; but who makes
// traces up writes the same for all of them, without a time at which anything began.
void check_not_twice(const std::vector<ChakraRank>& ranks, const Paths& paths) {
  const std::size_t last = ranks.size() - 1;
  std::error_code ignored;
  for (std::size_t i = 0; i < last; ++i)
    if (std::filesystem::equivalent(paths[i], paths[last], ignored) ||
        (ranks[last].begins > 0 && ranks[i] == ranks[last]))
      throw_error(ErrorCode::bad_file, "{}: is of the same rank as {}: expected one file for each rank",
                  paths[last], paths[i]);
}

}  // namespace

TraceJob import_chakra(const Paths& paths, const OnRead& on_read) {
  std::vector<ChakraRank> ranks;
  for (const std::string& path : paths) {
    ranks.push_back(rank_of(read_chakra(path, on_read)));
    const ChakraRank &a = ranks.front(), &b = ranks.back();
    bool alike = a.runs.size() == b.runs.size();
    for (std::size_t i = 0; alike && i < a.runs.size(); ++i) alike = a.runs[i].exchange == b.runs[i].exchange;
    if (!alike)
      throw_error(ErrorCode::bad_file, "{}: not of the run of {}: {} and {} transfers, or others", path,
                  paths[0], b.runs.size(), a.runs.size());
    check_not_twice(ranks, paths);
  }
  TraceJob read{.kind = TraceKind::chakra};
  Job& job = read.job;
  job.name = name_of_file(paths[0]);
  job.ranks = static_cast<int>(ranks.size());
  const auto mean = [&](auto&& of) {
    double sum = 0;
    for (const ChakraRank& r : ranks) sum += static_cast<double>(of(r));
    return Nanoseconds{std::llround(sum / static_cast<double>(ranks.size()) * 1e3)};
  };
  for (const ChakraRank& r : ranks) job.in_flight = std::max(job.in_flight, r.in_flight);
  job.in_flight = std::min(job.in_flight, kMostInFlight);
  const auto& runs = ranks[0].runs;
  if (const Nanoseconds forward = mean([](const ChakraRank& r) { return r.forward; }); forward.value > 0)
    job.layers.push_back({.name = "forward", .forward = forward});
  if (const Nanoseconds rest = mean([](const ChakraRank& r) { return r.rest; }); rest.value > 0)
    job.layers.push_back({.name = "rest", .backward = rest});
  // The backward pass comes to the last layer first.
  for (std::size_t i = runs.size(); i-- > 0;) {
    const Exchange& e = runs[i].exchange;
    const bool of_gradients = e.op == Collective::all_reduce || e.op == Collective::reduce_scatter;
    job.layers.push_back({.name = fmt::format("run{}", i + 1),
                          .backward = mean([&](const ChakraRank& r) { return r.runs[i].compute; }),
                          .gradient = of_gradients ? e.bytes : Bytes{}});
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Exchange e = runs[i].exchange;
    e.layers = {static_cast<int>(job.layers.size() - 1 - i)};
    std::int64_t least = runs[i].transfer;
    for (const ChakraRank& r : ranks) least = std::min(least, r.runs[i].transfer);
    e.time = {least * 1000};
    e.wait = {mean([&](const ChakraRank& r) { return r.runs[i].transfer; }).value - e.time.value};
    job.exchanges.push_back(std::move(e));
  }
  if (job.layers.empty())
    throw_error(ErrorCode::bad_file, "{}: expected nodes that compute or communicate, got none", paths[0]);
  if (job.exchanges.empty()) read.notes.emplace_back("there is no communication in it");
  read.notes.emplace_back(
      "Chakra's nodes name no layers: what is computed between two transfers is one layer");
  return checked(std::move(read), paths[0]);
}

}  // namespace talweg::train
