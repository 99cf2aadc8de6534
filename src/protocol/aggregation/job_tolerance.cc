// A job's rounds that end without some of its workers: tolerance.h says when.
#include "protocol/aggregation/job_replies.h"

namespace talweg::protocol {

// A worker speaks of an operation. Copies of what it has said of earlier ones may still come.
void AggregationJob::attend(const wire::DatagramHeader& header) {
  linger_time_.begins(header.own32);
  Attendance& its = slots_.attendance()[header.sender];
  if (static_cast<std::int32_t>(header.own32 - its.operation) > 0) its = {header.own32, 0, 0};
  if (header.own32 == its.operation) its.slot = std::max(its.slot, header.own16);
}

void AggregationJob::linger(JobSlots::Cell& cell, std::size_t slot, const wire::AggregationEntry& entry,
                            Replies& replies) {
  Round& round = cell.round;
  const std::uint32_t column = column_of(slot, entry.column);
  const unsigned heard = terms_.workers - round.remaining;
  if (heard * 2 < terms_.workers) return;
  if (round.passed_ns == 0) {
    round.passed_ns = std::max<std::int64_t>(1, replies.now_ns);
    if (round.allowance > 0 && round.remaining > 0) lingering_.add(column, round.passed_ns);
  }
  if (round.remaining == 0) {
    measure_linger(cell, slot, entry.column, replies.now_ns);
    lingering_.remove(column);
    return;
  }
  // Its time was up before, when others were missing.
  if (lingering_.has(column) || round.allowance == 0 || !linger_time_.is_known() ||
      replies.now_ns - round.passed_ns < linger_time_.ns() || !may_end(cell, slot, entry.column))
    return;
  end_without(cell);
}

// Workers begin an operation when they like: how long its first rounds take says nothing.
void AggregationJob::measure_linger(const JobSlots::Cell& cell, std::size_t slot, std::size_t column,
                                    std::int64_t now_ns) {
  const std::optional<JobSlots::Cell> before = slots_.before(cell, slot, column);
  if (before && before->round.operation == cell.round.operation)
    linger_time_.measured(now_ns - cell.round.passed_ns);
}

// It changes nothing any more, but says that the worker has all results before this one.
void AggregationJob::late(JobSlots::Cell& cell, const wire::DatagramHeader& header,
                          const wire::AggregationEntry& entry, Replies& replies) {
  ++counters_.late;
  cell.heard.add(header.sender);
  measure_linger(cell, header.own16, entry.column, replies.now_ns);
  again(cell, entry, replies);
}

bool AggregationJob::may_end(const JobSlots::Cell& cell, std::size_t slot, std::size_t column) {
  const Round& round = cell.round;
  if (round.remaining > wire::kMaxAbsent) return false;
  const std::optional<JobSlots::Cell> before = slots_.before(cell, slot, column);
  const bool first = !before || before->round.operation != round.operation;
  for (std::size_t worker = 0; worker < terms_.workers; ++worker) {
    if (cell.heard.has(worker)) continue;
    const Attendance& its = slots_.attendance()[worker];
    if (before && !before->heard.has(worker)) return false;
    if (its.operation != round.operation || its.absences >= round.allowance) return false;
    if (first && its.slot <= slot) return false;
  }
  return true;
}

void AggregationJob::end_without(JobSlots::Cell& cell) {
  Round& round = cell.round;
  for (std::size_t worker = 0; worker < terms_.workers; ++worker) {
    if (cell.heard.has(worker)) continue;
    cell.absent.add(worker);
    ++slots_.attendance()[worker].absences;
    ++round.absent;
    ++counters_.absences;
  }
  round.remaining = 0;
}

std::int64_t AggregationJob::lingers_until_ns() const {
  if (lingering_.empty() || !linger_time_.is_known()) return kNeverTime;
  return lingering_.since_ns(lingering_.first()) + linger_time_.ns();
}

// All of a slot's rounds whose time is up, in one datagram.
void AggregationJob::end_lingering(std::int64_t now_ns, std::vector<SwitchAction>& actions) {
  wire::DatagramHeader header;
  header.own16 = static_cast<std::uint16_t>(lingering_.first() / terms_.columns);
  std::optional<Replies> replies;
  for (std::uint8_t c = 0; c < terms_.columns; ++c) {
    const std::uint32_t column = column_of(header.own16, c);
    if (!lingering_.has(column) || now_ns - lingering_.since_ns(column) < linger_time_.ns()) continue;
    for (std::size_t version = 0; version < versions(terms_); ++version) {
      JobSlots::Cell cell = slots_.cell(header.own16, c, version);
      const Round& round = cell.round;
      if (round.state != Round::State::filling) continue;
      if (!replies) {
        header.own32 = round.operation;
        replies.emplace(slots_, round.format, results_ + 1, now_ns);
        replies->waiting.emplace(cell);  // whose format and operation the datagram has
      }
      const Round& same = replies->waiting->round;
      if (round.operation != same.operation || round.format != same.format) break;
      lingering_.remove(column);
      if (!may_end(cell, header.own16, c)) break;
      end_without(cell);
      wire::AggregationEntry entry;
      entry.column = c;
      complete(cell, entry, *replies);
      break;
    }
  }
  if (replies) collect(*replies, header, nullptr, actions);
}

}  // namespace talweg::protocol
