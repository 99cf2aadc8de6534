// Pipe: frames one way between two ranks, over a byte stream of the simulated transport. Does in virtual time
// what live::Stream does on a socket: headers and payloads with their checksums, payloads read when the wire
// takes them, received straight into their place where the receiver knows one, rescued when their operation
// ends.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "live/out_frame.h"
#include "protocol/session.h"
#include "sim/reliable.h"

namespace talweg::chaos {

class Node;
class World;

class Pipe {
 public:
  Pipe(World& world, Node& from, Node& to, int stream);

  // The sender's side.
  void push(live::OutFrame frame);
  // Gives the transport what it has room for, or a part of that. True if more can follow at once.
  bool flush();
  // All of it at once, room or not.
  void flush_all();
  void cancel(std::uint32_t group, std::uint64_t run);
  bool idle() const { return queue_.empty() && committed_.empty(); }
  void drop_unsent();
  // Nobody takes what still waits: it counts as sent.
  void forget();

  // The receiver's side.
  void on_delivered(std::int64_t bytes);
  // Hands over the next frame, or what is there of it. True if anything was there.
  bool receive();
  void forget_place(std::uint32_t group, std::uint64_t run);
  // All has been read that was written before the sender's side was closed.
  bool at_end() const { return end_known && consumed_ == written_; }

  Node& from;
  Node& to;
  const int stream;
  const sim::Picoseconds opened;
  sim::FlowId flow = 0;
  bool stale = false;         // of an earlier epoch, or closed by its receiver
  bool end_known = false;     // the receiver has been told that nothing more is written
  bool said_goodbye = false;  // and why
  bool ended = false;         // the receiver has taken note

 private:
  void take(live::OutFrame frame);
  void damage(std::size_t begin);
  bool checked(const wire::Header& header, const std::byte* payload);
  void compact();

  World& world_;
  live::SendQueue queue_;
  std::deque<live::OutFrame> committed_;
  std::vector<std::byte> bytes_;  // written, not yet consumed, from begin_ on
  std::size_t begin_ = 0;
  std::int64_t written_ = 0;
  std::int64_t consumed_ = 0;
  std::int64_t arrived_ = 0;
  std::optional<wire::Header> header_;
  bool asked_place_ = false;
  bool discard_ = false;
  std::uint32_t place_group_ = 0;
  protocol::Session::Placement place_;
};

}  // namespace talweg::chaos
