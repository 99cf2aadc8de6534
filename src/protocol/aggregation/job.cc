#include "protocol/aggregation/job.h"

#include <algorithm>

#include "protocol/aggregation/job_replies.h"

namespace talweg::protocol {

using wire::AggregationEntry;
using wire::AggregationMessage;
using wire::AggregationReason;
using wire::AggregationType;

AggregationJob::AggregationJob(const JobTerms& terms, std::pmr::memory_resource& memory)
    : terms_(terms),
      slots_(terms, memory),
      bucket_(terms.bytes_per_second, terms.burst_bytes),
      results_bucket_(1, 1),
      repeats_bucket_(1, 1),
      lingering_(slots_.lingering()),
      linger_time_(terms.linger_ns) {
  pace_results(terms.result_bytes_per_second);
}

bool AggregationJob::in_range(std::uint16_t slot, const AggregationMessage& message) const {
  if (slot >= terms_.slots) return false;
  bool fits = true;
  const std::size_t most = wire::most_elements(message.format, terms_.block);
  wire::for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte>) {
    fits = fits && entry.column < terms_.columns && entry.count <= most;
  });
  return fits;
}

void AggregationJob::on(const wire::DatagramHeader& header, std::span<const std::byte> payload, Peer from,
                        std::int64_t now_ns, std::vector<SwitchAction>& actions) {
  asker_ = from;
  if (header.epoch != terms_.epoch) {
    ++counters_.other_epoch;
    return refuse(header, {AggregationReason::old_epoch, 0}, from, actions);
  }
  if (header.sender >= terms_.workers) {
    ++counters_.strangers;
    return refuse(header, {AggregationReason::stranger, 0}, from, actions);
  }
  const auto bytes = static_cast<double>(wire::kDatagramHeaderBytes + payload.size());
  if (const std::int64_t wait_ns = bucket_.take(bytes, now_ns); wait_ns > 0) {
    ++counters_.busy;
    return refuse(header, busy_for(wait_ns), from, actions);
  }
  AggregationMessage message;
  if (wire::decode(header, payload, message) != nullptr ||
      (message.type != AggregationType::contribution && message.type != AggregationType::query &&
       message.type != AggregationType::gap) ||
      (message.type == AggregationType::gap && wire::names_in(message) != 1)) {
    ++counters_.malformed;
    return;
  }
  if (!in_range(header.own16, message)) {
    ++counters_.out_of_range;
    return;
  }
  slots_.peers()[header.sender] = from;
  if (message.type == AggregationType::gap) return repeat(wire::name_at(message, 0), from, now_ns, actions);
  Replies replies(slots_, message.format, terms_.above ? 0 : results_ + 1, now_ns);
  if (message.type == AggregationType::contribution)
    slots_.gaps()[header.sender].came(message.number, [&](std::uint16_t lost) {
      ++counters_.gaps;
      replies.gap.add_name(lost);
    });
  wire::for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte> data) {
    if (message.type == AggregationType::query)
      query(header, message, entry, replies);
    else
      contribute(header, message, entry, data, replies);
  });
  collect(replies, header, &from, actions);
}

void AggregationJob::contribute(const wire::DatagramHeader& header, const AggregationMessage& message,
                                const AggregationEntry& entry, std::span<const std::byte> data,
                                Replies& replies) {
  if (entry.absent > 0 && (!terms_.tolerant || message.format == wire::AggregationFormat::pairs))
    return disagree(replies);
  JobSlots::Cell cell = slots_.cell_of(header.own16, entry, header.own32);
  switch (slots_.turn(header.own16, entry, header.own32)) {
    case JobSlots::Turn::late:
      ++counters_.late;
      return;
    case JobSlots::Turn::early:
      ++counters_.early;
      return;
    case JobSlots::Turn::begins:
      slots_.begin(cell, header.own32, entry, message.format);
      break;
    case JobSlots::Turn::current:
      break;
  }
  Round& round = cell.round;
  if (round.format != message.format || round.count_differs(entry) || round.allowance != entry.absent)
    return disagree(replies);
  if (terms_.tolerant) attend(header);
  if (cell.heard.has(header.sender)) return again(cell, entry, replies);
  if (round.state == Round::State::done) return late(cell, header, entry, replies);
  ++(entry.data ? counters_.contributions : counters_.adverts);
  slots_.add(cell, header.sender, entry, data);
  if (terms_.tolerant) linger(cell, header.own16, entry, replies);
  if (round.remaining == 0) complete(cell, entry, replies);
}

void AggregationJob::disagree(Replies& replies) {
  ++counters_.disagreements;
  replies.refusal = AggregationReason::disagreement;
}

void AggregationJob::complete(JobSlots::Cell& cell, const AggregationEntry& entry, Replies& replies) {
  slots_.finish(cell);
  cell.round.state = terms_.above ? Round::State::above : Round::State::done;
  if (terms_.above) cell.round.passed_ns = replies.now_ns;
  replies.to_above = terms_.above.has_value();
  ++(terms_.above ? counters_.passed_up : counters_.rounds);
  if (!terms_.above) cell.round.number = results_ + 1;
  slots_.write(cell, entry.column, replies.on);
}

// A worker names a result that has not come to it.
void AggregationJob::repeat(std::uint16_t result, const Peer& from, std::int64_t now_ns,
                            std::vector<SwitchAction>& actions) {
  // The last one of this number: an idle column may still have one that was sent 65536 results ago.
  const std::uint64_t number = sent_ - static_cast<std::uint16_t>(sent_ - result);
  wire::DatagramHeader header;
  header.type = static_cast<std::uint8_t>(AggregationType::gap);
  header.epoch = terms_.epoch;
  std::optional<Replies> replies = result_of(number, false, now_ns, header);
  if (replies) collect(*replies, header, &from, actions);
}

std::optional<AggregationJob::Replies> AggregationJob::result_of(std::uint64_t number, bool to_all,
                                                                 std::int64_t now_ns,
                                                                 wire::DatagramHeader& header) {
  header.own16 = slots_.slot_of_result(static_cast<std::uint16_t>(number));
  std::optional<Replies> replies;
  for (std::uint8_t column = 0; column < terms_.columns; ++column)
    for (std::size_t version = 0; version < versions(terms_); ++version) {
      JobSlots::Cell cell = slots_.cell(header.own16, column, version);
      const Round& round = cell.round;
      if (round.state != Round::State::done || round.number != number) continue;
      if (!replies) {
        header.own32 = round.operation;
        replies.emplace(slots_, round.format, to_all ? number : 0, now_ns);
        if (!to_all) replies->one.begin(round.format, static_cast<std::uint16_t>(number));
      }
      if (!to_all) ++counters_.repeated;
      slots_.write(cell, column, to_all ? replies->on : replies->one);
    }
  return replies;
}

// A worker that has been heard speaks again, or asks: it does not know how the round has ended.
void AggregationJob::again(JobSlots::Cell& cell, const AggregationEntry& entry, Replies& replies) {
  Round& round = cell.round;
  if (round.state == Round::State::done && waits(round)) {
    ++counters_.duplicates;
    replies.waits = true;
  } else if (round.state == Round::State::done) {
    ++counters_.repeated;
    if (replies.one.empty()) replies.one.begin(round.format, static_cast<std::uint16_t>(round.number));
    slots_.write(cell, entry.column, replies.one);
  } else if (round.state == Round::State::filling) {
    ++counters_.duplicates;
  } else if (refused_above_) {
    replies.refusal = refused_above_->reason;
  } else if (replies.now_ns - round.passed_ns >= terms_.above->resend_ns) {
    pass_again(cell, entry.column, replies);
  }
}

void AggregationJob::query(const wire::DatagramHeader& header, const AggregationMessage& message,
                           const AggregationEntry& asked, Replies& replies) {
  ++counters_.queries;
  JobSlots::Cell cell = slots_.cell_of(header.own16, asked, header.own32);
  const JobSlots::Turn turn = slots_.turn(header.own16, asked, header.own32);
  if (turn == JobSlots::Turn::late || turn == JobSlots::Turn::early) {
    ++(turn == JobSlots::Turn::late ? counters_.late : counters_.early);
    return;
  }
  const bool begun = turn == JobSlots::Turn::current;
  if (begun && cell.round.format != message.format) return disagree(replies);
  if (begun && cell.round.state == Round::State::done) return again(cell, asked, replies);
  AggregationEntry entry{asked.block, wire::kNeverNext, wire::kZeroExponent, 0, asked.column, asked.version};
  entry.yours = !begun || !cell.heard.has(header.sender);
  entry.above = begun && cell.round.state == Round::State::above;
  if (entry.yours) ++counters_.missed;
  replies.missing.add(entry);
  if (entry.above) return again(cell, asked, replies);
  if (replies.waiting) return;
  replies.waiting.emplace(cell);
  replies.waiting_begun = begun;
}

void AggregationJob::name_missing(Replies& replies) const {
  std::size_t named = 0;
  for (std::uint16_t worker = 0; worker < terms_.workers && named < wire::kMaxNames; ++worker) {
    if (replies.waiting_begun && replies.waiting->heard.has(worker)) continue;
    replies.missing.add_name(worker);
    ++named;
  }
}

void AggregationJob::refuse(const wire::DatagramHeader& header, wire::AggregationRefusal refusal,
                            const Peer& to, std::vector<SwitchAction>& actions) {
  asker_ = to;
  if (header.type >= wire::kAggregationTypes && header.type < wire::kAggregationTypeEnd)
    refusal.of = static_cast<AggregationType>(header.type);
  encode(refusal, refusal_);
  actions.push_back(answer(SwitchAction::To::one, AggregationType::refusal, header, refusal_));
  // Who has gone on to another epoch since must not take it for its own.
  actions.back().header.epoch = header.epoch;
}

void AggregationJob::collect(Replies& replies, const wire::DatagramHeader& header, const Peer* from,
                             std::vector<SwitchAction>& actions) {
  using To = SwitchAction::To;
  if (!replies.on.empty() && replies.to_above)
    actions.push_back(answer(To::above, AggregationType::contribution, header, replies.on.payload()));
  else if (!replies.on.empty())
    end_with_result(replies, header, actions);
  if (from == nullptr) return;
  std::int64_t wait_ns = replies.waits ? wait_for_results(replies.now_ns) : 0;
  if (!replies.one.empty()) {
    const auto bytes = static_cast<double>(wire::kDatagramHeaderBytes + replies.one.payload().size());
    const std::int64_t repeat_wait_ns = take_repeat(bytes, replies.now_ns);
    if (repeat_wait_ns > 0) {
      ++counters_.busy;
      replies.waits = true;
      wait_ns = std::max(wait_ns, repeat_wait_ns);
    } else {
      bucket_.charge(bytes);  // few bytes bring back many: they are the job's, too
      actions.push_back(answer(To::one, AggregationType::result, header, replies.one.payload()));
    }
  }
  if (!replies.gap.empty())
    actions.push_back(answer(To::one, AggregationType::gap, header, replies.gap.payload()));
  if (replies.refusal) return refuse(header, {*replies.refusal, 0}, *from, actions);
  if (replies.waits) refuse(header, busy_for(wait_ns), *from, actions);
  if (replies.missing.empty()) return;
  if (replies.waiting) name_missing(replies);
  actions.push_back(answer(To::one, AggregationType::missing, header, replies.missing.payload()));
}

SwitchAction AggregationJob::answer(SwitchAction::To to, AggregationType type,
                                    const wire::DatagramHeader& header, std::span<const std::byte> payload) {
  SwitchAction action;
  action.to = to;
  if (to == SwitchAction::To::all) action.peers = slots_.peers();
  if (to == SwitchAction::To::one) action.peers = {&asker_, 1};
  action.header.type = static_cast<std::uint8_t>(type);
  action.header.flags = to == SwitchAction::To::all ? wire::kDatagramToAll : std::uint8_t{0};
  action.header.job = terms_.job;
  action.header.epoch = terms_.epoch;
  action.header.sender = to == SwitchAction::To::above ? terms_.above->worker : terms_.self;
  action.header.own16 = header.own16;
  action.header.own32 = header.own32;
  action.header.length = static_cast<std::uint16_t>(payload.size());
  action.payload = payload;
  return action;
}

}  // namespace talweg::protocol
