// A call that no planner can serve: refused as if it had never been made.
#include <gtest/gtest.h>

#include "cluster/cluster.h"
#include "group/group_impl.h"

namespace talweg::group {
namespace {

TEST(RefusedPlan, LeavesNothingInFlightAndNoNumberTaken) {
  live::Mesh mesh;
  mesh.connections.resize(1);
  observe::ObserverOptions seen;
  seen.hosts = {"host pid 1"};
  seen.recorded = 8;
  const auto world = std::make_shared<World>(0, std::move(mesh), live::LinkOptions{}, seen);
  // A network of two workers cannot be that of a group of one.
  GroupImpl group(world, {0, {0}, seen.hosts, {0}, 0},
                  cluster::uniform_mesh(2, Bandwidth{1e9}, Nanoseconds{1000}), "", std::chrono::seconds(10),
                  "");
  for (int i = 0; i < 3; ++i) {
    float x = 1;
    try {
      group.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
      FAIL() << "planned";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("the cluster has 2 workers, expected 1"), std::string::npos)
          << e.what();
    }
  }
  const auto guard = world->lock();
  EXPECT_EQ(world->in_flight(), 0u) << "the progress thread would drive for ever";
  EXPECT_EQ(group.session().next_sequence(), 0u);
}

}  // namespace
}  // namespace talweg::group
