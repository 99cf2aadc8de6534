// All_reduces of a group through a switch, which comes, goes, falls silent, or is not there.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "group/switch_stream.h"
#include "live/aggregation/switch_line.h"
#include "protocol/aggregation/scaling.h"
#include "switched.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;

TEST(Switched, WhatTheSwitchCanSumGoesThroughItAndTheRestByTrees) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_there(group);
        for (const bool in_place : {false, true})
          for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
            const int before = sums(group);
            check_floats(group, count, in_place);
            reduce_and_check<float>(group, count, DataType::f32, ReduceOp::avg, in_place,
                                    [](float x) { return x; });
            reduce_and_check<std::uint16_t>(group, count, DataType::f16, ReduceOp::sum, in_place,
                                            [](float x) { return kernel::f32_to_f16(x); });
            reduce_and_check<std::uint16_t>(group, count, DataType::bf16, ReduceOp::avg, in_place,
                                            [](float x) { return kernel::f32_to_bf16(x); });
            reduce_and_check<std::int32_t>(group, count, DataType::i32, ReduceOp::sum, in_place,
                                           [](float x) { return static_cast<std::int32_t>(x); });
            EXPECT_EQ(sums(group), before + 5);
            reduce_and_check<double>(group, count, DataType::f64, ReduceOp::sum, in_place,
                                     [](float x) { return double{x}; });
            reduce_and_check<float>(group, count, DataType::f32, ReduceOp::max, in_place,
                                    [](float x) { return x; });
            EXPECT_EQ(sums(group), before + 5);
          }
        group.barrier();
      },
      through(at(served)));
}

TEST(Switched, CallsInFlightTogetherAreEachSummedForThemselves) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_there(group);
        constexpr std::size_t kCalls = 12, kCount = 20'000;
        const int before = sums(group);
        std::vector<std::vector<std::int32_t>> data;
        std::vector<WorkPtr> works;
        for (std::size_t c = 0; c < kCalls; ++c)
          data.emplace_back(kCount + c, static_cast<std::int32_t>(c) + group.rank());
        for (auto& vector : data)
          works.push_back(group.start_all_reduce(vector.data(), vector.data(), vector.size(), DataType::i32,
                                                 ReduceOp::sum));
        for (std::size_t c = 0; c < kCalls; ++c) {
          works[c]->wait();
          EXPECT_THAT(data[c], ::testing::Each(static_cast<std::int32_t>(c) * kRanks + 3));
        }
        EXPECT_EQ(sums(group), before + static_cast<int>(kCalls));
        group.barrier();
      },
      through(at(served)));
}

TEST(Switched, ASwitchThatEndsInTheMiddleOfSumsCostsNoResultAndIsTakenBack) {
  std::optional<live::Served> served(std::in_place);
  const live::Endpoint place = served->service().address();
  // What is being done: the ranks sum (even), and the switch ends or comes back (odd).
  std::atomic<int> step{0};
  constexpr int kSteps = 8;
  std::thread operating([&] {
    for (int mine = 1; mine < kSteps; mine += 2) {
      live::wait_until([&] { return step == mine; });
      if (served) {
        std::this_thread::sleep_for(std::chrono::milliseconds(7 * mine));
        served.reset();
      } else {
        live::SwitchServiceOptions again;
        again.listen = place;
        served.emplace(again);
      }
      ++step;
    }
  });
  run_ranks(
      kRanks,
      [&](Group& group) {
        for (int mine = 0; mine < kSteps; mine += 2) {
          if (mine % 4 == 0)
            sum_until_there(group);
          else
            for (int i = 0; i < 3; ++i) check_floats(group, 1000, i == 1);
          group.barrier();
          if (group.rank() == 0) ++step;
          sum_until(group, 200'000, [&] { return step == mine + 2; });
          group.barrier();
        }
      },
      through(to_string(place)));
  operating.join();
}

TEST(Switched, ASwitchThatFallsSilentIsLeftAndTheSumIsRight) {
  std::atomic<bool> silent{false};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    return silent ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, 0);
  };
  const live::Served served(options);
  std::mutex mutex;
  std::string lines;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        group.barrier();
        silent = true;
        const int before = sums(group);
        check_floats(group, 100'000, group.rank() != 0);
        EXPECT_EQ(sums(group), before);
        EXPECT_THAT(switch_line(group), HasSubstr("not now: "));
        // The thread that speaks with the switch may still be about to say why.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        for (bool said = false; !said && std::chrono::steady_clock::now() < deadline;) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          const std::string line = switch_line(group);
          const std::lock_guard guard(mutex);
          if (!lines.ends_with(line)) lines += line;
          said = lines.find("is UDP blocked on the way") != std::string::npos;
        }
        check_floats(group, 1000, true);
        group.barrier();
      },
      through(at(served)));
  EXPECT_THAT(lines, HasSubstr("is UDP blocked on the way")) << "of the rank that has waited for longest";
}

TEST(Switched, ASumThatIsGivenUpEndsTheLifeAtOnce) {
  const live::Served served;
  const group::SwitchWish wish = always_by(served);
  for (int i = 0; i < 20; ++i) {
    const group::SwitchStream::Place place{0, 1, fmt::format("given-up-{}", i)};
    group::SwitchStream stream(wish, wish.at[0], place, Logger(0, LogLevel::none), [] {});
    live::wait_until([&] { return stream.cost().has_value(); });
    const auto sum = stream.line_up().first;
    ASSERT_NE(sum, nullptr);
    const std::uint64_t lives = stream.lives();
    stream.abandon(*sum);
    EXPECT_FALSE(stream.cost()) << "its thread has hardly woken";
    EXPECT_THAT(stream.describe(), HasSubstr("not now: "));
    EXPECT_EQ(stream.lives(), lives + 1);
  }
}

TEST(Switched, WhereFloatTravelsAsCodesItIsMeasuredAndWhatDoesNotToo) {
  const live::Served served;
  const auto address = served.service().address();
  group::SwitchWish wish;
  wish.wanted = true;
  wish.at = {{address, to_string(address)}};
  for (const bool coded : {false, true}) {
    if (coded) wish.floats_as = wire::AggregationFormat::block4;
    const group::SwitchStream::Place place{0, 1, coded ? "coded" : "as-it-is"};
    const group::SwitchStream stream(wish, wish.at[0], place, Logger(0, LogLevel::none), [] {});
    live::wait_until([&] { return stream.cost().has_value(); });
    EXPECT_GT(stream.cost()->per_byte, 0);
    EXPECT_EQ(stream.cost()->per_coded > 0, coded);
    EXPECT_NE(stream.cost()->per_byte, stream.cost()->per_coded);
  }
}

TEST(Switched, ABufferThatIsTooSmallIsSaidOnceByOneRankOfAHost) {
  const live::Served served;
  group::SwitchWish wish = always_by(served);
  wish.socket.receive_bytes = std::numeric_limits<int>::max();  // no kernel gives as much
  const Warnings warnings;
  for (const bool speaks : {false, true}) {
    group::SwitchStream::Place place{0, 1, speaks ? "speaks" : "listens"};
    place.speaks_for_host = speaks;
    group::SwitchStream stream(wish, wish.at[0], place, warnings.logger(), [] {});
    for (int life = 0; life < 2; ++life) {
      live::wait_until([&] { return stream.cost().has_value(); });
      stream.abandon(*stream.line_up().first);
    }
  }
  std::vector<std::string> shortages = warnings.lines();
  std::erase_if(shortages, [](const std::string& line) {
    return line.find("the kernel gives UDP sockets ") == std::string::npos;
  });
  EXPECT_THAT(shortages, ::testing::ElementsAre(::testing::AllOf(
                             HasSubstr("sums by the switch at " + at(served) + ": the kernel gives"),
                             HasSubstr("sysctl -w net.core.rmem_max="))));
}

TEST(Switched, AGroupIsLeftAtOnceWhileASilentSwitchIsMeasured) {
  std::atomic<bool> measuring{false};
  live::SwitchServiceOptions options;
  options.send = [&](int, mmsghdr*, unsigned n) {
    measuring = true;
    return static_cast<int>(n);
  };
  const live::Served served(options);
  std::atomic<std::int64_t> leaving_ns{0};
  run_ranks(
      kRanks,
      [&](Group& group) {
        live::wait_until([&] { return measuring.load(); });
        group.barrier();
        leaving_ns = live::now_ns();
      },
      through(at(served), ""));
  EXPECT_LT(live::now_ns() - leaving_ns, 5 * live::kSwitchSecond);
}

TEST(Switched, WhereThereIsNoneTheGroupGoesByTrees) {
  std::string address;
  {
    const live::Served served;
    address = at(served);
  }
  run_ranks(
      kRanks,
      [](Group& group) {
        for (const bool in_place : {false, true}) check_floats(group, 100'000, in_place);
        EXPECT_EQ(sums(group), 0);
        sum_until(group, 100,
                  [&] { return switch_line(group).find("Connection refused") != std::string::npos; });
      },
      through(address));
}

TEST(Switched, TheSwitchHasAKeyThatIsNotTheGroups) {
  const std::string secret = "a secret of the switch, and of who may use it";
  const TemporaryFile right, wrong;
  std::ofstream(right.path()) << secret;
  std::ofstream(wrong.path()) << "some other secret that is as long as that one";
  live::SwitchServiceOptions options;
  options.key = [&] { return wire::secret_from_text(secret); };
  const live::Served served(options);
  for (const TemporaryFile* const key : {&right, &wrong})
    run_ranks(
        kRanks,
        [&](Group& group) {
          if (key == &right)
            sum_until_there(group);
          else
            sum_until(group, 1000, [&] {
              return switch_line(group).find(
                         "same job key: expected the switch's secret, or none where it has none, in "
                         "TALWEG_SWITCH_KEY_FILE") != std::string::npos;
            });
        },
        [&](GroupOptions& o) {
          through(at(served))(o);
          o.switch_key_file = key->path();
        });
}

TEST(Switched, WhatGoesToASwitchWithAKeyIsEncryptedWhereTheGroupsFramesAre) {
  const std::string secret = "a secret of the switch, and of who may use it";
  const TemporaryFile key;
  std::ofstream(key.path()) << secret;
  live::SwitchServiceOptions options;
  options.key = [&] { return wire::secret_from_text(secret); };
  const live::Served served(options);
  const Variable encrypt("TALWEG_ENCRYPT", "on");
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        EXPECT_THAT(switch_line(group), ::testing::ContainsRegex("sums?, encrypted"));
        for (const bool in_place : {false, true}) check_floats(group, 100'000, in_place);
      },
      [&](GroupOptions& o) {
        through(at(served))(o);
        o.switch_key_file = key.path();
      });
  GroupOptions elsewhere;
  elsewhere.switch_address = "10.0.0.9:4711";
  elsewhere.switch_key_file = key.path();
  const group::NamedAlgorithms named = group::take_apart("switch");
  EXPECT_TRUE(group::find_switch_wish(elsewhere, named, nullptr).encrypted);
  elsewhere.switch_address = at(served);
  elsewhere.switch_key_file.clear();
  EXPECT_FALSE(group::find_switch_wish(elsewhere, named, nullptr).encrypted) << "it stays on this host";
}

TEST(Switched, RanksThatNameDifferentSwitchesDoNotFormAGroup) {
  std::atomic<int> rank{0};
  EXPECT_THAT(
      [&] {
        run_ranks(
            2, [](Group&) {},
            [&](GroupOptions& options) {
              options.switch_address = options.rank == 0 ? "127.0.0.1:4711" : "";
              ++rank;
            });
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("different values of TALWEG_SWITCH: set it alike on all")));
  EXPECT_EQ(rank, 2);
}

TEST(Switched, WhoCallsSomethingElseIsToldAndTheGroupGoesOn) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_there(group);
        const std::size_t count = group.rank() == 1 ? 2000 : 1000;
        std::vector<float> in(count, 1), out(count, -1);
        EXPECT_THAT([&] { group.all_reduce(in.data(), out.data(), count, DataType::f32, ReduceOp::sum); },
                    ::testing::ThrowsMessage<Error>(HasSubstr("ranks disagree")));
        EXPECT_THAT(out, ::testing::Each(-1));
        for (int i = 0; i < 3; ++i) check_floats(group, 1000, i == 1);
        sum_until_there(group);
        group.barrier();
      },
      through(at(served)));
}

TEST(Switched, ARankThatIsLateIsWaitedForAsByTrees) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_there(group);
        const int before = sums(group);
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        check_floats(group, 1000, true);
        EXPECT_EQ(sums(group), before + 1) << switch_line(group);
        group.barrier();
      },
      through(at(served)));
}

// One rank has the sum and leaves; the others lose the switch, and what the trees then need of that rank.
TEST(Switched, ARankThatLeavesWithItsSumIsNotWaitedForWhereTheOthersLoseTheSwitch) {
  std::atomic<bool> for_one{false};
  std::atomic<int> port{0};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    if (!for_one) return ::sendmmsg(fd, messages, n, 0);
    for (unsigned i = 0; i < n; ++i) {
      const int to = static_cast<const sockaddr_in*>(messages[i].msg_hdr.msg_name)->sin_port;
      int nobody = 0;
      if (port.compare_exchange_strong(nobody, to) || nobody == to) ::sendmmsg(fd, messages + i, 1, 0);
    }
    return static_cast<int>(n);
  };
  const live::Served served(options);
  std::atomic<int> left{0}, told{0};
  std::vector<float> data(kRanks * 1000, 1);
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        group.barrier();
        for_one = true;
        const int before = sums(group);
        float* const mine = data.data() + 1000 * group.rank();
        const WorkPtr work = group.start_all_reduce(mine, mine, 1000, DataType::f32, ReduceOp::sum);
        while (sums(group) == before && !work->test())
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (sums(group) > before) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // its vote goes first
          ++left;
          return;
        }
        try {
          work->wait();  // well, where that rank has left only after it had taken part in the trees
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr("has left the group"));
        }
        ++told;
      },
      through(at(served)));
  EXPECT_EQ(left, 1);
  EXPECT_EQ(told, kRanks - 1);
}

// By cost: 1 MiB takes seconds on links of 1 Mbit/s, and 16 KiB a few microseconds on quick ones.
TEST(Switched, IsTakenWhereItIsQuickerThanThePlannedTrees) {
  const live::Served served;
  for (const bool slow : {true, false}) {
    const TemporaryFile cluster;
    std::ofstream(cluster.path()) << fmt::format(
        "nodes:\n  - {{name: a, kind: worker}}\n  - {{name: b, kind: worker}}\n  - {{name: c, kind: "
        "worker}}\n"
        "  - {{name: s, kind: switch}}\nlinks:\n"
        "  - {{between: [a, s], capacity: {0}, latency: 10ns}}\n"
        "  - {{between: [b, s], capacity: {0}, latency: 10ns}}\n"
        "  - {{between: [c, s], capacity: {0}, latency: 10ns}}\n",
        slow ? "1Mbit/s" : "1Tbit/s");
    run_ranks(
        kRanks,
        [&](Group& group) {
          // Until it has been measured, all go by trees.
          sum_until(group, 4096, [&] { return switch_line(group).find("not now") == std::string::npos; });
          const int before = sums(group);
          check_floats(group, slow ? 1 << 18 : 4096, true);
          EXPECT_EQ(sums(group), before + (slow ? 1 : 0));
          group.barrier();
        },
        [&](GroupOptions& options) {
          options.cluster_file = cluster.path();
          through(at(served), "")(options);
        });
  }
}

// Of one block, so that its scale is known: units of the largest value's, which no order of sums gives by
// itself.
TEST(Switched, ExactSumsHaveTheBitsOfTheirScaleAndTwoBytesAreTooFewForThem) {
  const Variable exact("TALWEG_SWITCH_EXACT", "1");
  constexpr std::size_t kCount = 100;
  const auto value_of = [](int rank, std::size_t i) {
    return std::ldexp(1.0F + static_cast<float>(i) / 128, static_cast<int>(i % 40) - 38) *
           static_cast<float>(rank + 1);
  };
  std::vector<float> expected(kCount);
  float largest = 0;
  for (int rank = 0; rank < kRanks; ++rank)
    for (std::size_t i = 0; i < kCount; ++i) largest = std::max(largest, value_of(rank, i));
  const protocol::BlockScale scale =
      protocol::scale_of(protocol::exponent_of(std::bit_cast<std::uint32_t>(largest)), kRanks);
  bool differ = false;
  for (std::size_t i = 0; i < kCount; ++i) {
    std::int32_t integers = 0;
    float plain = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      integers += static_cast<std::int32_t>(std::nearbyint(value_of(rank, i) * scale.to_integer));
      plain += value_of(rank, i);
    }
    expected[i] = static_cast<float>(integers) * scale.to_float;
    differ = differ || expected[i] != plain;
  }
  ASSERT_TRUE(differ);
  const live::Served served;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        EXPECT_THAT(switch_line(group), ::testing::ContainsRegex("sums?, exact"));
        const int before = sums(group);
        std::vector<float> data(kCount);
        for (std::size_t i = 0; i < kCount; ++i) data[i] = value_of(group.rank(), i);
        group.all_reduce(data.data(), data.data(), kCount, DataType::f32, ReduceOp::sum);
        EXPECT_EQ(data, expected);
        reduce_and_check<std::int32_t>(group, 300'000, DataType::i32, ReduceOp::sum, true,
                                       [](float x) { return static_cast<std::int32_t>(x); });
        EXPECT_EQ(sums(group), before + 2);
        reduce_and_check<std::uint16_t>(group, 1000, DataType::f16, ReduceOp::sum, false,
                                        [](float x) { return kernel::f32_to_f16(x); });
        EXPECT_EQ(sums(group), before + 2);
        group.barrier();
      },
      through(at(served)));
}

// A network whose switch is at `address`.
std::string network_with(const std::string& address) {
  std::string nodes, links;
  for (int r = 0; r < kRanks; ++r) {
    nodes += fmt::format("{{name: h{}}}, ", r);
    links += fmt::format("  - {{between: [h{}, box], capacity: 1Gbit/s}}\n", r);
  }
  return fmt::format("nodes: [{}{{name: box, kind: switch, switch: \"{}\"}}]\nlinks:\n{}", nodes, address,
                     links);
}

TEST(Switched, TheClusterFileNamesIt) {
  const live::Served served;
  const TemporaryFile network;
  std::ofstream(network.path()) << network_with(at(served));
  const auto known = [&](const std::string& algorithm) {
    return [&network, algorithm](GroupOptions& options) {
      options.cluster_file = network.path();
      options.algorithm = algorithm;
    };
  };
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        EXPECT_THAT(switch_line(group), HasSubstr(at(served) + " (node box of " + network.path() + "), "));
      },
      known("switch"));
  // Not with trees named for all_reduce, nor where the setting says that there is none, nor another one than
  // it names.
  const auto has_none = [](Group& group) { EXPECT_EQ(switch_line(group), "switch: none"); };
  run_ranks(kRanks, has_none, known("all_reduce:ring"));
  {
    const Variable none("TALWEG_SWITCH", "none");
    run_ranks(kRanks, has_none, known(""));
  }
  const live::Served other;
  const Variable named("TALWEG_SWITCH", at(other));
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        EXPECT_THAT(switch_line(group), HasSubstr(at(other) + " (environment), "));
      },
      known("switch"));
}

TEST(Switched, WhatCannotBeUsedOfAClusterFileIsSaidWithItsNode) {
  const TemporaryFile network;
  std::ofstream(network.path()) << network_with("10.0.0.9:4711");
  const auto joining = [&](const std::string& algorithm) {
    return [&network, algorithm] {
      run_ranks(
          kRanks, [](Group&) {},
          [&](GroupOptions& options) {
            options.cluster_file = network.path();
            options.algorithm = algorithm;
          });
    };
  };
  EXPECT_THAT(joining(""), ::testing::ThrowsMessage<Error>(HasSubstr(
                               network.path() + ": node box: switch: a switch that is not on loopback "
                                                "has a key: name its file in TALWEG_SWITCH_KEY_FILE")));
  EXPECT_NO_THROW(joining("ring")());
}

TEST(Switched, NamedTreesGoBeforeIt) {
  const live::Served served;
  run_ranks(
      kRanks, [](Group& group) { EXPECT_EQ(switch_line(group), "switch: none"); },
      through(at(served), "all_reduce:ring"));
  run_ranks(
      kRanks, [](Group& group) { sum_until_there(group); },
      through(at(served), "broadcast:chain;all_reduce:switch"));
}

}  // namespace
}  // namespace talweg
