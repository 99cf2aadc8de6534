#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/printable.h"
#include "base/settings.h"
#include "talweg/error.h"

namespace talweg {
namespace {

constexpr std::array<const char*, 5> kNames{"NONE", "VERSION", "WARN", "INFO", "TRACE"};

// All that lines are logged under.
constexpr const char* kSubsystems =
    "all, aggregator, bounded, call, group, init, log, net, observe, plan, probe, stall";

std::string host_name() {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return "unknown";
  return buffer.data();
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

// For a file's name, before any group has been joined.
int launcher_rank() {
  for (const char* variable : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* text = std::getenv(variable); text != nullptr && *text != '\0') return std::atoi(text);
  return -1;
}

}  // namespace

const char* name(LogLevel level) {
  return kNames[static_cast<std::size_t>(level)];
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (upper(text) == kNames[i]) return static_cast<LogLevel>(i);
  return std::nullopt;
}

LogFilter::LogFilter(std::string_view text) {
  if (text.starts_with('^')) {
    text.remove_prefix(1);
  } else {
    excludes_ = text.empty();
  }
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names_.push_back(upper(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

bool LogFilter::passes(std::string_view subsystem) const {
  const auto named = [&](const std::string& name) { return std::ranges::find(names_, name) != names_.end(); };
  return (named("ALL") || named(upper(subsystem))) != excludes_;
}

std::string LogFilter::unknown() const {
  const std::string all = upper(kSubsystems) + ",";
  for (const std::string& name : names_)
    if ((" " + all).find(" " + name + ",") == std::string::npos)
      return fmt::format("no sub-system is called \"{}\": expected {}", name, kSubsystems);
  return {};
}

std::string expand_file_name(std::string_view pattern, int rank) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    ++i;
    if (next == 'h') {
      out += host_name();
    } else if (next == 'p') {
      out += std::to_string(getpid());
    } else if (next == 'r') {
      out += rank < 0 ? "-" : std::to_string(rank);
    } else if (next == '%') {
      out += '%';
    } else {
      out += pattern[--i];
    }
  }
  return out;
}

LogSettings read_log_settings() {
  LogSettings found;
  const Logger complain(-1, LogLevel::warn);
  // A log must not end a program: what cannot be used is told once, and the default taken.
  const auto value = [&](const char* setting) -> std::string {
    try {
      return resolve(setting).value;
    } catch (const Error& e) {
      complain.log(LogLevel::warn, "log", "{}: {}", setting, e.what());
      return {};
    }
  };
  const std::string level = value("TALWEG_DEBUG");
  if (const auto parsed = parse_log_level(level)) {
    found.level = *parsed;
  } else if (!level.empty()) {
    complain.log(LogLevel::warn, "log",
                 "TALWEG_DEBUG=\"{}\": expected none, version, warn, info or trace; using warn", level);
  }
  found.filter = LogFilter(value("TALWEG_DEBUG_SUBSYS"));
  if (const std::string unknown = found.filter.unknown(); !unknown.empty())
    complain.log(LogLevel::warn, "log", "TALWEG_DEBUG_SUBSYS: {}", unknown);
  found.timestamp = value("TALWEG_DEBUG_TIMESTAMP");
  if (const std::string pattern = value("TALWEG_DEBUG_FILE"); !pattern.empty()) {
    const std::string path = expand_file_name(pattern, launcher_rank());
    // A pipe that nobody reads is refused, not waited for; later writes do wait for its reader.
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (file >= 0) {
      ::fcntl(file, F_SETFL, O_APPEND);
      found.file = file;
    } else {
      complain.log(LogLevel::warn, "log", "TALWEG_DEBUG_FILE: cannot write {}: {}", path,
                   std::strerror(errno));
    }
  }
  return found;
}

const LogSettings& environment_log_settings() {
  static const LogSettings settings = read_log_settings();
  return settings;
}

std::string Logger::line(LogLevel level, std::string_view subsystem, std::string_view text) const {
  std::array<char, 100> time{};
  if (!settings_.timestamp.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::localtime_r(&now, &parts);
    if (std::strftime(time.data(), time.size() - 1, settings_.timestamp.c_str(), &parts) > 0)
      time[std::strlen(time.data())] = ' ';
  }
  const std::string rank = rank_ < 0 ? "" : fmt::format("[{}] ", rank_);
  std::string line = fmt::format("{}talweg: {}:{} {}{} {}: {}", time.data(), host_name(), getpid(), rank,
                                 name(level), subsystem, text);
  std::ranges::replace(line, '\n', ' ');
  const std::size_t own = std::strlen(time.data());  // what the user asked for stays as it is
  return line.substr(0, own) + printable(std::string_view(line).substr(own)) + '\n';
}

void Logger::write(const std::string& line) const {
  // One system call, so that lines of ranks that share a terminal do not mix. A log that cannot be written is
  // dropped.
  [[maybe_unused]] const ssize_t written = ::write(settings_.file, line.data(), line.size());
}

}  // namespace talweg
