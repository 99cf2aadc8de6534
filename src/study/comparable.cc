#include "study/comparable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/fail.h"
#include "base/units.h"
#include "talweg/types.h"
#include "text/json_fields.h"
#include "text/yaml_reader.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;
using text::Quantity;

constexpr int kResultVersion = 1;  // of every format that is read here

const Json& list_in(const Json& object, const char* key) {
  const Json& value = text::field(object, key);
  if (!value.is_array())
    throw_error(ErrorCode::bad_file, "{}: expected a list, got {}", key, value.type_name());
  return value;
}

// Empty where there is none; a list may be missing.
const Json& optional_list_in(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  return object.contains(key) ? list_in(object, key) : kNone;
}

// Null stands for what has no value, such as a rate without an end.
std::optional<double> number_in(const Json& object, const char* key, double unit) {
  if (text::field(object, key).is_null()) return std::nullopt;
  return text::number_field(object, key) * unit;
}

std::int64_t whole_in(const Json& object, const char* key) {
  std::int64_t value = 0;
  text::read_field(object, key, value);
  return value;
}

std::string of_collective(const Json& document, std::int64_t ranks) {
  return fmt::format("{} of {} {}", text::text_field(document, "collective"), ranks,
                     ranks == 1 ? "rank" : "ranks");
}

// "1 MiB"; what else the data are is said where it is not what it mostly is.
std::string data_text(const Json& row, const Json& root, const std::string& type,
                      const std::string& reduction) {
  std::string text = to_string(Bytes{whole_in(row, "size_bytes")});
  const auto known = parse_data_type(type);
  if (known != DataType::f32) text += ", " + (known ? std::string(name(*known)) : type);
  if (reduction != "sum" && reduction != "none") text += ", " + reduction;
  if (root.is_number_integer() && root.get<std::int64_t>() > 0)
    text += fmt::format(", root {}", root.get<std::int64_t>());
  return text;
}

// "packed through agg" is one of packed's.
std::string planner_in(const Json& row) {
  const std::string title = text::text_field(row, "algorithm");
  return title == "-" ? "" : title.substr(0, title.find(" through "));
}

void read_candidates(const Json& row, Measure measure, ResultFile& file) {
  measure.what = "time";
  for (const Json& candidate : list_in(row, "candidates")) {
    if (candidate.contains("left_out_because")) continue;
    measure.planner = planner_in(candidate);
    measure.value = number_in(candidate, "predicted_us", 1e-6);
    file.measures.push_back(measure);
  }
}

void add_taken(Measure measure, const std::string& planner, ResultFile& file) {
  measure.what = "taken";
  measure.quantity = Quantity::text;
  measure.word = planner;
  file.measures.push_back(std::move(measure));
}

void read_plan_results(const Json& document, ResultFile& file) {
  const Json& network = text::field(document, "network");
  Measure measure;
  measure.of = of_collective(document, whole_in(network, "workers"));
  file.about = fmt::format("{}, {}", measure.of, text::text_field(network, "file"));
  const Json& root = text::field(document, "root");
  const std::string type = text::text_field(document, "type");
  if (const Json& bound = text::field(document, "bound"); bound.contains("rate_Gbit_per_s")) {
    Measure most = measure;
    most.what = "bound";
    most.where = "any plan";
    most.quantity = Quantity::bits_per_second;
    most.value = number_in(bound, "rate_Gbit_per_s", 1e9);
    file.measures.push_back(std::move(most));
  }
  for (const Json& row : list_in(document, "sizes")) {
    measure.where = data_text(row, root, type, "sum");
    if (!text::field(row, "taken").is_null()) add_taken(measure, text::text_field(row, "taken"), file);
    read_candidates(row, measure, file);
  }
}

void read_info_results(const Json& document, ResultFile& file) {
  Measure measure;
  measure.of = of_collective(document, whole_in(document, "ranks"));
  file.about = fmt::format("{}, {}", measure.of, text::text_field(document, "network"));
  for (const Json& row : list_in(document, "sizes")) {
    measure.where = data_text(row, nullptr, "f32", "sum");
    // Earlier versions always had what is taken first.
    if (const Json& candidates = list_in(row, "candidates");
        !candidates.empty() && !(row.contains("taken") && row["taken"].is_null()))
      add_taken(measure, planner_in(candidates.front()), file);
    read_candidates(row, measure, file);
  }
}

// What perf measures, or simulate does in its place. Of a simulation both sides are one run.
void read_calls(const Json& document, bool both_sides, ResultFile& file) {
  Measure measure;
  measure.of = of_collective(document, std::ssize(list_in(document, "ranks")));
  file.about = measure.of;
  for (const Json& row : list_in(document, "results")) {
    measure.planner = planner_in(row);
    const std::string data = data_text(row, text::field(row, "root"), text::text_field(row, "type"),
                                       text::text_field(row, "redop"));
    for (const char* side : {"out_of_place", "in_place"}) {
      const Json& times = text::field(row, side);
      const bool in_place = std::string_view(side) == "in_place";
      if (times.is_null() || (in_place && !both_sides)) continue;
      measure.where = data + (in_place ? ", in place" : "");
      for (const char* what : {"time", "p50", "p99"}) {
        measure.what = what;
        measure.value = number_in(times, (measure.what + "_us").c_str(), 1e-6);
        file.measures.push_back(measure);
      }
    }
  }
}

void read_perf_results(const Json& document, ResultFile& file) {
  read_calls(document, true, file);
}

void read_simulate_results(const Json& document, ResultFile& file) {
  if (document.contains("results")) read_calls(document, false, file);
  file.about += (file.about.empty() ? "" : ", ") + text::text_field(document, "network");
  Measure measure;
  for (const Json& group : optional_list_in(document, "groups")) {
    measure.where =
        fmt::format("group {} of {} ranks", text::text_field(group, "name"), whole_in(group, "ranks"));
    measure.what = "communication";
    measure.value = number_in(group, "communication_us", 1e-6);
    file.measures.push_back(measure);
    double sum = 0;
    const Json& iterations = list_in(group, "iterations_us");
    for (const Json& took : iterations) {
      if (!took.is_number()) throw Error(ErrorCode::bad_file, "iterations_us: expected a list of numbers");
      sum += took.get<double>();
    }
    measure.what = "iteration";
    measure.value.reset();
    if (!iterations.empty()) measure.value = 1e-6 * sum / static_cast<double>(iterations.size());
    file.measures.push_back(measure);
  }
  measure.what = "took";
  for (const Json& flow : optional_list_in(document, "flows")) {
    measure.where = fmt::format("flow {} {}->{}", whole_in(flow, "id"), text::text_field(flow, "from"),
                                text::text_field(flow, "to"));
    measure.value = number_in(flow, "took_us", 1e-6);
    file.measures.push_back(measure);
  }
}

// Steps by strategy, of each number of ranks.
void read_predict_results(const Json& document, ResultFile& file) {
  Measure measure;
  const Json& job = text::field(document, "job");
  file.job = text::text_field(job, "name");
  file.job_size = fmt::format("{} layers, {} bytes of gradients", whole_in(job, "layers"),
                              whole_in(job, "gradient_bytes"));
  measure.of = fmt::format("a step of {}", file.job);
  const Json& network = text::field(document, "network");
  file.about = fmt::format("{}, {}", measure.of, text::text_field(network, "description"));
  measure.where = fmt::format("{} ranks", whole_in(document, "ranks"));
  Measure best = measure;
  best.what = "best";
  best.quantity = Quantity::text;
  best.word = text::text_field(document, "best");
  file.measures.push_back(std::move(best));
  measure.what = "exposed";
  for (const Json& strategy : list_in(document, "strategies")) {
    if (strategy.contains("left_out_because")) continue;
    measure.planner = text::text_field(strategy, "name");
    measure.value = number_in(strategy, "exposed_us", 1e-6);
    file.measures.push_back(measure);
  }
  measure.what = "step";
  for (const Json& point : list_in(document, "by_ranks")) {
    measure.where = fmt::format("{} ranks", whole_in(point, "ranks"));
    for (const auto& [name, step] : text::field(point, "step_us").items()) {
      if (!step.is_number()) throw Error(ErrorCode::bad_file, "step_us: expected numbers by strategy");
      measure.planner = name;
      measure.value = step.get<double>() * 1e-6;
      file.measures.push_back(measure);
    }
  }
}

// A sweep's numbers say their unit at the end of their name; those without one have none.
void set_named_number(const std::string& name, double value, Measure& measure) {
  struct Suffix {
    std::string_view text;
    Quantity quantity;
    double unit;
  };
  constexpr Suffix kSuffixes[] = {{"_s", Quantity::seconds, 1},
                                  {"_ms", Quantity::seconds, 1e-3},
                                  {"_us", Quantity::seconds, 1e-6},
                                  {"_ns", Quantity::seconds, 1e-9},
                                  {"_GB_per_s", Quantity::bits_per_second, 8e9},
                                  {"_Gbit_per_s", Quantity::bits_per_second, 1e9}};
  measure.what = name;
  measure.quantity = Quantity::number;
  measure.value = value;
  for (const Suffix& suffix : kSuffixes) {
    if (name.size() <= suffix.text.size() || !name.ends_with(suffix.text)) continue;
    if (suffix.text == "_s" && name.ends_with("_per_s")) continue;
    measure.what = name.substr(0, name.size() - suffix.text.size());
    measure.quantity = suffix.quantity;
    measure.value = value * suffix.unit;
  }
  std::ranges::replace(measure.what, '_', ' ');
}

void read_sweep_results(const Json& document, ResultFile& file) {
  const Json& points = list_in(document, "points");
  file.about = fmt::format("{} points", points.size());
  for (const Json& point : points) {
    if (!point.is_object() || point.contains("error")) continue;
    Measure measure;
    for (const auto& [option, value] : text::field(point, "point").items())
      measure.where += fmt::format("{}{}={}", measure.where.empty() ? "" : " ", option,
                                   value.is_string() ? value.get<std::string>() : value.dump());
    const Json& numbers = text::field(point, "numbers");
    if (numbers.contains("algorithm")) measure.planner = planner_in(numbers);
    for (const auto& [name, value] : numbers.items()) {
      if (!value.is_number()) continue;
      set_named_number(name, value.get<double>(), measure);
      file.measures.push_back(measure);
    }
  }
}

// Nothing where null stands for a limit that was not found.
void add_estimate(const Json& object, const char* key, const char* what, const std::string& where,
                  ResultFile& file) {
  const Json& estimate = text::field(object, key);
  if (estimate.is_null()) return;
  file.measures.push_back(
      {what, "", where, "", Quantity::bits_per_second, number_in(estimate, "bit_per_s", 1)});
}

void read_probe_results(const Json& document, ResultFile& file) {
  const Json& hosts = list_in(document, "hosts");
  file.about = fmt::format("{} hosts", hosts.size());
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const std::string host = text::text_field(hosts[h], "name");
    add_estimate(hosts[h], "up", "up", host, file);
    add_estimate(hosts[h], "down", "down", host, file);
    add_estimate(hosts[h], "up_and_down", "up + down", host, file);
    const Json& latencies = list_in(hosts[h], "latency_ns");
    for (std::size_t other = 0; other < std::min(latencies.size(), hosts.size()); ++other)
      if (other != h && latencies[other].is_number())
        file.measures.push_back({"latency", "", host + " -> " + text::text_field(hosts[other], "name"), "",
                                 Quantity::seconds, latencies[other].get<double>() * 1e-9});
  }
  for (const Json& pair : list_in(document, "pairs"))
    add_estimate(pair, "rate", "pair", text::text_field(pair, "from") + " -> " + text::text_field(pair, "to"),
                 file);
  for (const Json& uplink : list_in(document, "uplinks")) {
    const std::string inside = fmt::format("{}", fmt::join(text::texts_field(uplink, "hosts"), ", "));
    add_estimate(uplink, "leaving", "uplink, out", inside, file);
    add_estimate(uplink, "entering", "uplink, in", inside, file);
  }
}

struct ResultFormat {
  const char* name;
  void (*read)(const Json&, ResultFile&);
};
constexpr ResultFormat kResultFormats[] = {
    {"talweg plan", read_plan_results},         {"talweg info", read_info_results},
    {"talweg perf", read_perf_results},         {"talweg predict", read_predict_results},
    {"talweg simulate", read_simulate_results}, {"talweg simulate sweep", read_sweep_results},
    {"talweg probe", read_probe_results}};

ResultFile results_of(const Json& document) {
  ResultFile file;
  if (document.is_object() && document.contains("format")) file.format = text::text_field(document, "format");
  const auto known = std::ranges::find_if(
      kResultFormats, [&](const ResultFormat& format) { return file.format == format.name; });
  if (known == std::end(kResultFormats))
    throw_error(ErrorCode::bad_file,
                "expected what plan, predict, info, perf, simulate or probe writes with --json{}",
                file.format.empty() ? "" : fmt::format(", got format \"{}\"", file.format));
  if (const std::int64_t version = whole_in(document, "format_version"); version != kResultVersion)
    throw_error(ErrorCode::bad_file, "format_version: expected {}, got {}", kResultVersion, version);
  known->read(document, file);
  if (file.measures.empty())
    throw_error(ErrorCode::bad_file, "there is nothing in this {} to compare", file.format);
  return file;
}

}  // namespace

std::string name_of(const Measure& measure) {
  return fmt::format("{} of {}{}{}", measure.what, measure.where, measure.planner.empty() ? "" : ", ",
                     measure.planner);
}

ResultFile read_results(const std::string& path) {
  const std::string content = text::read_file(path);
  try {
    ResultFile file = results_of(text::parse_json(content));
    file.path = path;
    return file;
  } catch (const Error& error) {
    throw_error(error.code(), "{}: {}", path, error.what());
  }
}

}  // namespace talweg::study
