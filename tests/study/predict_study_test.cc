#include "study/predict_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "network_file.h"
#include "study/predict_page.h"
#include "study/predict_report.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr Nanoseconds ms(double milliseconds) {
  return {static_cast<std::int64_t>(milliseconds * 1e6)};
}

train::Layer layer(const std::string& name, double forward_ms, double backward_ms, std::int64_t gradient) {
  train::Layer made;
  made.name = name;
  made.forward = ms(forward_ms);
  made.backward = ms(backward_ms);
  made.gradient = {gradient};
  return made;
}

// Its gradients are there 5, 6 and 10 ms after a step has begun.
train::Job small_job() {
  train::Job job;
  job.name = "small";
  job.ranks = 4;
  job.layers = {layer("first", 1, 4, 1'000'000), layer("middle", 1, 1, 500'000),
                layer("last", 1, 2, 2'000'000)};
  return job;
}

StepQuestion question_of(const train::Job& job, const std::vector<std::string>& names) {
  StepQuestion question;
  question.job = job;
  question.source = "small.yaml";
  question.kind = "job";
  question.ranks = {4};
  question.network = predict_network({"", "", "100us,1ns/B"}, job, 4);
  for (const std::string& name : names) question.strategies.push_back(train::find_strategy(name));
  question.all_strategies = false;
  return question;
}

TEST(PredictNetwork, AlphaAndBetaAreReadExactly) {
  const train::TransferTimes times = parse_alpha_beta("523us,0.857ns/B");
  EXPECT_DOUBLE_EQ(times.startup(), 523e-6);
  EXPECT_DOUBLE_EQ(times.per_byte(), 0.857e-9);
  for (const char* bad :
       {"", ",", "523us", "523us,", "523us,0.857", "523us,0.857us/B", "523us,nanns/B", "523us,1ns/B,"})
    EXPECT_THROW(parse_alpha_beta(bad), Error) << bad;
}

TEST(PredictNetwork, SaysWithWhichPlansAGroupBeginsWhereQuickerOnesMayCome) {
  StepQuestion question = question_of(small_job(), {"ddp"});
  const auto known = question.network.at;
  question.network.at = [known](int ranks) {
    train::NetworkTimes times = known(ranks);
    times.interim = {{"ring"}, {"packed", "sharded_star"}};
    return times;
  };
  EXPECT_THAT(
      network_line(question),
      testing::EndsWith("; with ring, which a group begins with: it plans on in the background, and packed, "
                        "sharded_star may then be quicker"));
  const nlohmann::json interim = to_json(question, study_step(question))["network"]["interim"];
  EXPECT_EQ(interim["taken"], nlohmann::json::array({"ring"}));
  EXPECT_EQ(interim["missing"], nlohmann::json::array({"packed", "sharded_star"}));
}

TEST(PredictNetwork, WhatAJobHasRecordedIsItsNetworkUnlessAnotherIsGiven) {
  train::Job job = small_job();
  EXPECT_THROW(predict_network({}, job, 4), Error);
  for (const std::int64_t bytes : {1'000'000, 2'000'000, 4'000'000, 8'000'000}) {
    train::Exchange exchange;
    exchange.bytes = {bytes};
    exchange.time = {200'000 + 2 * bytes};  // 200 us + 2 ns/B
    job.exchanges.push_back(exchange);
  }
  const PredictNetwork recorded = predict_network({}, job, 4);
  EXPECT_EQ(recorded.kind, "recorded");
  EXPECT_NEAR(recorded.at(4).all_reduce.seconds(3e6), 6.2e-3, 1e-6);
  // In a ring of 7 there are twice as many start-ups as in one of 4, and 8/7 of the bytes.
  EXPECT_NEAR(recorded.at(7).all_reduce.seconds(3e6), 2 * 0.2e-3 + 6e-3 * (6.0 / 7) / (3.0 / 4), 1e-6);
  EXPECT_EQ(predict_network({"", "1Gbit/s", ""}, job, 4).kind, "rate");
  EXPECT_THROW(predict_network({"", "1Gbit/s", "1us,1ns/B"}, job, 4), Error);
}

TEST(PredictNetwork, LinksThatWouldTakeHoursForOneCallAreNotSimulated) {
  const auto said = [](const std::string& rate) -> std::string {
    try {
      predict_network({"", rate, "", "simulated"}, small_job(), 4);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said("1bit/s"),
            "--rate: --times simulated: expected at least 100 kbit/s of every link, got 1 bit/s");
  EXPECT_EQ(said("100kbit/s"), "");
  EXPECT_EQ(said("1Gbit/s,600s"),
            "--rate: --times simulated: expected a latency of at most 60 s of every link, got 300 s");
  EXPECT_EQ(predict_network({"", "1bit/s", ""}, small_job(), 4).kind, "rate") << "of the cost model";
}

train::Job with_exchanges(const std::vector<std::pair<std::int64_t, double>>& bytes_and_ms) {
  train::Job job = small_job();
  for (const auto& [bytes, milliseconds] : bytes_and_ms) {
    train::Exchange exchange;
    exchange.bytes = {bytes};
    exchange.time = ms(milliseconds);
    job.exchanges.push_back(exchange);
  }
  return job;
}

TEST(PredictNetwork, SamplesThatTellNoRateSaySoAndWhatIsAssumed) {
  const auto assumed = [](const std::vector<std::pair<std::int64_t, double>>& bytes_and_ms) {
    return predict_network({}, with_exchanges(bytes_and_ms), 4).assumed;
  };
  EXPECT_EQ(assumed({{1'000'000, 2}, {2'000'000, 3}, {4'000'000, 5}}), "");
  EXPECT_THAT(assumed({{1'000'000, 3.1}, {1'100'000, 3.0}}),
              AllOf(HasSubstr("1 MB to 1.1 MB"), HasSubstr("too alike to tell a rate"),
                    HasSubstr("assumed that each takes as long")));
  EXPECT_THAT(assumed({{1'000'000, 3.1}, {9'000'000, 3.0}}), HasSubstr("the larger took no longer"));
  EXPECT_THAT(assumed({{1'000'000, 3.1}, {1'000'000, 3.0}}), HasSubstr("cannot tell a start-up"));
}

// As two of gloo's threads share a network: the first to end seems to have taken nearly all of the time.
TEST(PredictNetwork, NorAreLinksAndGroupsOfAClusterFile) {
  const auto said = [](const std::string& link, const std::string& group) -> std::string {
    const NetworkFile file("nodes:\n  - {name: a}\n  - {name: b}\nlinks:\n  - {between: [a, b], capacity: " +
                           link + "}\ngroups:\n  - {name: g, capacity: " + group + ", links: [a->b]}\n");
    try {
      predict_network({file.path(), "", "", "simulated"}, small_job(), 2);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said("1Gbit/s", "1Gbit/s"), "");
  EXPECT_THAT(said("1bit/s", "1Gbit/s"),
              HasSubstr("expected at least 100 kbit/s of every link, got 1 bit/s"));
  EXPECT_THAT(said("1Gbit/s", "1bit/s"),
              HasSubstr("expected at least 100 kbit/s of every link, got 1 bit/s"));
}

TEST(PredictNetwork, OfTransfersUnderWayTogetherTheRateOfAllCounts) {
  train::Job job = with_exchanges({{2'100'000, 96.5}, {4'200'000, 18}, {2'100'000, 116.8}});
  job.in_flight = 2;
  const PredictNetwork recorded = predict_network({}, job, job.ranks);
  EXPECT_NEAR(recorded.at(job.ranks).all_reduce.seconds(8'400'000), 231.3e-3, 1e-6);
  EXPECT_NEAR(recorded.at(job.ranks).all_reduce.seconds(4'200'000), 231.3e-3 / 2, 1e-6);
  EXPECT_THAT(recorded.assumed, HasSubstr("under way together"));
  EXPECT_EQ(recorded.misfit, "");
}

// Small calls that cost as much as large ones: recorded steps, whose calls are large, do not tell.
TEST(PredictNetwork, WhatTheRecorderProbedSaysWhatOtherSizesTake) {
  train::Job job = with_exchanges({{2'000'000, 9}, {2'000'000, 11}});
  job.in_flight = 2;
  job.backend = "talweg";
  for (const auto& [bytes, milliseconds] : {std::pair{4, 4.0}, {1'000'000, 4.5}, {2'000'000, 5.0}})
    job.probes.push_back({.bytes = {bytes}, .time = ms(milliseconds)});
  const PredictNetwork recorded = predict_network({}, job, job.ranks);
  EXPECT_NEAR(recorded.at(job.ranks).all_reduce.seconds(2e6), 10e-3, 1e-6) << "twice what was probed";
  EXPECT_NEAR(recorded.at(job.ranks).all_reduce.seconds(4), 8e-3, 1e-6);
  EXPECT_EQ(recorded.assumed, "");
  EXPECT_THAT(recorded.words, HasSubstr("as 3 probed all-reduces of the job fit it"));

  train::Job far = job;
  for (train::Exchange& exchange : far.exchanges) exchange.bytes = {20'000'000};
  const PredictNetwork unprobed = predict_network({}, far, far.ranks);
  EXPECT_THAT(unprobed.words, HasSubstr("as 2 all-reduces of the job fit it")) << "probes do not reach them";
  EXPECT_NE(unprobed.assumed, "");

  StepQuestion question = question_of(job, {"ddp"});
  question.network = predict_network({"", "1Gbit/s", ""}, job, 4);
  const train::TransferTimes planned = question.network.at(4).all_reduce;
  EXPECT_EQ(question.setting(4).network.all_reduce, planned.with_call(4e-3));
  EXPECT_NE(question.setting(4).network.all_reduce, planned);
  question.job.backend = "gloo";
  EXPECT_EQ(question.setting(4).network.all_reduce, planned);
}

TEST(PredictNetwork, AFitSaysHowSureItIsAndWhereItMissesWhatWasRecorded) {
  const auto question_on = [](const std::vector<std::pair<std::int64_t, double>>& bytes_and_ms) {
    StepQuestion question = question_of(small_job(), {"ddp"});
    question.network = predict_network({}, with_exchanges(bytes_and_ms), 4);
    return question;
  };
  const StepQuestion good =
      question_on({{1'000'000, 2.0}, {2'000'000, 3.1}, {4'000'000, 5.0}, {8'000'000, 9.1}});
  EXPECT_EQ(good.network.misfit, "");
  ASSERT_TRUE(good.network.fit);
  EXPECT_THAT(network_line(good), HasSubstr("; 95 % confidence: +- "));
  const nlohmann::json fit = to_json(good, study_step(good))["network"]["fit"];
  EXPECT_EQ(fit["ranks"], 4);
  EXPECT_GT(fit["pieces"][0]["startup_error_us"].get<double>(), 0);
  EXPECT_GT(fit["pieces"][0]["per_byte_error_ns"].get<double>(), 0);
  EXPECT_LT(fit["relative_error"].get<double>(), 0.1);
  const StepQuestion bad = question_on({{1'000'000, 1}, {1'000'000, 1}, {1'000'000, 1}, {1'000'000, 186}});
  EXPECT_GT(bad.network.fit->error, kBadFit);
  EXPECT_THAT(bad.network.misfit, HasSubstr("one of 1 MB took 186 ms, the fit says 1.00 ms"));
  EXPECT_THAT(network_line(bad), HasSubstr("95 % confidence: too few sizes to tell"));
  EXPECT_TRUE(to_json(bad, study_step(bad))["network"]["fit"]["pieces"][0]["startup_error_us"].is_null());
  EXPECT_TRUE(to_json(question_of(small_job(), {"ddp"}),
                      study_step(question_of(small_job(), {"ddp"})))["network"]["fit"]
                  .is_null());
}

TEST(StepStudy, GapsOfLaunchesAndOfStreamsStandApartAndSoDoTheRecordedCaps) {
  StepQuestion question = question_of(small_job(), {"ddp"});
  EXPECT_EQ(gaps_line(question) + buckets_line(question), "");
  EXPECT_TRUE(to_json(question, study_step(question))["job"]["bucket_caps"].is_null());
  question.launch_gaps = ms(1.5);
  question.stream_gaps = ms(0.25);
  question.bucket_caps = train::BucketCaps{{1 << 20}, {8 << 20}};
  const StepStudy found = study_step(question);
  const auto shown = AllOf(HasSubstr("1.50 ms for launches by the host and 250.0 us for other streams"),
                           HasSubstr("fills up to 8 MiB, the first up to 1 MiB"));
  EXPECT_THAT(to_text(question, found, true), shown);
  EXPECT_THAT(predict_page(question, found), shown);
  const nlohmann::json job = to_json(question, found)["job"];
  EXPECT_EQ(job["launch_gaps_us"], 1500);
  EXPECT_EQ(job["stream_gaps_us"], 250);
  EXPECT_EQ(job["bucket_caps"]["first_bytes"], 1 << 20);
  EXPECT_EQ(job["bucket_caps"]["bytes"], 8 << 20);
}

TEST(StepStudy, WithoutARateNothingIsSaidOfBandwidth) {
  StepQuestion question = question_of(small_job(), {"ddp"});
  question.network = predict_network({}, with_exchanges({{1'000'000, 3.1}, {1'100'000, 3.0}}), 4);
  const StepStudy found = study_step(question);
  const std::string text = to_text(question, found, true);
  EXPECT_THAT(text, AllOf(HasSubstr("takes 3048 us, whatever its size"), Not(HasSubstr("0 ns/B")),
                          Not(HasSubstr("twice the bandwidth")), Not(HasSubstr("half the bytes")),
                          HasSubstr("what more bandwidth brings cannot be told")));
}

TEST(StepStudy, TheQuickestIsFirstAndEachSaysWhenItsBucketsTravel) {
  const StepStudy study = study_step(question_of(small_job(), {"one", "wfbp", "dear"}));
  ASSERT_EQ(study.rows.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(
      study.rows, {}, [](const StepRow& row) { return std::round(row.prediction.step * 1e12); }));
  EXPECT_EQ(study.best, 0u);
  const auto row = [&](const std::string& name) {
    return *std::ranges::find(study.rows, name, [](const StepRow& r) { return r.strategy.name; });
  };
  const StepRow one = row("one");
  ASSERT_EQ(one.buckets.size(), 1u);
  EXPECT_NEAR(one.buckets[0].sent, 10e-3, 1e-9);
  EXPECT_NEAR(one.buckets[0].arrived, 13.6e-3, 1e-9);
  EXPECT_NEAR(one.prediction.step, 13.6e-3, 1e-9);
  const StepRow wfbp = row("wfbp");
  EXPECT_THAT(wfbp.buckets[0].layers, ElementsAre(2));
  EXPECT_NEAR(wfbp.buckets[1].ready, 6e-3, 1e-9);
  EXPECT_NEAR(wfbp.buckets[1].sent, 7.1e-3, 1e-9);
  // Half of it travels in the step that follows.
  EXPECT_GT(row("dear").buckets[0].arrived, 10e-3);
  EXPECT_NEAR(study.alone, 10e-3, 1e-9);
  EXPECT_EQ(study.rows[*study.plan].strategy.name, "wfbp");
  EXPECT_FALSE(study.measured);
}

TEST(StepStudy, AStrategyOfTooManyPiecesIsRefusedAndTheOthersStay) {
  train::Job job = small_job();
  job.layers[0].gradient = {train::find_strategy("p3").partition.value * 700'000};
  StepQuestion question = question_of(job, {"p3", "ddp"});
  EXPECT_THROW(study_step(question), Error) << "where it was asked for by name";
  question.all_strategies = true;
  const StepStudy study = study_step(question);
  for (const StepRow& row : study.rows) {
    EXPECT_EQ(row.suits(), row.strategy.name != "p3") << row.strategy.name;
    if (row.strategy.name == "p3") {
      EXPECT_THAT(row.unsuited, HasSubstr("so many pieces, are more than the model takes"));
    }
  }
  EXPECT_TRUE(std::ranges::any_of(study.rows, [](const StepRow& row) { return row.strategy.name == "p3"; }));
  EXPECT_TRUE(study.rows[study.best].suits());
}

TEST(StepStudy, WhatWasMeasuredIsLaidBesideWhatIsPredictedForAsManyRanks) {
  train::Job job = small_job();
  job.step = ms(12.8);
  const StepStudy same = study_step(question_of(job, {"one"}));
  ASSERT_TRUE(same.rows[0].off_by);
  EXPECT_NEAR(*same.rows[0].off_by, 13.6 / 12.8 - 1, 1e-9);
  StepQuestion other = question_of(job, {"one"});
  other.ranks = {8};
  EXPECT_FALSE(study_step(other).rows[0].off_by);
  other = question_of(job, {"one"});
  other.compute = 2;
  EXPECT_FALSE(study_step(other).rows[0].off_by);
}

// In two buckets, as DDP's caps cut an LSTM: each is played back with its own time.
TEST(StepStudy, ALayerInTwoExchangesIsPlayedBack) {
  train::Job job = small_job();
  job.step = ms(20);
  for (const int layer : {2, 2, 1, 0}) {
    train::Exchange exchange;
    exchange.layers = {layer};
    exchange.bytes = {1000};
    exchange.time = ms(10);
    job.exchanges.push_back(exchange);
  }
  const StepStudy found = study_step(question_of(job, {"ddp"}));
  ASSERT_TRUE(found.replayed);
  EXPECT_NEAR(*found.replayed, (3 + 2 + 4 * 10) * 1e-3, 1e-9);
}

// On the network that the job has recorded, not on another.
TEST(StepStudy, ABroadcastTakesWhatItTookOnTheJobsNetwork) {
  train::Job job = small_job();
  train::Exchange broadcast;
  broadcast.op = Collective::broadcast;
  broadcast.bytes = {4096};
  broadcast.time = ms(0.01);
  train::Exchange all;
  all.layers = {2, 1, 0};
  all.bytes = {3'500'000};
  all.time = ms(7);
  job.exchanges = {broadcast, all};
  StepQuestion question = question_of(job, {"one"});
  question.network = predict_network({}, job, 4);
  EXPECT_NEAR(study_step(question).rows.front().prediction.step, (3 + 7 + 0.01 + 7) * 1e-3, 1e-9);
  question.network = predict_network({"", "", "100us,0.1ns/B"}, job, 4);
  EXPECT_FALSE(question.setting(4).recorded_on);
}

TEST(PredictRequest, AJobIsToBeHadWithoutANetwork) {
  PredictRequest request;
  request.model = "resnet18";
  const auto job = job_without_network(request);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->name, "resnet18");
  request.rate = "1Gbit/s";
  EXPECT_FALSE(job_without_network(request));
}

TEST(StepStudy, CurvesGoThroughWhatIsPredictedAndNeverBelowOneRank) {
  const StepQuestion question = question_of(small_job(), {"one", "exact"});
  const StepStudy study = study_step(question);
  ASSERT_TRUE(study.over_ranks && study.over_bandwidth);
  for (const StepCurves* curves : {&*study.over_ranks, &*study.over_bandwidth})
    for (std::size_t i = 0; i < study.rows.size(); ++i) {
      ASSERT_EQ(curves->steps[i].size(), curves->x.size());
      const double here = curves == &*study.over_ranks ? 4 : 1;
      const auto point = std::ranges::find(curves->x, here) - curves->x.begin();
      EXPECT_NEAR(curves->steps[i][static_cast<std::size_t>(point)], study.rows[i].prediction.step, 1e-12);
      for (const double step : curves->steps[i]) EXPECT_GE(step, study.alone * (1 - 1e-12));
    }
  StepQuestion without = question;
  without.curves = false;
  EXPECT_FALSE(study_step(without).over_ranks);
}

TEST(StepStudy, SaysHowFarItIs) {
  std::size_t last = 0;
  study_step(question_of(small_job(), {"one", "wfbp"}), [&](std::size_t done, std::size_t all) {
    EXPECT_EQ(done, last + 1);
    EXPECT_LE(done, all);
    last = done;
  });
  EXPECT_GT(last, 10u);
  // One that runs as another does counts as done.
  const auto left = [](const std::vector<std::string>& strategies) {
    std::size_t at_last = 0;
    study_step(question_of(small_job(), strategies),
               [&](std::size_t done, std::size_t all) { at_last = all - done; });
    return at_last;
  };
  EXPECT_EQ(left({"wfbp", "caffe-mpi"}), left({"wfbp"}));
}

TEST(StepStudy, APlanHasPrioritiesOnlyWhereItsStrategyHas) {
  const StepStudy plain = study_step(question_of(small_job(), {"ddp"}));
  EXPECT_EQ(nlohmann::json::parse(plan_document(small_job(), plain.rows[0])),
            nlohmann::json::parse(R"({"buckets": [{"layers": ["last"], "priority": 0},
                                                  {"layers": ["middle", "first"], "priority": 0}],
                                      "partition": null, "credit": null})"));
  const StepStudy urgent = study_step(question_of(small_job(), {"bytescheduler"}));
  ASSERT_TRUE(urgent.plan);
  EXPECT_FALSE(runs_under_ddp(urgent.rows[0].strategy));
  EXPECT_THAT(plan_line(urgent), HasSubstr("update one by one"));
  const auto plan = nlohmann::json::parse(plan_document(small_job(), urgent.rows[0]));
  EXPECT_EQ(plan["buckets"][0]["priority"], 0);
  EXPECT_EQ(plan["buckets"][1]["priority"], 3);
  EXPECT_EQ(plan["buckets"][2]["priority"], 7);
  EXPECT_EQ(plan["credit"], 16'000'000);
  EXPECT_FALSE(study_step(question_of(small_job(), {"dear"})).plan);
}

}  // namespace
}  // namespace talweg::study
