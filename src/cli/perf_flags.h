// The flags of `talweg perf`: those of all commands, and those of nccl-tests beside them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "study/perf_options.h"

namespace talweg::cli {

// How to use it: PerfFlags flags; flags.add_to(app); parse; PerfOptions options = flags.checked();
class PerfFlags {
 public:
  PerfFlags();
  void add_to(CLI::App& app);
  // Throws Error{invalid_argument} with one line that names the flag.
  study::PerfOptions checked() const;

  const std::string& json() const;  // empty: none; "-": standard output
  const std::string& sim() const;   // a file of a network on which this is simulated; empty: it is measured

 private:
  struct Raw;
  std::shared_ptr<Raw> raw_;
};

}  // namespace talweg::cli
