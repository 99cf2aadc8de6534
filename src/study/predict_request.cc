#include "study/predict_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/fail.h"
#include "base/settings.h"
#include "base/units.h"
#include "formats/import.h"
#include "study/sizes.h"
#include "train/fit_times.h"
#include "train/models.h"
#include "train/traces/read_job.h"

namespace talweg::study {
namespace {

constexpr int kMostStepRanks = 1 << 16;
constexpr const char* kUsualDevice = "v100";
constexpr double kLeastChange = 1e-3, kMostChange = 1e6;

// What --strategy names; "all" among them: every one.
std::vector<train::Strategy> strategies_asked_for(const PredictRequest& request, bool& all) {
  const Bytes cap = [&] {
    try {
      return parse_bytes(request.bucket_cap);
    } catch (const Error& error) {
      throw_error(error.code(), "--bucket-cap: {}", error.what());
    }
  }();
  all = false;
  std::vector<train::Strategy> found;
  std::istringstream parts(request.strategy);
  for (std::string part; std::getline(parts, part, ',');) {
    all = all || part == "all";
    if (part == "all") continue;
    try {
      const train::Strategy strategy = train::find_strategy(part);
      if (std::ranges::find(found, strategy.name, &train::Strategy::name) == found.end())
        found.push_back(strategy);
    } catch (const Error& error) {
      throw_error(error.code(), "--strategy: {}", error.what());
    }
  }
  if (found.empty() && !all) refuse("--strategy: expected names, such as ddp,exact, or all");
  if (all) found = train::strategies();
  if (request.bucket_cap == PredictRequest{}.bucket_cap) return found;
  const auto fills = [](const train::Strategy& strategy) {
    return strategy.merging.rule == train::Merging::Rule::by_size;
  };
  if (std::ranges::none_of(found, fills))
    refuse("--bucket-cap: none of --strategy {} fills buckets by size, as ddp does", request.strategy);
  for (train::Strategy& strategy : found) {
    if (!fills(strategy)) continue;
    strategy.merging.cap = strategy.merging.first_cap = cap;
  }
  return found;
}

// What the files say, or a ready-made job.
void read_step_job(const PredictRequest& request, StepQuestion& question, const train::WatchReading& watch) {
  if (request.job.empty() == request.model.empty())
    refuse("{}", request.job.empty() ? "of which job? give its file, traces of a step, or --model"
                                     : "--model: not beside a file");
  const auto of_option = [](const char* option, auto find) {
    try {
      return find();
    } catch (const Error& error) {
      throw_error(error.code(), "{}: {}", option, error.what());
    }
  };
  const train::Device device = of_option(
      "--device", [&] { return train::find_device(request.device.empty() ? kUsualDevice : request.device); });
  if (!request.model.empty()) {
    question.job = of_option("--model", [&] { return train::make_model(request.model, {.device = device}); });
    question.source = "on " + device.name;
    question.kind = "model";
    return;
  }
  train::TraceJob read = train::read_job(request.job, device, watch);
  if (!request.device.empty() && read.kind != train::TraceKind::onnx)
    refuse("--device: only beside --model or an ONNX graph: the times of {} are its own",
           request.job.front());
  question.job = std::move(read.job);
  question.source = request.job.size() == 1
                        ? request.job.front()
                        : fmt::format("{} and {} more", request.job.front(), request.job.size() - 1);
  question.kind = train::name(read.kind);
  question.notes = std::move(read.notes);
  question.launch_gaps = read.launch_gaps;
  question.stream_gaps = read.stream_gaps;
  question.bucket_caps = read.bucket_caps;
}

// The numbers of ranks that are asked for: those said, the network's workers, or those that recorded the job.
std::vector<int> ranks_asked_for(const PredictRequest& request, const train::Job& job) {
  if (!request.ranks.empty()) return parse_ranks(request.ranks, kMostStepRanks);
  if (request.rate.empty() && request.alpha_beta.empty()) {
    const auto file = resolve("TALWEG_CLUSTER", request.cluster);
    if (!file.value.empty()) return {std::max(2, formats::load_any(file.value).workers())};
  }
  if (job.ranks < 2) refuse("--ranks: the job is of one rank: say for how many, such as 8 or 2..64");
  return {job.ranks};
}

NetworkWords network_words(const PredictRequest& request) {
  return {request.cluster, request.rate, request.alpha_beta, request.times};
}

}  // namespace

std::optional<train::Job> job_without_network(const PredictRequest& request,
                                              const train::WatchReading& watch) {
  StepQuestion question;
  const NetworkWords words = network_words(request);
  check_network(words);
  if (knows_network(words, {})) return std::nullopt;
  read_step_job(request, question, watch);
  if (knows_network(words, question.job)) return std::nullopt;
  return std::move(question.job);
}

std::span<const Field<PredictRequest>> predict_fields() {
  using R = PredictRequest;
  static const Field<R> kFields[] = {
      // clang-format off
      {.name = "job", .letters = ".", .member = &R::job,
       .help = "file of the job, or traces of one step, those of several ranks together"},
      {.name = "model", .letters = "", .member = &R::model,
       .help = "a ready-made job in place of a file, such as resnet50: its times are estimated"},
      {.name = "device", .letters = "", .member = &R::device, .help = "that --model or an ONNX graph runs on (default: v100)"},
      {.name = "cluster", .letters = "", .member = &R::cluster,
       .help = "file that describes the network (default: TALWEG_CLUSTER, or what the job has recorded)", .group = "Network"},
      {.name = "rate", .letters = "", .member = &R::rate,
       .help = "equal hosts: the rate of each, or RATE,LATENCY from one to another", .group = "Network"},
      {.name = "alpha-beta", .letters = "", .member = &R::alpha_beta,
       .help = "of an all-reduce, measured: its start-up and the time of a byte, such as 523us,0.857ns/B",
       .group = "Network"},
      {.name = "times", .letters = "", .member = &R::times,
       .help = "of transfers on --cluster or --rate: by the cost model, or by simulating one of each size up to 16 MiB",
       .words = "predicted,simulated", .group = "Network"},
      {.name = "in-flight", .letters = "", .member = &R::in_flight,
       .help = "transfers under way at once, whose start-ups overlap; 1 for NCCL (default: the job's)", .least = 1,
       .most = train::kMostInFlight, .group = "Network"},
      {.name = "ranks", .letters = "-n", .member = &R::ranks,
       .help = "a list, or FIRST..LAST; details are of the largest (default: the network's or the job's)"},
      {.name = "strategy", .letters = "", .member = &R::strategy,
       .help = "these alone, with commas; -o writes the plan of the best"},
      {.name = "bucket-cap", .letters = "", .member = &R::bucket_cap,
       .help = "of strategies that fill buckets by size, such as ddp, whose first has 1M as long as this is not set"},
      {.name = "compress", .letters = "", .member = &R::compress,
       .help = "what if gradients were sent in so many times fewer bytes", .least = kLeastChange, .most = kMostChange,
       .group = "What if"},
      {.name = "faster", .letters = "", .member = &R::faster,
       .help = "what if devices were so many times as fast", .least = kLeastChange, .most = kMostChange,
       .group = "What if"},
      {.name = "batch", .letters = "", .member = &R::batch,
       .help = "what if each rank took so many times the samples in a step", .least = kLeastChange, .most = kMostChange,
       .group = "What if"},
      // clang-format on
  };
  return kFields;
}

train::Setting StepQuestion::setting(int n) const {
  train::Setting found{.network = network.at(n),
                       .compute = compute,
                       .batch = batch,
                       .compression = compression,
                       .in_flight = in_flight};
  if (network.kind == "recorded")
    found.recorded_on = network.at(job.ranks);
  else if (const double call = train::call_of(job); call > 0)
    found.network = found.network.with_call(call);
  return found;
}

StepQuestion checked(const PredictRequest& request, const train::WatchReading& watch) {
  StepQuestion question;
  question.strategies = strategies_asked_for(request, question.all_strategies);
  read_step_job(request, question, watch);
  if (question.job.gradients().value == 0)
    throw_error(ErrorCode::bad_file, "{}: no layer has a gradient{}", question.source,
                question.kind == train::name(train::TraceKind::kineto)
                    ? " whose size is known: expected traces recorded with record_shapes=True, or PyTorch's "
                      "execution traces beside them"
                    : ": there is nothing to exchange");
  const NetworkWords words = network_words(request);
  check_network(words);
  question.ranks = ranks_asked_for(request, question.job);
  question.network = predict_network(words, question.job, question.ranks.back());
  for (const std::string& note : {question.network.assumed, question.network.misfit})
    if (!note.empty()) question.notes.push_back(note);
  if (const int most = question.network.most_ranks; most > 0 && question.ranks.back() > most)
    refuse("--ranks {}: the cluster has {} workers", question.ranks.back(), most);
  // Recorded times are of transfers in turn, which hold what those in flight together hid of each other.
  const bool in_turn = question.network.kind == "recorded";
  question.in_flight = request.in_flight > 0 ? request.in_flight : in_turn ? 1 : question.job.in_flight;
  question.compression = request.compress;
  question.compute = request.faster;
  question.batch = request.batch;
  return question;
}

}  // namespace talweg::study
