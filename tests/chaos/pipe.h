// Pipe: frames one way between two ranks, over a byte stream of the simulated transport. Does in virtual time
// what live::Stream does on a socket, with the same reader and writer of frames: only when the wire takes
// bytes and how they are cut is up to the seed.
#pragma once

#include <vector>

#include "live/out_frame.h"
#include "protocol/session/session.h"
#include "sim/transport.h"
#include "wire/frame_reader.h"
#include "wire/frame_writer.h"

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
  bool idle() const { return queue_.empty() && writer_.empty(); }
  void drop_unsent();
  // Nobody takes what still waits: it counts as sent.
  void forget();

  // The receiver's side.
  void on_delivered(std::int64_t bytes);
  // Hands over the next frame, or reads some of what is there. True if anything was.
  bool receive();
  void forget_place(std::uint32_t group, std::uint64_t run);
  // All has been read that was written before the sender's side was closed.
  bool at_end() const { return end_known && consumed_ == written_ && handed_over_; }

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
  void commit(std::size_t frames);
  void write(bool whole_frame);
  void damage(std::size_t begin);
  bool read_some();
  bool hand_over();
  void compact();

  World& world_;
  live::SendQueue queue_;
  wire::FrameWriter<live::OutFrame> writer_;
  wire::FrameReader reader_;
  std::vector<std::byte> bytes_;  // written, not yet read, from begin_ on
  std::size_t begin_ = 0;
  std::int64_t written_ = 0;
  std::int64_t consumed_ = 0;
  std::int64_t arrived_ = 0;
  bool handed_over_ = true;      // all that was read and is complete
  std::byte* placed_ = nullptr;  // where a payload went last
};

}  // namespace talweg::chaos
