// A rack's switch and the one above it: what comes from there, and what is sent there once more.
//
// The switch above says when it will take what it was too busy for, to each slot a time of its own. What is
// sent again then is what it refused. Workers' questions alone would repeat the rounds that it has, too, and
// these would use up the rate each time: the last of them would never have their turn.
#include <algorithm>

#include "protocol/aggregation/job_replies.h"

namespace talweg::protocol {

using wire::AggregationEntry;
using wire::AggregationMessage;
using wire::AggregationReason;
using wire::AggregationType;

void AggregationJob::on_above(const wire::DatagramHeader& header, std::span<const std::byte> payload,
                              std::int64_t now_ns, std::vector<SwitchAction>& actions) {
  if (header.epoch != terms_.epoch) {
    ++counters_.other_epoch;
    return;
  }
  if (header.type == static_cast<std::uint8_t>(AggregationType::refusal)) {
    wire::AggregationRefusal refusal;
    if (wire::decode(payload, refusal) != nullptr)
      ++counters_.malformed;
    else if (refusal.reason == AggregationReason::busy)
      hold_back(header.own16, now_ns + std::int64_t{refusal.wait_us} * 1000);
    else
      refused_above_ = refusal;
    return;
  }
  AggregationMessage message;
  if (wire::decode(header, payload, message) != nullptr ||
      (message.type != AggregationType::result && message.type != AggregationType::missing)) {
    ++counters_.malformed;
    return;
  }
  if (!in_range(header.own16, message)) {
    ++counters_.out_of_range;
    return;
  }
  const bool ends = message.type == AggregationType::result;
  Replies replies(slots_, message.format, ends ? results_ + 1 : 0, now_ns);
  wire::for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte> data) {
    answer_from_above(header, message, entry, data, replies);
  });
  collect(replies, header, nullptr, actions);
}

void AggregationJob::answer_from_above(const wire::DatagramHeader& header, const AggregationMessage& message,
                                       const AggregationEntry& entry, std::span<const std::byte> data,
                                       Replies& replies) {
  JobSlots::Cell cell = slots_.cell_of(header.own16, entry, header.own32);
  Round& round = cell.round;
  if (slots_.turn(header.own16, entry, header.own32) != JobSlots::Turn::current ||
      round.state != Round::State::above) {
    ++counters_.late;
    return;
  }
  if (round.format != message.format || round.count_differs(entry)) {
    ++counters_.disagreements;
    return;
  }
  if (message.type == AggregationType::missing) {
    if (entry.yours) pass_again(cell, entry.column, replies);
    return;
  }
  slots_.replace(cell, entry, data);
  round.state = Round::State::done;
  round.number = results_ + 1;
  ++counters_.rounds;
  slots_.write(cell, entry.column, replies.on);
}

void AggregationJob::pass_again(JobSlots::Cell& cell, std::uint8_t column, Replies& replies) {
  ++counters_.passed_again;
  cell.round.passed_ns = replies.now_ns;
  replies.to_above = true;
  slots_.write(cell, column, replies.on);
}

// A refusal does not say which of the slot's columns it is of: all of them wait.
void AggregationJob::hold_back(std::uint16_t slot, std::int64_t until_ns) {
  if (slot >= terms_.slots) {
    ++counters_.out_of_range;
    return;
  }
  for (std::uint8_t c = 0; c < terms_.columns; ++c)
    for (std::size_t version = 0; version < versions(terms_); ++version)
      if (Round& round = slots_.cell(slot, c, version).round; round.state == Round::State::above)
        round.passed_ns = until_ns;
  slots_.held_back()[slot] = until_ns;
  held_back_ns_ = std::min(held_back_ns_, until_ns);
}

// The slot whose turn comes first, in one datagram: its rounds that have not been sent since.
void AggregationJob::end_holding_back(std::int64_t now_ns, std::vector<SwitchAction>& actions) {
  wire::DatagramHeader header;
  std::int64_t first_ns = kNeverTime;
  held_back_ns_ = kNeverTime;
  const std::span<std::int64_t> slots = slots_.held_back();
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] == 0) continue;
    held_back_ns_ = std::min(held_back_ns_, std::max(first_ns, slots[slot]));
    if (slots[slot] >= first_ns) continue;
    first_ns = slots[slot];
    header.own16 = static_cast<std::uint16_t>(slot);
  }
  if (first_ns > now_ns) {
    held_back_ns_ = first_ns;
    return;
  }
  slots[header.own16] = 0;
  std::optional<Replies> replies;
  wire::AggregationFormat format{};
  for (std::uint8_t c = 0; c < terms_.columns; ++c)
    for (std::size_t version = 0; version < versions(terms_); ++version) {
      JobSlots::Cell cell = slots_.cell(header.own16, c, version);
      const Round& round = cell.round;
      if (round.state != Round::State::above || round.passed_ns != first_ns) continue;
      if (!replies) {
        header.own32 = round.operation;
        format = round.format;
        replies.emplace(slots_, format, 0, now_ns);
      }
      // Workers that do not keep to the protocol may have begun another one: it does not fit in here.
      if (round.operation == header.own32 && round.format == format) pass_again(cell, c, *replies);
    }
  if (replies) collect(*replies, header, nullptr, actions);
}

}  // namespace talweg::protocol
