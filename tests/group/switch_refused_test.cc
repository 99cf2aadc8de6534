// What the system or a switch refuses a group: it goes by trees, and says why.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "few_descriptors.h"
#include "group/switch_streams.h"
#include "sanitized.h"
#include "switched.h"

namespace talweg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kRefusedCount = 20'000;  // floats

// While the process has no descriptors: all ranks are where none is opened before and afterwards.
void without_descriptors(Group& group, std::optional<FewDescriptors>& few, const std::function<void()>& act) {
  group.barrier();
  if (group.rank() == 0) few.emplace(0);
  group.barrier();
  act();
  group.barrier();
  if (group.rank() == 0) few.reset();
  group.barrier();
}

TEST(SwitchedRefused, AGroupThatHasNoDescriptorsForItGoesByTrees) {
  if (kSanitized) GTEST_SKIP() << "sanitizers want descriptors to look at an object's type";
  const live::Served one, other;
  std::optional<FewDescriptors> few;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_all(group, 2);
        const auto part = group.split(std::vector{0, 1, 2});
        without_descriptors(group, few, [&] {
          for (int i = 0; i < 3; ++i) check_floats(*part, kRefusedCount, i == 0);
        });
        EXPECT_THAT(switch_line(*part), AllOf(HasSubstr(at(one)), HasSubstr(at(other)),
                                              HasSubstr(", 0 sums; not now: the system has refused it; ")));
        check_floats(*part, kRefusedCount, false);
        sum_until_all(group, 2);
        group.barrier();
      },
      through(at(one) + "," + at(other)));
}

TEST(SwitchedRefused, CallsWithAPriorityThatHaveNoDescriptorsForItGoWithTheOthers) {
  if (kSanitized) GTEST_SKIP() << "sanitizers want descriptors to look at an object's type";
  const live::Served served;
  std::optional<FewDescriptors> few;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        const auto urgent_sum = [&] {
          std::vector<float> data(kRefusedCount, 1.F);
          CallOptions urgent;
          urgent.priority = 1;
          group.start_all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum, urgent)
              ->wait();
          EXPECT_EQ(data, std::vector<float>(kRefusedCount, kRanks));
        };
        const int before = sums(group);
        without_descriptors(group, few, [&] {
          urgent_sum();
          urgent_sum();
        });
        urgent_sum();
        EXPECT_THAT(sums_of_each(group), ElementsAre(before + 3));
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRefused, ThoseThatAreJoinedAtOnceAreNoErrorEither) {
  if (kSanitized) GTEST_SKIP() << "sanitizers want descriptors to look at an object's type";
  const live::Served served;
  group::SwitchWish wish;
  wish.wanted = wish.always = true;
  wish.at = {{served.service().address(), at(served)}};
  std::optional<group::SwitchStreams> streams;
  {
    const FewDescriptors none(0);
    streams.emplace(wish, group::SwitchStream::Place{0, 2, "refused"}, Logger(0, LogLevel::none), [] {});
  }
  EXPECT_EQ(streams->line_up(true), nullptr);
  EXPECT_FALSE(streams->estimate(kRefusedCount, wire::AggregationFormat::f32));
  EXPECT_THAT(streams->describe(), HasSubstr("not now: the system has refused it"));
}

struct FullSwitch {
  std::vector<std::string> warnings;
  double seconds = 0;  // from the first refusal to the last one
};
// A switch that takes one job, which is there already, and one that is refused so many times.
FullSwitch at_a_full_switch(bool part, int times) {
  live::SwitchServiceOptions options;
  options.quotas.jobs = 1;
  const live::Served served(options);
  const group::SwitchWish wish = always_by(served);
  group::SwitchStream first(wish, wish.at[0], {0, 1, "first"}, Logger(0, LogLevel::none), [] {});
  live::wait_until([&] { return first.cost().has_value(); });
  const Warnings warnings;
  group::SwitchStream::Place place{0, 1, "second"};
  place.part = part;
  std::atomic<int> changes{0};  // each after what is said of it
  std::atomic<std::int64_t> first_ns{0}, last_ns{0};
  {
    group::SwitchStream second(wish, wish.at[0], place, warnings.logger(), [&] {
      last_ns = live::now_ns();
      if (changes == 0) first_ns = last_ns.load();
      ++changes;
    });
    live::wait_until([&] { return changes >= times; });
    EXPECT_THAT(second.describe(), HasSubstr("the switch is busy"));
  }
  return {warnings.lines(), static_cast<double>(last_ns - first_ns) * 1e-9};
}

// Pauses of 0.5, 1 and 2 s, of each of which up to half is left out; a slow machine only makes them longer.
TEST(SwitchedRefused, AFullSwitchIsAskedMoreAndMoreSeldomAndWarnedOfOnceWithTheJob) {
  const FullSwitch found = at_a_full_switch(false, 4);
  EXPECT_GE(found.seconds, 1.75);
  EXPECT_THAT(found.warnings, ElementsAre(AllOf(HasSubstr("no sums by the switch at "),
                                                HasSubstr("job second "), HasSubstr("the switch is busy"))));
}

TEST(SwitchedRefused, AFullSwitchIsNotWarnedOfForEachPartOfAGroup) {
  EXPECT_THAT(at_a_full_switch(true, 1).warnings, IsEmpty());
}

}  // namespace
}  // namespace talweg
