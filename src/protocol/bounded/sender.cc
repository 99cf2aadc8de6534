#include "protocol/bounded/sender.h"

#include <algorithm>

#include "base/fail.h"

namespace talweg::protocol {

std::size_t BoundedSender::add(const BoundedShape& shape) {
  require_possible(shape);
  for (const BoundedOutflow& s : streams_)
    if (s.shape().tensor == shape.tensor) refuse("tensor {} to node {} is there already", shape.tensor, to_);
  streams_.emplace_back(shape, self_, to_, times_);
  queued_.emplace_back();
  return streams_.size() - 1;
}

void BoundedSender::begin(std::size_t i, std::uint32_t iteration, const std::byte* data,
                          const TransferClasses& classes, std::int64_t deadline_ns, std::int64_t now_ns) {
  BoundedOutflow& s = streams_[i];
  if (s.open())
    refuse("tensor {} of iteration {} to node {}: iteration {} has not ended", s.shape().tensor, iteration,
           to_, s.iteration());
  if (queued_[i].begun && static_cast<std::int32_t>(iteration - s.iteration()) <= 0)
    refuse("tensor {} of iteration {} to node {} comes after iteration {}", s.shape().tensor, iteration, to_,
           s.iteration());
  if (classes.priority == wire::kControlClass || classes.priority > wire::kPriorityMask)
    refuse("tensor {} with priority {}: expected 1 to {}", s.shape().tensor, classes.priority,
           wire::kPriorityMask);
  if (classes.important != nullptr && classes.important->size() != s.shape().packets())
    refuse("tensor {} has {} packets, and classes for {}", s.shape().tensor, s.shape().packets(),
           classes.important->size());
  queued_[i].begun = queued_[i].running = true;
  s.begin(iteration, data, classes, deadline_ns, now_ns);
  look(i);
}

// Puts a stream where it belongs after anything has happened to it.
void BoundedSender::look(std::size_t i) {
  const BoundedOutflow& s = streams_[i];
  Queued& q = queued_[i];
  if (s.has_data() != q.counted) {
    q.counted = s.has_data();
    with_data_ = q.counted ? with_data_ + 1 : with_data_ - 1;
  }
  if (s.has_data() && !q.data) {
    q.data = true;
    data_[s.priority()].push(i);
  }
  if (s.probe_due() && !q.probe) {
    q.probe = true;
    probes_.push(i);
  }
  if (q.running && !s.open()) {
    q.running = false;
    ended_.push(i);
  }
}

bool BoundedSender::next(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload, What what) {
  header = {};
  while (!probes_.empty()) {
    const std::size_t i = probes_.pop();
    queued_[i].probe = false;
    if (!streams_[i].probe_due()) continue;  // it has been answered meanwhile
    streams_[i].next_probe(now_ns, header, payload);
    return true;
  }
  if (what == What::control) return false;
  for (RingQueue<std::size_t>& queue : data_) {
    while (!queue.empty()) {
      const std::size_t i = queue.pop();
      queued_[i].data = false;
      if (!streams_[i].has_data()) continue;  // it was stopped
      streams_[i].next_data(now_ns, header, payload);
      look(i);
      return true;
    }
  }
  return false;
}

bool BoundedSender::on(const wire::DatagramHeader& header, std::span<const std::byte> payload,
                       std::int64_t now_ns) {
  wire::BoundedReport report;
  if (header.sender != to_ || decode(header, payload, report) != nullptr) {
    ++refused_;
    return false;
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].shape().tensor != report.tensor) continue;
    streams_[i].on_report(header.own32, report, now_ns);
    look(i);
    return true;
  }
  ++refused_;
  return false;
}

void BoundedSender::on_time(std::int64_t now_ns) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].next_time_ns() > now_ns) continue;
    streams_[i].on_time(now_ns);
    look(i);
  }
}

std::int64_t BoundedSender::next_time_ns() const {
  std::int64_t at = kNeverNs;
  for (const BoundedOutflow& s : streams_) at = std::min(at, s.probe_due() ? 0 : s.next_time_ns());
  return at;
}

std::optional<std::size_t> BoundedSender::take_ended() {
  if (ended_.empty()) return std::nullopt;
  return ended_.pop();
}

}  // namespace talweg::protocol
