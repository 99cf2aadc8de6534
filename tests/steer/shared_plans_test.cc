// Ranks that learn of plans from rank 0, whose words take any time to arrive.
#include "steer/shared_plans.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>

#include "base/random.h"
#include "forest/forest_bytes.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "sanitized.h"
#include "steer/plan_leader.h"
#include "steer/plan_word.h"

namespace talweg::steer {
namespace {

using forest::Forest;
using forest::Request;
using ::testing::HasSubstr;

constexpr int kSharers = 4;

std::shared_ptr<const Forest> planned(const std::string& planner, const Request& request) {
  return std::make_shared<Forest>(
      forest::find_planner(planner).plan(request, forest::gigabit_star(request.ranks)));
}

Request shape(int i) {
  return forest::make_request(Collective::all_reduce, kSharers, 100 + i);
}

// Plans rings, and better ones after some time; which, the seed says.
class RandomSource : public PlanSource {
 public:
  explicit RandomSource(Random& random) : random_(random) {}
  Plan first(const Request& request) override {
    ++plans;
    return {planned(changed % 2 == 0 ? "ring" : "star", request), random_.below(2) == 0};
  }
  Plan later(const Request& request) override {
    switch (random_.below(4)) {
      case 0:
        return {nullptr, true};
      case 1:
        return {planned("chain", request), true};
      case 2:
        return {planned("binomial", request), false};
      default:
        return {nullptr, false};
    }
  }
  void change_to(const std::vector<double>&, std::shared_ptr<const PlannedAhead> plans_ahead) override {
    ++changed;
    ahead = std::move(plans_ahead);
  }
  int plans = 0, changed = 0;
  std::shared_ptr<const PlannedAhead> ahead;

 private:
  Random& random_;
};

class RandomWatch : public NetworkWatch {
 public:
  explicit RandomWatch(Random& random) : random_(random) {}
  Turn turn(std::uint64_t call) override {
    Turn turn;
    if (random_.below(3) == 0) turn.rates = {1e9, 2e9};
    turn.report = random_.below(2) == 0;
    turn.next = call + 1 + random_.below(6);
    return turn;
  }

 private:
  Random& random_;
};

// One node of a group: its calls, in order, and the words that are on their way to it.
struct Node {
  explicit Node(int self, bool turns) : plans(self, kSharers, kSharers + 1) {
    if (turns) plans.expect_turns();
  }
  SharedPlans plans;
  std::deque<std::vector<std::byte>> on_the_way;
  std::uint64_t next = 0;
  std::vector<std::uint32_t> took;  // digests, by call
};

struct World {
  World(std::uint64_t seed, bool turns)
      : random{seed},
        source(random),
        watch(random),
        leader(nodes_of(turns)[0].plans, source, turns ? &watch : nullptr) {}

  std::deque<Node>& nodes_of(bool turns) {
    for (int r = 0; r <= kSharers; ++r) nodes.emplace_back(r, turns);  // the last one is no rank
    return nodes;
  }

  // `calls[rank]`: what it calls. One of them makes a call, or hears something.
  void run(const std::vector<std::vector<Request>>& calls) {
    for (;;) {
      std::vector<int> able;
      for (int r = 0; r <= kSharers; ++r) {
        Node& node = nodes[static_cast<std::size_t>(r)];
        const bool may_call = r < kSharers && node.next < calls[static_cast<std::size_t>(r)].size();
        if (!node.on_the_way.empty() || (may_call && !waits(r, calls))) able.push_back(r);
      }
      if (able.empty()) return;
      const int r = able[random.below(able.size())];
      Node& node = nodes[static_cast<std::size_t>(r)];
      if (!node.on_the_way.empty() && random.below(2) == 0) {
        node.plans.hear(word_from_bytes(node.on_the_way.front()));
        node.on_the_way.pop_front();
      } else if (r < kSharers) {
        call(r, calls);
      }
    }
  }

  bool waits(int r, const std::vector<std::vector<Request>>& calls) {
    Node& node = nodes[static_cast<std::size_t>(r)];
    return r > 0 && node.plans.find(node.next, calls[static_cast<std::size_t>(r)][node.next]) == nullptr;
  }

  void call(int r, const std::vector<std::vector<Request>>& calls) {
    Node& node = nodes[static_cast<std::size_t>(r)];
    if (node.next == calls[static_cast<std::size_t>(r)].size()) return;
    const Request& request = calls[static_cast<std::size_t>(r)][node.next];
    if (r == 0) {
      if (const auto word = leader.lead(node.next, request)) {
        ++words;
        for (int to = 1; to <= kSharers; ++to)
          nodes[static_cast<std::size_t>(to)].on_the_way.push_back(to_bytes(*word));
      }
    }
    const SharedPlan plan = node.plans.find(node.next, request);
    if (plan == nullptr) return;
    EXPECT_EQ(plan->forest->request, request);
    node.took.push_back(plan->digest);
    ++node.next;
  }

  Random random;
  RandomSource source;
  RandomWatch watch;
  std::deque<Node> nodes;
  PlanLeader leader;
  int words = 0;
};

TEST(SharedPlans, AllRanksTakeTheSamePlanAtTheSameCallHoweverWordsAreDelayed) {
  int switches = 0;
  for (std::uint64_t seed = 0; seed < fewer(200U); ++seed) {
    World world(seed, seed % 2 == 1);
    std::vector<Request> program;
    for (int i = 0; i < 60; ++i) program.push_back(shape(static_cast<int>(world.random.below(4))));
    world.run(std::vector(kSharers, program));
    for (const Node& node : world.nodes) {
      if (&node == &world.nodes.back()) continue;
      ASSERT_EQ(node.took.size(), program.size()) << "seed " << seed << ": somebody waits for ever";
      EXPECT_EQ(node.took, world.nodes[0].took) << "seed " << seed;
    }
    std::map<std::int64_t, std::uint32_t> last;
    for (std::size_t i = 0; i < program.size(); ++i) {
      const auto [entry, is_new] = last.try_emplace(program[i].counts[0], world.nodes[0].took[i]);
      switches += !is_new && entry->second != world.nodes[0].took[i] ? 1 : 0;
      entry->second = world.nodes[0].took[i];
    }
  }
  EXPECT_GT(switches, fewer(100)) << "plans must change for this to say anything";
}

TEST(SharedPlans, ANodeThatIsNoRankKnowsEveryPlanByItsDigest) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    World world(seed, false);
    world.run(std::vector(kSharers, std::vector<Request>(20, shape(1))));
    for (const std::uint32_t digest : world.nodes[0].took) {
      const SharedPlan plan = world.nodes.back().plans.find(0, digest);
      ASSERT_NE(plan, nullptr);
      EXPECT_EQ(plan->digest, digest);
      EXPECT_EQ(plan->self, kSharers);
    }
    EXPECT_EQ(world.nodes.back().plans.find(0, 4711U), nullptr);
  }
}

// However many calls rank 0 is ahead of the others, what is in flight has its plan; and when it has ended,
// what was forgotten is dropped, but for what has served since.
TEST(SharedPlans, ANodeThatIsNoRankKeepsPlansUntilAllRanksArePastTheirCalls) {
  Random random{5};
  RandomSource source(random);
  SharedPlans plans(0, 2, 3), helping(2, 2, 3);
  PlanLeader leader(plans, source, nullptr);
  std::vector<std::uint32_t> digests;
  std::uint64_t forgotten = 0;
  for (std::uint64_t call = 0; call < 3 * SharedPlans::kMostRequests; ++call) {
    const Request request =
        forest::make_request(Collective::all_reduce, 2, static_cast<std::int64_t>(call + 1));
    const auto word = leader.lead(call, request);
    ASSERT_TRUE(word);
    if (word->forget) forgotten = call;
    helping.hear(*word);
    digests.push_back(plans.find(call, request)->digest);
  }
  ASSERT_GT(forgotten, SharedPlans::kMostRequests);
  const auto known = [&](std::uint64_t call) { return helping.find(0, digests[call]) != nullptr; };
  helping.passed(0, kNever);
  for (std::uint64_t call = 0; call < digests.size(); ++call) ASSERT_TRUE(known(call)) << call;
  ASSERT_NE(helping.find(forgotten, digests[7]), nullptr) << "it serves a later call";
  helping.passed(1, forgotten - 1);
  EXPECT_TRUE(known(forgotten - 1));
  helping.passed(1, forgotten);
  for (std::uint64_t call = 0; call < digests.size(); ++call)
    ASSERT_EQ(known(call), call >= forgotten || call == 7) << call;
}

// An error of the program that it may survive: what a rank has called alone must not lead it to other plans.
TEST(SharedPlans, AfterACallThatOneRankMadeDifferentlyAllStillAgree) {
  for (std::uint64_t seed = 0; seed < fewer(100U); ++seed) {
    World world(seed, seed % 2 == 1);
    std::vector<std::vector<Request>> calls(kSharers);
    const std::size_t wrong = world.random.below(10), strange = world.random.below(kSharers);
    for (std::size_t i = 0; i < 40; ++i) {
      const int any = static_cast<int>(world.random.below(3));
      for (std::size_t r = 0; r < kSharers; ++r)
        calls[r].push_back(shape(i == wrong && r == strange ? 7 : any));
    }
    // Up to the mismatch, which fails on all ranks; then what is on its way arrives, and they go on.
    std::vector<std::vector<Request>> before(kSharers);
    for (std::size_t r = 0; r < kSharers; ++r)
      before[r] = {calls[r].begin(), calls[r].begin() + static_cast<std::ptrdiff_t>(wrong) + 1};
    world.run(before);
    for (std::size_t r = 0; r < kSharers; ++r) {
      Node& node = world.nodes[r];
      if (node.next == wrong) {  // the session has failed it while it waited
        node.took.push_back(0);
        ++node.next;
      }
      ASSERT_EQ(node.next, wrong + 1);
    }
    world.run(calls);
    for (std::size_t r = 0; r < kSharers; ++r) {
      ASSERT_EQ(world.nodes[r].took.size(), 40u) << "seed " << seed << " rank " << r << ": it waits for ever";
      for (std::size_t i = wrong + 1; i < 40; ++i)
        EXPECT_EQ(world.nodes[r].took[i], world.nodes[0].took[i]) << "seed " << seed << " call " << i;
    }
  }
}

// Rank 0's words are few: of a request that stays as it is planned there is one.
TEST(SharedPlans, AreToldOnceWhereNothingBetterFollows) {
  struct Source : RandomSource {
    using RandomSource::RandomSource;
    Plan first(const Request& request) override { return {planned("ring", request), true}; }
  };
  Random random{1};
  Source source(random);
  SharedPlans plans(0, kSharers, kSharers);
  PlanLeader leader(plans, source, nullptr);
  int words = 0;
  for (std::uint64_t call = 0; call < 100; ++call) {
    words += leader.lead(call, shape(static_cast<int>(call % 5))) ? 1 : 0;
    EXPECT_NE(plans.find(call, shape(static_cast<int>(call % 5))), nullptr);
  }
  EXPECT_EQ(words, 5);
}

TEST(SharedPlans, WaitFewerTimesTheLongerPlanningTakes) {
  struct Source : RandomSource {
    using RandomSource::RandomSource;
    Plan first(const Request& request) override { return {planned("ring", request), false}; }
    Plan later(const Request&) override { return {nullptr, false}; }
  };
  Random random{1};
  Source source(random);
  SharedPlans plans(0, kSharers, kSharers);
  PlanLeader leader(plans, source, nullptr);
  std::vector<std::uint64_t> asked;
  for (std::uint64_t call = 0; call < 100; ++call)
    if (leader.lead(call, shape(0))) asked.push_back(call);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{0, 1, 2, 4, 8, 16, 32, 64}));
}

// A forest that serves already is not sent again.
TEST(SharedPlans, AreNotToldASecondTimeWhenPlanningEndsWithTheSame) {
  struct Source : RandomSource {
    using RandomSource::RandomSource;
    Plan first(const Request& request) override { return {planned("ring", request), false}; }
    Plan later(const Request& request) override { return {planned("ring", request), true}; }
  };
  Random random{1};
  Source source(random);
  SharedPlans plans(0, kSharers, kSharers);
  PlanLeader leader(plans, source, nullptr);
  EXPECT_NE(leader.lead(0, shape(0))->forest, nullptr);
  const auto word = leader.lead(1, shape(0));
  ASSERT_TRUE(word);
  EXPECT_EQ(word->forest, nullptr);
  EXPECT_EQ(word->next, kNever);
  EXPECT_NE(plans.find(2, shape(0)), nullptr);
}

// Whatever the watch says, the next turn is at a later call.
TEST(SharedPlans, AtATurnTheWordSaysWhatTheWatchSays) {
  struct Watch : NetworkWatch {
    Turn turn(std::uint64_t) override { return answer; }
    Turn answer;
  };
  Random random{1};
  RandomSource source(random);
  Watch watch;
  SharedPlans plans(0, kSharers, kSharers);
  plans.expect_turns();
  PlanLeader leader(plans, source, &watch);
  const auto first = leader.lead(0, shape(0));
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->forget || first->report);
  EXPECT_EQ(first->next_turn, 1u);
  watch.answer = {
      .rates = {1e9, 2e9}, .ahead = std::make_shared<const PlannedAhead>(), .report = true, .next = 7};
  const auto second = leader.lead(1, shape(0));
  ASSERT_TRUE(second && second->forest != nullptr);
  EXPECT_TRUE(second->forget && second->report);
  EXPECT_EQ(second->rates, watch.answer.rates);
  EXPECT_EQ(second->next_turn, 7u);
  EXPECT_EQ(source.changed, 1);
  EXPECT_EQ(source.ahead, watch.answer.ahead);
  EXPECT_EQ(*second->forest, *planned("star", shape(0))) << "made for the network as it is now";
}

TEST(SharedPlans, ForgetAllWhenThereAreTooManyAndGoOn) {
  Random random{3};
  RandomSource source(random);
  SharedPlans leading(0, 2, 2), following(1, 2, 2);
  PlanLeader leader(leading, source, nullptr);
  const int shapes = static_cast<int>(SharedPlans::kMostRequests) + 10;
  for (std::uint64_t call = 0; call < static_cast<std::uint64_t>(2 * shapes); ++call) {
    const Request request =
        forest::make_request(Collective::all_reduce, 2, static_cast<std::int64_t>(call) % shapes);
    if (const auto word = leader.lead(call, request)) following.hear(*word);
    ASSERT_NE(following.find(call, request), nullptr) << call;
    EXPECT_EQ(following.find(call, request)->digest, leading.find(call, request)->digest);
  }
}

TEST(SharedPlans, RefuseAWordThatKeepsAPlanThatWasNeverTold) {
  SharedPlans plans(1, kSharers, kSharers);
  PlanWord word;
  word.request = shape(0);
  EXPECT_THROW(plans.hear(word), Error);
}

// Each is a forest that a rank could not run, would never end, or that would sum something else.
TEST(SharedPlans, RefuseWhatDoesNotComputeTheCallAmongTheNodesOfThisGroup) {
  using Change = std::function<void(PlanWord&, Forest&)>;
  const std::vector<std::pair<std::string, Change>> wrong = {
      {"plan for 5 ranks, the group has 4",
       [](PlanWord& w, Forest& f) {
         f = *planned("ring", forest::make_request(Collective::all_reduce, 5, 100));
         w.request = f.request;
       }},
      {"plan for 2 ranks, the group has 4",  // of which rank 2 would be an aggregator
       [](PlanWord& w, Forest& f) {
         f = *planned("ring", forest::make_request(Collective::all_reduce, 2, 100));
         w.request = f.request;
       }},
      {"all_to_all, which every rank makes for itself",
       [](PlanWord& w, Forest& f) {
         f = *planned("direct", forest::make_request(Collective::all_to_all, kSharers, 100));
         w.request = f.request;
       }},
      {"the plan is for another call", [](PlanWord& w, Forest&) { w.request->counts[0] = 7; }},
      {"among 9 nodes, the group has 5", [](PlanWord&, Forest& f) { f.nodes = 9; }},
      {"expected nodes below", [](PlanWord&, Forest& f) { f.trees[0].up[0].parent = kSharers; }},
      {"the root has a parent", [](PlanWord&, Forest& f) { f.trees[0].up[0].child = f.trees[0].root; }},
      {"two parents", [](PlanWord&, Forest& f) { f.trees[1].down.push_back(f.trees[1].down.front()); }},
      {"do not hang on the root",
       [](PlanWord&, Forest& f) { f.trees[0].up[1].parent = f.trees[0].up[0].child; }},
      {"is a leaf but no contributor",
       [](PlanWord&, Forest& f) {
         f.nodes = kSharers + 1;
         f.trees[0].up.push_back({kSharers, f.trees[0].root});
       }},
      {"expected all 4 ranks", [](PlanWord&, Forest& f) { f.trees[0].contributors.pop_back(); }},
      {"is never sent", [](PlanWord&, Forest& f) { f.trees.pop_back(); }},
      {"by trees", [](PlanWord&, Forest& f) { f.trees[1].slice.offset -= 1; }},
      {"expected more than 0", [](PlanWord&, Forest& f) { f.trees[2].chunk = 0; }},
      {"a frame carries at most",  // 4 bytes too many for 32 bits
       [](PlanWord& w, Forest& f) {
         f = *planned("ring", forest::make_request(Collective::all_reduce, kSharers, std::int64_t{1} << 33));
         w.request = f.request;
         f.trees[0].chunk = (std::int64_t{1} << 30) + 1;
       }},
      {"chunks, expected at most",
       [](PlanWord& w, Forest& f) {
         f = *planned("ring", forest::make_request(Collective::all_reduce, kSharers, std::int64_t{1} << 34));
         w.request = f.request;
         f.trees[0].chunk = 1;
       }},
      {"next word is for no later call", [](PlanWord& w, Forest&) { w.next = w.call; }},
      {"next word is for no later call", [](PlanWord& w, Forest&) { w.next_turn = w.call; }},
      {"this call or a later one before", [](PlanWord& w, Forest&) { w.call = 2; }},
  };
  for (const int self : {1, 2, kSharers})
    for (const auto& [why, change] : wrong) {
      SharedPlans plans(self, kSharers, kSharers + 1);
      PlanWord word;
      word.call = 2;
      word.forest = planned("ring", shape(1));
      word.request = word.forest->request;
      plans.hear(word);
      Forest forest = *planned("ring", shape(0));
      word.call = 3;
      word.request = forest.request;
      change(word, forest);
      word.forest = std::make_shared<Forest>(forest);
      try {
        plans.hear(word);
        ADD_FAILURE() << "heard: " << why;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::corrupted);
        EXPECT_THAT(e.what(), HasSubstr(why));
        EXPECT_THAT(e.what(), HasSubstr("what rank 0 says of plans at call"));
      }
    }
}

// Frames name their plan by its digest: who has another one would wait for frames that never come.
TEST(SharedPlans, RefuseAPlanThatRankZeroKnowsByAnotherDigestAndSayBoth) {
  for (const int self : {1, kSharers}) {
    SharedPlans plans(self, kSharers, kSharers + 1);
    PlanWord word;
    word.forest = planned("ring", shape(0));
    word.request = shape(0);
    word.digest = forest::digest(*word.forest) ^ 1;
    try {
      plans.hear(word_from_bytes(to_bytes(word)));
      ADD_FAILURE() << "heard";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupted);
      EXPECT_THAT(e.what(),
                  HasSubstr(fmt::format("rank 0's build of Talweg knows the plan as {:08x}, the one "
                                        "here as {:08x}",
                                        word.digest, word.digest ^ 1)));
    }
    word.digest ^= 1;
    plans.hear(word_from_bytes(to_bytes(word)));
    EXPECT_EQ((self < kSharers ? plans.find(0, shape(0)) : plans.find(0, word.digest))->digest, word.digest);
  }
}

TEST(SharedPlans, EveryWordOfTheLeaderHasItsPlansDigest) {
  Random random{1};
  RandomSource source(random);
  SharedPlans plans(0, kSharers, kSharers);
  PlanLeader leader(plans, source, nullptr);
  int told = 0;
  for (std::uint64_t call = 0; call < 40; ++call) {
    const auto word = leader.lead(call, shape(static_cast<int>(call % 5)));
    if (!word || !word->forest) continue;
    ++told;
    EXPECT_EQ(word->digest, forest::digest(*word->forest));
  }
  EXPECT_GE(told, 5);
}

// When an aggregator is lost, all know of a later call from which on plans are made anew; until then those
// that were told stay.
TEST(SharedPlans, StayUntilTheCallFromWhichOnTheyAreForgotten) {
  SharedPlans plans(1, kSharers, kSharers);
  PlanWord word;
  word.forest = planned("ring", shape(0));
  word.request = shape(0);
  word.next = 2;
  plans.hear(word);
  plans.forget(5);
  word.forest = nullptr;
  word.call = 2;
  word.next = 4;
  plans.hear(word);
  EXPECT_NE(plans.find(3, shape(0)), nullptr);
  word.call = 5;
  word.next = kNever;
  EXPECT_THROW(plans.hear(word), Error) << "forgotten";
  EXPECT_EQ(plans.find(5, shape(0)), nullptr);
}

TEST(SharedPlans, AreForgottenAtEveryCallThatWasNamedInWhateverOrder) {
  SharedPlans plans(1, kSharers, kSharers);
  PlanWord word;
  word.forest = planned("ring", shape(0));
  word.request = shape(0);
  plans.hear(word);
  plans.forget(5);
  word.call = 3;
  word.forget = true;
  word.rates = {1e9};
  word.forest = planned("ring", shape(1));
  word.request = shape(1);
  plans.hear(word);
  EXPECT_NE(plans.find(2, shape(0)), nullptr);
  EXPECT_TRUE(plans.take_rates().empty()) << "those hold later";
  EXPECT_EQ(plans.find(3, shape(0)), nullptr);
  EXPECT_EQ(plans.take_rates(), word.rates);
  EXPECT_TRUE(plans.take_rates().empty()) << "told once";
  EXPECT_NE(plans.find(4, shape(1)), nullptr);
  EXPECT_EQ(plans.find(5, shape(1)), nullptr);
}

TEST(PlanWord, ArrivesAsItWasSaid) {
  PlanWord word;
  word.call = 1ULL << 40;
  word.forget = word.report = true;
  word.rates = {1e9, 5e8};
  word.next_turn = word.call + 3;
  word.forest = planned("ring", shape(3));
  word.request = word.forest->request;
  word.digest = forest::digest(*word.forest);
  word.next = word.call + 1;
  const PlanWord there = word_from_bytes(to_bytes(word));
  EXPECT_EQ(there.call, word.call);
  EXPECT_TRUE(there.forget && there.report);
  EXPECT_EQ(there.rates, word.rates);
  EXPECT_EQ(there.next_turn, word.next_turn);
  EXPECT_EQ(there.request, word.request);
  EXPECT_EQ(*there.forest, *word.forest);
  EXPECT_EQ(there.digest, word.digest);
  EXPECT_EQ(there.next, word.next);
  PlanWord stays;
  stays.request = shape(2);
  EXPECT_EQ(word_from_bytes(to_bytes(stays)).forest, nullptr);
  EXPECT_EQ(word_from_bytes(to_bytes(stays)).request, stays.request);
  EXPECT_EQ(word_from_bytes(to_bytes(stays)).next, kNever);
}

TEST(PlanWord, IsRefusedWithoutTheDigestOfItsPlan) {
  PlanWord word;
  word.forest = planned("ring", shape(3));
  word.request = word.forest->request;
  EXPECT_THROW(word_from_bytes(to_bytes(word)), Error);
}

TEST(PlanWord, IsRefusedWhereItIsCutOrMakesNoSense) {
  PlanWord word;
  word.forget = true;
  word.rates = {1e9};
  word.next_turn = 5;
  word.forest = planned("ring", shape(3));
  word.request = word.forest->request;
  word.digest = forest::digest(*word.forest);
  const auto bytes = to_bytes(word);
  EXPECT_NO_THROW(word_from_bytes(bytes));
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(word_from_bytes(std::span(bytes).first(n)), Error) << n;
  for (const double rate : {-1., 0., std::numeric_limits<double>::infinity(), std::nan("")}) {
    word.rates = {1e9, rate};
    EXPECT_THROW(word_from_bytes(to_bytes(word)), Error) << rate;
  }
}

TEST(PlanWord, IsPutTogetherFromItsParts) {
  PlanWord word;
  word.request = shape(2);
  const auto bytes = to_bytes(word);
  WordParts parts;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i + 1 < bytes.size(); ++i)
      ASSERT_FALSE(parts.add(std::span(bytes).subspan(i, 1), false));
    const auto there = parts.add(std::span(bytes).last(1), true);
    ASSERT_TRUE(there);
    EXPECT_EQ(there->request, word.request);
  }
}

TEST(PlanWord, IsRefusedWhereItNeverEnds) {
  constexpr std::size_t kMuch = std::size_t{1} << 28;
  const auto much = std::make_unique_for_overwrite<std::byte[]>(kMuch);  // never looked at, but for this:
  much[0] = {};
  WordParts parts;
  EXPECT_FALSE(parts.add({much.get(), 1}, false));
  EXPECT_THROW(parts.add({much.get(), kMuch}, false), Error);
}

}  // namespace
}  // namespace talweg::steer
