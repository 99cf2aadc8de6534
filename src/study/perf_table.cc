#include "study/perf_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/printable.h"
#include "base/units.h"
#include "protocol/aggregation/tolerance.h"
#include "protocol/bounded/adaptive_deadline.h"
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

constexpr std::size_t kMostAlgorithms = 8;  // in the line about them
constexpr int kAlgorithmWidth = 25;         // what is left of 120 with the columns of PerfColumns::once

// size count type redop root, then both sides, as in nccl-tests, then the percentiles of both, the algorithm.
std::vector<text::Column> columns_for(PerfColumns which) {
  struct Drops {
    int in_place, p50, p99, in_place_percentiles, algorithm;
  };
  constexpr Drops kNccl{0, 2, 3, 3, 1}, kOnce{3, 1, 2, 3, 0};
  const Drops drop = which == PerfColumns::once ? kOnce : kNccl;
  return {{"", 12},
          {"", 13},
          {"", 11},
          {"", 8},
          {"", 8},
          {"", 9},
          {"", 8},
          {"", 8},
          {"", 7},
          {"", 9, 0, drop.in_place},
          {"", 8, 0, drop.in_place},
          {"", 8, 0, drop.in_place},
          {"", 7, 0, drop.in_place},
          {"", 9, 0, drop.p50},
          {"", 9, 0, drop.p99},
          {"", 9, 0, drop.in_place_percentiles},
          {"", 9, 0, drop.in_place_percentiles},
          {"", -kAlgorithmWidth, 2, drop.algorithm}};
}

// Which of the columns there are, and lines of them.
class PerfLines {
 public:
  explicit PerfLines(PerfColumns which)
      : all_(columns_for(which)),
        cuts_(which != PerfColumns::all),
        kept_(text::fitting(all_, cuts_ ? text::kTableWidth : INT_MAX)) {
    for (const std::size_t c : kept_) shown_.push_back(all_[c]);
  }

  std::size_t left_out() const { return all_.size() - kept_.size(); }
  // `cells`: of all columns, from the first.
  std::string line(const std::vector<std::string>& cells) const {
    std::vector<std::string> shown;
    for (const std::size_t c : kept_) {
      if (c >= cells.size()) break;
      const bool words = cuts_ && all_[c].width < 0;
      shown.push_back(words ? text::shortened(printable(cells[c]), -all_[c].width) : cells[c]);
    }
    return text::Columns(shown_).line(shown);
  }
  // What the columns of a side have in common, above them.
  std::string sides() const {
    struct Side {
      std::size_t first, last;
      std::string_view name;
    };
    constexpr Side kSides[] = {
        {5, 8, "out-of-place"}, {9, 12, "in-place"}, {13, 14, "out-of-place"}, {15, 16, "in-place"}};
    std::string text;
    for (const Side& side : kSides) {
      std::size_t begin = 0, width = 0;
      for (const std::size_t c : kept_) {
        const std::size_t its =
            static_cast<std::size_t>(all_[c].gap) + static_cast<std::size_t>(std::abs(all_[c].width));
        if (c < side.first) begin += its;
        if (c >= side.first && c <= side.last) width += its;
      }
      if (width < side.name.size()) continue;
      text.resize(begin + (width - side.name.size()) / 2, ' ');
      text += side.name;
    }
    return text + "\n";
  }

 private:
  std::vector<text::Column> all_;
  bool cuts_;
  std::vector<std::size_t> kept_;
  std::vector<text::Column> shown_;
};

// A line that is no result.
std::string hashed(std::string line) {
  line[0] = '#';
  return line;
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

std::string algorithm_of(const PerfRow& row) {
  return row.plan.empty() ? "-" : row.plan.substr(0, row.plan.find(','));
}

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
  const PerfLines lines(options.columns);
  if (lines.left_out() > 0) text += fmt::format("# {}\n", text::wide_hint(lines.left_out(), false));
  if (setup.hint_one_rank)
    text +=
        fmt::format("# one rank: start several with: talweg run -n 4 -- talweg perf {}\n", name(options.op));
  text += "#\n";
  text += hashed(lines.sides());
  text += hashed(lines.line({"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
                             "time", "algbw", "busbw", "#wrong", "p50", "p99", "p50", "p99", "algorithm"}));
  return text + hashed(lines.line({"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                                   "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(us)"}));
}

std::string row_text(const PerfOptions& options, const PerfRow& row) {
  const PerfCase& c = row.what;
  std::vector<std::string> cells{std::to_string(vector_bytes(c)), std::to_string(c.count), table_name(c.type),
                                 has_reduction(c.op) ? table_name(c.reduce) : "none",
                                 std::to_string(has_root(c.op) ? c.root : -1)};
  for (const auto* side : {&row.out_of_place, &row.in_place}) add_side(c, *side, cells);
  for (const auto* side : {&row.out_of_place, &row.in_place}) add_percentiles(*side, cells);
  cells.push_back(algorithm_of(row));
  std::string line = PerfLines(options.columns).line(cells);
  // Asked for: it stands there even where it is too much.
  if (!row.timestamp.empty()) line.insert(line.size() - 1, "  " + row.timestamp);
  return line;
}

std::string algorithms_text(const PerfOptions& options, const std::vector<PerfRow>& rows) {
  if (options.columns != PerfColumns::nccl || rows.empty()) return "";
  struct Run {
    std::string algorithm;
    std::uint64_t first, last;  // bytes
  };
  std::vector<Run> runs;
  for (const PerfRow& row : rows) {
    const std::uint64_t bytes = vector_bytes(row.what);
    const std::string algorithm = algorithm_of(row);
    if (runs.empty() || runs.back().algorithm != algorithm) runs.push_back({algorithm, bytes, bytes});
    runs.back().last = bytes;
  }
  std::vector<std::string> parts;
  for (const Run& run : runs) {
    if (parts.size() == kMostAlgorithms) {
      parts.emplace_back("...");
      break;
    }
    parts.push_back(run.algorithm);
    if (runs.size() == 1) break;
    parts.back() += " for " + bytes_text(run.first);
    if (run.last != run.first) parts.back() += " to " + bytes_text(run.last);
  }
  return fmt::format("# {:<21}: {}\n", "Algorithm", printable(fmt::format("{}", fmt::join(parts, ", "))));
}

std::vector<std::string> lost_sentences(const PerfOptions& options, const std::vector<PerfRow>& rows,
                                        double may_lose, bool droppable) {
  std::string limits = fmt::format("at most {:g} % may be missing of what one sends another", may_lose * 100);
  if (options.may_lose_sender)
    limits += fmt::format(", {:g} % of that on average over calls", *options.may_lose_sender * 100);
  if (options.may_lose_call)
    limits += fmt::format(", and {:g} % of what all others together send a rank in a call",
                          *options.may_lose_call * 100);
  std::vector<std::string> sentences;
  for (const PerfRow& row : rows) {
    if (!row.lost) continue;
    if (row.lost->by_switch) {
      sentences.push_back(
          fmt::format("{}, {}: {:.3g} % of what workers sent is not in these sums and comes with the next "
                      "ones; at most {:g} % of a worker's may be missing of each, in whole blocks. Before "
                      "these calls came {} more, which lose nothing",
                      bytes_text(vector_bytes(row.what)), algorithm_of(row), row.lost->part * 100,
                      may_lose * 100, protocol::LingerTime::kWarmUp));
      continue;
    }
    sentences.push_back(fmt::format(
        "{}, {}: {:.3g} % of what ranks sent each other did not come in time; {}, in whole packets. Before "
        "these calls came {} more, which lose nothing and are counted below",
        bytes_text(vector_bytes(row.what)), algorithm_of(row), row.lost->part * 100, limits,
        protocol::AdaptiveDeadline::kWarmUp));
    if (row.lost->calls_by_switch > 0)
      sentences.back() += fmt::format(
          ". {} of {} calls went by the switch: of a rank's data the same is missing on all ranks",
          row.lost->calls_by_switch, row.lost->calls);
    if (droppable)
      sentences.back() += fmt::format(". Of what is missing {:.3g} % was in packets that were not droppable",
                                      row.lost->important * 100);
  }
  return sentences;
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
                           {"algorithm", algorithm_of(row)},
                           {"plan", row.plan}};
    if (row.lost) {
      line["lost_part"] = row.lost->part;
      if (!row.lost->by_switch) {
        line["lost_important_part"] = row.lost->important;
        line["by_switch"] = row.lost->calls_by_switch;
      }
    }
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
