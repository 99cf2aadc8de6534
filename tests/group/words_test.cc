// What rank 0 says of plans, or what comes by a plan, and nobody can follow: an aggregator gives up and says
// why, and the ranks go on without it; a rank's calls end with the reason.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <latch>

#include "forest/forest_bytes.h"
#include "forest/planner.h"
#include "group/aggregator.h"
#include "group/group_impl.h"
#include "group/joining.h"
#include "ranks.h"
#include "steer/plan_word.h"

namespace talweg::group {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kHearers = 3;             // ranks
constexpr std::uint64_t kLater = 1000;  // a call that none of these tests makes

// As Group::join, with the world in hand.
struct Member {
  std::shared_ptr<World> world;
  std::shared_ptr<GroupImpl> group;

  Member(int rank, const std::string& store, bool helped) {
    const GroupOptions options = options_for(rank, kHearers, store);
    Joining joining = prepare_joining(options, {rank, kHearers, "test"}, options.timeout);
    if (helped) joining.connect.aggregators = {"agg"};
    live::Mesh mesh = live::connect_all(*joining.store, joining.connect);
    GroupImpl::Identity identity;
    identity.rank = rank;
    for (const live::Connection& c : mesh.connections) {
      if (c.rank >= kHearers) {
        identity.helpers.push_back({c.rank, c.name, c.host});
        continue;
      }
      identity.members.push_back(c.rank);
      identity.hosts.push_back(c.host);
      identity.machines.push_back(c.host_number);
    }
    EXPECT_EQ(identity.helpers.size(), helped ? 1U : 0U);
    observe::ObserverOptions seeing;
    seeing.hosts = identity.hosts;
    world = std::make_shared<World>(rank, std::move(mesh), joining.engine, seeing);
    group =
        std::make_shared<GroupImpl>(world, identity, network(helped), "packed", std::chrono::seconds(30), "");
  }

  static cluster::Cluster network(bool helped) {
    if (!helped) return cluster::uniform_mesh(kHearers, Bandwidth{1e9}, Nanoseconds{30'000});
    std::string text = "nodes:\n", links = "links:\n";
    for (int r = 0; r < kHearers; ++r) {
      text += fmt::format("  - {{name: h{}, kind: worker}}\n", r);
      links += fmt::format("  - {{between: [h{}, agg], capacity: 1Gbit/s, latency: 30us}}\n", r);
    }
    const std::string names[] = {"agg"};
    return cluster::staffed(
        cluster::parse_cluster(text + "  - {name: agg, kind: aggregator}\n" + links, "cluster.yaml"), names);
  }

  void send(int seat, const wire::Header& header, const std::vector<std::byte>& payload = {}) {
    auto guard = world->lock();
    live::OutFrame frame;
    frame.header = header;
    frame.header.length = static_cast<std::uint32_t>(payload.size());
    frame.text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    frame.priority = protocol::kUrgent;
    world->engine().send(seat, std::move(frame));
    world->submit(std::move(guard), false);
  }
  void say(int seat, const std::vector<std::byte>& word) {
    send(seat, encode(wire::PlanPart{0, true, static_cast<std::uint32_t>(word.size())}), word);
  }
};

void all_reduce_of(Group& g, std::size_t count) {
  std::vector<float> data(count, 1.0F);
  g.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum);
  EXPECT_THAT(data, ::testing::Each(static_cast<float>(kHearers)));
}

steer::PlanWord word_of_a_ring() {
  steer::PlanWord word;
  word.call = kLater;
  word.request = forest::even_request(Collective::all_reduce, kHearers, 0, 100, 4);
  word.forest = std::make_shared<forest::Forest>(
      forest::find_planner("ring").plan(*word.request, Member::network(false)));
  word.digest = forest::digest(*word.forest);
  return word;
}

// Each rank in a thread of its own.
void run_members(bool helped, const std::function<void(Member&)>& body) {
  const TemporaryFile store;
  std::vector<std::thread> threads;
  if (helped)
    threads.emplace_back([&] {
      serve_group({.name = "agg",
                   .rendezvous = "file:" + store.path(),
                   .prefix = "",
                   .interface = "lo",
                   .timeout = std::chrono::seconds(60)});
    });
  for (int r = 0; r < kHearers; ++r)
    threads.emplace_back([&, r] {
      try {
        Member member(r, store.path(), helped);
        body(member);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

struct Nonsense {
  const char* name;
  const char* reason;
  std::function<void(Member&)> say;  // by rank 0 to the aggregator
};

class RefusingAggregator : public ::testing::TestWithParam<Nonsense> {};
INSTANTIATE_TEST_SUITE_P(
    Words, RefusingAggregator,
    ::testing::Values(
        Nonsense{"bytes", "it cannot follow a plan of rank 0 (",
                 [](Member& m) { m.say(kHearers, std::vector<std::byte>(20, std::byte{0xff})); }},
        Nonsense{"digest", "rank 0's build of Talweg knows the plan as",
                 [](Member& m) {
                   steer::PlanWord word = word_of_a_ring();
                   word.digest ^= 1;
                   m.say(kHearers, to_bytes(word));
                 }},
        Nonsense{"type", "it cannot take part in a call: all_reduce(",
                 [](Member& m) {
                   const steer::PlanWord word = word_of_a_ring();
                   m.say(kHearers, to_bytes(word));
                   const wire::Signature signature{
                       Collective::all_reduce, DataType::f64, ReduceOp::sum, 0, 100, 0, word.digest};
                   m.send(kHearers, encode(wire::CallId{0, kLater, signature}, wire::Announce{true}));
                 }}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(RefusingAggregator, EndsTheCallsInFlightWithItsReasonAndIsAvoidedByTheNext) {
  constexpr std::size_t kLarge = 100'000;
  std::latch ready(kHearers), begun(kHearers - 1), failed(kHearers - 1);
  run_members(true, [&](Member& m) {
    Group& g = *m.group;
    EXPECT_THAT(g.explain(Collective::all_reduce, kLarge, DataType::f32), HasSubstr("through agg"));
    all_reduce_of(g, kLarge);
    ready.arrive_and_wait();
    // Rank 2 calls the next one when it has failed on the others, which cannot have its sum before.
    if (g.rank() == 2) failed.wait();
    std::vector<float> data(kLarge, 1.0F);
    try {
      const WorkPtr work = g.start_all_reduce(data.data(), data.data(), kLarge, DataType::f32, ReduceOp::sum);
      if (g.rank() != 2) begun.arrive_and_wait();
      if (g.rank() == 0) GetParam().say(m);
      work->wait();
      ADD_FAILURE() << "nobody sums";
    } catch (const Error& e) {
      EXPECT_NE(e.code(), ErrorCode::timeout);
      EXPECT_THAT(e.what(), HasSubstr("aggregator agg ("));
      if (g.rank() != 2) {
        EXPECT_THAT(e.what(), HasSubstr(GetParam().reason));
      }
    }
    if (g.rank() != 2) failed.count_down();
    // Who hears of the failed call before it hears who has given up begins one call more with it.
    try {
      all_reduce_of(g, kLarge);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("aggregator agg ("));
    }
    for (int i = 0; i < 3; ++i) all_reduce_of(g, kLarge);
    if (g.rank() == 0) {
      EXPECT_THAT(g.explain(Collective::all_reduce, kLarge, DataType::f32), Not(HasSubstr("through")));
    }
  });
}

TEST(Words, ARankThatKnowsAPlanByAnotherDigestEndsAllCallsWithBoth) {
  run_members(false, [](Member& m) {
    Group& g = *m.group;
    if (g.rank() == 0) {
      steer::PlanWord word = word_of_a_ring();
      word.digest ^= 1;
      m.say(1, to_bytes(word));
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      while (std::chrono::steady_clock::now() < begin + std::chrono::seconds(20)) all_reduce_of(g, 1000);
      ADD_FAILURE() << "on rank " << g.rank();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupted) << e.what();
      const std::uint32_t own = word_of_a_ring().digest;
      EXPECT_THAT(e.what(), HasSubstr("rank 0 ("));
      EXPECT_THAT(e.what(),
                  HasSubstr(fmt::format("rank 0's build of Talweg knows the plan as {:08x}, the one "
                                        "here as {:08x}",
                                        own ^ 1, own)));
    }
  });
}

// Where plans follow the network, rank 0 may ask while another rank still measures it at the start, and asks
// nobody again before all have answered. Here it has not meant to ask, which shows the answer.
TEST(Words, ARankAnswersRankZeroAlsoBeforeItsOwnPlansFollow) {
  run_members(false, [](Member& m) {
    Group& g = *m.group;
    all_reduce_of(g, 1000);  // by a plan that stays
    if (g.rank() == 0) {
      steer::PlanWord question;
      question.call = kLater;
      question.next_turn = kLater + 1;
      question.report = true;
      m.say(1, to_bytes(question));
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      while (std::chrono::steady_clock::now() < begin + std::chrono::seconds(20)) all_reduce_of(g, 1000);
      ADD_FAILURE() << "on rank " << g.rank();
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 1 ("));
      EXPECT_THAT(e.what(), HasSubstr("it reports what nobody has asked for"));
    }
  });
}

}  // namespace
}  // namespace talweg::group
