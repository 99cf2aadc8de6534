#include "protocol/bounded/receiver.h"

#include <algorithm>

#include "base/fail.h"

namespace talweg::protocol {

namespace {

std::uint64_t stream_key(std::uint16_t sender, std::uint32_t tensor) {
  return std::uint64_t{sender} << 32 | tensor;
}

}  // namespace

std::size_t BoundedReceiver::add(std::uint16_t sender, const BoundedShape& shape) {
  require_possible(shape);
  if (begun_) refuse("tensor {} of node {} comes after the first iteration", shape.tensor, sender);
  const std::pair entry{stream_key(sender, shape.tensor), streams_.size()};
  const auto at = std::ranges::lower_bound(by_key_, entry.first, {}, &decltype(entry)::first);
  if (at != by_key_.end() && at->first == entry.first)
    refuse("tensor {} of node {} is there already", shape.tensor, sender);
  budget_.add(sender, shape.bytes);
  by_key_.insert(at, entry);
  streams_.emplace_back(shape, sender, times_, fill_);
  queued_.emplace_back();
  return streams_.size() - 1;
}

void BoundedReceiver::begin(std::uint32_t iteration, bool exact) {
  for (const BoundedInflow& s : streams_)
    if (s.open())
      refuse("iteration {}: tensor {} of node {} has not ended iteration {}", iteration, s.shape().tensor,
             s.sender(), s.iteration());
  if (begun_ && static_cast<std::int32_t>(iteration - iteration_) <= 0)
    refuse("iteration {} comes after iteration {}", iteration, iteration_);
  begun_ = true;
  iteration_ = iteration;
  budget_.begin(exact);
}

void BoundedReceiver::expect(std::size_t i, std::byte* out, std::int64_t deadline_ns, std::int64_t now_ns) {
  BoundedInflow& s = streams_[i];
  if (!begun_ || s.open() || s.began(iteration_))
    refuse("tensor {} of node {} is expected in iteration {}, which {}", s.shape().tensor, s.sender(),
           iteration_, begun_ ? "it has begun before" : "has not begun");
  s.expect(iteration_, out, deadline_ns, now_ns);
  queued_[i].running = true;
  look(i, now_ns);
}

// After anything has happened to a stream.
void BoundedReceiver::look(std::size_t i, std::int64_t now_ns) {
  BoundedInflow& s = streams_[i];
  s.settle(budget_, now_ns);
  Queued& q = queued_[i];
  if (s.report_due() && !q.report) {
    q.report = true;
    reports_.push(i);
  }
  if (q.running && !s.open()) {
    q.running = false;
    ended_.push(i);
  }
}

bool BoundedReceiver::on(const wire::DatagramHeader& header, std::span<const std::byte> payload,
                         std::int64_t now_ns) {
  wire::BoundedData data;
  wire::BoundedProbe probe;
  const bool is_data = decode(header, payload, data) == nullptr;
  const bool is_probe = !is_data && decode(header, payload, probe) == nullptr;
  if (is_data || is_probe) {
    const std::uint64_t key = stream_key(header.sender, is_data ? data.tensor : probe.tensor);
    const auto at = std::ranges::lower_bound(by_key_, key, {}, &decltype(by_key_)::value_type::first);
    if (at != by_key_.end() && at->first == key) {
      BoundedInflow& s = streams_[at->second];
      if (is_data)
        s.on_data(header.own32, data, payload.subspan(wire::kBoundedHeadBytes), now_ns);
      else
        s.on_probe(header.own32, probe, now_ns);
      look(at->second, now_ns);
      return true;
    }
  }
  ++refused_;
  return false;
}

void BoundedReceiver::on_time(std::int64_t now_ns) {
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (streams_[i].next_time_ns() <= now_ns) look(i, now_ns);
}

std::int64_t BoundedReceiver::next_time_ns() const {
  std::int64_t at = kNeverNs;
  for (const BoundedInflow& s : streams_) at = std::min(at, s.report_due() ? 0 : s.next_time_ns());
  return at;
}

bool BoundedReceiver::next(std::int64_t now_ns, std::uint16_t& to, wire::DatagramHeader& header,
                           std::byte* payload) {
  header = {};
  while (!reports_.empty()) {
    const std::size_t i = reports_.pop();
    BoundedInflow& s = streams_[i];
    queued_[i].report = false;
    std::uint32_t iteration = 0;
    wire::BoundedReport report;
    if (!s.next_report(now_ns, iteration, report)) continue;
    to = s.sender();
    encode(report, iteration, header, payload);
    if (s.report_due()) {
      queued_[i].report = true;
      reports_.push(i);
    }
    return true;
  }
  return false;
}

std::optional<std::size_t> BoundedReceiver::take_ended() {
  if (ended_.empty()) return std::nullopt;
  return ended_.pop();
}

}  // namespace talweg::protocol
