#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/fail.h"
#include "base/log.h"
#include "base/printable.h"
#include "formats/import.h"
#include "group/environment.h"
#include "group/joining.h"
#include "group/switch_wish.h"
#include "kernel/reduce.h"
#include "live/join/interface.h"
#include "live/join/job_key.h"
#include "observe/dump_signal.h"
#include "observe/observer.h"
#include "steer/assumed_network.h"
#include "steer/plan_chooser.h"
#include "study/machine.h"
#include "study/version.h"
#include "talweg/error.h"
#include "text/table.h"
#include "wire/cipher.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;

constexpr int kAboutIndent = 27;  // of what is said about a setting

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

// That a group finds the switches that settings or the cluster file name; whether there has to be one is left
// out unless `needed`.
void check_switches(bool needed = false) {
  group::NamedAlgorithms named = group::take_apart(resolve("TALWEG_ALGO").value);
  named.by_switch = named.by_switch && needed;
  std::optional<cluster::Cluster> network;
  if (const std::string file = resolve("TALWEG_CLUSTER").value;
      !file.empty() && resolve("TALWEG_SWITCH").value.empty())
    network = formats::load_any(file);
  group::find_switch_wish({}, named, network ? &*network : nullptr);
}

}  // namespace

std::string complaint_about(const Setting& setting) {
  try {
    check(setting);
    const std::string value = resolve(setting.name).value;
    const auto is = [&](std::string_view name) { return setting.name == name && !value.empty(); };
    if (is("TALWEG_DEBUG") && !parse_log_level(value))
      refuse("TALWEG_DEBUG: expected none, version, warn, info or trace, got \"{}\"", value);
    if (const std::string unknown = LogFilter(value).unknown(); is("TALWEG_DEBUG_SUBSYS") && !unknown.empty())
      refuse("TALWEG_DEBUG_SUBSYS: {}", unknown);
    if (is("TALWEG_METRICS_FILE")) observe::check_metrics_file(value, 0);
    if (is("TALWEG_DUMP_SIGNAL")) observe::parse_dump_signal(value);
    if (is("TALWEG_PATHS_IFNAME")) group::udp_paths();
    if (is("TALWEG_SOCKET_IFNAME")) live::choose_interface(value, live::interfaces());
    if (is("TALWEG_CLUSTER") && resolve("TALWEG_SWITCH").value.empty())
      check_switches();
    else if (is("TALWEG_CLUSTER"))
      formats::load_any(value);
    if (is("TALWEG_ALGO")) {
      const group::NamedAlgorithms named = group::take_apart(value);
      [[maybe_unused]] const steer::PlanChooser tried(steer::assumed_network({0}), named.trees, nullptr);
      if (named.by_switch) check_switches(true);
    }
    if (is("TALWEG_SWITCH") || is("TALWEG_SWITCH_KEY_FILE")) check_switches();
    if (is("TALWEG_SWITCH_SPARSE")) group::switch_sparse();
    if (is("TALWEG_STORE")) group::find_meeting({}, "");
    if (is("TALWEG_KEY_FILE")) live::find_job_key();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string origin_text(const ResolvedSetting& setting) {
  return setting.place.empty() ? name(setting.origin)
                               : fmt::format("{} {}", name(setting.origin), setting.place);
}

nlohmann::json to_json(const MachineFacts& facts) {
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
    if (const std::string wrong = complaint_about(setting); !wrong.empty())
      document["settings"].back()["complaint"] = wrong;
  }
  document["mistyped_settings"] = mistyped_settings();
  return document;
}

std::string to_text(const MachineFacts& facts) {
  const text::Columns columns{{"", -22}, {"", 0}};
  const auto line = [&](const char* key, const std::string& value) { return columns.line({key, value}); };
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
    const text::Columns lines{{"", -23, 2}, {"", -16}, {"", 0}};
    text += lines.line({std::string(setting.name), value.value.empty() ? "-" : value.value,
                        fmt::format("({})", origin_text(value))});
    const auto add = [&](const std::string& about) {
      for (const std::string& part : text::wrapped(about, text::kTableWidth - kAboutIndent))
        text += lines.line({"", "  " + part});
    };
    add(std::string(setting.description));
    if (const std::string wrong = complaint_about(setting); !wrong.empty()) add("wrong: " + wrong);
  }
  for (const auto& name : mistyped_settings())
    text +=
        fmt::format("  {:<23}is in the environment, but is no setting: it does nothing\n", printable(name));
  return text;
}

}  // namespace talweg::study
