// Workers that speak SwitchML's wire to a switch: over a way that loses, copies and delays, and against the
// apparent bugs of the published client. Its comments have the numbers of conformance cases.
#include "protocol/aggregation/switchml_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "protocol/aggregation/switch.h"
#include "sanitized.h"

namespace talweg::protocol {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * 4);
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / 4);
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

constexpr RoundTimes kTimes = {10 * kMillisecond, kMillisecond, 100 * kMillisecond};

// How often packets are lost, come twice, and come late: by anything up to twenty milliseconds, so after
// those that were sent later, after they have been sent again, and in later sums.
struct LineFaults {
  double loss = 0;
  double copies = 0;
  double delays = 0;
};
constexpr LineFaults kBadWay = {0.1, 0.1, 0.1};

// Some workers, in place, and the switch. What its wire cannot tell from the next round's does not reach the
// switch: a packet whose slot has ended the round after its own.
struct Line {
  struct Worker : PacketSink {
    Line* line = nullptr;
    std::size_t number = 0;
    std::vector<std::byte> data;
    std::unique_ptr<SwitchmlWorker> worker;
    std::vector<wire::SwitchmlHeader> sent;
    std::vector<std::uint64_t> rounds;  // by slot, the one it is at: its versions take turns
    void send(std::span<const std::byte> packet) override {
      wire::SwitchmlHeader header;
      ASSERT_EQ(wire::decode(packet, header), nullptr);
      sent.push_back(header);
      std::uint64_t& round = rounds.at(header.slot);
      if ((round % 2 == 1) != header.version) ++round;
      line->carry([l = line, n = number, slot = header.slot, round,
                   copy = std::vector<std::byte>(packet.begin(), packet.end())] {
        if (l->ended[slot] < round + 2) l->at_switch(n, copy);
      });
    }
  };
  Line(std::size_t workers, std::uint16_t slots, std::uint64_t seed = 1, LineFaults is = {})
      : random(seed), way(is), box({64 << 20, 4, 1e12}), ended(slots, 0) {
    std::vector<std::uint64_t> hosts;
    for (std::size_t w = 0; w < workers; ++w) hosts.push_back(w);
    EXPECT_FALSE(box.open(SwitchmlTerms{1, hosts, slots, 64, 1e12}));
    for (std::size_t w = 0; w < workers; ++w) {
      members.push_back(std::make_unique<Worker>());
      members[w]->line = this;
      members[w]->number = w;
      members[w]->rounds.assign(slots, 0);
      members[w]->worker = std::make_unique<SwitchmlWorker>(
          SwitchmlWorkerTerms{static_cast<std::uint8_t>(workers), 0, slots, 64, kTimes}, *members[w]);
    }
  }
  bool chance(double of) { return of > 0 && random.uniform() < of; }
  void carry(const std::function<void()>& arrival) {
    if (lose ? lose() : chance(way.loss)) return;
    for (int copies = chance(way.copies) ? 2 : 1; copies > 0; --copies) {
      std::int64_t delay_ns = 1000;
      if (chance(way.delays))
        delay_ns += static_cast<std::int64_t>(random.below(20 * kMillisecond >> random.below(16)));
      queue.emplace(now_ns + delay_ns, arrival);  // after those that are there for the same time
    }
  }
  void at_switch(std::size_t worker, const std::vector<std::byte>& packet) {
    for (const SwitchAction& action : box.on_switchml(packet, {worker, 1}, now_ns)) {
      wire::SwitchmlHeader header;
      ASSERT_EQ(wire::decode(action.payload, header), nullptr);
      if (action.to == SwitchAction::To::all) ++ended[header.slot];
      for (const Peer& peer : action.peers)
        carry([this, to = peer.host, of = sums,
               copy = std::vector<std::byte>(action.payload.begin(), action.payload.end())] {
          if (of != sums) ++of_earlier_sums;
          members[to]->worker->on(copy, now_ns);
        });
    }
  }
  // Everybody sums; false: not within the deadline.
  bool sum(SwitchmlElements elements, std::int64_t patience_ns = 1000 * kMillisecond * 60) {
    ++sums;
    for (auto& m : members)
      m->worker->start({m->data.data(), m->data.data(), m->data.size() / 4, elements}, now_ns + patience_ns,
                       now_ns);
    const auto over = [&] {
      return std::all_of(members.begin(), members.end(),
                         [](const auto& m) { return m->worker->done() || m->worker->failure(); });
    };
    while (!over()) {
      std::int64_t next = std::numeric_limits<std::int64_t>::max();
      for (auto& m : members) next = std::min(next, m->worker->next_time_ns());
      if (!queue.empty() && queue.begin()->first <= next) {
        const auto event = queue.extract(queue.begin());
        now_ns = std::max(now_ns, event.key());
        event.mapped()();
        continue;
      }
      now_ns = std::max(now_ns, next);
      for (auto& m : members) m->worker->on_time(now_ns);
    }
    return std::all_of(members.begin(), members.end(), [](const auto& m) { return m->worker->done(); });
  }

  Random random;
  LineFaults way;
  AggregationSwitch box;
  std::vector<std::unique_ptr<Worker>> members;
  std::multimap<std::int64_t, std::function<void()>> queue;  // by the time at which they happen
  std::function<bool()> lose;
  std::vector<std::uint64_t> ended;  // rounds of each slot
  std::uint64_t sums = 0, of_earlier_sums = 0;
  std::int64_t now_ns = 0;
};

// One worker that is its job's only one, so that what it sends is its result too; answered by hand.
struct Alone : PacketSink {
  explicit Alone(std::uint16_t slots) : worker({1, 0, slots, 64, kTimes}, *this) {}
  void send(std::span<const std::byte> packet) override { sent.emplace_back(packet.begin(), packet.end()); }
  void start(std::size_t blocks, SwitchmlElements elements) {
    std::vector<float> values(64 * blocks);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    data = bytes_of(values);
    sent.clear();
    worker.start({data.data(), data.data(), values.size(), elements}, now_ns + 60'000 * kMillisecond, now_ns);
  }
  wire::SwitchmlHeader header(std::size_t nth) const {
    wire::SwitchmlHeader header;
    EXPECT_EQ(wire::decode(sent.at(nth), header), nullptr);
    return header;
  }
  void answer(std::size_t nth) {
    const std::vector<std::byte> packet = sent.at(nth);  // others may be sent meanwhile
    worker.on(packet, now_ns);
  }
  // Integers of one's own, under this header.
  void forge(const wire::SwitchmlHeader& header) {
    std::vector<std::byte> packet(wire::switchml_bytes(header.elements), std::byte{0x11});
    wire::encode(header, packet.data());
    worker.on(packet, now_ns);
  }
  // The same, and nothing comes of it.
  void forge_in_vain(const wire::SwitchmlHeader& header) {
    SCOPED_TRACE(::testing::Message() << "job " << int{header.job} << " packet " << header.packet << " slot "
                                      << header.slot << " version " << header.version);
    const std::vector<std::byte> before = data;
    const std::size_t packets = sent.size();
    const std::int64_t next_ns = worker.next_time_ns();
    const bool done = worker.done();
    forge(header);
    EXPECT_EQ(data, before);
    EXPECT_EQ(sent.size(), packets);
    EXPECT_EQ(worker.next_time_ns(), next_ns);
    EXPECT_EQ(worker.done(), done);
  }
  // Nothing comes until something is sent again; returns how long that took.
  std::int64_t wait_in_vain() {
    const std::int64_t start_ns = now_ns;
    for (const std::size_t packets = sent.size(); sent.size() == packets && !worker.failure();) {
      now_ns = std::max(now_ns, worker.next_time_ns());
      worker.on_time(now_ns);
    }
    return now_ns - start_ns;
  }

  std::vector<std::vector<std::byte>> sent;
  std::vector<std::byte> data;
  SwitchmlWorker worker;
  std::int64_t now_ns = 0;
};

// Tensors of every length against the pool's, one after the other, in place; every third seed without loss.
// Adds how many results came in later sums than theirs.
void sum_under_loss(std::uint64_t seed, std::uint64_t* of_earlier_sums = nullptr, int tensors = 4) {
  Random random(seed, 7);
  const std::size_t workers = 1 + random.below(5);
  const auto slots = static_cast<std::uint16_t>(1 + random.below(6));
  LineFaults way = kBadWay;
  if (seed % 3 == 0) way.loss = 0;
  Line line(workers, slots, seed, way);
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const std::size_t count = random.below(64 * slots * 3);
    const bool integers = random.below(2) == 0;
    std::vector<std::uint32_t> ints(count);
    std::vector<double> sums(count);
    for (auto& m : line.members) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(random.uniform() * 2 - 1);
        sums[i] += static_cast<double>(values[i]);
        ints[i] += std::bit_cast<std::uint32_t>(values[i]);
      }
      m->data = bytes_of(values);
    }
    ASSERT_TRUE(line.sum(integers ? SwitchmlElements::i32 : SwitchmlElements::f32)) << "seed " << seed;
    for (const auto& m : line.members) ASSERT_EQ(m->data, line.members[0]->data) << "seed " << seed;
    const std::vector<float> result = floats_of(line.members[0]->data);
    for (std::size_t i = 0; i < count; ++i) {
      if (integers)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(result[i]), ints[i]) << "seed " << seed << " element " << i;
      else  // a unit of the integers for each worker, and the sum's own rounding
        ASSERT_NEAR(static_cast<double>(result[i]), sums[i], 0x1p-22 * static_cast<double>(workers))
            << "seed " << seed << " element " << i;
    }
  }
  if (of_earlier_sums != nullptr) *of_earlier_sums += line.of_earlier_sums;
}

// C4, C6, C7, C8, C20
TEST(SwitchmlWorker, SumsAreRightAndTheSameEverywhereForEveryLengthUnderLossCopiesAndDelays) {
  std::uint64_t of_earlier_sums = 0;
  for (std::uint64_t seed = 1; seed <= 60 && !HasFatalFailure(); ++seed)
    sum_under_loss(seed, &of_earlier_sums);
  EXPECT_GT(of_earlier_sums, 20U);
}

TEST(SwitchmlWorker, SumsAreRightUnderLossForManyMoreSeeds) {
  for (std::uint64_t seed = 1001; seed <= (kSanitized ? 1'100 : 11'000) && !HasFatalFailure(); ++seed)
    sum_under_loss(seed);
}

// C9
TEST(SwitchmlWorker, SumsAreRightUnderLossCopiesAndDelaysWhenTheJobByteHasWrappedTwice) {
  for (std::uint64_t seed = 61; seed <= 62 && !HasFatalFailure(); ++seed) sum_under_loss(seed, nullptr, 600);
}

// C8, C9: of four slots, and the second of two sums, so that jobs, slots and versions are not all zero
TEST(SwitchmlWorker, AResultOfAnotherJobSlotOrVersionOrThatNothingWasSentForOrThatIsHereChangesNothing) {
  for (const SwitchmlElements elements : {SwitchmlElements::i32, SwitchmlElements::f32}) {
    Alone alone(4);
    alone.start(3, SwitchmlElements::i32);
    for (std::size_t n = 0; n < 3; ++n) alone.answer(n);
    ASSERT_TRUE(alone.worker.done());
    // Floats take twice as many packets as blocks, the first three at once: nothing is sent for one slot.
    constexpr std::uint32_t kPackets = 6;
    alone.start(elements == SwitchmlElements::i32 ? kPackets : kPackets / 2, elements);
    for (std::uint32_t n = 0; n < kPackets; ++n) {
      const wire::SwitchmlHeader expected = alone.header(n);
      ASSERT_EQ(expected.packet, n);
      for (const int job : {-1, 1, 128}) {
        wire::SwitchmlHeader other = expected;
        other.job = static_cast<std::uint8_t>(other.job + job);
        alone.forge_in_vain(other);
      }
      for (const unsigned slot : {1, 2, 3, 4, 0x4000}) {
        wire::SwitchmlHeader other = expected;
        other.slot = static_cast<std::uint16_t>(other.slot ^ slot);
        alone.forge_in_vain(other);
      }
      wire::SwitchmlHeader other = expected;
      other.version = !other.version;
      alone.forge_in_vain(other);
      // As they will be, but not sent yet, or beyond the last.
      for (auto packet = static_cast<std::uint32_t>(alone.sent.size()); packet < kPackets + 2; ++packet) {
        wire::SwitchmlHeader later = expected;
        const unsigned place = expected.slot + (expected.version ? 4U : 0U) + packet - n;
        later.packet = packet;
        later.slot = static_cast<std::uint16_t>(place % 4);
        later.version = place % 8 >= 4;
        alone.forge_in_vain(later);
      }
      other = expected;
      other.packet = 0xffff'ffff;
      alone.forge_in_vain(other);
      EXPECT_FALSE(alone.worker.done());
      alone.answer(n);
      alone.forge_in_vain(expected);
    }
    ASSERT_TRUE(alone.worker.done());
    const std::vector<float> values = floats_of(alone.data);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], static_cast<float>(i + 1), 1e-4F);
  }
}

// C9
TEST(SwitchmlWorker, TheJobByteWrapsAndTellsEachSumFromThoseNextToIt) {
  Alone alone(2);
  for (int sum = 0; sum < 600; ++sum) {
    alone.start(1, SwitchmlElements::i32);
    ASSERT_EQ(alone.sent.size(), 1U);
    wire::SwitchmlHeader header = alone.header(0);
    ASSERT_EQ(header.job, sum % 256);
    --header.job;
    alone.forge_in_vain(header);
    ASSERT_FALSE(alone.worker.done());
    alone.answer(0);
    ASSERT_TRUE(alone.worker.done());
  }
}

// Karn's rule: the answer may be to the first sending or to the last
TEST(SwitchmlWorker, ALateAnswerToAPacketThatWasSentAgainDoesNotChangeHowLongTheNextOneWaits) {
  Alone alone(1);
  alone.start(14, SwitchmlElements::i32);
  const auto answer_after = [&](std::int64_t after_ns) {
    alone.now_ns += after_ns;
    alone.answer(alone.sent.size() - 1);
  };
  // The packets next are all answered late, this long after they were sent for the last time.
  const auto each_waits = [&](std::int64_t wait_ns) {
    for (const int times : {1, 2})
      for (const std::int64_t after_ns : {std::int64_t{1000}, wait_ns / 2, wait_ns - 1000}) {
        for (int again = 0; again < times; ++again)
          EXPECT_EQ(alone.wait_in_vain(), wait_ns << again) << "before the answer after " << after_ns;
        answer_after(after_ns);
      }
  };
  each_waits(kTimes.first_ns);  // nothing has been measured
  answer_after(4 * kMillisecond);
  each_waits(12 * kMillisecond);  // four, and four times its half
  EXPECT_EQ(alone.header(alone.sent.size() - 1).packet, 13U);
  EXPECT_EQ(alone.wait_in_vain(), 12 * kMillisecond);
}

// C20: across runs, and pools of any size
TEST(SwitchmlWorker, TheSameInputsHaveTheSameBitsWhateverIsLostCopiedOrLate) {
  constexpr std::size_t kWorkers = 5;
  const auto results_of = [](std::uint16_t slots, std::uint64_t seed, const LineFaults& way) {
    Line line(kWorkers, slots, seed, way);
    Random random(20);  // of the inputs: the same each time
    std::vector<std::vector<std::byte>> results;
    for (const SwitchmlElements elements :
         {SwitchmlElements::f32, SwitchmlElements::i32, SwitchmlElements::f32}) {
      const std::size_t count = 64 * 10 - 7;
      for (auto& m : line.members) {
        std::vector<float> values(count);
        int exponent = 0;
        for (std::size_t i = 0; i < count; ++i) {
          if (i % 64 == 0) exponent = static_cast<int>(random.below(8));
          values[i] = std::ldexp(static_cast<float>(random.uniform() * 2 - 1), exponent);
        }
        m->data = bytes_of(values);
      }
      EXPECT_TRUE(line.sum(elements)) << "seed " << seed;
      for (const auto& m : line.members) results.push_back(m->data);
    }
    return results;
  };
  const auto expected = results_of(4, 1, {});
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const std::uint16_t slots : {std::uint16_t{4}, static_cast<std::uint16_t>(1 + seed)})
      ASSERT_EQ(results_of(slots, seed, kBadWay), expected) << "seed " << seed << " slots " << slots;
}

// C5; bug (a): the published client sends a lost packet of its first burst again under the next one's number
TEST(SwitchmlWorker, APacketThatIsLostFromTheFirstBurstIsSentAgainAsItself) {
  Line line(1, 4);
  int nth = 0;
  line.lose = [&] { return ++nth == 2; };  // the second packet
  std::vector<float> values(64 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 64 + 1);
  line.members[0]->data = bytes_of(values);
  ASSERT_TRUE(line.sum(SwitchmlElements::i32));
  const auto& sent = line.members[0]->sent;
  ASSERT_EQ(sent.size(), 5U);
  EXPECT_EQ(sent[4], sent[1]);
  EXPECT_EQ(sent[1].packet, 1U);
  EXPECT_EQ(floats_of(line.members[0]->data), values);
}

// Bug (b): of a tensor shorter than the pool the published client stops the wrong timers
TEST(SwitchmlWorker, NothingIsSentAgainOnceItsResultIsHere) {
  Line line(2, 16);
  for (const std::size_t blocks : {1, 3, 16, 17, 40}) {
    for (auto& m : line.members) m->data = bytes_of(std::vector<float>(64 * blocks, 1.5F));
    ASSERT_TRUE(line.sum(SwitchmlElements::f32));
    for (auto& m : line.members) {
      EXPECT_EQ(m->worker->sent_again(), 0U);
      EXPECT_EQ(m->worker->next_time_ns(), std::numeric_limits<std::int64_t>::max());
    }
  }
}

// The published client sends packet k on the result of packet k - L alone
TEST(SwitchmlWorker, ASlotIsNotUsedAgainBeforeItsResultIsHereAlsoByShortTensors) {
  Line line(1, 4);
  // 3 blocks and 3 exponents in 4 slots: packet 4 is ready when the result of packet 1 is here, and takes the
  // slot of packet 0, whose result is lost.
  int nth = 0;
  line.lose = [&] { return ++nth == 4; };
  line.members[0]->data = bytes_of(std::vector<float>(64 * 3, 1));
  ASSERT_TRUE(line.sum(SwitchmlElements::f32));
  std::vector<std::uint32_t> numbers;
  for (const auto& h : line.members[0]->sent) numbers.push_back(h.packet);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 0U), 2);
  const auto again = std::find(numbers.begin() + 1, numbers.end(), 0U);
  EXPECT_LT(again, std::find(numbers.begin(), numbers.end(), 4U));
  EXPECT_LT(std::find(numbers.begin(), numbers.end(), 5U), again) << "others need not wait";
  for (const float v : floats_of(line.members[0]->data)) EXPECT_EQ(v, 1);
}

// C11
TEST(SwitchmlWorker, BlocksThatAreZeroTinyInfiniteOrOfLargestMantissasAreDefined) {
  for (const std::size_t workers : {1, 3, 5, 6, 7}) {
    Line line(workers, 4);
    const float almost_two = std::nextafter(2.0F, 0.0F);
    const float block_values[] = {0, 1e-40F, 0x1p-120F, almost_two, -almost_two, INFINITY, NAN, 0x1p127F};
    std::vector<float> values;
    for (const float v : block_values) values.insert(values.end(), 64, v);
    for (auto& m : line.members) m->data = bytes_of(values);
    ASSERT_TRUE(line.sum(SwitchmlElements::f32));
    const std::vector<float> result = floats_of(line.members[0]->data);
    const auto n = static_cast<float>(workers);
    for (std::size_t b = 0; b < 3; ++b) EXPECT_EQ(result[b * 64], 0) << block_values[b];
    EXPECT_NEAR(result[3 * 64], n * almost_two, 1e-5F);
    EXPECT_NEAR(result[4 * 64], -n * almost_two, 1e-5F);
    for (std::size_t b = 5; b < 8; ++b) EXPECT_TRUE(std::isnan(result[b * 64])) << block_values[b];
  }
}

// C13, C19
TEST(SwitchmlWorker, WhoseSwitchIsSilentSendsLessAndLessOftenAndFailsAtItsDeadline) {
  Line line(2, 1);
  line.lose = [] { return true; };
  for (auto& m : line.members) m->data = bytes_of(std::vector<float>(64, 1));
  EXPECT_FALSE(line.sum(SwitchmlElements::i32, 1000 * kMillisecond));
  // 10, 20, 40, 80 and then 100 ms apart: not a hundred times.
  EXPECT_GE(line.members[0]->worker->sent_again(), 10U);
  EXPECT_LE(line.members[0]->worker->sent_again(), 14U);
  ASSERT_TRUE(line.members[0]->worker->failure());
  EXPECT_EQ(
      line.members[0]->worker->failure()->text,
      "a sum by SwitchML's protocol: 1 of 1 packets have no result by the deadline; its wire does not say "
      "which of the 2 workers are missing");
}

// C10
TEST(SwitchmlWorker, MoreThanThirtyTwoWorkersAreRefused) {
  Line line(1, 1);
  EXPECT_THROW(SwitchmlWorker({33, 0, 4, 64, {}}, *line.members[0]), Error);
  EXPECT_THROW(SwitchmlWorker({2, 0, 0, 64, {}}, *line.members[0]), Error);
  EXPECT_THROW(SwitchmlWorker({2, 0, 4, 128, {}}, *line.members[0]), Error);
}

}  // namespace
}  // namespace talweg::protocol
