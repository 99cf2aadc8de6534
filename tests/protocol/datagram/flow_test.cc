#include "protocol/datagram/flow.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "protocol/datagram/lossy_pipe.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

struct Case {
  FlowOptions options;
  PipeNature nature;
  std::uint64_t bytes[2] = {0, 0};  // of each channel, by side
  std::uint64_t lazy = 0;           // of 16 times to read, so often nothing is read
  std::size_t most_read = SIZE_MAX;
};

// Writes, reads and compares until everything has arrived or `limit_ns` have passed. What happened, at both
// ends.
class Exchange {
 public:
  Exchange(const Case& c, std::uint64_t seed) : case_(c), pipe(c.options, c.nature, seed), random_(seed, 9) {
    for (auto& side : written_) side.resize(c.options.channels);
    for (auto& side : read_) side.resize(c.options.channels);
  }

  bool run(std::int64_t limit_ns) {
    const std::int64_t end = pipe.now() + limit_ns;
    for (int idle = 0;;) {
      for (int side = 0; side < 2; ++side) {
        write(side);
        read(side);
        pipe.send_all(side);
      }
      if (done()) return true;
      // Where only reading is left to be done, nothing else happens.
      idle = pipe.step() ? 0 : idle + 1;
      if (pipe.now() > end || idle > 3000) return false;
    }
  }
  FlowStatistics sum() const {
    FlowStatistics all;
    auto* to = reinterpret_cast<std::uint64_t*>(&all);
    static_assert(sizeof all % sizeof *to == 0);
    for (const FlowEnd& e : pipe.ends) {
      const FlowStatistics s = e.flow.statistics();
      const auto* from = reinterpret_cast<const std::uint64_t*>(&s);
      for (std::size_t i = 0; i < sizeof all / sizeof *to; ++i) to[i] += from[i];
    }
    return all;
  }

  const Case case_;
  LossyPipe pipe;

 private:
  void write(int side) {
    for (std::size_t c = 0; c < case_.options.channels; ++c) {
      std::uint64_t& at = written_[side][c];
      std::byte some[3000];
      while (at < case_.bytes[side]) {
        const std::uint64_t n =
            std::min<std::uint64_t>(1 + random_.below(sizeof some), case_.bytes[side] - at);
        bytes_of(side, c, at, {some, n});
        const std::size_t taken = pipe.ends[side].flow.write(c, {some, n});
        ASSERT_LE(taken, n);
        at += taken;
        if (taken < n) break;
      }
    }
  }
  void read(int side) {
    for (std::size_t c = 0; c < case_.options.channels; ++c) {
      if (random_.below(16) < case_.lazy) continue;
      DatagramFlow& flow = pipe.ends[side].flow;
      for (auto bytes = flow.readable(c); !bytes.empty(); bytes = flow.readable(c)) {
        const std::size_t n = std::min(case_.most_read, bytes.size());
        std::uint64_t& at = read_[side][c];
        ASSERT_LE(at + n, case_.bytes[1 - side]) << "more than was written";
        sent_.resize(n);
        bytes_of(1 - side, c, at, sent_);
        ASSERT_EQ(std::memcmp(bytes.data(), sent_.data(), n), 0)
            << "side " << side << " channel " << c << " bytes from " << at;
        at += n;
        flow.consumed(c, n);
        if (case_.lazy > 0) break;
      }
    }
  }
  bool done() const {
    for (int side = 0; side < 2; ++side) {
      if (!pipe.ends[side].flow.all_arrived()) return false;
      for (const std::uint64_t n : read_[side])
        if (n < case_.bytes[1 - side]) return false;
      for (const std::uint64_t n : written_[side])
        if (n < case_.bytes[side]) return false;
    }
    return true;
  }

  Random random_;
  std::vector<std::uint64_t> written_[2], read_[2];
  std::vector<std::byte> sent_;
};

TEST(DatagramFlow, BringsEverythingOnceAndInOrderOverAWayWithoutFaults) {
  Case c;
  c.options.channels = 3;
  c.bytes[0] = 300'000;
  c.bytes[1] = 70'000;
  Exchange x(c, 1);
  ASSERT_TRUE(x.run(10 * kSecond));
  const FlowStatistics s = x.sum();
  EXPECT_EQ(s.bytes_sent, 3U * 370'000);
  EXPECT_EQ(s.bytes_sent_again, 0U);
  EXPECT_EQ(s.timeouts, 0U);
  EXPECT_EQ(s.known, 0U);
  EXPECT_EQ(x.pipe.ends[0].flow.bytes_arrived(), 3U * 300'000);
}

TEST(DatagramFlow, SaysNothingWhenThereIsNothingToSay) {
  Case c;
  c.bytes[0] = 5000;
  Exchange x(c, 1);
  ASSERT_TRUE(x.run(kSecond));
  for (int i = 0; i < 100 && x.pipe.step(); ++i)
    for (int side = 0; side < 2; ++side) x.pipe.send_all(side);
  EXPECT_FALSE(x.pipe.step());
}

Case random_case(std::uint64_t seed) {
  Random random{seed, 3};
  Case c;
  FlowOptions& o = c.options;
  o.channels = 1 + random.below(4);
  o.send_bytes = 4096U << random.below(6);
  o.receive_bytes = 4096U << random.below(6);
  o.window = static_cast<std::uint32_t>(3000U << random.below(8));
  o.payload = 664 + random.below(3) * 700;
  o.packets = 16U << random.below(6);
  o.rate.enabled = random.below(4) != 0;
  PipeNature& n = c.nature;
  if (random.below(8) != 0) n.loss = random.uniform() * (random.below(6) == 0 ? 0.5 : 0.1);
  if (random.below(2) == 0) n.repeated = random.uniform() * 0.1;
  if (random.below(2) == 0) n.damaged = random.uniform() * 0.05;
  if (random.below(3) == 0) n.marked = random.uniform() * 0.1;
  n.delay_ns = static_cast<std::int64_t>(1000U << random.below(10));
  if (random.below(2) == 0) n.jitter_ns = static_cast<std::int64_t>(1000U << random.below(10));
  if (random.below(3) == 0) n.rate = 1e6 * static_cast<double>(1U << random.below(9));
  n.queue_bytes = 3000U << random.below(8);
  if (random.below(3) == 0) {
    n.dark_from_ns = 1'000'000 + static_cast<std::int64_t>(random.below(3'000'000));
    n.dark_until_ns = n.dark_from_ns + static_cast<std::int64_t>(random.below(3) * 40'000'000);
  }
  if (random.below(4) == 0) n.mtu = o.payload - random.below(o.payload - 663);
  c.bytes[0] = random.below(120'000);
  if (random.below(2) == 0) c.bytes[1] = random.below(60'000);
  c.lazy = random.below(4) == 0 ? 12 : 0;
  if (random.below(4) == 0) c.most_read = 60 + random.below(500);
  if (random.below(2) == 0) return c;
  o.paths = 2 + random.below(7);
  n.loss = std::min(n.loss, 0.3);
  n.ways.resize(1 + random.below(o.paths));
  for (PipeNature::Way& way : n.ways) {
    if (random.below(2) == 0)
      way.longer_ns = static_cast<std::int64_t>(random.below(1000U << random.below(12)));
    if (random.below(4) == 0) way.loss = random.uniform() * 0.2;  // beside all ways' loss
    if (random.below(4) == 0) way.rate = 1e6 * static_cast<double>(1U << random.below(9));
    if (random.below(3) != 0) continue;
    way.dead_from_ns = static_cast<std::int64_t>(random.below(20'000'000));
    way.dead_until_ns = way.dead_from_ns + static_cast<std::int64_t>(random.below(3) * 400'000'000);
  }
  return c;
}

// What the seeds must have met, at least so many times per thousand of them.
struct FlowMark {
  const char* what;
  std::uint64_t FlowStatistics::*count;
};
constexpr FlowMark kFlowMarks[] = {
    {"bytes were sent again", &FlowStatistics::bytes_sent_again},
    {"a loss was seen by a gap", &FlowStatistics::lost_by_gap},
    {"one path was silent", &FlowStatistics::lost_by_silence},
    {"a path was tried", &FlowStatistics::trials},
    {"what counted as lost arrived after all", &FlowStatistics::arrived_after_all},
    {"a timer ended", &FlowStatistics::timeouts},
    {"several timers ended in a row", &FlowStatistics::silences},
    {"credit had been lost and was asked for", &FlowStatistics::credit_waits},
    {"the socket's window was full", &FlowStatistics::window_waits},
    {"too many were on their way for a probe", &FlowStatistics::given_up},
    {"the network marked a datagram", &FlowStatistics::marks},
    {"bytes came twice", &FlowStatistics::known},
    {"bytes came early", &FlowStatistics::early},
    {"a datagram was too large for the path", &FlowStatistics::refused},
};

void run_seeds(std::uint64_t from, std::uint64_t to) {
  std::uint64_t hits[std::size(kFlowMarks)] = {};
  std::uint64_t refused[static_cast<std::size_t>(wire::DatagramRefusal::count_)] = {};
  for (std::uint64_t seed = from; seed < to; ++seed) {
    const Case c = random_case(seed);
    Exchange x(c, seed);
    const bool done = x.run(600 * kSecond);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed;
    ASSERT_TRUE(done) << "no progress any more: seed " << seed;
    const FlowStatistics s = x.sum();
    ASSERT_EQ(s.malformed, 0U) << "seed " << seed;
    ASSERT_EQ(s.no_room, 0U) << "seed " << seed;
    for (std::size_t m = 0; m < std::size(kFlowMarks); ++m) hits[m] += s.*kFlowMarks[m].count > 0 ? 1 : 0;
    for (std::size_t r = 0; r < std::size(refused); ++r)
      for (const FlowEnd& e : x.pipe.ends) refused[r] += e.refusals[static_cast<wire::DatagramRefusal>(r)];
  }
  for (std::size_t m = 0; m < std::size(kFlowMarks); ++m) {
    EXPECT_GE(hits[m] * 1000, 3 * (to - from)) << kFlowMarks[m].what;
    ::testing::Test::RecordProperty(kFlowMarks[m].what, std::to_string(hits[m]));
  }
  EXPECT_GT(refused[static_cast<std::size_t>(wire::DatagramRefusal::damaged)], 0U);
  EXPECT_GT(refused[static_cast<std::size_t>(wire::DatagramRefusal::replayed)], 0U);
}

TEST(DatagramFlow, BringsEverythingOnceAndInOrderOverAnyWay) {
  run_seeds(0, 400);
}
TEST(DatagramFlowLong, BringsEverythingOnceAndInOrderOverThousandsOfWays) {
  run_seeds(400, 400 + fewer(10'000));
}

TEST(DatagramFlow, ComesThroughWhereMostIsLost) {
  Case c;
  c.nature.loss = 0.9;
  c.bytes[0] = 20'000;
  Exchange x(c, 5);
  EXPECT_TRUE(x.run(3600 * kSecond));
}

TEST(DatagramFlow, GoesOnAfterTheNetworkWasAway) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case c;
    c.nature.rate = 1.25e8;
    c.nature.dark_from_ns = 3'000'000;
    c.nature.dark_until_ns = 8 * kSecond;
    c.bytes[0] = 2'000'000;
    Exchange x(c, seed);
    ASSERT_TRUE(x.run(20 * kSecond));
    // Its timer ends once a second at most: it goes on soon after the network has come back.
    EXPECT_LT(x.pipe.now(), 10 * kSecond);
    EXPECT_GT(x.sum().silences, 0U);
  }
}

TEST(DatagramFlow, AsksForCreditThatWasLost) {
  Case c;
  c.options.receive_bytes = 4096;
  c.nature.loss = 0.3;
  c.bytes[0] = 200'000;
  c.lazy = 10;
  Exchange x(c, 7);
  ASSERT_TRUE(x.run(600 * kSecond));
  EXPECT_GT(x.sum().credit_waits, 0U);
}

TEST(DatagramFlow, HasNoMoreOnItsWayThanTheSocketHasRoomFor) {
  Case c;
  c.options.window = 20'000;
  c.options.rate.enabled = false;
  c.bytes[0] = 500'000;
  Exchange x(c, 1);
  ASSERT_TRUE(x.run(10 * kSecond));
  EXPECT_GT(x.sum().window_waits, 0U);
  EXPECT_EQ(x.sum().lost_by_gap, 0U);
}

TEST(DatagramFlow, FillsABottleneckAndKeepsItsQueueShort) {
  Case c;
  c.nature.rate = 1.25e8;  // 1 Gbit/s
  c.nature.delay_ns = 100'000;
  c.bytes[0] = 20'000'000;
  Exchange x(c, 1);
  ASSERT_TRUE(x.run(10 * kSecond));
  const double seconds = static_cast<double>(x.pipe.now()) * 1e-9;
  EXPECT_GT(20e6 / seconds / 1.25e8, 0.85);
  EXPECT_EQ(x.pipe.overflowed, 0U);
  // Switched off, only the window of the socket holds it back, and the queue is that long.
  c.options.rate.enabled = false;
  Exchange off(c, 1);
  ASSERT_TRUE(off.run(10 * kSecond));
  EXPECT_GT(off.pipe.longest_queue_ns, 3 * x.pipe.longest_queue_ns);
}

TEST(DatagramFlow, DoesNotTakeItsOwnQueueForTheWay) {
  Case c;
  c.nature.rate = 1.25e6;
  c.nature.queue_bytes = 64U << 20;
  c.options.send_bytes = c.options.receive_bytes = c.options.window = 8U << 20;
  c.bytes[0] = 50'000'000;  // without a pause
  Exchange x(c, 1);
  ASSERT_TRUE(x.run(60 * kSecond));
  EXPECT_LT(static_cast<double>(x.pipe.longest_queue_ns) * 1e-9,
            1.2 * RateOptions{}.queue_bytes / c.nature.rate);
  EXPECT_GT(50e6 / (static_cast<double>(x.pipe.now()) * 1e-9) / c.nature.rate, 0.95);
}

TEST(DatagramFlow, HoldsThePaceThatItIsGiven) {
  for (const double pace : {1e6, 1.25e7, 1.25e8}) {
    Case c;
    c.bytes[0] = static_cast<std::uint64_t>(pace / 4);
    Exchange x(c, 1);
    x.pipe.ends[0].flow.set_pace(pace);
    ASSERT_TRUE(x.run(10 * kSecond));
    EXPECT_NEAR(static_cast<double>(x.pipe.now()) * 1e-9, 0.25 * (1424.0 / 1400), 0.03) << pace;
  }
}

TEST(DatagramFlow, OptionsOutOfRangeAreRefused) {
  for (const auto& change : std::vector<void (*)(FlowOptions&)>{
           [](FlowOptions& o) { o.channels = 0; }, [](FlowOptions& o) { o.channels = 17; },
           [](FlowOptions& o) { o.payload = 100; }, [](FlowOptions& o) { o.payload = 70'000; },
           [](FlowOptions& o) { o.packets = 100; }}) {
    FlowOptions options;
    change(options);
    EXPECT_THROW(DatagramFlow{options}, Error);
  }
}

// What an authentic, but broken other end may say.
class Nonsense : public ::testing::Test {
 protected:
  void data(std::uint16_t channel, std::uint64_t offset, std::size_t bytes, std::uint8_t flags = 0) {
    std::vector<std::byte> payload(8 + bytes);
    std::memcpy(payload.data(), &offset, 8);
    say({.type = 1, .flags = flags, .own16 = channel}, payload);
  }
  void say(wire::DatagramHeader header, const std::vector<std::byte>& payload) {
    header.length = static_cast<std::uint16_t>(payload.size());
    header.number = number_++;
    flow_.on_datagram(header, payload, false, 1000);
  }
  // An acknowledgement of [begin, end).
  void acknowledge(std::uint64_t begin, std::uint64_t end) {
    wire::Acknowledgement ack;
    ack.ranges[0] = {begin, end};
    ack.n_ranges = 1;
    ack.n_limits = 2;
    ack.limits = {4096, 4096};
    std::vector<std::byte> payload(wire::kMostAckBytes);
    payload.resize(encode(ack, payload.data()));
    say({.type = 2}, payload);
  }
  void silence_is_asked_about(std::size_t bytes) {
    ASSERT_EQ(flow_.write(0, std::vector<std::byte>(100)), 100U);
    ASSERT_EQ(sent_now(), 1);
    acknowledge_first(0, 4 << 10, 0);  // room for few datagrams
    ASSERT_EQ(flow_.write(0, std::vector<std::byte>(bytes)), bytes);
    std::int64_t now = 0;
    for (int i = 0; i < 10; ++i) sent_now(now += 10'000);
    ASSERT_EQ(flow_.unsent(0) > 0, bytes > 10'000);
    const std::uint64_t sent = flow_.statistics().datagrams_sent;
    for (int i = 0; i < 10; ++i) {
      flow_.on_time(now += 100'000);
      sent_now(now);
    }
    EXPECT_EQ(flow_.statistics().early_probes, 1U);
    EXPECT_EQ(flow_.statistics().datagrams_sent, sent + 1);
    EXPECT_EQ(flow_.statistics().bytes_sent_again, 0U);
  }
  // Of what flow_ has sent first, of this number.
  void acknowledge_first(std::uint64_t number, std::uint32_t window, std::uint32_t marked) {
    wire::Acknowledgement ack;
    ack.window = window;
    ack.marked = marked;
    ack.ranges[0] = {0, 1};
    ack.n_ranges = 1;
    ack.n_limits = 2;
    ack.limits = {4096, 4096};
    std::vector<std::byte> payload(wire::kMostAckBytes);
    payload.resize(encode(ack, payload.data()));
    number_ = number;
    say({.type = 2}, payload);
  }
  // How many datagrams leave now.
  int sent_now(std::int64_t now = 1000) {
    std::vector<std::byte> payload(wire::kMaxDatagramPayload);
    int count = 0;
    for (wire::DatagramHeader header; flow_.next(out_, now, header, payload.data()); ++out_) ++count;
    return count;
  }
  // What the acknowledgement that leaves now says has come.
  std::vector<wire::Acknowledgement::Range> acknowledged_now() {
    std::vector<std::byte> payload(wire::kMaxDatagramPayload);
    wire::DatagramHeader header;
    wire::Acknowledgement told;
    if (!flow_.next(out_++, 1000, header, payload.data()) ||
        wire::decode({payload.data(), header.length}, told) != nullptr)
      return {};
    return {told.ranges.begin(), told.ranges.begin() + static_cast<std::ptrdiff_t>(told.n_ranges)};
  }
  FlowOptions options() {
    FlowOptions o;
    o.channels = 2;
    o.receive_bytes = 4096;
    return o;
  }
  DatagramFlow flow_{options()};
  std::uint64_t number_ = 0, out_ = 0;
};

TEST_F(Nonsense, AnAcknowledgementThatWasOvertakenSaysNothingOfMarks) {
  ASSERT_EQ(flow_.write(0, std::vector<std::byte>(100)), 100U);
  ASSERT_EQ(sent_now(), 1);
  acknowledge_first(7, 1 << 20, 3);
  EXPECT_EQ(flow_.statistics().marks, 3U);
  acknowledge_first(6, 1 << 20, 1);  // was sent before
  EXPECT_EQ(flow_.statistics().marks, 3U);
  acknowledge_first(8, 1 << 20, 4);
  EXPECT_EQ(flow_.statistics().marks, 4U);
}

TEST_F(Nonsense, BytesThatWereKnownAreAcknowledgedAtOnce) {
  data(0, 0, 10);
  EXPECT_FALSE(flow_.acknowledgement_due(1000)) << "there is time for more to come";
  EXPECT_EQ(sent_now(), 0);
  data(0, 0, 10);
  EXPECT_EQ(flow_.statistics().known, 1U);
  EXPECT_TRUE(flow_.acknowledgement_due(1000)) << "whoever sent them does not know that they came";
  EXPECT_EQ(sent_now(), 1);
}

TEST_F(Nonsense, WhatNothingMoreFollowsAsksForAnAnswer) {
  std::vector<std::byte> payload(wire::kMaxDatagramPayload);
  wire::DatagramHeader header;
  ASSERT_EQ(flow_.write(0, std::vector<std::byte>(3000)), 3000U);  // three datagrams
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(flow_.next(out_++, 1000, header, payload.data()));
    EXPECT_EQ((header.flags & wire::kDatagramAsks) != 0, i == 2) << i;
  }
  data(0, 0, 10);
  flow_.end_of_batch();
  EXPECT_FALSE(flow_.acknowledgement_due(1000)) << "there is time for more to come";
  data(0, 10, 10, wire::kDatagramAsks);
  flow_.end_of_batch();
  EXPECT_TRUE(flow_.acknowledgement_due(1000));
}

TEST_F(Nonsense, InASmallWindowEachOneAsks) {
  for (const bool small_one : {false, true}) {
    FlowOptions small = options();
    small.send_bytes = small.receive_bytes = 1 << 20;
    small.window = small_one ? 5 * 1500 : 20 * 1500;
    DatagramFlow flow(small);
    std::vector<std::byte> payload(wire::kMaxDatagramPayload);
    wire::DatagramHeader header;
    ASSERT_EQ(flow.write(0, std::vector<std::byte>(100'000)), 100'000U);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(flow.next(static_cast<std::uint64_t>(i), 1000, header, payload.data()));
      EXPECT_EQ((header.flags & wire::kDatagramAsks) != 0, small_one) << i;
    }
  }
}

// What is asked for twice as long as the way takes without queues, and once.
TEST_F(Nonsense, TheLastOneIsSentAgainEarlyAndOnce) {
  ASSERT_EQ(flow_.write(0, std::vector<std::byte>(100)), 100U);
  ASSERT_EQ(sent_now(), 1);
  acknowledge_first(0, 1 << 20, 0);  // at once: the way is known, and short
  ASSERT_EQ(flow_.write(0, std::vector<std::byte>(100)), 100U);
  constexpr std::int64_t kSent = 1'000'000, kEarly = kSent + 500'000;
  sent_now(kSent - 1000);  // sets the pace
  ASSERT_EQ(sent_now(kSent), 1);
  EXPECT_EQ(flow_.next_time(kSent), kEarly);
  flow_.on_time(kEarly - 1);
  EXPECT_EQ(sent_now(kEarly - 1), 0);
  flow_.on_time(kEarly);
  wire::DatagramHeader header;
  std::vector<std::byte> payload(wire::kMaxDatagramPayload);
  ASSERT_TRUE(flow_.next(out_++, kEarly, header, payload.data()));
  EXPECT_TRUE((header.flags & wire::kDatagramAsks) != 0);
  EXPECT_EQ(flow_.statistics().bytes_sent_again, 100U);
  EXPECT_EQ(flow_.statistics().early_probes, 1U);
  EXPECT_EQ(flow_.statistics().timeouts, 0U);
  flow_.on_time(kEarly + 600'000);
  EXPECT_EQ(sent_now(kEarly + 600'000), 0) << "from now on it takes a timeout";
  EXPECT_EQ(flow_.statistics().early_probes, 1U);
}

// An empty datagram is enough to hear what has become of them.
TEST_F(Nonsense, MoreThanAFewLastBytesAreAskedAfterEarlyAndNotSentAgain) {
  silence_is_asked_about(600);
}
// A window that is lost as a whole stops everything, though there is more to be sent.
TEST_F(Nonsense, AFullWindowIsAskedAfterEarly) {
  silence_is_asked_about(20'000);
}

TEST_F(Nonsense, NumbersOfAcknowledgementsMakeNoGaps) {
  data(0, 0, 10);
  acknowledge(0, 1);  // nothing was sent, but it has a number
  data(0, 10, 10);
  acknowledge(0, 1);  // newer than all that asks for an acknowledgement
  data(0, 10, 10);    // 4
  number_ = 9;
  acknowledge(0, 1);
  EXPECT_THAT(acknowledged_now(), ::testing::ElementsAre(wire::Acknowledgement::Range{0, 5}));
}

// Numbers of acknowledgements, with more gaps between them than are remembered, take no other's place.
TEST_F(Nonsense, WhatHasComeIsAcknowledgedHoweverManyNumbersAreMissing) {
  data(0, 0, 10);
  data(0, 0, 10);
  for (int i = 0; i < 200; ++i) {
    number_ += 2;
    acknowledge(0, 1);
  }
  EXPECT_THAT(acknowledged_now(), ::testing::ElementsAre(wire::Acknowledgement::Range{0, 2}));
}

TEST_F(Nonsense, IsCountedAndChangesNothing) {
  data(2, 0, 10);        // no such channel
  data(0, 0, 0);         // nothing
  say({.type = 1}, {});  // not even an offset
  say({.type = 9}, {});  // no such type
  say({.type = 2}, std::vector<std::byte>(24));
  acknowledge(0, 1);  // nothing was ever sent
  EXPECT_EQ(flow_.statistics().malformed, 6U);
  data(0, 4097, 1);
  data(0, 4096, 1);
  data(0, 1, 4096);
  data(0, ~0ULL, 4096);
  data(0, ~0ULL - 4000, 4096);
  EXPECT_EQ(flow_.statistics().no_room, 5U);
  EXPECT_TRUE(flow_.readable(0).empty());
  EXPECT_TRUE(flow_.readable(1).empty());
  EXPECT_EQ(flow_.next_time(2000), SentPackets::kNever) << "nothing of it is acknowledged";
}

TEST_F(Nonsense, BytesThatWereReadyToReadAreNotWrittenOver) {
  std::vector<std::byte> payload(8 + 10, std::byte{1});
  std::memset(payload.data(), 0, 8);
  say({.type = 1}, payload);
  std::vector<std::byte> other(8 + 20, std::byte{2});
  std::memset(other.data(), 0, 8);
  say({.type = 1}, other);
  const auto bytes = flow_.readable(0);
  ASSERT_EQ(bytes.size(), 20U);
  EXPECT_EQ(bytes[9], std::byte{1});
  EXPECT_EQ(bytes[10], std::byte{2});
}

TEST_F(Nonsense, BytesThatComeAgainAfterSomeOfThemWereReadAreKnown) {
  std::vector<std::byte> payload(8 + 100, std::byte{1});
  std::memset(payload.data(), 0, 8);
  say({.type = 1}, payload);
  flow_.consumed(0, 30);
  say({.type = 1}, payload);
  EXPECT_EQ(flow_.statistics().known, 1U);
  EXPECT_EQ(flow_.readable(0).size(), 70U);
  data(0, 0, 200);
  EXPECT_EQ(flow_.readable(0).size(), 170U);
}

TEST_F(Nonsense, HolesBeyondTheirLimitAreLeftOutAndFilledLater) {
  FlowOptions o;
  o.receive_bytes = 4096;
  DatagramFlow flow(o);
  std::vector<std::byte> payload(9);
  std::uint64_t kept = 0;
  for (std::uint64_t offset = 1; offset < 2000; offset += 2) {
    std::memcpy(payload.data(), &offset, 8);
    flow.on_datagram({.type = 1, .length = 9, .number = offset}, payload, false, 1000);
    ++kept;
  }
  EXPECT_GT(flow.statistics().too_scattered, 0U);
  EXPECT_LT(flow.statistics().too_scattered, kept);
  std::vector<std::byte> all(8 + 2000);
  flow.on_datagram({.type = 1, .length = 2008, .number = 5000}, all, false, 1000);
  EXPECT_EQ(flow.readable(0).size(), 2000U);
}

}  // namespace
}  // namespace talweg::protocol
