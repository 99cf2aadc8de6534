// Whole exchanges over ways that lose up to nine of ten, repeat and overtake, from many seeds: what is not
// missing is right, no more is missing than may be, all know the same of it, and all comes to an end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "protocol/bounded/path_world.h"
#include "sanitized.h"

namespace talweg::protocol {
namespace {

constexpr std::int64_t kExchangeSecond = 1'000'000'000;
// Of nine lost in ten, one try in a hundred is asked for and comes; tries are half a second apart in the end.
constexpr std::int64_t kMostOfACall = 1'200 * kExchangeSecond;

class ExchangeSeed {
 public:
  explicit ExchangeSeed(std::uint64_t seed) : random_(seed, 7) {
    const auto ranks = 2 + static_cast<int>(random_.below(7));
    std::vector<PathWay> ways(random_.below(3) == 0 ? 2 : 1);
    const double losses[] = {0, 0.01, 0.1, 0.3, 0.6, 0.9};
    const double loss = losses[random_.below(std::size(losses))];
    for (PathWay& way : ways) {
      way.loss = loss;
      way.delay_ns = static_cast<std::int64_t>(5'000 + random_.below(100'000));
      if (random_.below(2) == 0) way.jitter_ns = static_cast<std::int64_t>(1000U << random_.below(10));
      if (random_.below(2) == 0) way.repeat = 0.1;
    }
    ppm_ = random_.below(3) == 0 ? 0 : static_cast<std::uint32_t>(random_.below(300'000));
    // Packets are so small that few bytes have many of them.
    ExchangeOptions options;
    options.stride = 64;
    options.rate.enabled = random_.below(4) != 0;
    most_elements_ = loss > 0.5 ? 400 : 4000;
    world_.emplace(ranks, ways, ppm_ / 1e6, seed, false, options);
    world_->patience_ns = kMostOfACall;
    world_->classes.droppable = random_.below(2) == 0 ? 0.5 : 0;
    world_->classes.must = world_->classes.droppable > 0 && random_.below(2) == 0;
    name_ = fmt::format("seed {}: {} ranks, loss {}, bound {}, droppable {}, must {}", seed, ranks, loss,
                        ppm_, world_->classes.droppable, world_->classes.must);
  }

  // Calls that all end; the first problem, or nothing.
  std::string run_calls() {
    for (int call = 0; call < 3; ++call) {
      if (!world_->call_shards(shards())) return name_ + ": what arrived is wrong, or it has not ended";
      for (std::size_t to = 0; to < world_->ranks.size(); ++to)
        for (std::size_t from = 0; from < world_->ranks.size(); ++from)
          if (const std::string why = to == from ? "" : complaint(from, to); !why.empty())
            return fmt::format("{}: of rank {} at rank {}: {}", name_, from, to, why);
    }
    return "";
  }
  // One of the ranks dies in a call: who has not ended it names that one at the deadline.
  std::string run_death() {
    PathWorld& w = *world_;
    for (PathWay& way : w.ways) way.loss = std::min(way.loss, 0.3);
    w.patience_ns = 5 * kExchangeSecond;
    w.gone = static_cast<int>(random_.below(w.ranks.size()));
    w.gone_ns = w.now + static_cast<std::int64_t>(random_.below(400'000));
    const std::int64_t deadline = w.now + w.patience_ns;
    if (!w.call_shards(shards())) return name_ + ": what arrived of those that live is wrong";
    if (w.now > deadline + kExchangeSecond / 1000) return name_ + ": it has ended after its deadline";
    for (const auto& [rank, failure] : w.failures)
      if (failure.node != w.gone)
        return fmt::format("{}: rank {} died, and rank {} says: {}", name_, w.gone, rank, failure.text);
    return "";
  }
  const PathWorld& world() const { return *world_; }

 private:
  std::vector<std::uint64_t> shards() {
    std::vector<std::uint64_t> bytes;
    for (const std::size_t elements :
         bounded_parts(1 + random_.below(most_elements_), world_->ranks.size(), {}))
      bytes.push_back(4 * elements);
    return bytes;
  }
  std::string complaint(std::size_t from, std::size_t to) const {
    const Exchange &sender = *world_->ranks[from], &receiver = *world_->ranks[to];
    const int f = static_cast<int>(from), t = static_cast<int>(to);
    const PacketSet& missing = receiver.missing(f);
    const BoundedShape& shape = receiver.shape(t);
    std::uint64_t bytes = 0;
    for (std::uint32_t i = missing.next(0); i < missing.size(); i = missing.next(i + 1)) {
      bytes += shape.length(i);
      const std::byte* const at = receiver.arrived(f) + std::uint64_t{i} * shape.stride;
      if (!std::all_of(at, at + shape.length(i), [](std::byte b) { return b == std::byte{0}; }))
        return "what is missing is not zeros";
      if (!sender.lost(t).has(i)) return "the sender does not know of a packet that is missing";
      if (world_->classes.must && sender.important(t) != nullptr && sender.important(t)->has(i))
        return "a packet is missing that must not be";
    }
    if (sender.lost(t).count() != missing.count()) return "the sender takes a packet for missing that is not";
    if (bytes != receiver.missing_bytes(f)) return "missing bytes are counted in another way";
    if (bytes * kMillion > shape.bytes * ppm_)
      return fmt::format("{} of {} bytes are missing", bytes, shape.bytes);
    return "";
  }

  Random random_;
  std::uint32_t ppm_ = 0;
  std::size_t most_elements_ = 0;
  std::optional<PathWorld> world_;
  std::string name_;
};

void expect_promises_kept(std::uint64_t first, std::uint64_t seeds) {
  std::uint64_t lost = 0, rounds = 0, failed = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    ExchangeSeed calls(seed), death(seed);
    ASSERT_EQ(calls.run_calls(), "");
    ASSERT_EQ(death.run_death(), "");
    lost += calls.world().sum(&FlightCounters::lost);
    rounds += calls.world().rounds();
    failed += death.world().failures.size();
  }
  EXPECT_GT(lost, 0U);
  EXPECT_GT(rounds, 0U);
  EXPECT_GT(failed, 0U);
}

TEST(ExchangeSeeds, EveryPromiseIsKept) {
  expect_promises_kept(1, fewer(60));
}

TEST(ExchangeSeeds, EveryPromiseIsKeptForManyMoreSeeds) {
  expect_promises_kept(100'001, fewer(1000));
}

}  // namespace
}  // namespace talweg::protocol
