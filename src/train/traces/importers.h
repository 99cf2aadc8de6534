// One function for each kind of trace; read_job() chooses. All throw Error{bad_file}.
#pragma once

#include <string>
#include <vector>

#include "train/traces/kineto_trace.h"
#include "train/traces/read_job.h"
#include "train/traces/trace_file.h"

namespace talweg::train {

using Paths = std::vector<std::string>;

// `execution_traces` may be empty.
TraceJob import_kineto(const Paths& paths, const Paths& execution_traces, const OnRead& on_read = {});
TraceJob import_chakra(const Paths& paths, const OnRead& on_read = {});
TraceJob import_simai(const std::string& text, const std::string& origin);
TraceJob import_aicb(const std::string& text, const std::string& origin);
TraceJob import_pipedream(const std::string& text, const std::string& origin);
TraceJob import_b_caffe(const std::string& text, const std::string& origin);
TraceJob import_onnx(const std::string& bytes, const std::string& origin, const Device& device);

ExecutionSizes read_execution_trace(const std::string& path, const OnRead& on_read = {});

// "runs/rank0.pt.trace.json.gz" is rank0.
std::string name_of_file(const std::string& path);
// After an importer's own checks: names become fit to be shown and written, whatever bytes the file has for
// them, and what still is wrong with the job is said as the file's.
TraceJob checked(TraceJob read, const std::string& origin);

// A file's text, by lines, for errors that name the line.
class Lines {
 public:
  Lines(const std::string& text, std::string origin) : rest_(text), origin_(std::move(origin)) {}
  // False at the end. A line ends at "\n" or "\r\n".
  bool next(std::string_view& line);
  int number() const { return number_; }
  [[noreturn]] void fail(const std::string& text) const;

 private:
  std::string_view rest_;
  std::string origin_;
  int number_ = 0;
};

// By any of the separators; empty fields count.
std::vector<std::string_view> split(std::string_view line, std::string_view separators);
// By blanks; no field is empty.
std::vector<std::string_view> words_of(std::string_view line);
// `what` is what the field is called in errors.
std::int64_t whole_number(const Lines& lines, std::string_view text, const char* what, std::int64_t most);
// Times `nanoseconds_each`; must be at least 0 and at most kLongest, an hour.
Nanoseconds duration_of(const Lines& lines, std::string_view text, const char* what, double nanoseconds_each);

}  // namespace talweg::train
