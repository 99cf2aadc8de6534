#include "study/simulate_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <optional>
#include <sstream>

#include "base/printable.h"
#include "forest/planner.h"
#include "study/by_bounded_loss.h"
#include "study/plan_report.h"
#include "study/simulate_plan.h"
#include "study/version.h"
#include "study/why_not.h"
#include "text/table.h"

namespace talweg::study {
namespace {

constexpr int kFlowDigits = 6;  // two runs that are nearly the same are told apart

double us(sim::Picoseconds time) {
  return static_cast<double>(time) * 1e-6;
}

const std::string& node(const SimulateOptions& options, int n) {
  return options.cluster.nodes[static_cast<std::size_t>(n)].name;
}

double mean_us(const std::vector<sim::Picoseconds>& times) {
  double sum = 0;
  for (const sim::Picoseconds t : times) sum += us(t);
  return times.empty() ? 0 : sum / static_cast<double>(times.size());
}

double percentile_us(std::vector<sim::Picoseconds> times, double share) {
  if (times.empty()) return 0;
  std::ranges::sort(times);
  const auto last = static_cast<double>(times.size() - 1);
  return us(times[static_cast<std::size_t>(std::lround(share * last))]);
}

bool is_wide(const SimulateOptions& options) {
  return options.perf.columns == PerfColumns::all;
}

std::string exact(sim::Picoseconds time) {
  return fmt::format("{:.3f}", us(time));
}

// Sentences in lines that are no results.
std::string commented_lines(const std::string& sentences, bool wide) {
  std::string text;
  for (const std::string& line : text::wrapped(printable(sentences), wide ? INT_MAX : text::kTableWidth - 2))
    text += fmt::format("# {}\n", line);
  return text;
}

// Of the largest size, what was quickest.
std::size_t quickest_row(const std::vector<PerfRow>& rows) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::size_t bytes = vector_bytes(rows[i].what), most = vector_bytes(rows[best].what);
    if (bytes > most || (bytes == most && rows[i].out_of_place->time_us < rows[best].out_of_place->time_us))
      best = i;
  }
  return best;
}

std::string size_of_row(const PerfRow& row) {
  if (row.what.op == Collective::barrier) return "";
  return to_string(Bytes{static_cast<std::int64_t>(vector_bytes(row.what))});
}

// The bound, what each line was planned to take, and what is to be said of the plans.
std::string plans_text(const SimulateOptions& options, const SimulateResult& result) {
  if (result.rows.empty()) return "";
  using text::Quantity;
  std::string text = commented_lines(
      fmt::format("{:<21}: {}", "Bound", bound_line(options.cluster, result.planned)), is_wide(options));
  text::Table table{{"size"},
                    {"algorithm"},
                    {.title = "planned", .of = Quantity::seconds},
                    {.title = "of simulated", .of = Quantity::share},
                    {.title = "of bound", .of = Quantity::share},
                    {"limit"}};
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const PerfRow& row = result.rows[i];
    const Prediction& its = result.plans[i];
    const double seconds = row.out_of_place->time_us * 1e-6;
    const std::string size = size_of_row(row);
    std::optional<double> share;
    if (seconds > 0) share = *its.seconds / seconds;
    table.add({size.empty() ? "-" : size, algorithm_of(row), its.seconds, share,
               part_of_bound(result.planned, row.what, seconds), forest::name(its.breakdown.limit)});
  }
  std::istringstream lines(table.text(is_wide(options), "#"));
  for (std::string line; std::getline(lines, line);) text += "#" + line.substr(1) + "\n";
  const std::size_t best = quickest_row(result.rows);
  text += commented_lines(limit_text(size_of_row(result.rows[best]), algorithm_of(result.rows[best]),
                                     result.plans[best].breakdown),
                          is_wide(options));
  for (const std::string& why : why_not(result.planned)) text += commented_lines(why, is_wide(options));
  return text;
}

std::string lost_text(const SimulateOptions& options, const SimulateResult& result) {
  std::string text;
  for (const std::string& sentence :
       lost_sentences(options.perf, result.rows, options.may_lose, options.droppable > 0))
    text += commented_lines(sentence, is_wide(options));
  return text;
}

nlohmann::json plan_json(const Prediction& prediction) {
  nlohmann::json plan = {{"predicted_us", *prediction.seconds * 1e6}, {"through", prediction.through}};
  plan.update(breakdown_json(prediction.breakdown));
  return plan;
}

std::string flows_text(const SimulateOptions& options, const std::vector<sim::FlowResult>& flows) {
  if (flows.empty()) return "";
  using text::Quantity;
  text::Table table{{.title = "flow", .of = Quantity::number},
                    {"from"},
                    {"to"},
                    {.title = "size", .of = Quantity::number, .unit = {1, "B"}},
                    {.title = "start", .of = Quantity::seconds, .drop = 2, .digits = kFlowDigits},
                    {.title = "took", .of = Quantity::seconds, .digits = kFlowDigits},
                    {.title = "rate", .of = Quantity::bits_per_second, .drop = 1, .digits = 4},
                    {.title = "resent", .of = Quantity::number, .drop = 3}};
  for (const sim::FlowResult& f : flows) {
    const double took = sim::seconds(f.ended - f.started);
    std::optional<double> rate;
    if (took > 0) rate = 8 * static_cast<double>(f.connection.bytes) / took;
    table.add({std::to_string(f.connection.id), node(options, f.connection.from),
               node(options, f.connection.to), std::to_string(f.connection.bytes), sim::seconds(f.started),
               took, rate, std::to_string(f.counters.retransmissions)});
  }
  std::string text = table.text(is_wide(options), "#");
  text += fmt::format("# {} flows took", flows.size());
  for (const auto& [what, share] :
       {std::pair{"least", 0.0}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"most", 1.0}})
    text += fmt::format(" {} {}", what, exact(sim::completion_percentile(flows, share)));
  return text + " us\n";
}

std::string groups_text(const SimulateOptions& options, const std::vector<sim::GroupOutcome>& groups) {
  if (groups.empty()) return "";
  using text::Quantity;
  std::vector<double> means;
  for (const sim::GroupOutcome& g : groups) means.push_back(mean_us(g.iterations) * 1e-6);
  const text::Unit unit = text::unit_for(Quantity::seconds, means);  // of all that is said of iterations
  text::Table table{{"group"},
                    {.title = "ranks", .of = Quantity::number},
                    {.title = "iterations", .of = Quantity::number},
                    {.title = "ended", .of = Quantity::seconds, .drop = 1, .digits = kFlowDigits},
                    {.title = "mean", .of = Quantity::seconds, .unit = unit, .digits = kFlowDigits},
                    {.title = "p50", .of = Quantity::seconds, .drop = 2, .unit = unit, .digits = kFlowDigits},
                    {.title = "most", .of = Quantity::seconds, .unit = unit, .digits = kFlowDigits},
                    {.title = "comm", .of = Quantity::share},
                    {"algorithms"}};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const sim::GroupOutcome& g = groups[i];
    std::vector<std::string> algorithms = g.algorithms;
    std::erase(algorithms, "");
    const double all = us(g.ended - g.started);
    table.add({g.name, std::to_string(g.ranks), std::to_string(g.iterations.size()), sim::seconds(g.ended),
               means[i], percentile_us(g.iterations, 0.5) * 1e-6, percentile_us(g.iterations, 1) * 1e-6,
               all > 0 ? us(g.communication) / all : 0.0,
               algorithms.empty() ? "-" : fmt::format("{}", fmt::join(algorithms, ","))});
  }
  return table.text(is_wide(options), "#");
}

// "3 (priority 0: 1, 7: 2)"
std::string by_priority(std::uint64_t all, const std::array<std::uint64_t, sim::kPriorities>& parts) {
  if (all == 0 || parts[0] == all) return std::to_string(all);
  std::string text;
  for (std::size_t p = 0; p < parts.size(); ++p)
    if (parts[p] > 0) text += fmt::format("{}{}: {}", text.empty() ? "priority " : ", ", p, parts[p]);
  return fmt::format("{} ({})", all, text);
}

std::string report_text(const sim::RunReport& r, bool wide) {
  const sim::NetworkSummary& n = r.network;
  std::string text;
  const auto add = [&](const char* what, const std::string& value) {
    text += commented_lines(fmt::format("{:<21}: {}", what, value), wide);
  };
  add("Busiest link", n.busiest_link.empty()
                          ? "-"
                          : fmt::format("{} {:.1f} % used; links in use: {:.1f} % on average", n.busiest_link,
                                        100 * n.busiest_utilisation, 100 * n.mean_utilisation));
  add("Longest queue",
      n.most_queued_link.empty()
          ? "-"
          : fmt::format("{} at {}", to_string(Bytes{n.most_queued_bytes}), n.most_queued_link));
  add("Dropped", by_priority(n.dropped, n.dropped_by_priority));
  add("Marked", by_priority(n.marked, n.marked_by_priority));
  add("Trimmed, lost on wire", fmt::format("{}, {}; without a route: {}", n.trimmed, n.lost, r.unroutable));
  add("Segments", fmt::format("{}, sent again {}, timeouts {}", r.segments, r.retransmissions, r.timeouts));
  add("Simulated", fmt::format("{:.3f} us, {} events, {} link-hops", us(r.duration), r.events, r.link_hops));
  return text;
}

nlohmann::json report_json(const sim::RunReport& r) {
  const sim::NetworkSummary& n = r.network;
  return {{"simulated_us", us(r.duration)},
          {"events", r.events},
          {"link_hops", r.link_hops},
          {"segments", r.segments},
          {"retransmissions", r.retransmissions},
          {"timeouts", r.timeouts},
          {"busiest_link", n.busiest_link},
          {"busiest_utilisation", n.busiest_utilisation},
          {"mean_utilisation", n.mean_utilisation},
          {"longest_queue_bytes", n.most_queued_bytes},
          {"longest_queue_link", n.most_queued_link},
          {"dropped_by_priority", n.dropped_by_priority},
          {"marked_by_priority", n.marked_by_priority},
          {"trimmed", n.trimmed},
          {"lost", n.lost},
          {"unroutable", r.unroutable}};
}

nlohmann::json flow_json(const SimulateOptions& options, const sim::FlowResult& f) {
  return {{"id", f.connection.id},
          {"from", node(options, f.connection.from)},
          {"to", node(options, f.connection.to)},
          {"bytes", f.connection.bytes},
          {"start_us", us(f.started)},
          {"end_us", us(f.ended)},
          {"took_us", us(f.ended - f.started)},
          {"priority", f.connection.priority},
          {"retransmissions", f.counters.retransmissions},
          {"timeouts", f.counters.timeouts}};
}

const std::vector<sim::FlowResult>& flows_of(const SimulateResult& result) {
  return result.flows.empty() ? result.workload.flows : result.flows;
}

bool has_table(const SimulateOptions& options) {
  return options.matrix.empty() && options.workload.empty();
}

PerfSetup setup_of(const SimulateOptions& options) {
  PerfSetup setup{kVersion,
                  {},
                  fmt::format("simulated network: {}, seed {}", options.network, options.simulation.seed),
                  false};
  for (int r = 0; r < options.cluster.workers(); ++r) setup.hosts.push_back(node(options, r) + " 0");
  return setup;
}

}  // namespace

std::string simulate_header(const SimulateOptions& options) {
  if (has_table(options)) return header_text(options.perf, setup_of(options));
  return fmt::format("# talweg version {}\n# simulated network: {}, seed {}\n# {}\n", kVersion,
                     printable(options.network), options.simulation.seed,
                     printable(options.matrix.empty() ? options.workload : options.matrix));
}

std::string simulate_body(const SimulateOptions& options, const SimulateResult& result) {
  std::string text;
  if (has_table(options)) {
    text += algorithms_text(options.perf, result.rows) +
            fmt::format("# {:<21}: {:.6g}\n", "Avg bus bandwidth", summed(result.rows).average_bus_bandwidth);
    text += lost_text(options, result);
    if (options.bound) text += plans_text(options, result);
  }
  text += groups_text(options, result.workload.groups) + flows_text(options, flows_of(result));
  for (std::size_t b = 0; b < result.workload.background.size(); ++b) {
    const auto& o = result.workload.background[b];
    if (options.job.background[b].burst_bytes > 0)
      text += fmt::format("# background {}: {} bursts sent, {} arrived, p50 {:.3f} p99 {:.3f} us\n", b,
                          o.sent, o.arrived, percentile_us(o.took, 0.5), percentile_us(o.took, 0.99));
    else
      text += fmt::format("# background {}: {} packets sent, {} arrived\n", b, o.sent, o.arrived);
  }
  return text + report_text(result.report, is_wide(options));
}

nlohmann::json simulate_json(const SimulateOptions& options, const SimulateResult& result) {
  nlohmann::json document;
  if (has_table(options)) {
    document = to_json(options.perf, setup_of(options), result.rows, summed(result.rows));
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
      const PerfRow& row = result.rows[i];
      const auto part = part_of_bound(result.planned, row.what, row.out_of_place->time_us * 1e-6);
      document["results"][i]["planned"] = plan_json(result.plans[i]);
      document["results"][i]["part_of_bound"] = part ? nlohmann::json(*part) : nlohmann::json();
    }
    document["bound"] = bound_json(options.cluster, result.planned);
    document["why_not"] = why_not(result.planned);
  }
  document["format"] = "talweg simulate";
  document["format_version"] = 1;
  document["talweg_version"] = kVersion;
  document["network"] = options.network;
  document["seed"] = options.simulation.seed;
  document["transport"] = options.transport;
  document["fluid"] = options.simulation.transport.kind == sim::TransportKind::fluid;
  document["notes"] = options.notes;
  document["report"] = report_json(result.report);
  for (const sim::FlowResult& f : flows_of(result)) document["flows"].push_back(flow_json(options, f));
  for (const sim::GroupOutcome& g : result.workload.groups) {
    nlohmann::json iterations = nlohmann::json::array();
    for (const sim::Picoseconds t : g.iterations) iterations.push_back(us(t));
    nlohmann::json steps = nlohmann::json::array();
    for (const sim::Picoseconds t : g.of_step) steps.push_back(us(t));
    document["groups"].push_back({{"name", g.name},
                                  {"ranks", g.ranks},
                                  {"start_us", us(g.started)},
                                  {"end_us", us(g.ended)},
                                  {"communication_us", us(g.communication)},
                                  {"iterations_us", iterations},
                                  {"steps_mean_us", steps},
                                  {"algorithms", g.algorithms}});
    if (std::ranges::find(g.algorithms, kBounded) != g.algorithms.end()) {
      document["groups"].back()["lost_part"] = g.losses.lost();
      document["groups"].back()["lost_important_part"] = g.losses.important();
    }
  }
  for (const auto& b : result.workload.background) {
    document["background"].push_back({{"sent", b.sent}, {"arrived", b.arrived}});
    if (b.took.empty()) continue;
    document["background"].back()["p50_us"] = percentile_us(b.took, 0.5);
    document["background"].back()["p99_us"] = percentile_us(b.took, 0.99);
  }
  return document;
}

std::string simulate_csv(const SimulateOptions& options, const SimulateResult& result) {
  std::vector<std::vector<std::string>> rows;
  const auto precise = [](double value) { return fmt::format("{:.6f}", value); };
  if (has_table(options)) {
    rows.push_back({"collective", "size_bytes", "count", "type", "root", "time_us", "p50_us", "p99_us",
                    "algbw_GB_per_s", "busbw_GB_per_s", "algorithm"});
    const bool losses =
        std::ranges::any_of(result.rows, [](const PerfRow& row) { return row.lost.has_value(); });
    if (losses) rows.back().insert(rows.back().end() - 1, "lost_part");
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
      const PerfRow& row = result.rows[i];
      const PerfCase& c = row.what;
      const Timing& t = *row.out_of_place;
      rows.push_back({name(c.op), std::to_string(vector_bytes(c)), std::to_string(c.count),
                      table_name(c.type), std::to_string(has_root(c.op) ? c.root : -1), precise(t.time_us),
                      precise(t.p50_us), precise(t.p99_us), fmt::format("{:.6g}", algorithm_bandwidth(c, t)),
                      fmt::format("{:.6g}", bus_bandwidth(c, t)), algorithm_of(row)});
      const auto& lost = result.rows[i].lost;
      if (losses) rows.back().insert(rows.back().end() - 1, lost ? fmt::format("{:.6g}", lost->part) : "");
    }
    return text::csv(rows);
  }
  if (!result.workload.groups.empty()) rows.push_back({"group", "iteration", "took_us"});
  for (const sim::GroupOutcome& g : result.workload.groups)
    for (std::size_t i = 0; i < g.iterations.size(); ++i)
      rows.push_back({g.name, std::to_string(i), precise(us(g.iterations[i]))});
  if (!flows_of(result).empty())
    rows.push_back({"flow", "from", "to", "bytes", "start_us", "took_us", "retransmissions", "timeouts"});
  for (const sim::FlowResult& f : flows_of(result))
    rows.push_back({std::to_string(f.connection.id), node(options, f.connection.from),
                    node(options, f.connection.to), std::to_string(f.connection.bytes),
                    precise(us(f.started)), precise(us(f.ended - f.started)),
                    std::to_string(f.counters.retransmissions), std::to_string(f.counters.timeouts)});
  return text::csv(rows);
}

std::vector<std::pair<std::string, std::string>> simulate_key_numbers(const SimulateResult& result) {
  std::vector<std::pair<std::string, std::string>> numbers;
  const auto add = [&](const char* name, double value) {
    numbers.emplace_back(name, fmt::format("{:.6g}", value));
  };
  if (!result.rows.empty()) {
    const PerfRow& row = result.rows.back();
    add("time_us", row.out_of_place->time_us);
    add("busbw_GB_per_s", bus_bandwidth(row.what, *row.out_of_place));
    if (const auto& lost = result.rows.back().lost) {
      add("lost_part", lost->part);
      if (!lost->by_switch) add("lost_important_part", lost->important);
    }
    numbers.emplace_back("algorithm", algorithm_of(row));
  }
  if (!result.workload.groups.empty()) {
    std::vector<sim::Picoseconds> all;
    for (const auto& g : result.workload.groups)
      all.insert(all.end(), g.iterations.begin(), g.iterations.end());
    add("iteration_mean_us", mean_us(all));
    add("iteration_most_us", percentile_us(all, 1));
  }
  if (const auto& flows = flows_of(result); !flows.empty()) {
    add("flow_p50_us", us(sim::completion_percentile(flows, 0.5)));
    add("flow_p99_us", us(sim::completion_percentile(flows, 0.99)));
    add("flow_most_us", us(sim::completion_percentile(flows, 1)));
  }
  const sim::RunReport& r = result.report;
  add("longest_queue_bytes", static_cast<double>(r.network.most_queued_bytes));
  add("dropped", static_cast<double>(r.network.dropped + r.network.lost));
  add("retransmissions", static_cast<double>(r.retransmissions));
  add("busiest_utilisation", r.network.busiest_utilisation);
  return numbers;
}

}  // namespace talweg::study
