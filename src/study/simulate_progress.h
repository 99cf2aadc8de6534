// Progress: how far a simulation is and how long it will still take, on standard error: on a terminal at
// once, elsewhere only when it takes long.
#pragma once

#include <chrono>
#include <string>

#include "sim/simulation.h"

namespace talweg::study {

class Progress {
 public:
  explicit Progress(bool always);

  // A run begins; what moves or until when it goes, as far as that is known.
  void begin(sim::Simulation& simulation, const std::string& title);
  void expect(std::int64_t bytes) { bytes_ = bytes; }
  void expect_end(sim::Picoseconds time) { end_ = time; }
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  void look(const sim::Simulation& simulation);
  double share_done(const sim::Simulation& simulation) const;

  const bool terminal_;
  const std::chrono::milliseconds patience_;  // before the first word, and from one to the next
  std::string title_;
  std::int64_t bytes_ = 0;
  sim::Picoseconds end_ = 0;
  Clock::time_point begun_, last_;
  bool written_ = false;  // a line of a terminal that must be wiped out
};

// "1.5 s", "12 min", for people.
std::string wait_text(double seconds);

}  // namespace talweg::study
