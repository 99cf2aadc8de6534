#include "base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "talweg/error.h"

namespace talweg {
namespace {

constexpr const char* kFileVariable = "TALWEG_CONF_FILE";

bool known(std::string_view name) {
  return std::any_of(settings().begin(), settings().end(), [&](const Setting& s) { return s.name == name; });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The whole file is checked even when the name is found early, so that a typing mistake in another line is
// reported by whichever program reads the file first.
std::optional<ResolvedSetting> find_in_file(const std::string& path, std::string_view name, bool must_exist) {
  std::ifstream file(path);
  if (!file) {
    if (must_exist)
      throw Error(ErrorCode::bad_file,
                  fmt::format("cannot read {} (named by {}): {}", path, kFileVariable, std::strerror(errno)));
    return std::nullopt;
  }
  std::optional<ResolvedSetting> found;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    const auto content = trimmed(std::string_view(text).substr(0, text.find('#')));
    if (content.empty()) continue;
    const auto equals = content.find('=');
    const auto key = trimmed(content.substr(0, equals));
    if (equals == std::string_view::npos)
      throw Error(ErrorCode::bad_file,
                  fmt::format("{}:{}: expected NAME=value, got \"{}\"", path, line, content));
    if (!known(key))
      throw Error(
          ErrorCode::bad_file,
          fmt::format("{}:{}: no setting is called \"{}\" (talweg info lists them)", path, line, key));
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
      {"TALWEG_DEBUG", "what is logged to stderr: NONE, VERSION, WARN, INFO or TRACE", "WARN"},
      {"TALWEG_TIMEOUT", "deadline of every call that has none of its own, such as 30s", "30s"},
      {"TALWEG_SOCKET_IFNAME",
       "interfaces to use: prefixes separated by commas, =name for exact, ^name to exclude; empty: automatic",
       ""},
      {"TALWEG_ALGO",
       "algorithm, such as ring or all_reduce:ring;broadcast:chain; empty: the cheapest by cost", ""},
      {"TALWEG_CLUSTER", "file that describes the network, rank i = worker i; empty: built-in assumptions",
       ""},
      {"TALWEG_STORE", "where ranks meet: file:/path or tcp://host:port; empty: MASTER_ADDR and MASTER_PORT",
       ""},
      {"TALWEG_CHECKSUM", "1: every chunk carries a CRC-32C that is checked; 0: off", "1"},
      {"TALWEG_STREAMS", "TCP connections to each peer on another host", "1"},
      {"TALWEG_SHM", "1: ranks of one host use shared memory; 0: TCP everywhere", "1"},
  };
  return kSettings;
}

const char* name(SettingOrigin origin) {
  switch (origin) {
    case SettingOrigin::flag:
      return "flag";
    case SettingOrigin::environment:
      return "environment";
    case SettingOrigin::file:
      return "file";
    case SettingOrigin::default_value:
      return "default";
  }
  return "?";
}

ResolvedSetting resolve(std::string_view name, std::string_view flag) {
  const auto setting =
      std::find_if(settings().begin(), settings().end(), [&](const Setting& s) { return s.name == name; });
  if (setting == settings().end())
    throw Error(ErrorCode::invalid_argument, fmt::format("no setting is called \"{}\"", name));
  if (!flag.empty()) return {std::string(flag), SettingOrigin::flag, {}};
  if (const char* value = std::getenv(std::string(name).c_str()); value && *value)
    return {value, SettingOrigin::environment, {}};
  if (auto found = find_in_files(name)) return *found;
  return {std::string(setting->default_value), SettingOrigin::default_value, {}};
}

}  // namespace talweg
