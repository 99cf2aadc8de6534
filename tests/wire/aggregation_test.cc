#include "wire/aggregation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "wire/switchml.h"

namespace talweg::wire {
namespace {

DatagramHeader header_of(AggregationType type) {
  DatagramHeader header;
  header.type = static_cast<std::uint8_t>(type);
  return header;
}

const DatagramHeader kContribution = header_of(AggregationType::contribution);

AggregationEntry entry_with_data() {
  AggregationEntry entry{4, 9, -126, 3, 1, true};
  entry.data = true;
  return entry;
}

std::vector<std::byte> two_entries(AggregationFormat format) {
  std::vector<std::byte> buffer(200, std::byte{0x77});
  AggregationWriter writer(buffer);
  writer.begin(format);
  std::byte* const data = writer.add(entry_with_data());
  std::memset(data, 0x11, 3 * element_bytes(format));
  writer.add({kNoBlock, 7, 128, 0, 5, false});
  return {writer.payload().begin(), writer.payload().end()};
}

TEST(AggregationMessage, SaysWhatWasWritten) {
  for (const AggregationFormat format : {AggregationFormat::f16, AggregationFormat::scaled}) {
    const auto payload = two_entries(format);
    EXPECT_EQ(payload.size(), kAggregationHeadBytes + 2 * kAggregationEntryBytes + 3 * element_bytes(format));
    AggregationMessage message;
    ASSERT_EQ(decode(kContribution, payload, message), nullptr);
    EXPECT_EQ(message.format, format);
    std::vector<AggregationEntry> entries;
    for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte> data) {
      EXPECT_EQ(data.size(), entries.empty() ? 3 * element_bytes(format) : 0U);
      for (const std::byte b : data) EXPECT_EQ(b, std::byte{0x11});
      entries.push_back(entry);
    });
    ASSERT_EQ(entries.size(), 2U);
    EXPECT_EQ(entries[0], entry_with_data());
    EXPECT_EQ(entries[1], (AggregationEntry{kNoBlock, 7, 128, 0, 5, false}));
  }
}

// A scale of four bytes for each 256, and what is left, before its codes.
TEST(AggregationMessage, OfCodesIsAsLongAsTheseAndTheirScales) {
  for (const auto& [format, count, bytes] : {std::tuple(AggregationFormat::block8, 3, 4U + 3),
                                             std::tuple(AggregationFormat::block8, 344, 8U + 344),
                                             std::tuple(AggregationFormat::block4, 3, 4U + 2),
                                             std::tuple(AggregationFormat::block4, 344, 24U + 172)}) {
    std::vector<std::byte> buffer(1000);
    AggregationWriter writer(buffer);
    writer.begin(format);
    AggregationEntry entry = entry_with_data();
    entry.count = static_cast<std::uint16_t>(count);
    writer.add(entry);
    writer.add({kNoBlock, 7, kZeroExponent, 0, 5, false});
    const auto payload = writer.payload();
    EXPECT_EQ(payload.size(), kAggregationHeadBytes + 2 * kAggregationEntryBytes + bytes);
    AggregationMessage message;
    ASSERT_EQ(decode(kContribution, payload, message), nullptr);
    std::vector<std::size_t> sizes;
    for_each_entry(message, [&](const AggregationEntry&, std::span<const std::byte> data) {
      sizes.push_back(data.size());
    });
    EXPECT_EQ(sizes, (std::vector<std::size_t>{bytes, 0}));
    EXPECT_NE(decode(kContribution, payload.first(payload.size() - 1), message), nullptr);
    EXPECT_EQ(type_in_memory(format), DataType::f32);
    EXPECT_EQ(format_of_floats(name(format)), format);
  }
  EXPECT_EQ(format_of_floats("type"), AggregationFormat::f32);
  EXPECT_EQ(format_of_floats("f16"), std::nullopt);
}

TEST(AggregationMessage, NamesWorkersThatAreMissing) {
  std::vector<std::byte> buffer(200);
  AggregationWriter writer(buffer);
  writer.begin(AggregationFormat::f32);
  AggregationEntry entry;
  entry.block = 3;
  entry.yours = true;
  writer.add(entry);
  writer.add_name(2);
  writer.add_name(65534);
  AggregationMessage message;
  ASSERT_EQ(decode(header_of(AggregationType::missing), writer.payload(), message), nullptr);
  ASSERT_EQ(names_in(message), 2U);
  EXPECT_EQ(name_at(message, 0), 2);
  EXPECT_EQ(name_at(message, 1), 65534);
  EXPECT_EQ(entry_at(message.body), entry);
  EXPECT_NE(decode(header_of(AggregationType::result), writer.payload(), message), nullptr)
      << "a result has a number and no names";
}

TEST(AggregationMessage, NamesWorkersThatARoundEndedWithoutBehindItsData) {
  const DatagramHeader result = header_of(AggregationType::result);
  std::vector<std::byte> buffer(200);
  AggregationWriter writer(buffer);
  AggregationEntry entry = entry_with_data();
  entry.absent = 2;
  writer.begin(AggregationFormat::f16, 7);
  std::memset(writer.add(entry), 0x11, 6);
  writer.add_absent(3);
  writer.add_absent(500);
  writer.add({8, 12, kZeroExponent, 0, 5, false});
  AggregationMessage message;
  ASSERT_EQ(decode(result, writer.payload(), message), nullptr);
  EXPECT_EQ(message.number, 7);
  std::vector<AggregationEntry> entries;
  for_each_entry(message, [&](const AggregationEntry& e, std::span<const std::byte> data) {
    entries.push_back(e);
    if (e.absent == 0) return;
    EXPECT_EQ(data.size(), 6U);
    EXPECT_EQ(absent_at(data, 0), 3);
    EXPECT_EQ(absent_at(data, 1), 500);
  });
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0], entry);
  EXPECT_EQ(entries[1].block, 8U);
  for (std::size_t bytes = 0; bytes < writer.payload().size(); ++bytes)
    EXPECT_NE(decode(result, writer.payload().first(bytes), message), nullptr) << bytes;

  const auto why = [&](std::uint16_t absent, std::uint16_t first, std::uint16_t second,
                       AggregationType type) {
    writer.begin(AggregationFormat::f16);
    entry.absent = absent;
    writer.add(entry);
    writer.add_absent(first);
    writer.add_absent(second);
    const char* const text = decode(header_of(type), writer.payload(), message);
    return std::string(text == nullptr ? "" : text);
  };
  EXPECT_EQ(why(2, 3, 4, AggregationType::result), "");
  EXPECT_EQ(why(2, 4, 4, AggregationType::result), "names that do not ascend");
  EXPECT_EQ(why(3, 3, 4, AggregationType::result), "shorter than its names");
  EXPECT_EQ(why(kMaxAbsent + 1, 3, 4, AggregationType::result), "more absent workers than there can be");
  EXPECT_EQ(why(2, 3, 4, AggregationType::contribution), "not as long as it says")
      << "there it is a number alone";
}

TEST(AggregationMessage, NamesDatagramsThatHaveNotCome) {
  std::vector<std::byte> buffer(1000);
  AggregationWriter writer(buffer);
  writer.begin(AggregationFormat::bf16);
  EXPECT_TRUE(writer.empty());
  AggregationMessage message;
  EXPECT_NE(decode(header_of(AggregationType::gap), writer.payload(), message), nullptr)
      << "a gap of nothing";
  writer.add_name(65535);
  writer.add_name(0);
  EXPECT_FALSE(writer.empty());
  ASSERT_EQ(decode(header_of(AggregationType::gap), writer.payload(), message), nullptr);
  EXPECT_EQ(message.number, 0);
  ASSERT_EQ(names_in(message), 2U);
  EXPECT_EQ(name_at(message, 0), 65535);
  EXPECT_EQ(name_at(message, 1), 0);
  for (const AggregationType type : {AggregationType::gap, AggregationType::missing}) {
    AggregationWriter many(buffer);
    many.begin(AggregationFormat::f32);
    if (type == AggregationType::missing) many.add({});
    for (std::size_t i = 0; i < kMaxNames; ++i) many.add_name(static_cast<std::uint16_t>(i));
    EXPECT_EQ(decode(header_of(type), many.payload(), message), nullptr);
    many.add_name(1000);
    EXPECT_NE(decode(header_of(type), many.payload(), message), nullptr) << "one too many";
  }
  for (const auto& [type, names, good] : {std::tuple{AggregationType::gap, std::pair{7, 7}, false},
                                          {AggregationType::gap, {7, 6}, false},
                                          {AggregationType::gap, {40000, 2}, true},
                                          {AggregationType::missing, {2, 40000}, true},
                                          {AggregationType::missing, {40000, 2}, false},
                                          {AggregationType::missing, {7, 7}, false}}) {
    writer.begin(AggregationFormat::f32);
    if (type == AggregationType::missing) writer.add({});
    writer.add_name(static_cast<std::uint16_t>(names.first));
    writer.add_name(static_cast<std::uint16_t>(names.second));
    EXPECT_EQ(decode(header_of(type), writer.payload(), message) == nullptr, good)
        << names.first << ", " << names.second;
  }
  writer.begin(AggregationFormat::bf16);
  writer.add({});
  writer.add_name(7);
  EXPECT_NE(decode(header_of(AggregationType::gap), writer.payload(), message), nullptr) << "with an entry";
}

TEST(AggregationMessage, HasANumberWhereItIsInASequence) {
  std::vector<std::byte> buffer(200);
  AggregationWriter writer(buffer);
  writer.begin(AggregationFormat::f32, 54321);
  writer.add({});
  AggregationMessage message;
  for (const AggregationType type : {AggregationType::contribution, AggregationType::result}) {
    ASSERT_EQ(decode(header_of(type), writer.payload(), message), nullptr);
    EXPECT_EQ(message.number, 54321);
    EXPECT_EQ(names_in(message), 0U);
  }
  EXPECT_NE(decode(header_of(AggregationType::query), writer.payload(), message), nullptr);
}

TEST(AggregationMessage, OfAnyOtherLengthIsRefused) {
  const auto payload = two_entries(AggregationFormat::f32);
  AggregationMessage message;
  for (std::size_t n = 0; n < payload.size(); ++n)
    EXPECT_NE(decode(kContribution, std::span(payload).first(n), message), nullptr) << n;
  auto longer = payload;
  longer.push_back({});
  EXPECT_NE(decode(kContribution, longer, message), nullptr);
}

// Each with one byte that makes nonsense of it.
TEST(AggregationMessage, ThatMakesNoSenseIsRefused) {
  constexpr std::size_t kFirst = kAggregationHeadBytes, kSecond = kFirst + kAggregationEntryBytes + 3 * 4;
  const struct {
    const char* what;
    std::size_t at;
    std::uint8_t value;
  } changes[] = {
      {"an unknown format", 0, kAggregationFormats},
      {"no entries", 1, 0},
      {"more entries than there are", 1, 3},
      {"a next block that is this one", kFirst + 8, 4},
      {"an exponent below all", kFirst + 16, 0x81},
      {"more elements than data", kFirst + 18, 4},
      {"data without a count", kFirst + 18, 0},
      {"a column beyond the last", kFirst + 20, kMaxColumns},
      {"columns that do not ascend", kFirst + 20, 5},
      {"an unknown flag", kFirst + 21, 0x13},
      {"a flag that only `missing` has", kFirst + 21, 0x07},
      {"data of no block", kSecond + 21, 0x02},
  };
  AggregationMessage message;
  for (const auto& change : changes) {
    auto payload = two_entries(AggregationFormat::f32);
    payload[change.at] = std::byte{change.value};
    EXPECT_NE(decode(kContribution, payload, message), nullptr) << change.what;
  }
}

// Null: such an entry is one. Keys are `block` + distance.
const char* why_no_pairs(std::uint64_t block, std::uint64_t next,
                         const std::vector<std::uint16_t>& distances) {
  std::vector<std::byte> buffer(200);
  AggregationWriter writer(buffer);
  writer.begin(AggregationFormat::pairs);
  AggregationEntry entry{block, next, kZeroExponent, static_cast<std::uint16_t>(distances.size()), 0, false};
  entry.data = true;
  std::byte* const data = writer.add(entry);
  std::memset(data, 0x3f, distances.size() * 4);
  std::memcpy(data + distances.size() * 4, distances.data(), distances.size() * 2);
  AggregationMessage message;
  const char* const why = decode(kContribution, writer.payload(), message);
  if (why == nullptr)
    for_each_entry(message, [&](const AggregationEntry&, std::span<const std::byte> bytes) {
      const PairsOnWire pairs(bytes);
      EXPECT_EQ(pairs.count, distances.size());
      for (std::size_t i = 0; i < pairs.count; ++i) EXPECT_EQ(pairs.distance(i), distances[i]);
    });
  return why;
}

TEST(AggregationMessage, OfPairsHasKeysThatAscendUpToTheNextOne) {
  EXPECT_EQ(why_no_pairs(4, 9, {0}), nullptr);
  EXPECT_EQ(why_no_pairs(4, 9, {0, 2, 4}), nullptr);
  EXPECT_EQ(why_no_pairs(4, kNeverNext, {7, 65534, 65535}), nullptr);
  EXPECT_STREQ(why_no_pairs(4, 9, {0, 3, 3}), "keys that do not ascend");
  EXPECT_STREQ(why_no_pairs(4, 9, {3, 1}), "keys that do not ascend");
  EXPECT_STREQ(why_no_pairs(4, 9, {0, 5}), "a key that is not before the next one");
  EXPECT_STREQ(why_no_pairs(kNoBlock - 2, kNeverNext, {0, 2}), "a key that is not before the next one");
  EXPECT_NE(why_no_pairs(kNoBlock, 9, {0}), nullptr);
}

TEST(AggregationMessage, WithSomethingWhereNothingIsIsRefused) {
  for (const AggregationType type : {AggregationType::query, AggregationType::missing}) {
    std::vector<std::byte> buffer(100);
    AggregationWriter writer(buffer);
    writer.begin(AggregationFormat::f32);
    writer.add({4, 9, kZeroExponent, 0, 1, true});
    std::vector<std::byte> payload(writer.payload().begin(), writer.payload().end());
    AggregationMessage message;
    EXPECT_EQ(decode(header_of(type), payload, message), nullptr);
    payload[kAggregationHeadBytes + 22] = std::byte{1};
    EXPECT_NE(decode(header_of(type), payload, message), nullptr);
  }
}

TEST(AggregationMessage, OfAnotherTypeIsRefused) {
  const auto payload = two_entries(AggregationFormat::f32);
  AggregationMessage message;
  for (const int type :
       {0, kAggregationTypes - 1, int{kAggregationTypeEnd} - 1, int{kAggregationTypeEnd}, 255}) {
    DatagramHeader header;
    header.type = static_cast<std::uint8_t>(type);
    EXPECT_NE(decode(header, payload, message), nullptr) << type;
  }
  EXPECT_NE(decode(header_of(AggregationType::query), payload, message), nullptr) << "a query has no data";
}

TEST(AggregationRefusal, SaysWhyAndForHowLong) {
  std::byte bytes[kRefusalBytes];
  for (int reason = 1; reason <= kAggregationReasons; ++reason) {
    encode(AggregationRefusal{static_cast<AggregationReason>(reason), 1234567, AggregationType::query},
           bytes);
    AggregationRefusal refusal;
    ASSERT_EQ(decode(bytes, refusal), nullptr);
    EXPECT_EQ(static_cast<int>(refusal.reason), reason);
    EXPECT_EQ(refusal.wait_us, 1234567U);
    EXPECT_EQ(refusal.of, AggregationType::query);
    EXPECT_STRNE(to_string(refusal.reason), "");
  }
  AggregationRefusal refusal;
  for (std::size_t n = 0; n < kRefusalBytes; ++n)
    EXPECT_NE(decode(std::span<const std::byte>(bytes, n), refusal), nullptr);
  bytes[0] = std::byte{0};
  EXPECT_NE(decode(bytes, refusal), nullptr);
  bytes[0] = std::byte{kAggregationReasons + 1};
  EXPECT_NE(decode(bytes, refusal), nullptr);
}

// As the published client lays them out.
TEST(SwitchmlPacket, HasItsBytesWhereTheyArePublished) {
  std::vector<std::byte> packet(switchml_bytes(64));
  const SwitchmlHeader header{5, 0xab, 0x01020304, 0x1234, true, {-3, 7}, 64};
  encode(header, packet.data());
  const std::uint8_t expected[] = {0x51, 0xab, 1, 2, 3, 4, 0x92, 0x34, 0xfd, 7};
  EXPECT_EQ(std::memcmp(packet.data(), expected, sizeof expected), 0);
  SwitchmlHeader decoded;
  ASSERT_EQ(decode(packet, decoded), nullptr);
  EXPECT_EQ(decoded, header);
}

TEST(SwitchmlPacket, ComesBackAsItWasWrittenWhateverItSays) {
  Random random(51);
  std::vector<std::byte> packet(kMaxSwitchmlBytes);
  for (int i = 0; i < 2000; ++i) {
    SwitchmlHeader header;
    header.kind = static_cast<std::uint8_t>(random.below(16));
    header.job = static_cast<std::uint8_t>(random.next());
    header.packet = static_cast<std::uint32_t>(random.next());
    header.slot = static_cast<std::uint16_t>(random.below(kSwitchmlSlots));
    header.version = random.below(2) == 0;
    header.exponents[0] = static_cast<std::int8_t>(random.next());
    header.exponents[1] = static_cast<std::int8_t>(random.next());
    header.elements = random.below(2) == 0 ? 64 : 256;
    encode(header, packet.data());
    SwitchmlHeader decoded;
    const std::span<const std::byte> whole(packet.data(), switchml_bytes(header.elements));
    ASSERT_EQ(decode(whole, decoded), nullptr);
    ASSERT_EQ(decoded, header);
    EXPECT_NE(decode(whole.first(whole.size() - 1), decoded), nullptr);
  }
}

TEST(SwitchmlPacket, OfASizeThatNoWorkerHasOrCutShortIsRefused) {
  std::vector<std::byte> packet(switchml_bytes(256));
  encode({0, 0, 0, 0, false, {0, 0}, 256}, packet.data());
  SwitchmlHeader decoded;
  for (std::size_t n = 0; n < packet.size(); ++n)
    ASSERT_NE(decode(std::span(packet).first(n), decoded), nullptr) << n;
  for (const int size : {0, 2, 4, 5, 6, 7}) {
    packet[0] = static_cast<std::byte>(size);
    EXPECT_NE(decode(packet, decoded), nullptr) << size;
  }
}

}  // namespace
}  // namespace talweg::wire
