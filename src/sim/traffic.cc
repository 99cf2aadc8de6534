#include "sim/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "sim/named_values.h"
#include "sim/transport.h"

namespace talweg::sim {

namespace {

constexpr std::int64_t kMostFlowBytes = std::int64_t{1} << 37;  // as in a matrix
constexpr std::int64_t kMostFlowsOfHost = 1 << 20;
constexpr std::int64_t kLatestNs = 86'400'000'000'000;  // ns: a day

std::int64_t take_bytes(NamedValues& values, const std::string& name, std::int64_t otherwise) {
  const std::string word = values.take(name, "");
  const std::int64_t value = word.empty() ? otherwise : parse_bytes(word).value;
  if (value < 1 || value > kMostFlowBytes)
    values.refuse(fmt::format("{}: expected from 1 to {} bytes, got \"{}\"", name, kMostFlowBytes, word));
  return value;
}

Picoseconds take_time(NamedValues& values, const std::string& name, const std::string& otherwise) {
  const std::string word = values.take(name, otherwise);
  const Nanoseconds value = parse_nanoseconds(word);
  if (value.value > kLatestNs)
    values.refuse(
        fmt::format("{}: expected at most {}, got \"{}\"", name, to_string(Nanoseconds{kLatestNs}), word));
  return picoseconds(value);
}

// All hosts in one cycle, drawn at random (Sattolo 1986): nobody sends to itself.
std::vector<int> random_cycle(int hosts, Random& random) {
  std::vector<int> to(static_cast<std::size_t>(hosts));
  std::iota(to.begin(), to.end(), 0);
  for (std::size_t i = to.size(); i-- > 1;) std::swap(to[i], to[random.below(i)]);
  return to;
}

int another(int host, int hosts, Random& random) {
  const auto drawn = static_cast<int>(random.below(static_cast<std::uint64_t>(hosts) - 1));
  return drawn + (drawn >= host ? 1 : 0);
}

}  // namespace

Matrix parse_traffic(const std::string& text, int hosts, std::uint64_t seed) {
  NamedValues values("", text);
  if (hosts < 2) values.refuse("expected a network of at least two hosts");
  Matrix matrix;
  matrix.nodes = hosts;
  const std::int64_t size = take_bytes(values, "size", 1'000'000);
  const int priority = values.number("prio", 0, 0, kPriorities - 1);
  const Picoseconds start = take_time(values, "start", "0s");
  const auto expect = [&](std::int64_t flows) {
    if (flows > Transport::kMostFlows)
      values.refuse(fmt::format("{} flows: expected at most {}", flows, Transport::kMostFlows));
    matrix.connections.reserve(static_cast<std::size_t>(flows));
  };
  const auto add = [&](int from, int to, std::int64_t bytes, Picoseconds after) {
    Connection& c = matrix.connections.emplace_back();
    c.from = from;
    c.to = to;
    c.id = static_cast<int>(matrix.connections.size());
    c.start = start + after;
    c.bytes = bytes;
    c.priority = priority;
  };

  if (values.kind() == "permutation") {
    const bool shifted = values.has("shift");
    const int shift = values.number("shift", 1, 1, hosts - 1);
    Random random(shifted ? seed : values.number("seed", seed, std::uint64_t{0}, ~std::uint64_t{0}));
    values.done();
    const std::vector<int> cycle = random_cycle(hosts, random);
    for (int h = 0; h < hosts; ++h)
      add(h, shifted ? (h + shift) % hosts : cycle[static_cast<std::size_t>(h)], size, 0);
  } else if (values.kind() == "shuffle") {
    values.done();
    expect(std::int64_t{hosts} * (hosts - 1));
    for (int from = 0; from < hosts; ++from)
      for (int to = 0; to < hosts; ++to)
        if (to != from) add(from, to, size, 0);
  } else if (values.kind() == "incast") {
    const int to = values.number("to", hosts - 1, 0, hosts - 1);
    const int senders = values.number("from", hosts - 1, 1, hosts - 1);
    values.done();
    for (int i = 0; i < senders; ++i) add(i + (i >= to ? 1 : 0), to, size, 0);
  } else if (values.kind() == "mixed") {
    const auto flows = values.number<std::int64_t>("flows", 4, 1, kMostFlowsOfHost);
    const Picoseconds within = take_time(values, "within", "1ms");
    Random random(values.number("seed", seed, std::uint64_t{0}, ~std::uint64_t{0}));
    values.done();
    expect(hosts * flows);
    for (int from = 0; from < hosts; ++from)
      for (std::int64_t f = 0; f < flows; ++f) {
        const int to = another(from, hosts, random);
        const std::uint64_t of_ten = random.below(10);
        const std::int64_t part = of_ten < 6 ? 100 : of_ten < 9 ? 10 : 1;
        const auto after = static_cast<Picoseconds>(random.below(static_cast<std::uint64_t>(within) + 1));
        add(from, to, std::max<std::int64_t>(size / part, 1), after);
      }
  } else {
    values.refuse("expected permutation, shuffle, incast or mixed");
  }
  return matrix;
}

}  // namespace talweg::sim
