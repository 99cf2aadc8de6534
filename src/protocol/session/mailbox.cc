#include "protocol/session/mailbox.h"

#include <algorithm>

namespace talweg::protocol {

std::optional<Envelope> Mailbox::post(std::uint64_t run, int source, std::uint32_t tag) {
  const auto it = std::find_if(waiting_.begin(), waiting_.end(), [&](const Envelope& e) {
    return e.tag == tag && (source == kAnySource || source == e.source);
  });
  if (it == waiting_.end()) {
    posted_.push_back({run, source, tag});
    return std::nullopt;
  }
  Envelope envelope = *it;
  waiting_.erase(it);
  return envelope;
}

std::optional<std::uint64_t> Mailbox::announce(const Envelope& envelope, bool& full) {
  full = false;
  const auto it = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& p) {
    return p.tag == envelope.tag && (p.source == kAnySource || p.source == envelope.source);
  });
  if (it == posted_.end()) {
    full = waiting_.size() >= kMaxWaiting;
    if (!full) waiting_.push_back(envelope);
    return std::nullopt;
  }
  const std::uint64_t run = it->run;
  posted_.erase(it);
  return run;
}

void Mailbox::retract(int source, std::optional<std::uint64_t> number) {
  std::erase_if(waiting_,
                [&](const Envelope& e) { return e.source == source && (!number || *number == e.number); });
}

void Mailbox::withdraw(std::uint64_t run) {
  std::erase_if(posted_, [&](const Posted& p) { return p.run == run; });
}

}  // namespace talweg::protocol
