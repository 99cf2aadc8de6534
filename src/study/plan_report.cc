#include "study/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/at.h"
#include "base/printable.h"
#include "forest/planner.h"
#include "study/by_switch.h"
#include "study/perf_case.h"
#include "study/version.h"
#include "study/why_not.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;
using cluster::NodeKind;

std::ptrdiff_t count(const cluster::Cluster& network, NodeKind kind) {
  return std::ranges::count_if(network.nodes, [&](const cluster::Node& node) { return node.kind == kind; });
}

std::string counted(std::ptrdiff_t n, const char* one, const char* many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
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

Json known_bound_json(const cluster::Cluster& network, const forest::Bound& bound) {
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
      candidate.update(breakdown_json(prediction.breakdown));
      if (const std::string why = why_not_taken(study, row, i); !why.empty())
        candidate["not_taken_because"] = why;
    } else {
      candidate["left_out_because"] = prediction.reason;
    }
    line["candidates"].push_back(std::move(candidate));
  }
  if (row.by_switch) {
    line["by_switch"] = {{"predicted_us", number(*row.by_switch->seconds * 1e6)},
                         {"through", row.by_switch->through}};
    line["by_switch"].update(breakdown_json(row.by_switch->breakdown));
  }
  return line;
}

// What is taken for each size, how good that is, and what limits it.
std::string taken_table(const Study& study, bool wide) {
  using text::Quantity;
  text::Table table{{"size"},
                    {"taken"},
                    {.title = "time", .of = Quantity::seconds},
                    {.title = "rate", .of = Quantity::number, .unit = {1, "GB/s"}, .digits = 4},
                    {.title = "of bound", .of = Quantity::share},
                    {"limit"}};
  for (const StudyRow& row : study.rows) {
    if (row.taken < 0) {
      table.add({size_text(study, row), "-", "-", "-", "-", "-"});
      continue;
    }
    const std::size_t taken = at(row.taken);
    const Prediction& prediction = row.predictions[taken];
    std::optional<double> rate = rate_of(study, row, taken);
    if (rate) *rate /= 8e9;
    table.add({size_text(study, row), forest::plan_title(study.planners[taken], prediction.through),
               prediction.seconds, rate, part_of_bound(study, row, taken),
               forest::name(prediction.breakdown.limit)});
  }
  return table.text(wide);
}

// After an empty line, what limits the plan taken for the largest size; empty if none is known to be taken.
std::string limit_line(const Study& study, bool wide) {
  if (study.rows.empty() || study.rows.back().taken < 0) return {};
  const StudyRow& row = study.rows.back();
  return "\n" +
         text::in_lines(limit_text(study.op == Collective::barrier ? "" : size_text(study, row),
                                   study.planners[at(row.taken)], row.predictions[at(row.taken)].breakdown),
                        wide);
}

// A line for each planner, with a mark where it is taken. Where there is no room for all sizes, those between
// others are left out, from the large ones down: every second, then every fourth.
std::string planners_table(const Study& study, bool wide) {
  std::vector<text::TableColumn> columns{{""}};
  for (std::size_t i = 0; i < study.rows.size(); ++i) {
    const bool end = i == 0 || i + 1 == study.rows.size();
    columns.push_back({.title = size_text(study, study.rows[i]),
                       .of = text::Quantity::seconds,
                       .drop = end ? 0 : 64 - std::countr_zero(i)});
  }
  text::Table table(std::move(columns));
  for (std::size_t planner = 0; planner < study.planners.size(); ++planner) {
    std::vector<text::Cell> cells{study.planners[planner]};
    for (const StudyRow& row : study.rows) {
      cells.emplace_back(row.predictions[planner].seconds);
      if (static_cast<int>(planner) == row.taken) cells.back().text = "*";
    }
    table.add(std::move(cells));
  }
  if (study.rows.back().by_switch) {
    std::vector<text::Cell> cells{kBySwitch};
    for (const StudyRow& row : study.rows) cells.emplace_back(row.by_switch->seconds);
    table.add(std::move(cells));
  }
  return table.text(wide);
}

// Why a planner has no time for some size; planners with one reason in one line.
// Which why_not() says.
bool not_planned(const StudyRow& row, const std::string& planner) {
  const auto its = std::ranges::find(row.choice.why_not, planner, &forest::NotTaken::planner);
  return its != row.choice.why_not.end() && its->reason == forest::NotTaken::Reason::no_plan;
}

std::vector<std::string> left_out(const Study& study) {
  std::vector<std::pair<std::string, std::string>> by_reason;  // and of whom
  for (std::size_t planner = 0; planner < study.planners.size(); ++planner)
    for (const StudyRow& row : study.rows) {
      const Prediction& prediction = row.predictions[planner];
      if (prediction.seconds || not_planned(row, study.planners[planner])) continue;
      const auto known =
          std::ranges::find(by_reason, prediction.reason, [](const auto& r) { return r.first; });
      if (known == by_reason.end())
        by_reason.emplace_back(prediction.reason, study.planners[planner]);
      else
        known->second += ", " + study.planners[planner];
      break;
    }
  std::vector<std::string> lines;
  for (const auto& [reason, planners] : by_reason)
    lines.push_back(fmt::format("-: {}: {}", planners, reason));
  return lines;
}

}  // namespace

std::string switch_text(const Prediction& by_switch) {
  return fmt::format(
      "talweg switch at {}, without the ranks' words around a sum; taken where TALWEG_SWITCH or the "
      "cluster file says where it listens, and sums through it have been measured to be quicker",
      printable(fmt::format("{}", fmt::join(by_switch.through, " and "))));
}

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

std::string time_in(const text::Unit& unit, const std::optional<double>& seconds) {
  constexpr int kDigits = 3;
  return seconds ? text::number_text(*seconds / unit.size, kDigits) : "-";
}

std::string limit_text(const std::string& size, const std::string& planner, const forest::Breakdown& spent) {
  return fmt::format("{}{}{}: {}", size, size.empty() ? "" : ", ", planner, printable(spent.reason));
}

Json breakdown_json(const forest::Breakdown& spent) {
  return {{"spent_us",
           {{"links", number(spent.links * 1e6)},
            {"processors", number(spent.processors * 1e6)},
            {"latency", number(spent.latency * 1e6)}}},
          {"limit", forest::name(spent.limit)},
          {"without_limit_us", number(spent.without * 1e6)},
          {"limit_reason", spent.reason}};
}

Json bound_json(const cluster::Cluster& network, const Study& study) {
  return study.bound ? known_bound_json(network, *study.bound) : Json{{"none_because", study.no_bound}};
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

std::string bound_line(const cluster::Cluster& network, const Study& study) {
  if (!study.bound) return study.no_bound;
  const double rate = study.bound->rate.value();
  if (!std::isfinite(rate)) return "none: " + to_words(*study.bound, network);
  return fmt::format(
      "{:.6g} Gbit/s ({:.6g} GB/s), set by {}; {}", rate / 1e9, rate / 8e9, to_words(*study.bound, network),
      study.bound->attained ? "proved: some trees reach it" : "not known whether any trees reach it");
}

std::string to_text(const cluster::Cluster& network, const NetworkSource& source, const Study& study,
                    bool wide) {
  std::string text;
  const auto fact = [&](const char* name, const std::string& sentences) {
    constexpr int kNameWidth = 12;
    text += text::fact(name, printable(sentences), kNameWidth, wide);
  };
  fact("network", network_line(network, source));
  fact("collective",
       fmt::format("{}{}{}", name(study.op), study.op == Collective::barrier ? "" : " of f32",
                   has_root(study.op) ? fmt::format(", root {}", network.nodes[at(study.root)].name) : ""));
  fact("bound", bound_line(network, study));
  for (const std::string& note : study.notes) fact("note", note);
  if (study.rows.empty()) return text;
  text += fmt::format("\n{}, and its predicted time; GB/s = bytes of {} / time\n", taken_text(study),
                      study.op == Collective::all_to_all ? "one rank's row" : "the whole vector");
  text += taken_table(study, wide) + limit_line(study, wide);
  if (study.planners.size() > 1) {
    text += fmt::format("\npredicted time of each planner; * is {}\n", taken_text(study));
    text += planners_table(study, wide);
    for (const std::string& why : left_out(study)) text += text::in_lines(printable(why), wide);
  }
  if (study.rows.back().by_switch)
    text += text::in_lines(fmt::format("{}: {}", kBySwitch, switch_text(*study.rows.back().by_switch)), wide);
  for (const std::string& why : why_not(study)) text += text::in_lines(why, wide);
  return text;
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
  document["bound"] = bound_json(network, study);
  document["planners"] = Json::array();
  for (const std::string& planner : study.planners)
    document["planners"].push_back({{"name", planner}, {"description", planner_of(planner).description}});
  document["planners_left_out"] = Json::array();
  for (const std::string& planner : study.others)
    document["planners_left_out"].push_back(
        {{"name", planner}, {"reason", fmt::format("{} does not serve {}", planner, name(study.op))}});
  document["sizes"] = Json::array();
  for (const StudyRow& row : study.rows) document["sizes"].push_back(row_json(study, row));
  document["notes"] = study.notes;
  document["why_not"] = why_not(study);
  return document;
}

}  // namespace talweg::study
