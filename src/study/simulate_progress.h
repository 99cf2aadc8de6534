// Progress of a simulation: what is planned before it, how far it is and how long it will still take, on
// standard error: on a terminal at once, elsewhere only when it takes long.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "sim/simulation.h"
#include "study/progress.h"

namespace talweg::study {

class Progress {
 public:
  explicit Progress(bool always);

  // Something is planned, until a run's first events or its end. Nothing may be forked meanwhile.
  void plan(const std::string& what);
  // The bound is searched for: now and then, while it is.
  void look_for_bound();
  // A run begins; what moves or until when it goes, as far as that is known.
  void begin(sim::Simulation& simulation, const std::string& title);
  void expect(std::int64_t bytes) { bytes_ = bytes; }
  void expect(std::function<double()> share_done) { share_done_ = std::move(share_done); }  // until end()
  void expect_end(sim::Picoseconds time) { end_ = time; }
  void end();

 private:
  void look(const sim::Simulation& simulation);
  double share_done(const sim::Simulation& simulation) const;

  ProgressLine line_;
  std::optional<WaitingLine> planning_;  // has the line while there is one
  std::string title_;
  std::int64_t bytes_ = 0;
  std::function<double()> share_done_;
  sim::Picoseconds end_ = 0;
};

}  // namespace talweg::study
