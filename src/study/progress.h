// Progress of long work: a line on standard error now and then, which on a terminal is rewritten and, at the
// end, wiped out.
//
//   ProgressLine line(1s, std::nullopt);
//   while (...) if (line.due()) line.say(fmt::format("{} of {}", done, all));
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

namespace talweg::study {

class ProgressLine {
 public:
  // How long to be silent, at first and from one line to the next, on a terminal and elsewhere; no time: for
  // ever.
  ProgressLine(std::chrono::milliseconds on_terminal, std::optional<std::chrono::milliseconds> elsewhere,
               std::FILE* out = stderr);
  ~ProgressLine() { end(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Some work begins, now.
  void begin();
  // Whether it is time for a line; the next is due so much later.
  bool due();
  void say(const std::string& text);
  void end();
  // Since the work began.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::FILE* const out_;
  const bool terminal_;
  const std::optional<std::chrono::milliseconds> silence_;
  Clock::time_point begun_ = Clock::now(), last_ = begun_;
  bool written_ = false;  // a line of a terminal that must be wiped out
};

// "1.5 s", "12 min", for people.
std::string wait_text(double seconds);

}  // namespace talweg::study
