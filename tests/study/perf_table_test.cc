#include "study/perf_table.h"

#include <gmock/gmock.h>

#include <sstream>

namespace talweg::study {
namespace {

using testing::HasSubstr;
using testing::Not;

PerfRow all_reduce_row() {
  PerfRow row;
  row.what = {Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 4, 262144};
  row.out_of_place = Timing{1000, 990, 1200, 0};
  row.in_place = Timing{2000, 1990, 2500, 3};
  row.plan = "ring, 64 chunks of 16 KiB, predicted 0.9 ms";
  return row;
}

PerfOptions with(PerfColumns columns) {
  PerfOptions options;
  options.columns = columns;
  return options;
}

TEST(PerfTable, ARowIsThatOfNcclTestsWithOurColumnsBehindIt) {
  const std::string theirs =
      "     1048576       262144      float     sum      -1"
      "   1000.0    1.05    1.57      0   2000.0    0.52    0.79      3";
  EXPECT_EQ(row_text(with(PerfColumns::nccl), all_reduce_row()), theirs + "\n");
  EXPECT_EQ(row_text(with(PerfColumns::all), all_reduce_row()),
            theirs + "    990.0   1200.0   1990.0   2500.0  ring\n");
}

TEST(PerfTable, WhereBothSidesAreOneRunThereIsOneAndTheAlgorithm) {
  PerfRow row = all_reduce_row();
  row.plan = "sharded_star through aggregator17, 64 chunks";
  EXPECT_EQ(row_text(with(PerfColumns::once), row),
            "     1048576       262144      float     sum      -1"
            "   1000.0    1.05    1.57      0    990.0  sharded_star\u2026aggregator17\n");
  EXPECT_THAT(row_text(with(PerfColumns::all), row), HasSubstr("  sharded_star through aggregator17\n"));
}

TEST(PerfTable, NoLineIsLongerThanATableMayBe) {
  PerfRow row = all_reduce_row();
  row.plan = std::string(50, 'x');
  for (const PerfColumns columns : {PerfColumns::nccl, PerfColumns::once}) {
    std::istringstream lines(header_text(with(columns), {"1", {"h 1"}, "", false}) +
                             row_text(with(columns), row));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), 120 + std::string("\u2026").size() - 1) << line;
  }
}

TEST(PerfTable, WhatTheTableHasNoRoomForIsOneLine) {
  std::vector<PerfRow> rows(4, all_reduce_row());
  EXPECT_EQ(algorithms_text(with(PerfColumns::nccl), rows), "# Algorithm            : ring\n");
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].what.count = std::size_t{1024} << i;
  rows[3].plan = "packed through a\x1b";
  EXPECT_EQ(algorithms_text(with(PerfColumns::nccl), rows),
            "# Algorithm            : ring for 4 KiB to 16 KiB, packed through a\\x1b for 32 KiB\n");
  EXPECT_EQ(algorithms_text(with(PerfColumns::once), rows), "");
  EXPECT_EQ(algorithms_text(with(PerfColumns::nccl), {}), "");
}

TEST(PerfTable, ATimestampThatWasAskedForStandsBehindAll) {
  PerfRow row = all_reduce_row();
  row.timestamp = "2026-03-01T12:00:00";
  EXPECT_THAT(row_text(with(PerfColumns::nccl), row), testing::EndsWith("      3  2026-03-01T12:00:00\n"));
  EXPECT_THAT(row_text(with(PerfColumns::all), row), testing::EndsWith("  ring  2026-03-01T12:00:00\n"));
}

TEST(PerfTable, WhatWasNotRunOrNotCheckedIsNotAvailable) {
  PerfRow row;
  row.what = {Collective::all_to_all, DataType::bf16, ReduceOp::sum, 0, 2, 8};
  row.out_of_place = Timing{12345.6, 12.345, 100.04, {}};
  EXPECT_EQ(row_text(with(PerfColumns::all), row),
            "          32            8   bfloat16    none      -1"
            "    12346    0.00    0.00    N/A      N/A     N/A     N/A    N/A"
            "    12.35    100.0      N/A      N/A  -\n");
}

TEST(PerfTable, TheLongestTypeStandsApartFromTheCount) {
  PerfRow row = all_reduce_row();
  row.what.type = DataType::c128;
  EXPECT_THAT(row_text({}, row), HasSubstr(" 262144 complex128 "));
}

TEST(PerfTable, TheRootIsShownWhereThereIsOne) {
  PerfRow row = all_reduce_row();
  row.what.op = Collective::broadcast;
  row.what.root = 3;
  EXPECT_THAT(row_text({}, row), HasSubstr("     float    none       3"));
}

TEST(PerfTable, TheColumnHeadingsStandAboveTheirNumbers) {
  const PerfOptions options = with(PerfColumns::all);
  const std::string header =
      header_text(options, {"1.2.3", {"alpha 11", "beta pid 222"}, "a: b\nc: d", false});
  EXPECT_THAT(header, HasSubstr("# talweg version 1.2.3\n"));
  EXPECT_THAT(header, HasSubstr("# nRanks 2 "));
  EXPECT_THAT(header, HasSubstr("#  Rank  0 Group  0 Pid     11 on      alpha\n"
                                "#  Rank  1 Group  0 Pid    222 on       beta\n"));
  EXPECT_THAT(header, HasSubstr("# a: b\n# c: d\n"));
  EXPECT_THAT(header, Not(HasSubstr("--wide")));
  EXPECT_THAT(header_text({}, {"1", {"h 1"}, "", false}), HasSubstr("# --wide shows 5 more columns\n"));
  const std::string row = row_text(options, all_reduce_row());
  const auto heading = header.find("#       size");
  ASSERT_NE(heading, std::string::npos);
  const std::string line = header.substr(heading, header.find('\n', heading) - heading);
  for (const auto& [title, number] : {std::pair{"size", "1048576"},
                                      {"count", "262144"},
                                      {"type", "float"},
                                      {"redop", "sum"},
                                      {"root", "-1"},
                                      {"time", "1000.0"},
                                      {"algbw", "1.05"},
                                      {"busbw", "1.57"},
                                      {"p50", "990.0"},
                                      {"p99", "1200.0"}})
    EXPECT_EQ(line.find(title) + std::string(title).size(), row.find(number) + std::string(number).size())
        << title;
}

TEST(PerfTable, EveryLineThatIsNoResultBeginsWithAHash) {
  const std::string text = header_text({}, {"1", {"h 1"}, "a\nb", true}) + footer_text({});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line.substr(0, 1), "#") << line;
  EXPECT_THAT(text, HasSubstr("# one rank: start several with: talweg run -n 4 -- talweg perf all_reduce\n"));
}

TEST(PerfTable, BelowItStandsWhatWasLostAndAllLimitsThatWereGiven) {
  std::vector<PerfRow> rows(2, all_reduce_row());
  rows[1].lost = LostPart{0.02, 0.25};
  PerfOptions options;
  const auto sentence = [&] { return lost_sentences(options, rows, 0.1, false); };
  ASSERT_EQ(sentence().size(), 1U) << "of the second row alone something may be lost";
  EXPECT_EQ(
      sentence()[0],
      "1 MiB, ring: 2 % of what ranks sent each other did not come in time; at most 10 % may be missing of "
      "what one sends another, in whole packets. Before these calls came 20 more, which lose nothing and "
      "are counted below");
  options.may_lose_sender = 0.01;
  EXPECT_THAT(sentence()[0],
              HasSubstr("of what one sends another, 1 % of that on average over calls, in whole"));
  options.may_lose_call = 0.05;
  EXPECT_THAT(sentence()[0],
              HasSubstr(" on average over calls, and 5 % of what all others together send a rank "
                        "in a call, in whole packets. "));
  options.may_lose_sender.reset();
  EXPECT_THAT(sentence()[0], HasSubstr("one sends another, and 5 % of what all others together send"));
  EXPECT_THAT(lost_sentences(options, rows, 0.1, true)[0],
              HasSubstr(". Of what is missing 25 % was in packets that were not droppable"));
  EXPECT_THAT(sentence()[0], Not(HasSubstr("by the switch")));
  rows[1].lost->calls = 20;
  rows[1].lost->calls_by_switch = 18;
  EXPECT_THAT(sentence()[0], HasSubstr(". 18 of 20 calls went by the switch: "));
}

TEST(PerfTable, TheFooterSaysWhetherAllIsWellAndTheMeanBusBandwidth) {
  PerfTotals totals = summed({all_reduce_row()});
  EXPECT_EQ(totals.wrong, 3u);
  EXPECT_NEAR(totals.average_bus_bandwidth, (1.572864 + 0.786432) / 2, 1e-9);
  EXPECT_THAT(footer_text(totals), HasSubstr("# Out of bounds values : 3 FAILED\n"));
  EXPECT_THAT(footer_text(totals), HasSubstr("# Avg bus bandwidth    : 1.17965\n"));
  totals.wrong = 0;
  EXPECT_THAT(footer_text(totals), HasSubstr("# Out of bounds values : 0 OK\n"));
}

TEST(PerfTable, JsonNamesCarryTheirUnits) {
  const auto rows = std::vector{all_reduce_row()};
  const auto document = to_json({}, {"1", {"h 1"}, "", false}, rows, summed(rows));
  const auto& line = document["results"][0];
  EXPECT_EQ(line["size_bytes"], 1048576);
  EXPECT_EQ(line["out_of_place"]["time_us"], 1000);
  EXPECT_NEAR(line["out_of_place"]["busbw_GB_per_s"].get<double>(), 1.572864, 1e-9);
  EXPECT_EQ(line["in_place"]["wrong_elements"], 3);
  EXPECT_EQ(line["algorithm"], "ring");
}

TEST(PerfTable, JsonHasNullForASideThatWasNotRun) {
  PerfRow row = all_reduce_row();
  row.in_place.reset();
  row.out_of_place->wrong.reset();
  const auto document = to_json({}, {"1", {"h 1"}, "", false}, {row}, {});
  EXPECT_TRUE(document["results"][0]["in_place"].is_null());
  EXPECT_TRUE(document["results"][0]["out_of_place"]["wrong_elements"].is_null());
}

}  // namespace
}  // namespace talweg::study
