// talweg compare: what two runs have in common, and where they differ.
#include "study/compare.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "text/escape.h"
#include "text/output_file.h"
#include "text/yaml_reader.h"

namespace talweg::cli {
namespace {

constexpr const char* kCompareExamples = R"(
A and B are what plan, predict, info, perf, simulate (with --sweep, too) or probe wrote with --json, not necessarily of
one kind: a prediction can be laid beside the run. What has the same collective, rank count, size and planner, or the
same job and strategy, flow, group, point or host, is matched. The exit code is 0 where nothing differs by more than
--threshold, 1 where something does, and 2 where there is nothing to compare. What only one of two files of the same
kind has is a difference, too.

Examples:
  talweg compare before.json after.json
  talweg plan cluster.yaml --bytes 1M..64M --json plan.json
  talweg simulate cluster.yaml --bytes 1M..64M --json run.json
  talweg compare plan.json run.json --threshold 10%)";

struct CompareFlags {
  std::string a, b, json;
  std::string threshold = "5%";
  bool wide = false;
};

// "5%" and "5" are 0.05.
double parse_threshold(const std::string& text) {
  const std::string number = text.ends_with('%') ? text.substr(0, text.size() - 1) : text;
  const auto percent = text::read_number(number);
  if (!percent || *percent < 0) refuse("--threshold: expected percent, such as 5 or 0.5%, got \"{}\"", text);
  return *percent / 100;
}

int compare(const CompareFlags& flags) {
  const double threshold = parse_threshold(flags.threshold);
  text::check_outputs({flags.json}, {flags.a, flags.b});
  const text::OutputFile json("--json", flags.json);
  const study::Comparison found =
      study::compare(study::read_results(flags.a), study::read_results(flags.b), threshold);
  std::fputs(to_text(found, flags.wide).c_str(), json.is_standard_output() ? stderr : stdout);
  if (json.wanted()) json.write(text::json_document(to_json(found)));
  return found.equal() ? 0 : kFailureExitCode;
}

}  // namespace

void add_compare(CLI::App& app, Action* action) {
  auto flags = std::make_shared<CompareFlags>();
  auto* sub = app.add_subcommand("compare", "two runs side by side, and what differs");
  sub->footer(kCompareExamples);
  sub->add_option("a", flags->a, "what a command wrote with --json")->required();
  sub->add_option("b", flags->b, "what it, or another, wrote")->required();
  sub->add_option("--threshold", flags->threshold,
                  "by how much the larger value may be above the smaller one, in percent")
      ->capture_default_str();
  add_wide(*sub, flags->wide);
  sub->add_option("-J,--json", flags->json,
                  "as JSON, into this file; - for standard output, the table then goes to standard error");
  sub->callback([flags, action] { *action = [flags] { return compare(*flags); }; });
}

}  // namespace talweg::cli
