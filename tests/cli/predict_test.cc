// `talweg predict` as a user runs it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"
#include "train/traces/protobuf_writer.h"

namespace talweg::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kVgg = std::string(TALWEG_SOURCE_DIR) + "/examples/jobs/vgg16.yaml";
const std::string kFourWorkers = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/uneven4.yaml";

// Its gradients are ready 2, 3 and 7 ms after the backward pass has begun, which is 3 ms after the step has.
constexpr const char* kTiny = R"(name: tiny
origin: measured
batch: 8
update: 500us
layers:
  - {name: first, forward: 1ms, backward: 4ms, gradient: 1000000B}
  - {name: middle, forward: 1ms, backward: 1ms, gradient: 500000B}
  - {name: last, forward: 1ms, backward: 2ms, gradient: 2000000B}
)";

class Predict : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("talweg-predict-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string saved(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::string file(const std::string& name) const { return folder_ / name; }
  static json read(const std::string& path) {
    std::ifstream in(path);
    return json::parse(in);
  }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string tiny() const { return saved("tiny.yaml", kTiny); }
  static Outcome predict(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "predict");
    return talweg(arguments);
  }
  static json parsed(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--json", "-"});
    const Outcome outcome = predict(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  static json strategy(const json& document, const std::string& name) {
    for (const json& one : document["strategies"])
      if (one["name"] == name) return one;
    ADD_FAILURE() << name << " is not there";
    return {};
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Predict, StepsOfASmallJobAreThoseOfTheEquations) {
  const json document =
      parsed({tiny(), "--alpha-beta", "100us,1ns/B", "-n", "4", "--strategy", "one,wfbp,ddp,exact"});
  EXPECT_EQ(document["format"], "talweg predict");
  EXPECT_EQ(document["ranks"], 4);
  EXPECT_NEAR(document["one_rank_us"].get<double>(), 10500, 1e-6);
  // All behind the backward pass: 10 ms, then 100 us + 3.5 ms, then the update.
  EXPECT_NEAR(strategy(document, "one")["step_us"].get<double>(), 10000 + 3600 + 500, 1e-6);
  // last: 5 ms to 7.1 ms; middle: 7.1 ms to 7.7 ms; first: 10 ms to 11.1 ms.
  const json wfbp = strategy(document, "wfbp");
  EXPECT_NEAR(wfbp["step_us"].get<double>(), 11100 + 500, 1e-6);
  EXPECT_NEAR(wfbp["exposed_us"].get<double>(), 1100, 1e-6);
  EXPECT_NEAR(wfbp["speed_up"].get<double>(), 4 * 10500 / 11600.0, 1e-9);
  EXPECT_NEAR(wfbp["network_busy_us"].get<double>(), 3800, 1e-6);
  EXPECT_NEAR(wfbp["startups_us"].get<double>(), 300, 1e-6);
  const std::vector<std::vector<double>> moments{
      {5000, 5000, 7100}, {6000, 7100, 7700}, {10000, 10000, 11100}};
  ASSERT_EQ(wfbp["buckets"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(wfbp["buckets"][i]["ready_us"].get<double>(), moments[i][0], 1e-6) << i;
    EXPECT_NEAR(wfbp["buckets"][i]["sent_us"].get<double>(), moments[i][1], 1e-6) << i;
    EXPECT_NEAR(wfbp["buckets"][i]["arrived_us"].get<double>(), moments[i][2], 1e-6) << i;
  }
  // A bucket of 1 MiB is closed by the last layer's gradient; what is left goes behind the backward pass.
  EXPECT_NEAR(strategy(document, "ddp")["step_us"].get<double>(), 10000 + 100 + 1500 + 500, 1e-6);
  EXPECT_LE(strategy(document, "exact")["step_us"].get<double>(), 11600 + 1e-6);
  double parts = 0;
  for (const auto& [name, part] : wfbp["parts_us"].items()) parts += part.get<double>();
  EXPECT_NEAR(parts, 11600, 1e-6);
}

TEST_F(Predict, PrintsThis) {
  const Outcome outcome =
      predict({tiny(), "--alpha-beta", "100us,1ns/B", "-n", "2,4", "--strategy", "one,ddp,wfbp"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(
      outcome.out.substr(outcome.out.find("network ")),
      R"(network  as given for 4 ranks, for others as rings grow; on 4 ranks an all-reduce takes 100 us + 1 ns/B

a step on 4 ranks; * is the least; exposed: waits for gradients; speed-up: over one rank
strategy   step  exposed  speed-up  network busy  calls
           (ms)     (ms)                    (ms)
wfbp      *11.6     1.10      3.62          3.80      3
ddp        12.1     1.60      3.47          3.70      2
one        14.1     3.60      2.98          3.60      1

a step by ranks
      2 ranks  4 ranks
         (ms)     (ms)
wfbp     11.2     11.6
ddp      11.5     12.1
one      12.9     14.1

wfbp: Of 11.6 ms a step, the devices compute for 10.5 ms (91 %), they wait for transfers for 1.1 ms (9 %): computing is
the largest part; transfers take 3.8 ms, not all of it during the devices' passes.
critical path: forward first .. last 3.00 ms, backward last .. first 7.00 ms, all_reduce first (976.6 KiB) 1.10 ms,
update 500.0 us

what if                 step  samples a second
                        (ms)           (times)
as it is               11.6               1.00
devices twice as fast   6.55              1.77
twice the bandwidth    11.1               1.05
half the bytes         11.1               1.05
no start-ups           11.5               1.01
twice the batch        21.6               1.07
twice the ranks        11.9               1.95
hardly anything is gained from: no rank late, no gaps, batches that are there
with wfbp, more bandwidth helps up to 9.44 times what there is; beyond, less than 1 %

plan: wfbp, 3 buckets: 11.6 ms a step, 1.04 times as quick as PyTorch's own buckets (12.1 ms)
)");
}

TEST_F(Predict, TheBestPlanGoesIntoAFile) {
  const std::string plan = file("plan.json");
  const Outcome outcome =
      predict({tiny(), "--alpha-beta", "1ms,1ns/B", "-n", "4", "--strategy", "wfbp,exact", "-o", plan});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  // One start-up is saved where the middle layer's gradient travels with the last one's, or with the first
  // one's.
  const json document = read(plan);
  ASSERT_EQ(document["buckets"].size(), 2u) << document;
  EXPECT_EQ(document["partition"], nullptr);
  EXPECT_EQ(document["credit"], nullptr);
  std::vector<std::string> layers;
  for (const json& bucket : document["buckets"]) {
    EXPECT_EQ(bucket["priority"], 0);
    for (const json& layer : bucket["layers"]) layers.push_back(layer);
  }
  EXPECT_THAT(layers, testing::ElementsAre("last", "middle", "first"));
  ASSERT_EQ(
      predict({tiny(), "--alpha-beta", "1ms,1ns/B", "-n", "4", "--strategy", "bytescheduler", "-o", plan})
          .exit_code,
      0);
  const json urgent = read(plan);
  EXPECT_EQ(urgent["partition"], 8000000);
  EXPECT_EQ(urgent["credit"], 16000000);
  EXPECT_EQ(urgent["buckets"][0], json::parse(R"({"layers": ["last"], "priority": 0})"));
  EXPECT_EQ(urgent["buckets"][2], json::parse(R"({"layers": ["first"], "priority": 7})"));
}

// Of traces and of a ready-made job: read back, it predicts the same.
TEST_F(Predict, TheJobIsSavedAsAFileThatPredictsTheSame) {
  const std::string traces = std::string(TALWEG_SOURCE_DIR) + "/tests/train/traces/recorded/";
  const std::vector<std::vector<std::string>> jobs{{traces + "ddp0.json.gz", traces + "ddp1.json.gz"},
                                                   {"--model", "resnet18"}};
  for (const auto& job : jobs) {
    for (const char* name : {"saved.yaml", "saved.json"}) {
      const std::string saved = file(name);
      const std::vector<std::string> on{"--alpha-beta", "100us,1ns/B", "-n", "4",
                                        "--strategy",   "ddp,exact,p3"};
      std::vector<std::string> first = job;
      first.insert(first.end(), on.begin(), on.end());
      first.insert(first.end(), {"--save-job", saved});
      const json before = parsed(first);
      std::vector<std::string> second{saved};
      second.insert(second.end(), on.begin(), on.end());
      const json after = parsed(second);
      EXPECT_EQ(before["strategies"], after["strategies"]) << name;
      EXPECT_EQ(before["replayed_us"], after["replayed_us"]);
      EXPECT_EQ(after["job"]["kind"], "job");
    }
  }
  const Outcome printed = predict({tiny(), "--alpha-beta", "1us,1ns/B", "-n", "4", "--save-job", "-"});
  EXPECT_THAT(printed.out, StartsWith("name: \"tiny\"\norigin: \"measured\"\n"));
  EXPECT_THAT(printed.err, HasSubstr("a step on 4 ranks"));
  const Outcome without_network = predict({"--model", "resnet18", "--save-job", "-"});
  EXPECT_EQ(without_network.exit_code, 0) << without_network.err;
  EXPECT_THAT(without_network.out, StartsWith("name: \"resnet18\"\n"));
}

TEST_F(Predict, WhatIsChangedChangesTheStep) {
  const std::vector<std::string> base{tiny(), "--alpha-beta", "100us,1ns/B", "-n", "4", "--strategy", "one"};
  const auto step = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return strategy(parsed(more), "one")["step_us"].get<double>();
  };
  EXPECT_NEAR(step({"--compress", "2"}), 10000 + 100 + 1750 + 500, 1e-6);
  EXPECT_NEAR(step({"--faster", "2"}), 5000 + 3600 + 250, 1e-6);
  EXPECT_NEAR(step({"--batch", "3"}), 30000 + 3600 + 500, 1e-6);
}

TEST_F(Predict, AGraphsTimesAreEstimatedForTheDeviceThatIsSaid) {
  using train::ProtobufWriter;
  const auto list = [](std::uint64_t size) { return ProtobufWriter().number(1, size); };
  const ProtobufWriter input = ProtobufWriter().bytes(1, "x").message(
      2, ProtobufWriter().message(
             1, ProtobufWriter().message(2, ProtobufWriter().message(1, list(4096)).message(1, list(1024)))));
  const ProtobufWriter graph =
      ProtobufWriter()
          .message(1, ProtobufWriter().bytes(1, "x").bytes(1, "w").bytes(2, "y").bytes(4, "MatMul"))
          .message(5, ProtobufWriter().number(1, 1024).number(1, 1024).number(2, 1).bytes(8, "w"))
          .message(11, input);
  const std::string net =
      saved("net.onnx", ProtobufWriter().number(1, 8).bytes(2, "made").message(7, graph).text());
  const auto step = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {net, "--rate", "100Gbit/s", "-n", "2", "--strategy", "one"});
    return strategy(parsed(more), "one")["step_us"].get<double>();
  };
  EXPECT_EQ(step({}), step({"--device", "v100"}));
  EXPECT_LT(step({"--device", "a100"}), step({}));
  EXPECT_GT(step({"--device", "k80"}), step({}));
}

TEST_F(Predict, WhatIsAsFastAsCanBeAskedForHasNoRowOfTwiceThat) {
  for (const char* change : {"--faster", "--batch", "--compress"}) {
    const json document = parsed({tiny(), "--alpha-beta", "100us,1ns/B", "-n", "4", change, "1000000"});
    std::vector<std::string> rows;
    for (const json& row : document["what_if"]) rows.push_back(row["what"]);
    for (const auto& [option, row] : {std::pair{"--faster", "devices twice as fast"},
                                      {"--batch", "twice the batch"},
                                      {"--compress", "half the bytes"}})
      EXPECT_EQ(std::ranges::count(rows, row), std::string(option) == change ? 0 : 1)
          << change << ", " << row;
  }
}

// Where no start-up is to be saved each alone is as good as merged.
TEST_F(Predict, OfEqualPlansTheExactOneIsNamedThenPyTorchsOwn) {
  const auto plan_of = [&](const std::string& strategies) {
    return parsed({tiny(), "--alpha-beta", "100us,1ns/B", "-n", "4", "--strategy", strategies})["plan_of"];
  };
  EXPECT_EQ(plan_of("wfbp,mg-wfbp,exact"), "exact");
  EXPECT_EQ(plan_of("mg-wfbp,caffe-mpi,wfbp"), "mg-wfbp");
  const std::string one_layer = saved(
      "one.yaml", "name: one\norigin: measured\nlayers:\n  - {name: a, backward: 1ms, gradient: 1MB}\n");
  EXPECT_EQ(
      parsed({one_layer, "--rate", "1Gbit/s", "-n", "4", "--strategy", "wfbp,mg-wfbp,one,ddp"})["plan_of"],
      "ddp");
}

TEST_F(Predict, AnExampleOnEachKindOfNetwork) {
  for (const std::vector<std::string>& network : {std::vector<std::string>{"--cluster", kFourWorkers},
                                                  {"--rate", "10Gbit/s", "-n", "8"},
                                                  {"--alpha-beta", "523us,0.857ns/B", "-n", "8"}}) {
    std::vector<std::string> arguments{kVgg};
    arguments.insert(arguments.end(), network.begin(), network.end());
    const json document = parsed(arguments);
    EXPECT_EQ(document["ranks"], network[0] == "--cluster" ? 4 : 8);
    const double one = document["one_rank_us"].get<double>();
    const double best = strategy(document, document["best"])["step_us"].get<double>();
    EXPECT_GT(one, 0);
    for (const json& each : document["strategies"]) {
      SCOPED_TRACE(each["name"].get<std::string>());
      EXPECT_GE(each["step_us"].get<double>(), best * (1 - 1e-9));
      EXPECT_GE(each["step_us"].get<double>(), one * (1 - 1e-9));
      EXPECT_FALSE(each["bottleneck"].get<std::string>().empty());
    }
    EXPECT_GE(document["over_bandwidth"].size(), 5u);
    EXPECT_GE(document["what_if"].size(), 3u);
  }
}

TEST_F(Predict, WhereProcessorsSetThePaceTwiceTheBandwidthIsWhatTwiceTheRateIs) {
  const auto ddp = [](const std::string& rate) {
    return parsed({kVgg, "--rate", rate, "-n", "8", "--strategy", "ddp,ddp"});
  };
  const auto step = [](const json& document) { return strategy(document, "ddp")["step_us"].get<double>(); };
  const auto twice = [](const json& document) {
    for (const json& change : document["what_if"])
      if (change["what"] == "twice the bandwidth") return change["step_us"].get<double>();
    return 0.0;
  };
  for (const auto& [rate, double_rate] : {std::pair{"1Gbit/s", "2Gbit/s"}, {"40Gbit/s", "80Gbit/s"}}) {
    const json slow = ddp(rate), fast = ddp(double_rate);
    EXPECT_EQ(slow["strategies"].size(), 1u);
    EXPECT_NEAR(twice(slow), step(fast), 0.02 * step(fast)) << rate;
    const bool links = std::string(rate) == "1Gbit/s";
    EXPECT_EQ(twice(slow) < 0.9 * step(slow), links) << rate;
    const Outcome text = predict({kVgg, "--rate", rate, "-n", "8", "--strategy", "ddp"});
    EXPECT_EQ(text.out.find("hosts' processors set") == std::string::npos, links) << text.out;
    std::istringstream lines(text.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST_F(Predict, WhereProcessorsSetThePaceLessBandwidthIsWhatALowerRateIs) {
  const auto at_rate = [](double gigabits) {
    return parsed({kVgg, "--rate", fmt::format("{}Gbit/s", gigabits), "-n", "8", "--strategy", "ddp"});
  };
  const json document = at_rate(40);
  int points = 0;
  for (const json& point : document["over_bandwidth"]) {
    const auto times = point["bandwidth_times"].get<double>();
    if (times >= 1) continue;
    ++points;
    const double slow = strategy(at_rate(40 * times), "ddp")["step_us"].get<double>();
    EXPECT_NEAR(point["step_us"]["ddp"].get<double>(), slow, 0.05 * slow) << times;
  }
  EXPECT_EQ(points, 3);
}

TEST_F(Predict, OfTransfersInFlightTogetherTheStartUpsOverlap) {
  const auto step = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line{tiny(), "--alpha-beta", "4ms,1ns/B", "-n", "4", "--strategy", "wfbp"};
    line.insert(line.end(), more.begin(), more.end());
    return strategy(parsed(line), "wfbp")["step_us"].get<double>();
  };
  EXPECT_EQ(step({}), step({"--in-flight", "1"}));
  EXPECT_LT(step({"--in-flight", "2"}), step({"--in-flight", "1"}));
  EXPECT_EQ(step({"--in-flight", "65536"}), step({"--in-flight", "3"}));  // there are three
  EXPECT_THAT(predict({"--help"}).out, HasSubstr("--in-flight INT             transfers under way"));
}

// The model and the simulator see one network: they agree on a start-up's and a large call's time, roughly.
TEST_F(Predict, TimesMayBeSimulated) {
  for (const std::vector<std::string>& network :
       {std::vector<std::string>{"--cluster", kFourWorkers}, {"--rate", "1Gbit/s", "-n", "4"}}) {
    const auto document = [&](const std::string& times) {
      std::vector<std::string> line{tiny(), "--strategy", "one", "--times", times};
      line.insert(line.end(), network.begin(), network.end());
      return parsed(line);
    };
    const json simulated = document("simulated"), predicted = document("predicted");
    EXPECT_EQ(simulated["network"]["times"], "simulated");
    EXPECT_THAT(simulated["network"]["description"], testing::EndsWith(", simulated"));
    EXPECT_EQ(predicted["network"]["times"], "predicted");
    EXPECT_NE(simulated["network"]["all_reduce"], predicted["network"]["all_reduce"]);
    const double step = strategy(simulated, "one")["step_us"];
    EXPECT_NEAR(step, strategy(predicted, "one")["step_us"].get<double>(), 0.3 * step);
  }
}

TEST_F(Predict, TheNetworkMayBeASetting) {
  const Outcome outcome = talweg({"predict", kVgg, "--strategy", "ddp"}, {"TALWEG_CLUSTER=" + kFourWorkers});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("a step on 4 ranks"));
}

TEST_F(Predict, NeverWritesOverTheNetworkThatASettingNames) {
  std::filesystem::copy_file(kFourWorkers, file("cc.yaml"));
  const auto size = std::filesystem::file_size(kFourWorkers);
  const Outcome outcome = talweg({"predict", tiny(), "--strategy", "ddp", "-o", file("cc.yaml")},
                                 {"TALWEG_CLUSTER=" + file("cc.yaml")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("it would be written over the file that is read"));
  EXPECT_EQ(std::filesystem::file_size(file("cc.yaml")), size);
}

TEST_F(Predict, LinksMayBeAsFastAsAClustersMayBe) {
  for (const char* rate : {"1.6Tbit/s", "7.2Tbit/s", "1000Tbit/s"}) {
    const Outcome outcome = predict({tiny(), "--rate", rate, "-n", "2", "--strategy", "ddp"});
    EXPECT_EQ(outcome.exit_code, 0) << rate << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("which hosts' processors set, not links")) << rate;
  }
}

TEST_F(Predict, OfATraceWithoutSizesItIsSaidHowToHaveThem) {
  const Outcome outcome =
      shell("zcat '" TALWEG_SOURCE_DIR
            "/tests/train/traces/recorded/ddp0.json.gz' | sed 's/\"Input Dims\"/\"gone\"/g' >'" +
            file("bare.json") + "'; \"$TALWEG\" predict '" + file("bare.json") + "' --rate 1Gbit/s");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no layer has a gradient whose size is known: expected traces recorded "
                                     "with record_shapes=True, or PyTorch's execution traces beside them"));
}

TEST_F(Predict, WhatTakesNoTimeHasNumbersAllTheSame) {
  const std::string nothing =
      saved("nothing.yaml", "name: n\norigin: measured\nlayers: [{name: a, gradient: 1B}]\n");
  const Outcome none =
      predict({nothing, "--alpha-beta", "0us,0ns/B", "-n", "2", "--html", file("none.html")});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  // Without start-ups nothing is left.
  const Outcome startups =
      predict({nothing, "--alpha-beta", "1us,0ns/B", "-n", "2", "--html", file("some.html")});
  EXPECT_EQ(startups.exit_code, 0) << startups.err;
  for (const std::string& text :
       {none.out, startups.out, text_of(file("none.html")), text_of(file("some.html"))})
    EXPECT_THAT(text, Not(testing::ContainsRegex("[^a-z]-?(nan|inf)[^a-z]")));
  EXPECT_THAT(startups.out, testing::ContainsRegex("no start-ups +0 +-\n"));
}

TEST_F(Predict, WhatLimitsAStepDeniesNothingThatWouldHelp) {
  const std::string gaps = saved("gaps.yaml", R"(name: gaps
origin: measured
layers:
  - {name: a, forward: 3ms, backward: 5ms, forward_gap: 500us, backward_gap: 500us, gradient: 4B}
)");
  const Outcome outcome =
      predict({gaps, "--alpha-beta", "1us,0ns/B", "-n", "2", "--strategy", "ddp", "--wide"});
  EXPECT_THAT(outcome.out, HasSubstr("(11 %): computing is the largest part; work is launched too late"));
  const Outcome prioritised =
      predict({tiny(), "--alpha-beta", "100us,10ns/B", "-n", "4", "--strategy", "bytescheduler", "--wide"});
  EXPECT_THAT(prioritised.out, HasSubstr(": transfers take "));
  for (const std::string& text : {outcome.out, prioritised.out})
    EXPECT_THAT(text, Not(testing::ContainsRegex("would (not )?help|help most")));
}

TEST_F(Predict, WhatCannotBeIsSaidInOneLine) {
  const std::string job = tiny();
  const std::string empty = saved("empty.yaml", "name: empty\norigin: measured\nlayers: []\n");
  const std::string silent =
      saved("silent.yaml", "name: silent\norigin: measured\nlayers:\n  - {name: a, forward: 1ms}\n");
  const std::string two =
      saved("two.yaml", "name: x\norigin: measured\nlayers: [{name: a, gradient: 4B}]\n---\nname: y\n");
  const std::string broken =
      saved("broken.yaml", "name: x\norigin: measured\nlayers:\n  - {name: a, forward: fast}\n");
  const std::vector<std::string> on{"--alpha-beta", "100us,1ns/B", "-n", "4"};
  struct Wrong {
    std::vector<std::string> arguments;
    std::string said;
  };
  const Wrong kWrong[] = {
      {{job, "--rate", "10Gbit/s", "-n", "4", "--strategy", "luck"},
       "--strategy: no strategy is called \"luck\"; there are "},
      {{job, "--rate", "10Gbit/s", "-n", "4", "--strategy", ","},
       "--strategy: no strategy is called \"\"; there are "},
      {{job, "-n", "4"}, "on which network? give --cluster"},
      {{job, "--rate", "10Gbit/s", "-n", "1"}, "--ranks: expected a whole number from 2"},
      {{job, "--rate", "10Gbit/s", "-n", "0"}, "--ranks: expected a whole number from 2"},
      {{job, "--rate", "10Gbit/s"}, "--ranks: the job is of one rank: say for how many"},
      {{job, "--rate", "10", "-n", "4"}, "--rate: \"10\" has no unit: expected one such as 10Gbit/s"},
      {{job, "--rate", "0.0", "-n", "4"}, "--rate: \"0.0\" has no unit: expected one such as 10Gbit/s"},
      {{job, "--cluster", kFourWorkers, "--rate", "1Gbit/s"}, "--cluster and --rate: expected one"},
      {{job, "--device", "a100", "--rate", "1Gbit/s", "-n", "4"},
       "--device: only beside --model or an ONNX graph"},
      {{job, "--device", "v100", "--rate", "1Gbit/s", "-n", "4"},
       "--device: only beside --model or an ONNX graph"},
      {{job, "--cluster", kFourWorkers, "-n", "5"}, "--ranks 5: the cluster has 4 workers"},
      {{job, "--rate", "fast", "-n", "4"}, "--rate: bandwidth \"fast\": expected "},
      {{job, "--rate", "1Gbit/s,", "-n", "4"}, "--rate: time \"\": expected "},
      {{job, "--rate", "2000Tbit/s", "-n", "4"},
       "--rate: cluster: link host0->switch: expected a capacity of 1 bit/s"},
      {{job, "--rate", "1Gbit/s,9h", "-n", "4"}, "--rate: "},
      {{job, "--alpha-beta", "100us", "-n", "4"}, "--alpha-beta: expected a start-up"},
      {{job, "--alpha-beta", "100us,-1ns/B", "-n", "4"}, "--alpha-beta: expected a start-up"},
      {{job, "--alpha-beta", "soon,1ns/B", "-n", "4"}, "--alpha-beta: time \"soon\": expected "},
      {{job, "--rate", "1Gbit/s", "--alpha-beta", "1us,1ns/B", "-n", "4"},
       "--rate and --alpha-beta: expected one"},
      {{job, "--alpha-beta", "1us,1ns/B", "-n", "4", "--times", "simulated"},
       "--times simulated: beside --cluster or --rate, not --alpha-beta"},
      {{job, "-n", "4", "--times", "simulated"}, "--times simulated: of which network? give --cluster"},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--times", "guessed"},
       "--times: expected one of predicted,simulated"},
      {{empty, "--rate", "1Gbit/s", "-n", "4"}, "empty.yaml"},
      {{silent, "--rate", "1Gbit/s", "-n", "4"}, "no layer has a gradient"},
      {{two, "--rate", "1Gbit/s", "-n", "4"}, "two.yaml:5: expected one document, got another behind ---"},
      {{broken, "--rate", "1Gbit/s", "-n", "4"}, "broken.yaml:4: layers[0].forward: expected "},
      {{file("nowhere.yaml"), "--rate", "1Gbit/s", "-n", "4"}, "nowhere.yaml"},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--bucket-cap", "much"},
       "--bucket-cap: size \"much\": expected "},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--bucket-cap", "8M", "--strategy", "exact,wfbp"},
       "--bucket-cap: none of --strategy exact,wfbp fills buckets by size, as ddp does"},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--in-flight", "0"},
       "--in-flight: expected a whole number from 1 to "},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--in-flight=-1"},
       "--in-flight: expected a whole number from 1 to "},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--in-flight", "two"},
       "--in-flight: expected a whole number from 1 to "},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--in-flight", "1.5"},
       "--in-flight: expected a whole number from 1 to "},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--in-flight", "65537"},
       "--in-flight: expected a whole number from 1 to 65536, got \"65537\""},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--faster", "0"}, "--faster: expected a number from 0.001"},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--strategy", "dear", "-o", file("plan.json")}, "runs none of"},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--save-job", job},
       "it would be written over the file that is read"},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--save-job", "-", "-o", "-"},
       "-o - and --save-job -: only one can have standard output"},
      {{job, "--alpha-beta", "1us,1e300ns/B", "-n", "4"}, "--alpha-beta: a byte takes at most 1000000 ns"},
      {{job, "--rate", "1Gbit/s", "-n", "4", "--json", job},
       "it would be written over the file that is read"},
  };
  for (const Wrong& wrong : kWrong) {
    const Outcome outcome = predict(wrong.arguments);
    SCOPED_TRACE(testing::PrintToString(wrong.arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("talweg predict: "), HasSubstr(wrong.said)));
  }
}

TEST_F(Predict, ResultsAreCompared) {
  const std::string a = file("a.json"), b = file("b.json");
  const std::vector<std::string> on{"predict", tiny(),       "--alpha-beta", "100us,1ns/B", "-n",
                                    "2,4",     "--strategy", "one,wfbp",     "--json"};
  std::vector<std::string> first = on, second = on;
  first.push_back(a);
  second.push_back(b);
  ASSERT_EQ(talweg(first).exit_code, 0);
  ASSERT_EQ(talweg(second).exit_code, 0);
  EXPECT_EQ(talweg({"compare", a, b}).exit_code, 0);
  second.insert(second.end(), {"--faster", "2"});
  ASSERT_EQ(talweg(second).exit_code, 0);
  const Outcome differs = talweg({"compare", a, b});
  EXPECT_EQ(differs.exit_code, 1);
  EXPECT_THAT(differs.out, AllOf(HasSubstr("a step of tiny"), HasSubstr("4 ranks"), HasSubstr("wfbp")));
  EXPECT_THAT(differs.out, Not(HasSubstr("different jobs")));
}

TEST_F(Predict, ResultsOfDifferentJobsAreSaidToBe) {
  const std::string a = file("a.json"), b = file("b.json"), other = file("other.json");
  const auto write = [&](const std::string& job, const std::string& path) {
    ASSERT_EQ(predict({job, "--alpha-beta", "100us,1ns/B", "-n", "4", "--strategy", "ddp", "--json", path})
                  .exit_code,
              0);
  };
  write(tiny(), a);
  write(kVgg, b);
  write(saved("other.yaml",
              "name: tiny\norigin: measured\nlayers:\n  - {name: a, forward: 1ms, gradient: 4KiB}\n"),
        other);
  const Outcome refused = talweg({"compare", a, b});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("a.json and " + b + " are predictions of different jobs, tiny and vgg16"));
  const Outcome compared = talweg({"compare", a, other});
  EXPECT_EQ(compared.exit_code, 1);
  EXPECT_THAT(compared.out,
              HasSubstr("these are different jobs of one name: A has 3 layers, 3500000 bytes of "
                        "gradients, B 1 layers, 4096 bytes of gradients\n"));
}

TEST_F(Predict, ThePageStandsAlone) {
  const std::string page = file("step.html");
  ASSERT_EQ(predict({kVgg, "--rate", "10Gbit/s", "-n", "8", "--html", page}).exit_code, 0);
  std::ifstream in(page);
  const std::string html{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(html, AllOf(HasSubstr("A step of vgg16 on 8 ranks"), Not(HasSubstr("http://1")),
                          Not(HasSubstr("src=\"http"))));
}

}  // namespace
}  // namespace talweg::cli
