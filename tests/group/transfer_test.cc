// A group drives any transfer: here one with frames, buffers and a clock of its own.
#include <gmock/gmock.h>

#include "group/group_impl.h"
#include "protocol/flood.h"
#include "ranks.h"

namespace talweg::group {
namespace {

class AnyTransfer : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(SharedMemory, AnyTransfer, ::testing::Values("on", "off"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(AnyTransfer, RunsInItsOwnTimeBesideForests) {
  const Variable shm("TALWEG_SHM", GetParam());
  run_ranks(3, [](Group& g) {
    auto& group = dynamic_cast<GroupImpl&>(g);
    const auto rank = static_cast<std::size_t>(g.rank());
    // More than a connection takes at once, and less than fits into a frame.
    for (const std::size_t count : {1UL, 10'000UL, 60'000UL})
      for (const std::int64_t pause_ns : {1'000'000, 50'000'000}) {
        std::vector<std::int32_t> in(count, 1 << rank), sum(count, -1), other(count, 1 << rank);
        Call call{.op = Collective::all_reduce,
                  .type = DataType::i32,
                  .in = in.data(),
                  .out = sum.data(),
                  .count = count,
                  .options = {.timeout = std::chrono::seconds(20), .will_wait = true}};
        const std::int64_t begin_ns = live::now_ns();
        const WorkPtr work =
            group.start(call, protocol::flood_plan(g.rank(), 3, count * sizeof(std::int32_t), pause_ns));
        g.all_reduce(other.data(), other.data(), count, DataType::i32, ReduceOp::sum);
        work->wait();
        const std::int64_t took_ns = live::now_ns() - begin_ns;
        EXPECT_THAT(sum, ::testing::Each(7));
        EXPECT_EQ(sum, other);
        EXPECT_GE(took_ns, pause_ns);
        EXPECT_LT(took_ns, 10'000'000'000) << "only its deadline has come";
      }
  });
}

}  // namespace
}  // namespace talweg::group
