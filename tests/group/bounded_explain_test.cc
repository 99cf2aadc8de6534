// What bounded sums say of how they would go: over loopback, with networks that lose what they are told to.
#include <gmock/gmock.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "group/bounded.h"
#include "lossy.h"
#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::size_t kExplained = 10'240;  // floats

// The value of a line "key: value".
std::string explained_line(const std::string& text, const std::string& key) {
  const std::string begin = "\n" + key + ": ";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "no line " + key + " in " + text;
  const std::size_t from = at + begin.size();
  return text.substr(from, text.find('\n', from) - from);
}

double milliseconds_of(const std::string& text) {
  constexpr std::string_view kPredicted = ", predicted ";
  const std::size_t at = text.find(kPredicted);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + kPredicted.size()));
}

TEST(BoundedExplain, SaysWhoSumsWhatByWhichPacketsAndHowMuchMayBeMissing) {
  run_ranks(4, [](Group& group) {
    const auto sums =
        make_bounded(group, {.p = 0.1, .p_sender = 0.01, .p_call = 0.05, .packet_bytes = 512}, lossy(0, 1));
    const std::string text = sums->explain(kExplained);
    // Parts of 10240 bytes: 20 packets.
    EXPECT_THAT(text, MatchesRegex("bounded, direct, up to 20 packets of 512 [^ ]* to a server, predicted "
                                   "[0-9.e-]+ ms\nway: direct reduce-scatter, of which a part may be lost; "
                                   "then direct all-gather of the sums, exactly.*"));
    EXPECT_EQ(explained_line(text, "servers"), "all ranks; each sums up to 2560 of 10240 elements");
    EXPECT_THAT(explained_line(text, "carried by"),
                MatchesRegex("datagrams, as IP packets of [0-9]+ bytes pass between all ranks"));
    EXPECT_THAT(explained_line(text, "p"),
                StartsWith("0.1: of what a rank sends a server in a call up to 1024 of "
                           "10240 bytes"));
    EXPECT_THAT(
        explained_line(text, "p_sender"),
        AllOf(StartsWith("0.01: on average"), HasSubstr("up to 102 bytes"), HasSubstr("in the next 15")));
    EXPECT_THAT(explained_line(text, "p_call"), AllOf(StartsWith("0.05: "), HasSubstr("up to 1536 bytes")));
    EXPECT_EQ(explained_line(text, "together"), "up to 2 of a rank's 20 packets in a call");
    EXPECT_THAT(explained_line(text, "missing"), HasSubstr("counts as zero; with a residual"));
    EXPECT_THAT(explained_line(text, "exact calls"), HasSubstr("the first 20 of each size"));
    EXPECT_EQ(explained_line(text, "classes"), "all packets are important (ECT(0)); DSCP best effort");
    EXPECT_THAT(explained_line(text, "deadline"), StartsWith("60 s for a call without one of its own"));
    EXPECT_THAT(explained_line(text, "predicted"),
                AllOf(HasSubstr("to agree on the call"), HasSubstr("(push)"), HasSubstr("(pull)")));
    // Of halves as many bytes.
    EXPECT_THAT(sums->explain(kExplained, DataType::f16), HasSubstr("up to 10 packets of 512 "));
  });
}

TEST(BoundedExplain, SaysWhereNoPacketIsSmallEnoughToBeMissing) {
  run_ranks(2, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.01, .packet_bytes = 512}, lossy(0, 1));
    EXPECT_THAT(explained_line(sums->explain(kExplained), "together"), HasSubstr("nothing is ever missing"));
    EXPECT_EQ(explained_line(sums->explain(4 * kExplained), "together"),
              "up to 1 of a rank's 160 packets in a call");
    const auto exact = make_bounded(group, {.p = 0}, lossy(0, 1));
    EXPECT_EQ(explained_line(exact->explain(kExplained), "p"), "nothing may be missing");
  });
}

TEST(BoundedExplain, SaysWhichServersThereAreAndWhatTheNetworkMayDo) {
  run_ranks(4, [](Group& group) {
    const PacketClasses classes{
        .droppable_front = 0.5, .droppable_back = 0.25, .keep_important = true, .queues = 3};
    PacketClasses back = classes;
    back.droppable_back = 0.5;
    back.keep_important = false;
    back.back_first = true;
    BoundedLossOptions options{.p = 0.1, .policy = LossPolicy::rescale, .classes = classes};
    options.servers = {3, 1};
    options.dedicated = true;
    const std::string text = make_bounded(group, options, lossy(0, 1))->explain(kExplained);
    EXPECT_EQ(explained_line(text, "servers"),
              "ranks 1, 3, which add nothing of their own; each sums up to 5120 of 10240 elements");
    // Of two others.
    EXPECT_THAT(explained_line(text, "p_call"), HasSubstr("up to 4096 bytes"));
    EXPECT_THAT(explained_line(text, "missing"), HasSubstr("left out of the mean"));
    EXPECT_EQ(
        explained_line(text, "classes"),
        "of each rank's packets 50 % to 25 %, by depth, those of the smallest values, are droppable "
        "(Not-ECT); the others are important (ECT(0)), and none of these may be missing; DSCP by depth, "
        "from the first layers to the last: AF41, AF31, AF21; control CS5");
    EXPECT_EQ(
        explained_line(make_bounded(group, {.p = 0.1, .classes = back}, lossy(0, 1))->explain(kExplained),
                       "classes"),
        "of each rank's packets 50 %, those of the smallest values, are droppable (Not-ECT); the others "
        "are important (ECT(0)); DSCP by depth, from the first layers to the last: AF21, AF31, AF41; "
        "control CS5");
  });
}

TEST(BoundedExplain, SaysWhyTheGroupsConnectionsCarryThem) {
  run_ranks(3, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.05}, lossy(group.rank() == 1 ? 1 : 0, 1));
    const std::string text = sums->explain(kExplained);
    EXPECT_THAT(text, MatchesRegex("bounded, over the group's connections: [^\n]*, predicted [^\n]* ms\n.*"));
    EXPECT_THAT(
        explained_line(text, "carried by"),
        MatchesRegex("the group's connections, as no datagram of rank 1 \\(.*\\) comes to rank 0 \\(.*\\)"));
    EXPECT_EQ(explained_line(text, "missing"), "nothing");
    EXPECT_THAT(text, Not(HasSubstr("\np: ")));
  });
}

TEST(BoundedExplain, SaysBetweenWhomLargeDatagramsDoNotPass) {
  run_ranks(3, [](Group& group) {
    BoundedSeams seams = lossy(0, 3);
    if (group.rank() == 2) seams = no_larger_than(1000, seams);
    const std::string text = make_bounded(group, {.p = 0.1}, seams)->explain(kExplained);
    EXPECT_THAT(
        explained_line(text, "carried by"),
        MatchesRegex("datagrams, as IP packets of 740 bytes pass between all ranks \\(8292 do not, from "
                     "rank 2 \\(.*\\) to rank 0 \\(.*\\)\\)"));
    EXPECT_THAT(text, Not(HasSubstr("of 8 KiB")));
  });
}

// Four hosts of 1 Gbit/s: a server's link carries its part from each other rank, and its sum to each.
TEST(BoundedExplain, PredictsByTheGroupsNetwork) {
  const TemporaryFile network;
  std::ofstream(network.path()) << "nodes:\n  - {name: s, kind: switch}\n"
                                   "  - {name: h0}\n  - {name: h1}\n  - {name: h2}\n  - {name: h3}\n"
                                   "links:\n"
                                   "  - {between: [h0, s], capacity: 1Gbit/s, latency: 30us}\n"
                                   "  - {between: [h1, s], capacity: 1Gbit/s, latency: 30us}\n"
                                   "  - {between: [h2, s], capacity: 1Gbit/s, latency: 30us}\n"
                                   "  - {between: [h3, s], capacity: 1Gbit/s, latency: 30us}\n";
  run_ranks(
      4,
      [](Group& group) {
        constexpr std::size_t kLarge = 1 << 20;  // 4 MiB: 33.6 ms on a link
        const auto predicted = [&](const std::vector<int>& servers) {
          BoundedLossOptions options;
          options.servers = servers;
          return milliseconds_of(make_bounded(group, options, lossy(0, 1))->explain(kLarge));
        };
        const double even = predicted({}), two = predicted({0, 1}), one = predicted({2});
        EXPECT_GT(even, 1.5 * 33.5);
        EXPECT_LT(even, 1.8 * 33.5);
        EXPECT_GT(two, 1.8 * even);
        EXPECT_LT(two, 2.2 * even);
        EXPECT_GT(one, 3.6 * even);
        EXPECT_LT(one, 4.4 * even);
      },
      [&](GroupOptions& options) { options.cluster_file = network.path(); });
}

TEST(BoundedExplain, RefusesWhatNoCallTakesAndKnowsWhereNothingIsSent) {
  run_ranks(2, [](Group& group) {
    const auto sums = make_bounded(group, {}, lossy(0, 1));
    EXPECT_THAT(error_of([&] { sums->explain(1, DataType::i32); }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("of i32: expected f16, bf16, f32 or f64")));
    EXPECT_THAT(error_of([&] { sums->explain(~std::size_t{0}); }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("expected at most")));
    const auto small = make_bounded(group, {.packet_bytes = 64}, lossy(0, 1));
    EXPECT_THAT(error_of([&] { small->explain(std::size_t{1} << 34); }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("in packets of 64: expected at most")))
        << "two parts of 2^29 packets";
    EXPECT_THAT(sums->explain(0), HasSubstr("of no elements"));
    EXPECT_THAT(sums->explain(1), HasSubstr("each sums up to 1 of 1 elements"));
  });
  run_ranks(1, [](Group& group) {
    EXPECT_THAT(BoundedSums::make(group)->explain(kExplained), HasSubstr("of one rank, which sends nothing"));
  });
}

// Any thread may ask, also while another one is in a call, and no other rank has to.
TEST(BoundedExplain, IsNoCall) {
  run_ranks(2, [](Group& group) {
    const auto sums = make_bounded(group, {}, lossy(0, 1));
    std::vector<float> values(kExplained, 1.F);
    if (group.rank() == 1) {
      group.barrier();
      sums->all_reduce({.in = values.data(), .out = values.data(), .count = kExplained});
      return;
    }
    std::thread caller(
        [&] { sums->all_reduce({.in = values.data(), .out = values.data(), .count = kExplained}); });
    EXPECT_THAT(sums->explain(kExplained), StartsWith("bounded, direct, "));
    group.barrier();
    caller.join();
    EXPECT_EQ(values[0], 2.F);
  });
}

}  // namespace
}  // namespace talweg::group
