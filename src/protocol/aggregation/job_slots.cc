#include "protocol/aggregation/job_slots.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernel/blocks.h"
#include "kernel/reduce.h"
#include "protocol/aggregation/coded_blocks.h"
#include "protocol/aggregation/pair_sums.h"

namespace talweg::protocol {

namespace {

using wire::AggregationFormat;

// What the elements of a sum are, and those that are added to it once they are decoded.
DataType type_on_wire(AggregationFormat format) {
  switch (format) {
    case AggregationFormat::f16:
      return DataType::f16;
    case AggregationFormat::bf16:
      return DataType::bf16;
    case AggregationFormat::f32:
    case AggregationFormat::pairs:
    case AggregationFormat::block8:
    case AggregationFormat::block4:
      return DataType::f32;
    case AggregationFormat::i32:
    case AggregationFormat::scaled:
      break;
  }
  return DataType::i32;
}

void set_sums(AggregationFormat format, std::byte* sums, std::span<const std::byte> data, std::size_t count) {
  if (wire::is_coded(format))
    kernel::decode(gradient_format(format), data.data(), count, sums);
  else if (wire::element_bytes(format) == 4)
    std::memcpy(sums, data.data(), data.size());
  else
    kernel::widen(type_on_wire(format), reinterpret_cast<float*>(sums), data.data(), count);
}

void add_to_sums(AggregationFormat format, std::byte* sums, std::span<const std::byte> data,
                 std::size_t count) {
  const DataType type = type_on_wire(format);
  if (wire::is_coded(format))
    kernel::decode_add(gradient_format(format), data.data(), count, sums);
  else if (wire::element_bytes(format) == 4)
    kernel::reduce_function(type, ReduceOp::sum)(sums, sums, data.data(), count);
  else
    kernel::add_widened(type, reinterpret_cast<float*>(sums), data.data(), count);
}

// Operations are numbered round and round.
bool is_after(std::uint32_t operation, std::uint64_t block, const Round& round) {
  const auto ahead = static_cast<std::int32_t>(operation - round.operation);
  return ahead > 0 || (ahead == 0 && wire::order_of(block) > wire::order_of(round.block));
}

bool is_pairs(const Round& round) {
  return round.format == AggregationFormat::pairs;
}

bool is_round(const Round& round, const wire::AggregationEntry& entry, std::uint32_t operation) {
  return round.state != Round::State::empty && round.operation == operation && round.block == entry.block;
}

bool is_open(const Round& round) {
  return round.state == Round::State::filling || round.state == Round::State::above;
}

}  // namespace

std::size_t result_bytes(const JobTerms& t) {
  const std::size_t names = t.tolerant ? t.columns * wire::kMaxAbsent * 2 : 0;
  return wire::aggregation_payload(t.columns, t.block, 4) + names;
}

std::size_t packet_bytes(const JobTerms& t) {
  return std::max(result_bytes(t), wire::aggregation_payload(t.columns, 0, 0) + wire::kMaxNames * 2);
}

std::size_t results_kept(const JobTerms& t) {
  // No fewer than fill a word: what lies behind them in memory is aligned.
  constexpr std::size_t kFewest = sizeof(std::int64_t) / sizeof(std::uint16_t);
  return std::clamp<std::size_t>(std::bit_ceil(versions(t) * t.slots * t.columns), kFewest, 0x10000);
}

JobSlots::JobSlots(const JobTerms& terms, std::pmr::memory_resource& memory)
    : terms_(terms), layout_(memory_of(terms)), memory_(memory, layout_.total) {}

JobSlots::Cell JobSlots::cell(std::size_t slot, std::size_t column, std::size_t version) {
  const std::size_t index = (slot * terms_.columns + column) * versions(terms_) + version;
  std::byte* const base = memory_.data() + index * layout_.cell;
  const std::size_t words = contributor_words(terms_.workers);
  auto* const heard = reinterpret_cast<std::uint64_t*>(base + layout_.round);
  std::byte* const sums = base + layout_.round + layout_.contributors;
  return {*reinterpret_cast<Round*>(base),
          Contributors({heard, words}),
          Contributors({heard + words, terms_.ordered ? words : 0}),
          Contributors({heard + words + (terms_.ordered ? words : 0), terms_.tolerant ? words : 0}),
          sums,
          sums + layout_.sums};
}

std::span<Peer> JobSlots::peers() {
  return {reinterpret_cast<Peer*>(memory_.data() + layout_.cells * layout_.cell), terms_.workers};
}

std::span<Gaps> JobSlots::gaps() {
  std::byte* const at = memory_.data() + layout_.cells * layout_.cell + layout_.peers;
  return {reinterpret_cast<Gaps*>(at), terms_.workers};
}

std::uint16_t& JobSlots::slot_of_result(std::uint16_t number) {
  std::byte* const at = memory_.data() + layout_.cells * layout_.cell + layout_.peers + layout_.gaps;
  return reinterpret_cast<std::uint16_t*>(at)[number & (results_kept(terms_) - 1)];
}

std::span<Lingering> JobSlots::lingering() {
  if (!terms_.tolerant) return {};
  std::byte* const at = memory_.data() + layout_.total - layout_.packets - layout_.tolerance;
  return {reinterpret_cast<Lingering*>(at), std::size_t{terms_.slots} * terms_.columns};
}

std::span<Attendance> JobSlots::attendance() {
  if (!terms_.tolerant) return {};
  const std::span<Lingering> columns = lingering();
  return {reinterpret_cast<Attendance*>(columns.data() + columns.size()), terms_.workers};
}

std::span<std::int64_t> JobSlots::held_back() {
  if (!terms_.above) return {};
  std::byte* const at = memory_.data() + layout_.total - layout_.packets - layout_.held_back;
  return {reinterpret_cast<std::int64_t*>(at), terms_.slots};
}

std::span<std::byte> JobSlots::packet(std::size_t i) {
  const std::size_t bytes = packet_bytes(terms_);
  std::byte* const packets = memory_.data() + layout_.total - layout_.packets;
  return {packets + i * bytes, bytes};
}

JobSlots::Turn JobSlots::turn(std::size_t slot, const wire::AggregationEntry& entry,
                              std::uint32_t operation) {
  if (terms_.tolerant) return turn_of_three(slot, entry, operation);
  const Round& same = cell(slot, entry.column, entry.version).round;
  const Round& other = cell(slot, entry.column, !entry.version).round;
  const auto behind = [&](const Round& round) {
    return round.state == Round::State::empty || is_after(operation, entry.block, round);
  };
  if (is_round(same, entry, operation)) return Turn::current;
  if (!behind(same) || !behind(other)) return Turn::late;
  const bool same_is_last =
      same.state != Round::State::empty &&
      (other.state == Round::State::empty || is_after(same.operation, same.block, other));
  return same_is_last || is_open(other) ? Turn::early : Turn::begins;
}

JobSlots::Turn JobSlots::turn_of_three(std::size_t slot, const wire::AggregationEntry& entry,
                                       std::uint32_t operation) {
  const Round* last = nullptr;
  for (std::size_t v = 0; v < versions(terms_); ++v) {
    const Round& round = cell(slot, entry.column, v).round;
    if (is_round(round, entry, operation)) return Turn::current;
    if (round.state != Round::State::empty &&
        (last == nullptr || is_after(round.operation, round.block, *last)))
      last = &round;
  }
  if (last == nullptr) return Turn::begins;
  if (!is_after(operation, entry.block, *last)) return Turn::late;
  return is_open(*last) || last->version == entry.version ? Turn::early : Turn::begins;
}

JobSlots::Cell JobSlots::cell_of(std::size_t slot, const wire::AggregationEntry& entry,
                                 std::uint32_t operation) {
  if (!terms_.tolerant) return cell(slot, entry.column, entry.version ? 1 : 0);
  std::size_t oldest = 0;
  for (std::size_t v = 0; v < versions(terms_); ++v) {
    const Round& round = cell(slot, entry.column, v).round;
    if (is_round(round, entry, operation)) return cell(slot, entry.column, v);
    const Round& than = cell(slot, entry.column, oldest).round;
    if (than.state != Round::State::empty &&
        (round.state == Round::State::empty || is_after(than.operation, than.block, round)))
      oldest = v;
  }
  return cell(slot, entry.column, oldest);
}

std::optional<JobSlots::Cell> JobSlots::before(const Cell& than, std::size_t slot, std::size_t column) {
  std::optional<Cell> last;
  for (std::size_t v = 0; v < versions(terms_); ++v) {
    const Cell other = cell(slot, column, v);
    const Round& round = other.round;
    if (round.state == Round::State::empty || !is_after(than.round.operation, than.round.block, round))
      continue;
    if (!last || is_after(round.operation, round.block, last->round)) last.emplace(other);
  }
  return last;
}

void JobSlots::begin(Cell& cell, std::uint32_t operation, const wire::AggregationEntry& entry,
                     AggregationFormat format) {
  cell.round = {.block = entry.block,
                .next = wire::kNeverNext,
                .operation = operation,
                .remaining = terms_.workers,
                .exponent = wire::kZeroExponent,
                .format = format,
                .state = Round::State::filling,
                .version = entry.version,
                .allowance = entry.absent};
  cell.heard.clear();
  cell.absent.clear();
  cell.has_part.clear();
}

bool JobSlots::is_ordered(AggregationFormat format) const {
  return terms_.ordered && format != AggregationFormat::i32 && format != AggregationFormat::scaled;
}

void JobSlots::add(Cell& cell, std::uint16_t worker, const wire::AggregationEntry& entry,
                   std::span<const std::byte> data) {
  Round& round = cell.round;
  cell.heard.add(worker);
  --round.remaining;
  if (entry.next < round.next) {
    round.next = entry.next;
    round.exponent = entry.exponent;
  } else if (entry.next == round.next) {
    round.exponent = std::max(round.exponent, entry.exponent);
  }
  if (is_pairs(round)) return add_pairs(cell, worker, data);
  if (!entry.data) return;
  if (is_ordered(round.format)) {
    std::memcpy(cell.parts + worker * layout_.sums, data.data(), data.size());
    cell.has_part.add(worker);
  } else if (round.count == 0) {
    set_sums(round.format, cell.sums, data, entry.count);
  } else {
    add_to_sums(round.format, cell.sums, data, entry.count);
  }
  round.count = entry.count;
}

void JobSlots::add_pairs(Cell& cell, std::uint16_t worker, std::span<const std::byte> data) {
  Round& round = cell.round;
  if (is_ordered(round.format)) {
    if (data.empty()) return;
    PairSums(cell.parts + worker * layout_.sums, most_pairs()).keep(data);
    cell.has_part.add(worker);
    return;
  }
  std::uint64_t end = round.next - round.block;
  round.count = PairSums(cell.sums, most_pairs()).add(round.count, data, end);
  round.next = round.block + end;
}

void JobSlots::finish_pairs(Cell& cell) {
  Round& round = cell.round;
  PairSums sums(cell.sums, most_pairs());
  std::uint64_t end = round.next - round.block;
  for (std::size_t worker = 0; is_ordered(round.format) && worker < terms_.workers; ++worker)
    if (cell.has_part.has(worker))
      round.count = sums.add(round.count, PairSums(cell.parts + worker * layout_.sums, most_pairs()), end);
  round.next = round.block + end;
}

void JobSlots::finish(Cell& cell) {
  const Round& round = cell.round;
  if (is_pairs(round)) return finish_pairs(cell);
  if (!is_ordered(round.format)) return;
  const std::size_t bytes = wire::data_bytes(round.format, round.count);
  bool first = true;
  for (std::size_t worker = 0; worker < terms_.workers; ++worker) {
    if (!cell.has_part.has(worker)) continue;
    const std::span<const std::byte> part(cell.parts + worker * layout_.sums, bytes);
    (first ? set_sums : add_to_sums)(round.format, cell.sums, part, round.count);
    first = false;
  }
}

void JobSlots::replace(Cell& cell, const wire::AggregationEntry& entry, std::span<const std::byte> data) {
  cell.round.next = entry.next;
  cell.round.exponent = entry.exponent;
  cell.round.count = entry.count;
  if (!entry.data) return;
  if (is_pairs(cell.round))
    PairSums(cell.sums, most_pairs()).keep(data);
  else if (wire::is_coded(cell.round.format))
    std::memcpy(cell.sums, data.data(), data.size());  // to be passed on as it is: the same bits everywhere
  else
    set_sums(cell.round.format, cell.sums, data, entry.count);
}

void JobSlots::write_coded(const Round& round, const std::byte* sums, std::byte* data) const {
  if (terms_.above && round.state == Round::State::done) {
    std::memcpy(data, sums, wire::data_bytes(round.format, round.count));
    return;
  }
  const std::uint64_t seed =
      terms_.above ? coding_seed(round.operation, Coder::rack, terms_.above->worker, terms_.self)
                   : coding_seed(round.operation, Coder::top, 0, terms_.self);
  kernel::encode(gradient_format(round.format), sums, round.count, data,
                 at_random(seed, round.block * terms_.block));
}

void JobSlots::write(const Cell& cell, std::uint8_t column, wire::AggregationWriter& writer) const {
  const Round& r = cell.round;
  wire::AggregationEntry entry{r.block, r.next, r.exponent, r.count, column, r.version};
  entry.data = r.count > 0;
  entry.absent = r.absent;
  std::byte* const data = writer.add(entry);
  for (std::uint16_t worker = 0, left = r.absent; left > 0; ++worker) {
    if (!cell.absent.has(worker)) continue;
    writer.add_absent(worker);
    --left;
  }
  if (!entry.data) return;
  if (is_pairs(r))
    PairSums(cell.sums, most_pairs()).write(r.count, data);
  else if (wire::is_coded(r.format))
    write_coded(r, cell.sums, data);
  else if (wire::element_bytes(r.format) == 4)
    std::memcpy(data, cell.sums, r.count * std::size_t{4});
  else
    kernel::narrow(type_on_wire(r.format), data, reinterpret_cast<const float*>(cell.sums), r.count);
}

}  // namespace talweg::protocol
