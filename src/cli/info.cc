// talweg info: what this build and this machine are, what is set and by whom, and which algorithm would be
// taken.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "base/settings.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "cluster/cluster.h"
#include "formats/import.h"
#include "steer/assumed_network.h"
#include "study/by_bounded_loss.h"
#include "study/choices.h"
#include "study/machine.h"
#include "study/perf_case.h"
#include "study/plan_study.h"
#include "study/progress.h"
#include "text/escape.h"
#include "text/output_file.h"
#include "text/table.h"

namespace talweg::cli {
namespace {

using namespace study;

constexpr const char* kInfoExamples = R"(
Examples:
  talweg info                                        # this build, this machine, every setting and its origin
  talweg info --json -
  talweg info all_reduce -n 8                        # what is taken for which size between 8 hosts
  talweg info all_reduce -n 8 --ranks-per-host 4
  talweg info broadcast --cluster cluster.yaml       # on a network that a file describes)";

constexpr int kMostRanks = static_cast<int>(kMostNodesToPlan) - 1;  // beside them there is a switch

struct InfoFlags {
  std::string collective, op;
  int ranks = 0;
  int ranks_per_host = 1;
  std::string cluster;
  std::string patience = "10s";
  std::optional<double> may_lose;
  std::string json;
  bool wide = false;
  std::string needs_collective;  // the first option given that says nothing without one
};

struct Network {
  cluster::Cluster cluster;
  std::string origin;
};

Network find_network(const InfoFlags& flags) {
  const auto file = resolve("TALWEG_CLUSTER", flags.cluster);
  if (!file.value.empty()) {
    text::check_outputs({flags.json}, {file.value});
    Network network{formats::load_any(file.value), fmt::format("{} ({})", file.value, origin_text(file))};
    if (flags.ranks > 0 && flags.ranks != network.cluster.workers())
      refuse("-n {}: {} has {} workers", flags.ranks, file.value, network.cluster.workers());
    return network;
  }
  if (flags.ranks <= 0) refuse("how many ranks? give -n, or --cluster with a file");
  std::vector<int> host_of;
  for (int rank = 0; rank < flags.ranks; ++rank) host_of.push_back(rank / flags.ranks_per_host);
  return {steer::assumed_network(host_of),
          fmt::format("assumed: {} ranks on {} hosts (a file may say better: --cluster)", flags.ranks,
                      host_of.back() + 1)};
}

std::string choices_text(Collective op, const Network& network, const Choices& list, bool wide) {
  std::string text = fmt::format("network: {}\n", printable(network.origin));
  if (const auto names = aggregator_names(network.cluster); !names.empty())
    text += fmt::format("aggregators: {}\n", printable(fmt::format("{}", fmt::join(names, ", "))));
  text += "the least predicted time is taken, for f32\n";
  if (const auto forced = resolve("TALWEG_ALGO"); !forced.value.empty())
    text += fmt::format("but TALWEG_ALGO={} ({}) decides where it names an algorithm\n",
                        printable(forced.value), printable(origin_text(forced)));
  return text + to_text(op, list, wide);
}

// The same sizes by sums of which a part may be lost, which no group takes by itself: where none is.
std::vector<double> bounded_seconds(const cluster::Cluster& network, const Choices& list) {
  std::vector<double> seconds;
  for (const Choice& choice : list.sizes)
    seconds.push_back(*predict_bounded(network, {Collective::all_reduce, DataType::f32, ReduceOp::sum, -1,
                                                 network.workers(), choice.bytes / size_of(DataType::f32)})
                           .seconds);
  return seconds;
}

std::string bounded_text(double may_lose, const Choices& list, const std::vector<double>& seconds,
                         bool wide) {
  text::Table table{{"bounded"}, {.title = "predicted", .of = text::Quantity::seconds}};
  for (std::size_t i = 0; i < seconds.size(); ++i)
    table.add({to_string(Bytes{static_cast<std::int64_t>(list.sizes[i].bytes)}), seconds[i]});
  return fmt::format("BoundedSums with p = {}, where nothing is lost; no group takes them by itself\n{}",
                     may_lose, table.text(wide));
}

// On a terminal it says after a second how far it is.
Choices choices_in(Collective op, const cluster::Cluster& network, double patience) {
  ProgressLine line(std::chrono::seconds(1), std::nullopt);
  return choices(op, network, patience, [&](const StudyProgress& progress) {
    if (line.due())
      line.say(fmt::format("talweg info: {}; {} of at most {}", to_text(progress), wait_text(line.seconds()),
                           wait_text(patience)));
  });
}

void show(const InfoFlags& flags, const std::string& text, const nlohmann::json& document) {
  const text::OutputFile json("--json", flags.json.empty() ? "-" : flags.json);
  json.write(flags.json.empty() ? text : text::json_document(document));
}

int info(const InfoFlags& flags) {
  if (!flags.collective.empty() && !flags.op.empty() && flags.op != flags.collective)
    refuse("--op {}: the collective is {} already: expected only one of them", flags.op, flags.collective);
  const std::string& collective = flags.collective.empty() ? flags.op : flags.collective;
  if (collective.empty()) {
    if (!flags.needs_collective.empty())
      refuse("{}: it needs a collective, as in talweg info all_reduce {} ...", flags.needs_collective,
             flags.needs_collective);
    const auto facts = machine_facts();
    show(flags, to_text(facts), to_json(facts));
    const bool good =
        std::ranges::all_of(settings(), [](const Setting& s) { return complaint_about(s).empty(); });
    return good ? 0 : kFailureExitCode;
  }
  const Collective op = study::collective_called(collective);
  if (flags.may_lose && op != Collective::all_reduce)
    refuse("--may-lose: a part may be lost of all_reduce, not of {}", name(op));
  const Network network = find_network(flags);
  const Choices list = choices_in(op, network.cluster,
                                  static_cast<double>(parse_wait("--patience", flags.patience).value) * 1e-9);
  nlohmann::json document = to_json(op, network.origin, network.cluster.workers(), list);
  document["format"] = "talweg info";
  document["format_version"] = 1;
  document["aggregators"] = aggregator_names(network.cluster);
  std::string text = choices_text(op, network, list, flags.wide);
  if (flags.may_lose) {
    const std::vector<double> seconds = bounded_seconds(network.cluster, list);
    text += bounded_text(*flags.may_lose, list, seconds, flags.wide);
    document["bounded"] = {{"may_lose", *flags.may_lose}, {"predicted_us", nlohmann::json::array()}};
    for (const double its : seconds) document["bounded"]["predicted_us"].push_back(its * 1e6);
  }
  show(flags, text, document);
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Action* action) {
  auto flags = std::make_shared<InfoFlags>();
  auto* sub =
      app.add_subcommand("info", "this build, this machine, every setting; or the algorithm for each size");
  sub->footer(kInfoExamples);
  sub->add_option("collective", flags->collective, "show which algorithm is taken for it");
  sub->add_option("--op", flags->op, "the same");
  sub->add_option("-n,--ranks", flags->ranks, "ranks of the group")->check(whole_number(1, kMostRanks));
  sub->add_option("--ranks-per-host", flags->ranks_per_host, "of the assumed network")
      ->check(whole_number(1, kMostRanks))
      ->capture_default_str();
  sub->add_option("--cluster", flags->cluster, "file that describes the network (default: TALWEG_CLUSTER)");
  sub->add_option("--may-lose", flags->may_lose,
                  "of all_reduce: what sums of which such a part may be lost take, too")
      ->check(real_number(0, 0.5));
  sub->add_option("--patience", flags->patience,
                  "time for all predictions; what is left out by then is named")
      ->capture_default_str();
  add_wide(*sub, flags->wide);
  sub->add_option("-J,--json", flags->json, "as JSON, into this file; - for standard output");
  sub->callback([flags, sub, action] {
    for (const char* name : {"--ranks", "--ranks-per-host", "--cluster", "--may-lose", "--patience"})
      if (flags->needs_collective.empty() && sub->count(name) > 0) flags->needs_collective = name;
    *action = [flags] { return info(*flags); };
  });
}

}  // namespace talweg::cli
