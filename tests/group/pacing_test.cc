// Groups whose data leave at the paces of their plans, over TCP on loopback. All ranks are threads of this
// process, and so are their connections.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstdint>
#include <fstream>
#include <future>
#include <limits>
#include <numeric>

#include "ranks.h"

namespace talweg {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kPacedRanks = 4;
constexpr std::size_t kPacedCount = 1 << 20;  // floats

// Two on each leaf; what leaves a leaf meets on its uplink.
const char* const kTwoLeaves =
    "nodes:\n"
    "  - {name: h0}\n  - {name: h1}\n  - {name: h2}\n  - {name: h3}\n"
    "  - {name: left, kind: switch}\n  - {name: right, kind: switch}\n"
    "links:\n"
    "  - {between: [h0, left], capacity: 1Gbit/s, latency: 30us}\n"
    "  - {between: [h1, left], capacity: 1Gbit/s, latency: 30us}\n"
    "  - {between: [h2, right], capacity: 1Gbit/s, latency: 30us}\n"
    "  - {between: [h3, right], capacity: 1Gbit/s, latency: 30us}\n"
    "  - {between: [left, right], capacity: 200Mbit/s, latency: 30us}\n";

int paced_connections() {
  int count = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    std::uint64_t rate = 0;
    socklen_t length = sizeof rate;
    if (::getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &length) != 0) continue;
    count += rate != std::numeric_limits<std::uint64_t>::max() ? 1 : 0;
  }
  return count;
}

class Pacing : public ::testing::Test {
 protected:
  Pacing() { std::ofstream(network_.path()) << kTwoLeaves; }

  // A sum that rank 0 starts before all others; returns how many connections have a pace meanwhile.
  static int paced_while_summing(Group& group, std::size_t count, std::promise<void>& started,
                                 const std::shared_future<void>& has_started) {
    std::vector<float> x(count, 1.0F);
    int paced = 0;
    if (group.rank() == 0) {
      const WorkPtr work = group.start_all_reduce(x.data(), x.data(), count, DataType::f32, ReduceOp::sum);
      paced = paced_connections();
      started.set_value();
      work->wait();
    } else {
      has_started.wait();
      group.all_reduce(x.data(), x.data(), count, DataType::f32, ReduceOp::sum);
    }
    EXPECT_THAT(x, Each(static_cast<float>(kPacedRanks)));
    return paced;
  }
  // As rank 0 sees it.
  static int paced_while_summing(const std::string& cluster_file, std::size_t count) {
    std::promise<void> started;
    const std::shared_future<void> has_started = started.get_future().share();
    int paced = 0;
    run_ranks(
        kPacedRanks,
        [&](Group& group) {
          const int now = paced_while_summing(group, count, started, has_started);
          group.barrier();
          if (group.rank() == 0) {
            paced = now;
            EXPECT_EQ(paced_connections(), 0) << "all calls have ended";
          }
          group.barrier();
        },
        [&](GroupOptions& o) {
          o.cluster_file = cluster_file;
          o.algorithm = "sharded_star";
        });
    return paced;
  }

  TemporaryFile network_;
  Variable shm_{"TALWEG_SHM", "0"};
  Variable pacing_{"TALWEG_PACING", "1"};
};

TEST_F(Pacing, HoldsConnectionsWhileALongCallIsInFlight) {
  EXPECT_GT(paced_while_summing(network_.path(), kPacedCount), 0);
}

TEST_F(Pacing, HoldsUpNoShortCall) {
  EXPECT_EQ(paced_while_summing(network_.path(), 16 << 10), 0);
}

TEST_F(Pacing, IsNotForNetworksThatAreAssumedNorWhereItIsOff) {
  EXPECT_EQ(paced_while_summing("", kPacedCount), 0);
  run_ranks(2,
            [](Group& g) { EXPECT_THAT(g.describe(), HasSubstr("pacing: off: the network is assumed\n")); });
  const Variable off("TALWEG_PACING", "0");
  EXPECT_EQ(paced_while_summing(network_.path(), kPacedCount), 0);
  run_ranks(2, [](Group& g) { EXPECT_THAT(g.describe(), HasSubstr("pacing: off\n")); });
}

TEST_F(Pacing, IsAlsoForPartsOfAGroup) {
  std::promise<void> started;
  const std::shared_future<void> has_started = started.get_future().share();
  run_ranks(
      kPacedRanks,
      [&](Group& all) {
        EXPECT_THAT(all.describe(), HasSubstr("pacing: as plans have it\n"));
        std::vector<int> members(kPacedRanks);
        std::iota(members.rbegin(), members.rend(), 0);  // rank 0 of the part is rank 3 of the group
        const auto part = all.split(members);
        const int paced = paced_while_summing(*part, kPacedCount, started, has_started);
        if (part->rank() == 0) {
          EXPECT_GT(paced, 0);
        }
        part->barrier();
      },
      [&](GroupOptions& o) {
        o.cluster_file = network_.path();
        o.algorithm = "sharded_star";
      });
}

}  // namespace
}  // namespace talweg
