#include "protocol/aggregation/worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fail.h"

namespace talweg::protocol {

using wire::AggregationEntry;
using wire::AggregationMessage;
using wire::AggregationType;
using wire::kNeverNext;
using wire::kNoBlock;

namespace {

constexpr std::int64_t kNeverTime = std::numeric_limits<std::int64_t>::max();
// Slots that the switch is asked about at once: where nothing comes, asking about all of them would not help.
constexpr std::size_t kAsked = 4;
// In mean rounds, of when the round was sent: what takes longer counts as this. With few slots nothing but
// the timer tells of a loss, and rounds are as long as we wait; so that waits do not grow by themselves, one
// that was asked about counts as 1 + slots / kManySlots means at most. They do not grow while fewer rounds
// are asked about than one in so many.
constexpr std::int64_t kLongRound = 4;
constexpr std::int64_t kManySlots = 32;
// Results for which the longest pause between two is kept, about.
constexpr std::int64_t kPausesKept = 1024;

}  // namespace

WorkerCounters& WorkerCounters::operator+=(const WorkerCounters& other) {
  contributions += other.contributions;
  adverts += other.adverts;
  results += other.results;
  ignored += other.ignored;
  gaps += other.gaps;
  timeouts += other.timeouts;
  asked_for += other.asked_for;
  named += other.named;
  held_back += other.held_back;
  malformed += other.malformed;
  absences += other.absences;
  return *this;
}

AggregationWorker::AggregationWorker(const WorkerTerms& terms, DatagramSink& sink)
    : terms_(terms), sink_(sink), timer_(terms.times) {
  if (terms.workers == 0 || terms.workers > 0xffff)
    refuse("a job has 1 to 65535 workers, not {}", terms.workers);
  if (terms.slots == 0 || terms.columns == 0 || terms.columns > wire::kMaxColumns || terms.block == 0)
    refuse("a worker has at least 1 slot of 1 to 64 columns, not {} of {} with blocks of {}", terms.slots,
           terms.columns, terms.block);
  if (terms.first_slot + terms.slots > 0x10000) refuse("slots are numbered up to 65535");
  const std::size_t bytes = wire::aggregation_payload(terms.columns, terms.block, 4);
  if (bytes > wire::kMaxDatagramPayload)
    refuse("{} columns of {} elements do not fit into one datagram", terms.columns, terms.block);
  columns_.resize(std::size_t{terms.slots} * terms.columns);
  packet_.resize(bytes);
  missing_.reserve(wire::kMaxNames);
}

wire::DatagramHeader AggregationWorker::header(AggregationType type, std::size_t slot) const {
  wire::DatagramHeader h;
  h.type = static_cast<std::uint8_t>(type);
  h.job = terms_.job;
  h.epoch = terms_.epoch;
  h.sender = terms_.worker;
  h.own16 = static_cast<std::uint16_t>(terms_.first_slot + slot);
  h.own32 = operation_;
  return h;
}

void AggregationWorker::start(const Sum& sum, std::uint32_t operation, std::int64_t deadline_ns,
                              std::int64_t now_ns) {
  if (failure_)
    refuse("sum {} of job {}: the epoch ended with a failure: {}", operation, terms_.job, failure_->text);
  if (open_ > 0) refuse("sum {} of job {}: sum {} has not ended", operation, terms_.job, operation_);
  if (started_ && static_cast<std::int32_t>(operation - operation_) <= 0)
    refuse("sum {} of job {} comes after sum {}", operation, terms_.job, operation_);
  if (sum.block == 0 || sum.block > terms_.block)
    refuse("sum {} of job {}: blocks of {} elements, expected 1 to {}", operation, terms_.job, sum.block,
           terms_.block);
  if (wire::most_elements(sum.format, sum.block) == 0)
    refuse("sum {} of job {}: blocks of {} elements have no room for {}", operation, terms_.job, sum.block,
           wire::is_coded(sum.format) ? "a scale" : "a pair");
  if (sum.lane >= sum.lanes)
    refuse("sum {} of job {}: lane {} of {}", operation, terms_.job, sum.lane, sum.lanes);
  if (const std::string wrong = wrong_tolerance(sum); !wrong.empty())
    refuse("sum {} of job {}: {}", operation, terms_.job, wrong);
  if (const std::string wrong = wrong_rows(sum); !wrong.empty())
    refuse("sum {} of job {}: {}", operation, terms_.job, wrong);
  counts_ = ColumnCount::is_for(sum, columns_.size());
  step_ = columns_for(sum);
  if (sum.format == wire::AggregationFormat::pairs) {
    Sum granules = sum;
    granules.block = OwnPairs::kGranule;
    granules.sparse = false;
    granules.rows = nullptr;
    tensor_.reset(granules, terms_.workers);
    pairs_.reset(sum, step());
  } else {
    tensor_.reset(sum, terms_.workers, coding_seed(operation, Coder::worker, terms_.rack, terms_.worker),
                  step());
  }
  const std::uint64_t allowance = std::min<std::uint64_t>(blocks_that_may_be_missing(sum), 0xffff);
  absent_ = {tensor_.blocks(), allowance, 0, 0};
  if (SumLosses* const losses = sum.tolerance.losses) {
    losses->allowance += allowance * sum.block;
    losses->own.reserve(losses->own.size() + allowance);
    losses->of_worker.resize(std::max<std::size_t>(losses->of_worker.size(), terms_.workers));
  }
  operation_ = operation;
  started_ = true;
  deadline_ns_ = deadline_ns;
  next_ns_ = deadline_ns;
  missing_.clear();
  heard_ = above_ = busy_ = false;
  busy_until_ns_ = std::numeric_limits<std::int64_t>::min();
  quiets_ = 0;
  quiet_ns_ = now_ns + quiet_after_ns();
  wake_at(quiet_ns_);
  said_ns_ = -1;
  began_ns_ = now_ns;
  shortest_ns_ = kNeverTime;
  results_before_ = counters_.results;
  const bool agrees_first = sum.format == wire::AggregationFormat::scaled;
  const std::uint64_t used = std::min(step(), tensor_.blocks());
  for (std::size_t i = 0; i < used; ++i) {
    Column& column = columns_[i];
    column.open = column.first = column.fresh = column.chosen = true;
    column.block = agrees_first ? kNoBlock : by_pairs() ? 0 : i;
    column.exponent = wire::kZeroExponent;
    column.own_next = 0;
    column.in_vain = 0;
    look_ahead(column, i);
    ++open_;
  }
  for (std::size_t slot = 0; slot < terms_.slots && index(slot, 0) < used; ++slot) send_chosen(slot, now_ns);
  if (open_ == 0) end(now_ns);
}

// The sum is done: its rows are its owner's again.
void AggregationWorker::end(std::int64_t now_ns) {
  if (counts_ && counters_.results > results_before_)
    count_.ended(counters_.results - results_before_, now_ns - began_ns_, shortest_ns_);
  next_ns_ = kNeverTime;
  tensor_.let_go();
  pairs_.let_go();
}

// In whole slots. All workers find the same.
std::uint64_t AggregationWorker::columns_for(const Sum& sum) const {
  if (const std::uint64_t slots = count_.slots_for(sum);
      slots > 0 && ColumnCount::is_for(sum, columns_.size()))
    return std::min<std::uint64_t>(slots * terms_.columns, columns_.size());
  // Of a sum by rows no more than its rows are worth.
  if (sum.rows == nullptr) return columns_.size();
  const RowUnits units = units_of(sum.rows->width, sum.format, sum.block);
  std::uint64_t in_round = sum.lanes, at_once = ColumnCount::kRounds * sum.lanes;
  if (sum.format == wire::AggregationFormat::pairs) {
    in_round *= wire::most_elements(sum.format, sum.block);
    at_once *= wire::kFarthestKey;
  } else {
    at_once = std::numeric_limits<std::uint64_t>::max();
  }
  const std::uint64_t columns = std::max(sum.rows->in_all * units.per_row / (ColumnCount::kRounds * in_round),
                                         sum.rows->elements() / at_once);
  const std::uint64_t whole = (columns / terms_.columns + 1) * terms_.columns;
  return std::min<std::uint64_t>(whole, columns_.size());
}

bool AggregationWorker::is_missing(const AggregationEntry& entry, std::span<const std::byte> data) const {
  for (std::size_t i = 0; i < entry.absent; ++i)
    if (wire::absent_at(data, i) == terms_.worker) return true;
  return false;
}

// Our next block behind the column's.
void AggregationWorker::look_ahead(Column& column, std::size_t index) {
  if (by_pairs()) return;  // once it is sent
  const bool begins = column.block == kNoBlock;
  if (!column.first && column.own_next > column.block) return;  // it still lies ahead
  column.own_next = tensor_.owned_from(begins ? index : column.block + step(), step());
  column.next_exponent = tensor_.exponent(column.own_next);
}

// What is said of the round, but for the data.
void AggregationWorker::fill(Column& column, std::size_t index, AggregationEntry& entry) {
  if (by_pairs()) {
    if (column.fresh) column.own_next = pairs_.advance(index, column.block);
    entry.count = pairs_.count(index);
    entry.data = entry.count > 0;
  } else {
    entry.data = column.block != kNoBlock && tensor_.owns(column.block) && tensor_.travels(column.exponent);
    if (entry.data) entry.count = tensor_.count_of(column.block);
    entry.exponent =
        counts_ && index == 0 && column.own_next == kNeverNext ? code_of_columns() : column.next_exponent;
  }
  entry.next = column.own_next;
}

// What the next sum like this one would be worth to us.
std::int16_t AggregationWorker::code_of_columns() const {
  const std::uint64_t columns = count_.columns_for(tensor_.owned(), columns_.size());
  return ColumnCount::code_of((columns + terms_.columns - 1) / terms_.columns);
}

// One datagram with those of the slot's columns that are chosen.
void AggregationWorker::send_chosen(std::size_t slot, std::int64_t now_ns) {
  wire::AggregationWriter writer(packet_);
  const std::uint64_t number = numbers_ + 1;
  writer.begin(tensor_.sum().format, static_cast<std::uint16_t>(number));
  for (std::uint8_t c = 0; c < terms_.columns; ++c) {
    Column& column = columns_[index(slot, c)];
    if (!column.chosen) continue;
    column.chosen = false;
    column.number = number;
    AggregationEntry entry{column.block, kNeverNext, wire::kZeroExponent, 0, c, column.version};
    fill(column, index(slot, c), entry);
    entry.absent = static_cast<std::uint16_t>(absent_.allowance);
    std::byte* const data = writer.add(entry);
    if (entry.data && by_pairs())
      pairs_.write(index(slot, c), data);
    else if (entry.data)
      tensor_.write(column.block, column.exponent, data);
    ++(entry.data ? counters_.contributions : counters_.adverts);
    if (column.fresh) {
      column.sent_ns = now_ns;
      column.mean_ns = timer_.mean_ns();
    }
    column.fresh = column.held_back = false;
    column.due_ns = now_ns + timer_.wait_ns(column.in_vain);
    wake_at(column.due_ns);
  }
  if (writer.empty()) return;
  numbers_ = number;
  wire::DatagramHeader h = header(AggregationType::contribution, slot);
  h.length = static_cast<std::uint16_t>(writer.payload().size());
  sink_.send(h, writer.payload());
}

// The switch is asked about all rounds of the slot that have not ended.
void AggregationWorker::ask(std::size_t slot, std::int64_t now_ns) {
  wire::AggregationWriter writer(packet_);
  writer.begin(tensor_.sum().format);
  for (std::uint8_t c = 0; c < terms_.columns; ++c) {
    Column& column = columns_[index(slot, c)];
    if (!column.open || column.held_back) continue;
    if (column.in_vain < 0xff) ++column.in_vain;
    column.due_ns = now_ns + timer_.wait_ns(column.in_vain);
    wake_at(column.due_ns);
    ++counters_.timeouts;
    AggregationEntry entry{column.block, kNeverNext, wire::kZeroExponent, 0, c, column.version};
    writer.add(entry);
  }
  if (writer.empty()) return;
  wire::DatagramHeader h = header(AggregationType::query, slot);
  h.length = static_cast<std::uint16_t>(writer.payload().size());
  sink_.send(h, writer.payload());
}

void AggregationWorker::ask_for(std::uint16_t result) {
  ++counters_.gaps;
  wire::AggregationWriter writer(packet_);
  writer.begin(tensor_.sum().format);
  writer.add_name(result);
  wire::DatagramHeader h = header(AggregationType::gap, 0);
  h.length = static_cast<std::uint16_t>(writer.payload().size());
  sink_.send(h, writer.payload());
}

// An eighth of a round; with few slots, what some of them take, but no more than one round may. Where results
// come many at a time, twice as long as these are apart.
std::int64_t AggregationWorker::quiet_after_ns() const {
  const std::int64_t mean = timer_.mean_ns();
  if (mean == 0) return timer_.wait_ns(quiets_);
  const std::int64_t some = std::max(4 * mean / static_cast<std::int64_t>(slots()), 2 * pause_ns_);
  const std::int64_t wait = std::max({terms_.times.least_ns, mean / 8, std::min(some, timer_.wait_ns(0))});
  return std::min(std::min(wait, terms_.times.most_ns) << std::min(quiets_, 20U), terms_.times.most_ns);
}

void AggregationWorker::on(const wire::DatagramHeader& h, std::span<const std::byte> payload,
                           std::int64_t now_ns) {
  if (h.job != terms_.job || h.epoch != terms_.epoch || h.own32 != operation_ || failure_ || open_ == 0 ||
      h.own16 < terms_.first_slot || h.own16 >= terms_.first_slot + terms_.slots) {
    ++counters_.ignored;
    return;
  }
  if (h.type == static_cast<std::uint8_t>(AggregationType::refusal)) return on_refusal(h, payload, now_ns);
  AggregationMessage message;
  if (wire::decode(h, payload, message) != nullptr || message.format != tensor_.sum().format) {
    ++counters_.malformed;
    return;
  }
  const auto slot = static_cast<std::size_t>(h.own16 - terms_.first_slot);
  heard_ = true;
  busy_ = false;
  note_pause((h.flags & wire::kDatagramToAll) == 0, now_ns);
  if (message.type == AggregationType::missing) return on_missing(slot, message, now_ns);
  if (message.type == AggregationType::gap) return on_gap(message, now_ns);
  if (message.type != AggregationType::result) {
    ++counters_.malformed;
    return;
  }
  wire::for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte> data) {
    if (!failure_) accept(slot, entry, data, now_ns);
  });
  if (failure_) return;
  send_chosen(slot, now_ns);
  // What is sent to us alone may be ahead of what is sent to all.
  if ((h.flags & wire::kDatagramToAll) == 0)
    results_.fill(message.number);
  else
    results_.came(message.number, [this](std::uint16_t lost) {
      if (open_ > 0) ask_for(lost);
    });
  if (open_ == 0)
    end(now_ns);
  else
    wake_at(quiet_ns_);
}

const AggregationWorker::Column* AggregationWorker::matching(std::size_t slot,
                                                             const AggregationEntry& entry) const {
  if (entry.column >= terms_.columns) return nullptr;
  const Column& column = columns_[index(slot, entry.column)];
  const bool same = column.open && column.version == entry.version && column.block == entry.block;
  return same ? &column : nullptr;
}

// A switch that means well can say nothing else; one that does not must not lead us out of the tensor.
bool AggregationWorker::sound(const Column& column, const AggregationEntry& entry,
                              std::span<const std::byte> data) const {
  if (entry.next > column.own_next) return false;  // it would pass over what we have
  if (entry.absent > 0 && (absent_.allowance == 0 || entry.absent >= terms_.workers)) return false;
  const auto own = static_cast<std::uint64_t>(&column - columns_.data());
  if (by_pairs()) {
    const std::uint64_t keys = pairs_.keys(own);
    const wire::PairsOnWire pairs(data);
    const bool within = pairs.count == 0 || pairs.distance(pairs.count - 1) < keys - column.block;
    return within && (entry.next == kNeverNext || entry.next < keys);
  }
  if (entry.data && (column.block == kNoBlock || entry.count != tensor_.count_of(column.block))) return false;
  if (entry.next == kNeverNext) return true;
  return entry.next < tensor_.blocks() && entry.next % step() == own;
}

void AggregationWorker::accept(std::size_t slot, const AggregationEntry& entry,
                               std::span<const std::byte> data, std::int64_t now_ns) {
  if (matching(slot, entry) == nullptr) {
    ++counters_.ignored;
    return;
  }
  const std::size_t i = index(slot, entry.column);
  Column& column = columns_[i];
  if (!sound(column, entry, data))
    return fail(
        ErrorCode::corrupted,
        fmt::format(
            "the switch's result for block {} has {} elements and goes on with block {}, which cannot be: "
            "the workers do not sum the same tensor",
            entry.block, entry.count, entry.next));
  absent_.all += entry.absent;
  if (is_missing(entry, data) && ++absent_.own > absent_.allowance)
    return fail(ErrorCode::corrupted,
                fmt::format("the switch has left out {} of {} blocks of worker {}, and {} may be",
                            absent_.own, absent_.blocks, terms_.worker, absent_.allowance));
  ++counters_.results;
  newest_ended_ = std::max(newest_ended_, column.number);
  shortest_ns_ = std::min(shortest_ns_, now_ns - column.sent_ns);
  if (!column.first) measure(column, now_ns - column.sent_ns);
  if (quiets_ > 0) forget_silence(now_ns);
  quiets_ = 0;
  quiet_ns_ = now_ns + quiet_after_ns();
  finish_blocks(column, i, entry, data);
  column.version = !column.version;
  column.first = false;
  column.in_vain = 0;
  if (entry.next == kNeverNext) {
    if (counts_ && i == 0) count_.agree(tensor_.sum(), entry.exponent);
    column.open = false;
    --open_;
    return;
  }
  column.block = entry.next;
  column.exponent = entry.exponent;
  look_ahead(column, i);
  column.fresh = column.chosen = true;
}

// Rounds in which something was lost belong to how long rounds take; one that a worker was away in does not.
void AggregationWorker::measure(const Column& column, std::int64_t round_ns) {
  const std::int64_t mean = column.mean_ns;
  std::int64_t most = kLongRound * mean;
  if (column.in_vain > 0)
    most = std::min(most, mean + mean * static_cast<std::int64_t>(slots()) / kManySlots);
  timer_.measured(mean > 0 ? std::min(round_ns, std::max(most, terms_.times.least_ns)) : round_ns);
}

// Who was away is back: what was asked about less and less often need not wait so long for the next time.
void AggregationWorker::forget_silence(std::int64_t now_ns) {
  for (Column& column : columns_) {
    if (!column.open || column.held_back) continue;
    column.in_vain = std::min<std::uint8_t>(column.in_vain, 1);
    column.due_ns = std::min(column.due_ns, now_ns + timer_.wait_ns(0));
    wake_at(column.due_ns);
  }
}

// The switch speaks. That it had not is how results come, unless something has been lost: then we have asked,
// and the answer comes first. Who waits for longer than a round waits for somebody.
void AggregationWorker::note_pause(bool answer, std::int64_t now_ns) {
  pause_ns_ -= pause_ns_ / kPausesKept;
  if (said_ns_ >= 0 && !answer)
    pause_ns_ = std::max(pause_ns_, std::min(now_ns - said_ns_, timer_.mean_ns()));
  said_ns_ = now_ns;
}

void AggregationWorker::note_losses(std::uint64_t block, const AggregationEntry& entry,
                                    std::span<const std::byte> data, bool own) const {
  SumLosses* const losses = tensor_.sum().tolerance.losses;
  if (losses == nullptr) return;
  const std::size_t count = tensor_.count_of(block);
  for (std::size_t i = 0; i < entry.absent; ++i)
    if (const std::size_t who = wire::absent_at(data, i); who < losses->of_worker.size())
      losses->of_worker[who] += count;
  if (own) losses->own.push_back({tensor_.first_element(block), count});
}

// Writes the round's block, and those up to the next one, which nobody has anything in.
void AggregationWorker::finish_blocks(Column& column, std::size_t index, const AggregationEntry& entry,
                                      std::span<const std::byte> data) {
  if (by_pairs()) return pairs_.accept(index, column.block, entry.next, data);
  std::uint64_t block = index;
  if (column.block != kNoBlock) {
    const bool missing = is_missing(entry, data);
    if (missing) ++counters_.absences;
    if (entry.absent > 0) note_losses(column.block, entry, data, missing);
    tensor_.remember(column.block, missing);
    tensor_.accept(column.block, column.exponent, data);
    if (entry.absent > 0 && tensor_.sum().tolerance.rescale) tensor_.rescale(column.block, entry.absent);
    block = column.block + step();
  }
  if (tensor_.sum().rows != nullptr) return;
  const std::uint64_t end = std::min(entry.next, tensor_.blocks());
  for (; block < end; block += step()) tensor_.accept(block, wire::kZeroExponent, {});
}

void AggregationWorker::on_missing(std::size_t slot, const AggregationMessage& message, std::int64_t now_ns) {
  missing_.clear();
  for (std::size_t i = 0; i < wire::names_in(message); ++i) missing_.push_back(wire::name_at(message, i));
  above_ = false;
  wire::for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte>) {
    if (matching(slot, entry) == nullptr) {
      ++counters_.ignored;
      return;
    }
    above_ = above_ || entry.above;
    if (!entry.yours) return;
    Column& column = columns_[index(slot, entry.column)];
    if (column.held_back) return;
    column.chosen = true;
    ++counters_.asked_for;
  });
  send_chosen(slot, now_ns);
}

// Datagrams of ours that the switch has not got, while it got later ones.
void AggregationWorker::on_gap(const AggregationMessage& message, std::int64_t now_ns) {
  // They ascend, a few of many that were sent.
  const std::uint16_t first = wire::name_at(message, 0);
  const auto span = static_cast<std::uint16_t>(wire::name_at(message, wire::names_in(message) - 1) - first);
  const auto lost = [&](const Column& column) {
    const auto number = static_cast<std::uint16_t>(column.number);
    if (static_cast<std::uint16_t>(number - first) > span) return false;
    for (std::size_t i = 0; i < wire::names_in(message); ++i)
      if (wire::name_at(message, i) == number) return true;
    return false;
  };
  for (std::size_t slot = 0; slot < terms_.slots; ++slot) {
    bool any = false;
    for (std::size_t c = 0; c < terms_.columns; ++c) {
      Column& column = columns_[index(slot, c)];
      if (!column.open || column.held_back || !lost(column)) continue;
      any = column.chosen = true;
      ++counters_.named;
    }
    if (any) send_chosen(slot, now_ns);
  }
}

void AggregationWorker::on_refusal(const wire::DatagramHeader& h, std::span<const std::byte> payload,
                                   std::int64_t now_ns) {
  wire::AggregationRefusal refusal;
  if (wire::decode(payload, refusal) != nullptr) {
    ++counters_.malformed;
    return;
  }
  heard_ = true;
  if (refusal.reason != wire::AggregationReason::busy)
    return fail(refusal.reason == wire::AggregationReason::disagreement ? ErrorCode::mismatch
                                                                        : ErrorCode::unsupported,
                fmt::format("worker {} is refused: {}", terms_.worker, to_string(refusal.reason)));
  ++counters_.held_back;
  // What was only asked is not to be sent: the contribution may well have been taken.
  const bool query = refusal.of == AggregationType::query;
  if (!query && refusal.of != AggregationType::contribution) return;
  const std::int64_t again_ns = now_ns + std::int64_t{refusal.wait_us} * 1000;
  busy_ = true;
  busy_until_ns_ = std::max(busy_until_ns_, again_ns);
  if (query) quiet_ns_ = std::max(quiet_ns_, again_ns);
  for (std::size_t c = 0; c < terms_.columns; ++c) {
    Column& column = columns_[index(h.own16 - terms_.first_slot, c)];
    if (!column.open) continue;
    if (query && column.held_back) continue;
    column.held_back = !query;
    column.due_ns = again_ns;
    wake_at(again_ns);
  }
}

void AggregationWorker::on_time(std::int64_t now_ns) {
  if (now_ns < next_ns_) return;
  if (open_ == 0 || failure_) {
    next_ns_ = kNeverTime;
    return;
  }
  if (now_ns >= deadline_ns_) return fail(ErrorCode::timeout, who_is_missing());
  next_ns_ = deadline_ns_;
  const bool quiet = now_ns >= quiet_ns_;
  if (quiet) {
    ++quiets_;
    quiet_ns_ = now_ns + quiet_after_ns();
  }
  wake_at(quiet_ns_);
  // The slots whose turn it is, the oldest first.
  struct Asked {
    std::int64_t due_ns = kNeverTime;
    std::size_t slot = 0;
  } oldest[kAsked];
  for (std::size_t slot = 0; slot < terms_.slots; ++slot) {
    std::int64_t due = kNeverTime;
    for (std::size_t c = 0; c < terms_.columns; ++c) {
      Column& column = columns_[index(slot, c)];
      if (!column.open) continue;
      if (column.held_back && column.due_ns <= now_ns)
        column.chosen = true;
      else if (!column.held_back && (quiet || (column.due_ns <= now_ns && may_ask(column))))
        due = std::min(due, column.due_ns);
      else if (column.due_ns > now_ns)
        wake_at(column.due_ns);
    }
    send_chosen(slot, now_ns);
    for (Asked next{due, slot}; Asked & asked : oldest)
      if (next.due_ns < asked.due_ns) std::swap(next, asked);
  }
  for (const Asked& asked : oldest)
    if (asked.due_ns != kNeverTime) ask(asked.slot, now_ns);
}

void AggregationWorker::fail(ErrorCode code, std::string why) {
  std::string text = fmt::format("sum {} of job {}, epoch {}: {}", operation_, terms_.job, terms_.epoch, why);
  failure_ = SumFailure{code, std::move(text), std::move(why)};
  next_ns_ = kNeverTime;
}

std::string AggregationWorker::who_is_missing() const {
  std::string who = "the switch has not answered";
  if (busy_)
    who = "the switch has no more room for this job's rate (--result-rate, --job-rate)";
  else if (above_)
    who = "the switch waits for the one above it";
  else if (!missing_.empty())
    who = fmt::format("the switch waits for worker{} {}", missing_.size() == 1 ? "" : "s",
                      fmt::join(missing_, ", "));
  else if (heard_)
    who = "the switch has not said whom it waits for";
  return fmt::format("{} of {} columns have not ended by the deadline: {}", open_,
                     std::min(step(), tensor_.blocks()), who);
}

}  // namespace talweg::protocol
