// Progress of long work: a line on standard error now and then, which on a terminal is rewritten and, at the
// end, wiped out.
//
//   ProgressLine line(1s, std::nullopt);
//   while (...) if (line.due()) line.say(fmt::format("{} of {}", done, all));
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

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

// Keeps a line up to date while work goes on that cannot say itself how far it is: "planning: 12 s". Looks at
// the clock from a thread of its own, so that until its end nothing may be forked, and the line is its own.
class WaitingLine {
 public:
  WaitingLine(ProgressLine& line, std::string text);

 private:
  ProgressLine& line_;
  const std::string text_;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;  // last: it uses the others
};

// "1.5 s", "12 min", for people.
std::string wait_text(double seconds);

}  // namespace talweg::study
