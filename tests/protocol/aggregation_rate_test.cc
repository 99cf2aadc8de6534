// Results of a job that has a rate for them: they wait, and nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol/aggregation/worker.h"
#include "protocol/aggregation_loss_world.h"
#include "protocol/one_switch.h"
#include "sanitized.h"

namespace talweg::protocol {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kResultRate = 1e6;        // bytes per second
constexpr std::uint16_t kRatedSlots = 64;  // of one column

// A job of one worker, whose results are of so many bytes each that a burst is used up by some of them.
JobTerms rated(double rate = kResultRate, std::uint32_t job = 1) {
  JobTerms terms = terms_of(1, job);
  terms.slots = kRatedSlots;
  terms.columns = 1;
  terms.block = 1000;
  terms.result_bytes_per_second = rate;
  return terms;
}

struct RatedSwitch : OneSwitch {
  explicit RatedSwitch(const JobTerms& terms) : OneSwitch(terms) {}
  std::vector<Said> part(std::uint16_t slot, std::uint32_t of_job = 1) {
    wire::DatagramHeader h = header(0, 1, slot);
    h.job = of_job;
    return hand(h, payload({{slot, kNeverNext, std::vector<std::int32_t>(1000, slot)}}));
  }
  std::vector<Said> ask_slot(std::uint16_t slot) {
    wire::DatagramHeader h = header(0, 1, slot);
    h.type = static_cast<std::uint8_t>(AggregationType::query);
    return hand(h, payload({{slot, kNeverNext, {}}}));
  }
  // Results that come at once, of slots from `slot` on, until one waits: its number.
  std::uint16_t fill_burst(std::uint16_t slot = 0) {
    while (!part(slot).empty()) ++slot;
    return slot;
  }
  std::vector<Said> until(std::int64_t ns) {
    std::vector<Said> all;
    while (box.next_time_ns() <= ns) {
      now_ns = std::max(now_ns, box.next_time_ns());
      for (Said& said : unpacked(box.on_time(now_ns))) all.push_back(said);
    }
    now_ns = ns;
    return all;
  }
};

constexpr std::int64_t kNothingDue = std::numeric_limits<std::int64_t>::max();

TEST(AggregationRate, ResultsBeyondTheRateAreSentLaterInTheOrderInWhichTheirRoundsHaveEnded) {
  RatedSwitch s(rated());
  EXPECT_EQ(s.box.next_time_ns(), kNothingDue);
  const std::uint16_t first = s.fill_burst();
  EXPECT_GT(first, 10) << "a burst of results";
  EXPECT_LT(first + 10, kRatedSlots);
  for (std::uint16_t slot = kRatedSlots - 1; slot > first + 5; --slot) EXPECT_THAT(s.part(slot), IsEmpty());
  EXPECT_GT(s.box.next_time_ns(), s.now_ns);
  const std::size_t waiting = 1 + kRatedSlots - 1 - (first + 5);
  EXPECT_EQ(s.counters().delayed, waiting);
  EXPECT_GE(s.counters().delayed_bytes, waiting * 4000);
  EXPECT_LT(s.counters().delayed_bytes, waiting * 4100);
  const std::vector<Said> said = s.until(1'000'000'000);
  ASSERT_THAT(said, SizeIs(waiting));
  for (std::size_t i = 0; i < waiting; ++i) {
    const std::size_t slot = i == 0 ? first : kRatedSlots - i;
    EXPECT_EQ(said[i].to, SwitchAction::To::all);
    EXPECT_EQ(said[i].type(), AggregationType::result);
    EXPECT_EQ(said[i].header.own16, slot);
    EXPECT_EQ(said[i].number, first + i + 1);
    EXPECT_THAT(said[i].values<std::int32_t>(), ::testing::Each(static_cast<std::int32_t>(slot)));
  }
  EXPECT_EQ(s.box.next_time_ns(), kNothingDue);
  EXPECT_EQ(s.counters().rounds, first + waiting);
}

TEST(AggregationRate, ResultsOfOtherJobsDoNotWaitBesideThem) {
  RatedSwitch s(rated());
  EXPECT_FALSE(s.box.open(rated(0, 2)));
  s.fill_burst();
  for (std::uint16_t slot = 0; slot < kRatedSlots; ++slot) EXPECT_THAT(s.part(slot, 2), SizeIs(1));
  EXPECT_EQ(s.box.counters(2)->delayed, 0U);
  EXPECT_EQ(s.box.counters(2)->delayed_bytes, 0U);
  EXPECT_EQ(s.counters().delayed, 1U);
}

TEST(AggregationRate, WhoAsksForAResultThatWaitsIsToldWhenToAskAgain) {
  RatedSwitch s(rated());
  const std::uint16_t slot = s.fill_burst();
  const auto said = s.ask_slot(slot);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].refusal.reason, wire::AggregationReason::busy);
  EXPECT_EQ(said[0].refusal.of, AggregationType::query);
  // It cannot be named as missing, either: it has not been sent.
  EXPECT_THAT(s.miss(0, {static_cast<std::uint16_t>(slot + 1)}), IsEmpty());
  EXPECT_EQ(s.counters().repeated, 0U);
  const std::int64_t again_ns = s.now_ns + std::int64_t{said[0].refusal.wait_us} * 1000;
  EXPECT_THAT(s.until(again_ns), SizeIs(1)) << "it has been sent when it is time to ask again";
  expect_sum(s.ask_slot(slot), To::one, slot);
  EXPECT_EQ(s.counters().repeated, 1U);
}

TEST(AggregationRate, ResultsThatAreSentAgainAreOfTheRate) {
  RatedSwitch s(rated());
  s.part(0);
  std::size_t repeated = 0, refused = 0;
  for (int i = 0; i < 500; ++i)
    for (const Said& said : i % 2 == 0 ? s.ask_slot(0) : s.miss(0, {1}))
      ++(said.type() == AggregationType::result ? repeated : refused);
  EXPECT_GT(repeated, 10U);
  EXPECT_LT(repeated * 4000, 3U << 16) << "a burst, and one that is owed";
  EXPECT_EQ(repeated + refused, 500U);
  EXPECT_THAT(s.part(1), IsEmpty()) << "they are owed";
  s.until(s.box.next_time_ns());
  EXPECT_GT(static_cast<double>(s.now_ns), 1e9 * (1 << 16) / kResultRate);
}

// A job of many workers, whose result to all of them is more than a burst. Each datagram has all columns of a
// slot, as workers send them, and the last answer stays at hand.
struct CrowdedSwitch : OneSwitch {
  static JobTerms terms(std::uint16_t workers, double rate) {
    JobTerms t = terms_of(workers);
    t.slots = kRatedSlots;
    t.columns = 16;
    t.block = 256;
    t.bytes_per_second = t.burst_bytes = 1e10;
    t.result_bytes_per_second = rate;
    return t;
  }
  CrowdedSwitch(std::uint16_t of, double rate)
      : OneSwitch(terms(of, rate)), workers(of), rounds(kRatedSlots) {}

  std::vector<std::byte> of_slot(std::uint16_t slot, std::uint64_t round, bool data) {
    std::vector<std::byte> buffer(40'000);
    wire::AggregationWriter writer(buffer);
    writer.begin(AggregationFormat::i32);
    const std::uint64_t block = (round * kRatedSlots + slot) * 16;
    for (std::uint8_t column = 0; column < 16; ++column) {
      AggregationEntry entry{block + column, wire::kNeverNext, wire::kZeroExponent, 0,
                             column,         round % 2 == 1};
      if (data) {
        entry.next = block + kRatedSlots * 16 + column;
        entry.count = 256;
        entry.data = true;
      }
      std::byte* const at = writer.add(entry);
      if (data) std::memset(at, 1, 1024);
    }
    return {writer.payload().begin(), writer.payload().end()};
  }
  // All workers' parts of the next round of a slot.
  void contribute(std::uint16_t slot) {
    const std::vector<std::byte> bytes = of_slot(slot, rounds[slot]++, true);
    for (std::uint16_t worker = 0; worker < workers; ++worker) take(hand(header(worker, 1, slot), bytes));
  }
  void take(const std::vector<Said>& said) {
    for (const Said& s : said)
      if (s.to == To::all) sent.push_back(s.header.own16);
  }
  // Worker 0 asks for the result of a slot's last round, when it was told to and no sooner than in a
  // millisecond, while all that have a result go on where `others` do. In how many nanoseconds it has it, or
  // none.
  std::optional<std::int64_t> asks_until_it_has(std::uint16_t slot, std::int64_t most_ns, bool others) {
    const std::int64_t begin_ns = now_ns;
    std::int64_t ask_ns = now_ns;
    const std::vector<std::byte> question = of_slot(slot, rounds[slot] - 1, false);
    while (now_ns < begin_ns + most_ns) {
      for (const std::uint16_t of : std::exchange(sent, {}))
        if (others && of != slot) contribute(of);
      const std::int64_t box_ns = box.next_time_ns();
      now_ns = std::max(now_ns, std::min(ask_ns, box_ns));
      if (box_ns <= now_ns) {
        take(unpacked(box.on_time(now_ns)));
        continue;
      }
      wire::DatagramHeader h = header(0, 1, slot);
      h.type = static_cast<std::uint8_t>(AggregationType::query);
      const std::vector<Said> said = hand(h, question);
      for (const Said& s : said) {
        if (s.type() == AggregationType::result) return now_ns - begin_ns;
        ask_ns = now_ns + std::max<std::int64_t>(1'000'000, s.refusal.wait_us * std::int64_t{1000});
      }
      if (said.empty()) ask_ns = now_ns + 1'000'000;
    }
    return {};
  }

  std::uint16_t workers;
  std::vector<std::uint64_t> rounds;
  std::vector<std::uint16_t> sent;  // results to all, by slot, that nobody has answered yet
};

TEST(AggregationRate, WhoHasLostTheLastResultOfAllGetsItHoweverLittleIsSent) {
  for (const std::uint16_t workers : std::to_array<std::uint16_t>({1, 8, 16})) {
    CrowdedSwitch s(workers, kResultRate);
    s.contribute(0);
    const auto took_ns = s.asks_until_it_has(0, 10'000'000'000, false);
    ASSERT_TRUE(took_ns) << workers << " workers";
    EXPECT_LT(*took_ns, 1'000'000'000) << workers << " workers";
  }
}

// It is as after refusals: time alone lets the next one be sent, and nothing else has to happen at the
// switch.
TEST(AggregationRate, SendsAgainWhatItHasRefusedWhenTheTimeThatItHasNamedIsOver) {
  RatedSwitch s(rated());
  s.part(0);
  std::vector<Said> said;
  do {
    said = s.ask_slot(0);
    ASSERT_THAT(said, SizeIs(1));
  } while (said[0].type() == AggregationType::result);
  EXPECT_EQ(said[0].refusal.reason, wire::AggregationReason::busy);
  EXPECT_GE(s.counters().busy, 1U);
  s.now_ns += std::int64_t{said[0].refusal.wait_us} * 1000;
  expect_sum(s.ask_slot(0), To::one, 0);
}

TEST(AggregationRate, WhoHasLostAResultGetsItWhileTheOtherSlotsGoOn) {
  CrowdedSwitch s(16, 12.5e6);
  for (std::uint16_t slot = 0; slot < kRatedSlots; ++slot) s.contribute(slot);
  while (s.box.next_time_ns() != kNothingDue && s.rounds[1] < 3) {
    for (const std::uint16_t slot : std::exchange(s.sent, {}))
      if (slot != 0) s.contribute(slot);
    s.now_ns = std::max(s.now_ns, s.box.next_time_ns());
    s.take(unpacked(s.box.on_time(s.now_ns)));
  }
  ASSERT_EQ(s.rounds[1], 3U);
  const auto took_ns = s.asks_until_it_has(0, 20'000'000'000, true);
  ASSERT_TRUE(took_ns);
  EXPECT_LE(*took_ns, 10'000'000) << "some round trips";
}

TEST(AggregationRate, ChangesWhileResultsWait) {
  RatedSwitch s(rated());
  std::uint16_t slot = s.fill_burst();
  s.part(++slot);
  const std::int64_t due_ns = s.box.next_time_ns();
  s.box.pace_results(1, 0);
  EXPECT_LT(s.box.next_time_ns(), due_ns);
  EXPECT_THAT(s.until(s.now_ns), SizeIs(2));
  ++slot;
  expect_sum(s.part(slot), To::all, slot);
  s.box.pace_results(1, kResultRate);
  s.fill_burst(++slot);
  EXPECT_GT(s.box.next_time_ns(), s.now_ns);
  s.box.pace_results(2, kResultRate);  // of no job that is open: nothing
}

// One slot goes on without its results until more of them wait than columns have.
TEST(AggregationRate, OfMoreResultsThanCanWaitTheFirstIsGivenUpAndSentToWhoAsksForIt) {
  RatedSwitch s(rated());
  const std::uint16_t first = s.fill_burst();
  std::uint64_t round = 0;
  const auto go_on = [&] {
    const std::uint64_t block = kRatedSlots * (round + 1) - 1;
    const std::vector<std::int32_t> values(1000, 1);
    EXPECT_THAT(s.hand(s.header(0, 1, kRatedSlots - 1),
                       s.payload({{block, block + kRatedSlots, values, 0, round % 2 == 1}})),
                IsEmpty());
    ++round;
  };
  for (int waiting = 1; waiting < 2 * kRatedSlots; ++waiting) go_on();
  const auto before = s.ask_slot(first);
  ASSERT_THAT(before, SizeIs(1));
  EXPECT_EQ(before[0].type(), AggregationType::refusal);
  go_on();
  expect_sum(s.ask_slot(first), To::one, first);
  const std::vector<Said> said = s.until(1'000'000'000);
  ASSERT_THAT(said, SizeIs(2)) << "the two that its cells still have";
  for (const Said& one : said) EXPECT_EQ(one.header.own16, kRatedSlots - 1);
}

// To all by multicast, and no longer: what waits takes another time then.
TEST(AggregationRate, WhoAsksIsToldWhenToAskAgainAsResultsAreSentNow) {
  for (const bool once : {true, false}) {
    SCOPED_TRACE(once ? "by multicast" : "to each");
    JobTerms terms = rated();
    terms.workers = 4;
    RatedSwitch s(terms);
    s.box.send_once(1, !once);
    std::uint16_t slot = 0;
    for (int waiting = 0; waiting < 12; ++slot) {
      std::vector<Said> said;
      for (std::uint16_t worker = 0; worker < terms.workers; ++worker)
        said = s.hand(s.header(worker, 1, slot),
                      s.payload({{slot, kNeverNext, std::vector<std::int32_t>(1000, 1)}}));
      waiting += said.empty() ? 1 : 0;
    }
    s.box.send_once(1, once);
    const auto told = s.ask_slot(--slot);
    ASSERT_THAT(told, SizeIs(1));
    ASSERT_EQ(told[0].type(), AggregationType::refusal);
    const std::int64_t wait_ns = std::int64_t{told[0].refusal.wait_us} * 1000;
    EXPECT_THAT(s.until(wait_ns * 3 / 4), SizeIs(::testing::Lt(12U)));
    s.until(wait_ns);
    expect_sum(s.ask_slot(slot), To::one, 4);
  }
}

TEST(AggregationRate, GivesNoNewBurstWhenItIsSetToWhatItIs) {
  RatedSwitch s(rated());
  const std::uint16_t slot = s.fill_burst();
  const std::int64_t due_ns = s.box.next_time_ns();
  s.box.pace_results(1, kResultRate);
  EXPECT_EQ(s.box.next_time_ns(), due_ns);
  EXPECT_THAT(s.part(slot + 1), IsEmpty());
}

TEST(AggregationRate, IsNotBelowZero) {
  AggregationSwitch box({64 << 20, 8, 1e11});
  const auto refused = box.open(rated(-1));
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->busy);
  EXPECT_EQ(refused->text, "job 1: a rate of results below 0");
}

// A worker of a sum of two elements, and what the switch says to it.
struct HeldBack : DatagramSink {
  HeldBack() : worker({1, 1, 0, 2, 0, 1, 1, 2, {10'000'000, 1'000'000, 100'000'000}}, *this) {
    h.job = h.epoch = 1;
    start(1);
  }
  void send(const wire::DatagramHeader&, std::span<const std::byte>) override {}
  void start(std::uint32_t operation) {
    h.own32 = operation;
    worker.start({reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out), 2,
                  AggregationFormat::f32, 2},
                 operation, kDeadlineNs, 0);
  }
  void busy(AggregationType of, std::uint32_t wait_us) {
    std::byte bytes[wire::kRefusalBytes];
    wire::encode({wire::AggregationReason::busy, wait_us, of}, bytes);
    h.type = static_cast<std::uint8_t>(AggregationType::refusal);
    worker.on(h, bytes, 0);
  }
  void say(AggregationType type, AggregationEntry entry) {
    std::byte bytes[200];
    wire::AggregationWriter writer(bytes);
    writer.begin(AggregationFormat::f32);
    entry.data = type == AggregationType::result;
    if (entry.data) entry.count = 2;
    std::byte* const at = writer.add(entry);
    if (entry.data) std::memcpy(at, in, sizeof in);
    h.type = static_cast<std::uint8_t>(type);
    worker.on(h, writer.payload(), 0);
  }
  std::string failure() {
    worker.on_time(kDeadlineNs);
    return worker.failure() ? worker.failure()->why : "";
  }

  static constexpr std::int64_t kDeadlineNs = 1'000'000'000;
  float in[2] = {1, 2}, out[2] = {};
  AggregationWorker worker;
  wire::DatagramHeader h;
};

AggregationEntry first_block() {
  return {0, wire::kNeverNext, wire::kZeroExponent, 0, 0, false};
}

TEST(AggregationRate, AWorkerThatIsHeldBackSaysSoAtItsDeadline) {
  const std::string columns = "1 of 1 columns have not ended by the deadline: ";
  const std::string room =
      columns + "the switch has no more room for this job's rate (--result-rate, --job-rate)";
  AggregationEntry above = first_block();
  above.above = true;
  constexpr AggregationType kHeldBack[] = {AggregationType::contribution, AggregationType::query};
  for (const AggregationType of : kHeldBack) {
    HeldBack last, before;
    last.say(AggregationType::missing, above);
    last.busy(of, 700);
    EXPECT_EQ(last.failure(), room);
    before.busy(of, 700);
    before.say(AggregationType::missing, above);
    EXPECT_EQ(before.failure(), columns + "the switch waits for the one above it");
  }
}

TEST(AggregationRate, AWorkerKnowsUntilWhenTheSwitchIsBusyInThisOperation) {
  HeldBack held;
  EXPECT_LT(held.worker.busy_until_ns(), 0);
  held.busy(AggregationType::query, 700);
  held.busy(AggregationType::contribution, 300);
  EXPECT_EQ(held.worker.busy_until_ns(), 700'000);
  held.say(AggregationType::result, first_block());
  ASSERT_TRUE(held.worker.done());
  held.start(2);
  EXPECT_LT(held.worker.busy_until_ns(), 0);
}

AggregationLossOptions long_sums(double rate) {
  AggregationLossOptions o;
  o.block = 32;
  o.count = 40'000;
  o.operations = 4;
  o.ppm = 0;
  o.residual = false;
  o.tolerant = false;
  o.result_rate = rate;
  return o;
}

// Sums are held against what went in.
TEST(AggregationRate, IsHeldWithAndWithoutLoss) {
  constexpr double kRates[] = {2e6, 10e6};
  constexpr double kLosses[] = {0, 0.02};
  for (const double rate : kRates)
    for (const double loss : kLosses) {
      SCOPED_TRACE(::testing::Message() << rate << " bytes per second, lost " << loss);
      AggregationLossOptions options = long_sums(rate);
      options.loss = loss;
      AggregationLossWorld world(options);
      world.run();
      EXPECT_THAT(world.problems(), IsEmpty());
      EXPECT_NEAR(world.result_bytes() / (static_cast<double>(world.last_result_ns()) / 1e9), rate,
                  0.05 * rate);
      EXPECT_GT(world.counters().delayed, world.counters().rounds / 4);
      EXPECT_GT(world.counters().delayed_bytes, 0U);
    }
}

TEST(AggregationRate, IsTakenForNoLoss) {
  AggregationLossOptions options = long_sums(10e6);
  AggregationLossWorld paced(options);
  paced.run();
  EXPECT_THAT(paced.problems(), IsEmpty());
  EXPECT_GT(paced.counters().delayed, 0U);
  EXPECT_EQ(paced.counters().repeated, 0U);
  EXPECT_EQ(paced.counters().missed, 0U);
  EXPECT_EQ(paced.counters().late, 0U);
  EXPECT_EQ(paced.counters().gaps, 0U);
  std::uint64_t again = 0, asked = 0;
  for (std::size_t w = 0; w < options.workers; ++w) {
    again += paced.worker(w).asked_for + paced.worker(w).named + paced.worker(w).gaps;
    asked += paced.worker(w).timeouts;
  }
  EXPECT_EQ(again, 0U) << "nothing was sent twice";
  EXPECT_LT(asked, paced.counters().rounds / 20) << "and little was asked";
}

// Rounds that may end without workers do not, as all of them wait alike.
TEST(AggregationRate, OfAJobThatMayLoseAPartCostsNoPart) {
  AggregationLossOptions options = long_sums(5e6);
  options.tolerant = true;
  options.ppm = 200'000;
  options.residual = true;
  AggregationLossWorld world(options);
  world.run();
  EXPECT_THAT(world.problems(), IsEmpty());
  EXPECT_GT(world.counters().delayed, 0U);
  EXPECT_EQ(world.counters().absences, 0U);
}

TEST(AggregationRate, KeepsEveryPromiseOfSumsThatMayLoseAPart) {
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 50 : 400); ++seed) {
    AggregationLossOptions options = AggregationLossWorld::drawn(seed);
    options.result_rate = 1e6 * static_cast<double>(1 + seed % 20);
    AggregationLossWorld world(options);
    world.run();
    ASSERT_THAT(world.problems(), IsEmpty());
  }
}

}  // namespace
}  // namespace talweg::protocol
