// What each type of frame says, with a name for everything that it says. Which field of the header holds it
// is known here and nowhere else.
//
//   send(encode(call, Credit{tree, granted}));                             // a frame of a call
//   if (header.type == FrameType::credit) use(credit_of(header).granted);  // only for headers of that type
//
// Values were checked when the header was decoded (frame.h) as far as they can be without knowing the call.
#pragma once

#include "talweg/error.h"
#include "wire/frame.h"

namespace talweg::wire {

// Whose frame it is: what all frames of a call have in common.
struct CallId {
  std::uint32_t group = 0;
  std::uint64_t sequence = 0;
  Signature signature;
};

struct Announce {
  bool ask = false;   // the sender waits to hear that we have started, too
  bool held = false;  // to rank 0: the sender has called it, but cannot start before it has the plan
};

// Of a tree's slice, on its way to the root (up) or from it; `bytes` of payload follow.
struct Chunk {
  bool up = false;
  std::uint32_t tree = 0;
  std::uint32_t chunk = 0;
  std::uint32_t bytes = 0;
};

struct Credit {
  std::uint32_t tree = 0;
  std::uint32_t granted = 0;  // chunks of the tree, in all
};

// Of a transfer with a language of its own, data or not: no driver and no session looks into it. `bytes` of
// payload follow. Frames of the same tree arrive in order.
struct Own {
  std::uint32_t kind = 0;  // below kOwnKinds
  std::uint32_t tree = 0;
  std::uint32_t chunk = 0;
  std::uint32_t bytes = 0;
};

struct Failure {
  ErrorCode code = ErrorCode::aborted;
  bool to_sender = false;        // of a message: the receiver tells its sender; else the other way round
  std::uint32_t text_bytes = 0;  // of the reason, which follows
};

struct Request {
  std::uint32_t tag = 0;
};

struct Clear {};

struct GroupFailure {
  std::uint32_t group = 0;
  ErrorCode code = ErrorCode::aborted;
  std::uint32_t text_bytes = 0;
};

// Arrives behind whatever the sender has still sent (kBehindAll).
struct Leave {
  std::uint32_t group = 0;
};

// Of what rank 0 says at a time, which may take several frames; they arrive in order.
struct PlanPart {
  std::uint32_t group = 0;
  bool last = true;
  std::uint32_t bytes = 0;
};
struct Report {
  std::uint32_t group = 0;
  std::uint32_t bytes = 0;
};

// The sender gives no further call a plan before it has heard the same from all ranks: from the greatest of
// their `next` on, plans do without the node.
struct Lost {
  std::uint32_t group = 0;
  std::uint32_t node = 0;
  std::uint64_t next = 0;  // the sender's next collective that has no plan
  ErrorCode code = ErrorCode::peer_failed;
  std::uint32_t text_bytes = 0;  // of the reason, which follows
};

// All collectives before `call` have ended at the sender. Arrives behind whatever it has sent of them
// (kBehindAll).
struct Past {
  std::uint32_t group = 0;
  std::uint64_t call = 0;
};

// Of a link whose frames are to go another way (kBehindAll).
struct Turn {
  std::uint64_t number = 0;
};
struct Taken {
  std::uint64_t number = 0;  // as asked
};

struct Goodbye {};
struct Wake {};

struct Ping {
  std::int64_t asked_ns = 0;  // the asker's clock
};
struct Pong {
  std::int64_t asked_ns = 0;     // as asked
  std::int64_t answered_ns = 0;  // the answerer's clock
};

Header encode(const CallId& call, const Announce& announce);
Header encode(const CallId& call, const Chunk& chunk);
Header encode(const CallId& call, const Credit& credit);
Header encode(const CallId& call, const Own& own);
Header encode(const CallId& call, const Failure& failure);
Header encode(const CallId& call, const Request& request);
Header encode(const CallId& call, const Clear& clear);
Header encode(const GroupFailure& failure);
Header encode(const Leave& leave);
Header encode(const PlanPart& part);
Header encode(const Report& report);
Header encode(const Lost& lost);
Header encode(const Past& past);
Header encode(const Turn& turn);
Header encode(const Taken& taken);
Header encode(const Goodbye& goodbye);
Header encode(const Wake& wake);
Header encode(const Ping& ping);
Header encode(const Pong& pong);

CallId call_of(const Header& header);
Announce announce_of(const Header& header);
Chunk chunk_of(const Header& header);
Credit credit_of(const Header& header);
Own own_of(const Header& header);
Failure failure_of(const Header& header);
Request request_of(const Header& header);
GroupFailure group_failure_of(const Header& header);
Leave leave_of(const Header& header);
PlanPart plan_part_of(const Header& header);
Lost lost_of(const Header& header);
Past past_of(const Header& header);
Turn turn_of(const Header& header);
Taken taken_of(const Header& header);
Ping ping_of(const Header& header);
Pong pong_of(const Header& header);

// A chunk, or what other transfers call their data.
inline bool is_chunk(const Header& header) {
  return facts(header.type).payload == Payload::data;
}

}  // namespace talweg::wire
