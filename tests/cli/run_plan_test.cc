#include "cli/run_plan.h"

#include <gmock/gmock.h>

#include <map>

#include "talweg/error.h"
#include "text/escape.h"

namespace talweg::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunRequest request(int ranks, const std::string& hosts = "") {
  RunRequest r;
  r.ranks = ranks;
  if (!hosts.empty()) r.hosts = parse_hosts(hosts);
  r.program = {"prog", "it's", "-x"};
  r.master_port = 1234;
  r.directory = "/a b";
  return r;
}

std::map<std::string, std::string> environment(const RunPlan& plan, std::size_t rank) {
  const auto& pairs = plan.ranks.at(rank).environment;
  return {pairs.begin(), pairs.end()};
}

TEST(RunPlan, RanksOfThisMachineGetWhatTorchrunWouldTellThem) {
  const auto plan = plan_run(request(2));
  ASSERT_EQ(plan.ranks.size(), 2u);
  auto second = environment(plan, 1);
  EXPECT_EQ(second["RANK"], "1");
  EXPECT_EQ(second["WORLD_SIZE"], "2");
  EXPECT_EQ(second["LOCAL_RANK"], "1");
  EXPECT_EQ(second["LOCAL_WORLD_SIZE"], "2");
  EXPECT_EQ(second["MASTER_ADDR"], "127.0.0.1");
  EXPECT_EQ(second["MASTER_PORT"], "1234");
  EXPECT_THAT(plan.ranks[0].command, ElementsAre("prog", "it's", "-x"));
}

TEST(RunPlan, RanksAreNumberedHostByHost) {
  const auto plan = plan_run(request(3, "h0:2,h1:2"));
  ASSERT_EQ(plan.ranks.size(), 3u);
  EXPECT_EQ(plan.ranks[1].host, "h0");
  EXPECT_EQ(plan.ranks[2].host, "h1");
  auto third = environment(plan, 2);
  EXPECT_EQ(third["RANK"], "2");
  EXPECT_EQ(third["LOCAL_RANK"], "0");
  EXPECT_EQ(third["LOCAL_WORLD_SIZE"], "1");
  EXPECT_EQ(third["GROUP_RANK"], "1");
  EXPECT_EQ(third["MASTER_ADDR"], "h0");
}

TEST(RunPlan, WithoutACountEverySlotGetsARank) {
  EXPECT_EQ(plan_run(request(0, "h0:2,h1")).ranks.size(), 3u);
}

TEST(RunPlan, TheRemoteShellGetsTheHostAndOneQuotedLine) {
  const auto plan = plan_run(request(1, "far"));
  const auto& command = plan.ranks[0].command;
  ASSERT_EQ(command.size(), 3u);
  EXPECT_EQ(command[0], "ssh");
  EXPECT_EQ(command[1], "far");
  EXPECT_THAT(command[2], HasSubstr("cd '/a b' && env"));
  EXPECT_THAT(command[2], HasSubstr("'RANK=0'"));
  EXPECT_THAT(command[2], HasSubstr("'prog' 'it'\\''s' '-x'"));
}

TEST(RunPlan, LocalhostNeedsNoRemoteShell) {
  const auto plan = plan_run(request(2, "localhost,far"));
  EXPECT_FALSE(plan.ranks[0].remote);
  EXPECT_TRUE(plan.ranks[1].remote);
  // Rank 0 listens here, and the other host must be able to find it.
  EXPECT_NE(environment(plan, 1)["MASTER_ADDR"], "127.0.0.1");
}

TEST(RunPlan, OnOneMachineAggregatorsRunBesideTheRanks) {
  auto r = request(2);
  r.aggregators = {"agg", "other"};
  r.talweg = "/here/talweg";
  r.aggregator_port = 5678;
  r.key = "the key";
  const auto plan = plan_run(r);
  ASSERT_EQ(plan.ranks.size(), 4u);
  EXPECT_EQ(plan.ranks[1].aggregator, "");
  const RunPlan::Rank& agg = plan.ranks[2];
  EXPECT_EQ(agg.aggregator, "agg");
  EXPECT_FALSE(agg.remote);
  EXPECT_THAT(agg.command, ElementsAre("/here/talweg", "aggregator", "--again", "--name", "agg"));
  auto variables = environment(plan, 2);
  EXPECT_FALSE(variables.contains("RANK")) << "it is none";
  EXPECT_EQ(variables["WORLD_SIZE"], "2");
  EXPECT_EQ(variables["MASTER_ADDR"], "127.0.0.1");
  EXPECT_EQ(variables["MASTER_PORT"], "1234");
  EXPECT_EQ(variables["TALWEG_KEY"], "the key");
  EXPECT_EQ(variables["TALWEG_AGGREGATORS_AT"], "tcp://127.0.0.1:5678");
  EXPECT_EQ(environment(plan, 0)["TALWEG_AGGREGATORS_AT"], "tcp://127.0.0.1:5678");
  EXPECT_FALSE(environment(plan_run(request(2)), 0).contains("TALWEG_AGGREGATORS_AT")) << "there are none";
  EXPECT_EQ(plan.ranks[3].aggregator, "other");
}

TEST(RunPlan, OfSeveralHostsAnAggregatorRunsOnThatOfItsName) {
  auto r = request(2, "h0,h1");
  r.aggregators = {"agg"};
  r.key = "the key";
  const auto plan = plan_run(r);
  ASSERT_EQ(plan.ranks.size(), 3u);
  const RunPlan::Rank& agg = plan.ranks[2];
  EXPECT_TRUE(agg.remote);
  ASSERT_EQ(agg.command.size(), 3u);
  EXPECT_EQ(agg.command[1], "agg");
  EXPECT_THAT(agg.command[2], HasSubstr("'MASTER_ADDR=h0'"));
  EXPECT_THAT(agg.command[2], HasSubstr(" 'talweg' 'aggregator' '--again' '--name' 'agg'"));
  EXPECT_THAT(agg.command[2], Not(HasSubstr("the key")));
}

TEST(RunPlan, HostsThatMakeNoSenseAreRefused) {
  for (const char* text : {"", "h:", "h:0", "h:x", ":2", "a,,b", "-oProxyCommand=x"})
    EXPECT_THROW(parse_hosts(text), Error) << text;
  EXPECT_EQ(parse_hosts("a:2,b"), (std::vector<HostSlots>{{"a", 2}, {"b", 1}}));
}

TEST(RunPlan, MoreRanksThanSlotsAreRefused) {
  EXPECT_THROW(plan_run(request(5, "a:2,b:2")), Error);
}

TEST(RunPlan, NothingToRunIsRefused) {
  auto r = request(2);
  r.program.clear();
  EXPECT_THROW(plan_run(r), Error);
}

}  // namespace
}  // namespace talweg::cli
