// Groups whose best plan takes longer than a call can wait: another one serves until it is there, and then
// all ranks take it at the same call.
#include <gmock/gmock.h>

#include <fstream>

#include "base/crc32c.h"
#include "base/random.h"
#include "cluster/cluster.h"
#include "forest/random_networks.h"
#include "ranks.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;

TEST(SharedPlans, AllRanksChangeToTheBetterPlanAtTheSameCallWhileCallsAreInFlight) {
  constexpr int kSharers = 12;  // whose trees take a while to pack on this network
  constexpr std::size_t kCount = 1 << 15;
  constexpr int kMostRounds = 20000;
  const TemporaryFile network;
  std::ofstream(network.path()) << cluster::to_yaml(forest::random_network(1, kSharers));
  const Variable cluster("TALWEG_CLUSTER", network.path());
  run_ranks(kSharers, [&](Group& g) {
    Random random{static_cast<std::uint64_t>(g.rank())};
    std::vector<float> mine(kCount);
    for (float& x : mine) x = static_cast<float>(random.uniform() * (g.rank() + 1) * 1e3);
    std::uint32_t before = 0;
    int round = 0;
    for (bool changed = false; !changed && round < kMostRounds; ++round) {
      std::vector<std::vector<float>> sums(3, std::vector<float>(kCount));
      std::vector<WorkPtr> works;
      for (auto& sum : sums)
        works.push_back(g.start_all_reduce(mine.data(), sum.data(), kCount, DataType::f32, ReduceOp::sum));
      std::vector<std::uint32_t> own;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        works[i]->wait();
        own.push_back(crc32c(sums[i].data(), kCount * sizeof(float)));
      }
      std::vector<std::uint32_t> all(own.size() * kSharers);
      g.all_gather(own.data(), all.data(), std::vector<std::size_t>(kSharers, own.size()), DataType::i32);
      for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(all[i], own[i % own.size()]) << "round " << round;
      // Another plan sums in another order, which shows in the last bits.
      if (round == 0) before = own[0];
      changed = own.back() != before;
    }
    EXPECT_LT(round, kMostRounds) << "the better plan has never come";
  });
}

TEST(SharedPlans, ACallThatRankZeroHasNotMadeNamesIt) {
  run_ranks(3, [](Group& g) {
    float x = 1;
    CallOptions soon;
    soon.timeout = std::chrono::milliseconds(300);
    if (g.rank() > 0) {
      try {
        g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, soon);
        ADD_FAILURE() << "rank 0 has not called it";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::timeout);
        EXPECT_THAT(e.what(), HasSubstr("rank 0 ("));
        EXPECT_THAT(e.what(), HasSubstr("has not started it"));
      }
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      EXPECT_THROW(g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, soon), Error);
    }
    g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::max);  // the group goes on
    EXPECT_EQ(x, 1);
  });
}

}  // namespace
}  // namespace talweg
