// One started process: its process group, its two output pipes and how it ended.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "base/child_process.h"
#include "base/file_descriptor.h"
#include "fabric/launcher.h"
#include "fabric/line_prefixer.h"
#include "fabric/warden.h"

namespace talweg::fabric {

class Child {
 public:
  // One of the two output streams.
  struct Stream {
    FileDescriptor from;
    int to;
    LinePrefixer lines;
    int lost = 0;  // errno of what could not be passed on
  };

  // Starts `process` in a process group of its own with /dev/null as its input and `mask` as its signal mask,
  // and returns once the program runs. Throws as launch() does.
  Child(const Process& process, const LaunchOptions& options, const sigset_t& mask, const Warden& warden);
  ~Child();
  Child(Child&&) noexcept = default;
  Child(const Child&) = delete;

  const std::string& label() const { return label_; }
  bool aggregates() const { return aggregates_; }
  bool carries() const { return carries_; }
  std::string who() const { return (carries_ ? "the " : aggregates_ ? "aggregator " : "rank ") + label_; }
  pid_t pid() const { return process_->pid(); }
  int pidfd() const { return pidfd_.get(); }  // readable once it has ended
  Stream& out() { return out_; }
  Stream& err() { return err_; }

  // Passes on what the stream holds now. False once its other end is closed.
  static bool pump(Stream& stream, bool prefix);

  // Signals the whole process group; harmless once it is empty.
  void kill_group(int signal) const;
  // The end is only noted: the process stays a zombie, which keeps its number, and so its group's, from being
  // given to a stranger until the destructor reaps it.
  void note_end();
  bool ended() const { return ended_; }
  int exit_code() const { return exit_code_; }  // 128 + n: killed by signal n
  std::string how_it_ended() const;             // "rank 2 exited with code 3"

 private:
  void explain_failed_start(const Process& process, const std::string& report);

  std::string label_;
  bool aggregates_ = false;
  bool carries_ = false;
  Stream out_, err_;
  std::optional<ChildProcess> process_;
  FileDescriptor pidfd_;
  bool ended_ = false;
  bool killed_ = false;
  int exit_code_ = 0;
};

}  // namespace talweg::fabric
