// TraceFile: the bytes of a file that may be gzip's, as they come. Whether they are, the file's first bytes
// say. A byte order mark is left out.
//
//   TraceFile file("trace.json.gz");
//   while (const std::size_t n = file.read(buffer, sizeof(buffer))) ...
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace talweg::train {

// Told of bytes as they are read: how many more, of the file as it is on the disk. What it throws ends the
// reading.
using OnRead = std::function<void(std::size_t)>;

class TraceFile {
 public:
  // Throws Error{bad_file} if it cannot be opened, or is no file (a folder, a pipe: traces are read twice).
  explicit TraceFile(std::string path, OnRead on_read = {});
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // How many bytes came; 0 at the end. Throws Error{bad_file} where gzip's data are damaged or cut.
  std::size_t read(char* into, std::size_t most);
  const std::string& path() const { return path_; }

 private:
  struct Inflater;
  std::size_t read_raw(char* into, std::size_t most);
  std::size_t read_unpacked(char* into, std::size_t most);

  std::string path_;
  OnRead on_read_;
  int file_ = -1;
  bool at_start_ = true;
  std::unique_ptr<Inflater> inflater_;  // null: plain
};

// All of a file, unpacked; at most `most_bytes` of it. Throws Error{bad_file}.
std::string read_trace(const std::string& path, std::size_t most_bytes, const OnRead& on_read = {});
// What it begins with.
std::string read_head(const std::string& path, std::size_t bytes);

}  // namespace talweg::train
