// SwitchLine: one end of the connection between a switch and who has joined it, or gives it orders: messages
// in sealed records (wire/switch_message.h). Never blocks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "live/join/gate.h"
#include "live/system.h"
#include "wire/datagram.h"
#include "wire/switch_message.h"

namespace talweg::live {

// Of a packet with a datagram of a switch or a worker, all but the payload: the headers of IP, of UDP and of
// the datagram, and its trailer.
constexpr std::size_t bytes_around(wire::DatagramProtection protection) {
  return 28 + wire::kDatagramHeaderBytes + wire::trailer_bytes(protection);
}

class SwitchLine {
 public:
  // `most`: bytes of the longest message that the other side may send.
  SwitchLine(Visitor visitor, std::size_t most);

  const FileDescriptor& socket() const { return socket_; }
  void close() { socket_.reset(); }
  // Takes what has come. False: the other side has ended the connection; what next() has left still counts.
  bool receive();
  // The next message. Empty: no more has come, or the other side does not keep to the form: broken().
  std::optional<wire::SwitchMessage> next();
  bool broken() const { return broken_; }

  void say(const wire::SwitchMessage& message);
  // Sends what the kernel takes. False: the connection has ended.
  bool flush();
  std::size_t unsent() const { return output_.size(); }  // bytes

 private:
  FileDescriptor socket_;
  wire::Cipher from_, to_;
  std::size_t most_;
  std::vector<std::byte> input_, output_;
  bool broken_ = false;
};

// Where a switch at this address (dotted) listens for those on its own host who give it orders: an abstract
// Unix socket.
std::string switch_control_name(const Endpoint& address);

// Says `order` to the switch that listens at this address of this host, and returns what it answers. Throws
// Error: that there is none, that it is another user's, that the key is another one, what it refuses.
std::string give_order(const Endpoint& address, const wire::Secret& key, wire::SwitchDo order,
                       std::int64_t deadline_ns);

}  // namespace talweg::live
