#include "study/perf_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/printable.h"
#include "base/units.h"
#include "text/table.h"

namespace talweg::study {
namespace {

constexpr std::size_t kMostNamed = 256;  // ranks in the header

// Seven characters hold it, with as many digits as fit: as nccl-tests.
std::string time_text(double us) {
  if (us >= 10000) return fmt::format("{:.0f}", us);
  if (us >= 100) return fmt::format("{:.1f}", us);
  return fmt::format("{:.2f}", us);
}

std::string wrong_text(const Timing& timing) {
  return timing.wrong ? std::to_string(*timing.wrong) : std::string("N/A");
}

// size count type redop root, then both sides, then the percentiles of both, as in nccl-tests.
const text::Columns& columns() {
  static const text::Columns all{{"", 12}, {"", 13}, {"", 11}, {"", 8},    {"", 8},   {"", 9}, {"", 8},
                                 {"", 8},  {"", 7},  {"", 9},  {"", 8},    {"", 8},   {"", 7}, {"", 9},
                                 {"", 9},  {"", 9},  {"", 9},  {"", 0, 2}, {"", 0, 2}};
  return all;
}

void add_side(const PerfCase& c, const std::optional<Timing>& timing, std::vector<std::string>& cells) {
  if (timing)
    cells.insert(cells.end(),
                 {time_text(timing->time_us), fmt::format("{:.2f}", algorithm_bandwidth(c, *timing)),
                  fmt::format("{:.2f}", bus_bandwidth(c, *timing)), wrong_text(*timing)});
  else
    cells.insert(cells.end(), 4, "N/A");
}

void add_percentiles(const std::optional<Timing>& timing, std::vector<std::string>& cells) {
  cells.push_back(timing ? time_text(timing->p50_us) : "N/A");
  cells.push_back(timing ? time_text(timing->p99_us) : "N/A");
}

std::string algorithm_of(const std::string& plan) {
  return plan.empty() ? "-" : plan.substr(0, plan.find(','));
}

std::string commented(const std::string& text) {
  std::string lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) lines += fmt::format("# {}\n", printable(line));
  return lines;
}

std::string bytes_text(std::uint64_t bytes) {
  return to_string(Bytes{static_cast<std::int64_t>(bytes)});
}

nlohmann::json side_json(const PerfCase& c, const std::optional<Timing>& timing) {
  if (!timing) return nullptr;
  nlohmann::json side = {{"time_us", timing->time_us},
                         {"p50_us", timing->p50_us},
                         {"p99_us", timing->p99_us},
                         {"algbw_GB_per_s", algorithm_bandwidth(c, *timing)},
                         {"busbw_GB_per_s", bus_bandwidth(c, *timing)},
                         {"wrong_elements", nullptr}};
  if (timing->wrong) side["wrong_elements"] = *timing->wrong;
  return side;
}

}  // namespace

double algorithm_bandwidth(const PerfCase& c, const Timing& timing) {
  return timing.time_us > 0 ? static_cast<double>(vector_bytes(c)) / timing.time_us / 1e3 : 0;
}

double bus_bandwidth(const PerfCase& c, const Timing& timing) {
  return algorithm_bandwidth(c, timing) * busbw_factor(c.op, c.ranks);
}

PerfTotals summed(const std::vector<PerfRow>& rows) {
  PerfTotals totals;
  int sides = 0;
  for (const auto& row : rows)
    for (const auto* side : {&row.out_of_place, &row.in_place}) {
      if (!*side) continue;
      totals.wrong += (*side)->wrong.value_or(0);
      totals.average_bus_bandwidth += bus_bandwidth(row.what, **side);
      ++sides;
    }
  if (sides > 0) totals.average_bus_bandwidth /= sides;
  return totals;
}

std::string header_text(const PerfOptions& options, const PerfSetup& setup) {
  std::string text =
      fmt::format("# talweg version {}\n# Collective test starting: {}\n", setup.version, name(options.op));
  text += fmt::format(
      "# nRanks {} {} warmup iters: {} iters: {} agg iters: {} validation: {} blocking: {} average: {}\n#\n",
      setup.hosts.size(), options.size_text, options.warmup, options.iterations, options.aggregate,
      options.check, static_cast<int>(options.blocking), static_cast<int>(options.average));
  text += "# Using ranks\n";
  const std::size_t named = std::min(setup.hosts.size(), kMostNamed);
  for (std::size_t rank = 0; rank < named; ++rank) {
    const std::string& whose = setup.hosts[rank];
    const std::string host = whose.substr(0, whose.find(' ')), pid = whose.substr(whose.rfind(' ') + 1);
    text += fmt::format("#  Rank {:>2} Group  0 Pid {:>6} on {:>10}\n", rank, pid, printable(host));
  }
  if (named < setup.hosts.size()) text += fmt::format("#  ... and {} more\n", setup.hosts.size() - named);
  text += "#\n" + commented(setup.description);
  if (setup.hint_one_rank)
    text +=
        fmt::format("# one rank: start several with: talweg run -n 4 -- talweg perf {}\n", name(options.op));
  text += "#\n";
  text += fmt::format("#{:>75}{:>32}{:>35}{:>18}\n", "out-of-place         ", "in-place         ",
                      "out-of-place", "in-place");
  text += "#" + columns()
                    .line({"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
                           "time", "algbw", "busbw", "#wrong", "p50", "p99", "p50", "p99", "algorithm"})
                    .substr(1);
  return text + "#" +
         columns()
             .line({"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
                    "(GB/s)", "", "(us)", "(us)", "(us)", "(us)"})
             .substr(1);
}

std::string row_text(const PerfRow& row) {
  const PerfCase& c = row.what;
  std::vector<std::string> cells{std::to_string(vector_bytes(c)), std::to_string(c.count), table_name(c.type),
                                 has_reduction(c.op) ? table_name(c.reduce) : "none",
                                 std::to_string(has_root(c.op) ? c.root : -1)};
  for (const auto* side : {&row.out_of_place, &row.in_place}) add_side(c, *side, cells);
  for (const auto* side : {&row.out_of_place, &row.in_place}) add_percentiles(*side, cells);
  cells.push_back(algorithm_of(row.plan));
  if (!row.timestamp.empty()) cells.push_back(row.timestamp);
  return columns().line(cells);
}

std::string footer_text(const PerfTotals& totals) {
  return fmt::format(
      "# Out of bounds values : {} {}\n"
      "# Avg bus bandwidth    : {:.6g}\n"
      "# memory: chunk buffers peak {}, shared memory {} (the rank that has most)\n"
      "# wire bytes: {} sent by all ranks, warm-up and checks included\n#\n",
      totals.wrong, totals.wrong == 0 ? "OK" : "FAILED", totals.average_bus_bandwidth,
      bytes_text(totals.peak_buffer_bytes), bytes_text(totals.shared_memory_bytes), totals.wire_bytes);
}

nlohmann::json to_json(const PerfOptions& options, const PerfSetup& setup, const std::vector<PerfRow>& rows,
                       const PerfTotals& totals) {
  nlohmann::json document = {
      {"format", "talweg perf"}, {"format_version", 1}, {"talweg_version", setup.version}};
  document["collective"] = name(options.op);
  document["ranks"] = nlohmann::json::array();
  for (const auto& host : setup.hosts) document["ranks"].push_back(host);
  document["setup"] = setup.description;
  document["iterations"] = options.iterations;
  document["warmup_iterations"] = options.warmup;
  document["aggregated_calls"] = options.aggregate;
  document["blocking_mode"] = static_cast<int>(options.blocking);
  document["average_mode"] = static_cast<int>(options.average);
  document["results"] = nlohmann::json::array();
  for (const auto& row : rows) {
    const PerfCase& c = row.what;
    nlohmann::json line = {{"size_bytes", vector_bytes(c)},
                           {"count_elements", c.count},
                           {"type", table_name(c.type)},
                           {"redop", has_reduction(c.op) ? table_name(c.reduce) : "none"},
                           {"root", has_root(c.op) ? c.root : -1},
                           {"busbw_factor", busbw_factor(c.op, c.ranks)},
                           {"out_of_place", side_json(c, row.out_of_place)},
                           {"in_place", side_json(c, row.in_place)},
                           {"algorithm", algorithm_of(row.plan)},
                           {"plan", row.plan}};
    if (!row.timestamp.empty()) line["timestamp"] = row.timestamp;
    document["results"].push_back(std::move(line));
  }
  document["wrong_elements"] = totals.wrong;
  document["avg_busbw_GB_per_s"] = totals.average_bus_bandwidth;
  document["wire_bytes"] = totals.wire_bytes;
  document["peak_chunk_buffer_bytes"] = totals.peak_buffer_bytes;
  document["shared_memory_bytes"] = totals.shared_memory_bytes;
  return document;
}

}  // namespace talweg::study
