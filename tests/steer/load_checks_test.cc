// What is said of full links. The links are invented: a queue that is served packet by packet, or numbers.
#include "steer/load_checks.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <vector>

#include "base/random.h"
#include "steer/load_schedule.h"

namespace talweg::steer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::vector<int> kInUse = {0, 1, 2, 3, 4};

// A port of 100 Mbit/s in front of the receiver, and what it does.
struct Port {
  bool strict = false;             // priorities; else FIFO
  std::vector<int> order{};        // which is served when, where not by their number
  std::uint32_t mark = 0;          // bytes beyond which it marks; 0: never
  bool drops_droppable = false;    // where it marks
  std::uint32_t limit = 64 << 10;  // bytes of a queue
  std::int64_t jitter_ns = 0;      // of all arrivals, at random
  bool mixes = false;              // load comes in no order
};

constexpr std::int64_t kNsPerByte = 80;
constexpr std::uint32_t kBytes = 1500, kProbe = 92;

// A host that has no processor for its sender now and then.
struct Busy {
  std::int64_t away_ns = 0;
  std::int64_t of_ns = 1;
  bool in_turn = false;  // one sender while the other one is away; else both at once
  std::int64_t next(std::int64_t now, int sender) const {
    const std::int64_t at = (now + (in_turn ? sender * of_ns / 2 : 0)) % of_ns;
    return at < away_ns ? now - at + away_ns : now;
  }
};

// Two senders at 80 Mbit/s each, over links of 100 Mbit/s, whose clocks differ by hours.
LoadSeen fill(const Port& port, int priority, std::int64_t load_ns = 80'000'000, const Busy& busy = {}) {
  struct Waiting {
    LoadArrival packet;
    std::int64_t left_ns;
  };
  std::vector<Waiting> leaving;
  std::array<LoadSent, 2> sent{};
  Random random(7, static_cast<std::uint64_t>(priority));
  constexpr std::int64_t kIdle = 30'000'000, kGap = 150'000, kProbes = 2'000'000;
  for (std::uint16_t s = 0; s < 2; ++s) {
    std::uint32_t order = 0;
    std::int64_t link_free_ns = 0;
    const auto leave = [&](std::int64_t now, const LoadArrival& packet) {
      link_free_ns = std::max(now, link_free_ns) + kNsPerByte * packet.bytes;
      leaving.push_back({packet, link_free_ns});
    };
    std::int64_t now = s * 70'000;
    LoadSchedule schedule(now, {kIdle, load_ns, kGap, kProbes});
    for (; !schedule.over(now); now = busy.next(now + LoadSchedule::kTickNs, s)) {
      LoadArrival packet;
      packet.sender = s;
      packet.stage = schedule.stage(now);
      packet.sent_ns = now + (s == 0 ? 0 : 7'200'000'000'000);
      if (schedule.probes_due(now))
        for (const int p : kInUse) {
          packet.priority = static_cast<std::uint8_t>(p);
          packet.order = order++;
          packet.ecn_capable = true;
          packet.bytes = kProbe;
          if (packet.stage == LoadStage::full) ++sent[s].probes[static_cast<std::size_t>(p)];
          leave(now, packet);
        }
      packet.load = true;
      packet.priority = static_cast<std::uint8_t>(priority);
      packet.bytes = kBytes;
      for (int due = schedule.load_due(now); due > 0; --due) {
        packet.order = order++;
        packet.ecn_capable = random.below(2) == 0;
        packet.number = packet.ecn_capable ? sent[s].capable++ : sent[s].droppable++;
        sent[s].bytes += kBytes;
        leave(now, packet);
      }
    }
    sent[s].seconds = schedule.load_seconds(now);
  }
  std::ranges::stable_sort(leaving, {}, &Waiting::left_ns);
  std::array<std::deque<Waiting>, 8> queues;
  std::array<std::uint32_t, 8> bytes{};
  std::vector<LoadArrival> arrivals;
  std::int64_t free_ns = 0;
  std::size_t next = 0;
  const auto accept = [&](const Waiting& packet) {
    const std::size_t q = !port.strict         ? 0
                          : port.order.empty() ? packet.packet.priority
                                               : static_cast<std::size_t>(port.order[packet.packet.priority]);
    Waiting one = packet;
    if (port.mark > 0 && bytes[q] > port.mark) {
      if (one.packet.ecn_capable)
        one.packet.marked = true;
      else if (port.drops_droppable)
        return;
    }
    if (bytes[q] + one.packet.bytes > port.limit) return;
    bytes[q] += one.packet.bytes;
    queues[q].push_back(one);
  };
  while (true) {
    while (next < leaving.size() && leaving[next].left_ns <= free_ns) accept(leaving[next++]);
    const auto queue = std::ranges::find_if(queues, [](const auto& q) { return !q.empty(); });
    if (queue == queues.end()) {
      if (next == leaving.size()) break;
      free_ns = leaving[next].left_ns;
      continue;
    }
    LoadArrival packet = queue->front().packet;
    queue->pop_front();
    bytes[static_cast<std::size_t>(queue - queues.begin())] -= packet.bytes;
    free_ns += kNsPerByte * packet.bytes;
    packet.came_ns = free_ns + 50'000;
    if (port.jitter_ns > 0)
      packet.came_ns += static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(port.jitter_ns)));
    arrivals.push_back(packet);
  }
  if (port.mixes)
    for (std::size_t i = 0; i + 8 < arrivals.size(); i += 8)
      std::reverse(arrivals.begin() + static_cast<std::ptrdiff_t>(i),
                   arrivals.begin() + static_cast<std::ptrdiff_t>(i + 8));
  LoadSeen seen = load_seen(arrivals, sent);
  seen.priority = priority;
  seen.asked_rate = 2 * 8e9 * kBytes / static_cast<double>(kGap);
  return seen;
}

std::vector<LoadSeen> fill_all(const Port& port, const Busy& busy = {}) {
  std::vector<LoadSeen> loads;
  for (const int p : {4, 3, 2, 1}) loads.push_back(fill(port, p, 80'000'000, busy));
  return loads;
}

const Port kSetUpAsAsked{.strict = true, .mark = 15'000, .drops_droppable = true};

TEST(LoadSeen, CountsWhatAPortHasDone) {
  const LoadSeen seen = fill(kSetUpAsAsked, 4);
  EXPECT_EQ(seen.senders, 2);
  EXPECT_EQ(seen.capable_received, seen.capable_sent);
  EXPECT_LT(seen.droppable_received, seen.droppable_sent / 2);
  EXPECT_GT(seen.marked, seen.capable_received / 3);
  EXPECT_EQ(seen.lost_before_mark, 0U);
  EXPECT_GT(seen.overlap, 0.9);
  EXPECT_NEAR(seen.sent_rate, 160e6, 5e6);
  EXPECT_NEAR(seen.taken_rate, 100e6, 5e6);
  EXPECT_NEAR(seen.bytes_of(seen.mark_wait_ns), 15'000, 3'000);
  EXPECT_EQ(seen.overtook, 0U);
  EXPECT_EQ(seen.probes[0].received, seen.probes[0].sent);
  EXPECT_GT(seen.probes[0].overtook, seen.probes[0].sent * 8 / 10);
  EXPECT_LT(seen.probes[0].wait_ns, seen.wait_ns / 4);
  EXPECT_EQ(seen.probes[5].sent, 0U);
}

TEST(LoadSeen, InOneQueueNothingOvertakes) {
  const LoadSeen seen = fill({}, 4);
  EXPECT_GT(seen.probes[0].received, 0U);
  for (const ProbesSeen& probes : seen.probes) EXPECT_EQ(probes.overtook, 0U);
  EXPECT_EQ(seen.marked, 0U);
  EXPECT_GT(seen.lost_before_mark, 0U);
  EXPECT_EQ(seen.lost_before_mark, seen.capable_sent - seen.capable_received) << "no mark ever came";
}

TEST(LoadSeen, WhereAQueueThatMarksGrowsOnMarksBeginWhereTheFirstDid) {
  const LoadSeen seen = fill({.mark = 15'000}, 4);
  EXPECT_NEAR(seen.bytes_of(seen.mark_wait_ns), 15'000, 8'000);
  EXPECT_GT(seen.bytes_of(seen.wait_ns), 45'000);
}

TEST(LoadSeen, OfOthersPacketsNothingIsOvertaken) {
  LoadArrival load, probe;
  load.sender = 1;
  load.load = true;
  load.order = 0;
  probe.order = 5;
  load.stage = probe.stage = LoadStage::full;
  const std::array<LoadSent, 2> sent{};
  EXPECT_EQ(load_seen(std::array{probe, load}, sent).probes[0].overtook, 0U);
  load.sender = 0;
  EXPECT_EQ(load_seen(std::array{probe, load}, sent).probes[0].overtook, 1U);
  load.order = 6;
  EXPECT_EQ(load_seen(std::array{probe, load}, sent).probes[0].overtook, 0U);
}

TEST(LoadSeen, LostBeforeTheFirstMarkAreThoseWithLowerNumbers) {
  std::vector<LoadArrival> arrivals(3);
  for (LoadArrival& a : arrivals) a.load = a.ecn_capable = true;
  arrivals[0].number = 0;
  arrivals[1].number = 3;  // 1 and 2 are lost
  arrivals[1].marked = true;
  arrivals[2].number = 7;
  arrivals[2].marked = true;
  LoadSent sent;
  sent.capable = 9;
  EXPECT_EQ(load_seen(arrivals, std::array{sent}).lost_before_mark, 2U);
  arrivals[1].marked = arrivals[2].marked = false;
  EXPECT_EQ(load_seen(arrivals, std::array{sent}).lost_before_mark, 6U);
}

TEST(LoadSeen, SendersThatDoNotSendAtOneTimeOverlapLittle) {
  std::vector<LoadArrival> arrivals(4);
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    arrivals[i].load = true;
    arrivals[i].sender = i < 2 ? 0 : 1;
    arrivals[i].came_ns = static_cast<std::int64_t>(1000 * i);
  }
  const std::array<LoadSent, 2> sent{};
  EXPECT_EQ(load_seen(arrivals, sent).overlap, 0);
  arrivals[1].came_ns = 2500;
  EXPECT_NEAR(load_seen(arrivals, sent).overlap, 500.0 / 3000, 1e-9);
  EXPECT_EQ(load_seen(std::span(arrivals).first(2), sent).overlap, 0) << "one of them is not there at all";
  EXPECT_EQ(load_seen({}, sent).overlap, 0);
}

TEST(LoadChecks, APortThatDoesWhatIsAskedPasses) {
  const auto loads = fill_all(kSetUpAsAsked);
  const FabricCheck marks = check_marks(loads, false), selective = check_selective(loads, false),
                    priorities = check_priorities(loads, kInUse, false);
  EXPECT_EQ(marks.verdict, Verdict::pass) << marks.seen;
  EXPECT_THAT(marks.seen, StartsWith("ECT(0) is marked from about 1"));
  EXPECT_EQ(selective.verdict, Verdict::pass) << selective.seen;
  EXPECT_THAT(selective.seen, HasSubstr(" and 0 % of ECT(0) are lost"));
  EXPECT_EQ(priorities.verdict, Verdict::pass) << priorities.seen;
  EXPECT_THAT(priorities.seen, StartsWith("while best effort waits 1."));
}

TEST(LoadChecks, NoiseOfManyQueuesDecidesNothing) {
  Port port = kSetUpAsAsked;
  port.jitter_ns = 3'000'000;
  const auto loads = fill_all(port);
  EXPECT_EQ(check_marks(loads, false).verdict, Verdict::pass);
  EXPECT_EQ(check_selective(loads, false).verdict, Verdict::pass);
  EXPECT_EQ(check_priorities(loads, kInUse, false).verdict, Verdict::pass);
  port = {.jitter_ns = 3'000'000};
  EXPECT_EQ(check_priorities(fill_all(port), kInUse, false).verdict, Verdict::fail);
}

TEST(LoadChecks, AnOrdinaryPortFailsInAllThree) {
  for (const std::uint32_t limit : {64U << 10, 16U << 20}) {
    std::vector<LoadSeen> loads;
    for (const int p : {4, 3, 2, 1}) loads.push_back(fill({.limit = limit}, p));
    for (const FabricCheck& check :
         {check_marks(loads, false), check_selective(loads, false), check_priorities(loads, kInUse, false)}) {
      EXPECT_EQ(check.verdict, Verdict::fail) << check.what;
      EXPECT_THAT(check.seen, StartsWith("off: "));
      EXPECT_THAT(check.to_do, HasSubstr("docs/bounded-loss.md"));
    }
  }
}

TEST(LoadChecks, EachOfTheThreeIsToldByItself) {
  const auto verdicts = [](const Port& port) {
    const auto loads = fill_all(port);
    return std::array{check_marks(loads, false).verdict, check_selective(loads, false).verdict,
                      check_priorities(loads, kInUse, false).verdict};
  };
  constexpr Verdict kPass = Verdict::pass, kFail = Verdict::fail;
  EXPECT_EQ(verdicts({.mark = 15'000, .drops_droppable = true}), (std::array{kPass, kPass, kFail}));
  EXPECT_EQ(verdicts({.strict = true}), (std::array{kFail, kFail, kPass}));
  EXPECT_EQ(verdicts({.mark = 15'000}), (std::array{kPass, kFail, kFail}));
}

TEST(LoadChecks, MarksThatBeginTooLateAreNotEnough) {
  FabricCheck check =
      check_marks(std::array{fill({.mark = 300 << 10, .limit = 16 << 20}, 4, 150'000'000)}, false);
  EXPECT_EQ(check.verdict, Verdict::fail);
  EXPECT_THAT(check.seen, StartsWith("too late: ECT(0) is marked from about 30"));
  LoadSeen load = fill(kSetUpAsAsked, 4);
  load.lost_before_mark = load.capable_sent / 10;
  check = check_marks(std::array{load}, false);
  EXPECT_EQ(check.verdict, Verdict::fail);
  EXPECT_THAT(check.seen, HasSubstr(", after 10 % were lost"));
}

TEST(LoadChecks, AQueueThatMarksAloneIsNamed) {
  auto loads = fill_all(kSetUpAsAsked);
  loads[1] = fill({.strict = true}, 3);
  EXPECT_THAT(check_marks(loads, false).seen, StartsWith("off (AF21): "));
  EXPECT_THAT(check_selective(loads, false).seen, StartsWith("off (AF21): "));
  EXPECT_EQ(check_priorities(loads, kInUse, false).verdict, Verdict::pass);
}

TEST(LoadChecks, PrioritiesThatShareAQueueAreNamed) {
  Port port = kSetUpAsAsked;
  port.order = {0, 1, 1, 3, 4, 5, 6, 7};
  const FabricCheck check = check_priorities(fill_all(port), kInUse, false);
  EXPECT_EQ(check.verdict, Verdict::fail);
  EXPECT_EQ(check.seen, "in one queue, not AF41 before AF31");
}

TEST(LoadChecks, AnOrderThatIsWrongIsNamed) {
  Port port = kSetUpAsAsked;
  port.order = {0, 1, 2, 4, 3, 5, 6, 7};  // best effort before AF21
  const FabricCheck check = check_priorities(fill_all(port), kInUse, false);
  EXPECT_EQ(check.verdict, Verdict::fail);
  EXPECT_EQ(check.seen, "wrong order: best effort before AF21 is served first");
}

TEST(LoadChecks, WhereLoadItselfIsMixedUpOrderSaysNothing) {
  const FabricCheck check = check_priorities(std::array{fill({.mixes = true}, 4)}, kInUse, false);
  EXPECT_EQ(check.verdict, Verdict::cannot_tell);
  EXPECT_THAT(check.seen, HasSubstr("of packets of one priority overtake each other"));
}

TEST(LoadChecks, OfTwoHostsOnlyWhatIsThereIsBelieved) {
  const auto ordinary = fill_all({}), asked = fill_all(kSetUpAsAsked);
  EXPECT_EQ(check_marks(asked, true).verdict, Verdict::pass);
  EXPECT_EQ(check_priorities(asked, kInUse, true).verdict, Verdict::pass);
  for (const FabricCheck& check : {check_marks(ordinary, true), check_selective(ordinary, true),
                                   check_priorities(ordinary, kInUse, true)}) {
    EXPECT_EQ(check.verdict, Verdict::cannot_tell);
    EXPECT_THAT(check.seen, HasSubstr("the sender's own card has the queue"));
  }
}

// Hosts that have no processor for a while, and some again and again: that can keep anything from being told,
// but it makes no verdict wrong.
TEST(LoadChecks, BusySendersTurnNoVerdict) {
  bool told = false, not_told = false;
  for (const std::int64_t of_ns : {4'000'000, 10'000'000, 30'000'000, 50'000'000})
    for (const int tenths : {1, 3, 5, 6, 7, 8, 9, -1, -3, -5, -6, -7, -8, -9}) {
      const Busy busy{of_ns * std::abs(tenths) / 10, of_ns, tenths < 0};
      const auto asked = fill_all(kSetUpAsAsked, busy), ordinary = fill_all({}, busy);
      const auto verdicts = [](const std::vector<LoadSeen>& loads) {
        return std::array{check_marks(loads, false), check_selective(loads, false),
                          check_priorities(loads, kInUse, false)};
      };
      for (const FabricCheck& check : verdicts(asked)) {
        EXPECT_NE(check.verdict, Verdict::fail)
            << check.what << ": " << check.seen << "; " << tenths << " of " << of_ns;
        (check.verdict == Verdict::pass ? told : not_told) = true;
      }
      for (const FabricCheck& check : verdicts(ordinary))
        EXPECT_NE(check.verdict, Verdict::pass)
            << check.what << ": " << check.seen << "; " << tenths << " of " << of_ns;
    }
  EXPECT_TRUE(told);
  EXPECT_TRUE(not_told);
}

TEST(LoadChecks, HostsThatAreTooBusyToFillALinkAreNamed) {
  LoadSeen load = fill(kSetUpAsAsked, 4, 80'000'000, {9'000'000, 10'000'000, true});
  EXPECT_FALSE(was_sent(load));
  EXPECT_TRUE(was_disturbed(load)) << "it is to be done again";
  FabricCheck check = check_marks(std::array{load}, false);
  EXPECT_EQ(check.verdict, Verdict::cannot_tell);
  EXPECT_THAT(check.seen, HasSubstr(": the senders' hosts are too busy: they sent "));
  load.wait_ns = load.idle_ns;
  check = check_marks(std::array{load}, false);
  EXPECT_EQ(check.verdict, Verdict::cannot_tell);
  EXPECT_THAT(check.seen, StartsWith("no queue built up, as the senders' hosts are too busy: they sent "));
  EXPECT_TRUE(was_sent(fill(kSetUpAsAsked, 4)));
  EXPECT_FALSE(was_disturbed(fill(kSetUpAsAsked, 4)));
  LoadSeen apart = fill(kSetUpAsAsked, 4);
  apart.overlap = 0.3;
  EXPECT_TRUE(was_disturbed(apart));
}

TEST(LoadSchedule, MakesUpForLittleThatWasMissed) {
  LoadSchedule schedule(
      0, {.idle_ns = 10'000'000, .load_ns = 40'000'000, .load_gap_ns = 100'000, .probes_gap_ns = 2'000'000});
  EXPECT_EQ(schedule.load_due(9'999'999), 0);
  EXPECT_EQ(schedule.load_due(10'000'000), 1);
  EXPECT_EQ(schedule.load_due(11'000'000), 10);
  EXPECT_EQ(schedule.load_due(31'000'000), 21) << "2 ms of 20";
  EXPECT_TRUE(schedule.probes_due(31'000'000));
  EXPECT_TRUE(schedule.probes_due(31'000'000)) << "one is made up for";
  EXPECT_FALSE(schedule.probes_due(31'000'000)) << "the others are not";
  EXPECT_EQ(schedule.stage(9'999'999), LoadStage::idle);
  EXPECT_EQ(schedule.stage(19'999'999), LoadStage::fills);
  EXPECT_EQ(schedule.stage(20'000'000), LoadStage::full);
  EXPECT_FALSE(schedule.over(49'999'999));
  EXPECT_TRUE(schedule.over(50'000'000));
}

void expect_doubt(const LoadSeen& load, const char* why) {
  for (const FabricCheck& check :
       {check_marks(std::array{load}, false), check_selective(std::array{load}, false),
        check_priorities(std::array{load}, kInUse, false)}) {
    EXPECT_EQ(check.verdict, Verdict::cannot_tell) << check.what;
    EXPECT_THAT(check.seen, HasSubstr(why)) << check.what;
  }
}

TEST(LoadChecks, WhatSaysNothingOfTheNetworkIsNoVerdict) {
  const LoadSeen ordinary = fill({}, 4);
  LoadSeen load = ordinary;
  load.dropped_at_host = 3;
  expect_doubt(load, "the receiver's own socket dropped 3 datagrams");
  load = ordinary;
  load.overlap = 0.3;
  expect_doubt(load, "did not send at the same time");
  load = ordinary;
  load.received = 0;
  expect_doubt(load, "nothing of the load of best effort came");
  load = ordinary;
  load.capable_received = load.capable_sent;
  load.droppable_received = load.droppable_sent;
  load.idle_ns = 2e6;
  load.wait_ns = load.most_wait_ns = 7e6;  // 87 KB, of which most may be noise
  expect_doubt(load, "no queue built up: 160 Mbit/s were sent and ");
  for (const FabricCheck& check :
       {check_marks({}, false), check_selective({}, false), check_priorities({}, kInUse, false)})
    EXPECT_EQ(check.verdict, Verdict::cannot_tell);
}

TEST(LoadChecks, WhatIsLostOfEctMustBeFarBelowWhatIsLostOfTheOthers) {
  LoadSeen load = fill(kSetUpAsAsked, 4);
  load.capable_sent = load.droppable_sent = 1000;
  load.droppable_received = 600;
  const auto verdict = [&](std::uint32_t lost) {
    load.capable_received = load.capable_sent - lost;
    return check_selective(std::array{load}, false).verdict;
  };
  EXPECT_EQ(verdict(90), Verdict::pass);
  EXPECT_EQ(verdict(150), Verdict::cannot_tell);
  EXPECT_EQ(verdict(250), Verdict::fail);
}

// A queue, but none so long that marks would have to have begun, and nothing lost.
TEST(LoadChecks, AShortQueueWithoutMarksIsNoFailure) {
  LoadSeen load = fill({.limit = 16 << 20}, 4);
  load.wait_ns = load.most_wait_ns = 8e6;  // 100 KB
  load.idle_ns = 1e5;
  EXPECT_EQ(check_marks(std::array{load}, false).verdict, Verdict::cannot_tell);
  EXPECT_EQ(check_selective(std::array{load}, false).verdict, Verdict::cannot_tell);
  load.sent_rate = load.asked_rate / 2;
  EXPECT_TRUE(was_full(load));
  EXPECT_TRUE(was_disturbed(load));
  for (const FabricCheck& check :
       {check_marks(std::array{load}, false), check_selective(std::array{load}, false)})
    EXPECT_THAT(check.seen,
                HasSubstr(": the senders' hosts are too busy: they sent 80 Mbit/s of 160 Mbit/s"));
  load.most_wait_ns = 20e6;  // 250 KB
  EXPECT_EQ(check_marks(std::array{load}, false).verdict, Verdict::fail);
  EXPECT_EQ(check_selective(std::array{load}, false).verdict, Verdict::fail);
}

TEST(LoadChecks, ProbesBetweenOvertakingAndNotAreNoVerdict) {
  auto loads = fill_all(kSetUpAsAsked);
  loads[0].probes[0].overtook = loads[0].probes[0].sent * 3 / 10;
  EXPECT_EQ(check_priorities(loads, kInUse, false).verdict, Verdict::cannot_tell);
  EXPECT_THAT(check_priorities(loads, kInUse, false).seen, HasSubstr("of CS5 overtake best effort"));
  loads = fill_all(kSetUpAsAsked);
  loads[0].probes[0].sent = loads[0].probes[0].overtook = 3;
  EXPECT_EQ(check_priorities(loads, kInUse, false).verdict, Verdict::cannot_tell);
}

}  // namespace
}  // namespace talweg::steer
