// Frames over one TCP or Unix stream. Payloads are sent from where they lie and, where the handler knows a
// place, received straight into it (wire/frame_writer.h, wire/frame_reader.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "live/frame_handler.h"
#include "live/loop/event_loop.h"
#include "live/out_frame.h"
#include "live/system.h"
#include "wire/frame_reader.h"
#include "wire/frame_writer.h"
#include "wire/handshake.h"

namespace talweg::live {

struct StreamOptions {
  bool checksum = true;  // of payloads; headers always have one
};

// Counts the copies of what must arrive behind everything that was sent before it, on all streams of a link.
class Fence {
 public:
  explicit Fence(std::size_t streams) : copies_(streams, 0) {}
  // One has come there. True if it is the last one: all others have come on their streams.
  bool last(std::size_t stream) {
    const std::uint64_t copy = ++copies_[stream];
    return std::ranges::all_of(copies_, [copy](std::uint64_t n) { return n >= copy; });
  }

 private:
  std::vector<std::uint64_t> copies_;
};

class Stream {
 public:
  // Takes a connected socket; makes it non-blocking. With `secrets` all that travels is encrypted.
  Stream(FileDescriptor socket, int peer, StreamOptions options, FrameHandler& handler,
         const wire::SessionSecrets* secrets = nullptr);

  // From now on the loop tells `who` as number `which` of its handles when there is something to do here:
  // then on_ready(). The stream says itself when it wants to write.
  void watch(EventLoop& loop, Watcher& who, std::size_t which);
  // Frames that must arrive behind all others come once on each stream of a link: this is number `number`.
  void join(Fence& fence, std::size_t number);

  int fd() const { return socket_.get(); }
  // Why nothing comes of it any more and nothing goes; without a failure when the peer said goodbye first.
  // Not reported to the handler: a peer may have more streams than one.
  struct End {
    std::optional<ErrorCode> failure;
    std::string why;
  };
  const std::optional<End>& end() const { return end_; }
  bool open() const { return !end_; }
  // What the kernel has taken is on the other machine.
  bool arrived() const;
  // The peer will send no more.
  bool said_goodbye() const { return said_goodbye_; }
  void push(OutFrame frame);
  // Sends what the kernel takes, up to a budget that keeps its backlog short. True if anything was sent.
  bool flush();
  bool idle() const { return queue_.empty() && writer_.empty(); }
  // Nothing will be sent any more, though something may still be read.
  bool deaf() const { return !open() || !send_error_.empty(); }
  // Receives what is there, up to a budget. True if anything came.
  bool receive();
  // Both, as far as they can be done now.
  bool on_ready(bool readable, bool writable);
  void cancel(std::uint32_t group, std::uint64_t run);
  // The kernel sends no more than so many bytes per second from now on; 0: as many as it can.
  void pace(double bytes_per_second);
  // An orderly end: says goodbye, then lingers. Each to be called again until it returns true: the kernel has
  // taken all that was to be sent; all of it has arrived. Or it cannot be.
  bool say_goodbye();
  bool linger();
  // Lets go of the socket.
  void close();
  // Nobody takes what still waits: it counts as sent.
  void forget();

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  void limit_unsent();
  void set_unsent_limit(std::int64_t bytes);
  void on_taken(const OutFrame& frame);
  bool held_back(const wire::Header& header);
  bool hand_over();

  FileDescriptor socket_;
  const int peer_;
  FrameHandler& handler_;
  EventLoop* loop_ = nullptr;  // null: nobody watches it
  EventLoop::Handle handle_ = 0;
  Fence* fence_ = nullptr;
  std::size_t number_ = 0;

  SendQueue queue_;
  wire::FrameWriter<OutFrame> writer_;
  bool blocked_ = false;
  std::int64_t unsent_limit_ = 0;  // 0: not set yet
  double pace_ = 0;                // bytes per second; 0: none
  std::int64_t limited_at_ns_ = 0;

  wire::FrameReader reader_;
  std::string send_error_;
  bool said_goodbye_ = false;
  bool parting_ = false;
  std::optional<End> end_;

  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace talweg::live
