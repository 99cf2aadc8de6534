#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

namespace talweg {
namespace {

constexpr std::array<const char*, 5> kNames{"NONE", "VERSION", "WARN", "INFO", "TRACE"};

std::string host_name() {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return "unknown";
  return buffer.data();
}

}  // namespace

const char* name(LogLevel level) {
  return kNames[static_cast<std::size_t>(level)];
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (upper == kNames[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

LogLevel environment_log_level() {
  static const LogLevel level = [] {
    const char* const text = std::getenv("TALWEG_DEBUG");
    if (text == nullptr) return LogLevel::warn;
    const auto parsed = parse_log_level(text);
    if (!parsed) {
      Logger(-1, LogLevel::warn)
          .log(LogLevel::warn, "log",
               "TALWEG_DEBUG=\"{}\": expected none, version, warn, info or trace; using warn", text);
    }
    return parsed.value_or(LogLevel::warn);
  }();
  return level;
}

std::string Logger::line(LogLevel level, std::string_view subsystem, std::string_view text) const {
  const std::string rank = rank_ < 0 ? "" : fmt::format("[{}] ", rank_);
  std::string line =
      fmt::format("talweg: {}:{} {}{} {}: {}", host_name(), getpid(), rank, name(level), subsystem, text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  return line;
}

void Logger::write(const std::string& line) {
  // One system call, so that lines of ranks that share a terminal do not mix. A log that cannot be written is
  // dropped.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace talweg
