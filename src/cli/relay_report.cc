#include "cli/relay_report.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <utility>

#include "sim/network.h"
#include "sim/report.h"
#include "text/table.h"

namespace talweg::cli {
namespace {

using ByPriority = std::array<std::uint64_t, sim::kPriorities>;

std::uint64_t total(const ByPriority& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

// "0: 12  4: 3", of those priorities of which there are any.
std::string by_priority(const ByPriority& counts) {
  std::string text;
  for (std::size_t p = 0; p < counts.size(); ++p)
    if (counts[p] > 0) text += fmt::format("{}{}: {}", text.empty() ? "" : "  ", p, counts[p]);
  return text.empty() ? "-" : text;
}

double milliseconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

}  // namespace

std::string relay_text(const cluster::Cluster& cluster, const fabric::RelayReport& report, bool wide) {
  using text::Quantity;
  text::Table table{{"link"},
                    {.title = "packets", .of = Quantity::number, .digits = 1},
                    {.title = "bytes", .of = Quantity::number, .digits = 1},
                    {.title = "marked", .of = Quantity::number, .digits = 1},
                    {.title = "lost", .of = Quantity::number, .digits = 1},
                    {.title = "dropped", .of = Quantity::number, .digits = 1},
                    {.title = "by priority", .drop = 1}};
  const auto number = [](auto count) { return text::Cell(std::to_string(count)); };
  for (std::size_t l = 0; l < report.links.size(); ++l) {
    const sim::LinkCounters& c = report.links[l];
    if (c.packets + c.lost + total(c.dropped) == 0) continue;
    table.add({sim::link_name(cluster, static_cast<int>(l)), number(c.packets), number(c.bytes),
               number(total(c.marked)), number(c.lost), number(total(c.dropped)), by_priority(c.dropped)});
  }
  std::string text = table.empty() ? "" : table.text(wide);
  text +=
      fmt::format("{} packets handed over, late by {:.3f} ms (median), {:.3f} ms (99 %), {:.3f} ms (worst)\n",
                  report.carried, milliseconds(report.median_late_ns), milliseconds(report.p99_late_ns),
                  milliseconds(report.worst_late_ns));
  if (report.inside > 0) text += fmt::format("{} were still on their way at the end\n", report.inside);
  if (report.foreign + report.malformed + report.unroutable + report.refused > 0)
    text += fmt::format(
        "not carried: {} packets to nobody here, {} that are no whole IP packets, {} without a way; "
        "{} were refused by their receiver\n",
        report.foreign, report.malformed, report.unroutable, report.refused);
  return text;
}

std::string relay_doubt(const fabric::RelayReport& report) {
  if (!report.whole) return "the relay did not come to its end: nothing is known of the links";
  std::string doubt;
  if (report.p99_late_ns > kTrustedLateNs)
    doubt = fmt::format("one packet in a hundred was handed over more than {:.3f} ms late",
                        milliseconds(report.p99_late_ns));
  if (report.unread > 0)
    doubt += fmt::format("{}{} packets were lost because the relay did not read them in time",
                         doubt.empty() ? "" : ", and ", report.unread);
  return doubt.empty() ? "" : "the relay was too slow for times to be trusted: " + doubt;
}

nlohmann::json relay_json(const cluster::Cluster& cluster, const fabric::RelayReport& report) {
  nlohmann::json links = nlohmann::json::array();
  for (std::size_t l = 0; l < report.links.size(); ++l) {
    const sim::LinkCounters& c = report.links[l];
    links.push_back({{"link", sim::link_name(cluster, static_cast<int>(l))},
                     {"packets", c.packets},
                     {"bytes", c.bytes},
                     {"most_queued_bytes", c.most_queued_bytes},
                     {"marked", c.marked},
                     {"dropped", c.dropped},
                     {"lost", c.lost}});
  }
  return {{"format", "talweg lab"},
          {"format_version", 1},
          {"links", std::move(links)},
          {"whole", report.whole},
          {"lasted_seconds", static_cast<double>(report.lasted_ns) * 1e-9},
          {"handed_over", report.carried},
          {"inside", report.inside},
          {"foreign", report.foreign},
          {"malformed", report.malformed},
          {"unroutable", report.unroutable},
          {"refused", report.refused},
          {"unread", report.unread},
          {"late_seconds",
           {{"median", static_cast<double>(report.median_late_ns) * 1e-9},
            {"p99", static_cast<double>(report.p99_late_ns) * 1e-9},
            {"worst", static_cast<double>(report.worst_late_ns) * 1e-9}}}};
}

}  // namespace talweg::cli
