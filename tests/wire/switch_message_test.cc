// What is said when a switch is joined: each message comes back as it was, and nothing else does.
#include "wire/switch_message.h"

#include <gmock/gmock.h>

namespace talweg::wire {
namespace {

std::span<const std::byte> as_said(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<SwitchMessage> one_of_each() {
  SwitchOpened opened{7,  1, 4711, 2, 256, 15, 256, DatagramProtection::authenticated, CipherKind::aes256_gcm,
                      {}, 19};
  opened.secret[31] = std::byte{0xff};
  return {SwitchJoin{"bert-3", 2, 4, 256, true, 8972, 4U << 20, 1, 3, 12, 2, 128},
          SwitchLeave{12},
          SwitchSum{13, 1ULL << 40, 4, true},
          SwitchOrder{SwitchDo::reload},
          SwitchWaiting{70, {0, 3, 0xffff}, true},
          opened,
          SwitchLeft{3, 12, true},
          SwitchRefused{ErrorCode::mismatch, "worker 0 of job a is here already"},
          SwitchText{std::string(kMaxSwitchText, 'x')},
          SwitchGiveUp{ErrorCode::timeout, "the switch waits for worker 2"},
          SwitchGroup{"239.1.2.3:61000"},
          SwitchHears{GroupWord::lost, 0xffffffff, 700, 1024},
          SwitchHears{GroupWord::cannot, 0, 0, 0, "no route"}};
}

TEST(SwitchMessage, ComesBackAsItWasSaid) {
  for (const SwitchMessage& message : one_of_each()) {
    const std::string text = encode(message);
    const auto back = decode_switch_message(as_said(text));
    ASSERT_TRUE(back) << message.index();
    EXPECT_TRUE(*back == message) << message.index();
    EXPECT_FALSE(decode_switch_message(as_said(text + "\1")));
    for (const std::size_t cut : {std::size_t{0}, text.size() / 2, text.size() - 1})
      EXPECT_FALSE(decode_switch_message(as_said(text).first(cut))) << message.index();
  }
}

// It stands beside the flag of an order, so that who says nothing of it says what was always said.
TEST(SwitchMessage, OfAWorkerHasABitMoreWhereAPartMayBeMissingOrAllIsEncrypted) {
  SwitchJoin join{"a", 0, 2, 256, true, 1400, 1 << 20};
  const std::string plain = encode(join);
  join.tolerant = true;
  std::string tolerant = encode(join);
  EXPECT_TRUE(std::get<SwitchJoin>(*decode_switch_message(as_said(tolerant))) == join);
  ASSERT_EQ(tolerant.size(), plain.size());
  const std::size_t at = 7;  // behind the kind, the name, two numbers of workers, and the block's two bytes
  EXPECT_EQ(plain[at], 1);
  EXPECT_EQ(tolerant[at], 3);
  join.encrypted = true;
  tolerant = encode(join);
  EXPECT_TRUE(std::get<SwitchJoin>(*decode_switch_message(as_said(tolerant))) == join);
  ASSERT_EQ(tolerant.size(), plain.size());
  EXPECT_EQ(tolerant[at], 7);
  tolerant[at] = 8;
  EXPECT_FALSE(decode_switch_message(as_said(tolerant)));
}

// In place of the slots of a switch, which of a worker are not looked at: no switch of any version minds it,
// and who says nothing of it says what was always said.
TEST(SwitchMessage, OfAWorkerThatTakesResultsByMulticastDiffersWhereAWorkerHasNothingToSay) {
  SwitchJoin join{"a", 0, 2, 256, true, 1400, 1 << 20};
  const std::string plain = encode(join);
  join.by_group = true;
  const std::string by_group = encode(join);
  EXPECT_TRUE(std::get<SwitchJoin>(*decode_switch_message(as_said(by_group))) == join);
  ASSERT_EQ(by_group.size(), plain.size());
  EXPECT_EQ(by_group.substr(0, plain.size() - 1), plain.substr(0, plain.size() - 1));
  EXPECT_EQ(plain.back(), 0);
  EXPECT_EQ(by_group.back(), 2);
  // What later versions may say there.
  std::string later = by_group;
  later.back() = 7;
  EXPECT_TRUE(std::get<SwitchJoin>(*decode_switch_message(as_said(later))) == join);
  // What an earlier version says, whose words of a group are others.
  later.back() = 1;
  EXPECT_FALSE(std::get<SwitchJoin>(*decode_switch_message(as_said(later))).by_group);
  // A rack's switch has its slots there.
  join.threads = 2;
  join.slots = 2;
  join.by_group = false;
  EXPECT_TRUE(std::get<SwitchJoin>(*decode_switch_message(as_said(encode(join)))) == join);
}

TEST(SwitchMessage, CutsTextsThatAreTooLong) {
  const auto back = decode_switch_message(
      as_said(encode(SwitchRefused{ErrorCode::mismatch, std::string(2 * kMaxSwitchReason, 'x')})));
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<SwitchRefused>(*back).reason.size(), kMaxSwitchReason);
}

TEST(SwitchMessage, IsRefusedWithNumbersThatNobodyHas) {
  EXPECT_FALSE(decode_switch_message(as_said("\x0c")));  // no such message
  EXPECT_FALSE(
      decode_switch_message(as_said(std::string("\x0b\x04\0\0\0\0", 6))));  // no such word of a group
  EXPECT_FALSE(decode_switch_message(as_said("\x03\x03")));                 // no such order
  EXPECT_FALSE(decode_switch_message(as_said("\x07\x0a\x01x")));            // no such error
  EXPECT_FALSE(decode_switch_message(as_said(encode(SwitchJoin{"two words", 0, 1, 0, false, 0, 0}))));
  EXPECT_FALSE(decode_switch_message(as_said(encode(SwitchJoin{"", 0, 1, 0, false, 0, 0}))));
}

TEST(SwitchMessage, OfAWorkerFitsIntoWhatASwitchKeeps) {
  EXPECT_LE(encode(SwitchJoin{std::string(kMaxJobName, 'x'), 0xffff, 0xffff, 0xffff, true, 0xffff, 0xffffffff,
                              0xffff, 0xffff, 0xffff, 0xffff, 0xffff})
                .size(),
            kMaxSwitchRequest);
  EXPECT_LE(encode(SwitchSum{0xffffffff, ~0ULL, 4, true}).size(), kMaxSwitchRequest);
  EXPECT_LE(encode(SwitchHears{GroupWord::cannot, 0xffffffff, 0xffffffff, 0xffffffff, std::string(1000, 'x')})
                .size(),
            kMaxSwitchRequest);
  EXPECT_LE(encode(SwitchGiveUp{ErrorCode::corrupted, std::string(1000, 'x')}).size(), kMaxSwitchRequest);
}

}  // namespace
}  // namespace talweg::wire
