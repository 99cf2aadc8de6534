#include "wire/bounded.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "wire/datagram_cipher.h"

namespace talweg::wire {
namespace {

using testing::HasSubstr;

struct Datagram {
  DatagramHeader header;
  std::vector<std::byte> payload;
};

Datagram some_data(const BoundedData& data, std::uint8_t service = kOrdinary) {
  Datagram d;
  d.header.service = service;
  d.payload.resize(kBoundedHeadBytes + data.length());
  EXPECT_EQ(encode(data, 7, d.header, d.payload.data()), d.payload.size());
  return d;
}

Datagram a_report(const BoundedReport& report) {
  Datagram d;
  d.payload.resize(kMostReportBytes);
  d.payload.resize(encode(report, 7, d.header, d.payload.data()));
  return d;
}

template <class Message>
std::string why(const Datagram& d) {
  Message message;
  const char* const reason = decode(d.header, d.payload, message);
  return reason == nullptr ? "" : reason;
}

template <typename T>
Datagram with(Datagram d, std::size_t offset, T value) {
  std::memcpy(d.payload.data() + offset, &value, sizeof value);
  return d;
}

BoundedData random_data(Random& random) {
  BoundedData d;
  d.tensor = static_cast<std::uint32_t>(random.next());
  d.packets = 1 + static_cast<std::uint32_t>(random.below(random.below(2) == 0 ? 3 : 0xffffffff));
  d.packet = static_cast<std::uint32_t>(random.below(d.packets));
  d.must = static_cast<std::uint32_t>(random.below(std::uint64_t{d.packets} + 1));
  d.stride = static_cast<std::uint16_t>(1 + random.below(1400));
  d.tail = static_cast<std::uint16_t>(1 + random.below(d.stride));
  d.last = random.below(2) == 0;
  d.again = random.below(2) == 0;
  d.is_must = d.must > 0 && random.below(2) == 0;
  return d;
}

TEST(BoundedPackets, DataSurviveTheWire) {
  Random random{1};
  for (int i = 0; i < 1000; ++i) {
    const BoundedData data = random_data(random);
    const Datagram d = some_data(data);
    BoundedData got;
    ASSERT_STREQ(decode(d.header, d.payload, got), nullptr);
    ASSERT_EQ(got, data);
    ASSERT_EQ(d.header.own32, 7U);
    ASSERT_EQ(got.offset(), std::uint64_t{data.packet} * data.stride);
  }
}

TEST(BoundedPackets, ProbesSurviveTheWire) {
  const BoundedProbe probe{3, 9, 100, 4};
  Datagram d;
  d.header.service = kOrdinary | kDroppable;
  d.payload.resize(kProbeBytes);
  ASSERT_EQ(encode(probe, 7, d.header, d.payload.data()), kProbeBytes);
  EXPECT_EQ(d.header.service, kControlClass);
  BoundedProbe got;
  ASSERT_STREQ(decode(d.header, d.payload, got), nullptr);
  EXPECT_EQ(got, probe);
}

TEST(BoundedPackets, ReportsSurviveTheWire) {
  std::vector<std::byte> bits(kHoleWindow / 8, std::byte{0});
  bits[5] = std::byte{0x82};
  for (const BoundedType type : {BoundedType::holes, BoundedType::stop}) {
    BoundedReport report{type, 3, 2, 1, 3 * kHoleWindow, kHoleWindow, 2, BoundedEnd::delivered, bits};
    const Datagram d = a_report(report);
    BoundedReport got;
    ASSERT_STREQ(decode(d.header, d.payload, got), nullptr);
    EXPECT_EQ(got.type, type);
    EXPECT_EQ(got.tensor, 3U);
    EXPECT_EQ(got.round, 2U);
    EXPECT_EQ(got.probe, 1U);
    EXPECT_EQ(got.packets, 3 * kHoleWindow);
    EXPECT_EQ(got.first, kHoleWindow);
    EXPECT_EQ(got.missing, 2U);
    EXPECT_TRUE(got.is_missing(41));
    EXPECT_TRUE(got.is_missing(47));
    EXPECT_FALSE(got.is_missing(42));
  }
}

TEST(BoundedPackets, AStopOfATransferWithoutALossHasNoBits) {
  for (const auto end : {BoundedEnd::delivered, BoundedEnd::given_up, BoundedEnd::forgotten}) {
    const Datagram d = a_report({BoundedType::stop, 1, 0, 0, 10, 0, 0, end, {}});
    EXPECT_EQ(d.payload.size(), kReportHeadBytes);
    EXPECT_EQ(why<BoundedReport>(d), "");
  }
}

TEST(BoundedPackets, APacketCutAnywhereOrMadeLongerIsRefused) {
  const std::vector<std::byte> bits{std::byte{1}, std::byte{0}};
  Datagram data = some_data({1, 0, 2, 1, 40, 7, true, false, false});
  Datagram report = a_report({BoundedType::holes, 1, 1, 0, 10, 0, 1, BoundedEnd::delivered, bits});
  for (Datagram* d : {&data, &report}) {
    const bool is_data = d == &data;
    const std::vector<std::byte> whole = d->payload;
    for (std::size_t n = 0; n <= whole.size() + 1; ++n) {
      d->payload = whole;
      d->payload.resize(n);
      EXPECT_EQ((is_data ? why<BoundedData>(*d) : why<BoundedReport>(*d)).empty(), n == whole.size()) << n;
    }
  }
  Datagram probe;
  probe.payload.resize(kProbeBytes);
  encode(BoundedProbe{}, 7, probe.header, probe.payload.data());
  probe.payload.push_back({});
  EXPECT_THAT(why<BoundedProbe>(probe), HasSubstr("not as long as a probe"));
}

TEST(BoundedPackets, MalformedDataAreRefusedWithAReason) {
  const Datagram good = some_data({1, 1, 3, 1, 40, 7, true, false, true});
  ASSERT_EQ(why<BoundedData>(good), "");
  EXPECT_EQ(why<BoundedData>(with(good, 4, 3U)), "a packet behind the last one");
  EXPECT_EQ(why<BoundedData>(with(good, 8, 0U)), "a packet behind the last one");
  EXPECT_EQ(why<BoundedData>(with(good, 4, 2U)), "data of another length than they say");
  EXPECT_EQ(why<BoundedData>(with(good, 12, 4U)), "more packets that must arrive than there are packets");
  EXPECT_EQ(why<BoundedData>(with(good, 12, 0U)), "a packet that must arrive where none must");
  EXPECT_EQ(why<BoundedData>(with(good, 16, std::uint16_t{0})), "packets of an impossible length");
  EXPECT_EQ(why<BoundedData>(with(good, 18, std::uint16_t{0})), "packets of an impossible length");
  EXPECT_EQ(why<BoundedData>(with(good, 18, std::uint16_t{41})), "packets of an impossible length");
  EXPECT_EQ(why<BoundedData>(with(good, 20, std::uint8_t{8})), "data with unknown flags");
  EXPECT_EQ(why<BoundedData>(with(good, 23, std::uint8_t{1})), "data with unknown flags");
  Datagram other = good;
  other.header.service = kOrdinary | kDroppable;
  EXPECT_EQ(why<BoundedData>(other), "a packet that is needed and may be dropped");
  other = good;
  other.header.own16 = 1;
  EXPECT_EQ(why<BoundedData>(other), "a second number, which data have not");
  other = good;
  other.header.type = static_cast<std::uint8_t>(BoundedType::probe);
  EXPECT_EQ(why<BoundedData>(other), "no data of a bounded transfer");
}

TEST(BoundedPackets, MalformedProbesAreRefusedWithAReason) {
  Datagram good;
  good.payload.resize(kProbeBytes);
  encode(BoundedProbe{1, 1, 4, 2}, 7, good.header, good.payload.data());
  ASSERT_EQ(why<BoundedProbe>(good), "");
  EXPECT_EQ(why<BoundedProbe>(with(good, 4, 0U)), "a probe without a number");
  EXPECT_EQ(why<BoundedProbe>(with(good, 8, 0U)), "control about no packets");
  EXPECT_EQ(why<BoundedProbe>(with(good, 12, 5U)), "more packets that must arrive than there are packets");
  Datagram other = good;
  other.header.service = kOrdinary;
  EXPECT_EQ(why<BoundedProbe>(other), "control of another class than its own");
  other = good;
  other.header.own16 = 2;
  EXPECT_EQ(why<BoundedProbe>(other), "a second number, which control has not");
  other = good;
  other.header.type = static_cast<std::uint8_t>(BoundedType::stop);
  EXPECT_EQ(why<BoundedProbe>(other), "no probe of a bounded transfer");
}

TEST(BoundedPackets, MalformedReportsAreRefusedWithAReason) {
  const std::vector<std::byte> bits{std::byte{1}, std::byte{2}};
  const Datagram good = a_report({BoundedType::holes, 1, 1, 0, 10, 0, 2, BoundedEnd::delivered, bits});
  ASSERT_EQ(why<BoundedReport>(good), "");
  EXPECT_EQ(why<BoundedReport>(with(good, 4, 0U)), "holes without a round");
  EXPECT_EQ(why<BoundedReport>(with(good, 12, 0U)), "control about no packets");
  EXPECT_EQ(why<BoundedReport>(with(good, 12, 17U)), "a report of another length than it says");
  EXPECT_EQ(why<BoundedReport>(with(good, 12, 9U)), "holes behind the last packet");
  EXPECT_EQ(why<BoundedReport>(with(good, 16, 8U)), "a window that begins where none does");
  EXPECT_EQ(why<BoundedReport>(with(good, 16, kHoleWindow)), "a window that begins where none does");
  EXPECT_EQ(why<BoundedReport>(with(good, 20, 0U)), "holes where nothing is missing");
  EXPECT_EQ(why<BoundedReport>(with(good, 20, 1U)), "more holes in one window than in all");
  EXPECT_EQ(why<BoundedReport>(with(good, 20, 11U)), "more packets missing than there are");
  EXPECT_EQ(why<BoundedReport>(with(good, 24, std::uint8_t{1})), "holes of a transfer that has ended");
  EXPECT_EQ(why<BoundedReport>(with(good, 24, kBoundedEnds)), "a report of an unknown end");
  EXPECT_EQ(why<BoundedReport>(with(good, 25, std::uint8_t{1})), "a report of an unknown end");
  EXPECT_EQ(why<BoundedReport>(with(good, 28, std::uint16_t{0})), "a window without a hole");
  const Datagram stop =
      a_report({BoundedType::stop, 1, 1, 0, 3 * kHoleWindow, 0, 0, BoundedEnd::given_up, {}});
  ASSERT_EQ(why<BoundedReport>(stop), "");
  EXPECT_EQ(why<BoundedReport>(with(stop, 16, kHoleWindow)), "a window of no holes");
  Datagram other = good;
  other.header.service = kOrdinary;
  EXPECT_EQ(why<BoundedReport>(other), "control of another class than its own");
  other.header.type = static_cast<std::uint8_t>(BoundedType::data);
  EXPECT_EQ(why<BoundedReport>(other), "no report of a bounded transfer");
}

// Of a sealed datagram, one to three bits of which the network has turned: none gets as far as this decoder.
void expect_no_damage_passes(int tries) {
  const Secret key{};
  for (const auto protection : {DatagramProtection::checksum, DatagramProtection::authenticated}) {
    DatagramSealer sealer(key, {1, 1, 0, 1}, {protection, {}});
    DatagramOpener opener(key, {1, 1, 0, 1}, {protection, {}});
    Datagram d = some_data({1, 1, 3, 1, 200, 7, true, false, true});
    std::vector<std::byte> sealed(kDatagramHeaderBytes + d.payload.size() + 16);
    Random random{static_cast<std::uint64_t>(protection) + 5};
    sealed.resize(sealer.seal(d.header, d.payload.data(), sealed.data()));
    for (int i = 0; i < tries; ++i) {
      std::vector<std::byte> damaged = sealed;
      const std::uint64_t flips = 1 + random.below(3);
      std::vector<std::size_t> bits;
      while (bits.size() < flips) {
        const auto bit = random.below(damaged.size() * 8);
        if (std::ranges::find(bits, bit) == bits.end()) bits.push_back(bit);
      }
      for (const std::size_t bit : bits) damaged[bit / 8] ^= std::byte{1} << (bit % 8);
      DatagramHeader header;
      ASSERT_NE(opener.open(damaged, header), DatagramRefusal::none) << i;
    }
    DatagramHeader header;
    EXPECT_EQ(opener.open(sealed, header), DatagramRefusal::none);
  }
}

TEST(BoundedPackets, NoDamagedDatagramIsAccepted) {
  expect_no_damage_passes(20'000);
}

TEST(DatagramLong, NoneOfAMillionDamagedBoundedDatagramsIsAccepted) {
  expect_no_damage_passes(1'000'000);
}

TEST(BoundedPackets, OfATrialSayTheirSizeAndWhetherItIsTheLargest) {
  for (const BoundedTrial sent : {BoundedTrial{540, false}, BoundedTrial{8216, true}}) {
    Datagram d;
    d.payload.resize(sent.bytes, std::byte{0xee});
    EXPECT_EQ(encode(sent, d.header, d.payload.data()), sent.bytes);
    EXPECT_EQ(std::ranges::count(d.payload, std::byte{0}), sent.bytes) << "nothing of this process leaves";
    BoundedTrial came;
    EXPECT_EQ(decode(d.header, d.payload, came), nullptr);
    EXPECT_EQ(came, sent);
    EXPECT_EQ(why<BoundedData>(d), "no data of a bounded transfer");
    d.header.own32 = 1;
    EXPECT_EQ(why<BoundedTrial>(d), "a trial of an unknown kind");
    d.header.own32 = 0;
    d.header.own16 = 2;
    EXPECT_EQ(why<BoundedTrial>(d), "a trial of an unknown kind");
  }
  EXPECT_EQ(why<BoundedTrial>(some_data({1, 1, 3, 1, 200, 7, true, false, true})), "no trial of a way");
}

TEST(BoundedPackets, PeopleCanReadThem) {
  EXPECT_EQ(to_string(BoundedData{3, 4, 9, 1, 1400, 8, true, true, true}, 7),
            "data of tensor 3, iteration 7: packet 4 of 9, 1400 bytes, last, again, must arrive");
  EXPECT_STREQ(to_string(BoundedEnd::given_up), "was given up by its receiver");
}

}  // namespace
}  // namespace talweg::wire
