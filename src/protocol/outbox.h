// What a session asks of whoever drives it: the seam between protocols and the world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "talweg/error.h"
#include "wire/frames.h"

namespace talweg::protocol {

inline constexpr int kPriorities = 8;
inline constexpr int kUrgent = kPriorities - 1;  // for what must not wait behind data

// Says which buffer of which run a sent payload belongs to; comes back through Session::on_sent.
struct Token {
  std::uint64_t run = 0;    // the session's own number for the run
  std::uint32_t piece = 0;  // the transfer's own number for what was sent
  std::byte* buffer = nullptr;
  float progress = 0;  // of the data of a run that wait for a rank the least far along go first
  bool data = false;   // a transfer's: on_sent follows, unless they were taken at once
};

// By which way a sum was made that a stream of sums could have made (streaming/stream_run.h).
enum class SumWay : std::uint8_t {
  none,  // no such call
  dense,
  blocks,
  pairs,     // by the stream, in one of its forms
  trees,     // these were quicker
  fallback,  // by trees, as there was no stream, or it was lost in this sum
};
inline constexpr int kSumWays = 6;
const char* name(SumWay way);  // "dense"; of none ""

// How an operation ended.
struct Outcome {
  bool ok = true;
  ErrorCode code = ErrorCode::aborted;
  std::string text;
  int source = -1;            // send_recv: who sent
  SumWay way = SumWay::none;  // of what has ended well
};

class Outbox {
 public:
  virtual ~Outbox() = default;
  // `to` is a node of the group: a rank, or one of those behind them. The header is complete but for its
  // checksums. True when the payload was taken already, else, of data, Session::on_sent(token)
  // follows; nobody waits for that of any other frame. `stable`: as in Actions::Payload. Frames of the same
  // tree and priority to one rank arrive in order: control frames among each other, and data, which comes in
  // the order of its progress.
  virtual bool send(int to, const wire::Header& header, const std::byte* payload, const Token& token,
                    int priority, bool stable) = 0;
  // A control frame with a text as payload, copied.
  virtual void send_text(int to, const wire::Header& header, const std::string& text) = 0;
  // Forgets everything unsent of a run, and where a frame of it is being received into: the caller's memory
  // is not touched after this returns. on_sent has been called for each frame that was dropped.
  virtual void cancel(std::uint64_t run) = 0;
  // A transfer wants to hear the time then: call Session::on_time, which asks anew for what it has still to
  // look at. The next moment counts of those that were asked for; one that has passed is as soon as possible.
  virtual void look_at(std::int64_t when_ns) = 0;
  // `user` is what was given to start. Called once for every operation.
  virtual void completed(void* user, const Outcome& outcome) = 0;
};

}  // namespace talweg::protocol
