#include "wire/frames.h"

namespace talweg::wire {

namespace {

// Flags of an announce, of a failure, of a plan. What links themselves look at is in frame.h.
constexpr std::uint16_t kAsk = 4;
constexpr std::uint16_t kToSender = 8;
constexpr std::uint16_t kHeld = 16;
constexpr std::uint16_t kLastPart = 32;

Header header_of(FrameType type, const CallId& call) {
  Header h;
  h.type = type;
  h.group = call.group;
  h.sequence = call.sequence;
  set_signature(h, call.signature);
  return h;
}

Header header_of(FrameType type, std::uint32_t group = 0) {
  Header h;
  h.type = type;
  h.group = group;
  return h;
}

// Of failures and losses.
void set_reason(Header& h, ErrorCode code, std::uint32_t text_bytes) {
  h.chunk = static_cast<std::uint32_t>(code);
  h.length = text_bytes;
}

// A code that this version does not know is no reason to take the failure for another one.
ErrorCode code_of(const Header& h) {
  return h.chunk <= static_cast<std::uint32_t>(ErrorCode::corrupted) ? static_cast<ErrorCode>(h.chunk)
                                                                     : ErrorCode::aborted;
}

}  // namespace

Header encode(const CallId& call, const Announce& announce) {
  Header h = header_of(FrameType::announce, call);
  h.flags = static_cast<std::uint16_t>((announce.ask ? kAsk : 0) | (announce.held ? kHeld : 0));
  return h;
}

Header encode(const CallId& call, const Chunk& chunk) {
  Header h = header_of(chunk.up ? FrameType::up : FrameType::down, call);
  h.tree = chunk.tree;
  h.chunk = chunk.chunk;
  h.length = chunk.bytes;
  return h;
}

Header encode(const CallId& call, const Credit& credit) {
  Header h = header_of(FrameType::credit, call);
  h.tree = credit.tree;
  h.chunk = credit.granted;
  return h;
}

Header encode(const CallId& call, const Own& own) {
  Header h = header_of(static_cast<FrameType>(kOwnTypes + own.kind), call);
  h.tree = own.tree;
  h.chunk = own.chunk;
  h.length = own.bytes;
  return h;
}

Header encode(const CallId& call, const Failure& failure) {
  Header h = header_of(FrameType::failure, call);
  if (failure.to_sender) h.flags = kToSender;
  set_reason(h, failure.code, failure.text_bytes);
  return h;
}

Header encode(const CallId& call, const Request& request) {
  Header h = header_of(FrameType::request, call);
  h.tree = request.tag;
  return h;
}

Header encode(const CallId& call, const Clear&) {
  return header_of(FrameType::clear, call);
}

Header encode(const GroupFailure& failure) {
  Header h = header_of(FrameType::group_failure, failure.group);
  set_reason(h, failure.code, failure.text_bytes);
  return h;
}

Header encode(const Leave& leave) {
  Header h = header_of(FrameType::leave, leave.group);
  h.flags = kBehindAll;
  return h;
}

Header encode(const PlanPart& part) {
  Header h = header_of(FrameType::plan, part.group);
  if (part.last) h.flags = kLastPart;
  h.length = part.bytes;
  return h;
}

Header encode(const Report& report) {
  Header h = header_of(FrameType::report, report.group);
  h.length = report.bytes;
  return h;
}

Header encode(const Lost& lost) {
  Header h = header_of(FrameType::lost, lost.group);
  h.tree = lost.node;
  h.sequence = lost.next;
  set_reason(h, lost.code, lost.text_bytes);
  return h;
}

Header encode(const Past& past) {
  Header h = header_of(FrameType::past, past.group);
  h.flags = kBehindAll;
  h.sequence = past.call;
  return h;
}

Header encode(const Turn& turn) {
  Header h = header_of(FrameType::turn);
  h.flags = kBehindAll;
  h.sequence = turn.number;
  return h;
}

Header encode(const Taken& taken) {
  Header h = header_of(FrameType::taken);
  h.sequence = taken.number;
  return h;
}

Header encode(const Goodbye&) {
  return header_of(FrameType::goodbye);
}

Header encode(const Wake&) {
  return header_of(FrameType::wake);
}

Header encode(const Ping& ping) {
  Header h = header_of(FrameType::ping);
  h.count = ping.asked_ns;
  return h;
}

Header encode(const Pong& pong) {
  Header h = header_of(FrameType::pong);
  h.count = pong.asked_ns;
  h.layout = static_cast<std::uint64_t>(pong.answered_ns);
  return h;
}

CallId call_of(const Header& h) {
  return {h.group, h.sequence, signature_of(h)};
}

Announce announce_of(const Header& h) {
  return {(h.flags & kAsk) != 0, (h.flags & kHeld) != 0};
}

Chunk chunk_of(const Header& h) {
  return {h.type == FrameType::up, h.tree, h.chunk, h.length};
}

Credit credit_of(const Header& h) {
  return {h.tree, h.chunk};
}

Own own_of(const Header& h) {
  return {static_cast<unsigned>(h.type) - kOwnTypes, h.tree, h.chunk, h.length};
}

Failure failure_of(const Header& h) {
  return {code_of(h), (h.flags & kToSender) != 0, h.length};
}

Request request_of(const Header& h) {
  return {h.tree};
}

GroupFailure group_failure_of(const Header& h) {
  return {h.group, code_of(h), h.length};
}

Leave leave_of(const Header& h) {
  return {h.group};
}

PlanPart plan_part_of(const Header& h) {
  return {h.group, (h.flags & kLastPart) != 0, h.length};
}

Lost lost_of(const Header& h) {
  return {h.group, h.tree, h.sequence, code_of(h), h.length};
}

Past past_of(const Header& h) {
  return {h.group, h.sequence};
}

Turn turn_of(const Header& h) {
  return {h.sequence};
}

Taken taken_of(const Header& h) {
  return {h.sequence};
}

Ping ping_of(const Header& h) {
  return {h.count};
}

Pong pong_of(const Header& h) {
  return {h.count, static_cast<std::int64_t>(h.layout)};
}

}  // namespace talweg::wire
