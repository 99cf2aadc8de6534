#include "study/predict_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "base/printable.h"
#include "base/units.h"
#include "study/plan_report.h"
#include "study/version.h"
#include "text/table.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;
using text::Quantity;

constexpr double kLeastGain = 0.005;
constexpr double kLarge = 256 << 20;  // bytes, of which it is said who sets their time
constexpr double kMostly = 0.9;

std::string megabytes(double bytes) {
  for (const auto& [size, unit] : {std::pair{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}})
    if (bytes >= size) return fmt::format("{} {}", text::number_text(bytes / size, 3), unit);
  return fmt::format("{:.0f} B", bytes);
}

std::string signed_percent(double part) {
  return fmt::format("{:+.1f} %", 100 * part);
}

// The names of what the job was told to be.
std::string changes_text(const StepQuestion& question) {
  std::string text;
  const auto add = [&](double value, const char* what) {
    if (value != 1) text += fmt::format(", {} {:.6g}", what, value);
  };
  add(question.batch, "batch times");
  add(question.compute, "compute faster by");
  add(question.compression, "gradients compressed by");
  return text;
}

std::string strategies_table(const StepQuestion& question, const StepStudy& study, bool wide) {
  const bool off = std::ranges::any_of(study.rows, [](const StepRow& row) { return row.off_by.has_value(); });
  std::vector<text::TableColumn> columns{{"strategy"},
                                         {.title = "step", .of = Quantity::seconds},
                                         {.title = "exposed", .of = Quantity::seconds},
                                         {.title = "speed-up", .of = Quantity::number},
                                         {.title = "network busy", .of = Quantity::seconds, .drop = 2},
                                         {.title = "calls", .of = Quantity::number, .drop = 1, .digits = 1}};
  if (off) columns.push_back({.title = "against measured", .drop = 3});
  text::Table table(std::move(columns));
  for (std::size_t i = 0; i < study.rows.size(); ++i) {
    const StepRow& row = study.rows[i];
    if (!row.suits()) {
      table.add({row.strategy.name, "-", "-", "-", "-", "-"});
      continue;
    }
    const train::Prediction& its = row.prediction;
    text::Cell step(its.step);
    if (i == study.best) step.text = "*";
    std::vector<text::Cell> cells{row.strategy.name, std::move(step),
                                  its.parts.exposed, speed_up_of(question, study, row),
                                  its.transfers,     static_cast<double>(its.calls)};
    if (off) cells.emplace_back(row.off_by ? signed_percent(*row.off_by) : "-");
    table.add(std::move(cells));
  }
  return table.text(wide);
}

// A line for each strategy, a column for each number of ranks.
std::string ranks_table(const StepQuestion& question, const StepStudy& study, bool wide) {
  std::vector<text::TableColumn> columns{{""}};
  for (std::size_t i = 0; i < question.ranks.size(); ++i)
    columns.push_back({.title = fmt::format("{} ranks", question.ranks[i]),
                       .of = Quantity::seconds,
                       .drop = i == 0 || i + 1 == question.ranks.size() ? 0 : static_cast<int>(i)});
  text::Table table(std::move(columns));
  for (const StepRow& row : study.rows) {
    if (!row.suits()) continue;
    std::vector<text::Cell> cells{row.strategy.name};
    for (const double step : row.steps) cells.emplace_back(step);
    table.add(std::move(cells));
  }
  return table.text(wide);
}

std::string fact(const char* name, const std::string& sentences, bool wide) {
  constexpr int kNameWidth = 9;
  return text::fact(name, sentences, kNameWidth, wide);
}

// What changes nothing has no line of its own.
std::string what_if_table(const StepStudy& study, bool wide) {
  text::Table table{{"what if"},
                    {.title = "step", .of = Quantity::seconds},
                    {.title = "samples a second", .of = Quantity::number, .unit = {1, "times"}}};
  table.add({"as it is", study.best_row().prediction.step, 1.0});
  std::string idle;
  for (const WhatIf& change : study.what_ifs)
    if (matters(change))
      table.add({change.words, change.step, change.speed_up});
    else
      idle += (idle.empty() ? "" : ", ") + change.words;
  if (idle.empty()) return table.text(wide);
  return table.text(wide) + text::in_lines("hardly anything is gained from: " + idle, wide);
}

// Parts of one kind behind each other; the gaps between them belong to them.
struct PathRun {
  train::PathPart first, last;
  int parts = 0;
  double seconds = 0;
};
constexpr std::size_t kMostPathRuns = 8, kFirstPathRuns = 3, kLastPathRuns = 4;

std::vector<PathRun> runs_of(const train::Prediction& prediction) {
  std::vector<PathRun> runs;
  for (const train::PathPart& part : prediction.critical) {
    const bool joins =
        !runs.empty() && (part.kind == train::TaskKind::gap || part.kind == runs.back().first.kind);
    if (!joins) runs.push_back({part, part, 0, 0});
    PathRun& run = runs.back();
    if (part.kind == run.first.kind) {
      run.last = part;
      ++run.parts;
    }
    run.seconds += part.seconds;
  }
  return runs;
}

std::string what_of(const train::Job& job, const PathRun& run) {
  const train::TaskKind kind = run.first.kind;
  if (run.parts == 1) return run.first.label;
  if (kind == train::TaskKind::collective)  // whose label begins with what it is
    return fmt::format("{} x {}", run.parts, run.first.label.substr(0, run.first.label.find(' ')));
  if (train::is_transfer(kind) || run.first.first < 0 || run.last.last < 0)
    return fmt::format("{} x {}", run.parts, train::name(kind));
  return fmt::format("{} {} .. {}", train::name(kind), job.layers[at(run.first.first)].name,
                     job.layers[at(run.last.last)].name);
}

Json microseconds(double seconds) {
  return std::isfinite(seconds) ? Json(seconds * 1e6) : Json();
}

Json parts_json(const train::StepParts& parts) {
  return {{"forward", microseconds(parts.forward)},   {"backward", microseconds(parts.backward)},
          {"update", microseconds(parts.update)},     {"gap", microseconds(parts.gap)},
          {"overhead", microseconds(parts.overhead)}, {"input", microseconds(parts.input)},
          {"exposed", microseconds(parts.exposed)},   {"peer_wait", microseconds(parts.peer_wait)}};
}

Json layers_json(const train::Job& job, const std::vector<int>& layers) {
  Json names = Json::array();
  for (const int layer : layers) names.push_back(job.layers[at(layer)].name);
  return names;
}

Json row_json(const StepQuestion& question, const StepStudy& study, const StepRow& row) {
  Json line = {{"name", row.strategy.name}, {"description", row.strategy.description}};
  if (!row.suits()) {
    line["left_out_because"] = row.unsuited;
    return line;
  }
  const train::Prediction& its = row.prediction;
  line["step_us"] = microseconds(its.step);
  line["exposed_us"] = microseconds(its.parts.exposed);
  line["speed_up"] = speed_up_of(question, study, row);
  line["parts_us"] = parts_json(its.parts);
  line["network_busy_us"] = microseconds(its.transfers);
  line["startups_us"] = microseconds(its.startups);
  line["sent_bytes"] = its.sent;
  line["calls"] = its.calls;
  line["against_measured"] = row.off_by ? Json(*row.off_by) : Json();
  line["bottleneck"] = its.bottleneck;
  line["critical_path"] = Json::array();
  for (const train::PathPart& part : its.critical)
    line["critical_path"].push_back(
        {{"kind", train::name(part.kind)}, {"what", part.label}, {"time_us", microseconds(part.seconds)}});
  line["buckets"] = Json::array();
  for (const Bucket& bucket : row.buckets)
    line["buckets"].push_back({{"layers", layers_json(question.job, bucket.layers)},
                               {"size_bytes", bucket.bytes},
                               {"ready_us", microseconds(bucket.ready)},
                               {"sent_us", microseconds(bucket.sent)},
                               {"arrived_us", microseconds(bucket.arrived)}});
  return line;
}

Json by_strategy(const StepStudy& study, const std::vector<std::vector<double>>& steps, std::size_t point) {
  Json by_name = Json::object();
  for (std::size_t i = 0; i < study.rows.size(); ++i)
    if (study.rows[i].suits()) by_name[study.rows[i].strategy.name] = microseconds(steps[i][point]);
  return by_name;
}

Json curves_json(const StepStudy& study, const StepCurves& curves, const char* x_name) {
  Json points = Json::array();
  for (std::size_t i = 0; i < curves.x.size(); ++i)
    points.push_back({{x_name, curves.x[i]},
                      {"step_us", by_strategy(study, curves.steps, i)},
                      {"alone_us", microseconds(curves.alone[i])}});
  return points;
}

// How sure a fit is: of its first piece and, where there are more, its last.
std::string confidence_text(const train::Fit& fit) {
  const auto one = [](const train::Fit::Piece& piece) {
    if (!std::isfinite(piece.startup_error)) return std::string("too few sizes to tell");
    return fmt::format("+- {:.3g} us and +- {:.3g} ns/B", piece.startup_error * 1e6,
                       piece.per_byte_error * 1e9);
  };
  std::string text = "; 95 % confidence: " + one(fit.pieces.front());
  if (fit.pieces.size() > 1) text += ", at last " + one(fit.pieces.back());
  return text;
}

Json fit_json(const train::Fit& fit, int ranks) {
  const auto finite = [](double value, double unit) {
    return std::isfinite(value) ? Json(value * unit) : Json();
  };
  Json pieces = Json::array();
  for (const train::Fit::Piece& piece : fit.pieces)
    pieces.push_back({{"from_bytes", piece.from},
                      {"samples", piece.samples},
                      {"startup_us", piece.startup * 1e6},
                      {"startup_error_us", finite(piece.startup_error, 1e6)},
                      {"per_byte_ns", piece.per_byte * 1e9},
                      {"per_byte_error_ns", finite(piece.per_byte_error, 1e9)}});
  return {
      {"ranks", ranks}, {"relative_error", fit.error}, {"confidence", 0.95}, {"pieces", std::move(pieces)}};
}

// Of plans that a group does not end with.
std::string interim_text(const train::NetworkTimes& times) {
  if (times.interim.missing.empty()) return {};
  return fmt::format(
      "; with {}, which a group begins with: it plans on in the background, and {} may then be quicker",
      fmt::join(times.interim.taken, ", "), fmt::join(times.interim.missing, ", "));
}

std::string in_flight_text(const StepQuestion& question) {
  return question.in_flight > 1 ? fmt::format("; {} in flight at once", question.in_flight) : "";
}

Json network_json(const StepQuestion& question) {
  const train::NetworkTimes times = question.network.at(question.ranks.back());
  Json pieces = Json::array();
  for (const auto& piece : times.all_reduce.pieces())
    pieces.push_back({{"from_bytes", piece.from},
                      {"startup_us", microseconds(piece.startup)},
                      {"per_byte_ns", piece.per_byte * 1e9}});
  return {{"kind", question.network.kind},
          {"times", question.network.times},
          {"description", question.network.words},
          {"all_reduce", pieces},
          {"fit", question.network.fit ? fit_json(*question.network.fit, question.job.ranks) : Json()},
          {"interim", {{"taken", times.interim.taken}, {"missing", times.interim.missing}}},
          {"in_flight", question.in_flight}};
}

}  // namespace

bool matters(const WhatIf& change) {
  return !(std::abs(change.speed_up - 1) < kLeastGain);
}

double speed_up_of(const StepQuestion& question, const StepStudy& study, const StepRow& row) {
  const int ranks = question.ranks.back();
  return row.prediction.step > 0 ? ranks * study.alone / row.prediction.step : ranks;
}

std::string job_line(const StepQuestion& question) {
  const train::Job& job = question.job;
  std::string text = fmt::format("{} ({}): {}, {} {}, {} of gradients", question.source, question.kind,
                                 job.name, job.layers.size(), job.layers.size() == 1 ? "layer" : "layers",
                                 megabytes(static_cast<double>(job.gradients().value)));
  if (job.batch > 0) text += fmt::format(", batch of {}", job.batch);
  text += job.origin == train::Origin::estimated ? "; times are estimated" : "; times are measured";
  return text + changes_text(question);
}

std::string network_line(const StepQuestion& question) {
  const int ranks = question.ranks.back();
  const train::NetworkTimes network = question.network.at(ranks);
  const train::TransferTimes& times = network.all_reduce;
  const std::string behind = (question.network.fit ? confidence_text(*question.network.fit) : "") +
                             interim_text(network) + in_flight_text(question);
  std::string text = fmt::format("{}; on {} ranks an all-reduce ", question.network.words, ranks);
  if (times.pieces().size() == 1) return text + "takes " + train::to_string(times) + behind;
  text += "of";
  for (const int mib : {1, 16, 256})
    text += fmt::format(" {} MiB takes {}{}", mib, duration_text(times.seconds(mib * 1048576.0)),
                        mib < 256 ? "," : "");
  if (times.seconds(kLarge) > 0 && network.least.all_reduce.seconds(kLarge) > kMostly * times.seconds(kLarge))
    text += ", which hosts' processors set, not links";
  return text + behind;
}

std::string measured_line(const StepQuestion& question, const StepStudy& study) {
  if (!study.measured) return {};
  const int ranks = question.job.ranks;
  std::string text =
      fmt::format("{} a step on {} {}", duration_text(*study.measured), ranks, ranks == 1 ? "rank" : "ranks");
  if (study.replayed)
    text += fmt::format("; played back by the model: {} ({})", duration_text(*study.replayed),
                        signed_percent(*study.replayed / *study.measured - 1));
  return text;
}

std::string gaps_line(const StepQuestion& question) {
  if (question.launch_gaps.value + question.stream_gaps.value == 0) return {};
  const auto seconds = [](Nanoseconds time) { return static_cast<double>(time.value) * 1e-9; };
  return fmt::format(
      "a step's passes wait {} for launches by the host and {} for other streams or memory, as recorded",
      duration_text(seconds(question.launch_gaps)), duration_text(seconds(question.stream_gaps)));
}

std::string buckets_line(const StepQuestion& question) {
  if (!question.bucket_caps) return {};
  return fmt::format("those recorded are what DistributedDataParallel fills up to {}, the first up to {}",
                     to_string(question.bucket_caps->others), to_string(question.bucket_caps->first));
}

std::string critical_path_text(const train::Job& job, const train::Prediction& prediction) {
  const std::vector<PathRun> runs = runs_of(prediction);
  std::string text;
  for (std::size_t i = 0; i < runs.size();) {
    double seconds = runs[i].seconds;
    std::string what = what_of(job, runs[i]);
    std::size_t next = i + 1;
    if (runs.size() > kMostPathRuns && i == kFirstPathRuns) {  // its middle in one
      for (; next < runs.size() - kLastPathRuns; ++next) seconds += runs[next].seconds;
      what = fmt::format("{} more parts", next - i);
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, duration_text(seconds));
    i = next;
  }
  return text;
}

std::string plan_line(const StepStudy& study) {
  if (!study.plan) return "PyTorch's DistributedDataParallel runs none of these";
  const StepRow& row = study.rows[*study.plan];
  std::string text =
      fmt::format("{}, {} {}: {} a step", row.strategy.name, row.buckets.size(),
                  row.buckets.size() == 1 ? "bucket" : "buckets", duration_text(row.prediction.step));
  if (!runs_under_ddp(row.strategy))
    return text + " where layers update one by one, which PyTorch's optimisers do not";
  if (!study.baseline || *study.baseline == *study.plan) return text;
  const double before = study.rows[*study.baseline].prediction.step;
  const double gain = times_as_quick(before, row.prediction.step);
  if (gain < 1 + kLeastGain) return text + ", hardly less than with PyTorch's own buckets";
  return text +
         fmt::format(", {:.2f} times as quick as PyTorch's own buckets ({})", gain, duration_text(before));
}

std::string bandwidth_line(const StepStudy& study) {
  const std::string& name = study.best_row().strategy.name;
  if (!study.has_rate) return "what more bandwidth brings cannot be told: the network's times have no rate";
  if (!study.enough_bandwidth) return fmt::format("with {}, more bandwidth always helps", name);
  const double enough = *study.enough_bandwidth;
  if (enough > 1)
    return fmt::format("with {}, more bandwidth helps up to {} times what there is; beyond, less than 1 %",
                       name, text::number_text(enough, 3));
  return fmt::format("with {}, {:.2g} of the bandwidth that there is would do: more gains less than 1 %",
                     name, enough);
}

std::string to_text(const StepQuestion& question, const StepStudy& study, bool wide) {
  std::string text = fact("job", printable(job_line(question)), wide);
  text += fact("network", printable(network_line(question)), wide);
  if (const std::string line = measured_line(question, study); !line.empty())
    text += fact("measured", line, wide);
  if (const std::string line = gaps_line(question); !line.empty()) text += fact("gaps", line, wide);
  if (const std::string line = buckets_line(question); !line.empty()) text += fact("buckets", line, wide);
  for (const std::string& note : question.notes) text += fact("note", printable(note), wide);
  text += fmt::format(
      "\na step on {} ranks; * is the least; exposed: waits for gradients; speed-up: over one rank\n",
      question.ranks.back());
  text += strategies_table(question, study, wide);
  for (const StepRow& row : study.rows)
    if (!row.suits()) text += fmt::format("{}: {}\n", row.strategy.name, printable(row.unsuited));
  if (question.ranks.size() > 1) text += "\na step by ranks\n" + ranks_table(question, study, wide);
  const StepRow& best = study.best_row();
  text += "\n" + text::in_lines(
                     fmt::format("{}: {}", best.strategy.name, printable(best.prediction.bottleneck)), wide);
  text +=
      text::in_lines("critical path: " + printable(critical_path_text(question.job, best.prediction)), wide) +
      "\n";
  text += what_if_table(study, wide);
  text += text::in_lines(bandwidth_line(study), wide);
  return text + "\n" + text::in_lines("plan: " + plan_line(study), wide);
}

nlohmann::json to_json(const StepQuestion& question, const StepStudy& study) {
  const train::Job& job = question.job;
  Json document = {{"format", "talweg predict"}, {"format_version", 1}, {"talweg_version", kVersion}};
  document["job"] = {{"source", question.source},
                     {"kind", question.kind},
                     {"name", job.name},
                     {"origin", train::name(job.origin)},
                     {"layers", job.layers.size()},
                     {"gradient_bytes", job.gradients().value},
                     {"batch", job.batch > 0 ? Json(job.batch) : Json()},
                     {"ranks", job.ranks},
                     {"forward_us", static_cast<double>(job.forward().value) * 1e-3},
                     {"backward_us", static_cast<double>(job.backward().value) * 1e-3}};
  document["job"]["launch_gaps_us"] = static_cast<double>(question.launch_gaps.value) * 1e-3;
  document["job"]["stream_gaps_us"] = static_cast<double>(question.stream_gaps.value) * 1e-3;
  document["job"]["bucket_caps"] = question.bucket_caps
                                       ? Json{{"first_bytes", question.bucket_caps->first.value},
                                              {"bytes", question.bucket_caps->others.value}}
                                       : Json();
  document["network"] = network_json(question);
  document["ranks"] = question.ranks.back();
  document["changed"] = {
      {"compute", question.compute}, {"batch", question.batch}, {"compression", question.compression}};
  document["one_rank_us"] = microseconds(study.alone);
  document["measured_us"] = study.measured ? microseconds(*study.measured) : Json();
  document["replayed_us"] = study.replayed ? microseconds(*study.replayed) : Json();
  document["strategies"] = Json::array();
  for (const StepRow& row : study.rows) document["strategies"].push_back(row_json(question, study, row));
  document["best"] = study.best_row().strategy.name;
  document["plan"] = study.plan ? Json::parse(plan_document(job, study.rows[*study.plan])) : Json();
  document["plan_of"] = study.plan ? Json(study.rows[*study.plan].strategy.name) : Json();
  document["by_ranks"] = Json::array();
  for (std::size_t i = 0; i < question.ranks.size(); ++i) {
    Json by_name = Json::object();
    for (const StepRow& row : study.rows)
      if (row.suits()) by_name[row.strategy.name] = microseconds(row.steps[i]);
    document["by_ranks"].push_back({{"ranks", question.ranks[i]}, {"step_us", std::move(by_name)}});
  }
  document["what_if"] = Json::array();
  for (const WhatIf& change : study.what_ifs)
    document["what_if"].push_back({{"what", change.words},
                                   {"step_us", microseconds(change.step)},
                                   {"samples_per_s_times", change.speed_up}});
  document["enough_bandwidth_times"] = study.enough_bandwidth ? Json(*study.enough_bandwidth) : Json();
  if (study.over_ranks) document["over_ranks"] = curves_json(study, *study.over_ranks, "ranks");
  if (study.over_bandwidth)
    document["over_bandwidth"] = curves_json(study, *study.over_bandwidth, "bandwidth_times");
  document["notes"] = question.notes;
  return document;
}

}  // namespace talweg::study
