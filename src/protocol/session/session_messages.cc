// Point-to-point messages: announced by a request, answered by a clear, then a forest of one edge.
#include "protocol/session/session.h"
#include "protocol/session/session_run.h"

namespace talweg::protocol {

std::uint64_t Session::send(const Message& message) {
  const std::uint64_t id = kMessageBit | next_message_++;
  Run& run = add(id);
  run.kind = Run::Kind::send;
  run.op = {};
  run.op.signature = message.signature;
  run.op.operands = {message.send, nullptr, message.signature.type, nullptr, 0};
  run.op.deadline_ns = message.deadline_ns;
  run.op.priority = message.priority;
  run.op.user = message.user;
  run.peer = message.peer;
  run.number = id;
  run.tag = message.tag;
  if (broken_) {
    finish(id, {false, broken_->code, context(run) + ": " + broken_->text, -1});
    return id;
  }
  if (gone_[static_cast<std::size_t>(message.peer)]) {
    fail(run, ErrorCode::peer_failed, who(message.peer) + " has left the group");
    return id;
  }
  post(message.peer, encode(call(run, message.peer), wire::Request{message.tag}), kUrgent);
  return id;
}

std::uint64_t Session::receive(const Message& message) {
  const std::uint64_t id = kMessageBit | next_message_++;
  Run& run = add(id);
  run.kind = Run::Kind::receive;
  run.op = {};
  run.op.signature = message.signature;
  run.op.operands = {nullptr, message.receive, message.signature.type, nullptr, 0};
  run.op.deadline_ns = message.deadline_ns;
  run.op.priority = message.priority;
  run.op.user = message.user;
  run.number = id;
  run.source = message.peer;
  run.tag = message.tag;
  if (broken_) {
    finish(id, {false, broken_->code, context(run) + ": " + broken_->text, -1});
    return id;
  }
  if (const auto envelope = mailbox_.post(id, message.peer, message.tag)) {
    accept(run, *envelope);
  } else if (message.peer != kAnySource && gone_[static_cast<std::size_t>(message.peer)]) {
    mailbox_.withdraw(id);
    fail(run, ErrorCode::peer_failed, who(message.peer) + " has left the group");
  }
  return id;
}

// A receive and a message have found each other.
void Session::accept(Run& run, const Envelope& envelope) {
  run.peer = envelope.source;
  run.number = envelope.number;
  if (envelope.signature != run.op.signature) {
    mismatch(run, envelope.source, envelope.signature);
    return;
  }
  incoming_[{envelope.source, envelope.number}] = run.id;
  run.op.plan = plan_message_(envelope.source, self_, run.op.signature.count, run.op.signature.type);
  prepare(run);
  post(envelope.source, encode(call(run, envelope.source), wire::Clear{}), kUrgent);
  begin_if_agreed(run);
}

void Session::on_message_frame(int from, const wire::Header& h, const std::byte* payload) {
  if (h.type == wire::FrameType::request) {
    bool full = false;
    const Envelope envelope{from, wire::request_of(h).tag, h.sequence, wire::signature_of(h)};
    const auto id = mailbox_.announce(envelope, full);
    if (full) on_damaged(from, ErrorCode::corrupted, "too many messages are waiting to be received here");
    if (id) accept(*find(*id), envelope);
    return;
  }
  if (h.type == wire::FrameType::clear) {
    Run* run = find(h.sequence);
    if (run == nullptr) {  // given up here after it was announced: the receiver must not wait for it
      const std::string text = who(self_) + " has given up sending this message";
      const auto bytes = static_cast<std::uint32_t>(text.size());
      outbox_.send_text(from, encode(wire::call_of(h), wire::Failure{ErrorCode::aborted, false, bytes}),
                        text);
      return;
    }
    if (run->kind != Run::Kind::send || run->peer != from || run->begun) return;
    run->op.plan = plan_message_(self_, from, run->op.signature.count, run->op.signature.type);
    prepare(*run);
    begin_if_agreed(*run);
    return;
  }
  const auto it = incoming_.find({from, h.sequence});
  if (it == incoming_.end()) return;
  if (Run* run = find(it->second); run != nullptr) deliver(*run, from, h, payload);
}

}  // namespace talweg::protocol
