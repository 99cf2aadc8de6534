// What a group writes down: flight records, stall warnings, metrics, traces.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "observe/clock_offset.h"
#include "observe/metrics.h"
#include "observe/observer.h"
#include "observe/recorder.h"
#include "ranks.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/talweg-test-XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> list;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      list.push_back(entry.path().string());
    return list;
  }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

observe::CallNote note(std::uint64_t sequence, const char* algorithm = "ring") {
  observe::CallNote n;
  n.signature = {Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 100, 0};
  n.sequence = sequence;
  n.bytes = 400;
  n.started_ns = 1000 + static_cast<std::int64_t>(sequence);
  n.algorithm = observe::short_name(algorithm);
  return n;
}

TEST(Recorder, KeepsTheLastOperationsAndForgetsOlderOnes) {
  observe::Recorder recorder(4);
  std::vector<std::uint64_t> tickets;
  for (std::uint64_t s = 0; s < 10; ++s) tickets.push_back(recorder.start(note(s)));
  EXPECT_EQ(recorder.find(tickets[5]), nullptr);
  ASSERT_NE(recorder.find(tickets[6]), nullptr);
  EXPECT_EQ(recorder.find(tickets[6])->note.sequence, 6u);
  recorder.end(tickets[2], 5000);  // overwritten: must not touch the one that took its place
  EXPECT_EQ(recorder.find(tickets[6])->state, observe::Recorder::State::in_flight);
  recorder.end(tickets[6], 5000);
  EXPECT_EQ(recorder.find(tickets[6])->ended_ns, 5000);
}

TEST(Recorder, ForgetsWhatWentWrongWithTheCall) {
  observe::Recorder recorder(4);
  const auto ticket = recorder.start(note(0));
  protocol::Session::Pending waits;
  waits.absent = {1};
  recorder.miss(ticket, waits);
  recorder.fail(ticket, 5000, ErrorCode::timeout, "too late");
  ASSERT_NE(recorder.failure(ticket), nullptr);
  EXPECT_EQ(recorder.failure(ticket)->absent, std::vector<int>{1});
  EXPECT_EQ(recorder.failure(ticket)->text, "too late");
  std::uint64_t last = ticket;
  for (std::uint64_t s = 1; s <= 4; ++s) {
    EXPECT_NE(recorder.failure(ticket), nullptr);
    last = recorder.start(note(s));
  }
  EXPECT_EQ(recorder.failure(ticket), nullptr);
  EXPECT_EQ(recorder.failure(last), nullptr) << "it has the failed one's place";
  recorder.fail(ticket, 5000, ErrorCode::timeout, "nobody is left of whom this could be said");
  EXPECT_EQ(recorder.failure(ticket), nullptr);
}

LossReport losing(std::uint64_t lost_bytes, std::vector<std::uint64_t> lost_of_sender = {}) {
  LossReport report;
  report.sent_bytes = 600;
  report.lost_bytes = lost_bytes;
  report.lost_of_sender = std::move(lost_of_sender);
  report.packets_again = 2;
  return report;
}

TEST(Recorder, ForgetsWhatABoundedCallHasLostWithTheCall) {
  observe::Recorder recorder(4);
  const auto ticket = recorder.start(note(0));
  recorder.lose(ticket, losing(7));
  for (std::uint64_t s = 1; s <= 4; ++s) {
    ASSERT_NE(recorder.losses(ticket), nullptr);
    EXPECT_EQ(recorder.losses(ticket)->report.lost_bytes, 7U);
    EXPECT_EQ(recorder.losses(recorder.start(note(s))), nullptr);
  }
  EXPECT_EQ(recorder.losses(ticket), nullptr);
  recorder.lose(ticket, losing(8));
  EXPECT_EQ(recorder.losses(ticket), nullptr) << "nobody is left of whom this could be said";
}

TEST(Recorder, OfSizeZeroKeepsNothing) {
  observe::Recorder recorder(0);
  const auto ticket = recorder.start(note(0));
  recorder.end(ticket, 1);
  recorder.fail(ticket, 1, ErrorCode::timeout, "x");
  EXPECT_EQ(recorder.find(ticket), nullptr);
}

TEST(Recorder, TextIsValidJsonWhateverIsInIt) {
  observe::Recorder recorder(4);
  recorder.fail(recorder.start(note(7, "an_algorithm_with_a_very_long_name")), 9000, ErrorCode::timeout,
                "a \"quoted\" \\ text\nof two lines \xc3\xa4");
  observe::RecordHead head;
  head.hosts = {"a\"b pid 1"};
  head.members = {0};
  head.clock = {true, -5, 10};
  const Json json = Json::parse(observe::to_json(head, recorder, {}));
  EXPECT_EQ(json["hosts"][0], "a\"b pid 1");
  EXPECT_EQ(json["offset_to_rank0_ns"], -5);
  EXPECT_EQ(json["operations"][0]["sequence"], 7);
  EXPECT_EQ(json["operations"][0]["error"], "timeout");
  EXPECT_EQ(json["operations"][0]["algorithm"], "an_algorithm_with_a_ver");
}

TEST(ClockOffset, TrustsTheFastestAnswerAndForgetsItWhenItIsOld) {
  observe::ClockOffset clock;
  EXPECT_TRUE(clock.learn(100, 1150, 200));
  EXPECT_EQ(clock.offset_ns, 1000);
  EXPECT_FALSE(clock.learn(1000, 5000, 2000)) << "a slower answer says less";
  EXPECT_TRUE(clock.learn(3000, 4030, 3040));
  EXPECT_EQ(clock.offset_ns, 1010);
  const std::int64_t later = 3040 + observe::ClockOffset::kFresh;
  EXPECT_TRUE(clock.learn(later, later + 3000, later + 1000)) << "clocks drift";
}

TEST(FlightRecord, SaysWhichRanksACallInFlightWaitsFor) {
  std::mutex mutex;
  Json record;
  run_ranks(3, [&](Group& g) {
    float x = 1;
    g.barrier();
    if (g.rank() == 0) {
      auto work = g.start_all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
      // Until rank 1 has been heard of.
      for (int i = 0; i < 2000; ++i) {
        work->wait_for(std::chrono::milliseconds(5));
        const Json now = Json::parse(g.flight_record());
        record = now["operations"].back();
        if (record["not_started"] == Json{2}) break;
      }
      g.send(&x, 1, DataType::f32, 2);
      work->wait();
      EXPECT_EQ(Json::parse(g.flight_record())["operations"].back()["operation"], "send");
    } else {
      if (g.rank() == 2) g.recv(&x, 1, DataType::f32, 0);
      g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
    }
  });
  EXPECT_EQ(record["operation"], "all_reduce");
  EXPECT_EQ(record["sequence"], 1);
  EXPECT_EQ(record["not_started"], Json{2}) << record;
  EXPECT_TRUE(record["state"] == "moving" || record["state"] == "started") << record;
}

TEST(FlightRecord, IsWrittenOnAnErrorWhichNamesTheFile) {
  const Folder folder;
  const Variable dir("TALWEG_RECORDER_DIR", folder.path());
  run_ranks(2, [](Group& g) {
    float x = 1;
    g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
    if (g.rank() == 1) return;
    CallOptions soon;
    soon.timeout = std::chrono::milliseconds(100);
    try {
      g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, soon);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      const std::string text = e.what();
      const auto begin = text.find("(flight record: ");
      ASSERT_NE(begin, std::string::npos) << text;
      const std::string path = text.substr(begin + 16, text.find(')', begin) - begin - 16);
      const Json json = Json::parse(text_of(path));
      EXPECT_EQ(json["operations"].size(), 2u);
      EXPECT_EQ(json["operations"][0]["state"], "completed");
      EXPECT_EQ(json["operations"][1]["state"], "failed");
      EXPECT_FALSE(json["job"] == "0000000000000000");
    }
  });
}

TEST(FlightRecord, ThatCannotBeWrittenIsSaidInTheError) {
  const Folder folder;
  const Variable dir("TALWEG_RECORDER_DIR", folder.path());
  const auto group = [&] {
    GroupOptions options;
    options.rank = 0;
    options.size = 1;
    return Group::join(options);
  }();
  std::filesystem::remove_all(folder.path());
  group->abort("enough");
  try {
    group->barrier();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("no flight record: cannot write"));
  }
}

TEST(FlightRecord, IsWrittenWhenASignalAsksForItAlsoWhileNothingIsCalled) {
  const Folder folder;
  const Variable dir("TALWEG_RECORDER_DIR", folder.path());
  testing::internal::CaptureStderr();
  run_ranks(2, [&](Group& g) {
    g.barrier();
    if (g.rank() == 0) ::raise(SIGUSR1);
    for (int i = 0; i < 3000 && folder.files().size() < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("flight record written to " + folder.path()));
  EXPECT_EQ(folder.files().size(), 2u);
  for (const std::string& path : folder.files())
    EXPECT_EQ(Json::parse(text_of(path))["reason"], "asked for by a signal");
}

// As at the end of a job for which the folder was made.
TEST(FlightRecord, IsWrittenWhenASignalAsksForItThoughTheTemporaryFolderIsGone) {
  const Variable none("TMPDIR", "/nowhere/at/all");
  const auto records = [] {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/tmp"))
      if (entry.path().filename().string().starts_with("record-")) found.insert(entry.path().string());
    return found;
  };
  const std::set<std::string> before = records();
  testing::internal::CaptureStderr();
  run_ranks(2, [&](Group& g) {
    g.barrier();
    if (g.rank() == 0) ::raise(SIGUSR1);
    for (int i = 0; i < 3000 && records().size() < before.size() + 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("flight record written to /tmp/record-"));
  for (const std::string& path : records())
    if (!before.contains(path)) std::filesystem::remove(path);
}

TEST(FlightRecord, LeavesASignalToAProgramThatHandlesIt) {
  const Variable which("TALWEG_DUMP_SIGNAL", "USR2");
  struct sigaction own {};
  own.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR2, &own, &before), 0);
  run_ranks(1, [](Group& g) { g.barrier(); });
  struct sigaction now {};
  ASSERT_EQ(::sigaction(SIGUSR2, &before, &now), 0);
  EXPECT_EQ(now.sa_handler, own.sa_handler);
}

TEST(Stall, IsWarnedOfOnceWithTheRanksThatAreMissing) {
  const Variable patience("TALWEG_STALL_WARNING", "30ms");
  testing::internal::CaptureStderr();
  run_ranks(2, [](Group& g) {
    float x = 1;
    if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("WARN stall: all_reduce(sum, f32, 1 elements) #0 on rank 0"));
  EXPECT_THAT(log, HasSubstr("rank 1 ("));
  EXPECT_EQ(log.find("stall:"), log.rfind("stall:")) << log;
}

// The second rank is there long after the warning, and the warning long after the first has started all
// calls.
TEST(Stall, OfManyCallsThatWaitForTheSameRankTheOldestIsWarnedOf) {
  const Variable patience("TALWEG_STALL_WARNING", "3s");
  testing::internal::CaptureStderr();
  run_ranks(2, [](Group& g) {
    std::vector<float> x(300, 1);
    std::vector<WorkPtr> works;
    if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(6));
    for (float& value : x)
      works.push_back(g.start_all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum));
    for (const WorkPtr& work : works) work->wait();
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("WARN stall: all_reduce(sum, f32, 1 elements) #0 on rank 0"));
  EXPECT_THAT(log, HasSubstr("; and 299 more calls)"));
  EXPECT_EQ(log.find("stall:"), log.rfind("stall:")) << log;
}

TEST(Stall, OfACallWhoseTimeIsOverSaysSo) {
  const Variable patience("TALWEG_STALL_WARNING", "60ms");
  testing::internal::CaptureStderr();
  run_ranks(2, [](Group& g) {
    float x = 1;
    if (g.rank() == 0) {
      EXPECT_THROW(g.recv(&x, 1, DataType::f32, 1, 0, {.timeout = std::chrono::milliseconds(60)}), Error);
    }
    g.barrier();
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("(for 0 s; its time is over)"));
}

// The grammar of Prometheus' text format, as far as this page may use it.
void expect_prometheus(const std::string& page) {
  const std::regex comment("# (HELP|TYPE) talweg_[a-z0-9_]+ .+");
  const std::regex sample(
      R"re((talweg_[a-z0-9_]+)\{([a-z_]+="([^"\\]|\\.)*")(,[a-z_]+="([^"\\]|\\.)*")*\} [0-9.e+-]+)re");
  std::map<std::string, std::string> types;
  std::set<std::string> seen;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.starts_with('#')) {
      EXPECT_TRUE(std::regex_match(line, comment)) << line;
      std::istringstream words(line);
      std::string hash, kind, name, type;
      words >> hash >> kind >> name >> type;
      if (kind == "TYPE") {
        EXPECT_TRUE(types.emplace(name, type).second) << name << " twice";
      }
      continue;
    }
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    std::string name = match[1];
    for (const char* suffix : {"_bucket", "_sum", "_count"})
      if (name.ends_with(suffix) && types.contains(name.substr(0, name.size() - std::string(suffix).size())))
        name = name.substr(0, name.size() - std::string(suffix).size());
    ASSERT_TRUE(types.contains(name)) << line;
    if (types[name] == "counter") {
      EXPECT_TRUE(name.ends_with("_total")) << name;
    }
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
  }
}

TEST(Metrics, CountCallsBySizeAndAreValidPrometheusText) {
  observe::Metrics metrics;
  metrics.add(observe::CallNote::Kind::collective, Collective::all_reduce, 4096, 4, 20'000);
  metrics.add(observe::CallNote::Kind::collective, Collective::all_reduce, 4096, 4, 40'000);
  metrics.add(observe::CallNote::Kind::collective, Collective::all_reduce, 1 << 30, 4, 100'000'000'000);
  metrics.fail(observe::CallNote::Kind::collective, Collective::broadcast, ErrorCode::timeout);
  metrics.add(observe::CallNote::Kind::bounded, Collective::all_reduce, 4096, 4, 20'000);
  metrics.fail(observe::CallNote::Kind::bounded, Collective::all_reduce, ErrorCode::mismatch);
  metrics.stall();
  observe::Sight sight;
  sight.host = "a \"strange\" \\ host pid 12";
  sight.peers = {{1, "b pid 7", 3, 0.0001, 0, true, 2}, {2, "c", 0, 0, 1.5}};
  const std::string page = metrics.text(sight);
  expect_prometheus(page);
  for (const char* line :
       {R"(talweg_info{rank="0",ranks="1",host="a \"strange\" \\ host",job="0000000000000000"} 1)",
        R"(talweg_call_seconds_bucket{rank="0",collective="all_reduce",size="4KiB",le="3e-05"} 1)",
        R"(talweg_call_seconds_bucket{rank="0",collective="all_reduce",size="4KiB",le="0.0001"} 2)",
        R"(talweg_call_seconds_bucket{rank="0",collective="all_reduce",size="larger",le="60"} 0)",
        R"(talweg_call_seconds_count{rank="0",collective="all_reduce",size="larger"} 1)",
        R"(talweg_bus_bytes_total{rank="0",collective="all_reduce",size="4KiB"} 12288)",
        R"(talweg_failed_calls_total{rank="0",collective="broadcast",code="timeout"} 1)",
        R"(talweg_call_seconds_count{rank="0",collective="bounded_all_reduce",size="4KiB"} 1)",
        R"(talweg_bus_bytes_total{rank="0",collective="bounded_all_reduce",size="4KiB"} 6144)",
        R"(talweg_failed_calls_total{rank="0",collective="bounded_all_reduce",code="mismatch"} 1)",
        R"(talweg_stalls_total{rank="0"} 1)",
        R"(talweg_tcp_retransmits_total{rank="0",peer="1",peer_host="b"} 3)",
        R"(talweg_datagrams{rank="0",peer="1",peer_host="b"} 1)",
        R"(talweg_paths_left_total{rank="0",peer="1",peer_host="b"} 2)",
        R"(talweg_rank_lag_seconds{rank="0",peer="2",peer_host="c"} 1.5)"})
    EXPECT_THAT(page, HasSubstr(std::string(line) + "\n"));
  EXPECT_EQ(page.find("talweg_bounded"), std::string::npos) << "no sum that may lose a part was made";
}

TEST(Metrics, AddUpWhatBoundedSumsHaveLostAndOfWhom) {
  observe::Sight sight;
  sight.peers = {{1, "b pid 7", 0, 0, 0}, {2, "c pid 8", 0, 0, 0}, {5, "d pid 9", 0, 0, 0}};
  sight.bounded.add(losing(8, {0, 40, 4}), {0, 2, 1});
  sight.bounded.add(losing(0, {0, 2}), {0, 2});
  const std::string page = observe::Metrics().text(sight);
  expect_prometheus(page);
  for (const char* line :
       {R"(talweg_bounded_sent_bytes_total{rank="0"} 1200)", R"(talweg_bounded_lost_bytes_total{rank="0"} 8)",
        R"(talweg_bounded_retransmits_total{rank="0"} 4)",
        R"(talweg_bounded_missing_bytes_total{rank="0",peer="1",peer_host="b"} 4)",
        R"(talweg_bounded_missing_bytes_total{rank="0",peer="2",peer_host="c"} 42)"})
    EXPECT_THAT(page, HasSubstr(std::string(line) + "\n"));
  EXPECT_EQ(page.find(R"(talweg_bounded_missing_bytes_total{rank="0",peer="5")"), std::string::npos)
      << "it has had no part in such sums";
}

TEST(Metrics, AreWrittenForEachRankAndCountEveryCall) {
  const Folder folder;
  const Variable file("TALWEG_METRICS_FILE", folder.path() + "/rank%r.prom");
  const Variable shm("TALWEG_SHM", "off");
  run_ranks(2, [](Group& g) {
    float x = 1;
    for (int i = 0; i < 7; ++i) g.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
  });
  for (int r = 0; r < 2; ++r) {
    const std::string page = text_of(folder.path() + "/rank" + std::to_string(r) + ".prom");
    expect_prometheus(page);
    EXPECT_THAT(page, HasSubstr("talweg_call_seconds_count{rank=\"" + std::to_string(r) +
                                "\",collective=\"all_reduce\",size=\"4KiB\"} 7\n"));
  }
  EXPECT_EQ(folder.files().size(), 2u) << "no half-written file is left";
}

// However short the job was: its first page is written at once, and the next one at its end.
TEST(Metrics, ThatCannotBeWrittenAtTheEndAreWarnedOf) {
  const Folder folder;
  const std::string path = folder.path() + "/gone/0.prom";
  std::filesystem::create_directory(folder.path() + "/gone");
  const Variable file("TALWEG_METRICS_FILE", folder.path() + "/gone/%r.prom");
  const Variable period("TALWEG_METRICS_PERIOD", "10000s");
  testing::internal::CaptureStderr();
  run_ranks(1, [&](Group& g) {
    for (int i = 0; i < 3000 && !std::filesystem::exists(path); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    g.barrier();
    std::filesystem::remove_all(folder.path() + "/gone");
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("WARN observe: cannot write " + path + ": No such file or directory\n"));
  EXPECT_EQ(log.find("observe:"), log.rfind("observe:")) << log;
}

TEST(Metrics, AreRefusedAtOnceWhereTheyCannotBeWritten) {
  const Folder folder;
  const std::string pipe = folder.path() + "/0.prom", link = folder.path() + "/link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(folder.path() + "/nothing", link);
  const auto refusal = [](const std::string& pattern) -> std::string {
    const Variable file("TALWEG_METRICS_FILE", pattern);
    try {
      observe::find_observer_options(0);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::system);
      return e.what();
    }
    return "none";
  };
  const std::string said = "TALWEG_METRICS_FILE: cannot write ";
  EXPECT_EQ(refusal(folder.path() + "/%r.prom"), said + pipe + ": it is there, and no file");
  EXPECT_EQ(refusal(folder.path()), said + folder.path() + ": it is there, and no file");
  EXPECT_EQ(refusal("/dev/null"), said + "/dev/null: it is there, and no file");
  EXPECT_EQ(refusal(link), said + link + ": it is a link that leads nowhere");
  EXPECT_EQ(refusal(folder.path() + "/no/a"), said + folder.path() + "/no/a: No such file or directory");
  EXPECT_EQ(refusal(pipe + "/a"), said + pipe + "/a: Not a directory");
  EXPECT_EQ(refusal(folder.path() + "/%j-%r.prom"), "none");
  EXPECT_EQ(refusal("talweg-%r.prom"), "none");
  std::ofstream(folder.path() + "/nothing") << "before";
  EXPECT_EQ(refusal(link), "none");
  EXPECT_EQ(folder.files().size(), 3U) << "nothing is made";
}

TEST(Trace, HasForEachChunkAnArrowFromItsSenderToItsReceiver) {
  for (const char* shm : {"on", "off"}) {
    const Folder folder;
    const Variable dir("TALWEG_TRACE", folder.path());
    const Variable shared("TALWEG_SHM", shm);
    run_ranks(3, [](Group& g) {
      std::vector<float> x(300'000, 1);
      g.all_reduce(x.data(), x.data(), x.size(), DataType::f32, ReduceOp::sum);
      g.broadcast(x.data(), x.size(), DataType::f32, 1);
      float y = 0;
      if (g.rank() == 0) g.send(&y, 1, DataType::f32, 2, 5);
      if (g.rank() == 2) g.recv(&y, 1, DataType::f32, 0, 5);
    });
    std::map<std::string, int> starts;
    std::map<std::string, int> ends;
    int begun = 0;
    int ended = 0;
    ASSERT_EQ(folder.files().size(), 3u);
    for (const std::string& path : folder.files()) {
      bool clock = false;
      for (const Json& event : Json::parse(text_of(path))) {
        if (event["ph"] == "s") ++starts[event["id"]];
        if (event["ph"] == "f") ++ends[event["id"]];
        if (event["ph"] == "b") ++begun;
        if (event["ph"] == "e") ++ended;
        clock = clock || event["name"] == "talweg_clock";
      }
      EXPECT_TRUE(clock) << path;
    }
    EXPECT_EQ(starts, ends);
    EXPECT_GT(starts.size(), 6u);
    for (const auto& [id, times] : starts) EXPECT_EQ(times, 1) << id;
    EXPECT_EQ(begun, 3 + 3 + 2);
    EXPECT_EQ(ended, begun);
  }
}

TEST(Trace, EndsAtItsLimitAndSaysSo) {
  const Folder folder;
  const Variable dir("TALWEG_TRACE", folder.path());
  const Variable limit("TALWEG_TRACE_LIMIT", "10");
  run_ranks(1, [](Group& g) {
    for (int i = 0; i < 20; ++i) g.barrier();
  });
  ASSERT_EQ(folder.files().size(), 1u);
  const Json events = Json::parse(text_of(folder.files()[0]));
  EXPECT_EQ(events.back()["name"], "talweg_events_left_out");
  EXPECT_EQ(events.back()["args"]["count"], 31) << "of 40 and one about the clock";
}

TEST(Observing, BadSettingsAreRefusedWithTheirName) {
  const std::vector<std::pair<const char*, const char*>> bad{{"TALWEG_RECORDER", "many"},
                                                             {"TALWEG_DUMP_SIGNAL", "KILL"},
                                                             {"TALWEG_STALL_WARNING", "soon"},
                                                             {"TALWEG_RECORDER_DIR", "/dev/null/x"}};
  for (const auto& [name, value] : bad) {
    const Variable variable(name, value);
    GroupOptions options;
    options.rank = 0;
    options.size = 1;
    try {
      Group::join(options);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(name));
    }
  }
}

TEST(Observer, JobsOfOneProcessCanHaveMetricsFilesOfTheirOwn) {
  observe::ObserverOptions options;
  options.rank = 3;
  options.metrics_file = "talweg-%j-%r.prom";
  options.job = 0xab;
  EXPECT_EQ(observe::Observer(options).options().metrics_file, "talweg-00000000000000ab-3.prom");
}

TEST(Observer, WhatIsWrittenReplacesFilesAndNothingElse) {
  const Folder folder;
  const std::string pipe = folder.path() + "/pipe";
  const std::string link = folder.path() + "/link";
  const std::string file = folder.path() + "/file";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(observe::write_atomically(pipe, "text"), "it is there, and no file");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::ofstream(file) << "before";
  std::filesystem::create_symlink(file, link);
  EXPECT_EQ(observe::write_atomically(link, "after"), "");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::ifstream written(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(written), {}), "after");
  std::filesystem::remove(file);
  EXPECT_EQ(observe::write_atomically(link, "again"), "it is a link that leads nowhere");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_FALSE(std::filesystem::exists(file));
}

// Whoever can guess a draft's name has nothing from it.
TEST(Observer, ADraftIsNotWrittenThroughALinkThatIsThere) {
  const Folder folder;
  const std::string file = folder.path() + "/file";
  const std::string precious = folder.path() + "/precious";
  std::ofstream(precious) << "kept";
  std::filesystem::create_symlink(precious, file + "." + std::to_string(::getpid()) + ".part");
  EXPECT_EQ(observe::write_atomically(file, "text"), "");
  EXPECT_EQ(text_of(file), "text");
  EXPECT_FALSE(std::filesystem::is_symlink(file));
  EXPECT_EQ(text_of(precious), "kept");
  EXPECT_EQ(folder.files().size(), 2U) << "no draft is left";
}

}  // namespace
}  // namespace talweg
