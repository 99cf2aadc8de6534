// One operation of a session, from its start to its outcome. Private to the session's own files.
#pragma once

#include "protocol/session.h"

namespace talweg::protocol {

inline constexpr std::uint64_t kMessageBit = 1ULL << 63;  // in the numbers of sends and receives

struct Session::Run {
  enum class Kind { collective, send, receive };

  explicit Run(BufferPool& pool) : run(pool) {}

  std::uint64_t id = 0;
  Kind kind = Kind::collective;
  Operation op;
  ForestRun run;
  bool gated = false;        // waits for everybody's announcement before it begins
  std::vector<bool> agreed;  // gated: who has announced the same
  int missing = 0;           // gated: how many have not
  int peer = kNone;          // messages; of a receive once it has found one
  int source = kNone;        // receives: who was named, if anybody
  std::uint64_t number = 0;  // messages: the sender's number for it
  std::uint32_t tag = 0;
  bool failing = false;
  bool asked = false;          // close to its deadline: all ranks were asked whether they have started it
  std::vector<bool> answered;  // asked: who has been heard since
  std::vector<Early> held;     // pairwise collectives: data that came before everybody had agreed

  // What this rank tells `to`, and expects to be told by `from`.
  std::int64_t told(int to) const {
    return op.tell.empty() ? op.signature.count : op.tell[static_cast<std::size_t>(to)];
  }
  std::int64_t expected(int from) const {
    return op.expect.empty() ? op.signature.count : op.expect[static_cast<std::size_t>(from)];
  }
};

}  // namespace talweg::protocol
