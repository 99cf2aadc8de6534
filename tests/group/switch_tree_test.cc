// Groups whose ranks are in two racks, each with a switch of its own, below one that sums what these have
// summed.
#include <memory>

#include "switched.h"

namespace talweg {
namespace {

live::SwitchServiceOptions below(const live::Served& above) {
  live::SwitchServiceOptions options;
  options.above = live::SwitchAboveOptions{above.service().address()};
  return options;
}
// Ranks 0 and 1 are in one rack, rank 2 in the other.
std::function<void(GroupOptions&)> through_racks(const live::Served& one, const live::Served& other) {
  return [one = at(one), other = at(other)](GroupOptions& options) {
    options.switch_address = options.rank < 2 ? one : other;
    options.algorithm = "switch";
  };
}

TEST(SwitchedTree, RanksNameTheSwitchOfTheirRack) {
  const live::Served top;
  const live::Served one(below(top)), other(below(top));
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_there(group);
        const int before = sums(group);
        for (int i = 0; i < 5; ++i) check_floats(group, 10'000, i == 1);
        EXPECT_EQ(sums(group), before + 5) << switch_line(group);
        group.barrier();
      },
      through_racks(one, other));
}

TEST(SwitchedTree, GoesOnByTreesWithoutTheSwitchAboveAndTakesItBack) {
  auto top = std::make_unique<live::Served>();
  const live::Served one(below(*top)), other(below(*top));
  live::SwitchServiceOptions again;
  again.listen = top->service().address();
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        group.barrier();
        if (group.rank() == 0) top.reset();
        for (int i = 0; i < 20; ++i) check_floats(group, 1000, i % 2 == 1);
        group.barrier();
        if (group.rank() == 0) top = std::make_unique<live::Served>(again);
        sum_until_there(group);
        group.barrier();
      },
      through_racks(one, other));
}

TEST(SwitchedTree, IsSaidToBeNoneWhereNoSwitchIsAbove) {
  const live::Served one, other;
  run_ranks(
      kRanks,
      [](Group& group) {
        check_floats(group, 1000, false);
        live::wait_until([&] { return switch_line(group).find("--above") != std::string::npos; });
        group.barrier();
      },
      through_racks(one, other));
}

}  // namespace
}  // namespace talweg
