// All_reduces of a group of which several switches sum a part each.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <fstream>
#include <optional>

#include "base/random.h"
#include "group/switch_streams.h"
#include "switched.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;

TEST(Switches, SharesAreWholeInProportionAndAlikeForAllScales) {
  using group::kShareElements;
  using group::share_ends;
  EXPECT_EQ(share_ends(10 * kShareElements, std::vector<double>{1, 4}),
            (std::vector<std::size_t>{2 * kShareElements, 10 * kShareElements}));
  EXPECT_EQ(share_ends(kShareElements, std::vector<double>{1e9, 1e9, 1e9}),
            (std::vector<std::size_t>{kShareElements, kShareElements, kShareElements}));
  EXPECT_EQ(share_ends(5, std::vector<double>{7}), (std::vector<std::size_t>{5}));
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    std::vector<double> rates(1 + random.below(16));
    for (double& rate : rates) rate = std::ldexp(1.0, static_cast<int>(random.below(50)));
    const std::size_t elements = 1 + random.below(std::uint64_t{1} << (1 + random.below(42)));
    const std::vector<std::size_t> ends = share_ends(elements, rates);
    ASSERT_EQ(ends.size(), rates.size());
    ASSERT_EQ(ends.back(), elements);
    ASSERT_TRUE(std::ranges::is_sorted(ends));
    double all = 0, so_far = 0;
    for (const double rate : rates) all += rate;
    for (std::size_t part = 0; part < ends.size(); ++part) {
      ASSERT_TRUE(ends[part] % kShareElements == 0 || ends[part] == elements);
      so_far += rates[part];
      // Sixteen weights are each rounded to one in 2^16.
      const double exact = static_cast<double>(elements) * so_far / all;
      ASSERT_NEAR(static_cast<double>(ends[part]), exact,
                  static_cast<double>(elements) * 16 / 65536 + static_cast<double>(kShareElements));
    }
    for (double& rate : rates) rate *= 1024;
    ASSERT_EQ(share_ends(elements, rates), ends);
  }
}

std::string addresses(std::initializer_list<const live::Served*> all) {
  std::string text;
  for (const live::Served* const served : all) text += (text.empty() ? "" : ",") + at(*served);
  return text;
}

TEST(Switches, EachSumsAPartOfEveryVectorThatIsLongEnough) {
  const live::Served one, two, three;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_all(group, 3);
        for (const bool in_place : {false, true}) {
          const std::vector<int> before = sums_of_each(group);
          for (const std::size_t count : {1UL, 4096UL}) check_floats(group, count, in_place);
          EXPECT_EQ(sums_of_each(group), (std::vector<int>{before[0] + 2, before[1], before[2]}));
          check_floats(group, 300'001, in_place);
          reduce_and_check<std::uint16_t>(group, 70'000, DataType::bf16, ReduceOp::avg, in_place,
                                          [](float x) { return kernel::f32_to_bf16(x); });
          reduce_and_check<std::int32_t>(group, 50'000, DataType::i32, ReduceOp::sum, in_place,
                                         [](float x) { return static_cast<std::int32_t>(x); });
          EXPECT_EQ(sums_of_each(group), (std::vector<int>{before[0] + 5, before[1] + 3, before[2] + 3}));
        }
        group.barrier();
      },
      through(addresses({&one, &two, &three})));
}

// In place, too: what the other ones have summed already is not lost, nor summed twice.
TEST(Switches, OneThatEndsInTheMiddleOfSumsCostsNoResultAndIsTakenBack) {
  const live::Served stays;
  std::optional<live::Served> goes(std::in_place);
  const live::Endpoint place = goes->service().address();
  std::atomic<int> step{0};
  constexpr int kSteps = 8;
  std::thread operating([&] {
    for (int mine = 1; mine < kSteps; mine += 2) {
      live::wait_until([&] { return step == mine; });
      if (goes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(7 * mine));
        goes.reset();
      } else {
        live::SwitchServiceOptions again;
        again.listen = place;
        goes.emplace(again);
      }
      ++step;
    }
  });
  run_ranks(
      kRanks,
      [&](Group& group) {
        for (int mine = 0; mine < kSteps; mine += 2) {
          if (mine % 4 == 0) {
            sum_until_all(group, 2);
          } else {
            // The one that has stayed goes on alone.
            const int before = sums_of_each(group)[0];
            sum_until(group, 100'000, [&] { return sums_of_each(group)[0] > before + 2; });
            EXPECT_THAT(switch_line(group), HasSubstr("; not now: "));
          }
          group.barrier();
          if (group.rank() == 0) ++step;
          sum_until(group, 200'000, [&] { return step == mine + 2; });
          group.barrier();
        }
      },
      through(fmt::format("{},{}", at(stays), to_string(place))));
  operating.join();
}

TEST(Switches, WhatOneHasSummedInPlaceIsNotSummedAgainWhenAnotherFallsSilent) {
  std::atomic<bool> silent{false};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    return silent ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, 0);
  };
  const live::Served sums, falls(options);
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_all(group, 2);
        group.barrier();
        silent = true;
        const std::vector<int> before = sums_of_each(group);
        check_floats(group, 300'000, true);
        EXPECT_EQ(sums_of_each(group), (std::vector<int>{before[0] + 1, before[1]}));
        // Its connection stands, but nothing comes of it: the other one is not held up by it again.
        sum_until(group, 100'000, [&] { return sums_of_each(group)[0] > before[0] + 3; });
        EXPECT_EQ(sums_of_each(group)[1], before[1]);
        group.barrier();
      },
      through(addresses({&sums, &falls})));
}

TEST(Switches, ExactSumsHaveTheSameBitsOnAllRanksAndInEveryRun) {
  const Variable exact("TALWEG_SWITCH_EXACT", "1");
  constexpr std::size_t kCount = 50'000;
  std::vector<float> first;
  for (int run = 0; run < 2; ++run) {
    const live::Served one, two;
    run_ranks(
        kRanks,
        [&](Group& group) {
          sum_until_all(group, 2);
          const std::vector<int> before = sums_of_each(group);
          Random random(static_cast<std::uint64_t>(group.rank()) + 1);
          std::vector<float> data(kCount), others(kCount);
          for (float& x : data)
            x = std::ldexp(static_cast<float>(random.below(1 << 24)),
                           static_cast<int>(random.below(30)) - 40);
          group.all_reduce(data.data(), data.data(), kCount, DataType::f32, ReduceOp::sum);
          EXPECT_EQ(sums_of_each(group), (std::vector<int>{before[0] + 1, before[1] + 1}));
          others = data;
          group.broadcast(others.data(), kCount, DataType::f32, 0);
          EXPECT_EQ(data, others);
          if (group.rank() == 0) {
            if (run == 0) first = data;
            EXPECT_EQ(data, first);
          }
          group.barrier();
        },
        through(addresses({&one, &two})));
  }
}

TEST(Switches, ExactSumsGoByTreesWhileOneIsMissing) {
  const Variable exact("TALWEG_SWITCH_EXACT", "1");
  const live::Served one;
  std::optional<live::Served> other(std::in_place);
  const live::Endpoint place = other->service().address();
  other.reset();
  std::atomic<int> rank{0};
  run_ranks(
      kRanks,
      [&](Group& group) {
        const auto missing = [&] {
          const std::string line = switch_line(group);
          const std::size_t first = line.find("; not now: ");
          return first == std::string::npos                                 ? 0
                 : line.find("; not now: ", first + 1) == std::string::npos ? 1
                                                                            : 2;
        };
        sum_until(group, 100'000, [&] { return missing() == 1; });
        check_floats(group, 100'000, false);
        EXPECT_EQ(sums_of_each(group), (std::vector<int>{0, 0}));
        group.barrier();
        if (rank++ == 0) {
          live::SwitchServiceOptions again;
          again.listen = place;
          other.emplace(again);
        }
        sum_until_all(group, 2);
        group.barrier();
      },
      through(fmt::format("{},{}", at(one), to_string(place))));
}

TEST(Switches, CallsInFlightTogetherAreEachSummedForThemselves) {
  const live::Served one, two;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_all(group, 2);
        constexpr std::size_t kCalls = 12;
        const std::vector<int> before = sums_of_each(group);
        std::vector<std::vector<std::int32_t>> data;
        std::vector<WorkPtr> works;
        for (std::size_t c = 0; c < kCalls; ++c)
          data.emplace_back(c % 3 == 0 ? 100 + c : 20'000 + c, static_cast<std::int32_t>(c) + group.rank());
        for (auto& vector : data)
          works.push_back(group.start_all_reduce(vector.data(), vector.data(), vector.size(), DataType::i32,
                                                 ReduceOp::sum));
        for (std::size_t c = 0; c < kCalls; ++c) {
          works[c]->wait();
          EXPECT_THAT(data[c], ::testing::Each(static_cast<std::int32_t>(c) * kRanks + 3));
        }
        EXPECT_EQ(sums_of_each(group), (std::vector<int>{before[0] + 12, before[1] + 8}));
        group.barrier();
      },
      through(addresses({&one, &two})));
}

TEST(Switches, TwoAddressesOfOneSwitchAreTwoJobs) {
  const std::string secret = "a secret of the switch, and of who may use it";
  const TemporaryFile key;
  std::ofstream(key.path()) << secret;
  live::SwitchServiceOptions options;
  options.listen = {"0.0.0.0", 0};
  options.key = [&] { return wire::secret_from_text(secret); };
  const live::Served served(options);
  const int port = served.service().address().port;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_all(group, 2);
        group.barrier();
      },
      [&](GroupOptions& o) {
        through(fmt::format("127.0.0.1:{},127.0.0.2:{}", port, port))(o);
        o.switch_key_file = key.path();
      });
}

// Without a word on which calls go through them: several are reckoned with together.
TEST(Switches, AreTakenTogetherWhereTheyAreQuickerThanThePlannedTrees) {
  const live::Served one, two;
  const TemporaryFile network;
  // Trees would take seconds by this file; the ranks' links count for switches as well.
  std::ofstream(network.path())
      << "nodes: [{name: h0}, {name: h1}, {name: h2}, {name: sw, kind: switch}]\nlinks:\n"
         "  - {between: [h0, sw], capacity: 10Mbit/s, latency: 30us}\n"
         "  - {between: [h1, sw], capacity: 10Mbit/s, latency: 30us}\n"
         "  - {between: [h2, sw], capacity: 10Mbit/s, latency: 30us}\n";
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_all(group, 2);
        constexpr std::size_t kCount = 1 << 20;
        const std::string words = group.explain(Collective::all_reduce, kCount, DataType::f32);
        ASSERT_THAT(words, ::testing::StartsWith("switch, predicted "));
        // 4 MiB pass a link of 10 Mbit/s in 3508 ms, whatever the switches took over loopback.
        EXPECT_NEAR(std::stod(words.substr(words.find("predicted ") + 10)), 3508, 30);
        group.barrier();
      },
      [&](GroupOptions& options) {
        options.switch_address = addresses({&one, &two});
        options.cluster_file = network.path();
      });
}

TEST(Switches, WrongNamesAreSaid) {
  const auto joining = [](const std::string& text) {
    return [text] {
      run_ranks(
          2, [](Group&) {}, through(text));
    };
  };
  EXPECT_THAT(joining("127.0.0.1:4711,127.0.0.1:4711"),
              ::testing::ThrowsMessage<Error>(HasSubstr("TALWEG_SWITCH: 127.0.0.1:4711 is named twice")));
  for (const char* text : {"127.0.0.1:4711,,127.0.0.1:4712", "127.0.0.1:4711,"})
    EXPECT_THAT(joining(text),
                ::testing::ThrowsMessage<Error>(HasSubstr("TALWEG_SWITCH: expected an address and a port")));
  std::string many;
  for (int i = 0; i < 17; ++i) many += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", 4711 + i);
  EXPECT_THAT(joining(many), ::testing::ThrowsMessage<Error>(
                                 HasSubstr("TALWEG_SWITCH: 17 switches, a group has at most 16")));
}

}  // namespace
}  // namespace talweg
