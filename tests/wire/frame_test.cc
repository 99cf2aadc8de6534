#include "wire/frame.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"

namespace talweg::wire {
namespace {

Header sample() {
  Header h;
  h.type = FrameType::up;
  set_signature(h, {Collective::reduce, DataType::f32, ReduceOp::max, 3, 1000, 77, 0xabcd});
  h.group = 9;
  h.sequence = 1ULL << 40;
  h.tree = 5;
  h.chunk = 6;
  h.length = 4096;
  seal(h);
  return h;
}

const char* decode_copy(const Header& header, Header& out) {
  std::byte bytes[sizeof(Header)];
  std::memcpy(bytes, &header, sizeof header);
  return decode(bytes, out);
}

TEST(Frame, SurvivesTheWire) {
  Header out;
  ASSERT_EQ(decode_copy(sample(), out), nullptr);
  EXPECT_EQ(to_string(out), to_string(sample()));
  EXPECT_EQ(signature_of(out), signature_of(sample()));
}

TEST(Frame, AnyFlippedBitIsNoticed) {
  for (std::size_t bit = 0; bit < sizeof(Header) * 8; ++bit) {
    Header h = sample();
    auto* raw = reinterpret_cast<unsigned char*>(&h);
    raw[bit / 8] = static_cast<unsigned char>(raw[bit / 8] ^ (1U << (bit % 8)));
    Header out;
    EXPECT_NE(decode_copy(h, out), nullptr) << "bit " << bit;
  }
}

TEST(Frame, WrongValuesAreRefusedEvenUnderAValidChecksum) {
  const auto refused = [](auto&& change) {
    Header h = sample();
    change(h);
    seal(h);
    Header out;
    return decode_copy(h, out) != nullptr;
  };
  EXPECT_TRUE(refused([](Header& h) { h.type = static_cast<FrameType>(0); }));
  EXPECT_TRUE(refused([](Header& h) { h.type = static_cast<FrameType>(200); }));
  EXPECT_TRUE(refused([](Header& h) { h.op = static_cast<Collective>(kCollectives); }));
  EXPECT_TRUE(refused([](Header& h) { h.data_type = static_cast<DataType>(kDataTypes); }));
  EXPECT_TRUE(refused([](Header& h) { h.reduction = static_cast<ReduceOp>(kReduceOps); }));
  EXPECT_TRUE(refused([](Header& h) { h.length = kMaxPayload + 1; }));
  EXPECT_TRUE(refused([](Header& h) { h.type = FrameType::credit; }));  // with a payload
  EXPECT_FALSE(refused([](Header&) {}));
}

TEST(Frame, AnotherVersionIsCalledByItsName) {
  Header h = sample();
  h.magic = (h.magic & 0x00ffffff) | (static_cast<std::uint32_t>('9') << 24);
  seal(h);
  Header out;
  EXPECT_STREQ(decode_copy(h, out), "another version of the frame layout");
}

TEST(Frame, RandomBytesNeverPass) {
  Random random{1};
  for (int i = 0; i < 20000; ++i) {
    std::byte bytes[sizeof(Header)];
    for (auto& b : bytes) b = static_cast<std::byte>(random.below(256));
    if (i % 2 == 0) std::memcpy(bytes, &kMagic, sizeof kMagic);
    Header out;
    EXPECT_NE(decode(bytes, out), nullptr);
  }
}

TEST(Signature, SaysWhatARankBelieves) {
  EXPECT_EQ(to_string(Signature{Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 100, 0}),
            "all_reduce(sum, f32, 100 elements)");
  EXPECT_EQ(to_string(Signature{Collective::broadcast, DataType::u8, ReduceOp::sum, 2, 5, 0}),
            "broadcast(u8, 5 elements, root 2)");
  EXPECT_EQ(to_string(Signature{Collective::all_gather, DataType::u8, ReduceOp::sum, 0, 5, 0, 0xabc}),
            "all_gather(u8, 5 elements)");
}

TEST(Signature, CountsInAnotherOrderGiveAnotherDigest) {
  const std::int64_t a[] = {1, 2, 3};
  const std::int64_t b[] = {3, 2, 1};
  EXPECT_NE(layout_digest(a, 3), layout_digest(b, 3));
}

}  // namespace
}  // namespace talweg::wire
