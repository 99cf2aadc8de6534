// What talweg doctor concludes from records and traces.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "observe/merge_traces.h"
#include "study/doctor_findings.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kSecond = 1'000'000'000;

observe::RecordedCall call(std::uint64_t sequence, const std::string& state, std::int64_t started_ns,
                           std::int64_t ended_ns = 0) {
  observe::RecordedCall c;
  c.operation = "all_reduce";
  c.sequence = sequence;
  c.type = "f32";
  c.reduction = "sum";
  c.count = 100;
  c.layout = "0000000000000000";
  c.algorithm = "ring";
  c.state = state;
  c.started_ns = started_ns;
  c.ended_ns = ended_ns;
  return c;
}

observe::Record record(int rank, int size, std::vector<observe::RecordedCall> calls) {
  observe::Record r;
  r.job = "j";
  r.group = "00000000";
  r.rank = rank;
  r.size = size;
  for (int i = 0; i < size; ++i) r.hosts.push_back("h" + std::to_string(i));
  r.monotonic_ns = 100 * kSecond;
  r.offset_ns = 0;
  r.calls = std::move(calls);
  return r;
}

Finding first(const std::vector<observe::Record>& records) {
  return diagnose(records).at(0).findings.at(0);
}

TEST(Doctor, NamesTheRankThatOthersWaitForAndWhereItIs) {
  std::vector<observe::Record> records;
  for (int r = 0; r < 7; ++r) {
    records.push_back(record(r, 8, {call(811, "completed", 1, 2), call(812, "moving", 86 * kSecond)}));
    records.back().calls[1].not_started = {7};
  }
  records.push_back(record(7, 8, {call(811, "started", 85 * kSecond)}));
  for (observe::Record& r : records)
    if (r.rank < 7) r.calls[0].state = "completed";
  const auto findings = diagnose(records).at(0).findings;
  const auto of_812 = std::find_if(findings.begin(), findings.end(),
                                   [](const Finding& f) { return f.text.find("#812") != std::string::npos; });
  ASSERT_NE(of_812, findings.end());
  EXPECT_EQ(of_812->kind, Finding::Kind::waiting);
  EXPECT_EQ(of_812->text,
            "ranks 0-6 wait in all_reduce #812 since 14 s, rank 7 is in all_reduce #811 since 15 s");
  EXPECT_THAT(of_812->ranks, ElementsAre(7));
}

TEST(Doctor, SaysThatACallWasGivenUpAndOnlyThenThatItFailed) {
  auto over = call(5, "failed", 90 * kSecond, 93 * kSecond);
  over.error = "timeout";
  over.not_started = {2};
  const auto last = call(4, "completed", 1, 80 * kSecond);
  EXPECT_EQ(
      first({record(0, 3, {over}), record(1, 3, {over}), record(2, 3, {last})}).text,
      "ranks 0-1 waited in all_reduce #5 and failed with a timeout after 3 s, rank 2 completed all_reduce #4 "
      "20 s before its record and has not called since");
  EXPECT_EQ(
      first({record(0, 3, {over}), record(1, 3, {call(5, "moving", 90 * kSecond)}), record(2, 3, {last})})
          .text,
      "ranks 0-1 wait in all_reduce #5 since 10 s, rank 2 completed all_reduce #4 20 s before its record and "
      "has not called since");
}

TEST(Doctor, NamesTheAggregatorThatRanksWaitForOrTheRankBehindIt) {
  auto waiting = call(5, "moving", 98 * kSecond);
  waiting.text =
      "all_reduce(sum, f32, 100 elements) #5 on rank 0 (h0), phase data: aggregator agg (h9 pid 9) has not "
      "started it";
  EXPECT_EQ(
      first({record(0, 2, {waiting}), record(1, 2, {waiting})}).text,
      "ranks 0-1 wait in all_reduce #5 since 2 s, phase data: aggregator agg (h9 pid 9) has not started it");
  const Finding f = first({record(0, 2, {waiting}), record(1, 2, {call(4, "completed", 1, 80 * kSecond)})});
  EXPECT_EQ(
      f.text,
      "rank 0 waits in all_reduce #5 since 2 s, rank 1 completed all_reduce #4 20 s before its record and "
      "has not called since");
  EXPECT_THAT(f.ranks, ElementsAre(1));
}

TEST(Doctor, SaysWhatARankDidLastThatHasNotCalledSince) {
  const Finding f = first({record(0, 2, {call(4, "completed", 1, 2), call(5, "moving", 90 * kSecond)}),
                           record(1, 2, {call(4, "completed", 1, 80 * kSecond)})});
  EXPECT_THAT(f.text, HasSubstr("rank 0 waits in all_reduce #5 since 10 s"));
}

TEST(Doctor, FindsTheFirstCallOnWhichRanksDisagreeAndWhoIsAlone) {
  auto other = call(8, "completed", 1, 2);
  other.operation = "broadcast";
  const auto lost = [&] {
    auto moved = other;
    moved.sequence = 7;
    return record(2, 3, {call(6, "completed", 1, 2), moved, call(8, "failed", 1, 2)});
  }();
  const Finding f = first({record(0, 3, {call(6, "completed", 1, 2), call(7, "failed", 1, 2), other}),
                           record(1, 3, {call(6, "completed", 1, 2), call(7, "failed", 1, 2), other}), lost});
  EXPECT_EQ(f.kind, Finding::Kind::mismatch);
  EXPECT_THAT(f.text,
              AllOf(HasSubstr("call #7"), HasSubstr("ranks 0-1 call all_reduce(sum, f32, 100 elements)"),
                    HasSubstr("rank 2 calls broadcast(f32, 100 elements, root 0)"),
                    HasSubstr("1 later calls differ")));
  EXPECT_THAT(f.ranks, ElementsAre(2));
}

TEST(Doctor, CountsOfOneCallMayDifferOnlyWhereTheyMust) {
  auto a = call(0, "completed", 1, 2);
  auto b = a;
  b.count = 200;
  EXPECT_EQ(first({record(0, 2, {a}), record(1, 2, {b})}).kind, Finding::Kind::mismatch);
  a.operation = b.operation = "all_to_all";
  EXPECT_EQ(first({record(0, 2, {a}), record(1, 2, {b})}).kind, Finding::Kind::healthy);
}

TEST(Doctor, NamesRanksThatLeftNoRecord) {
  const auto findings = diagnose({record(0, 3, {call(0, "completed", 1, 2)})}).at(0).findings;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, Finding::Kind::missing);
  EXPECT_THAT(findings[0].text, HasSubstr("ranks 1-2 of 3 left no record (h1, h2)"));
}

TEST(Doctor, TakesTheLatestOfSeveralRecordsOfARankAndSaysWhich) {
  std::vector<observe::Record> records{record(0, 2, {call(0, "moving", 1)}),
                                       record(0, 2, {call(0, "completed", 1, 2)}),
                                       record(1, 2, {call(0, "completed", 1, 2)})};
  records[0].file = "early.json";
  records[1].file = "late.json";
  records[1].wall_ns = 1;
  for (int order = 0; order < 2; ++order, std::swap(records[0], records[1])) {
    const auto findings = diagnose(records).at(0).findings;
    ASSERT_EQ(findings.size(), 2u);
    EXPECT_EQ(findings[0].kind, Finding::Kind::healthy);
    EXPECT_EQ(findings[1].kind, Finding::Kind::repeated);
    EXPECT_EQ(findings[1].text, "rank 0 left several records, the latest of each is used: late.json");
    EXPECT_THAT(findings[1].ranks, ElementsAre(0));
  }
}

TEST(Doctor, FindsAStragglerOnlyWhereClocksCanBeCompared) {
  std::vector<observe::RecordedCall> early;
  std::vector<observe::RecordedCall> late;
  for (std::uint64_t s = 0; s < 20; ++s) {
    const auto at = static_cast<std::int64_t>(s) * kSecond;
    early.push_back(call(s, "completed", at, at + 60'000'000));
    late.push_back(call(s, "completed", at + 50'000'000 - 7 * kSecond, at + 60'000'000 - 7 * kSecond));
  }
  std::vector<observe::Record> records{record(0, 2, early), record(1, 2, late)};
  records[1].offset_ns = 7 * kSecond;
  const Finding f = first(records);
  EXPECT_EQ(f.kind, Finding::Kind::straggler);
  EXPECT_THAT(f.text,
              HasSubstr("rank 1 (h1) starts its calls 0.05 s after the first rank (median of 20 calls)"));
  records[1].offset_ns.reset();
  EXPECT_EQ(first(records).kind, Finding::Kind::healthy);
}

TEST(Doctor, TellsAFailureOnceWithItsRanks) {
  auto failed = call(3, "failed", 1, 2);
  failed.error = "peer_failed";
  failed.text = "rank 2 died";
  const auto findings =
      diagnose({record(0, 3, {failed}), record(1, 3, {failed}), record(2, 3, {})}).at(0).findings;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].text, "all_reduce #3 failed on ranks 0-1 (peer_failed): rank 2 died");
}

TEST(Doctor, WritesRanksAsRanges) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({4, 0, 1, 2}), "ranks 0-2, 4");
}

class Scratch {
 public:
  Scratch() {
    char name[] = "/tmp/talweg-test-XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    path_ = name;
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

std::string trace(int rank, double offset_us, double at_us, const char* end) {
  std::ostringstream text;
  text.precision(15);
  text << R"([
{"ph":"M","pid":0,"name":"talweg_trace","args":{"job":"j","rank":)"
       << rank << R"(,"size":2,"host":"h","monotonic_ns":0,"wall_ns":0}},
{"ph":"M","pid":0,"name":"talweg_clock","args":{"at_us":0,"offset_to_rank0_us":)"
       << offset_us << R"(,"round_trip_us":4}},
{"ph":"X","pid":0,"tid":2,"ts":)"
       << at_us << R"(,"dur":1,"name":"chunk"},
{"ph":")"
       << (rank == 0 ? "s" : "f") << R"(","id":"0x1","pid":0,"tid":2,"ts":)" << at_us << R"(,"name":"chunk"})"
       << end;
  return text.str();
}

TEST(Doctor, LaysTracesOfAllRanksOnTheClockOfRankZero) {
  const Scratch scratch;
  std::ostringstream out;
  const observe::MergedTrace merged = observe::merge_traces(
      {scratch.write("0", trace(0, 0, 1000, "\n]\n")), scratch.write("1", trace(1, -5000, 6030, "\n]\n"))},
      out);
  EXPECT_EQ(merged.ranks, 2);
  EXPECT_EQ(merged.arrows, 1u);
  EXPECT_EQ(merged.clock_error_us, 2);
  double sent = -1;
  double received = -1;
  for (const auto& event : nlohmann::json::parse(out.str())) {
    if (event["ph"] == "s") sent = event["ts"];
    if (event["ph"] == "f") {
      received = event["ts"];
      EXPECT_EQ(event["pid"], 1);
    }
  }
  EXPECT_DOUBLE_EQ(sent, 0);
  EXPECT_DOUBLE_EQ(received, 30);
}

TEST(Doctor, TakesTheTraceOfAProcessThatDiedAsFarAsItGoes) {
  const Scratch scratch;
  std::ostringstream out;
  const observe::MergedTrace merged =
      observe::merge_traces({scratch.write("0", trace(0, 0, 1000, ",\n{\"ph\":\"X\",\"pi"))}, out);
  EXPECT_EQ(merged.events, 2u);
  EXPECT_TRUE(nlohmann::json::accept(out.str()));
}

observe::RecordedCall bounded(std::uint64_t sequence, const std::string& state,
                              std::vector<std::pair<int, std::int64_t>> lost = {}) {
  observe::RecordedCall c = call(sequence, state, 90 * kSecond, state == "moving" ? 0 : 91 * kSecond);
  c.operation = "bounded_all_reduce";
  if (state != "completed") return c;
  c.sent_bytes = 20'000;
  c.lost_of_sender = std::move(lost);
  return c;
}

TEST(Doctor, KnowsBoundedCallsFromOthersOfTheSameNumber) {
  std::vector<observe::Record> records;
  for (int r = 0; r < 3; ++r)
    records.push_back(record(r, 3, {call(1, "completed", 1, 2), bounded(1, "moving")}));
  for (int r : {0, 2}) records[static_cast<std::size_t>(r)].calls[1].data_missing_from = {1};
  const Finding waiting = first(records);
  EXPECT_EQ(waiting.text,
            "ranks 0-2 wait in bounded_all_reduce #1 since 10 s; all have started it, data from rank 1 are "
            "missing");
  EXPECT_THAT(waiting.ranks, ElementsAre(1));
  records[1].calls = {bounded(0, "completed"), call(1, "completed", 1, 2)};
  for (int r : {0, 2}) records[static_cast<std::size_t>(r)].calls[1].data_missing_from.clear();
  EXPECT_EQ(first(records).text,
            "ranks 0, 2 wait in bounded_all_reduce #1 since 10 s, rank 1 completed bounded_all_reduce #0 9 s "
            "before its record and has not called since");
}

// Of three ranks, in so many calls; missing[a][b]: of what rank b has sent rank a, bytes of each call.
Finding first_of_bounded(std::uint64_t calls, const std::array<std::array<std::int64_t, 3>, 3>& missing,
                         bool by_switch = false) {
  std::vector<observe::Record> records;
  for (int r = 0; r < 3; ++r) {
    std::vector<std::pair<int, std::int64_t>> lost;
    for (int s = 0; s < 3; ++s)
      if (const auto bytes = missing[static_cast<std::size_t>(r)][static_cast<std::size_t>(s)]; bytes > 0)
        lost.emplace_back(s, bytes);
    records.push_back(record(r, 3, {}));
    for (std::uint64_t i = 1; i <= calls; ++i) {
      records.back().calls.push_back(bounded(i, "completed", lost));
      records.back().calls.back().by_switch = by_switch;
    }
  }
  return first(records);
}

TEST(Doctor, NamesTheRankWhoseDataAreLostFarMoreThanThoseOfOthers) {
  const Finding finding = first_of_bounded(4, {{{0, 100, 1}, {0, 0, 1}, {2, 300, 0}}});
  EXPECT_EQ(finding.kind, Finding::Kind::lossy);
  EXPECT_EQ(finding.text,
            "of the data of rank 1 (h1) 2 % are missing in bounded sums, of the others' 0.01 %");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  // All lose as much; what is lost is next to nothing; what is lost may be chance.
  EXPECT_EQ(first_of_bounded(9, {{{0, 100, 90}, {80, 0, 110}, {90, 100, 0}}}).kind, Finding::Kind::healthy);
  EXPECT_EQ(first_of_bounded(9, {{{0, 9, 0}, {0, 0, 0}, {0, 9, 0}}}).kind, Finding::Kind::healthy);
  EXPECT_EQ(
      first_of_bounded(2, {{{0, 100, 0}, {0, 0, 0}, {0, 100, 0}}}).text,
      "nothing is wrong in these records: the last call is bounded_all_reduce #2, completed by all of them");
}

// To a switch a rank sends its data once, for all.
TEST(Doctor, CountsWhatASwitchHasSummedWithoutOfAllThatWasSentToIt) {
  EXPECT_EQ(first_of_bounded(4, {{{0, 200, 1}, {0, 0, 1}, {2, 600, 0}}}, true).text,
            "of the data of rank 1 (h1) 2 % are missing in bounded sums, of the others' 0.005 %");
}

// Layers of one size are one layer, whichever rank's and call's they are.
TEST(Doctor, SaysWhichLayersBoundedSumsHaveLostTheMostOf) {
  std::vector<observe::Record> records{record(0, 2, {bounded(1, "completed"), bounded(2, "completed")}),
                                       record(1, 2, {bounded(1, "completed"), bounded(2, "completed")})};
  EXPECT_EQ(diagnose(records).at(0).findings.size(), 1U) << "nothing was lost";
  for (observe::Record& r : records) {
    r.calls[1].count = 7;
    r.calls[0].lost_bytes = 60;
    r.calls[0].lost_of_layer = {{9, 50}, {0, 10}};
    r.calls[1].lost_bytes = 40;
    r.calls[1].lost_of_layer = {{9, 40}};
  }
  records[1].calls[0].lost_of_layer = {{0, 45}, {9, 15}};
  const std::vector<Finding> findings = diagnose(records).at(0).findings;
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].kind, Finding::Kind::healthy);
  EXPECT_EQ(name(findings[1].kind), std::string("layers"));
  EXPECT_EQ(findings[1].text,
            "of 200 bytes that bounded sums have lost, the most are of layers 9 of 7 f32 (80 bytes, 40 %), "
            "9 of 100 f32 (65 bytes, 32 %), 0 of 100 f32 (55 bytes, 28 %)");
  for (int layer = 10; layer < 40; ++layer) records[0].calls[0].lost_of_layer.emplace_back(layer, 1);
  const std::string all = diagnose(records).at(0).findings.at(1).text;
  EXPECT_EQ(std::ranges::count(all, '%'), 16);
}

constexpr const char* kBoundedRecord =
    R"({{"talweg_flight_record": {}, "reason": "", "job": "", "group": "", "rank": 0, "size": 2,
 "hosts": ["a", "b"], "monotonic_ns": 0, "wall_ns": 0, "operations": [
  {{"operation": "bounded_all_reduce", "sequence": 1, "reduction": "sum", "root": 0, "layout": "0",
   "type": "f32", "count": 9, "algorithm": "", "state": "completed", "started_ns": 1, "ended_ns": 2,
   "sent_bytes": 16, "lost_bytes": 0, "packets_again": 0, "lost_of_sender": [{{"rank": {}, "bytes": 4}}]}}]}})";

TEST(Doctor, ReadsRecordsOfBothForms) {
  const Scratch scratch;
  for (const int version : {1, 2}) {
    const observe::Record r =
        observe::read_record(scratch.write("x.json", fmt::format(kBoundedRecord, version, 1)));
    EXPECT_TRUE(r.calls.at(0).bounded());
    EXPECT_EQ(r.calls.at(0).sent_bytes, 16);
    EXPECT_THAT(r.calls.at(0).lost_of_sender, ElementsAre(std::pair{1, std::int64_t{4}}));
    EXPECT_TRUE(r.calls.at(0).lost_of_layer.empty());
  }
  std::string with_layers = fmt::format(kBoundedRecord, 3, 1);
  EXPECT_FALSE(observe::read_record(scratch.write("x.json", with_layers)).calls.at(0).by_switch);
  std::string switched = with_layers;
  switched.replace(switched.find("\"lost_of_sender\""), 0, "\"by_switch\": true, ");
  EXPECT_TRUE(observe::read_record(scratch.write("x.json", switched)).calls.at(0).by_switch);
  with_layers.replace(with_layers.find("\"lost_of_sender\""), 0,
                      R"("lost_of_layer": [{"layer": 300, "bytes": 8}, {"layer": 2, "bytes": 5}], )");
  EXPECT_THAT(observe::read_record(scratch.write("x.json", with_layers)).calls.at(0).lost_of_layer,
              ElementsAre(std::pair{300, std::int64_t{8}}, std::pair{2, std::int64_t{5}}));
  for (const char* wrong : {"-300", "1e300", "\"a\""}) {
    std::string bad = with_layers;
    bad.replace(bad.find("300"), 3, wrong);
    EXPECT_THROW(observe::read_record(scratch.write("x.json", bad)), Error) << wrong;
  }
  EXPECT_THROW(observe::read_record(scratch.write("x.json", fmt::format(kBoundedRecord, 2, 2))), Error);
  EXPECT_THROW(observe::read_record(scratch.write("x.json", fmt::format(kBoundedRecord, 2, 0))), Error)
      << "of its own data a rank loses nothing";
  std::string negative = fmt::format(kBoundedRecord, 2, 1);
  negative.replace(negative.find("\"bytes\": 4"), 10, "\"bytes\": -4");
  EXPECT_THROW(observe::read_record(scratch.write("x.json", negative)), Error);
}

TEST(Doctor, RefusesNumbersThatDoNotFit) {
  const Scratch scratch;
  for (const char* rank : {"1e300", "0.5", "4294967296", "-1", "true"}) {
    const std::string path = scratch.write(
        "x.json",
        fmt::format(R"({{"talweg_flight_record": 1, "reason": "", "job": "", "group": "", "rank": {},
                                  "size": 2, "hosts": ["a", "b"], "monotonic_ns": 0, "wall_ns": 0,
                                  "operations": []}})",
                    rank));
    EXPECT_THROW(observe::read_record(path), Error) << rank;
  }
}

// What read_record says of a file with this text, behind the file's name.
std::string complaint(const Scratch& scratch, const std::string& text) {
  const std::string path = scratch.write("x.json", text);
  try {
    observe::read_record(path);
  } catch (const Error& e) {
    const std::string expected = path + ": expected a flight record: ";
    EXPECT_THAT(e.what(), testing::StartsWith(expected));
    return std::string(e.what()).substr(expected.size());
  }
  ADD_FAILURE() << "taken: " << text;
  return {};
}

TEST(Doctor, SaysInOneLineWhatItExpectedOfARecord) {
  const Scratch scratch;
  EXPECT_EQ(complaint(scratch, ""), "it is empty or ends in the middle");
  EXPECT_EQ(complaint(scratch, R"({"talweg_flight_record":1,"reason":"call fa)"),
            "it is empty or ends in the middle");
  EXPECT_EQ(complaint(scratch, "hello\nworld\n"), "it is not JSON from byte 1 on");
  EXPECT_EQ(complaint(scratch, "{\"talweg_flight_record\":1e999}"),
            "a number in it is larger than any that can be");
  EXPECT_EQ(complaint(scratch, "{}"), "talweg_flight_record is missing");
  EXPECT_EQ(complaint(scratch, "[1,2]"), "talweg_flight_record belongs in an object, not in this array");
  EXPECT_EQ(complaint(scratch, R"({"talweg_flight_record":4})"), "it has version 4: expected 1 to 3");
  EXPECT_EQ(complaint(scratch, R"({"talweg_flight_record":1,"reason":7})"), "reason: expected text, got 7");
  EXPECT_EQ(
      complaint(scratch, fmt::format(R"({{"talweg_flight_record":1,"reason":[{:01000}]}})", 0)).find('['),
      std::string::npos);
}

TEST(Doctor, LaysTogetherTheTracesThatCanBeReadAndNamesTheOthers) {
  const Scratch scratch;
  const std::string good = scratch.write("good", trace(0, 0, 1000, "\n]\n"));
  for (const char* text : {"", "hello\nworld\n", "{}", "[1,2]", R"({"name":"chunk","ts":"soon"})",
                           R"({"name":"talweg_trace","args":{"job":"j","rank":1e300}})"}) {
    const std::string bad = scratch.write("bad", text);
    std::ostringstream out;
    const observe::MergedTrace merged = observe::merge_traces({bad, good}, out);
    EXPECT_EQ(merged.ranks, 1) << text;
    EXPECT_EQ(merged.events, 2u) << text;
    ASSERT_EQ(merged.unreadable.size(), 1u) << text;
    EXPECT_THAT(merged.unreadable[0], testing::StartsWith(bad + ": expected a trace of talweg"));
    EXPECT_THAT(merged.unreadable[0], testing::Not(HasSubstr("exception")));
  }
}

}  // namespace
}  // namespace talweg::study
