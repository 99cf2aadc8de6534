// What one process writes down about its groups, and where: settings, the clock of rank 0, counters, trace.
// One for each World; everything under the World's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "observe/clock_offset.h"
#include "observe/metrics.h"
#include "observe/trace.h"

namespace talweg::observe {

struct ObserverOptions {
  int rank = 0;  // in the joined group
  int size = 1;
  std::uint64_t job = 0;
  std::vector<std::string> hosts;  // "name pid 123", by rank
  bool clock_shared = true;        // with rank 0: the same machine
  std::size_t recorded = 0;        // operations that each group's flight recorder keeps
  std::string record_dir;          // empty: records are written only when asked for
  int dump_signal = 0;             // 0: none
  std::int64_t stall_ns = 0;       // 0: no warnings
  std::string metrics_file;        // empty: none
  std::int64_t metrics_period_ns = 0;
  std::string trace_dir;  // empty: none
  std::uint64_t trace_limit = 0;
};

// From the settings. Throws Error{invalid_argument} naming the setting; Error{system} for a directory that
// cannot be made, and as check_metrics_file() does.
ObserverOptions find_observer_options(int rank);

// Throws Error{system} if nothing can be written where TALWEG_METRICS_FILE leads that rank: into a folder
// that is missing, or in place of what is no file. Makes nothing.
void check_metrics_file(const std::string& pattern, int rank);

// What a job is called in records: not its own number, which strangers have no business to know. A group of
// one rank (0) gets a number of its own.
std::uint64_t job_number(std::uint64_t drawn);

class Observer {
 public:
  explicit Observer(ObserverOptions options);
  ~Observer();

  const ObserverOptions& options() const { return options_; }
  Metrics* metrics() { return metrics_.get(); }
  Trace* trace() { return trace_.get(); }
  BoundedTotals& bounded() { return bounded_; }    // also without metrics: statistics() has them
  SwitchTraffic& switched() { return switched_; }  // of groups that have been left

  // For the end of a call: exact where somebody adds up times, else what costs next to nothing (some ms).
  std::int64_t end_time() const;

  const ClockOffset& clock() const { return clock_; }
  // True when rank 0 should be asked for its time.
  bool should_ask(std::int64_t now_ns) { return now_ns >= next_question_ns_ && ask(now_ns); }
  void learn_time(std::int64_t asked_ns, std::int64_t theirs_ns, std::int64_t now_ns);

  // What has to be done now and then, from a thread that nobody waits for.
  static constexpr std::int64_t kLookNs = 1'000'000'000;
  bool needs_looks() const { return options_.dump_signal != 0 || metrics_ != nullptr; }
  bool dump_asked();                      // once for each time that the signal came
  bool metrics_due(std::int64_t now_ns);  // once for each period

  // Where a group's flight record goes.
  std::string record_path(std::uint32_t group) const;

 private:
  bool ask(std::int64_t now_ns);

  const ObserverOptions options_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Trace> trace_;
  BoundedTotals bounded_;
  SwitchTraffic switched_;
  ClockOffset clock_;
  int questions_ = 0;
  std::int64_t next_question_ns_;
  std::int64_t next_metrics_ns_ = 0;
  unsigned dumps_seen_ = 0;
};

// Writes a file so that readers see the old one or the new one, never a part. Empty, or the system's reason.
std::string write_atomically(const std::string& path, const std::string& text);

}  // namespace talweg::observe
