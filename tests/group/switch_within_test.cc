// Groups made of the ranks of one that a switch sums for: each has a job of its own there.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <latch>
#include <mutex>
#include <set>
#include <utility>

#include "switched.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kWithinRanks = 4;

// A switch whose jobs are looked at while it serves.
class Watched {
 public:
  explicit Watched(live::SwitchServiceOptions options = {}) : served_(watch(std::move(options))) {}
  const live::Served& served() const { return served_; }
  // As of its last status: "3 workers" by the name of a job that is open.
  std::set<std::pair<std::string, std::size_t>> open() const {
    const std::lock_guard guard(mutex_);
    return open_;
  }
  void wait_for_jobs(std::size_t count) const {
    live::wait_until([&] { return open().size() == count; });
  }

 private:
  live::SwitchServiceOptions watch(live::SwitchServiceOptions options) {
    options.describe = [this](const live::SwitchStatus& status) {
      const std::lock_guard guard(mutex_);
      open_.clear();
      for (const auto& job : status.jobs)
        if (job.slots > 0) open_.insert({job.name, job.workers});
      return std::string();
    };
    options.publish = [](const std::string&) {};
    options.publish_every_ns = 1'000'000;
    return options;
  }
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, std::size_t>> open_;
  live::Served served_;
};

std::shared_ptr<Group> split_of(Group& group, const std::vector<int>& ranks) {
  return group.split(ranks);
}

// Of this group's ranks, whatever they are elsewhere.
void add_up(Group& group, std::size_t count, const CallOptions& options = {}) {
  std::vector<float> data(count), expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>((i * 3 + static_cast<std::size_t>(group.rank()) * 5) % 13);
    for (int r = 0; r < group.size(); ++r)
      expected[i] += static_cast<float>((i * 3 + static_cast<std::size_t>(r) * 5) % 13);
  }
  group.start_all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, options)->wait();
  ASSERT_EQ(data, expected) << switch_line(group);
}

// Until all of its ranks find so, after the same calls.
void add_up_until(Group& group, const std::function<bool()>& holds, const CallOptions& options = {}) {
  const std::int64_t deadline_ns = live::soon();
  for (;;) {
    add_up(group, 1000, options);
    std::int64_t state = holds() ? 2 : live::now_ns() > deadline_ns ? 0 : 1;
    const std::int64_t own = state;
    group.all_reduce(&own, &state, 1, DataType::i64, ReduceOp::min);
    if (state == 2) return;
    ASSERT_EQ(state, 1) << "what was waited for has not come: " << switch_line(group);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}
void add_up_by_switch(Group& group) {
  const int before = sums(group);
  add_up_until(group, [&] { return sums(group) > before; });
}

TEST(SwitchedWithin, TwoHalvesAreSummedBesideEachOtherAndBesideTheWhole) {
  const Watched watched;
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        add_up_by_switch(group);
        const bool first = group.rank() < 2;
        const auto half = split_of(group, first ? std::vector{0, 1} : std::vector{2, 3});
        add_up_by_switch(*half);
        group.barrier();
        watched.wait_for_jobs(3);
        std::vector<std::size_t> workers;
        std::set<std::string> names;
        for (const auto& [name, of] : watched.open()) {
          workers.push_back(of);
          names.insert(name);
        }
        EXPECT_THAT(names, SizeIs(3));
        EXPECT_THAT(workers, ::testing::UnorderedElementsAre(2U, 2U, 4U));
        group.barrier();
        const int before = sums(*half), whole = sums(group);
        for (int i = 0; i < 10; ++i) {
          add_up(*half, 20'000);
          EXPECT_EQ(last_way(*half), "dense") << switch_line(*half);
        }
        add_up(group, 20'000);
        EXPECT_EQ(sums(*half), before + 10);
        EXPECT_EQ(sums(group), whole + 1);
        group.barrier();
      },
      through(at(watched.served())));
}

TEST(SwitchedWithin, AJobIsOpenedForTheFirstSumThatItCanMakeAndFreedWithItsGroup) {
  const Watched watched;
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        add_up_by_switch(group);
        watched.wait_for_jobs(1);
        auto part = split_of(group, {3, 1, 0, 2});
        part->barrier();
        double number = 1;
        part->all_reduce(&number, &number, 1, DataType::f64, ReduceOp::sum);
        EXPECT_EQ(number, kWithinRanks);
        float most = 1;
        part->all_reduce(&most, &most, 1, DataType::f32, ReduceOp::max);
        EXPECT_THAT(switch_line(*part),
                    HasSubstr(", 0 sums; not now: it is joined for the first all_reduce"));
        group.barrier();
        EXPECT_THAT(watched.open(), SizeIs(1));
        EXPECT_THAT(part->explain(Collective::all_reduce, 1000, DataType::f32),
                    ::testing::MatchesRegex(
                        "switch, once it is joined for the first all_reduce; until then .*, predicted .*"));
        EXPECT_THAT(part->explain(Collective::all_reduce, 1000, DataType::f64),
                    ::testing::Not(HasSubstr("switch")));
        group.barrier();
        add_up_by_switch(*part);
        EXPECT_THAT(part->explain(Collective::all_reduce, 1000, DataType::f32),
                    ::testing::StartsWith("switch, not measured; without it "));
        watched.wait_for_jobs(2);
        group.barrier();
        part.reset();
        watched.wait_for_jobs(1);
        add_up_by_switch(group);
        group.barrier();
      },
      through(at(watched.served())));
}

TEST(SwitchedWithin, GroupsThatOverlapAndGroupsOfGroupsHaveJobsOfTheirOwn) {
  const Watched watched;
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        const auto low = split_of(group, {0, 1, 2}), high = split_of(group, {1, 2, 3});
        const auto again = split_of(group, {0, 1, 2});
        if (low) {
          const auto inner = split_of(*low, {2, 0});
          for (int i = 0; inner && i < 2; ++i) add_up_by_switch(*inner);
          add_up_by_switch(*low);
          if (high) add_up_by_switch(*high);
          add_up_by_switch(*again);
          low->barrier();
          EXPECT_EQ(inner == nullptr, group.rank() == 1);
          if (high) high->barrier();
          group.barrier();
          watched.wait_for_jobs(5);
          group.barrier();
        } else {
          add_up_by_switch(*high);
          high->barrier();
          group.barrier();
          watched.wait_for_jobs(5);
          group.barrier();
        }
      },
      through(at(watched.served())));
}

TEST(SwitchedWithin, WhereTheSwitchIsFullAGroupGoesByTreesUntilAnotherIsOver) {
  live::SwitchServiceOptions options;
  options.quotas.jobs = 2;
  const Watched watched(options);
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        add_up_by_switch(group);
        auto first = split_of(group, {0, 1, 2, 3});
        const auto second = split_of(group, {0, 1, 2, 3});
        add_up_by_switch(*first);
        add_up_until(*second, [&] { return switch_line(*second).find("busy") != std::string::npos; });
        for (int i = 0; i < 3; ++i) {
          add_up(*second, 20'000);
          EXPECT_EQ(last_way(*second), "fallback");
        }
        EXPECT_EQ(sums(*second), 0);
        add_up_by_switch(*first);
        group.barrier();
        first.reset();
        add_up_by_switch(*second);
        group.barrier();
      },
      through(at(watched.served())));
}

TEST(SwitchedWithin, AGroupOfOneHasNone) {
  const Watched watched;
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        add_up_by_switch(group);
        const auto alone = split_of(group, {group.rank()});
        add_up(*alone, 1000);
        EXPECT_EQ(switch_line(*alone), "switch: none");
        group.barrier();
        watched.wait_for_jobs(1);
        group.barrier();
      },
      through(at(watched.served())));
}

TEST(SwitchedWithin, WhatIsMadeOfAGroupWithoutASwitchHasNone) {
  run_ranks(2, [&](Group& group) {
    const auto both = split_of(group, {1, 0});
    add_up(*both, 1000);
    EXPECT_EQ(switch_line(*both), "switch: none");
  });
}

TEST(SwitchedWithin, WhatTheGroupWishesHoldsForThoseMadeOfIt) {
  const std::string secret = "a secret of the switch, and of who may use it";
  const TemporaryFile key;
  std::ofstream(key.path()) << secret;
  live::SwitchServiceOptions options;
  options.key = [&] { return wire::secret_from_text(secret); };
  const Watched watched(options);
  const Variable encrypt("TALWEG_ENCRYPT", "on"), ordered("TALWEG_SWITCH_ORDERED", "1"),
      sparse("TALWEG_SWITCH_SPARSE", "1");
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        const auto part = split_of(group, {2, 1, 0, 3});
        EXPECT_THAT(switch_line(*part), HasSubstr(", 0 sums, in order, encrypted, sparse; not now: "));
        add_up_by_switch(*part);
        add_up(*part, 100'000);
        EXPECT_EQ(last_way(*part), "blocks");
        EXPECT_THAT(switch_line(*part), ::testing::ContainsRegex("sums?, in order, encrypted, sparse$"));
        group.barrier();
      },
      [&](GroupOptions& o) {
        through(at(watched.served()))(o);
        o.switch_key_file = key.path();
      });
}

TEST(SwitchedWithin, CallsWithAPriorityHaveASecondJobAsThoseOfTheWhole) {
  const Watched watched;
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        add_up_by_switch(group);
        const auto half = split_of(group, group.rank() % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3});
        CallOptions urgent;
        urgent.priority = 1;
        add_up_until(
            *half,
            [&] {
              const std::vector<int> of_each = sums_of_each(*half);
              return of_each.size() == 2 && of_each[1] > 0;
            },
            urgent);
        group.barrier();
        watched.wait_for_jobs(5);
        EXPECT_THAT(sums_of_each(group), SizeIs(1));
        group.barrier();
      },
      through(at(watched.served())));
}

TEST(SwitchedWithin, EachOfSeveralSwitchesSumsAPart) {
  const Watched one, other;
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        const auto half = split_of(group, group.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3});
        add_up_until(*half, [&] {
          add_up(*half, 100'000);
          const std::vector<int> of_each = sums_of_each(*half);
          return of_each.size() == 2 && of_each[0] > 0 && of_each[1] > 0;
        });
        group.barrier();
        one.wait_for_jobs(3);
        other.wait_for_jobs(3);
        group.barrier();
      },
      through(at(one.served()) + "," + at(other.served())));
}

// Of one rack's ranks its own switch sums alone; of others all three do.
TEST(SwitchedWithin, GroupsBelowASwitchOfRacksAreSummedWhereTheirRanksAre) {
  const Watched top;
  live::SwitchServiceOptions below;
  below.above = live::SwitchAboveOptions{top.served().service().address()};
  const Watched left(below), right(below);
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        add_up_by_switch(group);
        const auto rack = split_of(group, group.rank() < 2 ? std::vector{0, 1} : std::vector{3, 2});
        add_up_by_switch(*rack);
        group.barrier();
        top.wait_for_jobs(1);
        left.wait_for_jobs(2);
        right.wait_for_jobs(2);
        group.barrier();
        const auto across = split_of(group, group.rank() % 2 == 0 ? std::vector{2, 0} : std::vector{1, 3});
        add_up_by_switch(*across);
        group.barrier();
        top.wait_for_jobs(3);
        group.barrier();
      },
      [&](GroupOptions& o) { through(at((o.rank < 2 ? left : right).served()))(o); });
}

// By a store, and not by their parent's calls.
TEST(SwitchedWithin, AGroupJoinedWithinAnotherHasAJobOfItsOwn) {
  const Watched watched;
  const TemporaryFile stores[2];
  run_ranks(
      kWithinRanks,
      [&](Group& group) {
        add_up_by_switch(group);
        const std::shared_ptr<Group> parent(&group, [](Group*) {});
        GroupOptions options = options_for(group.rank() / 2, 2, stores[group.rank() % 2].path());
        options.within = parent;
        const auto half = Group::join(options);
        add_up_by_switch(*half);
        group.barrier();
        watched.wait_for_jobs(3);
        group.barrier();
      },
      through(at(watched.served())));
}

// As the group that was joined first, whose connections are of no use any more.
TEST(SwitchedWithin, AGroupThatIsJoinedAfreshHasAJobOfItsOwn) {
  const Watched watched;
  const Variable named("TALWEG_SWITCH", at(watched.served())), always("TALWEG_ALGO", "switch");
  const TemporaryFile stores[2];
  std::latch summed(kWithinRanks);  // a barrier of the group could meet the abort
  run_ranks(kWithinRanks, [&](Group& group) {
    add_up_by_switch(group);
    watched.wait_for_jobs(1);
    summed.arrive_and_wait();
    if (group.rank() == 0) group.abort("to see what happens");
    const std::shared_ptr<Group> parent(&group, [](Group*) {});
    GroupOptions options = options_for(group.rank() / 2, 2, stores[group.rank() % 2].path());
    options.within = parent;
    const auto half = Group::join(options);
    add_up_by_switch(*half);
    half->barrier();
    watched.wait_for_jobs(3);
    add_up(*half, 100'000);
  });
}

std::string within_network_with(const std::string& address) {
  std::string nodes, links;
  for (int r = 0; r < kWithinRanks; ++r) {
    nodes += fmt::format("{{name: h{}}}, ", r);
    links += fmt::format("  - {{between: [h{}, box], capacity: 1Gbit/s}}\n", r);
  }
  return fmt::format("nodes: [{}{{name: box, kind: switch{}}}]\nlinks:\n{}", nodes,
                     address.empty() ? "" : ", switch: \"" + address + '"', links);
}

// The file says nothing of so few ranks.
TEST(SwitchedWithin, AGroupThatIsJoinedAfreshHasTheSwitchOfTheClusterFileThatTheWholeHad) {
  const Watched watched;
  const TemporaryFile network, stores[2];
  std::ofstream(network.path()) << within_network_with(at(watched.served()));
  const Variable described("TALWEG_CLUSTER", network.path()), always("TALWEG_ALGO", "switch");
  std::latch summed(kWithinRanks);
  run_ranks(kWithinRanks, [&](Group& group) {
    add_up_by_switch(group);
    watched.wait_for_jobs(1);
    summed.arrive_and_wait();
    if (group.rank() == 0) group.abort("to see what happens");
    const std::shared_ptr<Group> parent(&group, [](Group*) {});
    GroupOptions options = options_for(group.rank() / 2, 2, stores[group.rank() % 2].path());
    options.within = parent;
    const auto half = Group::join(options);
    EXPECT_THAT(switch_line(*half), HasSubstr(at(watched.served()) + " (node box of " + network.path()));
    add_up_by_switch(*half);
    half->barrier();
    watched.wait_for_jobs(3);
    add_up(*half, 100'000);
    EXPECT_EQ(last_way(*half), "dense");
  });
}

}  // namespace
}  // namespace talweg
