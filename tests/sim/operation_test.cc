// What a rank does in a simulation is what a group's call makes it do.
#include "protocol/operation.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/collectives.h"
#include "cluster/cluster.h"
#include "forest/look_ahead.h"
#include "forest/planner.h"
#include "protocol/as_called.h"
#include "protocol/random_calls.h"
#include "sim/collectives.h"
#include "sim/shapes.h"

namespace talweg::sim {
namespace {

constexpr int kFour = 4;

std::shared_ptr<const forest::Forest> forest_for(const forest::Request& q) {
  for (const forest::Planner& planner : forest::planners())
    if (planner.serves(q)) return std::make_shared<forest::Forest>(planner.plan(q, star(kFour, kTen)));
  ADD_FAILURE() << "no planner serves " << name(q.op);
  return nullptr;
}

class EveryCollectiveInSimulation : public testing::TestWithParam<int> {
 protected:
  Collective op() const { return static_cast<Collective>(GetParam()); }
};

TEST_P(EveryCollectiveInSimulation, IsTheOperationThatAGroupMakesOfIt) {
  if (op() == Collective::send_recv) return;  // is a message in a group
  const int root = facts(op()).rooted ? 2 : 0;
  for (const forest::Request& q :
       {protocol::uneven_request(op(), kFour), forest::even_request(op(), kFour, root, 100, 4)}) {
    const auto plans = protocol::make_plans(forest_for(q));
    for (int rank = 0; rank < kFour; ++rank) {
      const protocol::Operation called = protocol::as_called(q, rank);
      const protocol::Operation simulated = operation_for(
          plans[static_cast<std::size_t>(rank)], DataType::f32, ReduceOp::sum, nullptr, nullptr, true);
      EXPECT_EQ(called.signature, simulated.signature)
          << to_string(called.signature) << ", not " << to_string(simulated.signature);
      EXPECT_EQ(called.tell, simulated.tell);
      EXPECT_EQ(called.expect, simulated.expect);
      EXPECT_EQ(called.all_contribute, simulated.all_contribute);
      EXPECT_EQ(called.fence, simulated.fence);
      EXPECT_EQ(called.operands.reduce, simulated.operands.reduce);
      EXPECT_EQ(called.operands.divisor, simulated.operands.divisor);
    }
  }
}

void expect_what_it_should(Collective op, const cluster::Cluster& network) {
  protocol::RandomCall call;
  call.request = protocol::uneven_request(op, kFour);
  for (std::int64_t& count : call.request.counts) count *= 7770;  // enough for ranks to wait for each other
  call.request.counts[1] = 0;
  Simulation simulation(network, {});
  Ranks ranks(simulation, {});
  std::vector<protocol::Buffers> buffers;
  for (int rank = 0; rank < kFour; ++rank) buffers.push_back(protocol::buffers_for(call, rank, 1));
  const auto plans =
      protocol::make_plans(forest_for(call.request), 0, forest::look_ahead(call.request, network));
  for (std::size_t r = 0; r < buffers.size(); ++r)
    ranks.start(static_cast<int>(r),
                operation_for(plans[r], DataType::i32, ReduceOp::sum,
                              reinterpret_cast<const std::byte*>(buffers[r].in.data()),
                              reinterpret_cast<std::byte*>(buffers[r].out.data()), true),
                0);
  simulation.run();
  for (const CollectiveResult& result : ranks.results()) {
    EXPECT_NE(result.ended, kNever);
    EXPECT_TRUE(result.outcome.ok) << result.outcome.text;
  }
  for (const protocol::Buffers& b : buffers) EXPECT_EQ(b.out, b.expected);
}

TEST_P(EveryCollectiveInSimulation, OfUnevenPartsBringsEveryRankWhatItShould) {
  if (!has_parts(op())) return;
  cluster::Cluster network = star(kFour, kTen);
  expect_what_it_should(op(), network);
  for (cluster::Link& link : network.links)
    if (link.to == 0 || link.to == 3) link.capacity = Bandwidth{2e8};
  expect_what_it_should(op(), network);
}

INSTANTIATE_TEST_SUITE_P(Simulation, EveryCollectiveInSimulation, testing::Range(0, kCollectives),
                         [](const auto& tested) { return name(static_cast<Collective>(tested.param)); });

}  // namespace
}  // namespace talweg::sim
