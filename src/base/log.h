// A tiny levelled log, one line a call, in the manner that NCCL's users know:
//   talweg: node3:4711 [2] WARN live: rank 1 answers slowly
//
//   const Logger logger{rank};                                  // as TALWEG_DEBUG and its companions say
//   logger.log(LogLevel::info, "group", "joined {} ranks", n);  // formatted only if it will be shown
//
// Never in the packet path. A Logger is a value; each group has its own, so two groups in a process tell
// themselves apart. Any thread may log: a line is one write.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace talweg {

enum class LogLevel { none, version, warn, info, trace };

const char* name(LogLevel level);                                // "WARN"
std::optional<LogLevel> parse_log_level(std::string_view text);  // any case; empty when unknown

// Which sub-systems speak: "plan,stall" only these, "^plan" all but these; empty or "all": every one. Any
// case. Warnings are never left out.
class LogFilter {
 public:
  explicit LogFilter(std::string_view text = {});
  bool passes(std::string_view subsystem) const;
  // Of a name that no line has: "no sub-system is called PLAM: expected all, plan, ...". Else empty.
  std::string unknown() const;

 private:
  bool excludes_ = true;
  std::vector<std::string> names_;
};

// What TALWEG_DEBUG, TALWEG_DEBUG_SUBSYS, TALWEG_DEBUG_FILE and TALWEG_DEBUG_TIMESTAMP say. The file is
// opened once, for all ranks of the process, and stays open; when that fails stderr serves and is told so.
struct LogSettings {
  LogLevel level = LogLevel::warn;
  LogFilter filter;
  int file = 2;
  std::string timestamp;  // strftime's grammar, in front of the line; empty: none
};
const LogSettings& environment_log_settings();  // read once
LogSettings read_log_settings();

// %h: this machine's name, %p: process, %r: rank, %%: itself. A rank that is not known is "-".
std::string expand_file_name(std::string_view pattern, int rank);

class Logger {
 public:
  explicit Logger(int rank = -1) : Logger(rank, environment_log_settings()) {}
  Logger(int rank, LogLevel level) : Logger(rank, LogSettings{level, LogFilter(), 2, {}}) {}
  Logger(int rank, LogSettings settings) : rank_(rank), settings_(std::move(settings)) {}

  bool shows(LogLevel level) const { return level != LogLevel::none && level <= settings_.level; }
  LogLevel level() const { return settings_.level; }

  template <typename... Args>
  void log(LogLevel level, std::string_view subsystem, fmt::format_string<Args...> format,
           Args&&... args) const {
    if (shows(level) && (level <= LogLevel::warn || settings_.filter.passes(subsystem)))
      write(line(level, subsystem, fmt::format(format, std::forward<Args>(args)...)));
  }

  // The line that log() writes, with its newline: others become spaces, and the rest is printable().
  std::string line(LogLevel level, std::string_view subsystem, std::string_view text) const;

 private:
  void write(const std::string& line) const;

  int rank_;  // -1: not known yet, not shown
  LogSettings settings_;
};

}  // namespace talweg
