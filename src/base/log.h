// A tiny levelled log on stderr, one line a call, in the manner that NCCL's users know:
//   talweg: node3:4711 [2] WARN live: rank 1 answers slowly
//
//   const Logger logger{rank};                                  // level from TALWEG_DEBUG
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

namespace talweg {

enum class LogLevel { none, version, warn, info, trace };

const char* name(LogLevel level);                                // "WARN"
std::optional<LogLevel> parse_log_level(std::string_view text);  // any case; empty when unknown

// TALWEG_DEBUG, read once; warn when it is unset or unknown.
LogLevel environment_log_level();

class Logger {
 public:
  explicit Logger(int rank = -1, LogLevel level = environment_log_level()) : rank_(rank), level_(level) {}

  bool shows(LogLevel level) const { return level != LogLevel::none && level <= level_; }
  LogLevel level() const { return level_; }

  template <typename... Args>
  void log(LogLevel level, std::string_view subsystem, fmt::format_string<Args...> format,
           Args&&... args) const {
    if (shows(level)) write(line(level, subsystem, fmt::format(format, std::forward<Args>(args)...)));
  }

  // The line that log() writes, with its newline; newlines within the text become spaces.
  std::string line(LogLevel level, std::string_view subsystem, std::string_view text) const;

 private:
  static void write(const std::string& line);

  int rank_;  // -1: not known yet, not shown
  LogLevel level_;
};

}  // namespace talweg
