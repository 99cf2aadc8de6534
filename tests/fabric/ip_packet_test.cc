#include "fabric/ip_packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <vector>

#include "fabric/lateness.h"
#include "wire/traffic_class.h"

namespace talweg::fabric {
namespace {

using Bytes = std::vector<std::uint8_t>;

// What all 16-bit words of a header come to, its checksum among them: 0xffff where that is right.
std::uint32_t header_sum(const Bytes& packet) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < std::size_t{4} * (packet[0] & 15); i += 2)
    sum += static_cast<std::uint32_t>(packet[i] << 8 | packet[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

// A UDP packet from 10.0.0.1 to 10.0.0.2 with a header of `words` and a right checksum.
Bytes udp_packet(std::uint8_t traffic_class, std::uint16_t port = 7, std::uint16_t identification = 1,
                 int words = 5) {
  Bytes p(static_cast<std::size_t>(4 * words) + 8 + 12, 0xab);
  std::fill(p.begin(), p.begin() + 4 * words, std::uint8_t{0});
  p[0] = static_cast<std::uint8_t>(0x40 | words);
  p[1] = traffic_class;
  p[3] = static_cast<std::uint8_t>(p.size());
  p[4] = static_cast<std::uint8_t>(identification >> 8);
  p[5] = static_cast<std::uint8_t>(identification);
  p[8] = 64;
  p[9] = 17;
  p[12] = p[16] = 10;
  p[15] = 1;
  p[19] = 2;
  const auto at = p.begin() + 4 * words;
  at[0] = at[2] = static_cast<std::uint8_t>(port >> 8);
  at[1] = at[3] = static_cast<std::uint8_t>(port);
  const std::uint32_t sum = ~header_sum(p);
  p[10] = static_cast<std::uint8_t>(sum >> 8);
  p[11] = static_cast<std::uint8_t>(sum);
  return p;
}

TEST(IpPacket, IsReadWithItsAddressesAndClass) {
  const auto ip = read_ip(udp_packet(0xb8));
  ASSERT_TRUE(ip);
  EXPECT_EQ(ip->source, 0x0a000001U);
  EXPECT_EQ(ip->destination, 0x0a000002U);
  EXPECT_EQ(ip->traffic_class, 0xb8);
}

TEST(IpPacket, IsNoneWhereLengthsOrVersionAreWrong) {
  const Bytes right = udp_packet(0);
  for (std::size_t n = 0; n < right.size(); ++n) EXPECT_FALSE(read_ip(std::span(right).first(n))) << n;
  Bytes longer = right;
  longer.push_back(0);
  EXPECT_FALSE(read_ip(longer));
  Bytes six = right;
  six[0] = 0x65;
  EXPECT_FALSE(read_ip(six));
  EXPECT_EQ(ip_version(six), 6);
  EXPECT_EQ(ip_version({}), 0);
  Bytes short_header = right, long_header = right;
  short_header[0] = 0x44;
  long_header[0] = 0x4f;  // of more words than there are
  EXPECT_FALSE(read_ip(short_header));
  EXPECT_FALSE(read_ip(long_header));
}

TEST(IpPacket, OfOneFlowHaveOneHashAndOthersAnother) {
  const auto flow = [](const Bytes& p) { return read_ip(p)->flow; };
  EXPECT_EQ(flow(udp_packet(0, 7, 1)), flow(udp_packet(2, 7, 2)));
  EXPECT_EQ(flow(udp_packet(0, 7)), flow(udp_packet(0, 7, 1, 15)));  // with options
  EXPECT_NE(flow(udp_packet(0, 7)), flow(udp_packet(0, 8)));
}

// The first fragment has the ports, and those behind it the middle of the payload where they would be.
TEST(IpPacket, FragmentsGoTheSameWay) {
  Bytes first = udp_packet(0, 7), second = udp_packet(0, 9);
  first[6] = 0x20;
  second[7] = 0x40;
  EXPECT_EQ(read_ip(first)->flow, read_ip(second)->flow);
}

TEST(IpPacket, IsMarkedWithARightChecksum) {
  for (int traffic_class = 0; traffic_class < 256; ++traffic_class)
    for (const int identification : {0, 1, 0x7fff, 0xfffe, 0xffff}) {
      Bytes packet =
          udp_packet(static_cast<std::uint8_t>(traffic_class), 7, static_cast<std::uint16_t>(identification));
      const Bytes before = packet;
      ASSERT_EQ(header_sum(packet), 0xffffU);
      mark_congestion(packet);
      EXPECT_EQ(header_sum(packet), 0xffffU) << traffic_class << " " << identification;
      if ((traffic_class & wire::kEcnMask) == 0)
        EXPECT_EQ(packet, before);
      else
        EXPECT_EQ(packet[1], traffic_class | wire::kEcnMarked);
    }
}

TEST(IpPacket, IsDamagedBehindItsHeaderByOneBit) {
  Random random{1};
  for (int i = 0; i < 200; ++i) {
    const Bytes before = udp_packet(0, 7, 1, 6);
    Bytes after = before;
    flip_payload_bit(after, random);
    int differ = 0;
    for (std::size_t b = 0; b < before.size(); ++b) {
      const int bits = std::popcount(static_cast<unsigned>(before[b] ^ after[b]));
      EXPECT_TRUE(bits == 0 || b >= 24);
      differ += bits;
    }
    EXPECT_EQ(differ, 1);
  }
  Bytes empty = udp_packet(0);
  empty.resize(20);
  flip_payload_bit(empty, random);  // there is nothing to flip
  EXPECT_EQ(header_sum(empty), 0xffffU);
}

TEST(Lateness, KnowsPercentilesToAnEighthAndTheWorst) {
  Lateness late;
  EXPECT_EQ(late.at_most(0.5), 0);
  for (std::int64_t ns = 1; ns <= 100'000; ++ns) late.add(ns);
  late.add(-5);  // early: not late
  EXPECT_EQ(late.count(), 100'001U);
  EXPECT_EQ(late.worst(), 100'000);
  for (const double share : {0.001, 0.1, 0.5, 0.99}) {
    const double exact = share * 100'000;
    EXPECT_GE(static_cast<double>(late.at_most(share)), exact * 0.999) << share;
    EXPECT_LE(static_cast<double>(late.at_most(share)), exact * 1.13 + 1) << share;
  }
  EXPECT_EQ(late.at_most(1), 100'000);
  late.add(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(late.at_most(1), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace talweg::fabric
