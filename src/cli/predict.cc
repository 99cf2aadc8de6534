// talweg predict: what a training step takes on a network by each strategy, what limits it, and the plan that
// is best.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/settings.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "study/predict_page.h"
#include "study/predict_report.h"
#include "study/predict_request.h"
#include "study/predict_study.h"
#include "study/progress.h"
#include "text/escape.h"
#include "text/output_file.h"

namespace talweg::cli {
namespace {

constexpr const char* kPredictExamples = R"(
JOB says what a step computes and exchanges, layer by layer. Strategies are ways to send gradients: when, and which of
them together. The least step is marked with *; the plan is the best of those that PyTorch's DistributedDataParallel
runs once talweg.torch.apply_plan() has read it. The exposed part of communication is what nothing hides: the device
waits for it.

A cluster file has as many ranks as it has workers; with -n the first of them take part. --alpha-beta holds for the
largest -n, and grows with others as it does in rings. Where the job has measured its step, the table says by how much a
prediction for as many ranks is off.

Examples:
  talweg predict job.yaml --rate 10Gbit/s -n 8
  talweg predict job.yaml --cluster cluster.yaml --html step.html     # the step over time, what if, all layers
  talweg predict job.yaml --alpha-beta 523us,0.857ns/B -n 8 --strategy ddp,exact
  talweg predict job.yaml --rate 25Gbit/s -n 2..64 --faster 4         # on devices four times as fast
  talweg predict job.yaml --cluster cluster.yaml -o plan.json         # which layers travel together
  talweg predict rank*.json.gz --save-job job.yaml                    # what traces come to, to be changed by hand)";

using text::OutputFile;

struct PredictOutputs {
  std::string out, html, json, save_job;
  bool wide = false;
};

// On a terminal it says after a second how far it is.
study::ProgressLine progress_line() {
  return study::ProgressLine(std::chrono::seconds(1), std::nullopt);
}

study::StepStudy studied_step(const study::StepQuestion& question) {
  study::ProgressLine line = progress_line();
  return study_step(question, [&](std::size_t done, std::size_t all) {
    if (line.due()) line.say(fmt::format("talweg predict: {} of {} steps predicted", done, all));
  });
}

// What `read` comes to, which is told how to watch the reading of files.
template <class Read>
auto reading(Read&& read) {
  study::ProgressLine line = progress_line();
  return std::forward<Read>(read)([&](std::uint64_t done, std::uint64_t all) {
    if (line.due())
      line.say(fmt::format("talweg predict: {} of {} MB read", done / 1'000'000, all / 1'000'000));
  });
}

void save(const OutputFile& file, const std::string& path, const train::Job& job) {
  file.write(path.ends_with(".json") ? train::to_json(job) : train::to_yaml(job));
}

int predict(const study::PredictRequest& request, const PredictOutputs& outputs) {
  const char* standard = nullptr;
  for (const auto& [option, path] : {std::pair{"--json", &outputs.json},
                                     {"--html", &outputs.html},
                                     {"-o", &outputs.out},
                                     {"--save-job", &outputs.save_job}}) {
    if (*path != "-") continue;
    if (standard != nullptr) refuse("{} - and {} -: only one can have standard output", standard, option);
    standard = option;
  }
  std::vector<std::string> inputs = request.job;
  inputs.push_back(resolve("TALWEG_CLUSTER", request.cluster).value);
  text::check_outputs({outputs.json, outputs.out, outputs.html, outputs.save_job}, inputs);
  // Without a network there is nothing to predict, but a job to save.
  if (!outputs.save_job.empty() && outputs.out.empty() && outputs.html.empty() && outputs.json.empty()) {
    if (const auto job = reading([&](const auto& watch) { return job_without_network(request, watch); })) {
      save(OutputFile("--save-job", outputs.save_job), outputs.save_job, *job);
      return 0;
    }
  }
  study::StepQuestion question = reading([&](const auto& watch) { return checked(request, watch); });
  const OutputFile json("--json", outputs.json), out("-o", outputs.out), html("--html", outputs.html),
      save_job("--save-job", outputs.save_job);
  question.curves = json.wanted() || html.wanted();
  const study::StepStudy found = studied_step(question);
  if (out.wanted() && !found.plan)
    refuse("-o {}: PyTorch's DistributedDataParallel runs none of --strategy {}", outputs.out,
           request.strategy);
  std::fputs(to_text(question, found, outputs.wide).c_str(), standard != nullptr ? stderr : stdout);
  if (json.wanted()) json.write(text::json_document(to_json(question, found)));
  if (html.wanted()) html.write(predict_page(question, found));
  if (save_job.wanted()) save(save_job, outputs.save_job, question.job);
  if (out.wanted()) out.write(plan_document(question.job, found.rows[*found.plan]));
  return 0;
}

}  // namespace

void add_predict(CLI::App& app, Action* action) {
  auto request = std::make_shared<study::PredictRequest>();
  auto outputs = std::make_shared<PredictOutputs>();
  auto* sub =
      app.add_subcommand("predict", "what a training step takes on a network, and which plan is best for it");
  sub->footer(kPredictExamples);
  add_fields(*sub, study::predict_fields(), request);
  sub->add_option("-o,--out", outputs->out, "write the best plan into this file, as JSON for talweg.torch");
  sub->add_option(
      "--save-job", outputs->save_job,
      "write the job that was read, or --model, into this file: as YAML, or as JSON if it ends in .json");
  sub->add_option("--html", outputs->html, "write a page of pictures into this file");
  sub->add_option("-J,--json", outputs->json,
                  "as JSON, into this file; - for standard output, the tables then go to standard error");
  add_wide(*sub, outputs->wide);
  sub->callback([=] { *action = [=] { return predict(*request, *outputs); }; });
}

}  // namespace talweg::cli
