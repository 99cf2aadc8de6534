#include "study/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <stop_token>
#include <utility>

#include "base/printable.h"

namespace talweg::study {
namespace {

constexpr std::chrono::milliseconds kLookEvery(100);

}  // namespace

ProgressLine::ProgressLine(std::chrono::milliseconds on_terminal,
                           std::optional<std::chrono::milliseconds> elsewhere, std::FILE* out)
    : out_(out), terminal_(::isatty(::fileno(out)) == 1), silence_(terminal_ ? on_terminal : elsewhere) {}

void ProgressLine::begin() {
  begun_ = last_ = Clock::now();
}

bool ProgressLine::due() {
  const Clock::time_point now = Clock::now();
  if (!silence_ || now - last_ < *silence_) return false;
  last_ = now;
  return true;
}

void ProgressLine::say(const std::string& text) {
  if (terminal_)
    fmt::print(out_, "\r\033[K{}", printable(text));
  else
    fmt::print(out_, "{}\n", printable(text));
  std::fflush(out_);
  written_ = terminal_;
}

void ProgressLine::end() {
  if (written_) fmt::print(out_, "\r\033[K");
  std::fflush(out_);
  written_ = false;
}

double ProgressLine::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begun_).count();
}

WaitingLine::WaitingLine(ProgressLine& line, std::string text) : line_(line), text_(std::move(text)) {
  line_.begin();
  thread_ = std::jthread([this](const std::stop_token& end) {
    std::unique_lock lock(mutex_);
    while (!end.stop_requested()) {
      if (line_.due()) line_.say(fmt::format("{}: {}", text_, wait_text(line_.seconds())));
      ended_.wait_for(lock, end, kLookEvery, [] { return false; });
    }
  });
}

std::string wait_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace talweg::study
