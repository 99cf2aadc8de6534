#include "study/probe_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "base/printable.h"
#include "base/units.h"
#include "text/table.h"

namespace talweg::study {
namespace {

using steer::Estimate;
using steer::Findings;

// Three digits are more than a measurement knows.
std::string rate_text(double bits_per_second) {
  if (bits_per_second >= 1e9) return fmt::format("{:.3g} Gbit/s", bits_per_second / 1e9);
  return fmt::format("{:.3g} Mbit/s", bits_per_second / 1e6);
}

std::string rate_text(const std::optional<Estimate>& rate) {
  return rate ? rate_text(rate->value) : "no limit found";
}

// Those that set a pair apart; the others only say more closely what ports do.
bool differs(const Findings& found, const Findings::Pair& pair) {
  const double ports = std::min(found.out[at(pair.flow.from)].value, found.in[at(pair.flow.to)].value);
  return pair.rate.value < steer::kFull * ports;
}

std::string names(const steer::ProbeResult& result, const std::vector<int>& hosts) {
  std::string text;
  for (const int h : hosts) text += (text.empty() ? "" : ", ") + printable(result.host_names[at(h)]);
  return text;
}

double median_latency_us(const Findings& found, int host) {
  std::vector<double> list;
  for (int other = 0; other < found.hosts; ++other)
    if (other != host) list.push_back(found.latency_ns[at(host)][at(other)] / 1e3);
  std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2), list.end());
  return list[list.size() / 2];
}

nlohmann::json estimate_json(const std::optional<Estimate>& rate) {
  if (!rate) return nullptr;
  return {{"bit_per_s", std::round(rate->value)}, {"half_width", rate->half_width}};
}

}  // namespace

std::string probe_table(const steer::ProbeResult& result, bool wide) {
  using text::Quantity;
  const Findings& found = result.findings;
  std::vector<text::TableColumn> columns{{"host"},
                                         {.title = "up", .of = Quantity::bits_per_second},
                                         {.title = "down", .of = Quantity::bits_per_second},
                                         {.title = "to others", .of = Quantity::seconds, .drop = 1}};
  const bool shares = std::ranges::any_of(found.both, [](const auto& both) { return both.has_value(); });
  if (shares) columns.push_back({.title = "up + down", .of = Quantity::bits_per_second});
  text::Table table(std::move(columns));
  for (int h = 0; h < found.hosts; ++h) {
    std::vector<text::Cell> cells{result.host_names[at(h)], found.out[at(h)].value, found.in[at(h)].value,
                                  median_latency_us(found, h) * 1e-6};
    if (found.both[at(h)]) cells.emplace_back(found.both[at(h)]->value);
    table.add(std::move(cells));
  }
  std::string text = table.text(wide);
  if (shares) text += "up + down: what a host's two directions share\n";
  const auto slow =
      std::ranges::count_if(found.pairs, [&](const Findings::Pair& pair) { return differs(found, pair); });
  if (slow > 0) text += "pairs with a limit of their own:\n";
  for (const auto& pair : found.pairs)
    if (differs(found, pair))
      text += fmt::format("  {} -> {}  {}\n", names(result, {pair.flow.from}), names(result, {pair.flow.to}),
                          rate_text(pair.rate.value));
  if (!found.uplinks.empty()) text += "hosts that share a way to all others:\n";
  for (const auto& uplink : found.uplinks)
    text += fmt::format("  {}  out {}, in {}\n", names(result, uplink.inside), rate_text(uplink.leaving),
                        rate_text(uplink.entering));
  if (slow == 0 && found.uplinks.empty())
    text += "nothing is shared between hosts that was seen to hold flows up\n";
  if (found.doubt > 0)
    text += fmt::format("the chance that something of what is shared is not there: at most {:.2g} %\n",
                        100 * std::min(found.doubt, 1.0));
  if (found.unexplained_flows > 0)
    text += fmt::format(
        "{} flows of the rounds were slower than all this explains: something else is shared, or "
        "the network was busy\n",
        found.unexplained_flows);
  if (found.unmeasured_pairs > 0)
    text += fmt::format("{} more pairs were held up and not measured alone\n", found.unmeasured_pairs);
  constexpr double kUseful = 0.15;
  if (found.confidence > kUseful)
    text += "measurements of the same thing differ too much to plan by: the network or a host is busy\n";
  text += fmt::format("rates are sure to {:.1f} %: {} measurements, {:.1f} s, {:.3g} GB\n",
                      100 * found.confidence, found.trials, result.seconds,
                      static_cast<double>(result.bytes) / 1e9);
  return text;
}

nlohmann::json probe_json(const steer::ProbeResult& result) {
  const Findings& found = result.findings;
  nlohmann::json document = {{"format", "talweg probe"}, {"format_version", 1}};
  document["measured"] = result.network.measured;
  document["confidence"] = found.confidence;
  document["doubt"] = std::min(found.doubt, 1.0);
  document["measurements"] = found.trials;
  document["seconds"] = result.seconds;
  document["traffic_bytes"] = result.bytes;
  document["unexplained_flows"] = found.unexplained_flows;
  document["unmeasured_pairs"] = found.unmeasured_pairs;
  document["hosts"] = nlohmann::json::array();
  for (int h = 0; h < found.hosts; ++h)
    document["hosts"].push_back({{"name", result.host_names[at(h)]},
                                 {"up", estimate_json(found.out[at(h)])},
                                 {"down", estimate_json(found.in[at(h)])},
                                 {"up_and_down", estimate_json(found.both[at(h)])},
                                 {"latency_ns", found.latency_ns[at(h)]}});
  document["pairs"] = nlohmann::json::array();
  for (const auto& pair : found.pairs)
    if (differs(found, pair))
      document["pairs"].push_back({{"from", result.host_names[at(pair.flow.from)]},
                                   {"to", result.host_names[at(pair.flow.to)]},
                                   {"rate", estimate_json(pair.rate)}});
  document["uplinks"] = nlohmann::json::array();
  for (const auto& uplink : found.uplinks) {
    nlohmann::json inside = nlohmann::json::array();
    for (const int h : uplink.inside) inside.push_back(result.host_names[at(h)]);
    document["uplinks"].push_back({{"hosts", inside},
                                   {"leaving", estimate_json(uplink.leaving)},
                                   {"entering", estimate_json(uplink.entering)}});
  }
  document["cluster"] = nlohmann::json::parse(cluster::to_json(result.network));
  return document;
}

}  // namespace talweg::study
