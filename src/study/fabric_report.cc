#include "study/fabric_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/at.h"
#include "text/table.h"
#include "wire/traffic_class.h"

namespace talweg::study {
namespace {

using steer::FabricCheck;
using steer::LoadSeen;
using steer::Verdict;

// "not seen" with what is to be done about it, once each.
std::vector<std::pair<std::string, std::string>> to_do(const FabricResult& result) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const FabricCheck& check : result.checks)
    if (std::pair entry{check.what, check.to_do};
        !check.to_do.empty() && std::ranges::find(list, entry) == list.end())
      list.push_back(std::move(entry));
  return list;
}

const char* word(Verdict verdict) {
  return verdict == Verdict::pass ? "pass" : verdict == Verdict::fail ? "fail" : "cannot_tell";
}

nlohmann::json load_json(const LoadSeen& load, const std::vector<std::string>& names) {
  nlohmann::json probes = nlohmann::json::array();
  for (std::size_t p = 0; p < load.probes.size(); ++p)
    if (load.probes[p].sent > 0)
      probes.push_back({{"class", wire::kDscpNames[p]},
                        {"sent", load.probes[p].sent},
                        {"received", load.probes[p].received},
                        {"overtook", load.probes[p].overtook},
                        {"wait_us", load.probes[p].wait_ns * 1e-3}});
  return {{"to", names[at(load.to)]},
          {"class", wire::kDscpNames[at(load.priority)]},
          {"senders", load.senders},
          {"overlap", load.overlap},
          {"asked_bit_per_s", std::round(load.asked_rate)},
          {"sent_bit_per_s", std::round(load.sent_rate)},
          {"received_bit_per_s", std::round(load.taken_rate)},
          {"ect_sent", load.capable_sent},
          {"ect_received", load.capable_received},
          {"ect_marked", load.marked},
          {"ect_lost_before_mark", load.lost_before_mark},
          {"not_ect_sent", load.droppable_sent},
          {"not_ect_received", load.droppable_received},
          {"dropped_by_socket", load.dropped_at_host},
          {"idle_wait_us", load.idle_ns * 1e-3},
          {"wait_us", load.wait_ns * 1e-3},
          {"marked_from_bytes", std::round(load.bytes_of(load.mark_wait_ns))},
          {"queue_bytes", std::round(load.bytes_of(load.wait_ns))},
          {"probes", probes}};
}

}  // namespace

std::string fabric_table(const FabricResult& result, bool wide) {
  constexpr int kGap = 2;
  std::vector<text::Column> columns{{"check", 0}, {"where", 0, kGap}, {"", 0, kGap}, {"seen", 0, kGap}};
  std::vector<std::vector<std::string>> rows;
  for (const FabricCheck& check : result.checks)
    rows.push_back({check.what, place_of(check, result.host_names), to_string(check.verdict), check.seen});
  int before = 0;  // what is seen: characters
  for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
    int width = static_cast<int>(columns[c].title.size());
    for (const auto& row : rows) width = std::max(width, static_cast<int>(row[c].size()));
    columns[c].width = -width;
    before += width + kGap;
  }
  const text::Columns lines(columns);
  std::string text = lines.head();
  constexpr int kLeastSeen = 40;
  for (const auto& row : rows) {
    auto cells = row;
    const auto parts = wide ? std::vector{row.back()}
                            : text::wrapped(row.back(), std::max(kLeastSeen, text::kTableWidth - before));
    for (const std::string& part : parts) {
      cells.back() = part;
      text += lines.line(cells);
      cells.assign(cells.size(), "");
    }
  }
  const auto list = to_do(result);
  if (!list.empty()) text += "to do:\n";
  for (const auto& [what, how] : list)
    text += text::fact(fmt::format("  {}", what), how, 2 + 10 + kGap, wide);
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(result.checks, verdict, &FabricCheck::verdict);
  };
  text += fmt::format("{} passed, {} failed, of {} nothing can be told; {:.1f} s, {} MB\n",
                      count(Verdict::pass), count(Verdict::fail), count(Verdict::cannot_tell), result.seconds,
                      text::number_text(static_cast<double>(result.bytes) / 1e6, 3));
  return text;
}

nlohmann::json fabric_json(const FabricResult& result) {
  const auto name = [&](int host) -> nlohmann::json {
    if (host < 0) return nullptr;
    return result.host_names[at(host)];
  };
  nlohmann::json document = {{"format", "talweg fabric"}, {"format_version", 1}};
  document["hosts"] = result.host_names;
  document["seconds"] = result.seconds;
  document["traffic_bytes"] = result.bytes;
  document["checks"] = nlohmann::json::array();
  for (const FabricCheck& check : result.checks)
    document["checks"].push_back({{"check", check.what},
                                  {"from", name(check.from)},
                                  {"to", name(check.to)},
                                  {"verdict", word(check.verdict)},
                                  {"seen", check.seen},
                                  {"to_do", check.to_do}});
  document["loads"] = nlohmann::json::array();
  for (const LoadSeen& load : result.loads) document["loads"].push_back(load_json(load, result.host_names));
  return document;
}

}  // namespace talweg::study
