// talweg info: what this build and this machine are, what is set and by whom, and which algorithm would be
// taken.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/settings.h"
#include "base/units.h"
#include "cli/choices.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/number_checks.h"
#include "cli/version.h"
#include "cluster/cluster.h"
#include "formats/import.h"
#include "kernel/reduce.h"
#include "live/join/interface.h"
#include "live/join/job_key.h"
#include "steer/assumed_network.h"
#include "talweg/error.h"
#include "wire/cipher.h"

namespace talweg::cli {
namespace {

using Json = nlohmann::json;

constexpr const char* kInfoExamples = R"(
Examples:
  talweg info                                        # this build, this machine, every setting and its origin
  talweg info --json -
  talweg info all_reduce -n 8                        # what is taken for which size between 8 hosts
  talweg info all_reduce -n 8 --ranks-per-host 4
  talweg info broadcast --cluster cluster.yaml       # on a network that a file describes)";

struct InfoFlags {
  std::string collective;
  int ranks = 0;
  int ranks_per_host = 1;
  std::string cluster;
  std::string json;
};

std::string origin_text(const ResolvedSetting& setting) {
  return setting.place.empty() ? name(setting.origin)
                               : fmt::format("{} {}", name(setting.origin), setting.place);
}

// Where the key comes from, never what it is.
std::string job_key_text() {
  try {
    const auto key = live::find_job_key();
    return key ? "from " + key->origin : "none: talweg run draws one; by hand, set TALWEG_KEY_FILE";
  } catch (const Error& e) {
    return e.what();
  }
}

wire::CipherKind cipher() {
  return wire::has_aes() ? wire::CipherKind::aes256_gcm : wire::CipherKind::chacha20_poly1305;
}

ResolvedSetting shown(const Setting& setting) {
  auto value = resolve(setting.name);
  if (setting.secret && !value.value.empty()) value.value = "(not shown)";
  return value;
}

std::string memory_text(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

Json machine_json(const MachineFacts& facts) {
  Json document = {{"talweg_version", kVersion}, {"build_type", kBuildType}, {"compiler", kCompiler}};
  document["simd_target"] = kernel::target_name();
  document["host"] = facts.host;
  document["kernel"] = facts.kernel;
  document["cpus"] = facts.cpus;
  document["memory_bytes"] = facts.memory_bytes;
  document["memory_available_bytes"] = facts.memory_available_bytes;
  document["tcp_congestion_control"] = facts.congestion_control;
  document["tcp_congestion_controls_available"] = facts.congestion_controls_available;
  document["shared_memory_free_bytes"] = facts.shared_memory_bytes;
  document["network_namespaces"] = facts.namespaces;
  document["interfaces"] = Json::array();
  for (const auto& interface : live::interfaces())
    document["interfaces"].push_back({{"name", interface.name}, {"address", interface.address}});
  document["job_key"] = job_key_text();
  document["encryption"] = wire::name(cipher());
  document["settings"] = Json::array();
  for (const auto& setting : settings()) {
    const auto value = shown(setting);
    document["settings"].push_back({{"name", std::string(setting.name)},
                                    {"value", value.value},
                                    {"origin", origin_text(value)},
                                    {"description", std::string(setting.description)}});
  }
  document["mistyped_settings"] = mistyped_settings();
  return document;
}

std::string machine_text(const MachineFacts& facts) {
  const auto line = [](const char* key, const std::string& value) {
    return fmt::format("{:<22}{}\n", key, value);
  };
  std::string text = line("talweg", fmt::format("{} ({}, {})", kVersion, kBuildType, kCompiler));
  text += line("SIMD", kernel::target_name());
  text += line("host", fmt::format("{}, {}", facts.host, facts.kernel));
  text += line("CPUs", std::to_string(facts.cpus));
  text += line("memory", fmt::format("{}, {} available", memory_text(facts.memory_bytes),
                                     memory_text(facts.memory_available_bytes)));
  text +=
      line("shared memory", facts.shared_memory_bytes > 0
                                ? fmt::format("{} free in /dev/shm", memory_text(facts.shared_memory_bytes))
                                : "none: /dev/shm cannot be written");
  text += line("congestion control", fmt::format("{} (available: {})", facts.congestion_control,
                                                 facts.congestion_controls_available));
  text += line("network namespaces", facts.namespaces);
  text += line("job key", job_key_text());
  text += line("encryption", fmt::format("{}, when TALWEG_ENCRYPT is on", wire::name(cipher())));
  for (const auto& interface : live::interfaces())
    text += line("interface", fmt::format("{} {}", interface.name, interface.address));
  text += "\nsettings: an option beats the environment, which beats the file, which beats the default\n";
  for (const auto& setting : settings()) {
    const auto value = shown(setting);
    text += fmt::format("  {:<23}{:<16}({})\n  {:<23}  {}\n", setting.name,
                        value.value.empty() ? "-" : value.value, origin_text(value), "", setting.description);
  }
  for (const auto& name : mistyped_settings())
    text += fmt::format("  {:<23}is in the environment, but is no setting: it does nothing\n", name);
  return text;
}

struct Network {
  cluster::Cluster cluster;
  std::string origin;
};

Network find_network(const InfoFlags& flags) {
  const auto file = resolve("TALWEG_CLUSTER", flags.cluster);
  if (!file.value.empty()) {
    Network network{formats::load_any(file.value), fmt::format("{} ({})", file.value, origin_text(file))};
    if (flags.ranks > 0 && flags.ranks != network.cluster.workers())
      throw Error(ErrorCode::invalid_argument, fmt::format("-n {}: {} has {} workers", flags.ranks,
                                                           file.value, network.cluster.workers()));
    return network;
  }
  if (flags.ranks <= 0)
    throw Error(ErrorCode::invalid_argument, "how many ranks? give -n, or --cluster with a file");
  std::vector<int> host_of;
  for (int rank = 0; rank < flags.ranks; ++rank) host_of.push_back(rank / flags.ranks_per_host);
  return {steer::assumed_network(host_of),
          fmt::format("assumed: {} ranks on {} hosts (a file may say better: --cluster)", flags.ranks,
                      host_of.back() + 1)};
}

Json choices_json(Collective op, const Network& network, const std::vector<Choice>& list) {
  Json document = {
      {"collective", name(op)}, {"network", network.origin}, {"ranks", network.cluster.workers()}};
  document["sizes"] = Json::array();
  for (const auto& choice : list) {
    Json line = {{"size_bytes", choice.bytes}, {"candidates", Json::array()}};
    for (const auto& candidate : choice.candidates)
      line["candidates"].push_back(
          {{"algorithm", candidate.planner}, {"predicted_us", candidate.seconds * 1e6}});
    document["sizes"].push_back(std::move(line));
  }
  return document;
}

std::string choices_text(Collective op, const Network& network, const std::vector<Choice>& list) {
  std::string text = fmt::format("network: {}\nthe least predicted time is taken, for f32\n", network.origin);
  if (const auto forced = resolve("TALWEG_ALGO"); !forced.value.empty())
    text += fmt::format("but TALWEG_ALGO={} ({}) decides where it names an algorithm\n", forced.value,
                        origin_text(forced));
  return text + to_text(op, list);
}

void write_json(const std::string& path, const Json& document) {
  if (path == "-") {
    fmt::print("{}\n", document.dump(2));
    return;
  }
  std::ofstream file(path);
  file << document.dump(2) << "\n";
  if (!file) throw Error(ErrorCode::invalid_argument, fmt::format("--json: cannot write {}", path));
}

int info(const InfoFlags& flags) {
  if (flags.collective.empty()) {
    const auto facts = machine_facts();
    if (flags.json.empty())
      fmt::print("{}", machine_text(facts));
    else
      write_json(flags.json, machine_json(facts));
    return 0;
  }
  const auto op = parse_collective(flags.collective);
  if (!op)
    throw Error(ErrorCode::invalid_argument, fmt::format("no collective is called \"{}\"", flags.collective));
  const Network network = find_network(flags);
  const auto list = choices(*op, network.cluster);
  if (flags.json.empty())
    fmt::print("{}", choices_text(*op, network, list));
  else
    write_json(flags.json, choices_json(*op, network, list));
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Action* action) {
  auto flags = std::make_shared<InfoFlags>();
  auto* sub =
      app.add_subcommand("info", "this build, this machine, every setting; or the algorithm for each size");
  sub->footer(kInfoExamples);
  sub->add_option("collective", flags->collective, "show which algorithm is taken for it");
  sub->add_option("-n,--ranks", flags->ranks, "ranks of the group")->check(whole_number(1, 1 << 12));
  sub->add_option("--ranks-per-host", flags->ranks_per_host, "of the assumed network")
      ->check(whole_number(1, 1 << 12))
      ->capture_default_str();
  sub->add_option("--cluster", flags->cluster, "file that describes the network (default: TALWEG_CLUSTER)");
  sub->add_option("-J,--json", flags->json, "as JSON, into this file; - for standard output");
  sub->callback([flags, action] { *action = [flags] { return info(*flags); }; });
}

}  // namespace talweg::cli
