// Traces that are damaged, or are no traces: each is refused in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/traces/trace_folder.h"

namespace talweg::train {
namespace {

using DamagedTrace = TraceFolder;
using testing::HasSubstr;
using testing::StartsWith;

MadeTrace small() {
  MadeTrace made{
      .layers = {{.op = "aten::conv2d", .forward = 50'000, .backward = 90'000, .parameters = {100}},
                 {.op = "aten::linear", .forward = 40'000, .backward = 70'000, .parameters = {10, 2000}}},
      .buckets = {2, 1},
      .reduced = {{.time = 20'000}, {.time = 5000}}};
  made.update = 30'000;
  return made;
}

// With the first of `what` behind `from` replaced.
std::string with(std::string text, std::string_view what, std::string_view by, std::string_view from = "") {
  const auto begin = text.find(from);
  const auto at = text.find(what, begin == std::string::npos ? 0 : begin);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST_F(DamagedTrace, ATruncatedGzipIsNamed) {
  const std::string packed = gzipped(kineto_text(small(), 0));
  EXPECT_THAT(refusal_of("r.json.gz", packed.substr(0, packed.size() / 2)),
              HasSubstr("the gzip data end in the middle"));
  // Its checksum is the last.
  EXPECT_THAT(refusal_of("s.json.gz", packed.substr(0, packed.size() - 3)),
              HasSubstr("the gzip data end in the middle"));
  std::string damaged = packed;
  damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
  EXPECT_NE(refusal_of("d.json.gz", damaged), "");
}

TEST_F(DamagedTrace, ATruncatedFileIsNamedWhereverItEnds) {
  const std::string text = kineto_text(small(), 0);
  for (std::size_t end = 400; end + 30 < text.size(); end += 397)
    EXPECT_THAT(refusal_of("r.json", text.substr(0, end)), HasSubstr("the file ends here")) << end;
}

TEST_F(DamagedTrace, ATraceWithoutCommunicationIsNamed) {
  MadeTrace made = small();
  made.reduced.clear();
  EXPECT_THAT(refusal(files(made, 2)), StartsWith("rank0.json: there is no communication in it"));
}

TEST_F(DamagedTrace, RanksOfDifferentRunsAreNamed) {
  const MadeTrace one = small();
  const auto pair = [&](const MadeTrace& other) {
    return refusal({file("rank0.json", kineto_text(one, 0)), file("rank1.json", kineto_text(other, 1))});
  };
  EXPECT_EQ(pair(one), "");
  MadeTrace other = one;
  other.layers[0].op = "aten::bmm";
  EXPECT_THAT(pair(other), StartsWith("rank1.json: not of the run of rank0.json: models of"));
  other = one;
  other.layers[0].parameters = {101};
  EXPECT_THAT(pair(other), HasSubstr("gradients of other sizes"));
  other = one;
  other.buckets = {3};
  other.reduced.pop_back();
  EXPECT_THAT(pair(other), HasSubstr("2 and 1 transfers in a step"));
  other = one;
  other.world = 4;
  EXPECT_THAT(pair(other), HasSubstr("world sizes 2 and 4"));
  other = one;
  other.base += 7'200'000'000'000;
  EXPECT_THAT(pair(other), HasSubstr("recorded at different times"));
  other = one;
  other.first_step = 100;
  EXPECT_THAT(pair(other), HasSubstr("no step is in both"));
}

TEST_F(DamagedTrace, TwoFilesOfOneRankAreNamed) {
  MadeTrace made = small();
  const std::string text = kineto_text(made, 0);
  EXPECT_THAT(refusal({file("a.json", text), file("b.json", text)}), HasSubstr("b.json: is of rank 0, as"));
  made.distributed = false;
  const std::string bare = kineto_text(made, 0);
  EXPECT_THAT(refusal({file("a.json", bare), file("b.json", bare)}), HasSubstr("is of the same process as"));
}

TEST_F(DamagedTrace, ClocksThatJumpAreNamed) {
  const std::string text = kineto_text(small(), 0);
  const std::string second = "ProfilerStep#4";
  const auto at = text.find("\"ts\": ", text.find(second));
  std::string jumped = text;
  jumped.replace(at, text.find(',', at) - at, "\"ts\": 4668518571554.200");
  EXPECT_THAT(refusal_of("r.json", jumped), HasSubstr("the clock jumps: ProfilerStep#4 begins"));
  MadeTrace cuda = small();
  cuda.cuda = true;
  const std::string on_device = kineto_text(cuda, 0);
  const auto kernel = on_device.find("\"ts\": ", on_device.find("vectorized_elementwise"));
  std::string early = on_device;
  early.replace(kernel, on_device.find(',', kernel) - kernel, "\"ts\": 4668518500000.000");
  EXPECT_THAT(refusal_of("c.json", early), HasSubstr("the clock jumps: a kernel begins"));
  const auto duration = text.find("\"dur\": ", text.find("aten::conv2d"));
  std::string long_one = text;
  long_one.replace(duration, text.find(',', duration) - duration, "\"dur\": 70.000");
  EXPECT_THAT(refusal_of("l.json", long_one),
              HasSubstr("the clock jumps: aten::linear begins within aten::conv2d"));
}

// Every ts behind the one at `from` is so many seconds later.
std::string jumped(const std::string& text, std::int64_t from, int seconds) {
  std::string later;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find("\"ts\": ", done)) != std::string::npos;) {
    at += 6;
    later += text.substr(done, at - done);
    done = text.find(',', at);
    const auto dot = text.find('.', at);
    const bool whole = dot > done;
    const std::int64_t micros = std::stoll(text.substr(at));
    const std::int64_t time = micros * 1000 + (whole ? 0 : std::stoll(text.substr(dot + 1, 3)));
    later += std::to_string(time > from ? micros + seconds * 1'000'000 : micros);
    if (!whole) later += text.substr(dot, done - dot);
  }
  return later + text.substr(done);
}

TEST_F(DamagedTrace, AClockThatJumpsForwardWithinAStepIsNamedWhereverItDoes) {
  MadeTrace made = small();
  for (const int steps : {1, 2}) {
    made.steps = steps;
    const std::string text = kineto_text(made, 0);
    ASSERT_EQ(refusal_of("r.json", text), "");
    for (std::int64_t behind = 10'000; behind < 250'000; behind += 7'000)
      EXPECT_THAT(refusal_of("j.json", jumped(text, made.begin + behind, 1)),
                  AllOf(HasSubstr("the clock jumps: "), HasSubstr(" ns after ProfilerStep#3 ends")))
          << steps << " steps, " << behind;
  }
}

TEST_F(DamagedTrace, AClockThatJumpsBackWithinAStepIsNamed) {
  MadeTrace made = small();
  made.steps = 1;
  const std::string text = kineto_text(made, 0);
  for (std::int64_t behind = 95'000; behind < 155'000; behind += 5'000)
    EXPECT_THAT(refusal_of("j.json", jumped(text, made.begin + behind, -1)),
                AllOf(HasSubstr("the clock jumps: "), HasSubstr("which it goes back through")))
        << behind;
  // A recording that begins within a backward pass has the forward pass of none of that.
  made.steps = 2;
  std::string cut = kineto_text(made, 0);
  const auto begin = cut.find("ProfilerStep#3");
  for (auto at = cut.find("\"Sequence number\": 5", begin); at < cut.find("Backward0");
       at = cut.find("\"Sequence number\": 5", at + 1))
    cut[at + 19] = '1';
  EXPECT_EQ(refusal_of("c.json", cut), "");
}

// Each thread counts its own operators: gradients' gradients, and replicas of a model on threads made anew,
// have numbers of their device's thread, which a step later may be those of the one that computes forward.
TEST_F(DamagedTrace, AnotherThreadsNumbersAreNoJump) {
  const std::string text = kineto_text(small(), 0);
  const auto later = text.find("\"Sequence number\"", text.find("ProfilerStep#4"));
  const std::string number = text.substr(later, text.find(',', later) - later);
  const std::string event =
      R"({"ph": "X", "cat": "cpu_op", "pid": 12402, "tid": 77, "ts": 4668518571700.000, )"
      R"("dur": 1.000, "name": "autograd::engine::evaluate_function: MulBackward0", )"
      R"("args": {)" +
      number + "}}, ";
  std::string of_others = text;
  of_others.insert(text.find("{", text.find("\"traceEvents\"")), event);
  EXPECT_EQ(refusal_of("r.json", of_others), "");
}

// A recording may be started and stopped in the middle of a step, whose mark is not there then.
TEST_F(DamagedTrace, APassWithoutAMarkIsNoJump) {
  const std::string text = kineto_text(small(), 0);
  for (const char* step : {"ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"})
    EXPECT_EQ(refusal_of("r.json", with(text, step, "evaluation")), "") << step;
}

TEST_F(DamagedTrace, NumbersThatCannotBeAreNamed) {
  const std::string text = kineto_text(small(), 0);
  const auto replaced = [&](std::string_view field, std::string_view by) {
    const auto at = text.find(field, text.find("aten::linear"));
    std::string changed = text;
    const auto colon = at + field.size() + 1;
    return changed.replace(colon, text.find_first_of(",\n}", colon) - colon, by);
  };
  EXPECT_THAT(refusal_of("a.json", replaced("\"dur\"", " -12.5")),
              HasSubstr("expected a duration of at least 0 and at most a day, got -12500 ns"));
  EXPECT_THAT(refusal_of("b.json", replaced("\"Sequence number\"", " 18446744073709551617")),
              HasSubstr("expected a whole number of 64 bits, got 18446744073709551617"));
  EXPECT_THAT(refusal_of("c.json", replaced("\"ts\"", " 99999999999999999999")),
              HasSubstr("ts: expected microseconds of 64 bits"));
  EXPECT_THAT(refusal_of("e.json", replaced("\"dur\"", " 1000000000000000")),
              HasSubstr("expected a duration of at least 0 and at most a day, got 1000000000000000000 ns"));
  EXPECT_THAT(refusal_of("f.json", replaced("\"ts\"", " -4668518571554.179")),
              HasSubstr("expected a ts of at least 0, got -4668518571554179 ns"));
  EXPECT_THAT(refusal_of("g.json", with(text, "[[2000]]", "[[-5]]")),
              HasSubstr("Input Dims: expected sizes of at least 0, got -5"));
  EXPECT_THAT(refusal_of("h.json", with(text, "\"rank\": 0", "\"rank\": 7")),
              HasSubstr("distributedInfo: rank: expected 0 to 1, as world_size is 2, got 7"));
  // What is not looked at may be of any size.
  EXPECT_EQ(refusal_of("d.json", replaced("\"External id\"", " 18446744073709551617")).find("64 bits"),
            std::string::npos);
}

TEST_F(DamagedTrace, AnEventWithoutATimeIsNamed) {
  const std::string text = kineto_text(small(), 0);
  EXPECT_THAT(refusal_of("a.json", with(text, "\"ts\"", "\"to\"", "aten::linear")),
              HasSubstr("expected the event \"aten::linear\" to have a ts"));
  EXPECT_THAT(refusal_of("b.json", with(text, "\"dur\"", "\"for\"", "aten::linear")),
              HasSubstr("expected the event \"aten::linear\" to have a dur"));
}

TEST_F(DamagedTrace, NulBytesAreNamed) {
  const std::string text = kineto_text(small(), 0);
  EXPECT_THAT(refusal_of("a.json", with(text, "aten::linear", std::string_view("aten\0:linear", 12))),
              HasSubstr("NUL bytes"));
  EXPECT_THAT(refusal_of("b.json", with(text, ",\n", std::string_view(",\0", 2), "aten::linear")),
              HasSubstr("NUL bytes"));
}

TEST_F(DamagedTrace, TwoModelsInOneTraceAreNamed) {
  MadeTrace made = small();
  made.steps = 2;
  const std::string one = kineto_text(made, 0);
  // Steps of another model behind the first one's.
  made.layers.push_back({.op = "aten::bmm", .forward = 10'000, .backward = 20'000});
  made.first_step = 5;
  made.begin += 10'000'000;
  const std::string two = kineto_text(made, 0);
  const auto events = two.find(",\n", two.find("process_name"));
  const std::string both = one.substr(0, one.find("\n  ],")) + two.substr(events);
  EXPECT_THAT(refusal_of("a.json", both), HasSubstr("expected one model, but steps"));
  // Two passes in one step: marks around both.
  made.marks = false;
  made.optimizer = false;
  const std::string passes = kineto_text(made, 0);
  EXPECT_EQ(refusal_of("b.json", passes), "");
  const std::string mark =
      ",{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#5\", \"pid\": 12402, \"tid\": "
      "12402, \"ts\": "
      "4668518581554.179, \"dur\": 900000}";
  EXPECT_THAT(refusal_of("c.json", passes.substr(0, passes.find("\n  ],")) + mark +
                                       passes.substr(passes.find("\n  ],"))),
              HasSubstr("expected one forward and one backward pass in a step"));
}

TEST_F(DamagedTrace, StepsOfTwoProcessesOrTwiceTheSameAreNamed) {
  const std::string one = kineto_text(small(), 0), other = kineto_text(small(), 1);
  const auto joined = [&](const std::string& second) {
    return one.substr(0, one.find("\n  ],")) + second.substr(second.find(",\n", second.find("process_name")));
  };
  EXPECT_THAT(refusal_of("a.json", joined(other)), HasSubstr("expected the steps of one process"));
  EXPECT_THAT(refusal_of("b.json", joined(one)), HasSubstr("ProfilerStep#3 is there twice"));
}

TEST_F(DamagedTrace, AByteOrderMarkIsLeftOut) {
  const std::string text = "\xef\xbb\xbf" + kineto_text(small(), 0);
  EXPECT_EQ(refusal_of("r.json", text), "");
  EXPECT_EQ(refusal_of("r.json.gz", gzipped(text)), "");
  EXPECT_THAT(refusal_of("twice.json", "\xef\xbb\xbf" + text), HasSubstr("no known kind of trace"));
  EXPECT_THAT(refusal_of("alone.json", "\xef\xbb\xbf"), HasSubstr("got an empty file"));
  EXPECT_THAT(refusal_of("cut.json", "\xef\xbb"), HasSubstr("no known kind of trace"));
}

TEST_F(DamagedTrace, WhatIsNoTraceIsRefused) {
  EXPECT_THAT(refusal_of("empty", ""), HasSubstr("got an empty file"));
  EXPECT_THAT(refusal_of("page.html", "<html><body>404</body></html>"), HasSubstr("no known kind of trace"));
  EXPECT_THAT(refusal_of("x.json", "{\"a\": 1}"), HasSubstr("no known kind of trace"));
  EXPECT_THAT(refusal_of("x.zip", "PK\x03\x04...."), HasSubstr("not by another packer"));
  EXPECT_THAT(refusal_of("d.json", "{\"traceEvents\": [{\"name\": \"FW.conv0\", \"ts\": 1}]}"),
              HasSubstr("dPRO"));
  EXPECT_THAT(refusal_of("n.json", "{\"traceEvents\": []}"), HasSubstr("expected a whole step of training"));
  EXPECT_THAT(refusal({"/nowhere/r.json"}), HasSubstr("cannot read it"));
  EXPECT_THAT(refusal({testing::TempDir()}), HasSubstr("got a directory"));
  EXPECT_THAT(refusal({}), HasSubstr("at least one trace"));
  const auto pair = files(small(), 1);
  EXPECT_THAT(
      refusal(
          {pair[0],
           file("g.txt",
                "node1 -- Input -- forward_compute_time=1, backward_compute_time=0, parameter_size=0\n")}),
      HasSubstr("expected traces of one kind"));
}

}  // namespace
}  // namespace talweg::train
