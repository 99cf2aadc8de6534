// Frames over one TCP or Unix stream. Payloads are sent from where they lie and, where the handler knows a
// place, received straight into it.
//
// Encrypted, a header and a payload are a record each, followed by its tag. What is next on the wire is then
// encrypted into a buffer; a payload is received into its place as before and decrypted there.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "live/frame_handler.h"
#include "live/out_frame.h"
#include "live/system.h"
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
  bool idle() const { return queue_.empty() && committed_.empty(); }
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
  struct Incoming {
    wire::Header header;
    Place place;  // data null: the payload is collected in the staging buffer
    std::size_t received = 0;
    std::array<std::byte, wire::kTagBytes> tag{};  // encrypted only
  };
  struct Encryption {
    wire::Cipher to;
    wire::Cipher from;
    std::vector<std::byte> sealed;  // what is committed, as it goes onto the wire
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // Bytes on the wire.
  std::size_t head_bytes() const { return sizeof(wire::Header) + (encryption_ ? wire::kTagBytes : 0); }
  std::size_t body_bytes(const wire::Header& h) const {
    return h.length + (encryption_ && h.length > 0 ? wire::kTagBytes : 0);
  }
  std::size_t frame_bytes(const OutFrame& frame) const { return head_bytes() + body_bytes(frame.header); }

  void limit_unsent();
  void commit(std::size_t budget);
  void encrypt(const OutFrame& frame);
  std::size_t gather(iovec* iov, std::size_t& total);
  void release(std::size_t sent);

  bool parse();
  const char* open_header(std::byte* at, wire::Header& header);
  bool open_payload(const wire::Header& header, std::byte* payload, const std::byte* tag);
  void take(std::size_t got);
  bool complete_incoming();
  void fail(ErrorCode code, const std::string& why);

  FileDescriptor socket_;
  const int peer_;
  const StreamOptions options_;
  FrameHandler& handler_;
  std::optional<Encryption> encryption_;

  SendQueue queue_;
  RingQueue<OutFrame> committed_;  // next on the wire; nothing overtakes these any more
  std::size_t committed_bytes_ = 0;
  std::size_t head_sent_ = 0;  // bytes of the first one, header included, that the kernel has
  bool blocked_ = false;
  std::int64_t unsent_limit_ = 0;  // 0: not set yet
  std::int64_t limited_at_ns_ = 0;

  std::vector<std::byte> staging_;
  std::size_t begin_ = 0;  // of what is staged and not yet handed over
  std::size_t end_ = 0;
  std::optional<wire::Header> header_;  // of the frame whose payload is being staged
  std::optional<Incoming> incoming_;    // its payload goes into a place
  std::vector<std::byte> discard_;      // a place for payloads that nobody wants any more
  std::string send_error_;
  bool said_goodbye_ = false;
  bool failed_ = false;

  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace talweg::live
