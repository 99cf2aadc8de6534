// talweg doctor: reads what ranks have written down and says what went wrong.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/fail.h"
#include "cli/command.h"
#include "observe/merge_traces.h"
#include "study/doctor_findings.h"
#include "text/escape.h"
#include "text/output_file.h"

namespace talweg::cli {
namespace {

using namespace study;

constexpr const char* kDoctorExamples = R"(
Examples:
  TALWEG_RECORDER_DIR=/shared/records talweg run -n 8 -- python train.py    # records are written when a call fails
  kill -USR1 <pid of each rank>                                             # or when asked for
  talweg doctor /shared/records                                             # who waits for whom, who disagrees
  TALWEG_TRACE=/shared/traces talweg run -n 4 -- python train.py
  talweg doctor --trace all.json /shared/traces                             # one clock for all, for ui.perfetto.dev)";

struct DoctorFlags {
  std::vector<std::string> paths;
  std::string trace;
  std::string json;
};

// A file that was cut off, or is no file of Talweg's, must not hide what all others say.
void report_unreadable(const std::vector<std::string>& errors, std::size_t files) {
  if (errors.size() == files)
    throw Error(ErrorCode::bad_file,
                files == 1 ? errors[0] : fmt::format("none of {} files can be read; {}", files, errors[0]));
  for (const std::string& error : errors) say("talweg doctor: left out: {}\n", error);
}

int merge(const DoctorFlags& flags) {
  const auto files = observe::find_files(flags.paths, "trace-");
  if (files.empty())
    refuse(
        "no trace-*.json there (in a directory only such names are looked for): was TALWEG_TRACE set "
        "when the ranks ran?");
  text::check_outputs({flags.trace}, files);
  const text::OutputFile out("--trace", flags.trace);
  observe::MergedTrace merged;
  out.write([&](std::ostream& events) {
    merged = observe::merge_traces(files, events);
    report_unreadable(merged.unreadable, files.size());
  });
  std::FILE* const people = out.is_standard_output() ? stderr : stdout;
  fmt::print(people, "{}: {} ranks, {} events, {} arrows from sender to receiver; {}\n", flags.trace,
             merged.ranks, merged.events, merged.arrows,
             merged.clock_error_us < 0 ? std::string("on the hosts' wall clocks")
                                       : fmt::format("clocks agree to {:.3g} us", merged.clock_error_us));
  if (merged.left_out > 0)
    fmt::print(people, "{} events were past TALWEG_TRACE_LIMIT and are not in it\n", merged.left_out);
  return 0;
}

int doctor(const DoctorFlags& flags) {
  if (!flags.trace.empty()) return merge(flags);
  const auto files = observe::find_files(flags.paths, "record-");
  if (files.empty())
    refuse(
        "no record-*.json there (in a directory only such names are looked for): was "
        "TALWEG_RECORDER_DIR set, or the signal sent, when the ranks ran?");
  std::vector<observe::Record> records;
  std::vector<std::string> unreadable;
  for (const std::string& file : files) {
    try {
      records.push_back(observe::read_record(file));
    } catch (const Error& e) {
      unreadable.emplace_back(e.what());
    }
  }
  report_unreadable(unreadable, files.size());
  const auto diagnoses = diagnose(records);
  const bool as_json = !flags.json.empty();
  const text::OutputFile out("--json", as_json ? flags.json : "-");
  out.write(as_json ? text::json_document(to_json(diagnoses, unreadable)) : to_text(diagnoses));
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Action* action) {
  auto flags = std::make_shared<DoctorFlags>();
  auto* sub =
      app.add_subcommand("doctor", "what the flight records of all ranks say; or their traces in one");
  sub->footer(kDoctorExamples);
  sub->add_option("paths", flags->paths,
                  "flight records (or traces), or directories with record-*.json (or trace-*.json)")
      ->required();
  sub->add_option("-J,--json", flags->json, "as JSON, into this file; - for standard output");
  sub->add_option("--trace", flags->trace, "merge traces, not records, into this file for ui.perfetto.dev");
  sub->callback([flags, action] { *action = [flags] { return doctor(*flags); }; });
}

}  // namespace talweg::cli
