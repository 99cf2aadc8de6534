#include "protocol/bounded/outflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace talweg::protocol {

void BoundedOutflow::begin(std::uint32_t iteration, const std::byte* data, const TransferClasses& classes,
                           std::int64_t deadline_ns, std::int64_t now_ns) {
  iteration_ = iteration;
  open_ = true;
  data_ = data;
  classes_ = classes;
  deadline_ns_ = deadline_ns;
  const std::uint32_t packets = shape_.packets();
  first_ = packets > 0 ? first_to_leave(packets, iteration, self_, shape_.tensor) : 0;
  passed_ = 0;
  holes_.reset(packets);
  must_holes_.reset(packets);
  lost_.reset(packets);
  cursor_ = first_;
  rounds_.assign(wire::hole_windows(packets), 0);
  stopped_ = heard_ = probe_due_ = false;
  missing_ = packets;
  probe_ = 0;
  in_vain_ = 0;
  failure_.reset();
  ask_ns_ = kNeverNs;
  next_ns_ = deadline_ns;
  if (packets > 0) return wait(now_ns);
  ++counters_.settled;
  end();
}

std::uint32_t BoundedOutflow::must() const {
  if (!classes_.must) return 0;
  return classes_.important == nullptr ? shape_.packets() : classes_.important->count();
}

bool BoundedOutflow::is_sent(std::uint32_t packet) const {
  const std::uint32_t i = packet >= first_ ? packet - first_ : packet + (shape_.packets() - first_);
  return i < passed_;
}

std::uint32_t BoundedOutflow::take_hole() {
  PacketSet& from = must_holes_.empty() ? holes_ : must_holes_;
  const std::uint32_t packet = from.next_around(cursor_);
  cursor_ = packet + 1;
  if (must_holes_.remove(packet)) ++counters_.must_again;
  holes_.remove(packet);
  ++counters_.again;
  return packet;
}

void BoundedOutflow::next_data(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload) {
  wire::BoundedData data;
  data.again = passed_ == shape_.packets();
  data.packet = data.again ? take_hole() : in_order(passed_++);
  data.tensor = shape_.tensor;
  data.packets = shape_.packets();
  data.must = must();
  data.stride = shape_.stride;
  data.tail = shape_.tail();
  data.is_must = is_must(data.packet);
  const std::uint32_t left = shape_.packets() - passed_ + holes_.count();
  data.last = left < hinting_packets(shape_.packets());
  // What has been asked for is needed.
  const bool droppable = !data.again && !is_important(data.packet);
  header.service = static_cast<std::uint8_t>(classes_.priority | (droppable ? wire::kDroppable : 0));
  encode(data, iteration_, header, payload);
  std::memcpy(payload + wire::kBoundedHeadBytes, data_ + data.offset(), data.length());
  if (!data.again) ++counters_.packets;
  if (droppable) ++counters_.droppable;
  wait(now_ns);
}

void BoundedOutflow::next_probe(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload) {
  probe_due_ = false;
  ++counters_.probes;
  if (in_vain_ > 0)
    ++counters_.in_vain;
  else
    first_probe_ns_ = now_ns;
  if (in_vain_ < 0xff) ++in_vain_;
  encode(wire::BoundedProbe{shape_.tensor, ++probe_, shape_.packets(), must()}, iteration_, header, payload);
  probe_ns_ = now_ns;
  wait(now_ns);
}

// For what the receiver says, from now on, if it is its turn.
void BoundedOutflow::wait(std::int64_t now_ns) {
  ask_ns_ = has_data() ? kNeverNs : now_ns + timer_.wait_ns(in_vain_ > 0 ? in_vain_ - 1U : 0U);
  next_ns_ = std::min(ask_ns_, deadline_ns_);
}

void BoundedOutflow::on_report(std::uint32_t iteration, const wire::BoundedReport& report,
                               std::int64_t now_ns) {
  if (!open_ || iteration != iteration_) {
    ++counters_.old_reports;
    return;
  }
  if (report.packets != shape_.packets() || report.probe > probe_) {
    ++counters_.malformed;
    return;
  }
  heard_ = true;
  // Only a probe that was not repeated says how long the way takes.
  if (report.probe == probe_ && in_vain_ == 1) timer_.measured(now_ns - probe_ns_);
  if (in_vain_ > 1) timer_.measured_at_most(now_ns - first_probe_ns_);
  in_vain_ = 0;
  probe_due_ = false;
  if (report.type == wire::BoundedType::stop)
    on_stop(report);
  else
    on_holes(report);
  if (open_) wait(now_ns);
}

void BoundedOutflow::on_holes(const wire::BoundedReport& report) {
  std::uint32_t& round = rounds_[report.first / wire::kHoleWindow];
  if (stopped_ || report.round <= round) {
    ++counters_.old_reports;
    return;
  }
  round = report.round;
  missing_ = report.missing;
  for (std::uint32_t i = 0; i < report.window(); ++i) {
    const std::uint32_t packet = report.first + i;
    if (!report.is_missing(i)) {
      // It has come since it was named before.
      holes_.remove(packet);
      must_holes_.remove(packet);
    } else if (!is_sent(packet)) {
      ++counters_.early_holes;
    } else {
      holes_.add(packet);
      if (is_must(packet)) must_holes_.add(packet);
    }
  }
}

void BoundedOutflow::on_stop(const wire::BoundedReport& report) {
  if (report.end != wire::BoundedEnd::delivered)
    return fail(ErrorCode::peer_failed, fmt::format("tensor {} of iteration {} {}, rank {}", shape_.tensor,
                                                    iteration_, to_string(report.end), to_));
  if (!stopped_) counters_.spared += shape_.packets() - passed_ + holes_.count();
  stopped_ = true;
  missing_ = report.missing;
  if (!report.bits.empty())
    for (std::uint32_t i = 0; i < report.window(); ++i)
      if (report.is_missing(i)) lost_.add(report.first + i);
  if (lost_.count() < report.missing) {
    ++counters_.parts_of_stops;
    return;
  }
  ++counters_.settled;
  end();
}

void BoundedOutflow::on_time(std::int64_t now_ns) {
  if (!open_ || now_ns < next_ns_) return;
  if (now_ns >= deadline_ns_) return fail(ErrorCode::timeout, what_is_known());
  if (now_ns < ask_ns_) return;
  probe_due_ = true;
  ask_ns_ = kNeverNs;
  next_ns_ = deadline_ns_;
}

void BoundedOutflow::fail(ErrorCode code, std::string text) {
  failure_ = BoundedFailure{code, std::move(text), to_, !heard_};
  ++counters_.failed;
  end();
}

void BoundedOutflow::end() {
  open_ = probe_due_ = false;
  data_ = nullptr;
  ask_ns_ = next_ns_ = kNeverNs;
}

std::string BoundedOutflow::what_is_known() const {
  const std::string what =
      fmt::format("tensor {} of iteration {} to rank {}", shape_.tensor, iteration_, to_);
  if (has_data())
    return fmt::format("{}: {} of {} packets have not left by the deadline, {} more were missing there", what,
                       shape_.packets() - passed_, shape_.packets(), holes_.count());
  if (!heard_)
    return fmt::format("{}: nothing was heard from it by the deadline, after {} packets and {} probes", what,
                       shape_.packets(), probe_);
  return fmt::format(
      "{}: it has not confirmed by the deadline; {} of {} packets were missing when it spoke last", what,
      missing_, shape_.packets());
}

}  // namespace talweg::protocol
