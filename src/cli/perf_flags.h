// The flags of `talweg perf`: those of all commands, and those of nccl-tests beside them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "study/perf_options.h"
#include "study/perf_rows.h"
#include "study/perf_switch.h"

namespace talweg::cli {

// How to use it: PerfFlags flags; flags.add_to(app); parse; PerfOptions options = flags.checked();
class PerfFlags {
 public:
  void add_to(CLI::App& app);
  // Throws Error{invalid_argument} with one line that names the flag.
  study::PerfOptions checked() const;

  const std::string& json() const { return raw_->json; }  // empty: none; "-": standard output
  // A file of a network on which this is simulated; empty: it is measured.
  const std::string& sim() const { return raw_->sim; }
  // What of it is about a switch; its address is empty where there is none. Throws as checked().
  study::SwitchPerfOptions switched() const;
  // Of sums of rows; its width is 0 where they are not wanted. Throws as checked().
  study::RowsPerfOptions rows() const;

 private:
  void refuse_beside_rows() const;

  struct Raw {
    std::string collective, op, bytes, min_bytes, max_bytes, step_bytes = "1M";
    int step_factor = 0;
    study::PerfOptions options;  // what needs no more checks
    int blocking = 1;
    std::string average = "mean", timeout;
    int misaligned = 0, timestamps = 0;
    bool wide = false;
    int percentiles = 1, memory = 1;
    std::string reduction = "sum", type = "float", root = "0", json, sim;
    std::string switch_address, switch_job, switch_key, density, overlap, sparse_as, may_lose,
        may_lose_sender, may_lose_call, servers, switch_format;
    std::size_t run = 0, block = 0, rows = 0;
    bool exact = false, ordered = false;
  };
  std::shared_ptr<Raw> raw_ = std::make_shared<Raw>();
};

}  // namespace talweg::cli
