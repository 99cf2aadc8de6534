// What workers and switches of streaming aggregation say to each other: payloads of datagrams (datagram.h) of
// the types below. The datagram's header says whose job, epoch and worker it is; its own16 is the slot, its
// own32 the number of the operation.
//
//    0  format u8, entries u8, number u16       then `entries` times, in ascending order of columns:
//                                                 0  block u64, next u64
//                                                16  exponent i16, count u16, column u8, flags u8, absent u16
//                                                24  count elements, where the flag says so; of pairs: count
//                                                    values f32, then count distances u16; of coded blocks:
//                                                    for each coded_elements(), and what is left, a scale f32
//                                                    and a code for each (kernel/gradient_code.h)
//                                                    of a result: `absent` times a u16
//                                               then, in `missing` and `gap` alone, `number` times a u16
//
// Contributions are numbered by each worker, results to all by the switch: 1, 2, ..., round and round,
// whatever their operation; so that who receives them sees which ones have not come, and can name them. A
// result that is sent again has its number again. What one switch sends up to another is not numbered.
//
//   AggregationWriter writer(buffer);
//   writer.begin(AggregationFormat::f32);
//   std::byte* data = writer.add(entry);          // where the entry's data are to be written, if it has any
//   send(header, writer.payload());
//
//   AggregationMessage message;
//   if (decode(header, payload, message) != nullptr) ...        // why it is none
//   for_each_entry(message, [](const AggregationEntry& entry, std::span<const std::byte> data) { ... });
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "talweg/types.h"
#include "wire/datagram.h"

namespace talweg::wire {

enum class AggregationType : std::uint8_t {
  contribution = kAggregationTypes,  // a worker's part of a round, for each column with its data or without
                                     // (an advert: "I have nothing there; my next block is this one")
  result,                            // the sum of a round and the block that the next one is about
  query,    // of a worker: "has this round ended?" A negative acknowledgement: it misses the results
  missing,  // of a switch: it misses contributions to these rounds; and the workers that it misses them of
  refusal,  // of a switch: it does not take this part
  gap,    // datagrams that have not come, by their numbers: of a switch as many as there are, of a worker one
          // at a time, as each is answered by a datagram. Without entries
  probe,  // of a switch, to a multicast group: whether datagrams as long as this one come by it. Its own32 is
          // the attempt. No message: its payload means nothing, and is as long as the largest result
};
inline constexpr std::uint8_t kAggregationTypeEnd = static_cast<std::uint8_t>(AggregationType::gap) + 1;

// What an element is on the wire, and what it is summed in.
enum class AggregationFormat : std::uint8_t {
  f32 = 0,
  f16 = 1,     // summed in float32, rounded once for each switch on the way
  bf16 = 2,    // the same
  i32 = 3,     // wraps
  scaled = 4,  // float32 as int32 in units of a scale that all workers have agreed on for the block
  pairs = 5,   // float32 and, as u16, how far its key is from the entry's `block`: what is not zero alone
  block8 = 6,  // float32 as codes of 8 bits and scales, summed in float32, coded once for each switch
  block4 = 7,  // the same with codes of 4 bits
};
inline constexpr int kAggregationFormats = 8;
constexpr bool is_coded(AggregationFormat format) {
  return format == AggregationFormat::block8 || format == AggregationFormat::block4;
}
// That have a scale in common, of a coded block; fewer at its end. A code of 4 bits loses more to a large
// one.
constexpr std::size_t coded_elements(AggregationFormat format) {
  return format == AggregationFormat::block8 ? 256 : 64;
}
// Of an element of formats that are not coded.
constexpr std::size_t element_bytes(AggregationFormat format) {
  if (format == AggregationFormat::pairs) return 6;
  return format == AggregationFormat::f16 || format == AggregationFormat::bf16 ? 2 : 4;
}
// Of an entry's data.
constexpr std::size_t data_bytes(AggregationFormat format, std::size_t elements) {
  if (!is_coded(format)) return elements * element_bytes(format);
  const std::size_t codes = format == AggregationFormat::block8 ? elements : (elements + 1) / 2;
  const std::size_t of_scale = coded_elements(format);
  return (elements + of_scale - 1) / of_scale * sizeof(float) + codes;
}
// Of an element of a long vector, with its part of what is beside it.
constexpr double mean_bytes(AggregationFormat format) {
  constexpr std::size_t kMany = 256;
  return static_cast<double>(data_bytes(format, kMany)) / double{kMany};
}
// Of an element in a worker's vector.
constexpr std::size_t bytes_in_memory(AggregationFormat format) {
  return format == AggregationFormat::pairs || is_coded(format) ? 4 : element_bytes(format);
}
DataType type_in_memory(AggregationFormat format);
// Elements of this format that an entry has at most where blocks have `block` elements of four bytes; 0:
// there is no room for any.
constexpr std::size_t most_elements(AggregationFormat format, std::size_t block) {
  if (format == AggregationFormat::pairs) return block * 4 / element_bytes(format);
  return data_bytes(format, block) <= block * 4 ? block : 0;
}
const char* name(AggregationFormat format);
// Of elements as they are: none for types that are not summed in the network.
std::optional<AggregationFormat> aggregation_format(DataType type);

// How floats travel, by the name that users give it: "type" (as they are), "block8" or "block4". Empty: no
// such name.
std::optional<AggregationFormat> format_of_floats(std::string_view name);
inline constexpr const char* kFormatsOfFloats = "type, block8 or block4";

// The block of a round in which nothing is summed: it only agrees on the first block.
inline constexpr std::uint64_t kNoBlock = std::numeric_limits<std::uint64_t>::max();
// The next block of who has none any more.
inline constexpr std::uint64_t kNeverNext = kNoBlock;
// A column's blocks come in ascending order; the round without one is the first.
constexpr std::uint64_t order_of(std::uint64_t block) {
  return block + 1;
}

// The exponent of a block: e where 2^(e-1) <= max|x| < 2^e. They order as the blocks' largest values do.
inline constexpr std::int16_t kZeroExponent = std::numeric_limits<std::int16_t>::min();  // nothing is there
inline constexpr std::int16_t kLeastExponent = -126;
inline constexpr std::int16_t kMostExponent = 128;
inline constexpr std::int16_t kNotFiniteExponent = std::numeric_limits<std::int16_t>::max();  // NaN or Inf is

// Pairs. `block` is the first key that the round is about, `next` the sender's first one that is not among
// these; of a result: all keys before it are done. Keys ascend, from `block` on.
inline constexpr std::uint64_t kFarthestKey = std::numeric_limits<std::uint16_t>::max();  // from `block`
// The data of an entry taken apart; neither is aligned.
struct PairsOnWire {
  const std::byte* values = nullptr;
  const std::byte* distances = nullptr;
  std::size_t count = 0;
  explicit PairsOnWire(std::span<const std::byte> data)
      : values(data.data()),
        distances(data.data() + data.size() / 6 * 4),
        count(data.size() / element_bytes(AggregationFormat::pairs)) {}
  std::uint16_t distance(std::size_t i) const {
    std::uint16_t d = 0;
    std::memcpy(&d, distances + i * sizeof d, sizeof d);
    return d;
  }
  float value(std::size_t i) const {
    float v = 0;
    std::memcpy(&v, values + i * sizeof v, sizeof v);
    return v;
  }
};

struct AggregationEntry {
  std::uint64_t block = kNoBlock;   // of this round
  std::uint64_t next = kNeverNext;  // the sender's next one; of a result: the next one of all
  // Of block `next`; of a result: the largest of all workers. In formats that have none, of the last round:
  // how many slots the next such sum is worth (protocol/aggregation/column_count.h).
  std::int16_t exponent = kZeroExponent;
  std::uint16_t count = 0;  // elements
  std::uint8_t column = 0;
  bool version = false;
  bool data = false;   // `count` elements follow
  bool yours = false;  // of `missing`: the receiver's own contribution has not come
  bool above = false;  // of `missing`: all are here, and the switch above has not answered
  // Of a result: workers that the round ended without, whose numbers follow the data in ascending order. Of a
  // contribution: how many of the operation's rounds may end without any one worker.
  std::uint16_t absent = 0;
  bool operator==(const AggregationEntry&) const = default;
};

inline constexpr std::size_t kAggregationHeadBytes = 4;
inline constexpr std::size_t kAggregationEntryBytes = 24;
inline constexpr std::size_t kMaxColumns = 64;  // of one slot, and so entries of one message
inline constexpr std::size_t kMaxNames = 256;   // that one message names; and numbers of datagrams
inline constexpr std::size_t kMaxAbsent = 8;    // in one round: their names have room in each result

struct AggregationMessage {
  AggregationType type = AggregationType::contribution;
  AggregationFormat format = AggregationFormat::f32;
  std::uint8_t entries = 0;
  std::uint16_t number = 0;          // of a contribution or result
  std::span<const std::byte> body;   // all entries with their data
  std::span<const std::byte> names;  // of workers or datagrams, two bytes each
};

// Null, or why these bytes are no message of the header's type (a static string). The message points into the
// payload. Not for refusals.
[[nodiscard]] const char* decode(const DatagramHeader& header, std::span<const std::byte> payload,
                                 AggregationMessage& message);

// A result's number, of its payload alone; 0: it is too short to be one.
std::uint16_t number_of_result(std::span<const std::byte> payload);

// For the entries of a message that was decoded, and for nothing else.
AggregationEntry entry_at(std::span<const std::byte> body);
template <class Visit>
void for_each_entry(const AggregationMessage& message, Visit visit) {
  std::span<const std::byte> left = message.body;
  for (std::uint8_t i = 0; i < message.entries; ++i) {
    const AggregationEntry entry = entry_at(left);
    const std::size_t bytes = entry.data ? data_bytes(message.format, entry.count) : 0;
    const std::size_t names = message.type == AggregationType::result ? entry.absent * std::size_t{2} : 0;
    visit(entry, left.subspan(kAggregationEntryBytes, bytes));
    left = left.subspan(kAggregationEntryBytes + bytes + names);
  }
}
inline std::size_t names_in(const AggregationMessage& message) {
  return message.names.size() / 2;
}
std::uint16_t name_at(const AggregationMessage& message, std::size_t i);
// The i'th of a result's absent workers, whose names are behind the entry's data.
std::uint16_t absent_at(std::span<const std::byte> data, std::size_t i);

// Payload of a message of `columns` entries with `elements` each.
constexpr std::size_t aggregation_payload(std::size_t columns, std::size_t elements, std::size_t bytes) {
  return kAggregationHeadBytes + columns * (kAggregationEntryBytes + elements * bytes);
}

// Writes a message into memory that is large enough for it.
class AggregationWriter {
 public:
  explicit AggregationWriter(std::span<std::byte> buffer) : buffer_(buffer) {}
  void begin(AggregationFormat format, std::uint16_t number = 0);
  // Where the data belong; behind it where there are none.
  std::byte* add(const AggregationEntry& entry);
  // After the entry of a result, as often as it says: a worker that is absent, in ascending order.
  void add_absent(std::uint16_t worker);
  // A worker or datagram, in ascending order (of datagrams round and round) after all entries; of a message
  // that has no number itself.
  void add_name(std::uint16_t name);
  bool empty() const { return used_ <= kAggregationHeadBytes; }
  std::span<const std::byte> payload() const { return buffer_.first(used_); }

 private:
  std::span<std::byte> buffer_;
  std::size_t used_ = 0;
};

enum class AggregationReason : std::uint8_t {
  busy = 1,     // not now: again after the time that is said with it
  unknown_job,  // no such job is open here
  old_epoch,    // this epoch of the job is over, or has not begun
  stranger,     // the job has fewer workers
  disagreement  // of the others about the format or the count of this round's elements, or what may be absent
};
inline constexpr int kAggregationReasons = 5;
struct AggregationRefusal {
  AggregationReason reason = AggregationReason::busy;
  std::uint32_t wait_us = 0;                           // busy: so long
  AggregationType of = AggregationType::contribution;  // what was refused
};
inline constexpr std::size_t kRefusalBytes = 8;
void encode(const AggregationRefusal& refusal, std::span<std::byte, kRefusalBytes> payload);
[[nodiscard]] const char* decode(std::span<const std::byte> payload, AggregationRefusal& refusal);
// "the job has fewer workers": for people.
const char* to_string(AggregationReason reason);

}  // namespace talweg::wire
