// What is said in a frame is what is heard, whatever else the header holds.
#include "wire/frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

namespace talweg::wire {
namespace {

const CallId kCall{
    0x01020304,
    0x8000000000000005ULL,
    {Collective::reduce, DataType::f16, ReduceOp::max, kMaxRanks - 1, 1LL << 40, 77, 0xfeedf00d}};

// As it comes out at the other end.
Header sent(Header header) {
  seal(header);
  std::byte bytes[sizeof(Header)];
  std::memcpy(bytes, &header, sizeof header);
  Header there;
  EXPECT_EQ(decode(bytes, there), nullptr) << to_string(header);
  EXPECT_EQ(to_string(there), to_string(header));
  return there;
}

void expect_call(const Header& header) {
  const CallId call = call_of(header);
  EXPECT_EQ(call.group, kCall.group);
  EXPECT_EQ(call.sequence, kCall.sequence);
  EXPECT_EQ(call.signature, kCall.signature);
}

TEST(Frames, AnnouncesAndCreditsArriveAsTheyWereSaid) {
  for (const bool ask : {false, true})
    for (const bool held : {false, true}) {
      const Header h = sent(encode(kCall, Announce{ask, held}));
      EXPECT_EQ(h.type, FrameType::announce);
      EXPECT_EQ(announce_of(h).ask, ask);
      EXPECT_EQ(announce_of(h).held, held);
      expect_call(h);
    }
  const Header h = sent(encode(kCall, Credit{5, 6}));
  EXPECT_EQ(h.type, FrameType::credit);
  EXPECT_EQ(std::tuple(credit_of(h).tree, credit_of(h).granted), std::tuple(5U, 6U));
  expect_call(h);
}

TEST(Frames, ChunksArriveAsTheyWereSaid) {
  for (const bool up : {false, true}) {
    const Header h = sent(encode(kCall, Chunk{up, 7, 8, 4096}));
    EXPECT_EQ(h.type, up ? FrameType::up : FrameType::down);
    const Chunk c = chunk_of(h);
    EXPECT_EQ(std::tuple(c.up, c.tree, c.chunk, c.bytes), std::tuple(up, 7U, 8U, 4096U));
    EXPECT_TRUE(is_chunk(h));
    expect_call(h);
  }
}

TEST(Frames, WhatATransferSaysInItsOwnLanguageArrives) {
  for (const std::uint32_t bytes : {0U, 4096U})
    for (std::uint32_t kind = 0; kind < kOwnKinds; ++kind) {
      const Header h = sent(encode(kCall, Own{kind, 7, 8, bytes}));
      const Own own = own_of(h);
      EXPECT_EQ(std::tuple(own.kind, own.tree, own.chunk, own.bytes), std::tuple(kind, 7U, 8U, bytes));
      EXPECT_TRUE(is_chunk(h));
      expect_call(h);
    }
  for (const unsigned type : {kFrameTypes, kOwnTypes - 1, kOwnTypes + kOwnKinds}) {
    Header h;
    h.type = static_cast<FrameType>(type);
    EXPECT_STREQ(check(h), "unknown frame type") << type;
  }
}

TEST(Frames, EveryReasonOfAFailureArrives) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::corrupted); ++code)
    for (const bool to_sender : {false, true}) {
      const Header h = sent(encode(kCall, Failure{static_cast<ErrorCode>(code), to_sender, 9}));
      EXPECT_EQ(h.type, FrameType::failure);
      const Failure f = failure_of(h);
      EXPECT_EQ(std::tuple(static_cast<int>(f.code), f.to_sender, f.text_bytes),
                std::tuple(code, to_sender, 9U));
      expect_call(h);
    }
  const Header h = sent(encode(GroupFailure{3, ErrorCode::peer_failed, 10}));
  EXPECT_EQ(h.type, FrameType::group_failure);
  const GroupFailure f = group_failure_of(h);
  EXPECT_EQ(std::tuple(f.group, f.code, f.text_bytes), std::tuple(3U, ErrorCode::peer_failed, 10U));
  EXPECT_FALSE(is_chunk(h));
}

TEST(Frames, AReasonThatIsNotKnownHereIsStillAFailure) {
  Failure strange;
  strange.code = static_cast<ErrorCode>(4711);
  EXPECT_EQ(failure_of(sent(encode(kCall, strange))).code, ErrorCode::aborted);
}

TEST(Frames, MessagesAreAskedForByTheirTag) {
  const Header request = sent(encode(kCall, Request{1234}));
  EXPECT_EQ(request.type, FrameType::request);
  EXPECT_EQ(request_of(request).tag, 1234U);
  expect_call(request);
  const Header clear = sent(encode(kCall, Clear{}));
  EXPECT_EQ(clear.type, FrameType::clear);
  expect_call(clear);
}

TEST(Frames, PlansArriveInParts) {
  for (const bool last : {false, true}) {
    const Header h = sent(encode(PlanPart{3, last, 500}));
    EXPECT_EQ(h.type, FrameType::plan);
    const PlanPart part = plan_part_of(h);
    EXPECT_EQ(std::tuple(part.group, part.last, part.bytes), std::tuple(3U, last, 500U));
  }
  const Header report = sent(encode(Report{3, 80}));
  EXPECT_EQ(std::tuple(report.type, report.group, report.length), std::tuple(FrameType::report, 3U, 80U));
}

TEST(Frames, EndsAndClocksArriveAsTheyWereSaid) {
  const Header leave = sent(encode(Leave{3}));
  EXPECT_EQ(leave.type, FrameType::leave);
  EXPECT_EQ(leave_of(leave).group, 3U);
  EXPECT_NE(leave.flags & kBehindAll, 0);
  EXPECT_EQ(sent(encode(Goodbye{})).type, FrameType::goodbye);
  EXPECT_EQ(sent(encode(Wake{})).type, FrameType::wake);
  const Header ping = sent(encode(Ping{-5}));
  EXPECT_EQ(ping.type, FrameType::ping);
  EXPECT_EQ(ping_of(ping).asked_ns, -5);
  const Header pong = sent(encode(Pong{-5, 1LL << 62}));
  EXPECT_EQ(pong.type, FrameType::pong);
  EXPECT_EQ(std::tuple(pong_of(pong).asked_ns, pong_of(pong).answered_ns), std::tuple(-5LL, 1LL << 62));
}

TEST(Frames, ALossComesWithTheNextCallAndItsReason) {
  const Header h = sent(encode(Lost{7, 9, 1ULL << 50, ErrorCode::corrupted, 30}));
  EXPECT_EQ(h.type, FrameType::lost);
  const Lost lost = lost_of(h);
  EXPECT_EQ(std::tuple(lost.group, lost.node, lost.next), std::tuple(7U, 9U, 1ULL << 50));
  EXPECT_EQ(std::tuple(lost.code, lost.text_bytes), std::tuple(ErrorCode::corrupted, 30U));
}

TEST(Frames, ALinkAsksBehindAllThatItHasSent) {
  const Header turn = sent(encode(Turn{1ULL << 50})), taken = sent(encode(Taken{7}));
  EXPECT_EQ(std::tuple(turn.type, turn_of(turn).number), std::tuple(FrameType::turn, 1ULL << 50));
  EXPECT_NE(turn.flags & kBehindAll, 0);
  EXPECT_EQ(std::tuple(taken.type, taken_of(taken).number), std::tuple(FrameType::taken, 7U));
}

TEST(Frames, WhatIsPastArrivesBehindIt) {
  const Header h = sent(encode(Past{7, 1ULL << 50}));
  EXPECT_EQ(std::tuple(h.type, past_of(h).group, past_of(h).call),
            std::tuple(FrameType::past, 7U, 1ULL << 50));
  EXPECT_NE(h.flags & kBehindAll, 0);
}

TEST(Frames, OnlyChunksReasonsAndPlansHaveAPayload) {
  for (unsigned type = 1; type < kFrameTypes; ++type) {
    Header h;
    h.type = static_cast<FrameType>(type);
    h.length = 1;
    const bool may = h.type == FrameType::up || h.type == FrameType::down || h.type == FrameType::failure ||
                     h.type == FrameType::group_failure || h.type == FrameType::plan ||
                     h.type == FrameType::report || h.type == FrameType::lost;
    EXPECT_EQ(check(h) == nullptr, may) << to_string(h);
  }
}

}  // namespace
}  // namespace talweg::wire
