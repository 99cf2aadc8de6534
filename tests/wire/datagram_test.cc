#include "wire/datagram.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <vector>

#include "base/crc32c.h"
#include "base/random.h"
#include "sanitized.h"
#include "wire/datagram_cipher.h"

namespace talweg::wire {
namespace {

using Packet = std::vector<std::byte>;
using Why = DatagramRefusal;

const Secret kDatagramKey = secret_from_text("a key for datagrams");
constexpr DatagramScope kScope{0x1234'5678'9abc'def0, 3, 5, 7};

std::vector<DatagramSuite> suites() {
  std::vector<DatagramSuite> all{{DatagramProtection::checksum, CipherKind::chacha20_poly1305}};
  for (const auto protection : {DatagramProtection::authenticated, DatagramProtection::encrypted}) {
    all.push_back({protection, CipherKind::chacha20_poly1305});
    if (has_aes()) all.push_back({protection, CipherKind::aes256_gcm});
  }
  return all;
}

Packet random_packet(Random& random, std::size_t bytes) {
  Packet packet(bytes);
  for (auto& b : packet) b = static_cast<std::byte>(random.next());
  return packet;
}

Packet sealed(DatagramSealer& sealer, DatagramHeader header, const Packet& payload) {
  header.length = static_cast<std::uint16_t>(payload.size());
  Packet packet(kDatagramHeaderBytes + payload.size() + trailer_bytes(sealer.suite().protection));
  EXPECT_EQ(sealer.seal(header, payload.data(), packet.data()), packet.size());
  return packet;
}

TEST(Datagram, WhatIsSealedIsOpenedAsItWas) {
  Random random{1};
  for (const DatagramSuite suite : suites()) {
    DatagramSealer sealer(kDatagramKey, kScope, suite);
    DatagramOpener opener(kDatagramKey, kScope, suite);
    for (std::size_t bytes : {0UL, 1UL, 15UL, 16UL, 17UL, 1408UL, kMaxDatagramPayload}) {
      const Packet payload = random_packet(random, bytes);
      DatagramHeader header{.type = 9, .service = kDroppable | 2, .own16 = 77, .own32 = 0xdeadbeef};
      Packet packet = sealed(sealer, header, payload);
      DatagramHeader got;
      ASSERT_EQ(opener.open(packet, got), Why::none);
      EXPECT_EQ(got.own32, 0xdeadbeef);
      EXPECT_EQ(got.own16, 77);
      EXPECT_EQ(got.type, 9);
      EXPECT_EQ(got.service, kDroppable | 2);
      EXPECT_EQ(got.length, bytes);
      EXPECT_EQ(got.job, 0x9abcdef0U);
      EXPECT_TRUE(std::equal(payload.begin(), payload.end(), packet.begin() + kDatagramHeaderBytes));
    }
    EXPECT_EQ(sealer.number(), 7U);
  }
}

TEST(Datagram, AnEncryptedPayloadIsNotThereToRead) {
  for (const DatagramSuite suite : suites()) {
    DatagramSealer sealer(kDatagramKey, kScope, suite);
    const Packet payload(1000, std::byte{0x5a});
    const Packet a = sealed(sealer, {.type = 1}, payload);
    const Packet b = sealed(sealer, {.type = 1}, payload);
    const auto body = [](const Packet& p) {
      return Packet(p.begin() + kDatagramHeaderBytes, p.begin() + 1032);
    };
    EXPECT_EQ(body(a) == payload, suite.protection != DatagramProtection::encrypted);
    EXPECT_EQ(body(a) == body(b), suite.protection != DatagramProtection::encrypted)
        << "a nonce was used twice";
    EXPECT_NE(Packet(a.end() - 4, a.end()), Packet(b.end() - 4, b.end()));
  }
}

TEST(Datagram, APayloadMayBeSealedWhereItLies) {
  for (const DatagramSuite suite : suites()) {
    DatagramSealer one(kDatagramKey, kScope, suite), other(kDatagramKey, kScope, suite);
    const Packet payload(100, std::byte{3});
    const Packet expected = sealed(one, {.type = 1}, payload);
    Packet packet(expected.size());
    std::copy(payload.begin(), payload.end(), packet.begin() + kDatagramHeaderBytes);
    DatagramHeader header{.type = 1, .length = 100};
    other.seal(header, packet.data() + kDatagramHeaderBytes, packet.data());
    EXPECT_EQ(packet, expected);
  }
}

TEST(Datagram, WhatIsNotForThisReceiverIsRefusedWithItsReason) {
  for (const DatagramSuite suite : suites()) {
    const auto refusal_of = [&](const Secret& key, DatagramScope from, DatagramSuite made) {
      DatagramSealer sealer(key, from, made);
      Packet packet = sealed(sealer, {.type = 1}, Packet(100));
      const Packet before = packet;
      DatagramOpener opener(kDatagramKey, kScope, suite);
      DatagramHeader header;
      const auto why = opener.open(packet, header);
      if (why != Why::none) {
        EXPECT_EQ(opener.window().next(), 0U);
        EXPECT_EQ(header, DatagramHeader{});
      }
      return why;
    };
    DatagramScope other = kScope;
    EXPECT_EQ(refusal_of(kDatagramKey, other, suite), Why::none);
    other.job ^= 1;
    EXPECT_EQ(refusal_of(kDatagramKey, other, suite), Why::job);
    other = kScope;
    ++other.epoch;
    EXPECT_EQ(refusal_of(kDatagramKey, other, suite), Why::epoch);
    other = kScope;
    ++other.from;
    EXPECT_EQ(refusal_of(kDatagramKey, other, suite), Why::sender);
    other = kScope;
    other.to = kEverybody;
    EXPECT_EQ(refusal_of(kDatagramKey, other, suite), Why::sender);
    if (suite.protection == DatagramProtection::checksum) continue;
    other = kScope;
    ++other.to;
    EXPECT_EQ(refusal_of(kDatagramKey, other, suite), Why::damaged);
    std::swap(other.from, other.to);
    other = kScope;
    other.job ^= 1ULL << 63;  // which does not travel, but is in the key
    EXPECT_EQ(refusal_of(kDatagramKey, other, suite), Why::damaged);
    EXPECT_EQ(refusal_of(secret_from_text("another key for them"), kScope, suite), Why::damaged);
    const auto mode = suite.protection == DatagramProtection::encrypted ? DatagramProtection::authenticated
                                                                        : DatagramProtection::encrypted;
    EXPECT_EQ(refusal_of(kDatagramKey, kScope, {mode, suite.cipher}), Why::mode);
  }
}

TEST(Datagram, WhatSomebodySentIsNotTakenForAnAnswerOfItsReceiver) {
  const DatagramSuite suite{DatagramProtection::authenticated, CipherKind::chacha20_poly1305};
  DatagramSealer sealer(kDatagramKey, kScope, suite);
  Packet packet = sealed(sealer, {.type = 1}, Packet(10));
  DatagramScope back = kScope;
  std::swap(back.from, back.to);
  DatagramHeader header;
  std::memcpy(&header, packet.data(), sizeof header);
  header.sender = back.from;  // reflected, and made to look as if it came from the other side
  encode(header, packet.data());
  DatagramOpener opener(kDatagramKey, back, suite);
  EXPECT_EQ(opener.open(packet, header), Why::damaged);
}

TEST(Key, AMixedSecretNeedsBoth) {
  const Secret a = secret_from_text("one of the secrets"), b = secret_from_text("the other of them");
  EXPECT_EQ(mixed(a, b), mixed(a, b));
  EXPECT_NE(mixed(a, b), mixed(b, a));
  EXPECT_NE(mixed(a, b), mixed(a, a));
  EXPECT_NE(mixed(a, b), a);
}

TEST(Datagram, EveryCutAndEveryFieldOutOfRangeIsRefused) {
  const DatagramSuite suite = suites().front();
  DatagramSealer sealer(kDatagramKey, kScope, suite);
  const Packet good = sealed(sealer, {.type = 1}, Packet(50));
  DatagramHeader header;
  ASSERT_EQ(decode(good, suite.protection, header), Why::none);
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_EQ(decode(std::span(good).first(n), suite.protection, header),
              n < 36 ? Why::too_short : Why::length);
  Packet longer = good;
  longer.push_back({});
  EXPECT_EQ(decode(longer, suite.protection, header), Why::length);
  const auto with = [&](std::size_t at, int value) {
    Packet bad = good;
    bad[at] = static_cast<std::byte>(value);
    return decode(bad, suite.protection, header);
  };
  EXPECT_EQ(with(0, 0), Why::foreign);
  EXPECT_EQ(with(2, 2), Why::version);
  EXPECT_EQ(with(3, 0), Why::type);
  EXPECT_EQ(with(3, kDatagramTypes), Why::type);
  EXPECT_EQ(with(3, kDatagramTypes - 1), Why::none);
  EXPECT_EQ(with(4, kDatagramAsks), Why::none);
  EXPECT_EQ(with(4, 8), Why::type);
  EXPECT_EQ(with(4, 2), Why::mode);
  EXPECT_EQ(with(5, 16), Why::type);
  EXPECT_EQ(with(6, 51), Why::length);
  EXPECT_EQ(with(7, 255), Why::length);
}

// Of flags the sealer keeps that a sender asks, and sets the others itself.
TEST(Datagram, TheSealerKeepsNoFlagButThatOneAsks) {
  const DatagramSuite suite = suites().front();
  DatagramSealer sealer(kDatagramKey, kScope, suite);
  DatagramHeader header;
  ASSERT_EQ(decode(sealed(sealer, {.type = 1, .flags = 0xff}, Packet(50)), suite.protection, header),
            Why::none);
  EXPECT_EQ(header.flags, kDatagramAsks);
  ASSERT_EQ(decode(sealed(sealer, {.type = 1}, Packet(50)), suite.protection, header), Why::none);
  EXPECT_EQ(header.flags, 0);
}

// Whoever numbers datagrams beyond the end would soon begin anew, and the window of what has come would let
// old ones in again.
TEST(Datagram, NumbersBeyondTheirEndAreRefused) {
  const DatagramSuite suite{DatagramProtection::checksum, CipherKind::chacha20_poly1305};
  DatagramSealer sealer(kDatagramKey, kScope, suite);
  DatagramOpener opener(kDatagramKey, kScope, suite);
  Packet packet = sealed(sealer, {.type = 9}, Packet(5));
  const auto open_as = [&](std::uint64_t number) {
    std::memcpy(packet.data() + offsetof(DatagramHeader, number), &number, sizeof number);
    const std::uint32_t sum = crc32c(packet.data(), packet.size() - sizeof sum);
    std::memcpy(packet.data() + packet.size() - sizeof sum, &sum, sizeof sum);
    DatagramHeader header;
    return opener.open(packet, header);
  };
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 62;
  for (const std::uint64_t number : {kEnd, kEnd + 1, ~std::uint64_t{0}})
    EXPECT_EQ(open_as(number), Why::damaged) << number;
  EXPECT_EQ(opener.window().next(), 0U) << "nothing has changed";
  EXPECT_EQ(open_as(kEnd - 1), Why::none);
}

TEST(Datagram, WhatIsTooLongIsNotSealed) {
  const DatagramSuite suite = suites().back();
  DatagramSealer sealer(kDatagramKey, kScope, suite);
  DatagramHeader header{.type = 1, .length = static_cast<std::uint16_t>(kMaxDatagramPayload + 1)};
  EXPECT_EQ(sealer.seal(header, nullptr, nullptr), 0U);
  EXPECT_EQ(sealer.number(), 0U);
}

TEST(Datagram, AnMtuSaysWhatOneCarries) {
  EXPECT_EQ(datagram_payload(1500, false, DatagramProtection::authenticated), 1424U);
  EXPECT_EQ(datagram_payload(1500, true, DatagramProtection::checksum), 1416U);
  EXPECT_EQ(datagram_payload(9000, false, DatagramProtection::checksum), 8936U);
  EXPECT_EQ(datagram_payload(65536, false, DatagramProtection::encrypted), kMaxDatagramPayload);
  EXPECT_EQ(datagram_payload(76, false, DatagramProtection::encrypted), 0U);
  EXPECT_EQ(datagram_payload(0, true, DatagramProtection::encrypted), 0U);
}

TEST(Datagram, RefusalsAreCountedAndSaidByReason) {
  DatagramRefusals refusals;
  EXPECT_EQ(refusals.to_string(), "");
  for (int i = 0; i < 3; ++i) refusals.count(Why::damaged);
  refusals.count(Why::job);
  EXPECT_EQ(refusals.to_string(), "1 of another job, 3 damaged");
  EXPECT_EQ(refusals.total(), 4U);
  EXPECT_EQ(refusals[Why::damaged], 3U);
  for (std::size_t i = 0; i < static_cast<std::size_t>(Why::count_); ++i)
    EXPECT_STRNE(to_string(static_cast<Why>(i)), "an unknown reason");
}

TEST(Datagram, IsSaidInWords) {
  EXPECT_EQ(to_string(DatagramHeader{.type = 3,
                                     .flags = kDatagramToAll,
                                     .service = kDroppable | 2,
                                     .length = 100,
                                     .job = 0xbeef,
                                     .epoch = 4,
                                     .sender = 5,
                                     .own16 = 6,
                                     .own32 = 7,
                                     .number = 8}),
            "type 3 #8 from 5 job 0000beef epoch 4 priority 2 droppable own 6/7 length 100 to all");
}

// Bits are changed, bytes cut off, added, exchanged with those of another datagram; then it is opened. Each
// is changed in such a way that a checksum finds it for certain: up to three bits.
void damage(std::uint64_t packets, std::uint64_t seed) {
  for (const DatagramSuite suite : suites()) {
    Random random{seed, static_cast<std::uint64_t>(suite.protection)};
    DatagramSealer sealer(kDatagramKey, kScope, suite);
    DatagramOpener opener(kDatagramKey, kScope, suite);
    DatagramRefusals refusals;
    for (std::uint64_t i = 0; i < packets; ++i) {
      const Packet good = sealed(sealer, {.type = 1, .own32 = static_cast<std::uint32_t>(i)},
                                 random_packet(random, random.below(200)));
      Packet bad = good;
      if (random.below(8) == 0) {
        bad.resize(random.below(good.size()));
      } else {
        const auto flips = 1 + random.below(3);
        std::set<std::uint64_t> bits;
        while (bits.size() < flips) bits.insert(random.below(bad.size() * 8));
        for (const auto bit : bits) bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      }
      DatagramHeader header;
      const auto why = opener.open(bad, header);
      ASSERT_NE(why, Why::none) << "seed " << seed << " packet " << i;
      refusals.count(why);
      if (i % 16 != 0) continue;
      Packet sound = good;  // nothing damaged moved the window
      ASSERT_EQ(opener.open(sound, header), Why::none);
      ASSERT_EQ(header.own32, static_cast<std::uint32_t>(i));
    }
    EXPECT_EQ(refusals.total(), packets);
    EXPECT_GT(refusals[Why::damaged], packets / 4);
  }
}

TEST(Datagram, NothingDamagedIsAccepted) {
  damage(5'000, 1);
}
TEST(DatagramLong, NothingDamagedIsAcceptedOfMillions) {
  for (std::uint64_t seed = 2; seed < 12; ++seed) damage(fewer(100'000), seed);
}

// What the window says against a set that never forgets.
void compare_with_set(std::uint64_t seed) {
  Random random{seed};
  ReplayWindow window;
  std::set<std::uint64_t> accepted;
  std::uint64_t highest = 0;
  for (int i = 0; i < 3000; ++i) {
    std::uint64_t n = 0;
    switch (random.below(6)) {
      case 0:
        n = highest + random.below(3 * ReplayWindow::kNumbers);
        break;
      case 1:
        n = highest - std::min(highest, random.below(2 * ReplayWindow::kNumbers));
        break;
      case 2:
        n = highest - std::min(highest, ReplayWindow::kNumbers - 2 + random.below(4));
        break;
      default:
        n = highest + random.below(70);
        break;
    }
    const auto why = window.look(n);
    if (!accepted.empty() && n + ReplayWindow::kNumbers <= highest)
      ASSERT_EQ(why, Why::stale);
    else
      ASSERT_EQ(why, accepted.contains(n) ? Why::replayed : Why::none) << "seed " << seed;
    if (why != Why::none || random.below(10) == 0) continue;  // some are forged and never accepted
    window.accept(n);
    accepted.insert(n);
    highest = std::max(highest, n);
    ASSERT_EQ(window.next(), highest + 1);
  }
}

TEST(ReplayWindow, SaysWhatASetSays) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) compare_with_set(seed);
}

// However far the window moves at once: what it forgets is too old, and nothing else.
TEST(ReplayWindow, RemembersAllOfItsNumbersWhereverItMovesTo) {
  for (std::uint64_t to = 200; to < ReplayWindow::kNumbers + 200; to += to == 400 ? 3500 : 1) {
    ReplayWindow window;
    for (std::uint64_t n = 0; n < 200; ++n) window.accept(n);
    window.accept(to);
    for (std::uint64_t n = to + 1 - std::min(to, ReplayWindow::kNumbers); n < to; ++n)
      ASSERT_EQ(window.look(n), n < 200 ? Why::replayed : Why::none) << n << " of " << to;
  }
}

TEST(ReplayWindow, TakesTheLargestNumbers) {
  ReplayWindow window;
  EXPECT_EQ(window.look(0), Why::none);
  window.accept((1ULL << 62) - 1);
  EXPECT_EQ(window.look((1ULL << 62) - 1), Why::replayed);
  EXPECT_EQ(window.look((1ULL << 62) - ReplayWindow::kNumbers), Why::none);
  EXPECT_EQ(window.look((1ULL << 62) - ReplayWindow::kNumbers - 1), Why::stale);
}

TEST(Datagram, WhatComesTwiceIsOpenedOnce) {
  for (const DatagramSuite suite : suites()) {
    DatagramSealer sealer(kDatagramKey, kScope, suite);
    DatagramOpener opener(kDatagramKey, kScope, suite);
    const Packet packet = sealed(sealer, {.type = 1}, Packet(30));
    DatagramHeader header;
    Packet first = packet, second = packet;
    EXPECT_EQ(opener.open(first, header), Why::none);
    EXPECT_EQ(opener.open(second, header), Why::replayed);
    EXPECT_EQ(second, packet);
  }
}

}  // namespace
}  // namespace talweg::wire
