#include "protocol/bounded/inflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace talweg::protocol {

namespace {

// Iterations are numbered around: the nearer side counts.
bool is_before(std::uint32_t iteration, std::uint32_t other) {
  return static_cast<std::int32_t>(iteration - other) < 0;
}

}  // namespace

void BoundedInflow::expect(std::uint32_t iteration, std::byte* out, std::int64_t deadline_ns,
                           std::int64_t now_ns) {
  std::swap(past_, now_);
  now_.exists = true;
  now_.iteration = iteration;
  now_.missing.reset(shape_.packets(), true);
  now_.round = now_.probe = 0;
  now_.end = wire::BoundedEnd::delivered;
  now_.told = kNothing;
  open_ = true;
  out_ = out;
  deadline_ns_ = deadline_ns;
  got_bytes_ = 0;
  must_.reset();
  got_must_ = 0;
  contact_ = hint_ = early_ && early_iteration_ == iteration;
  early_ = early_ && is_before(iteration, early_iteration_);
  asked_ = measuring_ = false;
  in_vain_ = 0;
  last_ns_ = now_ns;
  met_ns_ = kNeverNs;
  next_ns_ = now_ns;
  failure_.reset();
}

// Whether it is about what is open; else it is dealt with here.
bool BoundedInflow::is_of_now(std::uint32_t iteration, bool probe, std::uint32_t number,
                              std::int64_t now_ns) {
  if (!now_.exists || is_before(now_.iteration, iteration)) {
    ++counters_.early;
    early_ = true;
    early_iteration_ = iteration;
    return false;
  }
  if (open_ && iteration == now_.iteration) return true;
  ++counters_.stale;
  // Each probe is answered. Of late data there may be many, and the stop may be on its way.
  if (!probe && now_ns - stop_ns_ < timer_.wait_ns(0)) return false;
  ++counters_.stops_again;
  stop_ns_ = now_ns;
  for (Record* record : {&now_, &past_}) {
    if (!record->exists || record->iteration != iteration) continue;
    record->probe = std::max(record->probe, number);
    record->told = 0;
    return false;
  }
  forgotten_due_ = true;
  forgotten_ = iteration;
  forgotten_probe_ = number;
  return false;
}

bool BoundedInflow::fits(const wire::BoundedData& data) {
  return data.packets == shape_.packets() && data.stride == shape_.stride && data.tail == shape_.tail();
}

bool BoundedInflow::learn_must(std::uint32_t must) {
  if (!must_) must_ = must;
  if (*must_ == must) return true;
  ++counters_.malformed;
  return false;
}

void BoundedInflow::heard(std::int64_t now_ns) {
  contact_ = true;
  in_vain_ = 0;
  last_ns_ = now_ns;
}

void BoundedInflow::on_data(std::uint32_t iteration, const wire::BoundedData& data,
                            std::span<const std::byte> bytes, std::int64_t now_ns) {
  if (!is_of_now(iteration, false, 0, now_ns)) return;
  if (!fits(data))
    return fail(
        ErrorCode::mismatch,
        fmt::format("tensor {} of iteration {}: rank {} sends {} packets of {} bytes, the last of {}; "
                    "expected {} of {}, the last of {}",
                    shape_.tensor, iteration, sender_, data.packets, data.stride, data.tail, shape_.packets(),
                    shape_.stride, shape_.tail()),
        now_ns);
  if (!learn_must(data.must)) return;
  hint_ = hint_ || data.last;
  if (!now_.missing.remove(data.packet)) {
    ++counters_.repeated;
    return;
  }
  // Karn: of holes that were named twice it is not known which of the two was heard.
  if (measuring_ && data.again && in_vain_ == 1) timer_.measured(now_ns - round_ns_);
  if (measuring_ && data.again && in_vain_ > 1) timer_.measured_at_most(now_ns - first_round_ns_);
  measuring_ = measuring_ && !data.again;
  std::memcpy(out_ + data.offset(), bytes.data(), bytes.size());
  got_bytes_ += bytes.size();
  if (data.is_must) ++got_must_;
  ++counters_.packets;
  heard(now_ns);
  next_ns_ = now_ns;
}

void BoundedInflow::on_probe(std::uint32_t iteration, const wire::BoundedProbe& probe, std::int64_t now_ns) {
  if (!is_of_now(iteration, true, probe.probe, now_ns)) return;
  if (probe.packets != shape_.packets()) {
    ++counters_.malformed;
    return;
  }
  if (!learn_must(probe.must)) return;
  if (probe.probe <= now_.probe) return;  // it has come before, and been answered
  now_.probe = probe.probe;
  ++counters_.probes;
  contact_ = hint_ = asked_ = true;
  next_ns_ = now_ns;
}

// When what has come is all that will, until somebody asks for more.
std::int64_t BoundedInflow::quiet_at() const {
  return last_ns_ + lateness_ns_ +
         (hint_ ? times_.gap_ns : timer_.wait_ns(in_vain_ > 0 ? in_vain_ - 1U : 0U));
}

void BoundedInflow::settle(LossBudget& budget, std::int64_t now_ns) {
  if (now_ns < next_ns_) return;
  if (!open_) {
    next_ns_ = kNeverNs;
    ++counters_.stops_unasked;
    now_.told = 0;
    return;
  }
  if (now_.missing.empty()) {
    ++counters_.complete;
    return deliver(budget, now_ns);
  }
  const bool all_that_must = must_.has_value() && got_must_ >= *must_;
  const std::uint64_t allowance = budget.allowance(sender_, shape_.bytes);
  const bool met = all_that_must && missing_bytes() <= allowance;
  const bool asked = std::exchange(asked_, false);
  if (now_ns >= deadline_ns_ && !met) return fail(ErrorCode::timeout, what_is_missing(allowance), now_ns);
  const bool quiet = contact_ && now_ns >= quiet_at();
  if (met) {
    met_ns_ = std::min(met_ns_, now_ns);
    const bool lingered = now_ns - met_ns_ >= times_.linger_ns || now_ns >= deadline_ns_;
    if (asked || quiet || lingered) {
      ++(asked ? counters_.at_probe : quiet ? counters_.at_gap : counters_.at_linger);
      return deliver(budget, now_ns);
    }
    next_ns_ = std::min({quiet_at(), met_ns_ + times_.linger_ns, deadline_ns_});
    return;
  }
  met_ns_ = kNeverNs;  // another transfer may have spent what was left
  if (all_that_must && missing_bytes() <= budget.of_tensor(shape_.bytes))
    ++(missing_bytes() > budget.of_sender(sender_) ? counters_.held_by_sender : counters_.held_by_iteration);
  if (asked || quiet) name_holes(now_ns);
  next_ns_ = contact_ ? std::min(quiet_at(), deadline_ns_) : deadline_ns_;
}

void BoundedInflow::name_holes(std::int64_t now_ns) {
  ++now_.round;
  ++counters_.rounds;
  if (in_vain_ > 0)
    ++counters_.in_vain;
  else
    first_round_ns_ = now_ns;
  if (in_vain_ < 0xff) ++in_vain_;
  now_.told = 0;
  hint_ = false;
  last_ns_ = round_ns_ = now_ns;
  measuring_ = true;
}

void BoundedInflow::deliver(LossBudget& budget, std::int64_t now_ns) {
  budget.spend(sender_, missing_bytes());
  counters_.lost_bytes += missing_bytes();
  if (fill_ == LossFill::zero)
    for (std::uint32_t i = now_.missing.next(0); i < now_.missing.size(); i = now_.missing.next(i + 1))
      std::memset(out_ + std::uint64_t{i} * shape_.stride, 0, shape_.length(i));
  end(wire::BoundedEnd::delivered, now_ns);
}

void BoundedInflow::fail(ErrorCode code, std::string text, std::int64_t now_ns) {
  failure_ = BoundedFailure{code, std::move(text), sender_, !contact_};
  ++counters_.failed;
  end(wire::BoundedEnd::given_up, now_ns);
}

void BoundedInflow::end(wire::BoundedEnd how, std::int64_t now_ns) {
  now_.end = how;
  now_.told = shape_.packets() > 0 ? 0 : kNothing;
  open_ = false;
  out_ = nullptr;
  next_ns_ = shape_.packets() > 0 ? now_ns + times_.stop_again_ns : kNeverNs;
  stop_ns_ = now_ns;
}

std::string BoundedInflow::what_is_missing(std::uint64_t allowance) const {
  const std::string what =
      fmt::format("tensor {} of iteration {} from rank {}", shape_.tensor, now_.iteration, sender_);
  if (!contact_) return fmt::format("{}: nothing has come by the deadline", what);
  const std::uint32_t missing = now_.missing.count();
  if (missing == shape_.packets() && now_.probe > 0)
    return fmt::format(
        "{}: none of {} packets has come by the deadline, though probes have: does the path take "
        "datagrams that carry {} bytes?",
        what, missing, wire::kBoundedHeadBytes + shape_.length(0));
  std::string text =
      fmt::format("{}: {} of {} packets are missing at the deadline, {} bytes where at most {} may be", what,
                  missing, shape_.packets(), missing_bytes(), allowance);
  if (must_ && got_must_ < *must_)
    text += fmt::format(", and {} of {} packets that must arrive", *must_ - got_must_, *must_);
  return fmt::format("{}; the first is packet {}; {} rounds of asking", text, now_.missing.next(0),
                     now_.round);
}

// The next window with a hole in it; a stop has at least one datagram.
bool BoundedInflow::tell(Record& record, std::uint32_t& iteration, wire::BoundedReport& report) const {
  if (record.told == kNothing) return false;
  const bool holes = &record == &now_ && open_;
  const std::uint32_t packets = record.missing.size();
  const bool with_bits = record.end == wire::BoundedEnd::delivered && !record.missing.empty();
  std::uint32_t first = 0;
  if (with_bits) {
    const std::uint32_t next = record.missing.next(record.told);
    if (next == packets) {
      record.told = kNothing;
      return false;
    }
    first = next / wire::kHoleWindow * wire::kHoleWindow;
  } else if (holes) {
    record.told = kNothing;
    return false;
  }
  iteration = record.iteration;
  report = {holes ? wire::BoundedType::holes : wire::BoundedType::stop,
            shape_.tensor,
            record.round,
            record.probe,
            packets,
            first,
            record.missing.count(),
            record.end,
            with_bits ? record.missing.bits(first) : std::span<const std::byte>{}};
  const std::uint32_t after = packets - first > wire::kHoleWindow ? first + wire::kHoleWindow : packets;
  record.told = with_bits && record.missing.next(after) < packets ? after : kNothing;
  return true;
}

bool BoundedInflow::next_report(std::int64_t now_ns, std::uint32_t& iteration, wire::BoundedReport& report) {
  if (tell(now_, iteration, report) || tell(past_, iteration, report)) {
    if (report.type == wire::BoundedType::stop) stop_ns_ = now_ns;
    return true;
  }
  if (!forgotten_due_) return false;
  forgotten_due_ = false;
  iteration = forgotten_;
  report = {wire::BoundedType::stop,
            shape_.tensor,
            0,
            forgotten_probe_,
            shape_.packets(),
            0,
            0,
            wire::BoundedEnd::forgotten,
            {}};
  return true;
}

}  // namespace talweg::protocol
