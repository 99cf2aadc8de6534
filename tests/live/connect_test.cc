// Ranks as threads that meet in a store in memory: with which keys they connect, and with which they do not.
#include "live/join/connect.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <iterator>
#include <latch>
#include <map>
#include <sstream>
#include <thread>

#include "connecting.h"
#include "live/join/card.h"
#include "live/join/gate.h"
#include "live/join/interface.h"
#include "talweg/error.h"

namespace talweg::live {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// All have failed, with the same words.
void expect_refused(const std::vector<Outcome>& outcomes, ErrorCode code, const std::string& words) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.error, outcomes[0].error);
    EXPECT_THAT(outcome.error, HasSubstr(words));
  }
}

const wire::Secret kKey = wire::secret_from_text("the key of this job");

void expect_connected(const std::vector<Outcome>& outcomes, const std::string& security) {
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    ASSERT_EQ(outcomes[r].error, "") << r;
    EXPECT_THAT(outcomes[r].mesh.security, HasSubstr(security));
    for (std::size_t other = 0; other < outcomes.size(); ++other)
      if (other != r) {
        EXPECT_FALSE(outcomes[r].mesh.connections[other].streams.empty()) << r << " to " << other;
      }
  }
}

TEST(Connect, WorksWithAJobKeyWithOneOfTheStoreAndOnLoopbackWithNone) {
  for (const bool shared : {true, false}) {
    const auto memory = [&](ConnectOptions& o) { o.shared_memory = shared; };
    MemoryStore open, confidential(true), keyed;
    expect_connected(connect(open, 4, memory), "no key");
    expect_connected(connect(confidential, 4, memory), "a key from the store");
    expect_connected(connect(keyed, 4,
                             [&](ConnectOptions& o) {
                               o.shared_memory = shared;
                               o.key = kKey;
                             }),
                     "the job's key");
  }
}

// Or rank 0 would look again and again for a card with its number, and each rest between is one that all wait
// for.
TEST(Connect, WhoFindsRank0ThereWritesItsNumberIntoItsFirstCard) {
  class CountingStore : public MemoryStore {
   public:
    void set(const std::string& key, const std::string& value) override {
      {
        const std::lock_guard lock(counting_);
        ++sets_[key];
      }
      MemoryStore::set(key, value);
    }
    std::map<std::string, int> sets() {
      const std::lock_guard lock(counting_);
      return sets_;
    }

   private:
    std::mutex counting_;
    std::map<std::string, int> sets_;
  };
  CountingStore store;
  expect_connected(connect(store, 4,
                           [&](ConnectOptions& o) {
                             if (o.rank > 0) store.get("rank0", std::chrono::steady_clock::time_point::max());
                           }),
                   "no key");
  const auto sets = store.sets();
  for (const char* rank : {"rank1", "rank2", "rank3"}) EXPECT_EQ(sets.at(rank), 1) << rank;
}

TEST(Connect, IsNotMisledByWhatEarlierGroupsLeftInTheStore) {
  MemoryStore store;
  for (int attempt = 0; attempt < 4; ++attempt) {
    // Rank 0 comes last and meets cards of the dead; then first, while the others still see its dead self.
    const auto late = [&](ConnectOptions& o) {
      if ((o.rank == 0) == (attempt % 2 == 0)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
    expect_connected(connect(store, 3, late), "no key");
  }
}

TEST(Connect, IsNotMisledByAGroupThatNeverFormed) {
  MemoryStore store;
  const auto alone = [&](int rank) {
    ConnectOptions options;
    options.rank = rank;
    options.size = 3;
    options.address = "127.0.0.1";
    options.deadline_ns = now_ns() + kSecond / 5;
    EXPECT_THROW(connect_all(store, options), Error) << rank;
  };
  std::thread first([&] { alone(0); });
  alone(1);  // rank 2 does not come
  first.join();
  expect_connected(connect(store, 3,
                           [](ConnectOptions& o) {
                             if (o.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
                           }),
                   "no key");
}

TEST(Connect, EncryptsEveryStreamToOtherHostsWithSecretsOfItsOwn) {
  MemoryStore store;
  const auto outcomes = connect(store, 3, [](ConnectOptions& o) {
    o.shared_memory = false;
    o.key = kKey;
    o.encrypt = true;
    o.streams = 2;
  });
  expect_connected(outcomes, "are encrypted");
  const auto& low = outcomes[0].mesh.connections[2].secrets;
  const auto& high = outcomes[2].mesh.connections[0].secrets;
  ASSERT_EQ(low.size(), 2U);
  ASSERT_EQ(high.size(), 2U);
  EXPECT_EQ(low[1].send, high[1].receive);
  EXPECT_NE(low[0].send, low[1].send);
}

TEST(Connect, WillNotListenBeyondLoopbackWithoutAKey) {
  MemoryStore store;
  const auto outcomes = connect(store, 2, [](ConnectOptions& o) { o.address = "192.0.2.1"; });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::invalid_argument);
    EXPECT_THAT(outcome.error, HasSubstr("TALWEG_KEY_FILE"));
    EXPECT_THAT(outcome.error, HasSubstr("192.0.2.1"));
  }
}

TEST(Connect, EncryptionWithoutAKeyIsRefused) {
  MemoryStore store;
  for (const Outcome& outcome : connect(store, 2, [](ConnectOptions& o) { o.encrypt = true; }))
    EXPECT_THAT(outcome.error, HasSubstr("TALWEG_ENCRYPT needs a job key"));
}

TEST(Connect, ARankWithoutTheKeyOrWithoutEncryptionIsNamedOnAllRanks) {
  MemoryStore store;
  expect_refused(connect(store, 3,
                         [](ConnectOptions& o) {
                           if (o.rank != 1) o.key = kKey;
                         }),
                 ErrorCode::invalid_argument, "rank 1 has no key, rank 0 has a job key");
  MemoryStore other;
  expect_refused(connect(other, 3,
                         [](ConnectOptions& o) {
                           o.key = kKey;
                           o.encrypt = o.rank == 2;
                         }),
                 ErrorCode::invalid_argument, "rank 2 encrypts, rank 0 does not: set TALWEG_ENCRYPT alike");
}

TEST(Connect, ASettingThatDiffersIsNamedOnAllRanks) {
  for (const int odd : {0, 1, 2}) {
    MemoryStore store;
    expect_refused(connect(store, 3,
                           [&](ConnectOptions& o) {
                             o.alike = {{"TALWEG_ALGO", 7}, {"TALWEG_CLUSTER", o.rank == odd ? 2U : 3U}};
                           }),
                   ErrorCode::invalid_argument,
                   odd == 2 ? "rank 2 and rank 0 have different values of TALWEG_CLUSTER"
                            : "rank 1 and rank 0 have different values of TALWEG_CLUSTER");
  }
}

TEST(Connect, ARankThatNeverComesIsNamedByAllThatCame) {
  MemoryStore store;
  const auto outcomes = connect(store, 3, [&](ConnectOptions& o) {
    o.size = 4;
    if (o.rank > 0) return;
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (const char* card : {"rank1", "rank2"}) store.get(card, soon);
    o.deadline_ns = now_ns() + 2 * kSecond;
  });
  expect_refused(outcomes, ErrorCode::timeout,
                 "rank 0 of 4 waited for the others to join: rank 3 never came");
}

TEST(Connect, ARankThatDiesWhileOthersConnectIsTheOneThatAllBlame) {
  // Rank 1 connects to rank 0 and dies. Rank 3 has given its card, and never connects, so that the others are
  // still waiting when it does.
  MemoryStore store;
  int died = -1;
  const std::int64_t begin_ns = now_ns();
  const auto outcomes = connect(store, 4, [&](ConnectOptions& o) {
    o.deadline_ns = begin_ns + 200 * kSecond;
    if (o.rank == 3) {
      Card card;
      card.size = 4;
      card.endpoint = {"127.0.0.1", 9};
      exchange_cards(store, o, card);
      throw Error(ErrorCode::aborted, "never connects");
    }
    if (o.rank != 1) return;
    Card card;
    card.size = 4;
    card.host_id = "elsewhere";
    FileDescriptor listener = listen_tcp(card.endpoint = {"127.0.0.1", 0});
    card.endpoint = local_endpoint(listener);
    const auto cards = exchange_cards(store, o, card).cards;
    wire::Introduction i;
    i.purpose = wire::Purpose::data;
    i.from = 1;
    i.to = 0;
    i.job = cards[0].job;
    Visitor alive =
        knock([&] { return connect_tcp(cards[0].endpoint, o.deadline_ns); }, {}, i, o.deadline_ns);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    died = 1;
    throw Error(ErrorCode::aborted, "dies");
  });
  EXPECT_EQ(died, 1);
  EXPECT_LT(now_ns() - begin_ns, 100 * kSecond) << "long before the deadline";
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 ("));
  EXPECT_THAT(outcomes[2].error, HasSubstr("rank 1 ("));
}

TEST(Connect, ARefusalOfThePastIsNotBelieved) {
  MemoryStore store;
  const auto differs = [](ConnectOptions& o) { o.alike = {{"TALWEG_ALGO", o.rank == 1 ? 2U : 3U}}; };
  expect_refused(connect(store, 3, differs), ErrorCode::invalid_argument, "TALWEG_ALGO");
  // Rank 0 comes when the others have long seen what its dead self has said.
  expect_connected(connect(store, 3,
                           [](ConnectOptions& o) {
                             if (o.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
                           }),
                   "no key");
}

TEST(Connect, RanksThatWereToldAnotherNumberOfRanksAreNamed) {
  MemoryStore fewer;
  expect_refused(connect(fewer, 3,
                         [](ConnectOptions& o) {
                           if (o.rank == 1) o.size = 2;
                         }),
                 ErrorCode::invalid_argument,
                 "rank 1 was told that there are 2 ranks, rank 0 that there are 3");
  // The group of two forms; the third was never a part of it.
  MemoryStore more;
  const auto outcomes = connect(more, 3, [](ConnectOptions& o) {
    if (o.rank < 2) o.size = 2;
    if (o.rank == 2) o.deadline_ns = now_ns() + kSecond / 2;
  });
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_EQ(outcomes[1].error, "");
  EXPECT_THAT(outcomes[2].error,
              HasSubstr("rank 0 was told that there are 2 ranks, rank 2 that there are 3"));
}

TEST(Connect, ARankWithAnotherKeyIsToldAndTellsTheOthersWhyItGoes) {
  MemoryStore store;
  const auto outcomes = connect(store, 2, [](ConnectOptions& o) {
    o.key = o.rank == 1 ? wire::secret_from_text("the key of another job") : kKey;
    o.deadline_ns = now_ns() + 4 * kSecond;
  });
  EXPECT_EQ(outcomes[1].code, ErrorCode::invalid_argument);
  EXPECT_THAT(outcomes[1].error, HasSubstr("do not hold the same job key"));
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 connecting to rank 0"));
  EXPECT_THAT(outcomes[0].error, HasSubstr("do not hold the same job key"));
}

// Where the rank whose card this is listens.
Endpoint endpoint_on(const std::string& card) {
  std::istringstream words(card);
  std::string magic, version;
  Endpoint endpoint;
  words >> magic >> version >> endpoint.host >> endpoint.port;
  return endpoint;
}

TEST(Connect, StrangersDoNotKeepRanksApartAndAreDroppedWhileRanksAreAwaited) {
  MemoryStore store;
  std::vector<FileDescriptor> crowd;
  std::thread strangers([&] {
    const Endpoint first =
        endpoint_on(store.get("rank0", std::chrono::steady_clock::now() + std::chrono::seconds(10)));
    for (int i = 0; i < 400; ++i) {
      crowd.push_back(connect_tcp(first, now_ns() + 5 * kSecond));
      const std::string noise(static_cast<std::size_t>(i % 120), 'x');
      ::send(crowd.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    }
    // More than the gate holds: rank 0, which waits for rank 1, must have dropped some.
    char byte = 0;
    EXPECT_TRUE(wait_ready(crowd.front(), false, now_ns() + 5 * kSecond));
    EXPECT_LE(::recv(crowd.front().get(), &byte, 1, 0), 0);
    store.set("go", "");
  });
  const auto outcomes = connect(store, 2, [&](ConnectOptions& o) {
    o.key = kKey;
    o.shared_memory = false;
    if (o.rank == 1) store.get("go", std::chrono::steady_clock::now() + std::chrono::seconds(15));
  });
  strangers.join();
  expect_connected(outcomes, "the job's key");
  EXPECT_THAT(outcomes[0].mesh.security, HasSubstr("strange connections dropped"));
}

// Ranks of a network with these aggregators, which they wait for.
std::function<void(ConnectOptions&)> expecting(
    std::vector<std::string> names, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
  return [=](ConnectOptions& o) {
    o.key = kKey;
    o.aggregators = names;
    o.patience = patience;
  };
}
constexpr std::chrono::milliseconds kImpatient{50};

TEST(ConnectAggregator, GetsASeatBehindTheRanksInTheOrderOfTheirNames) {
  for (const bool shared : {true, false}) {
    MemoryStore store;
    const auto outcomes = connect(store, 3,
                                  [&](ConnectOptions& o) {
                                    expecting({"left", "right"})(o);
                                    o.shared_memory = shared;
                                  },
                                  {"right", "left"});
    for (const Outcome& outcome : outcomes) {
      ASSERT_EQ(outcome.error, "");
      ASSERT_EQ(outcome.mesh.connections.size(), 5u);
      EXPECT_EQ(outcome.mesh.ranks, 3);
      EXPECT_EQ(outcome.mesh.connections[2].name, "");
      EXPECT_EQ(outcome.mesh.connections[3].name, "left");
      EXPECT_EQ(outcome.mesh.connections[4].name, "right");
      EXPECT_THAT(outcome.mesh.absent, IsEmpty());
      for (const Connection& c : outcome.mesh.connections) {
        EXPECT_EQ(c.streams.empty(), c.rank == outcome.mesh.seat) << c.rank;
      }
    }
    EXPECT_EQ(outcomes[3].mesh.seat, 4);
    EXPECT_EQ(outcomes[4].mesh.seat, 3);
  }
}

TEST(ConnectAggregator, ThatIsNotThereIsToldToAllAndTheGroupFormsWithoutIt) {
  MemoryStore store;
  const auto outcomes = connect(store, 3, expecting({"left", "right"}, std::chrono::seconds(2)), {"right"});
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.mesh.connections.size(), 4u);
    EXPECT_THAT(outcome.mesh.absent, ElementsAre("left: it was not there when all 3 ranks were"));
  }
}

TEST(ConnectAggregator, ThatComesTooLateWaitsForTheNextGroupOfItsJob) {
  MemoryStore store;
  ConnectOptions options;
  options.aggregator = "left";
  options.address = "127.0.0.1";
  expecting({"left"}, kImpatient)(options);
  expect_connected(connect(store, 2, expecting({"left"}, kImpatient)), "the job's key");
  options.deadline_ns = now_ns() + kSecond / 5;
  try {
    connect_all(store, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::timeout);
    EXPECT_STREQ(e.what(), "aggregator left: a group formed without it, and no other came");
  }
  Outcome late;
  options.deadline_ns = now_ns() + 20 * kSecond;
  std::thread again([&] { late.mesh = connect_all(store, options); });
  const auto outcomes = connect(store, 2, expecting({"left"}));
  again.join();
  EXPECT_EQ(outcomes[0].mesh.connections[2].name, "left");
  EXPECT_EQ(late.mesh.seat, 2);
}

TEST(ConnectAggregator, OfANameThatIsTakenIsTurnedAway) {
  MemoryStore store;
  const auto outcomes = connect(store, 2, expecting({"left"}), {"left", "left"});
  EXPECT_EQ(outcomes[0].mesh.connections.size(), 3u);
  EXPECT_EQ(outcomes[1].mesh.connections.size(), 3u);
  const std::string error = outcomes[2].error + outcomes[3].error;  // of one of them
  EXPECT_TRUE(outcomes[2].error.empty() || outcomes[3].error.empty()) << error;
  EXPECT_THAT(error, HasSubstr("is aggregator left of this group already: start one of each name"));
}

// A store that is closed when a group has formed there, as that of rank 0 is: before somebody has read the
// verdict, or after.
class ClosingStore : public Store {
 public:
  ClosingStore(Store& store, bool tells) : store_(store), tells_(tells) {}
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
    refuse_if(closed_);
    std::string value = store_.get(key, deadline);
    closed_ = key.starts_with("all");
    refuse_if(closed_ && !tells_);
    return value;
  }

 private:
  static void refuse_if(bool closed) {
    if (closed) throw Error(ErrorCode::peer_failed, "the store was closed");
  }
  Store& store_;
  const bool tells_;
  bool closed_ = false;
};

TEST(ConnectAggregator, KnowsWhyItHasNoSeatThoughTheStoreIsClosed) {
  const auto words_of = [](bool tells, const std::string& node, const std::string& before) {
    MemoryStore store;
    if (!before.empty()) store.set("node/left", before);
    Outcome left;
    std::thread aggregator([&] {
      ClosingStore closing(store, tells);
      ConnectOptions options;
      expecting({})(options);
      options.aggregator = "left";
      options.address = "127.0.0.1";
      options.deadline_ns = now_ns() + 20 * kSecond;
      try {
        left.mesh = connect_all(closing, options);
      } catch (const Error& e) {
        left.error = e.what();
      }
    });
    EXPECT_EQ(connect(store, 2, expecting({node}, kImpatient))[0].error, "");
    aggregator.join();
    return left.error;
  };
  EXPECT_EQ(
      words_of(true, "right", ""),
      "aggregator left: a group formed whose network has no aggregator of that name, and no other came");
  EXPECT_EQ(words_of(false, "right", ""),
            "aggregator left: no group took it; has the ranks' network an aggregator of that name? the store "
            "was closed");
  const std::string namesake = "talweg " + std::to_string(wire::kProtocolVersion) +
                               " 127.0.0.1 9 left h.n - other 77 1 tcp 0 job 0 - 1 0 0";
  EXPECT_EQ(words_of(false, "left", namesake),
            "aggregator left: no group took it, and other pid 77 has the same name: start one of each name");
}

TEST(ConnectAggregator, ThatDoesNotFitIsToldWhyAndTheGroupFormsWithoutIt) {
  MemoryStore store;
  const auto outcomes = connect(store, 2,
                                [](ConnectOptions& o) {
                                  expecting({"left", "right", "up"})(o);
                                  if (o.aggregator == "left") o.key.reset();
                                  if (o.aggregator == "right") o.encrypt = true;
                                  if (o.aggregator == "up") o.transport = "udp";
                                },
                                {"left", "right", "up"});
  const std::string left =
      "aggregator left has no key, rank 0 has a job key: give TALWEG_KEY or "
      "TALWEG_KEY_FILE to all";
  const std::string right = "aggregator right encrypts, rank 0 does not: set TALWEG_ENCRYPT alike on all";
  const std::string up = "aggregator up has TALWEG_TRANSPORT=udp, rank 0 has tcp: set it alike on all";
  for (const int rank : {0, 1}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.mesh.connections.size(), 2u);
    EXPECT_THAT(outcome.mesh.absent, ElementsAre("left: " + left, "right: " + right, "up: " + up));
  }
  EXPECT_EQ(outcomes[2].error, left);
  EXPECT_EQ(outcomes[3].error, right);
  EXPECT_EQ(outcomes[4].error, up);
}

TEST(ConnectAggregator, OfAnotherVersionIsLeftOutByName) {
  MemoryStore store;
  store.set("node/left", "talweg 3 some card of the past");
  const auto outcomes = connect(store, 2, expecting({"left"}, kImpatient));
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.error, "");
    EXPECT_THAT(outcome.mesh.absent,
                Contains(HasSubstr("left: aggregator left speaks protocol version 3, the others speak")));
  }
}

TEST(ConnectAggregator, ThatDiesBeforeItConnectsHasASeatAndNoConnection) {
  MemoryStore store;
  std::thread dies([&] {
    // The card of somebody who then listens to nobody.
    const std::string first = store.get("rank0", std::chrono::steady_clock::now() + std::chrono::seconds(10));
    std::istringstream words(first);
    std::vector<std::string> card{std::istream_iterator<std::string>(words), {}};
    card[4] = "left";
    std::string text;
    for (const std::string& word : card) text += (text.empty() ? "" : " ") + word;
    store.set("node/left", text);
  });
  const auto outcomes = connect(store, 2, expecting({"left"}));
  dies.join();
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.error, "");
    ASSERT_EQ(outcome.mesh.connections.size(), 3u);
    EXPECT_EQ(outcome.mesh.connections[2].name, "left");
    EXPECT_TRUE(outcome.mesh.connections[2].streams.empty());
  }
}

TEST(ConnectAggregator, ThatPausesUntilTheGroupHasFormedWithoutItEndsSoonAfterwards) {
  // What the aggregator reads of the group it reads when the ranks listen no more.
  struct Pausing : Store {
    Pausing(Store& with, std::latch& until) : store(with), formed(until) {}
    void set(const std::string& key, const std::string& value) override { store.set(key, value); }
    std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
      std::string value = store.get(key, deadline);
      if (key.starts_with("all")) formed.wait();
      return value;
    }
    Store& store;
    std::latch& formed;
  };
  MemoryStore store;
  std::latch formed(1);
  Outcome late;
  std::thread aggregator([&] {
    Pausing pausing(store, formed);
    ConnectOptions options;
    options.aggregator = "left";
    options.address = "127.0.0.1";
    options.key = kKey;
    options.shared_memory = false;
    options.deadline_ns = now_ns() + 200 * kSecond;
    try {
      connect_all(pausing, options);
    } catch (const Error& e) {
      late = {{}, e.what(), e.code()};
    }
  });
  const auto outcomes = connect(store, 2, [](ConnectOptions& o) {
    expecting({"left"})(o);
    o.shared_memory = false;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
  const std::int64_t begin = now_ns();
  formed.count_down();
  aggregator.join();
  EXPECT_LT(now_ns() - begin, 100 * kSecond) << "long before the deadline";
  EXPECT_EQ(late.code, ErrorCode::peer_failed);
  EXPECT_THAT(late.error,
              AllOf(HasSubstr("aggregator left connecting to rank 0"), HasSubstr("nobody listens any more")));
}

TEST(Connect, NothingListensOnceAllAreConnected) {
  MemoryStore store;
  const auto outcomes = connect(store, 3, [](ConnectOptions& o) { o.key = kKey; });
  expect_connected(outcomes, "the job's key");
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const char* card : {"rank0", "rank1", "rank2"})
    EXPECT_THROW(connect_tcp(endpoint_on(store.get(card, soon)), now_ns()), Error) << card;
}

}  // namespace
}  // namespace talweg::live
