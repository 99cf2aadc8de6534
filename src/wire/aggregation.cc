#include "wire/aggregation.h"

namespace talweg::wire {

namespace {

struct AggregationHeadLayout {
  std::uint8_t format;
  std::uint8_t entries;
  std::uint16_t number;
};
static_assert(sizeof(AggregationHeadLayout) == kAggregationHeadBytes);

struct AggregationEntryLayout {
  std::uint64_t block;
  std::uint64_t next;
  std::int16_t exponent;
  std::uint16_t count;
  std::uint8_t column;
  std::uint8_t flags;
  std::uint16_t absent;
};
static_assert(sizeof(AggregationEntryLayout) == kAggregationEntryBytes);

struct RefusalLayout {
  std::uint8_t reason;
  std::uint8_t of;
  std::uint16_t spare;
  std::uint32_t wait_us;
};
static_assert(sizeof(RefusalLayout) == kRefusalBytes);

constexpr std::uint8_t kVersionFlag = 1, kDataFlag = 2, kYoursFlag = 4, kAboveFlag = 8;

bool ascend(std::span<const std::byte> names) {
  for (std::size_t i = 1; 2 * i < names.size(); ++i)
    if (absent_at(names.first(0), i - 1) >= absent_at(names.first(0), i)) return false;
  return true;
}

bool known_exponent(std::int16_t exponent) {
  return exponent == kZeroExponent || exponent == kNotFiniteExponent ||
         (exponent >= kLeastExponent && exponent <= kMostExponent);
}

const char* check_entry(const AggregationEntryLayout& e, AggregationType type, AggregationFormat format) {
  const bool data = (e.flags & kDataFlag) != 0;
  const std::uint8_t known = type == AggregationType::missing ? kVersionFlag | kYoursFlag | kAboveFlag
                             : type == AggregationType::query ? kVersionFlag
                                                              : kVersionFlag | kDataFlag;
  if ((e.flags & ~known) != 0) return "an entry with unknown flags";
  if (e.absent > (type == AggregationType::contribution ? 0xffff
                  : type == AggregationType::result     ? kMaxAbsent
                                                        : 0))
    return "more absent workers than there can be";
  if (e.column >= kMaxColumns) return "a column beyond the last";
  if (data != (e.count > 0)) return "a count without data, or data without a count";
  if (data && e.block == kNoBlock) return "data of no block";
  if (e.next != kNeverNext && e.block != kNoBlock && e.next <= e.block)
    return "a next block that is not behind this one";
  if (format == AggregationFormat::scaled && e.next == kNeverNext && e.exponent != kZeroExponent)
    return "an exponent of no block";
  if (!known_exponent(e.exponent)) return "an exponent that no float32 has";
  return nullptr;
}

const char* check_pairs(const AggregationEntryLayout& e, std::span<const std::byte> data) {
  const PairsOnWire pairs(data);
  int last = -1;
  for (std::size_t i = 0; i < pairs.count; ++i) {
    const int distance = pairs.distance(i);
    if (distance <= last) return "keys that do not ascend";
    last = distance;
  }
  if (last >= 0 && static_cast<std::uint64_t>(last) >= e.next - e.block)
    return "a key that is not before the next one";
  return nullptr;
}

}  // namespace

const char* name(AggregationFormat format) {
  constexpr const char* kNames[kAggregationFormats] = {"f32",    "f16",   "bf16",   "i32",
                                                       "scaled", "pairs", "block8", "block4"};
  return kNames[static_cast<std::size_t>(format)];
}

DataType type_in_memory(AggregationFormat format) {
  switch (format) {
    case AggregationFormat::f16:
      return DataType::f16;
    case AggregationFormat::bf16:
      return DataType::bf16;
    case AggregationFormat::i32:
      return DataType::i32;
    case AggregationFormat::f32:
    case AggregationFormat::scaled:
    case AggregationFormat::pairs:
    case AggregationFormat::block8:
    case AggregationFormat::block4:
      break;
  }
  return DataType::f32;
}

std::optional<AggregationFormat> aggregation_format(DataType type) {
  switch (type) {
    case DataType::f32:
      return AggregationFormat::f32;
    case DataType::f16:
      return AggregationFormat::f16;
    case DataType::bf16:
      return AggregationFormat::bf16;
    case DataType::i32:
      return AggregationFormat::i32;
    default:
      return std::nullopt;
  }
}

std::optional<AggregationFormat> format_of_floats(std::string_view text) {
  if (text == "type") return AggregationFormat::f32;
  for (const AggregationFormat format : {AggregationFormat::block8, AggregationFormat::block4})
    if (text == name(format)) return format;
  return std::nullopt;
}

std::uint16_t number_of_result(std::span<const std::byte> payload) {
  AggregationHeadLayout head{};
  if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
  return head.number;
}

const char* decode(const DatagramHeader& header, std::span<const std::byte> payload,
                   AggregationMessage& message) {
  if (header.type < kAggregationTypes || header.type >= kAggregationTypeEnd ||
      header.type == static_cast<std::uint8_t>(AggregationType::refusal))
    return "no message of an aggregation";
  AggregationHeadLayout head;
  if (payload.size() < sizeof head) return "shorter than its head";
  std::memcpy(&head, payload.data(), sizeof head);
  const auto type = static_cast<AggregationType>(header.type);
  if (head.format >= kAggregationFormats) return "an unknown format";
  const bool gap = type == AggregationType::gap;
  if ((head.entries == 0) != gap || head.entries > kMaxColumns) return "no entries, or too many";
  const bool names = gap || type == AggregationType::missing;
  if (names && head.number > kMaxNames) return "too many names";
  if (gap && head.number == 0) return "a gap of nothing";
  if (type == AggregationType::query && head.number != 0) return "a number of what has none";
  const auto format = static_cast<AggregationFormat>(head.format);
  const std::span<const std::byte> body = payload.subspan(sizeof head);
  std::size_t at = 0;
  int column = -1;
  for (std::uint8_t i = 0; i < head.entries; ++i) {
    AggregationEntryLayout entry;
    if (body.size() - at < sizeof entry) return "shorter than its entries";
    std::memcpy(&entry, body.data() + at, sizeof entry);
    if (const char* const why = check_entry(entry, type, format)) return why;
    if (entry.column <= column) return "columns that do not ascend";
    column = entry.column;
    at += sizeof entry;
    const std::size_t bytes = data_bytes(format, entry.count);
    if (body.size() - at < bytes) return "shorter than its data";
    if (format == AggregationFormat::pairs)
      if (const char* const why = check_pairs(entry, body.subspan(at, bytes))) return why;
    at += bytes;
    if (type != AggregationType::result) continue;
    const std::size_t absent = entry.absent * sizeof(std::uint16_t);
    if (body.size() - at < absent) return "shorter than its names";
    if (!ascend(body.subspan(at, absent))) return "names that do not ascend";
    at += absent;
  }
  if (body.size() - at != (names ? head.number : 0) * sizeof(std::uint16_t)) return "not as long as it says";
  for (std::size_t i = 2; names && i + 2 <= body.size() - at; i += 2) {
    std::uint16_t before = 0, name = 0;
    std::memcpy(&before, body.data() + at + i - 2, sizeof before);
    std::memcpy(&name, body.data() + at + i, sizeof name);
    if (gap ? static_cast<std::int16_t>(name - before) <= 0 : name <= before)
      return "names that do not ascend";
  }
  message = {type,           format,          head.entries, names ? std::uint16_t{0} : head.number,
             body.first(at), body.subspan(at)};
  return nullptr;
}

AggregationEntry entry_at(std::span<const std::byte> body) {
  AggregationEntryLayout e;
  std::memcpy(&e, body.data(), sizeof e);
  return {e.block,
          e.next,
          e.exponent,
          e.count,
          e.column,
          (e.flags & kVersionFlag) != 0,
          (e.flags & kDataFlag) != 0,
          (e.flags & kYoursFlag) != 0,
          (e.flags & kAboveFlag) != 0,
          e.absent};
}

std::uint16_t absent_at(std::span<const std::byte> data, std::size_t i) {
  std::uint16_t name = 0;
  std::memcpy(&name, data.data() + data.size() + i * sizeof name, sizeof name);
  return name;
}

std::uint16_t name_at(const AggregationMessage& message, std::size_t i) {
  std::uint16_t name = 0;
  std::memcpy(&name, message.names.data() + i * sizeof name, sizeof name);
  return name;
}

void AggregationWriter::begin(AggregationFormat format, std::uint16_t number) {
  const AggregationHeadLayout head{static_cast<std::uint8_t>(format), 0, number};
  std::memcpy(buffer_.data(), &head, sizeof head);
  used_ = sizeof head;
}

std::byte* AggregationWriter::add(const AggregationEntry& e) {
  AggregationHeadLayout head;
  std::memcpy(&head, buffer_.data(), sizeof head);
  const auto flags = static_cast<std::uint8_t>((e.version ? kVersionFlag : 0) | (e.data ? kDataFlag : 0) |
                                               (e.yours ? kYoursFlag : 0) | (e.above ? kAboveFlag : 0));
  const AggregationEntryLayout entry{e.block,  e.next, e.exponent, e.data ? e.count : std::uint16_t{0},
                                     e.column, flags,  e.absent};
  std::memcpy(buffer_.data() + used_, &entry, sizeof entry);
  ++head.entries;
  std::memcpy(buffer_.data(), &head, sizeof head);
  std::byte* const data = buffer_.data() + used_ + sizeof entry;
  used_ += sizeof entry + data_bytes(static_cast<AggregationFormat>(head.format), entry.count);
  return data;
}

void AggregationWriter::add_absent(std::uint16_t worker) {
  std::memcpy(buffer_.data() + used_, &worker, sizeof worker);
  used_ += sizeof worker;
}

void AggregationWriter::add_name(std::uint16_t name) {
  AggregationHeadLayout head;
  std::memcpy(&head, buffer_.data(), sizeof head);
  ++head.number;
  std::memcpy(buffer_.data(), &head, sizeof head);
  std::memcpy(buffer_.data() + used_, &name, sizeof name);
  used_ += sizeof name;
}

void encode(const AggregationRefusal& refusal, std::span<std::byte, kRefusalBytes> payload) {
  const RefusalLayout layout{static_cast<std::uint8_t>(refusal.reason), static_cast<std::uint8_t>(refusal.of),
                             0, refusal.wait_us};
  std::memcpy(payload.data(), &layout, sizeof layout);
}

const char* decode(std::span<const std::byte> payload, AggregationRefusal& refusal) {
  RefusalLayout layout;
  if (payload.size() != sizeof layout) return "not as long as a refusal";
  std::memcpy(&layout, payload.data(), sizeof layout);
  if (layout.reason == 0 || layout.reason > kAggregationReasons) return "an unknown reason";
  if (layout.of < kAggregationTypes || layout.of >= kAggregationTypeEnd || layout.spare != 0)
    return "a refusal of nothing that is known";
  refusal = {static_cast<AggregationReason>(layout.reason), layout.wait_us,
             static_cast<AggregationType>(layout.of)};
  return nullptr;
}

const char* to_string(AggregationReason reason) {
  switch (reason) {
    case AggregationReason::busy:
      return "the switch is busy";
    case AggregationReason::unknown_job:
      return "the switch knows no such job";
    case AggregationReason::old_epoch:
      return "the switch is in another epoch of the job";
    case AggregationReason::stranger:
      return "the job was announced with fewer workers";
    case AggregationReason::disagreement:
      break;
  }
  return "the workers disagree about the format or the count of a round's elements, or what may be missing";
}

}  // namespace talweg::wire
