// EventLoop: waits for handles, and tells those who watch them. Not thread-safe but for `sleep`, which may
// run while others call in, and `wake`.
#pragma once

#include <cstddef>
#include <vector>

#include "live/system.h"

namespace talweg::live {

class Watcher {
 public:
  // Number `which` of its handles is ready. True if anything moved.
  virtual bool on_ready(std::size_t which, bool readable, bool writable) = 0;

 protected:
  ~Watcher() = default;
};

class EventLoop {
 public:
  using Handle = std::size_t;

  EventLoop();  // throws Error{system}

  // `fd` stays open, and `who` stays where it is, until unwatch(). Readability is always of interest, and
  // that the other end is closed. Throws Error{system}.
  Handle watch(int fd, Watcher& who, std::size_t which);
  // Interest in writability; nothing at first. Costs a system call where it changes.
  void want_write(Handle handle, bool wanted);
  // Before the descriptor is closed: a process that was forked may hold it open, and it would be reported for
  // ever. At the second call, nothing.
  void unwatch(Handle handle);

  // Tells of what is ready, without waiting. True if anything moved.
  bool poll();
  // Waits until something is ready, or `ms` have passed (-1: for ever), and leaves it to poll().
  void sleep(int ms);
  // Ends a sleep, or the next one.
  void wake();

 private:
  struct Slot {
    int fd = -1;
    Watcher* who = nullptr;  // null: not watched any more
    std::size_t which = 0;
    bool write = false;
  };
  FileDescriptor epoll_;
  FileDescriptor wake_;
  std::vector<Slot> slots_;  // never reused: what was ready together may be told of late
};

}  // namespace talweg::live
