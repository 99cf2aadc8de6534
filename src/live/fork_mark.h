// ForkMark: tells an object with threads and shared connections that it has come into another process by
// fork.
//
// Such a copy must not be used: its threads are not there, its sockets and rings are those of the process
// that it was copied from. The mark is a page that the kernel wipes in a forked child (Linux 4.14), so that
// looking costs a load, where asking for the process costs a system call.
#pragma once

namespace talweg::live {

class ForkMark {
 public:
  // Throws Error{system}.
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // True in a process that was forked from the one that made this object.
  bool inherited() const { return *mark_ == 0; }
  int made_in() const { return process_; }

 private:
  int process_;
  volatile int* mark_;
};

}  // namespace talweg::live
