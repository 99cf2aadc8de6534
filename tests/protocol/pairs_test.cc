// Sums by key: a switch's, a worker's vector as pairs, and both together, whatever the density and the order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "protocol/aggregation/own_pairs.h"
#include "protocol/aggregation/pair_sums.h"
#include "protocol/aggregation/worker.h"
#include "protocol/one_switch.h"

namespace talweg::protocol {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Pairs = std::vector<std::pair<std::uint16_t, float>>;

constexpr auto kPairs = AggregationFormat::pairs;

std::vector<std::byte> on_wire(const Pairs& pairs) {
  std::vector<std::byte> data(pairs.size() * 6);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    std::memcpy(data.data() + i * 4, &pairs[i].second, 4);
    std::memcpy(data.data() + pairs.size() * 4 + i * 2, &pairs[i].first, 2);
  }
  return data;
}

Pairs off_wire(std::span<const std::byte> data) {
  const wire::PairsOnWire pairs(data);
  Pairs all;
  for (std::size_t i = 0; i < pairs.count; ++i) all.emplace_back(pairs.distance(i), pairs.value(i));
  return all;
}

Pairs drawn(Random& random, std::size_t most, std::uint64_t keys) {
  std::map<std::uint16_t, float> chosen;
  const std::size_t count = random.below(most + 1);
  for (std::size_t i = 0; i < count; ++i)
    chosen[static_cast<std::uint16_t>(random.below(keys))] = static_cast<float>(1 + random.below(9));
  return {chosen.begin(), chosen.end()};
}

// Held against a map of all: the smallest keys are left, and they are whole.
TEST(PairSums, KeepTheSmallestKeysInAnyOrderOfWorkers) {
  Random random(41);
  for (int round = 0; round < 3000; ++round) {
    const std::size_t most = 1 + random.below(12);
    const std::uint64_t keys = 1 + random.below(random.below(2) == 0 ? 20 : 0x10000);
    const std::uint64_t given_end = random.below(3) == 0 ? 1 + random.below(keys) : ~std::uint64_t{0};
    std::vector<Pairs> parts(1 + random.below(9));
    std::map<std::uint16_t, float> all;
    for (Pairs& part : parts) {
      part = drawn(random, most, keys);
      for (const auto& [key, value] : part) all[key] += value;
    }
    for (const bool kept : {false, true}) {
      std::vector<std::uint64_t> memory(most), other(most);  // more than 6 bytes each
      PairSums sums(reinterpret_cast<std::byte*>(memory.data()), most);
      std::uint64_t end = given_end;
      std::uint16_t count = 0;
      for (std::size_t i = parts.size(); i > 1; --i) std::swap(parts[i - 1], parts[random.below(i)]);
      for (const Pairs& part : parts) {
        PairSums one(reinterpret_cast<std::byte*>(other.data()), most);
        if (kept && part.empty()) continue;
        if (kept) one.keep(on_wire(part));
        count = kept ? sums.add(count, one, end) : sums.add(count, on_wire(part), end);
      }
      std::vector<std::byte> data(count * std::size_t{6});
      if (count > 0) sums.write(count, data.data());
      Pairs expected;
      std::uint64_t expected_end = given_end;
      for (const auto& [key, value] : all) {
        if (key >= given_end) break;
        if (expected.size() == most) {
          expected_end = key;
          break;
        }
        expected.emplace_back(key, value);
      }
      ASSERT_EQ(off_wire(data), expected);
      ASSERT_EQ(end, expected_end);
    }
  }
}

Sum sum_of(const std::vector<float>& in, std::vector<float>& out, std::uint16_t block = 3) {
  Sum sum{reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()), in.size()};
  sum.format = kPairs;
  sum.block = block;
  return sum;
}

TEST(OwnPairs, AreAllThatIsNotZeroWhereverRoundsEnd) {
  Random random(42);
  for (int round = 0; round < 400; ++round) {
    const auto columns = 1 + random.below(5);
    const auto lanes = static_cast<std::uint16_t>(1 + random.below(3));
    std::vector<float> in(random.below(2000)), out(in.size(), -7);
    const double density = std::pow(random.uniform(), 3);
    for (float& x : in) x = random.uniform() < density ? static_cast<float>(random.next()) : -0.0F;
    const std::vector<float> before = in;
    const bool in_place = random.below(2) == 0;
    for (std::uint16_t lane = 0; lane < lanes; ++lane) {
      Sum sum = sum_of(in, in_place ? in : out, static_cast<std::uint16_t>(2 + random.below(20)));
      sum.lane = lane;
      sum.lanes = lanes;
      OwnPairs pairs;
      pairs.reset(sum, columns);
      for (std::uint64_t column = 0; column < columns; ++column) {
        if (pairs.keys(column) == 0) continue;
        for (std::uint64_t block = 0; block != kNeverNext;) {
          const std::uint64_t own = pairs.advance(column, block);
          std::vector<std::byte> data(pairs.count(column) * std::size_t{6});
          if (!data.empty()) pairs.write(column, data.data());
          Pairs said = off_wire(data);
          std::uint64_t next = own;
          // The switch may cut it short anywhere behind the first key.
          if (!said.empty() && random.below(2) == 0) {
            next = block + std::max<std::uint64_t>(1, said[random.below(said.size())].first);
            while (!said.empty() && block + said.back().first >= next) said.pop_back();
          }
          pairs.accept(column, block, next, on_wire(said));
          block = next;
        }
      }
    }
    const std::vector<float>& result = in_place ? in : out;
    for (std::size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(result[i], before[i]) << i << " of " << before.size();
      ASSERT_FALSE(std::signbit(result[i])) << i;
    }
  }
}

TEST(OwnPairs, FarApartAreSaidInRoundsOfTheirOwn) {
  std::vector<float> in(200'000), out(in.size(), -7);
  in[3] = 1;
  in[3 + 65535] = 2;
  in[70'000] = 3;
  in[199'999] = 4;
  OwnPairs pairs;
  pairs.reset(sum_of(in, out, 256), 1);
  EXPECT_EQ(pairs.advance(0, 0), 65538U);
  EXPECT_EQ(pairs.count(0), 1U);
  EXPECT_EQ(pairs.advance(0, 3), 70'000U) << "65535 behind it is as far as two bytes say";
  EXPECT_EQ(pairs.count(0), 2U);
  EXPECT_EQ(pairs.advance(0, 65538), 199'999U);
  EXPECT_EQ(pairs.count(0), 2U);
  EXPECT_EQ(pairs.advance(0, 199'999), kNeverNext);
  EXPECT_EQ(pairs.count(0), 1U);
}

TEST(OwnPairs, OfADenseHeadAreEveryColumns) {
  std::vector<float> in(64 * 100), out(in.size());
  std::fill_n(in.begin(), 640, 1.0F);
  OwnPairs pairs;
  pairs.reset(sum_of(in, out, 300), 10);
  for (std::size_t column = 0; column < 10; ++column) {
    EXPECT_EQ(pairs.advance(column, 0), kNeverNext);
    EXPECT_EQ(pairs.count(column), 64U) << column;
  }
}

// Workers and a switch, datagrams in any order.
class PairsWorld {
 public:
  PairsWorld(std::uint16_t workers, const JobTerms& terms, Random& random) : one_(terms), random_(random) {
    for (std::uint16_t w = 0; w < workers; ++w) {
      sinks_.push_back(std::make_unique<Sink>(*this));
      workers_.push_back(std::make_unique<AggregationWorker>(
          WorkerTerms{1, 1, w, workers, 0, terms.slots, terms.columns, terms.block, {}}, *sinks_.back()));
    }
  }
  void sum(const std::vector<std::vector<float>>& in, std::vector<std::vector<float>>& out,
           std::uint32_t operation) {
    bytes_up = 0;
    for (std::size_t w = 0; w < workers_.size(); ++w)
      workers_[w]->start(sum_of(in[w], out[w], one_terms_block_), operation, 1'000'000'000, 0);
    while (!under_way_.empty()) {
      std::swap(under_way_.front(), under_way_[random_.below(under_way_.size())]);
      const Datagram datagram = std::move(under_way_.front());
      under_way_.pop_front();
      if (datagram.to >= 0) {
        workers_[static_cast<std::size_t>(datagram.to)]->on(datagram.header, datagram.payload, 0);
        continue;
      }
      for (const SwitchAction& action :
           one_.box.on(datagram.header, datagram.payload, {datagram.header.sender, 1}, 0))
        for (const Peer& peer : action.peers)
          under_way_.push_back(
              {static_cast<int>(peer.host), action.header, {action.payload.begin(), action.payload.end()}});
    }
    for (const auto& worker : workers_) {
      EXPECT_TRUE(worker->done());
      EXPECT_FALSE(worker->failure());
    }
  }
  void blocks_of(std::uint16_t block) { one_terms_block_ = block; }
  SwitchCounters counters() { return one_.counters(); }

  std::size_t bytes_up = 0;  // of all workers

 private:
  struct Datagram {
    int to;  // a worker, or -1
    wire::DatagramHeader header;
    std::vector<std::byte> payload;
  };
  struct Sink : DatagramSink {
    explicit Sink(PairsWorld& w) : world(w) {}
    void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override {
      world.bytes_up += payload.size();
      world.under_way_.push_back({-1, header, {payload.begin(), payload.end()}});
    }
    PairsWorld& world;
  };

  OneSwitch one_;
  Random& random_;
  std::uint16_t one_terms_block_ = 0;
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<std::unique_ptr<AggregationWorker>> workers_;
  std::deque<Datagram> under_way_;
};

TEST(PairsOfWorkersAndASwitch, ComeToTheSerialSumForAnyDensityAndOverlap) {
  Random random(43);
  for (std::uint16_t workers = 1; workers <= 9; ++workers)
    for (const int job : {0, 1, 2, 3}) {
      const bool ordered = job % 2 == 1;
      JobTerms terms = terms_of(workers);
      terms.ordered = ordered;
      terms.tolerant = job >= 2;  // of other sums than these
      terms.block = static_cast<std::uint16_t>(2 + random.below(60));
      terms.bytes_per_second = 1e10;
      PairsWorld world(workers, terms, random);
      world.blocks_of(terms.block);
      std::uint32_t operation = 0;
      for (const double density : {0.0, 0.001, 0.03, 0.3, 1.0})
        for (const int overlap : {0, 1, 2}) {  // each draws its own; all the same; none in common
          const std::size_t count = 1 + random.below(4000);
          std::vector<std::vector<float>> in(workers, std::vector<float>(count)), out = in;
          for (std::size_t i = 0; i < count; ++i) {
            const bool shared = random.uniform() < density;
            const std::size_t whose = random.below(workers);
            for (std::size_t w = 0; w < workers; ++w)
              if (overlap == 0 ? random.uniform() < density : overlap == 1 ? shared : shared && whose == w)
                in[w][i] = ordered ? static_cast<float>(random.uniform() - 0.5) * 1e6F
                                   : static_cast<float>(random.below(9)) - 4;
          }
          std::vector<float> expected(count);
          for (const auto& one : in)
            for (std::size_t i = 0; i < count; ++i) expected[i] += one[i];
          world.sum(in, out, ++operation);
          for (const auto& result : out) ASSERT_EQ(result, expected) << workers << " workers, " << density;
        }
      const SwitchCounters c = world.counters();
      EXPECT_EQ(c.malformed + c.out_of_range + c.disagreements + c.early, 0U);
    }
}

// What is cut off is sent again with what follows: no more goes up than comes down.
TEST(PairsOfWorkersAndASwitch, SendNoMoreThanWhatAllTogetherHave) {
  Random random(44);
  constexpr std::size_t kCount = 200'000;
  constexpr std::uint16_t kWorkers = 8;
  JobTerms terms = terms_of(kWorkers);
  terms.block = 256;
  terms.bytes_per_second = 1e10;
  PairsWorld world(kWorkers, terms, random);
  world.blocks_of(256);
  std::vector<std::vector<float>> in(kWorkers, std::vector<float>(kCount)), out = in;
  std::size_t any = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    bool held = false;
    for (auto& one : in)
      if (random.uniform() < 0.02) {
        one[i] = 1;
        held = true;
      }
    any += held ? 1 : 0;
  }
  world.sum(in, out, 1);
  EXPECT_LT(static_cast<double>(world.bytes_up), 1.15 * 6 * static_cast<double>(any) * kWorkers);
}

TEST(PairsAtASwitch, BeyondTheirRoomAreRefusedAndChangeNothing) {
  OneSwitch one(terms_of(2));  // blocks of 8 elements: 5 pairs
  const auto contribution = [](const Pairs& pairs, std::uint64_t block, std::uint64_t next) {
    std::vector<std::byte> buffer(1000);
    wire::AggregationWriter writer(buffer);
    writer.begin(kPairs);
    AggregationEntry entry{block, next, wire::kZeroExponent, static_cast<std::uint16_t>(pairs.size()),
                           0,     false};
    entry.data = !pairs.empty();
    const std::vector<std::byte> data = on_wire(pairs);
    std::byte* const at = writer.add(entry);
    if (entry.data) std::memcpy(at, data.data(), data.size());
    return std::vector<std::byte>(writer.payload().begin(), writer.payload().end());
  };
  const auto send = [&](std::uint16_t worker, const Pairs& pairs, std::uint64_t next = kNeverNext) {
    return one.hand(one.header(worker, 1), contribution(pairs, 10, next));
  };
  EXPECT_THAT(send(0, {{0, 1}, {4, 2}, {9, 3}}), IsEmpty());
  EXPECT_THAT(send(1, {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}), IsEmpty());
  EXPECT_EQ(one.counters().out_of_range, 1U) << "six do not fit";
  EXPECT_THAT(send(1, {{4, 1}, {3, 1}}), IsEmpty());
  EXPECT_THAT(send(1, {{4, 1}, {4, 1}}), IsEmpty());
  EXPECT_THAT(send(1, {{4, 1}}, 14), IsEmpty());
  EXPECT_EQ(one.counters().malformed, 3U);
  const auto other = one.hand(one.header(1, 1), OneSwitch::payload({{10, kNeverNext, {4, 4}}}));
  ASSERT_THAT(other, SizeIs(1));
  EXPECT_EQ(other[0].refusal.reason, wire::AggregationReason::disagreement);
  // 0, 2, 4, 5, 8 and 9: the last one has no room.
  const auto said = send(1, {{2, 5}, {4, 5}, {5, 5}, {8, 5}});
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].to, SwitchAction::To::all);
  EXPECT_EQ(said[0].entries[0].next, 19U);
  EXPECT_THAT(off_wire(said[0].data[0]),
              ElementsAre(std::pair(0, 1.0F), std::pair(2, 5.0F), std::pair(4, 7.0F), std::pair(5, 5.0F),
                          std::pair(8, 5.0F)));
}

struct Kept : DatagramSink {
  std::vector<UnpackedMessage> sent;
  void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override {
    sent.emplace_back(header, payload);
  }
};

struct OneWorker {
  OneWorker() : worker({1, 1, 0, 2, 0, 1, 1, 8, {}}, sink), input(100), output(100, -7) {
    input[3] = 1;
    input[50] = 2;
    worker.start(sum_of(input, output, 3), 1, 1'000'000'000, 0);  // two pairs
  }
  void result(const Pairs& pairs, std::uint64_t block, std::uint64_t next, bool version = false) {
    std::vector<std::byte> buffer(1000);
    wire::AggregationWriter writer(buffer);
    writer.begin(kPairs);
    AggregationEntry entry{block, next,   wire::kZeroExponent, static_cast<std::uint16_t>(pairs.size()),
                           0,     version};
    entry.data = !pairs.empty();
    const std::vector<std::byte> data = on_wire(pairs);
    std::byte* const at = writer.add(entry);
    if (entry.data) std::memcpy(at, data.data(), data.size());
    wire::DatagramHeader h;
    h.type = static_cast<std::uint8_t>(AggregationType::result);
    h.job = h.epoch = h.own32 = 1;
    worker.on(h, writer.payload(), 0);
  }
  Kept sink;
  AggregationWorker worker;
  std::vector<float> input, output;
};

TEST(PairsOfAWorker, ThatAreCutOffAreSentAgainWithWhatFollows) {
  OneWorker one;
  ASSERT_THAT(one.sink.sent, SizeIs(1));
  EXPECT_THAT(off_wire(one.sink.sent[0].data[0]), ElementsAre(std::pair(3, 1.0F), std::pair(50, 2.0F)));
  EXPECT_EQ(one.sink.sent[0].entries[0].next, kNeverNext);
  one.result({{1, 9}, {3, 10}}, 0, 20);
  ASSERT_THAT(one.sink.sent, SizeIs(2));
  EXPECT_EQ(one.sink.sent[1].entries[0].block, 20U);
  EXPECT_THAT(off_wire(one.sink.sent[1].data[0]), ElementsAre(std::pair(30, 2.0F)));
  EXPECT_EQ(one.output[1], 9);
  EXPECT_EQ(one.output[3], 10);
  EXPECT_EQ(one.output[19], 0);
  EXPECT_EQ(one.output[20], -7) << "not done yet";
  one.result({{30, 4}, {79, 5}}, 20, kNeverNext, true);
  EXPECT_TRUE(one.worker.done());
  EXPECT_EQ(one.output[50], 4);
  EXPECT_EQ(one.output[99], 5);
}

// Beyond the vector; going on beyond it, or beyond what this worker has not said yet.
TEST(PairsOfAWorker, AreNotWrittenWhereTheyCannotBe) {
  for (const auto& [pairs, next] : std::vector<std::pair<Pairs, std::uint64_t>>{
           {{{100, 1}}, kNeverNext}, {{{3, 1}}, 100}, {{{65535, 1}}, kNeverNext}}) {
    OneWorker one;
    one.result(pairs, 0, next);
    ASSERT_TRUE(one.worker.failure());
    EXPECT_EQ(one.worker.failure()->code, ErrorCode::corrupted);
    EXPECT_EQ(std::accumulate(one.output.begin(), one.output.end(), 0.0F), -700);
  }
  std::vector<float> input(100, 1.0F), output(100);
  Kept sink;
  AggregationWorker worker({1, 1, 0, 2, 0, 1, 1, 8, {}}, sink);
  EXPECT_THROW(worker.start(sum_of(input, output, 1), 1, 1, 0), Error) << "no room for one";
  worker.start(sum_of(input, output, 3), 1, 1'000'000'000, 0);
  EXPECT_EQ(sink.sent.at(0).entries[0].next, 2U);
  OneWorker passed_over;
  passed_over.input[60] = 1;  // a third one
  Kept again;
  AggregationWorker third({1, 1, 0, 2, 0, 1, 1, 8, {}}, again);
  third.start(sum_of(passed_over.input, passed_over.output, 3), 1, 1'000'000'000, 0);
  EXPECT_EQ(again.sent.at(0).entries[0].next, 60U);
  wire::DatagramHeader h;
  h.type = static_cast<std::uint8_t>(AggregationType::result);
  h.job = h.epoch = h.own32 = 1;
  std::vector<std::byte> buffer(100);
  wire::AggregationWriter writer(buffer);
  writer.begin(kPairs);
  writer.add({0, 61, wire::kZeroExponent, 0, 0, false});
  third.on(h, writer.payload(), 0);
  ASSERT_TRUE(third.failure());
  EXPECT_EQ(third.failure()->code, ErrorCode::corrupted);
}

TEST(PairsOfAWorker, AreNumbersThatAreNoneToo) {
  Random random(45);
  PairsWorld world(2, terms_of(2), random);
  world.blocks_of(8);
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> in{{0, nan, infinity, -0.0F, 1e-45F, 3}, {0, 1, 5, 0, 0, -3}}, out = in;
  world.sum(in, out, 1);
  for (const auto& result : out) {
    EXPECT_TRUE(std::isnan(result[1]));
    EXPECT_EQ(result[2], infinity);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(result[3]), 0U);
    EXPECT_EQ(result[4], 1e-45F);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(result[5]), 0U);
  }
}

}  // namespace
}  // namespace talweg::protocol
