// Sums at a switch of which a part may be missing: what a worker sends too late is not waited for, within
// bounds, and nothing is gone.
#include <atomic>
#include <memory>
#include <utility>

#include "served_switch.h"

namespace talweg::live {
namespace {

using wire::AggregationFormat;

constexpr std::uint32_t kWarmUp = protocol::LingerTime::kWarmUp;
constexpr std::uint32_t kSums = kWarmUp + 10;

bool is_held_in(std::uint32_t sum) {
  return sum > kWarmUp && sum % 2 == 1;
}

// What is contributed in slot 0 of every other sum does not leave, however often it is sent: no round of it
// can end but without this worker. In case none does it leaves after a while. `begun` is the sum of which all
// `datagrams` that begin it have left.
UdpSender::SendCall holding_slot_0(std::size_t datagrams, std::atomic<std::uint32_t>& begun) {
  struct State {
    std::uint32_t sum = 0;
    std::int64_t since_ns = 0;
    std::size_t sent = 0;
  };
  return [state = std::make_shared<State>(), datagrams, &begun](int fd, mmsghdr* messages, unsigned n) {
    for (unsigned i = 0; i < n; ++i) {
      wire::DatagramHeader header;
      std::memcpy(&header, messages[i].msg_hdr.msg_iov[0].iov_base, sizeof header);
      const bool contributes = header.type == static_cast<std::uint8_t>(wire::AggregationType::contribution);
      if (contributes && header.own32 > state->sum) *state = {header.own32, now_ns(), 0};
      const bool held = contributes && header.own16 == 0 && is_held_in(header.own32) &&
                        now_ns() - state->since_ns < 2 * kSwitchSecond;
      if (!held) ::sendmsg(fd, &messages[i].msg_hdr, MSG_DONTWAIT);
      if (contributes && ++state->sent == datagrams) begun = state->sum;
    }
    return static_cast<int>(n);
  };
}

struct TolerantSums {
  std::vector<std::vector<float>> sums;
  std::vector<float> residual;
  std::vector<protocol::AggregationWorker::Missing> missing;  // by sum
};

// Worker 1 begins each sum: who has not begun is waited for.
void sum_tolerantly(SwitchClient& client, std::uint16_t number, std::atomic<std::uint32_t>& begun,
                    TolerantSums& outcome) {
  // A round of each column, so that slot 0 has one.
  const std::size_t count = std::size_t{client.terms().threads} * client.terms().slots *
                            client.terms().columns * client.terms().block;
  std::vector<float> in(count), out(count);
  outcome.residual.resize(count);
  for (std::uint32_t sum = 1; sum <= kSums; ++sum) {
    for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(value_of(sum, number, i, 1));
    SwitchVector vector{reinterpret_cast<const std::byte*>(in.data()),
                        reinterpret_cast<std::byte*>(out.data()), count * sizeof(float),
                        count * sizeof(float)};
    vector.tolerance.ppm = protocol::Tolerance::kMostPpm;
    vector.tolerance.residual = reinterpret_cast<std::byte*>(outcome.residual.data());
    if (number != 1) wait_until([&] { return begun >= sum; });
    client.all_reduce(vector, soon());
    outcome.sums.push_back(out);
    outcome.missing.push_back(client.missing());
  }
}

TEST(SwitchTolerance, EndsRoundsWithoutWhoIsLateWithinTheBoundAndNothingIsGone) {
  constexpr std::uint16_t kWorkers = 3;
  constexpr std::size_t kSlots = 8;
  for (const int threads : {1, 2}) {
    SwitchServiceOptions options;
    options.threads = threads;
    options.quotas.slots = kSlots;
    const Served served(options);
    auto workers = all(served, kWorkers);
    for (SwitchClientOptions& w : workers) w.tolerant = true;
    workers[1].sender.offload = false;  // a datagram is a message
    std::atomic<std::uint32_t> begun{0};
    workers[1].send = holding_slot_0(kSlots * static_cast<std::size_t>(threads), begun);
    std::vector<TolerantSums> outcomes(kWorkers);
    std::atomic<std::uint64_t> absences{0};
    const auto errors = run(workers, [&](SwitchClient& client, std::uint16_t number) {
      EXPECT_EQ(client.terms().slots, kSlots);
      sum_tolerantly(client, number, begun, outcomes[number]);
      absences += client.counters().absences;
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");

    std::uint64_t missing = 0, of_held = 0;
    for (std::uint32_t sum = 1; sum <= kSums; ++sum) {
      std::uint64_t here = 0;
      for (const TolerantSums& outcome : outcomes) {
        const auto& its = outcome.missing[sum - 1];
        EXPECT_EQ(its.all, outcomes[0].missing[sum - 1].all);
        EXPECT_LE(its.own, its.blocks / 2);
        EXPECT_TRUE(outcome.sums[sum - 1] == outcomes[0].sums[sum - 1]) << "sum " << sum;
        here += its.own;
      }
      EXPECT_EQ(here, outcomes[0].missing[sum - 1].all);
      EXPECT_TRUE(sum > kWarmUp || here == 0) << "sum " << sum;
      if (is_held_in(sum)) of_held += outcomes[1].missing[sum - 1].own;
      missing += here;
    }
    EXPECT_GT(of_held, 0U);
    EXPECT_EQ(absences, missing);
    for (std::size_t i = 0; i < outcomes[0].residual.size(); ++i) {
      float in = 0, out = 0;
      for (std::uint16_t w = 0; w < kWorkers; ++w) out += outcomes[w].residual[i];
      for (std::uint32_t sum = 1; sum <= kSums; ++sum) {
        out += outcomes[0].sums[sum - 1][i];
        for (std::uint16_t w = 0; w < kWorkers; ++w) in += static_cast<float>(value_of(sum, w, i, 1));
      }
      ASSERT_EQ(in, out) << "element " << i;
    }
  }
}

TEST(SwitchTolerance, IsSaidByAllWorkersWhenTheyJoin) {
  SwitchServiceOptions options;
  options.describe = [](const SwitchStatus& status) { return std::to_string(status.jobs.size()) + " jobs"; };
  const Served served(options);
  SwitchClientOptions tolerant = served.worker(0, 2);
  tolerant.tolerant = true;
  const auto joins = [](SwitchClientOptions o) { return [o] { SwitchClient client(o); }; };
  std::thread first([&] {
    SwitchClient client(tolerant);
    sum_and_check(client, 0, 2, 1, {1000});
  });
  wait_until(
      [&] { return give_order(served.service().address(), {}, wire::SwitchDo::status, soon()) == "1 jobs"; });
  expect_error(joins(served.worker(1, 2)), ErrorCode::mismatch,
               "workers 1 and 0 of job a disagree whether a part of sums may be missing");
  SwitchClientOptions second = tolerant;
  second.worker = 1;
  {
    SwitchClient client(second);
    sum_and_check(client, 1, 2, 1, {1000});
  }
  first.join();

  SwitchClientOptions at_racks = served.worker(0, 1);
  at_racks.tolerant = true;
  at_racks.racks = at_racks.all_workers = 2;
  expect_error(joins(at_racks), ErrorCode::unsupported,
               "nothing may be missing of sums that racks' switches make");
}

TEST(SwitchTolerance, RefusesInOneLineWhatItCannotBeOfAndGoesOn) {
  const Served served;
  std::vector<std::byte> bytes(4000);
  SwitchVector vector = vector_of(bytes, AggregationFormat::f32);
  vector.tolerance.ppm = 100'000;
  SwitchClient plain(served.worker(0, 1));
  const auto starts = [&](SwitchClient& client) { return [&] { client.start(vector, soon()); }; };
  expect_error(starts(plain), ErrorCode::invalid_argument, "that was not said when it was joined");
  sum_and_check(plain, 0, 1, 1, {1000});

  SwitchClientOptions options = served.worker(0, 1, "b");
  options.tolerant = true;
  SwitchClient client(options);
  vector.sparse = true;
  expect_error(starts(client), ErrorCode::invalid_argument, "nothing may be missing of sparse sums");
  vector.sparse = false;
  vector.format = AggregationFormat::scaled;
  expect_error(starts(client), ErrorCode::invalid_argument, "nothing may be missing of sums of a common");
  vector.format = AggregationFormat::f32;
  vector.tolerance.ppm = 500'001;
  expect_error(starts(client), ErrorCode::invalid_argument, "500001 millionths that may be missing");
  sum_and_check(client, 0, 1, 1, {1000});
  EXPECT_EQ(client.missing().own, 0U);
}

TEST(SwitchTolerance, TakesThreeCellsOfAColumnOutOfTheQuota) {
  protocol::JobTerms plain;
  plain.workers = 1;
  plain.slots = 3;
  plain.block = protocol::kUsualBlock;
  SwitchServiceOptions options;
  options.quotas.slots = plain.slots;
  options.memory_bytes = protocol::memory_of(plain).total;
  const Served served(options);
  SwitchClientOptions worker = served.worker(0, 1);
  worker.block = plain.block;
  worker.most_payload = 1400;
  worker.tolerant = true;
  expect_error([&] { SwitchClient client(worker); }, ErrorCode::unsupported,
               "the switch is busy: job a: it needs ");
  worker.tolerant = false;
  SwitchClient client(worker);
  EXPECT_EQ(client.terms().columns, 1);
}

}  // namespace
}  // namespace talweg::live
