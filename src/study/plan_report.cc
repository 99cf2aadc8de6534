#include "study/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "forest/planner.h"
#include "study/perf_case.h"
#include "study/version.h"
#include "text/table.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;
using cluster::NodeKind;

constexpr int kSizeWidth = 10;
constexpr std::size_t kTimeWidth = 9;  // "*123.4 us"

std::ptrdiff_t count(const cluster::Cluster& network, NodeKind kind) {
  return std::ranges::count_if(network.nodes, [&](const cluster::Node& node) { return node.kind == kind; });
}

std::string counted(std::ptrdiff_t n, const char* one, const char* many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

// A planner's name on the two lines of the table's head, as even as its parts allow.
std::pair<std::string, std::string> two_lines(const std::string& planner) {
  std::pair<std::string, std::string> best{"", planner};
  for (std::size_t i = planner.find('_'); i != std::string::npos; i = planner.find('_', i + 1)) {
    const std::size_t longer = std::max(i + 1, planner.size() - i - 1);
    if (longer < std::max(best.first.size(), best.second.size()))
      best = {planner.substr(0, i + 1), planner.substr(i + 1)};
  }
  return best;
}

std::string part_text(const std::optional<double>& part) {
  return part ? fmt::format("{:.1f} %", 100 * *part) : "-";
}

std::string rate_text(const std::optional<double>& bits_per_second) {
  return bits_per_second ? fmt::format("{:.4g}", *bits_per_second / 8e9) : "-";
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json link_json(const cluster::Cluster& network, std::size_t link, std::int64_t price) {
  return {{"from", network.nodes[at(network.links[link].from)].name},
          {"to", network.nodes[at(network.links[link].to)].name},
          {"price", price}};
}

const char* name_of(forest::Certificate::Kind kind) {
  using Kind = forest::Certificate::Kind;
  return kind == Kind::cut         ? "cut"
         : kind == Kind::partition ? "partition"
         : kind == Kind::prices    ? "prices"
                                   : "nothing";
}

Json bound_json(const cluster::Cluster& network, const forest::Bound& bound) {
  Json document = {{"rate_Gbit_per_s", number(bound.rate.value() / 1e9)},
                   {"algbw_GB_per_s", number(bound.rate.value() / 8e9)},
                   {"rate_bit_per_s_exact", to_string(bound.rate)},
                   {"set_by", to_words(bound, network)},
                   {"reached_by_some_trees", bound.attained}};
  Json proof = {{"kind", name_of(bound.certificate.kind)}};
  proof["parts"] = Json::array();
  for (const auto& part : bound.certificate.parts) {
    proof["parts"].push_back(Json::array());
    for (const int node : part) proof["parts"].back().push_back(network.nodes[at(node)].name);
  }
  proof["links"] = Json::array();
  for (std::size_t i = 0; i < bound.certificate.link_prices.size(); ++i)
    if (const auto price = bound.certificate.link_prices[i]; price > 0)
      proof["links"].push_back(link_json(network, i, price));
  proof["groups"] = Json::array();
  for (std::size_t i = 0; i < bound.certificate.group_prices.size(); ++i)
    if (const auto price = bound.certificate.group_prices[i]; price > 0)
      proof["groups"].push_back({{"name", network.groups[i].name}, {"price", price}});
  document["proof"] = std::move(proof);
  return document;
}

Json row_json(const Study& study, const StudyRow& row) {
  const auto optional = [](const std::optional<double>& value) { return value ? number(*value) : Json(); };
  Json line = {{"size_bytes", row.bytes},
               {"taken", row.taken < 0 ? Json() : Json(study.planners[at(row.taken)])},
               {"candidates", Json::array()}};
  for (std::size_t i = 0; i < study.planners.size(); ++i) {
    const Prediction& prediction = row.predictions[i];
    Json candidate = {{"algorithm", study.planners[i]}};
    if (prediction.seconds) {
      candidate["predicted_us"] = number(*prediction.seconds * 1e6);
      candidate["through"] = prediction.through;
      const auto rate = rate_of(study, row, i);
      candidate["algbw_GB_per_s"] = rate ? number(*rate / 8e9) : Json();
      candidate["part_of_bound"] = optional(part_of_bound(study, row, i));
      const forest::Breakdown& spent = prediction.breakdown;
      candidate["spent_us"] = {{"links", number(spent.links * 1e6)},
                               {"processors", number(spent.processors * 1e6)},
                               {"latency", number(spent.latency * 1e6)}};
      candidate["limit"] = forest::name(spent.limit);
      candidate["limit_reason"] = spent.reason;
    } else {
      candidate["left_out_because"] = prediction.reason;
    }
    line["candidates"].push_back(std::move(candidate));
  }
  return line;
}

text::Columns columns_of(const Study& study) {
  std::size_t width = kTimeWidth;
  for (const std::string& planner : study.planners) {
    const auto [above, below] = two_lines(planner);
    width = std::max({width, above.size(), below.size()});
  }
  std::vector<text::Column> columns{{"", kSizeWidth}};
  columns.resize(1 + study.planners.size(), {"", static_cast<int>(width + 2)});
  columns.insert(columns.end(), {{"", 12}, {"", 11}, {"", 12}, {"", 0, 2}});
  return text::Columns(std::move(columns));
}

std::string head_text(const Study& study, const text::Columns& columns) {
  std::vector<std::string> first{""}, second{"size"};
  for (const std::string& planner : study.planners) {
    const auto [above, below] = two_lines(planner);
    first.push_back(above);
    second.push_back(below);
  }
  first.insert(first.end(), {"taken", "taken", "taken"});
  second.insert(second.end(), {"GB/s", "of bound", "limit"});
  return columns.line(first) + columns.line(second);
}

std::vector<std::string> row_cells(const Study& study, const StudyRow& row) {
  std::vector<std::string> cells{size_text(study, row)};
  for (std::size_t i = 0; i < row.predictions.size(); ++i) {
    const auto& seconds = row.predictions[i].seconds;
    const char* mark = static_cast<int>(i) == row.taken ? "*" : "";
    cells.push_back(seconds ? mark + duration_text(*seconds) : "-");
  }
  if (row.taken >= 0)
    cells.insert(cells.end(), {rate_text(rate_of(study, row, at(row.taken))),
                               part_text(part_of_bound(study, row, at(row.taken))),
                               forest::name(row.predictions[at(row.taken)].breakdown.limit)});
  if (row.taken >= 0 && !row.predictions[at(row.taken)].through.empty())
    cells.push_back(forest::plan_title("", row.predictions[at(row.taken)].through).substr(1));
  return cells;
}

}  // namespace

std::string duration_text(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  for (const Unit unit : {Unit{1, "s"}, Unit{1e-3, "ms"}})
    if (seconds >= 0.9995 * unit.seconds) {
      const double value = seconds / unit.seconds;
      return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit.name);
    }
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string network_line(const cluster::Cluster& network, const NetworkSource& source) {
  std::string text =
      fmt::format("{} ({}): {}", source.path, source.format, counted(network.workers(), "worker", "workers"));
  if (const auto n = count(network, NodeKind::switch_)) text += ", " + counted(n, "switch", "switches");
  if (const auto n = count(network, NodeKind::aggregator))
    text += ", " + counted(n, "aggregator", "aggregators");
  text += ", " + counted(std::ssize(network.links), "link", "links") + " (one-way)";
  if (!network.groups.empty())
    text += ", " + counted(std::ssize(network.groups), "shared capacity", "shared capacities");
  return text;
}

std::string limit_line(const Study& study) {
  if (study.rows.empty() || study.rows.back().taken < 0) return {};
  const StudyRow& row = study.rows.back();
  return fmt::format("\n{}{}: {}\n", study.op == Collective::barrier ? "" : size_text(study, row) + ", ",
                     study.planners[at(row.taken)], row.predictions[at(row.taken)].breakdown.reason);
}

std::string bound_line(const cluster::Cluster& network, const Study& study) {
  if (!study.bound) return study.no_bound;
  const double rate = study.bound->rate.value();
  if (!std::isfinite(rate)) return "none: " + to_words(*study.bound, network);
  return fmt::format(
      "{:.6g} Gbit/s ({:.6g} GB/s), set by {}; {}", rate / 1e9, rate / 8e9, to_words(*study.bound, network),
      study.bound->attained ? "proved: some trees reach it" : "not known whether any trees reach it");
}

std::string to_text(const cluster::Cluster& network, const NetworkSource& source, const Study& study) {
  const text::Columns facts{{"", -12}, {"", 0}};
  std::string text = facts.line({"network", network_line(network, source)});
  text += facts.line(
      {"collective",
       fmt::format("{}{}{}", name(study.op), study.op == Collective::barrier ? "" : " of f32",
                   has_root(study.op) ? fmt::format(", root {}", network.nodes[at(study.root)].name) : "")});
  text += facts.line({"bound", bound_line(network, study)});
  for (const std::string& note : study.notes) text += facts.line({"note", note});
  if (study.rows.empty()) return text;
  text += fmt::format("\npredicted time; * is {}; GB/s = bytes of {} / time\n", taken_text(study),
                      study.op == Collective::all_to_all ? "one rank's row" : "the whole vector");
  const text::Columns columns = columns_of(study);
  text += head_text(study, columns);
  for (const StudyRow& row : study.rows) text += columns.line(row_cells(study, row));
  return text + limit_line(study);
}

nlohmann::json to_json(const cluster::Cluster& network, const NetworkSource& source, const Study& study) {
  Json document = {{"format", "talweg plan"}, {"format_version", 1}, {"talweg_version", kVersion}};
  document["network"] = {{"file", source.path},
                         {"format", source.format},
                         {"workers", network.workers()},
                         {"switches", count(network, NodeKind::switch_)},
                         {"aggregators", count(network, NodeKind::aggregator)},
                         {"links", network.links.size()},
                         {"shared_capacities", network.groups.size()}};
  document["collective"] = name(study.op);
  document["root"] = has_root(study.op) ? Json(study.root) : Json();
  document["type"] = "f32";
  document["bound"] =
      study.bound ? bound_json(network, *study.bound) : Json{{"none_because", study.no_bound}};
  document["planners"] = Json::array();
  for (const std::string& planner : study.planners)
    document["planners"].push_back(
        {{"name", planner}, {"description", forest::find_planner(planner).description}});
  document["planners_left_out"] = Json::array();
  for (const std::string& planner : study.others)
    document["planners_left_out"].push_back(
        {{"name", planner}, {"reason", fmt::format("{} does not serve {}", planner, name(study.op))}});
  document["sizes"] = Json::array();
  for (const StudyRow& row : study.rows) document["sizes"].push_back(row_json(study, row));
  document["notes"] = study.notes;
  return document;
}

}  // namespace talweg::study
