// TraceWriter: a file in Chrome's trace format, which ui.perfetto.dev opens, written as things happen. Each
// event is one line, so that a file whose writer died can be read up to there.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace talweg::text {

class TraceWriter {
 public:
  // `what` stands in front of what goes wrong, such as "TALWEG_TRACE". Throws as OutputFile does
  // (output_file.h), and Error{system}.
  TraceWriter(const std::string& path, std::string what);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // The members of one event, as JSON without the braces around them.
  void event(std::string_view members);
  // What a process, and a row of it, is called in the picture; processes stand in the order of their numbers.
  void name_process(std::int64_t pid, std::string_view name);
  void name_row(std::int64_t pid, std::int64_t tid, std::string_view name);
  // Something of Talweg's own about a process; `members` are those of its "args".
  void note(std::int64_t pid, std::string_view name, std::string_view members);
  // So many events of a process are not in the file; 0 says nothing.
  void note_left_out(std::int64_t pid, std::uint64_t count);

  bool is_open() const { return file_ != nullptr; }
  void flush() { std::fflush(file_.get()); }
  // Nothing may follow. Throws Error{system} when not all could be written, and leaves no cut file; without
  // it, the destructor ends the file.
  void close();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void end();

  const std::string path_, what_;
  std::unique_ptr<std::FILE, Close> file_;
  bool first_ = true;
};

}  // namespace talweg::text
