// Ranks that send each other shards in virtual time, by several paths, of which some are slower, lossy or
// dead, and from which datagrams come late or twice; a rank may pause, or die.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "protocol/bounded/exchange.h"
#include "wire/replay_window.h"

namespace talweg::protocol {

inline constexpr std::size_t kPathAround = 76;

// One of several ways between any two ranks, each with a queue of its own for each two.
struct PathWay {
  std::int64_t delay_ns = 30'000;
  double rate = 1.25e8;
  double loss = 0;
  bool dead = false;
  double repeat = 0;           // so large a part comes twice
  std::int64_t jitter_ns = 0;  // each takes up to so much longer
};

class PathWorld {
 public:
  PathWorld(int size, std::vector<PathWay> between, double p, std::uint64_t seed, bool warm_up = false,
            ExchangeOptions options = {})
      : ways(std::move(between)), random_(seed), bytes_(seed, 1), silent_(options.silent) {
    const auto ppm = static_cast<std::uint32_t>(p * kMillion);
    options.bounds = {ppm, ppm, ppm, 1};
    options.paths = ways.size();
    options.warm_up = warm_up;
    const std::vector<std::uint32_t> credits(static_cast<std::size_t>(size), 512U << 10);
    for (int r = 0; r < size; ++r) {
      outboxes_.push_back(std::make_unique<Outbox>(*this, r, size));
      ranks.push_back(std::make_unique<Exchange>(r, options, kPathAround, credits, *outboxes_.back()));
    }
  }

  // A call of shards of so many bytes each, of a new tensor or the `same` as before. False: what arrived is
  // not what was sent, but for what is missing.
  bool call(std::size_t bytes, bool same = false) {
    return call_shards(std::vector<std::uint64_t>(ranks.size(), bytes), same);
  }
  bool call_shards(const std::vector<std::uint64_t>& bytes, bool same = false) {
    const std::size_t n = ranks.size();
    const std::uint64_t all = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    std::vector<std::vector<std::byte>> data(n);
    const std::int64_t deadline = now + patience_ns;
    const std::int64_t begun = now;
    for (std::size_t r = 0; r < n; ++r) {
      if (is_silent(r)) continue;
      data[r].resize(all);
      for (std::size_t i = 0; i < data[r].size(); i += 8) {
        const std::uint64_t word = bytes_.next();
        std::memcpy(&data[r][i], &word, std::min<std::size_t>(8, data[r].size() - i));
      }
    }
    if (!same)
      for (const auto& x : ranks) tensor_ = x->add(bytes, DataType::f32);
    std::vector<MeasuredTransfer> told;
    for (const auto& x : ranks) told.push_back(x->last_transfer(tensor_));
    if (on_told) on_told(told);
    for (std::size_t r = 0; r < n; ++r)
      ranks[r]->begin(tensor_, is_silent(r) ? nullptr : data[r].data(), classes, told, deadline, now);
    while (!done())
      if (!step()) return false;
    took_ns = now - begun;
    std::uint64_t at = 0;
    for (std::size_t to = 0; to < n; at += bytes[to++])
      for (std::size_t from = 0; from < n; ++from)
        if (from != to && !is_silent(from) && !is_gone(from) && !is_gone(to) &&
            !is_sent(data[from].data() + at, from, to))
          return false;
    return true;
  }
  std::uint64_t sum(std::uint64_t FlightCounters::*count) const {
    std::uint64_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.flight(r).*count; });
    return all;
  }
  std::uint64_t rounds() const {  // of asking for what is missing
    std::uint64_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.from(r).rounds; });
    return all;
  }
  std::size_t left() const {
    std::size_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.paths(r).left(); });
    return all;
  }

  std::uint64_t times_left() const {
    std::uint64_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.paths(r).times_left(); });
    return all;
  }

  std::vector<PathWay> ways;
  std::vector<std::unique_ptr<Exchange>> ranks;
  std::int64_t patience_ns = 60'000'000'000;  // until the deadline of the next call
  // A rank that does and hears nothing any more from then on. Failures of others are kept, by rank.
  int gone = -1;
  std::int64_t gone_ns = 0;
  std::map<std::size_t, BoundedFailure> failures;
  // A rank that does nothing for a while: what comes to it waits.
  int sleeper = -1;
  std::int64_t sleeps_ns = 0, wakes_ns = 0;
  std::int64_t now = 1'000'000, took_ns = 0;
  std::map<std::size_t, std::uint64_t> by_path;
  ExchangeClasses classes;                                 // of the next call
  std::function<bool(const wire::DatagramHeader&)> loses;  // one more reason
  std::function<void(int from, int to, const wire::DatagramHeader&)> on_sent;
  std::function<void(std::vector<MeasuredTransfer>& told)> on_told;  // what ranks measured, of each call
  std::int64_t most_waiting_ns = 0;                                  // for its turn, of all since this was 0

 private:
  struct Carried {
    int from = 0, to = 0;
    wire::DatagramHeader header;
    std::vector<std::byte> payload;
  };
  struct Outbox : ExchangeOutbox {
    Outbox(PathWorld& in, int rank, int ranks)
        : world(in), self(rank), numbers(static_cast<std::size_t>(ranks)) {}
    bool has_room(int) override { return true; }
    std::uint64_t put(int rank, std::size_t path, wire::DatagramHeader& header,
                      const std::byte* payload) override {
      header.sender = static_cast<std::uint16_t>(self);
      header.number = numbers[static_cast<std::size_t>(rank)]++;
      world.carry({self, rank, header, {payload, payload + header.length}}, path);
      return header.number;
    }
    bool flush() override { return true; }
    PathWorld& world;
    const int self;
    std::vector<std::uint64_t> numbers;
  };

  bool is_silent(std::size_t rank) const { return std::ranges::count(silent_, static_cast<int>(rank)) > 0; }

  template <class Use>
  void each_pair(Use use) const {
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (int other = 0; other < static_cast<int>(ranks.size()); ++other)
        if (other != static_cast<int>(r)) use(*ranks[r], other);
  }
  void carry(Carried c, std::size_t path) {
    by_path[path] += c.payload.size() + kPathAround;
    if (on_sent) on_sent(c.from, c.to, c.header);
    const PathWay& way = ways.at(path);
    if (way.dead || random_.uniform() < way.loss || (loses && loses(c.header))) return;
    auto& busy_until = busy_until_[{c.from, c.to, path}];
    busy_until =
        std::max(busy_until, now) +
        static_cast<std::int64_t>(static_cast<double>(c.payload.size() + kPathAround) / way.rate * 1e9);
    most_waiting_ns = std::max(most_waiting_ns, busy_until - now);
    const auto arrives = [&] {
      const auto late_ns = way.jitter_ns > 0 ? random_.below(static_cast<std::uint64_t>(way.jitter_ns)) : 0;
      return busy_until + way.delay_ns + static_cast<std::int64_t>(late_ns);
    };
    if (way.repeat > 0 && random_.uniform() < way.repeat) on_the_way_.emplace(arrives(), c);
    on_the_way_.emplace(arrives(), std::move(c));
  }
  bool is_gone(std::size_t rank) const { return static_cast<int>(rank) == gone && now >= gone_ns; }
  bool is_at_work(std::size_t r) const { return !is_gone(r) && !failures.contains(r); }
  bool done() const {
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (is_at_work(r) && !(ranks[r]->received() && ranks[r]->settled())) return false;
    return true;
  }
  Exchange* awake(std::size_t r) const {
    if (!is_at_work(r)) return nullptr;
    return static_cast<int>(r) == sleeper && now >= sleeps_ns && now < wakes_ns ? nullptr : ranks[r].get();
  }
  // As from a socket: each number once.
  void hear(Exchange& x, const Carried& c) {
    wire::ReplayWindow& seen = seen_[{c.from, c.to}];
    if (seen.look(c.header.number) != wire::DatagramRefusal::none) return;
    seen.accept(c.header.number);
    x.on(c.from, c.header, c.payload, false, now, now);
  }
  bool step() {
    std::int64_t at = kNeverNs;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Exchange* const x = awake(r);
      if (x) x->send(now);
      at = std::min(at, x ? x->next_time_ns(now) : is_at_work(r) ? wakes_ns : kNeverNs);
    }
    if (!on_the_way_.empty()) at = std::min(at, on_the_way_.begin()->first);
    if (at == kNeverNs) return done();
    now = std::max(now + 1, at);
    for (; !on_the_way_.empty() && on_the_way_.begin()->first <= now;
         on_the_way_.erase(on_the_way_.begin())) {
      Carried& c = on_the_way_.begin()->second;
      if (!is_at_work(static_cast<std::size_t>(c.to))) continue;
      if (Exchange* const x = awake(static_cast<std::size_t>(c.to)))
        hear(*x, c);
      else
        on_the_way_.emplace(wakes_ns, std::move(c));
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Exchange* const x = awake(r);
      if (!x) continue;
      x->end_of_batch();
      x->on_time(now);
      if (x->failure() && gone >= 0) {
        failures.emplace(r, *x->failure());
      } else if (x->failure()) {
        ADD_FAILURE() << x->failure()->text;
        return false;
      }
    }
    return true;
  }
  bool is_sent(const std::byte* shard, std::size_t from, std::size_t to) const {
    const Exchange& x = *ranks[to];
    const BoundedShape& shape = x.shape(static_cast<int>(to));
    const PacketSet& missing = x.missing(static_cast<int>(from));
    for (std::uint32_t i = 0; i < shape.packets(); ++i) {
      const std::size_t at = std::size_t{i} * shape.stride;
      if (!missing.has(i) &&
          std::memcmp(x.arrived(static_cast<int>(from)) + at, shard + at, shape.length(i)) != 0)
        return false;
    }
    return true;
  }

  Random random_, bytes_;
  const std::vector<int> silent_;
  std::vector<std::unique_ptr<Outbox>> outboxes_;
  std::map<std::tuple<int, int, std::size_t>, std::int64_t> busy_until_;
  std::map<std::pair<int, int>, wire::ReplayWindow> seen_;
  std::multimap<std::int64_t, Carried> on_the_way_;
  std::size_t tensor_ = 0;
};

}  // namespace talweg::protocol
