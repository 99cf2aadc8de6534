#include "live/shared/shared_link.h"

#include <atomic>

namespace talweg::live {

namespace {
constexpr std::size_t kBell = 0;
constexpr std::size_t kProcess = 1;
}  // namespace

SharedLink::SharedLink(Connection connection, std::shared_ptr<SharedSender> sender, int own_local,
                       EventLoop& loop, FrameHandler& handler)
    : Link(connection.rank, handler),
      sender_(std::move(sender)),
      ring_(*sender_, std::move(*connection.segment), own_local, connection.local_index),
      process_(watch_process(connection.streams[0])),
      bell_(std::move(connection.streams[0]), peer_, {}, handler),
      loop_(loop) {
  bell_.watch(loop, *this, kBell);
  if (process_) process_handle_ = loop.watch(process_.get(), *this, kProcess);
}

bool SharedLink::send(OutFrame frame) {
  const bool owned = frame.reported;
  return ring_.push(std::move(frame)) || owned;
}

void SharedLink::ring_bell() {
  OutFrame bell;
  bell.header = encode(wire::Wake{});
  bell_.push(std::move(bell));
}

void SharedLink::flush() {
  if (ring_.must_wake()) ring_bell();
  if (!bell_.idle()) bell_.flush();
  sender_->forget_last();
}

bool SharedLink::receive_ring() {
  return !ring_.broken() && ring_.receive(peer_, handler_);
}

bool SharedLink::poll() {
  if (gone()) return false;
  bool any = receive_ring();
  if (ring_.broken()) settle();
  if (gone()) return any;
  if (ring_.backlog() && ring_.flush(handler_)) {
    any = true;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // as before every flush
    flush();
  }
  return any;
}

bool SharedLink::prepare_sleep() {
  if (gone()) return true;
  sender_->segment.doorbell().sleeping.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Nobody rings when a ring or a block becomes free.
  return !ring_.something_arrived() && !ring_.backlog();
}

void SharedLink::awake() {
  sender_->segment.doorbell().sleeping.store(0, std::memory_order_relaxed);
}

bool SharedLink::on_ready(std::size_t which, bool readable, bool writable) {
  if (which == kProcess) {
    on_process_end();
    return true;
  }
  // What it wrote into its ring before it died must be seen before its death is.
  if (readable)
    while (receive_ring()) {
    }
  const bool any = bell_.on_ready(readable, writable);
  settle();
  return any;
}

// It may have said goodbye before; what it wrote is here already. A child that it forked may still hold its
// socket, so that this does not end.
void SharedLink::on_process_end() {
  loop_.unwatch(process_handle_);
  process_.reset();
  if (!gone()) {
    while (receive_ring()) {
    }
    while (bell_.receive()) {
    }
    if (bell_.said_goodbye()) bell_.close();
    settle();
    lose(ErrorCode::peer_failed, "its process has ended");
  }
  // Groups without it go on, and need the blocks that it has not read. While only its connection was broken
  // it might still have read.
  ring_.forget(handler_);
}

void SharedLink::settle() {
  if (gone()) return;
  if (ring_.broken()) {
    lose(ErrorCode::corrupted, "it wrote a frame into shared memory that cannot be");
  } else if (!bell_.open()) {
    const Stream::End end = *bell_.end();
    lose(end.failure, end.why);
    if (end.failure) return;
    // What waits for it counts as sent, as what is sent to it from now on does.
    ring_.forget(handler_);
    bell_.forget();
  }
}

void SharedLink::lose(std::optional<ErrorCode> failure, const std::string& why) {
  bell_.close();
  end(failure, why);
}

void SharedLink::cancel(std::uint32_t group, std::uint64_t run) {
  ring_.cancel(group, run, handler_);
}

bool SharedLink::unsent() const {
  return !gone() && (ring_.backlog() || !bell_.idle());
}

// It is not asked whether the last words have been read: what is in a Unix socket stays there.
bool SharedLink::part() {
  if (gone()) return true;
  if (ring_.backlog()) {
    ring_.flush(handler_);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    flush();
  }
  return !ring_.backlog() && bell_.say_goodbye();
}

LinkStatistics SharedLink::statistics() const {
  return {ring_.bytes_sent() + bell_.bytes_sent(), ring_.bytes_received() + bell_.bytes_received()};
}

}  // namespace talweg::live
