// What stands beside bounded-loss transfers: classes of packets and a switch that heeds them, sums with
// holes, error feedback, times.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "base/random.h"
#include "protocol/bounded/adaptive_deadline.h"
#include "protocol/bounded/lossy_sum.h"
#include "protocol/bounded/packet_class.h"
#include "protocol/bounded/pair.h"

namespace talweg::protocol {
namespace {

using testing::FloatEq;

const std::byte* as_bytes(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
std::byte* as_bytes(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

TEST(PacketSet, IsASetThatCounts) {
  Random random{3};
  for (const std::uint32_t size : {1U, 63U, 64U, 65U, 5000U}) {
    PacketSet set(size);
    std::vector<bool> expected(size);
    for (int i = 0; i < 2000; ++i) {
      const auto p = static_cast<std::uint32_t>(random.below(size));
      const bool add = random.below(2) == 0;
      EXPECT_EQ(add ? set.add(p) : set.remove(p), expected[p] != add);
      expected[p] = add;
    }
    EXPECT_EQ(set.count(), std::ranges::count(expected, true));
    for (std::uint32_t from = 0; from <= size; ++from) {
      const auto next = std::find(expected.begin() + from, expected.end(), true);
      ASSERT_EQ(set.next(from), next - expected.begin());
    }
    set.reset(size, true);
    EXPECT_EQ(set.count(), size);
    EXPECT_EQ(set.next(size - 1), size - 1);
    EXPECT_EQ(set.bits(0).size(), (std::min(size, wire::kHoleWindow) + 7) / 8);
  }
}

TEST(PacketClass, LayersSpreadOverTheQueuesInEitherOrderAndLeaveTheFirstToControl) {
  std::array<int, 8> in_queue{};
  std::uint8_t before = 1;
  for (int layer = 0; layer < 50; ++layer) {
    const std::uint8_t queue = queue_priority(layer / 49.0, 4, LayerOrder::front_first);
    EXPECT_GE(queue, before);
    EXPECT_EQ(queue_priority((49 - layer) / 49.0, 4, LayerOrder::back_first), queue);
    before = queue;
    ++in_queue[queue];
  }
  for (const int queue : {1, 2, 3, 4}) EXPECT_NEAR(in_queue[static_cast<std::size_t>(queue)], 12.5, 1);
  EXPECT_EQ(queue_priority(0, 1, LayerOrder::front_first), wire::kOrdinary);
  EXPECT_EQ(queue_priority(1, 7, LayerOrder::front_first), 7);
  EXPECT_DOUBLE_EQ(drop_fraction(0, 0.5, 0.1), 0.5);
  EXPECT_DOUBLE_EQ(drop_fraction(1, 0.5, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(drop_fraction(0.5, 0.5, 0.1), 0.3);
}

TEST(PacketClass, AMagnitudeIsTheRootMeanSquare) {
  std::vector<float> values(320, 3.0F);
  EXPECT_DOUBLE_EQ(packet_magnitude(DataType::f32, as_bytes(values), values.size()), 3.0);
  EXPECT_EQ(packet_magnitude(DataType::f32, as_bytes(values), 0), 0.0);
  values[1] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(packet_magnitude(DataType::f32, as_bytes(values), values.size())));
  const std::vector<std::uint16_t> ones(77, 0x3f80);  // bf16
  EXPECT_DOUBLE_EQ(
      packet_magnitude(DataType::bf16, reinterpret_cast<const std::byte*>(ones.data()), ones.size()), 1.0);
  const std::vector<double> small(8, 1e-50);
  EXPECT_DOUBLE_EQ(packet_magnitude(DataType::f64, reinterpret_cast<const std::byte*>(small.data()), 8),
                   1e-50);
}

TEST(PacketClass, ThePacketsWithTheSmallestValuesAreUnimportant) {
  const BoundedShape shape{1, 100 * 256, 256};
  ImportantPackets packets(shape, DataType::f32);
  std::vector<float> gradient(100 * 64);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>((i / 64 * 37) % 100 + 1);
  for (const float scale : {1.0F, 1e-6F}) {  // in the first call as in others
    for (float& g : gradient) g *= scale;
    const PacketSet& important = packets.of(as_bytes(gradient), 0.3);
    EXPECT_EQ(important.count(), 70U);
    for (std::uint32_t p = 0; p < 100; ++p) EXPECT_EQ(important.has(p), p * 37 % 100 + 1 > 30) << p;
  }
  EXPECT_EQ(packets.of(as_bytes(gradient), 0).count(), 100U);
  EXPECT_EQ(packets.of(as_bytes(gradient), 0.009).count(), 100U) << "less than one packet";
  EXPECT_EQ(packets.of(as_bytes(gradient), 1).count(), 0U);
  gradient[0] = std::nanf("");
  EXPECT_EQ(packets.of(as_bytes(gradient), 1).count(), 1U);
  EXPECT_TRUE(packets.of(as_bytes(gradient), 1).has(0)) << "what is no number must be seen";
  std::ranges::fill(gradient, 0.0F);
  PacketSet ever(100);
  for (int call = 0; call < 10; ++call) {
    const PacketSet& important = packets.of(as_bytes(gradient), 0.3);
    EXPECT_EQ(important.count(), 70U) << "no more of them where all are alike";
    for (std::uint32_t p = 0; p < 100; ++p)
      if (!important.has(p)) ever.add(p);
  }
  EXPECT_EQ(ever.count(), 100U) << "and not always the same ones";
}

TEST(PacketClass, WhatHasNoMagnitudeIsImportant) {
  const std::vector<std::byte> ints(400);
  ImportantPackets packets({1, 400, 40}, DataType::i32);
  EXPECT_EQ(packets.of(ints.data(), 0.5).count(), 10U);
  EXPECT_THROW(ImportantPackets({1, 400, 42}, DataType::f32), Error);
}

// A port with a strict priority queue for each class, of which one is served at twice the time that packets
// come in: a droppable packet above the threshold is lost, any packet above the end of the queue is.
struct Port {
  static constexpr std::size_t kDropAbove = 20, kMost = 80;
  struct Waiting {
    SentMessage message;
    std::int64_t since_ns;
  };
  std::array<std::deque<Waiting>, 8> queues;
  std::size_t dropped_important = 0, dropped_others = 0;

  void put(SentMessage m, std::int64_t now) {
    auto& queue = queues[m.header.service & wire::kPriorityMask];
    const bool droppable = (m.header.service & wire::kDroppable) != 0;
    if (queue.size() >= (droppable ? kDropAbove : kMost))
      ++(droppable ? dropped_others : dropped_important);
    else
      queue.push_back({std::move(m), now});
  }
  std::optional<Waiting> take() {
    for (auto& queue : queues)
      if (!queue.empty()) {
        Waiting w = std::move(queue.front());
        queue.pop_front();
        return w;
      }
    return std::nullopt;
  }
};

TEST(PacketClass, AFullPortDropsTheUnimportantAndKeepsTheUrgentShort) {
  const BoundedTimes times;
  const std::uint32_t packets = 1000;
  BoundedSender sender(0, 1, times);
  std::vector<std::byte> in(packets * 40, std::byte{1});
  PacketSet important(packets);
  for (std::uint32_t i = 0; i < packets; i += 2) important.add(i);
  sender.add({0, packets * 40, 40});
  sender.begin(0, 1, in.data(), {.priority = 3, .important = &important}, 1000 * kMs, 0);
  BoundedSender urgent(0, 1, times);
  urgent.add({1, packets * 4, 40});
  urgent.begin(0, 1, in.data(), {.priority = 1}, 1000 * kMs, 0);
  Port port;
  std::int64_t now = 0, longest_urgent = 0, longest = 0;
  std::size_t urgent_lost = 100;
  for (bool more = true; more; now += 1000) {
    SentMessage m;
    m.payload.resize(100);
    more = false;
    for (int i = 0; i < (now % 2000 == 0 ? 1 : 2); ++i)
      if (sender.next(now, m.header, m.payload.data())) {
        port.put(m, now);
        more = true;
      }
    if (now % 10'000 == 0 && urgent.next(now, m.header, m.payload.data())) port.put(m, now);
    if (const auto out = port.take()) {
      more = true;
      const std::int64_t waited = now - out->since_ns;
      const bool was_urgent = (out->message.header.service & wire::kPriorityMask) == 1;
      (was_urgent ? longest_urgent : longest) = std::max(was_urgent ? longest_urgent : longest, waited);
      if (was_urgent) --urgent_lost;
    }
  }
  EXPECT_GT(port.dropped_others, 100U);
  EXPECT_LT(port.dropped_important * 20, port.dropped_others);
  EXPECT_LT(longest_urgent * 4, longest);
  while (const auto out = port.take()) --urgent_lost;
  EXPECT_EQ(urgent_lost, 100U - urgent.stream(0).counters().packets);
}

const BoundedShape kFour{1, 4 * 8, 8};  // four packets of two floats

PacketSet holes_of(std::vector<std::uint32_t> packets) {
  PacketSet set(4);
  for (const auto p : packets) set.add(p);
  return set;
}

TEST(LossySum, IsDividedByAllOrByThoseThatHaveCome) {
  for (const LossScale scale : {LossScale::by_all, LossScale::by_received, LossScale::none}) {
    LossySum sum(kFour, DataType::f32);
    std::vector<float> out(8, 99.0F);
    sum.begin(as_bytes(out));
    sum.add(as_bytes(std::vector<float>(8, 2.0F)), holes_of({0, 3}));
    sum.add(as_bytes(std::vector<float>(8, 4.0F)), holes_of({0}));
    sum.add(as_bytes(std::vector<float>(8, 6.0F)), holes_of({0, 1}));
    EXPECT_EQ(sum.received(0), 0);
    EXPECT_EQ(sum.received(1), 2);
    sum.finish(scale, 3);
    const float second = scale == LossScale::by_all ? 2 : scale == LossScale::by_received ? 3 : 6;
    const float third = scale == LossScale::none ? 12 : 4;
    const float fourth = scale == LossScale::by_all ? 10.0F / 3 : scale == LossScale::by_received ? 5 : 10;
    EXPECT_THAT(out,
                testing::ElementsAre(0, 0, second, second, third, third, FloatEq(fourth), FloatEq(fourth)));
  }
}

TEST(LossySum, WithoutALossHasTheBitsOfAnExactSum) {
  Random random{7};
  const kernel::ReduceFunction add = kernel::reduce_function(DataType::f32, ReduceOp::sum);
  const BoundedShape shape{1, 1000 * 4, 24};
  LossySum sum(shape, DataType::f32);
  const PacketSet none(shape.packets());
  for (int step = 0; step < 300; ++step) {
    std::vector<float> expected, out(1000);
    for (int worker = 0; worker < 5; ++worker) {
      std::vector<float> gradient(1000);
      for (float& g : gradient)
        g = static_cast<float>(random.uniform() - 0.5) * std::ldexp(1.0F, static_cast<int>(random.below(30)));
      gradient[0] = -0.0F;
      if (worker == 0) {
        out = expected = gradient;  // the first one is there already
        sum.begin(as_bytes(out));
      } else {
        add(expected.data(), expected.data(), gradient.data(), expected.size());
      }
      sum.add(worker == 0 ? as_bytes(out) : as_bytes(gradient), none);
    }
    kernel::divide(DataType::f32, expected.data(), expected.size(), 5);
    sum.finish(LossScale::by_all, 5);
    ASSERT_EQ(std::memcmp(out.data(), expected.data(), 4000), 0);
    out = expected;
  }
  EXPECT_THROW(LossySum({1, 400, 42}, DataType::f32), Error);
  EXPECT_THROW(LossySum({1, 402, 40}, DataType::f32), Error);
}

TEST(ErrorFeedback, WhatWasLostComesWithTheNextGradientOnce) {
  ErrorFeedback feedback(kFour, DataType::f32);
  std::vector<float> total(8, 0.0F), sent(8, 0.0F);
  Random random{5};
  for (int step = 0; step < 20; ++step) {
    std::vector<float> gradient(8);
    for (float& g : gradient) g = static_cast<float>(random.below(100));
    for (std::size_t i = 0; i < 8; ++i) total[i] += gradient[i];
    feedback.add_to(as_bytes(gradient));
    const PacketSet lost =
        step == 19 ? holes_of({}) : holes_of({static_cast<std::uint32_t>(random.below(4))});
    for (std::size_t i = 0; i < 8; ++i)
      if (!lost.has(static_cast<std::uint32_t>(i / 2))) sent[i] += gradient[i];
    feedback.remember(as_bytes(gradient), lost);
  }
  EXPECT_EQ(sent, total);
}

// As of a rank alone.
void end(AdaptiveDeadline& times, std::int64_t took_ns, std::uint64_t lost_ppm) {
  times.on_ended(std::array<MeasuredTransfer, 1>{{{static_cast<std::uint64_t>(took_ns), lost_ppm}}});
}

TEST(AdaptiveDeadline, LearnsFromTheFirstTransfersAndFollows) {
  AdaptiveDeadline times;
  for (int i = 1; i <= 20; ++i) {
    EXPECT_FALSE(times.is_warm());
    end(times, (i * 7 % 20 + 1) * kMs, 0);
  }
  ASSERT_TRUE(times.is_warm());
  EXPECT_EQ(times.linger_ns(), 1'050'000);  // a tenth of the mean
  for (int i = 0; i < 5; ++i) end(times, 10 * kMs, 2'000);
  EXPECT_DOUBLE_EQ(times.part(), AdaptiveDeadline::kMostPart);
  const std::int64_t most = times.linger_ns();
  end(times, 10 * kMs, 500);  // neither much nor little
  EXPECT_DOUBLE_EQ(times.part(), AdaptiveDeadline::kMostPart);
  for (int i = 0; i < 100; ++i) end(times, 10 * kMs, 0);
  EXPECT_DOUBLE_EQ(times.part(), AdaptiveDeadline::kLeastPart);
  EXPECT_LT(times.linger_ns(), most);
  for (int i = 0; i < 1000; ++i) end(times, 10'000 * kMs, 2'000);
  EXPECT_EQ(times.linger_ns(), 19 * kMs) << "never longer than slow ones took";
}

TEST(AdaptiveDeadline, IsOfTheMedianRankWhateverOthersMeasure) {
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max(), kTook = 10 * kMs;
  const std::vector<MeasuredTransfer> alike(5, {kTook, 0});
  const std::vector<std::vector<MeasuredTransfer>> uneven{
      {{kTook, 0}, {kTook, 0}, {kTook, 0}, {kTook, 0}, {100 * kTook, 0}},  // one is slow
      {{kHuge, 0}, {kTook, 0}, {kTook, 0}, {kTook, 0}, {kHuge, 0}},
      {{1, 0}, {1, 0}, {kTook, 0}, {kTook, 0}, {kHuge, 0}},
      {{0, kHuge}, {0, 0}, {0, 0}, {kTook, 0}, {kHuge, 0}}};  // who received nothing says nothing
  AdaptiveDeadline of_alike;
  for (std::size_t i = 0; i < 50; ++i) of_alike.on_ended(alike);
  for (const auto& all : uneven) {
    AdaptiveDeadline times;
    for (std::size_t i = 0; i < 50; ++i) times.on_ended(all);
    EXPECT_EQ(times.linger_ns(), of_alike.linger_ns());
    EXPECT_EQ(times.part(), of_alike.part());
  }
}

TEST(AdaptiveDeadline, CountsTheMeanLossOfAllThatReceive) {
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max(), kTook = 10 * kMs;
  const auto part_after = [](const std::vector<MeasuredTransfer>& all) {
    AdaptiveDeadline times;
    for (std::size_t i = 0; i < AdaptiveDeadline::kWarmUp + 1; ++i) times.on_ended(all);
    EXPECT_GT(times.linger_ns(), 0);
    return times.part();
  };
  EXPECT_EQ(part_after({{kTook, 2'500}, {kTook, 0}, {0, 0}}), 0.2) << "1.25 thousandths";
  EXPECT_EQ(part_after({{kTook, 2'500}, {kTook, 0}, {kTook, 0}}), 0.1);
  EXPECT_EQ(part_after({{kTook, kHuge}, {kTook, kHuge}}), 0.2) << "all at most, and no more";
}

TEST(AdaptiveDeadline, LearnsNothingWhereNobodyReceives) {
  AdaptiveDeadline times;
  for (int i = 0; i < 50; ++i) times.on_ended(std::array<MeasuredTransfer, 2>{{{0, 0}, {0, 1'000}}});
  EXPECT_FALSE(times.is_warm());
}

}  // namespace
}  // namespace talweg::protocol
