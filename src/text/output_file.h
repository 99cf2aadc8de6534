// Files that a command writes when its work is done; "-" is standard output, and an empty name none.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace talweg::text {

// How to use it: OutputFile json("--json", path); work; json.write(text);
class OutputFile {
 public:
  // Before long work: throws Error{invalid_argument}, with the option's name in front, if it is certain that
  // write() will fail. Leaves no file behind that was not there.
  OutputFile(std::string option, std::string path);

  bool wanted() const { return !path_.empty(); }
  bool is_standard_output() const { return path_ == "-"; }
  // All at once: whoever reads sees the old file or the new one, should this process be ended meanwhile.
  // Pipes and devices are written to as they are. Throws Error{system}.
  void write(const std::string& text) const;
  // The same of what `fill` puts into the stream; what it throws is thrown on, and nothing is replaced.
  void write(const std::function<void(std::ostream&)>& fill) const;

 private:
  std::string option_, path_;
};

// To be there while a file is opened for writing. If it is a pipe that nobody reads, opening waits until
// somebody does: this says so, in a line on standard error.
class PipeOpening {
 public:
  PipeOpening(const std::string& option, const std::string& path);
  ~PipeOpening();
  PipeOpening(const PipeOpening&) = delete;
  PipeOpening& operator=(const PipeOpening&) = delete;

 private:
  int file_ = -1;  // keeps a reader that is there from taking a look at the pipe for its end
};

// Throws Error{system} if not all of it goes to standard output.
void print(const std::string& text);

// Throws Error{invalid_argument} if one of `outputs` is one of `inputs` or another output, by whatever name.
// Empty names and "-" are none.
void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);

}  // namespace talweg::text
