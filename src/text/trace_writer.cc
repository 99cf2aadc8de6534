#include "text/trace_writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "text/escape.h"
#include "text/output_file.h"

namespace talweg::text {

TraceWriter::TraceWriter(const std::string& path, std::string what) : path_(path), what_(std::move(what)) {
  const OutputFile refuses_what_cannot_be_written(what_, path);
  const PipeOpening pipe(what_, path);
  file_.reset(std::fopen(path.c_str(), "we"));
  if (!file_) throw_error(ErrorCode::system, "{}: cannot write {}: {}", what_, path, std::strerror(errno));
}

TraceWriter::~TraceWriter() {
  if (file_) end();
}

void TraceWriter::close() {
  end();
  errno = 0;
  bool bad = std::fflush(file_.get()) != 0 || std::ferror(file_.get()) != 0;
  bad = std::fclose(file_.release()) != 0 || bad;
  if (!bad) return;
  const std::string reason = errno == 0 ? "" : fmt::format(": {}", std::strerror(errno));
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path_, ignored)) std::filesystem::remove(path_, ignored);
  throw_error(ErrorCode::system, "{}: cannot write {}{}", what_, path_, reason);
}

void TraceWriter::end() {
  std::fputs("\n]\n", file_.get());
}

void TraceWriter::event(std::string_view members) {
  const std::string line = fmt::format("{}{{{}}}", std::exchange(first_, false) ? "[\n" : ",\n", members);
  std::fputs(line.c_str(), file_.get());  // what fails is said by close()
}

void TraceWriter::name_process(std::int64_t pid, std::string_view name) {
  event(fmt::format(R"("ph":"M","pid":{},"name":"process_name","args":{{"name":"{}"}})", pid,
                    json_escaped(name)));
  event(fmt::format(R"("ph":"M","pid":{0},"name":"process_sort_index","args":{{"sort_index":{0}}})", pid));
}

void TraceWriter::name_row(std::int64_t pid, std::int64_t tid, std::string_view name) {
  event(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}})", pid, tid,
                    json_escaped(name)));
}

void TraceWriter::note(std::int64_t pid, std::string_view name, std::string_view members) {
  event(fmt::format(R"("ph":"M","pid":{},"name":"{}","args":{{{}}})", pid, name, members));
}

void TraceWriter::note_left_out(std::int64_t pid, std::uint64_t count) {
  if (count > 0) note(pid, "talweg_events_left_out", fmt::format(R"("count":{})", count));
}

}  // namespace talweg::text
