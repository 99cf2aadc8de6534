// Frames over one TCP or Unix stream. Payloads are sent from where they lie and, where the handler knows a
// place, received straight into it (wire/frame_writer.h, wire/frame_reader.h).
#pragma once

#include <cstddef>
#include <string>

#include "live/frame_handler.h"
#include "live/out_frame.h"
#include "live/system.h"
#include "wire/frame_reader.h"
#include "wire/frame_writer.h"
#include "wire/handshake.h"

namespace talweg::live {

struct StreamOptions {
  bool checksum = true;  // of payloads; headers always have one
};

class Stream {
 public:
  // Takes a connected socket; makes it non-blocking. With `secrets` all that travels is encrypted.
  Stream(FileDescriptor socket, int peer, StreamOptions options, FrameHandler& handler,
         const wire::SessionSecrets* secrets = nullptr);

  int fd() const { return socket_.get(); }
  bool open() const { return static_cast<bool>(socket_); }
  // The peer will send no more.
  bool said_goodbye() const { return said_goodbye_; }
  // The peer said goodbye before the stream ended. Not reported to the handler: a peer has more streams than
  // one.
  bool ended_orderly() const { return !open() && said_goodbye_ && !failed_; }
  void push(OutFrame frame);
  // Sends what the kernel takes, up to a budget that keeps its backlog short. True if anything was sent.
  bool flush();
  // Something is waiting and the kernel was full: poll for writability.
  bool wants_write() const { return blocked_ && open(); }
  bool idle() const { return queue_.empty() && writer_.empty(); }
  // Nothing will be sent any more, though something may still be read.
  bool deaf() const { return !open() || !send_error_.empty(); }
  void on_writable() { blocked_ = false; }
  // Receives what is there, up to a budget. True if anything came.
  bool receive();
  void cancel(std::uint32_t group, std::uint64_t run);
  void close() { socket_.reset(); }
  // Nobody takes what still waits: it counts as sent.
  void forget();

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  void limit_unsent();
  void on_taken(const OutFrame& frame);
  bool hand_over();
  void fail(ErrorCode code, const std::string& why);

  FileDescriptor socket_;
  const int peer_;
  FrameHandler& handler_;

  SendQueue queue_;
  wire::FrameWriter<OutFrame> writer_;
  bool blocked_ = false;
  std::int64_t unsent_limit_ = 0;  // 0: not set yet
  std::int64_t limited_at_ns_ = 0;

  wire::FrameReader reader_;
  std::string send_error_;
  bool said_goodbye_ = false;
  bool failed_ = false;

  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace talweg::live
