// What --transport sets, what other options change of that, and what is said of options that do nothing.
#include "study/simulate_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "network_file.h"
#include "study/simulate_notes.h"

namespace talweg::study {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Given = std::vector<std::pair<const char*, const char*>>;

SimulateOptions options_of(const Given& given) {
  SimulateRequest request;
  request.topology = "star:hosts=4";
  request.flows = "incast:size=100KB";
  for (const auto& [name, text] : given) set(request, *field_called(simulate_fields(), name), text);
  return checked(request);
}

std::vector<std::string> notes_of(const Given& given) {
  return options_of(given).notes;
}

TEST(SimulateRequest, APresetIsWhatItsOptionsSpelledOutGive) {
  const SimulateOptions ndp = options_of({{"transport", "ndp"}});
  EXPECT_TRUE(ndp.simulation == options_of({{"transport", "ndp"},
                                            {"priorities", "2"},
                                            {"trim", "true"},
                                            {"queue", "12112"},  // 8 x (1448 + 66)
                                            {"mark", "0"},
                                            {"window", "30"},
                                            {"routing", "spray"},
                                            {"least-rto", "1ms"}})
                                    .simulation);
  EXPECT_TRUE(options_of({{"transport", "eqds"}}).simulation == options_of({{"transport", "eqds"},
                                                                            {"priorities", "2"},
                                                                            {"trim", "true"},
                                                                            {"queue", "12112"},
                                                                            {"mark", "0"},
                                                                            {"routing", "spray"},
                                                                            {"least-rto", "1ms"}})
                                                                    .simulation);
  const SimulateOptions dctcp = options_of({});
  EXPECT_TRUE(dctcp.simulation == options_of({{"transport", "dctcp"},
                                              {"priorities", "1"},
                                              {"queue", "1M"},
                                              {"window", "10"},
                                              {"routing", "ecmp"},
                                              {"ack-every", "2"},
                                              {"least-rto", "10ms"}})
                                      .simulation);
  EXPECT_FALSE(ndp.simulation == dctcp.simulation);
  EXPECT_EQ(ndp.simulation.transport.kind, sim::TransportKind::pulled);
  EXPECT_EQ(dctcp.simulation.transport.kind, sim::TransportKind::dctcp);
  const SimulateOptions eqds = options_of({{"transport", "eqds"}});
  EXPECT_EQ(eqds.simulation.transport.first_window, 0) << "what the path holds";
  EXPECT_TRUE(options_of({{"transport", "pias"}}).simulation ==
              options_of({{"transport", "pias"},
                          {"priorities", "8"},
                          {"queue", "1M"},
                          {"demote", "1108140,1652720,2125760,2536020,2934600,3210540,3394500"},
                          {"window", "10"},
                          {"routing", "ecmp"},
                          {"ack-every", "1"},
                          {"least-rto", "10ms"}})
                  .simulation);
  sim::SimulationOptions pias = options_of({{"transport", "pias"}, {"priorities", "1"}}).simulation;
  pias.transport.demote_bytes = {};
  pias.transport.ack_every = 2;
  EXPECT_TRUE(pias == dctcp.simulation);
  const sim::SimulationOptions pfabric = options_of({{"transport", "pfabric"}}).simulation;
  EXPECT_TRUE(pfabric == options_of({{"transport", "pfabric"},
                                     {"priorities", "1"},
                                     {"mark", "0"},
                                     {"routing", "spray"},
                                     {"least-rto", "0"}})
                             .simulation);
  EXPECT_EQ(pfabric.transport.kind, sim::TransportKind::pfabric);
  EXPECT_TRUE(pfabric.network.switch_queue.least_left_first);
  EXPECT_FALSE(pfabric.network.host_queue.least_left_first);
  EXPECT_EQ(pfabric.network.switch_queue.limit_round_trips, 2);
}

TEST(SimulateRequest, AQueueThatIsGivenTakesThePlaceOfOneByRoundTrips) {
  const sim::QueuePolicy queue =
      options_of({{"transport", "pfabric"}, {"queue", "36K"}}).simulation.network.switch_queue;
  EXPECT_EQ(queue.limit_bytes, 36 << 10);
  EXPECT_EQ(queue.limit_round_trips, 0);
}

TEST(SimulateRequest, WhatCannotBeDemotedIsRefused) {
  const auto refused = [](const char* transport, const char* name, const char* text) -> std::string {
    try {
      options_of({{"transport", transport}, {name, text}});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(options_of({{"transport", "pias"}, {"demote", "10K,1M"}}).simulation.transport.demote_bytes,
            (std::array<std::int64_t, 7>{10 << 10, 1 << 20}));
  EXPECT_EQ(refused("dctcp", "demote", "10K"), "--demote: not with --transport dctcp: expected pias");
  EXPECT_EQ(refused("pias", "demote", "10K,10K"),
            "--demote 10K,10K: expected sizes above 0, each larger than the one before");
  EXPECT_THAT(refused("pias", "demote", "0"), HasSubstr("expected sizes above 0"));
  EXPECT_THAT(refused("pias", "demote", "1,2,3,4,5,6,7,8"), HasSubstr("expected 1 to 7 sizes"));
  EXPECT_THAT(refused("pias", "demote", "ten"), HasSubstr("--demote: "));
  EXPECT_EQ(refused("pfabric", "priorities", "2"),
            "--priorities 2: pfabric has one queue, whose order is what flows have left");
  EXPECT_EQ(refused("pfabric", "trim", "true"), "--trim: pfabric drops what does not fit");
}

TEST(SimulateRequest, AnOptionThatIsGivenChangesItsOwnSettingAlone) {
  const sim::SimulationOptions ndp = options_of({{"transport", "ndp"}}).simulation;
  const auto with = [](const char* name, const char* text) {
    return options_of({{"transport", "ndp"}, {name, text}}).simulation;
  };
  sim::SimulationOptions expected = ndp;
  expected.transport.first_window = 7;
  EXPECT_TRUE(with("window", "7") == expected);
  expected = ndp;
  expected.network.switch_queue.limit_bytes = 64 << 10;
  EXPECT_TRUE(with("queue", "64K") == expected);
  expected = ndp;
  expected.network.switch_queue.mark_bytes = 5000;
  EXPECT_TRUE(with("mark", "5000") == expected);
  expected = ndp;
  expected.transport.spray = false;
  EXPECT_TRUE(with("routing", "ecmp") == expected);
  expected = ndp;
  expected.network.switch_queue.priorities = expected.network.host_queue.priorities = 4;
  EXPECT_TRUE(with("priorities", "4") == expected);
  expected = ndp;
  expected.transport.least_rto = Nanoseconds{5'000'000};
  EXPECT_TRUE(with("least-rto", "5ms") == expected);
  // A queue of eight packets is longer where packets are.
  EXPECT_EQ(options_of({{"transport", "ndp"}, {"payload", "4000"}, {"header", "64"}})
                .simulation.network.switch_queue.limit_bytes,
            8 * 4064);
}

TEST(SimulateRequest, MarksGoByDelayUnlessTheyAreGivenAndNotInFrontOfHostsLinks) {
  const sim::NetworkOptions by_delay = options_of({}).simulation.network;
  EXPECT_TRUE(by_delay.switch_queue.mark_by_delay);
  EXPECT_FALSE(by_delay.host_queue.mark_by_delay);
  EXPECT_EQ(by_delay.host_queue.mark_bytes, 0);
  const sim::NetworkOptions given = options_of({{"mark", "20000"}}).simulation.network;
  EXPECT_FALSE(given.switch_queue.mark_by_delay);
  EXPECT_EQ(given.switch_queue.mark_bytes, 20'000);
  const sim::NetworkOptions red = options_of({{"red", "10K,20K,0.1"}}).simulation.network;
  EXPECT_FALSE(red.switch_queue.mark_by_delay);
  EXPECT_EQ(red.switch_queue.mark_bytes, 0);
}

TEST(SimulateRequest, SprayingIsNamedWhereThereIsOnePath) {
  const char* const kOnePath = "--routing: between any two hosts there is one path";
  EXPECT_THAT(notes_of({{"routing", "spray"}}), ElementsAre(kOnePath));
  EXPECT_THAT(notes_of({{"routing", "spray"}, {"fluid", "true"}}), ElementsAre(kOnePath));
  EXPECT_THAT(notes_of({{"topology", "leaf-spine:leaves=2,hosts=2,spines=1"}, {"routing", "spray"}}),
              ElementsAre(kOnePath));
  EXPECT_THAT(notes_of({{"topology", "leaf-spine:leaves=2,hosts=2,spines=2"}, {"routing", "spray"}}),
              IsEmpty());
  EXPECT_THAT(notes_of({{"transport", "ndp"}}), IsEmpty()) << "nobody asked for it";
}

TEST(SimulateRequest, OptionsThatDoNothingAreNamed) {
  EXPECT_THAT(notes_of({}), IsEmpty());
  EXPECT_THAT(notes_of({{"transport", "ndp"}}), IsEmpty());
  EXPECT_THAT(notes_of({{"priorities", "2"}, {"trim", "true"}}),
              ElementsAre(HasSubstr("--priorities, --trim: data and answers have the same priority")));
  EXPECT_THAT(notes_of({{"priorities", "2"}, {"trim", "true"}, {"flows", "incast:size=100KB,prio=1"}}),
              IsEmpty());
  EXPECT_THAT(notes_of({{"transport", "ndp"}, {"priorities", "2"}, {"trim", "true"}}), IsEmpty());
  EXPECT_THAT(
      notes_of({{"transport", "eqds"}, {"mark", "10K"}, {"most-window", "1M"}}),
      ElementsAre("--mark: eqds does not react to marks", "--most-window: eqds has no window that grows"));
  EXPECT_THAT(notes_of({{"transport", "ndp"}, {"queue", "0"}}),
              ElementsAre(HasSubstr("--queue: without trimming")));
  EXPECT_THAT(notes_of({{"mark", "2M"}}), ElementsAre("--mark: the queue is full before, at 1048576 bytes"));
  EXPECT_THAT(notes_of({{"flows", ""}, {"mark", "2M"}, {"algo", "bounded"}}),
              ElementsAre("--mark: the queue is full before, at 1048576 bytes"));
  EXPECT_THAT(notes_of({{"mark", "2K"}, {"red", "10K,20K,0.1"}}),
              ElementsAre("--mark: --red takes its place"));
  EXPECT_THAT(notes_of({{"processors", "tcp"}}),
              ElementsAre(HasSubstr("--processors: flows cost no processor")));
  EXPECT_THAT(notes_of({{"pacing", "true"}}), ElementsAre("--pacing: flows have no plan, only calls do"));
  EXPECT_THAT(notes_of({{"flows", ""}, {"pacing", "true"}}), IsEmpty());
  EXPECT_THAT(notes_of({{"flows", ""}, {"pacing", "true"}, {"transport", "ndp"}}),
              ElementsAre("--pacing: ndp has rates of its own"));
  for (const char* transport : {"pfabric", "pias"})
    EXPECT_THAT(notes_of({{"transport", transport}}), IsEmpty()) << transport;
  EXPECT_THAT(notes_of({{"transport", "pfabric"}, {"mark", "10K"}}),
              ElementsAre("--mark: pfabric does not react to marks"));
  EXPECT_THAT(notes_of({{"transport", "pias"}, {"demote", "10K"}, {"class-limits", "0,9K,9K"}}),
              ElementsAre("--class-limits: no packet has priority 2"));
  EXPECT_THAT(notes_of({{"flows", ""}, {"transport", "pfabric"}, {"algo", "bounded"}}),
              ElementsAre(HasSubstr("--transport: datagrams do not say how much is left")));
  EXPECT_THAT(notes_of({{"priorities", "8"}, {"class-limits", "0,0,0,9K"}, {"flows", "incast:prio=2"}}),
              ElementsAre("--class-limits: no packet has priority 3"));
}

std::vector<std::string> notes_of_workload(const std::string& text, Given given) {
  const NetworkFile file(text);
  given.insert(given.end(), {{"flows", ""}, {"workload", file.path().c_str()}});
  return notes_of(given);
}

// A group of two ranks that sums with bounded loss, and what else is said of it.
std::string bounded_group(const std::string& name, const std::string& more) {
  return "  - {name: " + name + ", ranks: [h0, h1]" + more +
         ", steps: [{compute: 1ms}, {op: all_reduce, bytes: 1MB, algorithm: bounded, depth: 0.5}]}\n";
}

TEST(SimulateRequest, ClassesOfAWorkloadThatSwitchesDoNotTellApartAreNamedOnce) {
  const std::string layers = "groups:\n" + bounded_group("a", ", queues: 4") +
                             bounded_group("b", ", queues: 2") + bounded_group("c", "");
  EXPECT_THAT(
      notes_of_workload(layers, {}),
      ElementsAre("--workload: queues of \"a\", \"b\": with fewer than 5 --priorities, layers share a "
                  "queue"));
  EXPECT_THAT(
      notes_of_workload(layers, {{"priorities", "4"}}),
      ElementsAre("--workload: queues of \"a\": with fewer than 5 --priorities, layers share a queue"));
  EXPECT_THAT(notes_of_workload(layers, {{"priorities", "5"}}), IsEmpty());
  EXPECT_THAT(notes_of_workload(layers, {{"transport", "pias"}}), IsEmpty());

  const std::string droppable = "groups:\n" + bounded_group("a", "") + bounded_group("b", ", droppable: 50%");
  EXPECT_THAT(notes_of_workload(droppable, {}), IsEmpty());
  EXPECT_THAT(notes_of_workload(droppable, {{"red", "10K,20K,0.1"}}), IsEmpty());
  for (const Given& unmarked : {Given{{"mark", "0"}}, Given{{"transport", "ndp"}}})
    EXPECT_THAT(notes_of_workload(droppable, unmarked),
                ElementsAre("--workload: droppable of \"b\": no queue marks, so none drops these before "
                            "others"));
  EXPECT_THAT(notes_of_workload("groups:\n" + bounded_group("a", ", queues: 7, droppable: 1%"),
                                {{"priorities", "7"}, {"mark", "0"}}),
              ElementsAre(HasSubstr("queues of \"a\": with fewer than 8 "), HasSubstr("droppable of \"a\"")));
}

// Bounded sums are datagrams of their own priorities: neither the group's nor that of answers is on the wire.
TEST(SimulateRequest, ThePriorityOfAGroupCountsWhereItsCallsHaveIt) {
  const auto said = [](const std::string& text, const char* limits) {
    return notes_of_workload(text, {{"priorities", "8"}, {"class-limits", limits}});
  };
  const std::string bounded = bounded_group("a", ", priority: 2");
  EXPECT_THAT(said("groups:\n" + bounded, "0,0,9K"),
              ElementsAre("--priorities: all datagrams have one priority",
                          "--class-limits: no packet has priority 2"));
  EXPECT_THAT(said("groups:\n" + bounded, "9K"),
              testing::Contains("--class-limits: no packet has priority 0"));
  EXPECT_THAT(said("groups:\n" + bounded_group("a", ", priority: 2, queues: 4"), "9K,0,9K,9K,9K"),
              ElementsAre("--class-limits: no packet has priority 2"));
  const std::string exact =
      "  - {name: b, ranks: [h2, h3], priority: 2, steps: [{op: all_reduce, bytes: 1MB}]}\n";
  EXPECT_THAT(said("groups:\n" + bounded + exact, "9K,0,9K,0,9K"), IsEmpty());
  EXPECT_THAT(said("groups:\n" + bounded + "background: [{from: h2, to: h3, rate: 1Mbit/s, priority: 6}]\n",
                   "9K,0,0,0,9K,0,9K"),
              ElementsAre("--class-limits: no packet has priority 0"));
  EXPECT_THAT(said("groups:\n" + bounded +
                       "background: [{from: h2, to: h3, rate: 1Mbit/s, burst: 1MB, priority: 6}]\n",
                   "9K,0,0,0,9K,0,9K"),
              IsEmpty());
  EXPECT_THAT(notes_of_workload("groups:\n" + bounded, {{"priorities", "2"}, {"trim", "true"}}),
              ElementsAre("--priorities: all datagrams have one priority",
                          "--trim: datagrams are neither demoted nor trimmed"));
}

TEST(SimulateRequest, FluidSaysThatItHasNoPackets) {
  EXPECT_EQ(options_of({{"fluid", "true"}}).simulation.transport.kind, sim::TransportKind::fluid);
  EXPECT_THAT(notes_of({{"fluid", "true"}}), IsEmpty());
  EXPECT_THAT(notes_of({{"fluid", "true"}, {"loss", "0.1"}, {"queue", "64K"}, {"priorities", "2"}}),
              ElementsAre("--queue, --priorities, --loss: --fluid has neither packets nor queues"));
}

TEST(SimulateRequest, FluidSaysThatItTakesOnlyTheRoutingOfATransport) {
  EXPECT_TRUE(options_of({{"fluid", "true"}, {"transport", "ndp"}}).simulation.transport.spray);
  EXPECT_THAT(
      notes_of({{"fluid", "true"}, {"transport", "ndp"}}),
      ElementsAre(
          "--transport: --fluid takes of ndp only its routing, spray, and how often it acknowledges"));
  EXPECT_THAT(notes_of({{"fluid", "true"}, {"transport", "eqds"}, {"routing", "ecmp"}, {"window", "7"}}),
              ElementsAre("--transport: --fluid takes of eqds only its routing, which --routing sets, and "
                          "how often it acknowledges",
                          HasSubstr("--window: ")));
}

TEST(SimulateRequest, QueuesOfSwitchesAreNamedWhereThereAreNone) {
  const NetworkFile file("nodes: [{name: a}, {name: b}]\nlinks: [{between: [a, b], capacity: 1Gbit/s}]\n");
  SimulateRequest request;
  request.network = file.path();
  request.flows = "incast";
  request.queue = "64K";
  request.red = "10K,20K,0.1";
  EXPECT_THAT(checked(request).notes, ElementsAre(HasSubstr("--queue, --red: no link leaves a switch")));
}

// What carries the packets of programs reads its options as the simulator does.
TEST(SimulateRequest, ANetworkOfItsOwnIsWhatTheSimulatorMakesOfTheSameWords) {
  const Given given = {{"queue", "64K"},           {"mark", "30K"},
                       {"priorities", "8"},        {"class-limits", "0,20K"},
                       {"loss", "0.01"},           {"burst-loss", "0.001,100us"},
                       {"duplicate", "0.1"},       {"damage", "0.2"},
                       {"reorder", "0.1,1ms"},     {"seed", "7"},
                       {"fail", "switch@1ms..2ms"}};
  SimulateRequest request;
  request.topology = "star:hosts=4";
  for (const auto& [name, text] : given) set(request, *field_called(network_fields(), name), text);
  CheckedNetwork network = checked_network(request);
  const SimulateOptions simulated = options_of(given);
  EXPECT_GT(network.options.host_queue.limit_bytes, 0);  // programs are not held back by a window of ours
  network.options.host_queue.limit_bytes = 0;
  EXPECT_TRUE(network.options == simulated.simulation.network);
  EXPECT_EQ(network.cluster, simulated.cluster);
  ASSERT_EQ(network.changes.size(), 2U);
  EXPECT_EQ(network.changes[1].at.value, simulated.changes[1].at.value);
}

TEST(SimulateRequest, ANetworkOfItsOwnNamesMarksThatNeverComeAndLimitsWithoutAQueue) {
  const auto notes = [](const Given& given) {
    SimulateRequest request;
    request.topology = "star:hosts=4";
    for (const auto& [name, text] : given) set(request, *field_called(network_fields(), name), text);
    return checked_network(request).notes;
  };
  EXPECT_THAT(notes({}), IsEmpty());
  EXPECT_THAT(notes({{"queue", "64K"}, {"mark", "65535"}}), IsEmpty());
  EXPECT_THAT(notes({{"queue", "64K"}, {"mark", "64K"}}),
              ElementsAre("--mark: the queue is full before, at 65536 bytes"));
  EXPECT_THAT(notes({{"queue", "0"}, {"mark", "64K"}}), IsEmpty());
  EXPECT_THAT(notes({{"mark", "2M"}}), ElementsAre("--mark: the queue is full before, at 1048576 bytes"));
  EXPECT_THAT(
      notes({{"red", "2M,3M,0.1"}, {"mark", "1K"}}),
      ElementsAre("--mark: --red takes its place", "--red: the queue is full before, at 1048576 bytes"));
  EXPECT_THAT(notes({{"priorities", "2"}, {"class-limits", "9K,9K"}}), IsEmpty());
  EXPECT_THAT(
      notes({{"priorities", "2"}, {"class-limits", "0,0,0,9K,0"}}),
      ElementsAre("--class-limits: 4 limits for 2 priorities: packets of priority 1 and above wait in the "
                  "last queue"));
  // In one queue each priority may have a limit.
  EXPECT_THAT(notes({{"class-limits", "0,0,0,9K"}}), IsEmpty());
}

TEST(SimulateRequest, ANetworkOfItsOwnMarksNothingUnlessItIsTold) {
  SimulateRequest request;
  request.topology = "star:hosts=4";
  const CheckedNetwork network = checked_network(request);
  EXPECT_EQ(network.options.switch_queue.mark_bytes, 0);
  EXPECT_FALSE(network.options.switch_queue.mark_by_delay);
  EXPECT_EQ(network.options.switch_queue.limit_bytes, 1 << 20);
  request.trim = true;
  EXPECT_THROW(checked_network(request), Error);
}

}  // namespace
}  // namespace talweg::study
