#include "group/environment.h"

#include <gmock/gmock.h>

#include "ranks.h"

namespace talweg::group {
namespace {

TEST(Environment, UnderstandsEachLauncher) {
  const std::pair<const char*, const char*> launchers[] = {{"RANK", "WORLD_SIZE"},
                                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                           {"PMI_RANK", "PMI_SIZE"},
                                                           {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, size] : launchers) {
    const Variable a(rank, "3");
    const Variable b(size, "8");
    const Place place = find_place({});
    EXPECT_EQ(place.rank, 3);
    EXPECT_EQ(place.size, 8);
    EXPECT_THAT(place.origin, ::testing::HasSubstr(rank));
  }
}

TEST(Environment, WithoutALauncherThereIsOneRank) {
  const Place place = find_place({});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.size, 1);
}

TEST(Environment, HalfAPlaceIsNoReasonToWorkAlone) {
  GroupOptions options;
  options.rank = 1;
  EXPECT_THROW(find_place(options), Error);
  options = {};
  options.size = 2;
  EXPECT_THROW(find_place(options), Error);
  for (const char* one : {"RANK", "WORLD_SIZE"}) {
    const Variable half(one, "2");
    EXPECT_THROW(find_place({}), Error) << one;
    const Variable rank("OMPI_COMM_WORLD_RANK", "1");
    const Variable size("OMPI_COMM_WORLD_SIZE", "2");
    EXPECT_EQ(find_place({}).rank, 1) << "another launcher has said both";
  }
}

TEST(Environment, OptionsComeFirstAndNonsenseIsRefused) {
  const Variable rank("RANK", "1");
  const Variable size("WORLD_SIZE", "2");
  GroupOptions options;
  options.rank = 0;
  options.size = 4;
  EXPECT_EQ(find_place(options).size, 4);
  options.rank = 4;
  EXPECT_THROW(find_place(options), Error);
  const Variable wrong("RANK", "one");
  EXPECT_THROW(find_place({}), Error);
}

TEST(Environment, WhatIsSetWronglyIsSaidBeforeAnybodyIsWaitedFor) {
  const Variable master("MASTER_ADDR", "127.0.0.1");
  const Variable port("MASTER_PORT", "9");  // nobody is there
  GroupOptions options;
  options.rank = 1;
  options.size = 2;
  options.timeout = std::chrono::seconds(200);
  for (const auto& [setting, value] : {std::pair{"TALWEG_SHM", "perhaps"},
                                       {"TALWEG_STREAMS", "0"},
                                       {"TALWEG_ENCRYPT", "perhaps"},
                                       {"TALWEG_TRANSPORT", "quic"},
                                       {"TALWEG_PATHS", "17"},
                                       {"TALWEG_PATHS_IFNAME", "=none"},
                                       {"TALWEG_CHECKSUM", "perhaps"},
                                       {"TALWEG_HOST_TIMEOUT", "soon"},
                                       {"TALWEG_SOCKET_IFNAME", "=none"},
                                       {"TALWEG_RECORDER", "many"},
                                       {"TALWEG_METRICS_FILE", "/no/such/folder/%r.prom"},
                                       {"TALWEG_METRICS_FILE", "/dev/null"},
                                       {"TALWEG_METRICS_PERIOD", "soon"},
                                       {"TALWEG_PROBE", "perhaps"},
                                       {"TALWEG_REPLAN", "perhaps"},
                                       {"TALWEG_PACING", "perhaps"},
                                       {"TALWEG_ALGO", "magic"},
                                       {"TALWEG_ALGO", "switch"},
                                       {"TALWEG_SWITCH", "127.0.0.1"},
                                       {"TALWEG_SWITCH", "127.0.0.1:99999"},
                                       {"TALWEG_SWITCH", "10.0.0.9:4711"},
                                       {"TALWEG_CLUSTER", "/no/such/file"}}) {
    const Variable wrong(setting, value);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(Group::join(options), Error) << setting;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, options.timeout / 2) << setting;
  }
}

TEST(Environment, OfTwoSettingsThatNameInterfacesSaysWhichIsWrong) {
  GroupOptions options;
  options.rank = 1;
  options.size = 2;
  const Variable wrong("TALWEG_PATHS_IFNAME", "lo,none");
  try {
    Group::join(options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr(
                              "TALWEG_PATHS_IFNAME: no network interface matches \"none\"; there are: "));
  }
}

TEST(Environment, KnowsWhereToMeet) {
  const Place place{1, 4, ""};
  EXPECT_THROW(find_meeting(place), Error);
  {
    const Variable store("TALWEG_STORE", "file:/tmp/x");
    EXPECT_EQ(find_meeting(place).file, "/tmp/x");
  }
  {
    const Variable store("TALWEG_STORE", "tcp://host:123");
    EXPECT_EQ(find_meeting(place).host, "host");
    EXPECT_EQ(find_meeting(place).port, 123);
    EXPECT_EQ(find_meeting(place, "tcp://other:456").host, "other") << "an option beats the environment";
  }
  for (const char* nonsense : {"nonsense", "http://host:123", "unix:///tmp/x"}) {
    const Variable store("TALWEG_STORE", nonsense);
    try {
      find_meeting(place);
      ADD_FAILURE() << nonsense;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("expected file:/path or tcp://host:port, got"));
    }
  }
  const Variable address("MASTER_ADDR", "10.0.0.1");
  const Variable port("MASTER_PORT", "29500");
  EXPECT_EQ(find_meeting(place).port, 29500);
  {
    const Variable high("MASTER_PORT", "65536");
    EXPECT_THROW(find_meeting(place), Error);
    EXPECT_THROW(find_meeting(place, "tcp://10.0.0.1:99999"), Error);
    EXPECT_THROW(find_meeting(place, "tcp://10.0.0.1:0"), Error);
  }
  const Variable restored("MASTER_PORT", "29500");
  const Variable agent("TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_EQ(find_meeting(place).port, 29501) << "the agent's own store has the port itself";
}

TEST(Environment, AnAggregatorIsCalledByItsName) {
  const Place nobody{-1, 2, "aggregator agg"};
  const auto words = [&](const std::string& rendezvous) -> std::string {
    try {
      find_meeting(nobody, rendezvous);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(words(""),
              ::testing::StartsWith("aggregator agg does not know where to meet the others: set "));
  const Variable store("TALWEG_STORE", "tcp://host:123");
  EXPECT_EQ(find_meeting(nobody).port, 123) << "where ranks meet";
  const Variable at("TALWEG_AGGREGATORS_AT", "tcp://host:456");
  EXPECT_EQ(find_meeting(nobody).port, 456);
  EXPECT_EQ(find_meeting({1, 4, ""}).port, 123) << "a rank";
  EXPECT_THAT(words("here"), ::testing::StartsWith("--rendezvous: expected file:/path or tcp://host:port"));
}

TEST(Environment, SlurmsFirstHostServes) {
  const Place place{1, 4, ""};
  const Variable job("SLURM_JOB_ID", "77");
  const Variable list("SLURM_JOB_NODELIST", "node[03-07,9],other");
  const Meeting meeting = find_meeting(place);
  EXPECT_EQ(meeting.host, "node03");
  EXPECT_EQ(meeting.port, find_meeting({2, 4, ""}).port);
}

TEST(Environment, TimeoutsTakeUnits) {
  const Variable value("TALWEG_TIMEOUT", "1500ms");
  EXPECT_EQ(find_timeout({}).count(), 1500);
  const Variable seconds("TALWEG_TIMEOUT", "7");
  EXPECT_EQ(find_timeout({}).count(), 7000);
  const Variable nonsense("TALWEG_TIMEOUT", "soon");
  EXPECT_THROW(find_timeout({}), Error);
}

TEST(Environment, AClusterFileDecidesThePlan) {
  const TemporaryFile file;
  {
    std::FILE* f = std::fopen(file.path().c_str(), "w");
    std::fputs(
        "nodes:\n  - {name: fast, kind: worker}\n  - {name: slow, kind: worker}\n  - {name: also_slow, kind: "
        "worker}\n"
        "  - {name: sw, kind: switch}\nlinks:\n  - {between: [fast, sw], capacity: 10Gbit/s, latency: 10us}\n"
        "  - {between: [slow, sw], capacity: 100Mbit/s, latency: 10us}\n"
        "  - {between: [also_slow, sw], capacity: 100Mbit/s, latency: 10us}\n",
        f);
    std::fclose(f);
  }
  run_ranks(
      3,
      [](Group& g) {
        EXPECT_THAT(g.explain(Collective::all_reduce, 1 << 22, DataType::f32),
                    ::testing::HasSubstr(", 1 trees"));
      },
      [&](GroupOptions& o) { o.cluster_file = file.path(); });
  EXPECT_THROW(run_ranks(
                   2, [](Group&) {}, [&](GroupOptions& o) { o.cluster_file = file.path(); }),
               Error);
}

}  // namespace
}  // namespace talweg::group
