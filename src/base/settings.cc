#include "base/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/trim.h"

namespace talweg {
namespace {

constexpr const char* kFileVariable = "TALWEG_CONF_FILE";
constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;

// nullptr if none is called so.
const Setting* setting_called(std::string_view name) {
  const auto& all = settings();
  const auto found = std::ranges::find_if(all, [&](const Setting& s) { return s.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// The whole file is checked even when the name is found early, so that a typing mistake in another line is
// reported by whichever program reads the file first.
std::optional<ResolvedSetting> find_in_file(const std::string& path, std::string_view name, bool must_exist) {
  if (!must_exist && ::access(path.c_str(), R_OK) != 0) return std::nullopt;
  const std::string shown = must_exist ? fmt::format("{} (named by {})", path, kFileVariable) : path;
  std::istringstream file(read_input(path, shown, kMostFileBytes));
  std::optional<ResolvedSetting> found;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    const auto content = trimmed(std::string_view(text).substr(0, text.find('#')));
    if (content.empty()) continue;
    const auto equals = content.find('=');
    const auto key = trimmed(content.substr(0, equals));
    if (equals == std::string_view::npos)
      throw_error(ErrorCode::bad_file, "{}:{}: expected NAME=value, got \"{}\"", path, line, content);
    const Setting* const setting = setting_called(key);
    if (setting == nullptr)
      throw_error(ErrorCode::bad_file, "{}:{}: no setting is called \"{}\" (talweg info lists them)", path,
                  line, key);
    if (setting->secret)
      throw_error(ErrorCode::bad_file,
                  "{}:{}: {} does not belong into a file of settings: name a file of mode 600 in {}_FILE",
                  path, line, key, key);
    if (key == name)
      found = ResolvedSetting{std::string(trimmed(content.substr(equals + 1))), SettingOrigin::file,
                              fmt::format("{}:{}", path, line)};
  }
  return found;
}

std::optional<ResolvedSetting> find_in_files(std::string_view name) {
  if (const char* path = std::getenv(kFileVariable); path && *path) return find_in_file(path, name, true);
  if (const char* home = std::getenv("HOME"); home && *home)
    if (auto found = find_in_file(std::string(home) + "/.talweg.conf", name, false)) return found;
  return find_in_file("/etc/talweg.conf", name, false);
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> kSettings = {
      {"TALWEG_DEBUG", "what is logged: NONE, VERSION, WARN, INFO or TRACE", "WARN"},
      {"TALWEG_DEBUG_SUBSYS", "sub-systems that are logged, such as plan,call; ^plan: all others; empty: all",
       ""},
      {"TALWEG_DEBUG_FILE", "where logs go, %h: host, %p: process, %r: rank; empty: stderr", ""},
      {"TALWEG_DEBUG_TIMESTAMP", "time in front of each line, in strftime's grammar; empty: none", ""},
      {"TALWEG_TIMEOUT", "deadline of every call that has none of its own, such as 30s", "30s", false, false,
       SettingKind::wait, 1'000'000},
      {"TALWEG_HOST_TIMEOUT",
       "a host that answers nothing for so long has failed, and its ranks with it: known within a tenth more",
       "15s", false, false, SettingKind::wait, 1'000'000},
      {"TALWEG_SOCKET_IFNAME",
       "interfaces to use: prefixes separated by commas, =name for exact, ^name to exclude; empty: automatic",
       ""},
      {"TALWEG_ALGO",
       "algorithm, such as ring or all_reduce:ring;broadcast:chain; switch: those of TALWEG_SWITCH, for "
       "all that they can sum; empty: the cheapest by cost",
       ""},
      {"TALWEG_CLUSTER", "file that describes the network, rank i = worker i; empty: built-in assumptions",
       ""},
      {"TALWEG_REPLAN", "1: plans follow the network as it changes; 0: they stay; the same on all ranks", "0",
       false, true, SettingKind::on_off},
      {"TALWEG_PROBE",
       "1: the network between hosts is measured when a group is joined, some seconds, and beats "
       "TALWEG_CLUSTER",
       "0", false, true, SettingKind::on_off},
      {"TALWEG_PACING",
       "1: data leave at the rates that plans give them, where the network is described or measured; 0: as "
       "TCP has it",
       "0", false, false, SettingKind::on_off},
      {"TALWEG_SWITCH",
       "address and port of a switch that all_reduces go through where that is quicker, or several with "
       "commas; empty: those that TALWEG_CLUSTER names; none: not these either; the same on all ranks, but "
       "that each rank may name the one of its rack",
       ""},
      {"TALWEG_SWITCH_KEY_FILE", "file of mode 600 that holds the switch's key; empty: it has none", ""},
      {"TALWEG_SWITCH_EXACT",
       "1: floats are summed by the switch to the same bits in every run, half and bfloat16 by trees; 0: as "
       "they come; the same on all ranks",
       "0", false, true, SettingKind::on_off},
      {"TALWEG_SWITCH_SPARSE",
       "1: blocks of a vector that are zero do not travel to the switch; pairs: of float nothing that is "
       "zero, what else there is goes with its place; auto: of each vector what is quickest; 0: all travels; "
       "the same on all ranks",
       "0", false, true},
      {"TALWEG_SWITCH_ORDERED",
       "1: floats are summed by the switch in the order of ranks, to the same bits in every run; 0: as they "
       "come; the same on all ranks",
       "0", false, true, SettingKind::on_off},
      {"TALWEG_SWITCH_FORMAT",
       "how float travels to the switch and back: type: as it is; block8, block4: as codes of 8 or 4 bits "
       "with a scale for each 256 or 64, rounded at random; the same on all ranks",
       "type", false, true},
      {"TALWEG_SWITCH_BLOCK",
       "elements that travel to the switch together, or not, where what is zero does not: a multiple of 8, "
       "such as a row; 0: as the switch finds best; the same on all ranks",
       "0", false, true, SettingKind::whole_number, 0, 65'535},
      {"TALWEG_STORE", "where ranks meet: file:/path or tcp://host:port; empty: MASTER_ADDR and MASTER_PORT",
       ""},
      {"TALWEG_AGGREGATORS_AT",
       "where aggregators look for ranks that meet elsewhere, as in PyTorch's store: rank 0 is there, too; "
       "empty: where ranks meet",
       ""},
      {"TALWEG_KEY", "the job's key, the same on all ranks; needed where ranks are not all on loopback", "",
       true},
      {"TALWEG_KEY_FILE", "file of mode 600 that holds the job's key; beats TALWEG_KEY", ""},
      {"TALWEG_ENCRYPT", "1: what travels between hosts is encrypted; 0: off; the same on all ranks", "0",
       false, false, SettingKind::on_off},
      {"TALWEG_CHECKSUM", "1: every chunk carries a CRC-32C that is checked; 0: off", "1", false, false,
       SettingKind::on_off},
      {"TALWEG_STREAMS", "TCP connections to each peer on another host", "1", false, false,
       SettingKind::whole_number, 1, 64},
      {"TALWEG_TRANSPORT",
       "what frames to other hosts travel over: tcp; udp, where it passes; or auto, the quicker one; the "
       "same on "
       "all ranks",
       "tcp", false, true},
      {"TALWEG_PATHS",
       "UDP ports from which a rank sends to each other one, with TALWEG_TRANSPORT=udp or auto and in sums "
       "with bounded loss: a network that hashes flows over equal ways has as many ways for it",
       "1", false, false, SettingKind::whole_number, 1, 16},
      {"TALWEG_PATHS_IFNAME",
       "interfaces from and to which these paths go in turn, as TALWEG_SOCKET_IFNAME; each has one at least; "
       "empty: all paths have that of the group",
       ""},
      {"TALWEG_SHM", "1: ranks of one host use shared memory; 0: TCP everywhere", "1", false, false,
       SettingKind::on_off},
      {"TALWEG_RECORDER", "calls of each group that the flight recorder keeps; 0: off", "1024", false, false,
       SettingKind::whole_number, 0, 1'000'000'000},
      {"TALWEG_RECORDER_DIR",
       "directory for flight records, written when a call fails; empty: only when asked", ""},
      {"TALWEG_DUMP_SIGNAL", "signal that asks for flight records: USR1, USR2 or none", "USR1"},
      {"TALWEG_STALL_WARNING", "a call that waits longer is logged with the ranks it waits for; 0: never",
       "10s", false, false, SettingKind::wait},
      {"TALWEG_METRICS_FILE",
       "Prometheus text file, %r: rank, %j: job, %h: host, %p: process; written now and then; empty: none",
       ""},
      {"TALWEG_METRICS_PERIOD", "time between two writes of TALWEG_METRICS_FILE", "5s", false, false,
       SettingKind::wait},
      {"TALWEG_TRACE", "directory for traces of every call and chunk, one file a rank; empty: none", ""},
      {"TALWEG_TRACE_LIMIT", "events in the trace of one rank; what comes later is only counted", "1000000",
       false, false, SettingKind::whole_number, 0, 1'000'000'000},
  };
  return kSettings;
}

const char* name(SettingOrigin origin) {
  static constexpr const char* kNames[] = {"flag", "environment", "file", "default"};
  return kNames[static_cast<std::size_t>(origin)];
}

std::optional<bool> switch_in(std::string_view text) {
  if (text == "1" || text == "on" || text == "true") return true;
  if (text == "0" || text == "off" || text == "false") return false;
  return std::nullopt;
}

ResolvedSetting resolve(std::string_view name, std::string_view flag) {
  const Setting* const setting = setting_called(name);
  if (setting == nullptr) refuse("no setting is called \"{}\"", name);
  if (!flag.empty()) return {std::string(flag), SettingOrigin::flag, {}};
  if (const char* value = std::getenv(std::string(name).c_str()); value && *value)
    return {value, SettingOrigin::environment, {}};
  if (auto found = find_in_files(name)) return *found;
  return {std::string(setting->default_value), SettingOrigin::default_value, {}};
}

std::vector<std::pair<std::string, std::string>> alike_settings() {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Setting& setting : settings()) {
    if (!setting.alike) continue;
    std::string value = resolve(setting.name).value;
    if (const auto on = switch_in(value)) value = *on ? "1" : "0";
    values.emplace_back(setting.name, std::move(value));
  }
  return values;
}

std::vector<std::string> mistyped_settings() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.starts_with("TALWEG_") && setting_called(name) == nullptr && name != kFileVariable)
      names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::int64_t whole_number_of(std::string_view setting) {
  const Setting* const known = setting_called(setting);
  const std::int64_t low = known ? known->least : 0, high = known ? known->most : 0;
  const std::string text = resolve(setting).value;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    refuse("{}: expected a whole number from {} to {}, got \"{}\"", setting, low, high, text);
  return value;
}

bool switch_of(std::string_view setting) {
  const std::string text = resolve(setting).value;
  if (const auto on = switch_in(text)) return *on;
  refuse("{}: expected 1 or on, 0 or off, got \"{}\"", setting, text);
}

Nanoseconds wait_of(std::string_view setting) {
  const Nanoseconds wait = parse_wait(setting, resolve(setting).value);
  const Setting* const known = setting_called(setting);
  if (const Nanoseconds least{known ? known->least : 0}; wait < least)
    refuse("{}: expected at least {}, got {}", setting, to_string(least), to_string(wait));
  return wait;
}

void check(const Setting& setting) {
  if (setting.kind == SettingKind::on_off) switch_of(setting.name);
  if (setting.kind == SettingKind::whole_number) whole_number_of(setting.name);
  if (setting.kind == SettingKind::wait) wait_of(setting.name);
}

}  // namespace talweg
