// Bounded sums that a switch makes without a part of them: what is missing is within bounds, is reported, and
// is in residuals.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "bounded_switched.h"
#include "group/bounded.h"
#include "group/switch_streams.h"
#include "live/served_switch.h"
#include "lossy.h"
#include "protocol/aggregation/tolerance.h"
#include "ranks.h"
#include "switched.h"
#include "talweg/bounded_loss.h"
#include "wire/aggregation.h"

namespace talweg::group {
namespace {

constexpr std::uint32_t kExactSums = protocol::LingerTime::kWarmUp;

live::SwitchServiceOptions of_few_slots() {
  live::SwitchServiceOptions options;
  options.quotas.slots = 8;
  return options;
}

// Until each switch's job knows how long rounds take.
void sum_until_some_may_be_missing(Group& group, BoundedSums& sums, std::size_t count,
                                   ReduceOp reduction = ReduceOp::sum) {
  const std::int64_t deadline_ns = live::soon();
  for (std::int64_t state = 0; state == 0;) {
    ASSERT_LT(live::now_ns(), deadline_ns) << sums.explain(count);
    sum_until_by_switch(group, sums, 1000, reduction);  // of which datagrams lose nothing
    const std::int64_t own = sums.explain(count).find("not now: ") == std::string::npos ? 1 : 0;
    group.all_reduce(&own, &state, 1, DataType::i64, ReduceOp::min);
  }
  for (std::uint32_t i = 0; i < kExactSums; ++i) sum_ones(group, sums, count, reduction);
  EXPECT_FALSE(sum_ones(group, sums, count, reduction).exact);
}

// What a rank contributes to the second round of each column of slot 0 of each switch's thread does not
// leave, in every other sum of those that may lose something: that round can end only without it. In case it
// does not, it leaves after a while.
live::UdpSender::SendCall holding_second_rounds() {
  struct State {
    std::uint32_t sum = 0;
    std::int64_t since_ns = 0;
    std::map<int, std::uint64_t> first, second;  // blocks, by column
  };
  struct Sockets {  // each is of a switch's thread, and of one of this rank's
    std::mutex mutex;
    std::map<int, State> states;
  };
  return [sockets = std::make_shared<Sockets>()](int fd, mmsghdr* messages, unsigned n) {
    const std::lock_guard guard(sockets->mutex);
    State* const state = &sockets->states[fd];
    for (unsigned i = 0; i < n; ++i) {
      const iovec& io = messages[i].msg_hdr.msg_iov[0];
      wire::DatagramHeader header;
      std::memcpy(&header, io.iov_base, sizeof header);
      bool held = false;
      if (header.type == static_cast<std::uint8_t>(wire::AggregationType::contribution) &&
          header.own32 > kExactSums && header.own32 % 2 == 1 && header.own16 == 0) {
        if (header.own32 != state->sum) *state = {header.own32, live::now_ns(), {}, {}};
        wire::AggregationMessage message;
        const std::span bytes(static_cast<const std::byte*>(io.iov_base) + wire::kDatagramHeaderBytes,
                              header.length);
        EXPECT_EQ(wire::decode(header, bytes, message), nullptr);
        wire::for_each_entry(message, [&](const wire::AggregationEntry& entry, std::span<const std::byte>) {
          const std::uint64_t first = state->first.emplace(entry.column, entry.block).first->second;
          if (entry.block != first) state->second.emplace(entry.column, entry.block);
          const auto second = state->second.find(entry.column);
          held = held || (second != state->second.end() && second->second == entry.block);
        });
        held = held && live::now_ns() - state->since_ns < 500 * live::kMillisecondNs;
      }
      if (!held) ::sendmsg(fd, &messages[i].msg_hdr, MSG_DONTWAIT);
    }
    return static_cast<int>(n);
  };
}

BoundedSeams holding_on(int rank, int own) {
  BoundedSeams seams = lossy(0, 1);
  if (own == rank) seams.send_to_switch = holding_second_rounds();
  return seams;
}

struct Switches {
  const char* name;
  int number = 1;
  int threads = 1;
  std::size_t count = kTolerated;
};
class BoundedSwitchLoss : public ::testing::TestWithParam<Switches> {};
INSTANTIATE_TEST_SUITE_P(All, BoundedSwitchLoss,
                         ::testing::Values(Switches{"One"}, Switches{"Two", 2, 1, 2 * kTolerated + 1},
                                           Switches{"OneOfTwoThreads", 1, 2, 2 * kTolerated + 1}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(BoundedSwitchLoss, IsWithinTheBoundIsReportedAndComesWithTheNextSum) {
  constexpr double kPart = 0.25;
  constexpr int kCalls = 12;
  const std::size_t count = GetParam().count;
  const std::size_t end_of_first = share_ends(count, std::vector{1.0, 1.0})[0];
  live::SwitchServiceOptions options = of_few_slots();
  options.threads = GetParam().threads;
  const live::Served served(options), other(options);
  std::mutex mutex;
  std::vector<float> first_out;  // of one rank, by call
  std::vector<std::array<LossReport, kSwitched>> told(kCalls);
  std::array<std::atomic<std::uint64_t>, 2> in_half{};  // elements that residuals had, of each switch of two
  run_ranks(
      kSwitched,
      [&](Group& group) {
        const auto sums = make_bounded(group, {.p = kPart}, holding_on(1, group.rank()));
        sum_until_some_may_be_missing(group, *sums, count);
        const std::vector<std::size_t> layers{1, 70'000, 0, count - 70'001};
        std::vector<float> in(count), out(count), residual(count), all_out;
        std::vector<double> in_all(count), out_all(count);
        for (int call = 0; call < kCalls; ++call) {
          for (std::size_t i = 0; i < count; ++i) {
            in[i] = static_cast<float>(value(group.rank(), i + static_cast<std::size_t>(call)));
            for (int r = 0; r < kSwitched; ++r) in_all[i] += value(r, i + static_cast<std::size_t>(call));
          }
          const LossReport report = sums->all_reduce({.in = in.data(),
                                                      .out = out.data(),
                                                      .count = count,
                                                      .residual = residual.data(),
                                                      .layers = layers});
          EXPECT_TRUE(report.by_switch);
          EXPECT_FALSE(report.exact);
          EXPECT_LE(static_cast<double>(report.lost_bytes),
                    kPart * static_cast<double>(count * sizeof(float)));
          EXPECT_EQ(report.lost_important_bytes, report.lost_bytes);
          EXPECT_EQ(std::accumulate(report.lost_of_layer.begin(), report.lost_of_layer.end(), 0UL),
                    report.lost_bytes);
          const auto in_residual =
              static_cast<std::uint64_t>(std::ranges::count_if(residual, [](float x) { return x != 0; }) * 4);
          EXPECT_LE(in_residual, report.lost_bytes) << "nothing else is left there";
          for (std::size_t i = 0; i < count; ++i) {
            out_all[i] += out[i];
            if (residual[i] != 0) ++in_half[i < end_of_first ? 0 : 1];
          }
          all_out.insert(all_out.end(), out.begin(), out.end());
          const std::lock_guard guard(mutex);
          told[static_cast<std::size_t>(call)][static_cast<std::size_t>(group.rank())] = report;
        }
        std::vector<float> left(count);
        group.all_reduce(residual.data(), left.data(), count, DataType::f32, ReduceOp::sum);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += in_all[i] != out_all[i] + left[i] ? 1 : 0;
        EXPECT_EQ(wrong, 0U) << "elements of all sums and residuals";
        const std::lock_guard guard(mutex);
        if (first_out.empty()) first_out = all_out;
        EXPECT_TRUE(all_out == first_out) << "ranks have different bits";
      },
      through(GetParam().number == 1 ? at(served) : at(served) + "," + at(other)));
  std::uint64_t lost = 0;
  for (const auto& reports : told)
    for (std::size_t of = 0; of < kSwitched; ++of) {
      lost += reports[of].lost_bytes;
      for (std::size_t r = 0; r < kSwitched; ++r)
        EXPECT_EQ(reports[r].lost_of_sender[of], r == of ? 0 : reports[of].lost_bytes);
    }
  EXPECT_GT(lost, 0U);
  if (GetParam().number == 2) {
    EXPECT_GT(in_half[0], 0U);
    EXPECT_GT(in_half[1], 0U);
  }
}

TEST(BoundedSwitch, AMeanIsOverThoseWhoArePartOfIt) {
  const live::Served served(of_few_slots());
  std::atomic<std::uint64_t> lost{0};
  run_ranks(
      kSwitched,
      [&](Group& group) {
        const auto sums =
            make_bounded(group, {.p = 0.25, .policy = LossPolicy::rescale}, holding_on(2, group.rank()));
        sum_until_some_may_be_missing(group, *sums, kTolerated, ReduceOp::avg);
        std::vector<float> out(kTolerated);
        for (int call = 0; call < 10; ++call) {
          const std::vector<float> in(kTolerated, 6.F);
          const LossReport report = sums->all_reduce(
              {.in = in.data(), .out = out.data(), .count = kTolerated, .reduction = ReduceOp::avg});
          EXPECT_TRUE(report.by_switch);
          lost += report.lost_bytes;
          EXPECT_TRUE(are_all(out, 6.F));
        }
        group.barrier();
      },
      through(at(served)));
  EXPECT_GT(lost, 0U);
}

}  // namespace
}  // namespace talweg::group
