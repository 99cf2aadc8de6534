// Sums at a switch that serves in a thread, of vectors that travel as codes of 8 or 4 bits.
#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>

#include "base/random.h"
#include "protocol/aggregation/coded_blocks.h"
#include "served_switch.h"

namespace talweg::live {
namespace {

constexpr AggregationFormat kCoded[] = {AggregationFormat::block8, AggregationFormat::block4};

float drawn_value(std::uint16_t worker, std::uint32_t sum, std::size_t i) {
  return static_cast<float>(Random(worker * 1000 + sum, i).uniform() * 2 - 1);
}

// A tenth of all messages does not leave, of whichever of a switch's threads.
UdpSender::SendCall losing(std::uint64_t seed) {
  struct Draws {
    explicit Draws(std::uint64_t seed) : random(seed) {}
    std::mutex mutex;
    Random random;
  };
  return [draws = std::make_shared<Draws>(seed)](int fd, mmsghdr* messages, unsigned n) {
    const std::scoped_lock lock(draws->mutex);
    for (unsigned i = 0; i < n; ++i)
      if (draws->random.uniform() >= 0.1) ::sendmsg(fd, &messages[i].msg_hdr, MSG_DONTWAIT);
    return static_cast<int>(n);
  };
}

struct CodedSums {
  std::vector<std::vector<float>> sums;
  std::vector<double> contributed;  // in all
};

// Some sums, each of which has to be what all contributed, but for what its own coding takes.
void sum_in_codes(SwitchClient& client, std::uint16_t number, AggregationFormat format, bool sparse,
                  std::size_t count, std::uint32_t times, CodedSums& outcome) {
  std::vector<float> in(count), out(count), residual(count, 0.0F);
  outcome.contributed.assign(count * times, 0.0);
  for (std::uint32_t sum = 0; sum < times; ++sum) {
    for (std::size_t i = 0; i < count; ++i)
      in[i] = sparse && i / 256 % 4 == number ? 0.0F : drawn_value(number, sum, i);
    const std::vector<float> before = residual;
    SwitchVector vector{reinterpret_cast<const std::byte*>(in.data()),
                        reinterpret_cast<std::byte*>(out.data()),
                        count * sizeof(float),
                        count * sizeof(float),
                        format,
                        sparse};
    vector.tolerance.residual = reinterpret_cast<std::byte*>(residual.data());
    client.all_reduce(vector, soon());
    outcome.sums.push_back(out);
    for (std::size_t i = 0; i < count; ++i)
      outcome.contributed[sum * count + i] =
          static_cast<double>(in[i] + before[i]) - static_cast<double>(residual[i]);
  }
}

TEST(SwitchCodes, SumsAreWhatWasContributedWhateverIsLostWithAResidualOfEachWorker) {
  constexpr std::uint16_t kWorkers = 3;
  constexpr std::uint32_t kTimes = 3;
  for (const AggregationFormat format : kCoded)
    for (const bool sparse : {false, true})
      for (const std::size_t count : std::initializer_list<std::size_t>{1, 300, 60'000}) {
        SwitchServiceOptions options;
        options.threads = 2;
        options.send = losing(1);
        const Served served(options);
        auto workers = all(served, kWorkers);
        for (SwitchClientOptions& w : workers) w.send = losing(2U + w.worker);
        std::vector<CodedSums> outcomes(kWorkers);
        expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
          ASSERT_EQ(client.terms().block, 256);
          sum_in_codes(client, number, format, sparse, count, kTimes, outcomes[number]);
        }));
        if (testing::Test::HasFailure()) return;
        const double top = format == AggregationFormat::block8 ? 127 : 7;
        for (std::uint32_t sum = 0; sum < kTimes; ++sum) {
          for (const CodedSums& outcome : outcomes)
            ASSERT_TRUE(outcome.sums[sum] == outcomes[0].sums[sum]) << "the same bits at all workers";
          std::vector<double> exact(count);
          for (const CodedSums& outcome : outcomes)
            for (std::size_t i = 0; i < count; ++i) exact[i] += outcome.contributed[sum * count + i];
          for (std::size_t first = 0; first < count; first += 256) {
            const std::size_t end = std::min(first + 256, count);
            double most = 0;
            for (std::size_t i = first; i < end; ++i) most = std::max(most, std::abs(exact[i]));
            for (std::size_t i = first; i < end; ++i)
              ASSERT_NEAR(static_cast<double>(outcomes[0].sums[sum][i]), exact[i], most / top * 1.0001) << i;
          }
        }
      }
}

// Bytes of codes, and not of floats.
TEST(SwitchCodes, TakeAQuarterOrAnEighthOfTheBytes) {
  const Served served;
  std::atomic<std::uint64_t> bytes[3]{};
  constexpr std::size_t kCount = 500'000;
  expect_none(run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
    const AggregationFormat formats[] = {AggregationFormat::f32, AggregationFormat::block8,
                                         AggregationFormat::block4};
    std::vector<float> data(kCount, 1.0F);
    for (std::size_t f = 0; f < 3; ++f) {
      const std::uint64_t before = client.sent().bytes;
      const auto all_bytes = std::as_writable_bytes(std::span(data));
      client.all_reduce({all_bytes.data(), all_bytes.data(), all_bytes.size(), all_bytes.size(), formats[f]},
                        soon());
      if (number == 0) bytes[f] = client.sent().bytes - before;
    }
    // Powers of two, and sums of them, have codes of their own.
    EXPECT_EQ(data, std::vector<float>(kCount, 8.0F));
  }));
  const auto part = [&](std::size_t f) {
    return static_cast<double>(bytes[f]) / static_cast<double>(bytes[0]);
  };
  EXPECT_LT(part(1), 0.4);
  EXPECT_LT(part(2), 0.25);
}

TEST(SwitchCodes, OfAnotherFormatOnAnotherWorkerAreAMismatchThatBothHear) {
  const Served served;
  const auto errors = run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
    std::vector<std::byte> bytes(1000 * sizeof(float));
    client.all_reduce(vector_of(bytes, kCoded[number]), soon());
  });
  // In the order in which they have spoken.
  const auto words = [](int number) {
    return fmt::format("worker {} has 1000 elements of {}, dense", number, wire::name(kCoded[number]));
  };
  for (const std::string& error : errors)
    EXPECT_THAT(error, testing::AllOf(testing::HasSubstr("mismatch: sum "),
                                      testing::AnyOf(testing::HasSubstr(words(0) + ", " + words(1)),
                                                     testing::HasSubstr(words(1) + ", " + words(0)))));
}

// One that has summed codes in this job knows them, whatever ends its connection later.
TEST(SwitchCodes, AConnectionThatEndsIsSaidToBeAnEarlierVersionsOnlyBeforeTheFirstSumOfCodes) {
  for (const bool has_summed : {false, true}) {
    const Served served;
    std::atomic<bool> over{false};
    const auto errors = run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
      std::vector<std::byte> bytes(1000 * sizeof(float));
      if (has_summed) client.all_reduce(vector_of(bytes, AggregationFormat::block4), soon());
      if (number == 1) return wait_until([&] { return over == true; });
      try {
        client.start(vector_of(bytes, AggregationFormat::block8), soon());
        ::shutdown(client.sockets()[1], SHUT_RD);
        while (!client.step(now_ns())) {
        }
      } catch (...) {
        over = true;
        throw;
      }
      over = true;
    });
    EXPECT_THAT(errors[0], testing::HasSubstr("the switch has ended the connection"));
    EXPECT_EQ(errors[0].ends_with(": does its version know sums of block8?"), !has_summed) << errors[0];
  }
}

}  // namespace
}  // namespace talweg::live
