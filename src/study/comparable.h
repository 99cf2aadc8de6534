// What plan, predict, info, perf, simulate and probe write with --json, read back as measures that can be
// laid beside each other: by compare.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/table.h"

namespace talweg::study {

// One number of a document, or a word.
struct Measure {
  std::string what;     // "time", "up", "taken"
  std::string of;       // "all_reduce of 4 ranks"; empty: the network
  std::string where;    // "1 MiB", "flow 7 h0->h3", "h0"
  std::string planner;  // or strategy; empty: none, or it is not said
  text::Quantity quantity = text::Quantity::seconds;
  std::optional<double> value{};  // in the quantity's own unit; nothing: the document says there is none
  std::string word{};             // of Quantity::text, in place of a value
};
// "time of 1 MiB, ring"
std::string name_of(const Measure& measure);

struct ResultFile {
  std::string path;
  std::string format;  // "talweg plan"
  std::string about;   // "all_reduce of 4 ranks, examples/clusters/uneven4.yaml"
  std::vector<Measure> measures;
  std::string job{};       // of a prediction: its name
  std::string job_size{};  // "3 layers, 3500000 bytes of gradients"
};

// Throws Error{bad_file}, one line that begins with the path, for what none of the commands has written.
ResultFile read_results(const std::string& path);

}  // namespace talweg::study
