// Frames through a writer, bytes cut at random, frames out of a reader.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "wire/frame_reader.h"
#include "wire/frame_writer.h"
#include "wire/frames.h"

namespace talweg::wire {
namespace {

using Bytes = std::vector<std::byte>;
using Step = FrameReader::Step;

struct TestFrame {
  Header header;
  const std::byte* payload = nullptr;
  std::string text;
  struct {
    std::uint64_t run = 0;
  } token;
  bool reported = true;

  const std::byte* bytes() const {
    return text.empty() ? payload : reinterpret_cast<const std::byte*>(text.data());
  }
};

Bytes random_bytes(Random& random, std::size_t n) {
  Bytes bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  return bytes;
}

TestFrame chunk(std::uint32_t number, const Bytes& payload, std::uint64_t run = 1) {
  TestFrame f;
  f.header = encode(CallId{}, Chunk{false, 0, number, static_cast<std::uint32_t>(payload.size())});
  f.payload = payload.data();
  f.token.run = run;
  f.reported = false;
  return f;
}

struct Received {
  std::uint32_t number;
  Bytes payload;
  bool operator==(const Received&) const = default;
};

// A reader whose user has a place for some payloads.
struct Receiver {
  explicit Receiver(std::optional<Cipher> cipher = std::nullopt, std::size_t most = kMaxPayload)
      : reader(std::move(cipher), most) {}

  // Takes as many of the bytes as it has space for.
  std::size_t feed(const std::byte* bytes, std::size_t n) {
    std::array<iovec, FrameReader::kParts> parts;
    std::size_t count = 0;
    reader.space(parts, count);
    std::size_t got = 0;
    for (std::size_t i = 0; i < count && got < n; ++i) {
      const std::size_t here = std::min(n - got, parts[i].iov_len);
      std::memcpy(parts[i].iov_base, bytes + got, here);
      got += here;
    }
    reader.wrote(got);
    for (;;) {
      const Step step = reader.next();
      if (step == Step::place && reader.header().chunk % 2 == 0) {
        into.assign(reader.header().length, std::byte{0});
        reader.put({into.data(), 0, 1});
      } else if (step == Step::frame) {
        const std::byte* const payload = reader.payload();
        placed += reader.header().length > 0 && payload == into.data() ? 1 : 0;
        frames.push_back({reader.header().chunk, {payload, payload + reader.header().length}});
      } else if (step == Step::damaged) {
        damaged = true;
        return got;
      } else if (step == Step::more) {
        return got;
      }
    }
  }
  void feed_all(const Bytes& bytes, Random& random) {
    for (std::size_t at = 0; at < bytes.size() && !damaged;) {
      const std::size_t left = bytes.size() - at;
      const std::size_t most = random.below(3) == 0 ? left : std::min<std::size_t>(left, 200);
      at += feed(bytes.data() + at, 1 + random.below(most));
    }
  }

  FrameReader reader;
  Bytes into;
  std::vector<Received> frames;
  int placed = 0;
  bool damaged = false;
};

struct Sender {
  explicit Sender(std::optional<Cipher> cipher = std::nullopt) : writer(true, std::move(cipher)) {}
  void commit(TestFrame frame) {
    writer.seal(frame);
    writer.commit(std::move(frame));
  }
  // As a kernel does: takes a part of what is offered.
  void take(std::size_t most) {
    std::array<iovec, FrameWriter<TestFrame>::kParts> parts;
    std::size_t total = 0;
    const std::size_t n = writer.gather(parts, total);
    const std::size_t taken = std::min(most, total);
    std::size_t left = taken;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t here = std::min(left, parts[i].iov_len);
      const auto* data = static_cast<const std::byte*>(parts[i].iov_base);
      wire.insert(wire.end(), data, data + here);
      left -= here;
    }
    writer.release(taken, [this](const TestFrame& f) { done.push_back(f.header.chunk); });
  }

  FrameWriter<TestFrame> writer;
  Bytes wire;
  std::vector<std::uint32_t> done;
};

enum class Protection { checksum, cipher };

class FrameCodec : public ::testing::TestWithParam<Protection> {
 protected:
  static std::optional<Cipher> cipher() {
    if (GetParam() == Protection::checksum) return std::nullopt;
    return Cipher(CipherKind::chacha20_poly1305, secret_from_text("one direction of a stream"));
  }
};

TEST_P(FrameCodec, GivesTheSameFramesHoweverTheBytesAreCut) {
  int placed = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    std::vector<Bytes> payloads;
    for (int i = 0; i < 60; ++i) {
      const std::size_t most = random.below(10) == 0 ? 100'000 : 600;
      payloads.push_back(random_bytes(random, random.below(4) == 0 ? 0 : random.below(most)));
    }
    Sender sender(cipher());
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < payloads.size() || !sender.writer.empty();) {
      const std::size_t budget = 1 + random.below(1 << 18);
      while (i < payloads.size() && sender.writer.takes_more(budget)) {
        order.push_back(i);
        sender.commit(chunk(i, payloads[i]));
        ++i;
      }
      sender.take(random.below(2) == 0 ? 1 + random.below(300) : 1 + random.below(1 << 18));
    }
    EXPECT_EQ(sender.done, order);
    for (int cut = 0; cut < 3; ++cut) {
      Receiver receiver(cipher());
      receiver.feed_all(sender.wire, random);
      ASSERT_FALSE(receiver.damaged) << receiver.reader.why();
      ASSERT_EQ(receiver.frames.size(), payloads.size());
      for (std::uint32_t i = 0; i < payloads.size(); ++i)
        ASSERT_EQ(receiver.frames[i], (Received{i, payloads[i]}));
      placed += receiver.placed;
    }
  }
  EXPECT_GT(placed, 100);
}

TEST_P(FrameCodec, AFrameThatTheWireHasBegunOutlivesItsMemory) {
  Random random{1};
  Bytes payload = random_bytes(random, 5000);
  const Bytes copy = payload;
  const Bytes other = random_bytes(random, 10);
  Sender sender(cipher());
  sender.commit(chunk(1, payload, 7));
  sender.commit(chunk(2, other, 8));
  sender.take(700);
  std::vector<std::uint32_t> rescued;
  sender.writer.cancel(0, 7, [&](const TestFrame& f) { rescued.push_back(f.header.chunk); });
  EXPECT_EQ(rescued, std::vector<std::uint32_t>{1});
  payload.assign(payload.size(), std::byte{0});
  sender.take(1 << 20);
  Receiver receiver(cipher());
  receiver.feed_all(sender.wire, random);
  EXPECT_EQ(receiver.frames, (std::vector<Received>{{1, copy}, {2, other}}));
}

TEST_P(FrameCodec, APlaceThatIsTakenAwayIsNotWrittenAgainAndTheNextFrameIsWhole) {
  Random random{1};
  const Bytes payload = random_bytes(random, 50'000);
  Sender sender(cipher());
  sender.commit(chunk(2, payload));
  sender.commit(chunk(3, payload));
  sender.take(1 << 20);
  Receiver receiver(cipher());
  std::size_t at = receiver.feed(sender.wire.data(), 1000);
  at += receiver.feed(sender.wire.data() + at, 1000);
  const Bytes before = receiver.into;
  EXPECT_FALSE(receiver.reader.forget_place(0, 99)) << "of another run";
  EXPECT_TRUE(receiver.reader.forget_place(0, 1));
  EXPECT_FALSE(receiver.reader.forget_place(0, 1)) << "it is gone already";
  receiver.feed_all({sender.wire.begin() + static_cast<std::ptrdiff_t>(at), sender.wire.end()}, random);
  EXPECT_EQ(receiver.into, before);
  EXPECT_EQ(receiver.frames, (std::vector<Received>{{3, payload}})) << receiver.reader.why();
}

TEST_P(FrameCodec, DamageAnywhereEndsTheStreamBeforeTheFrameIsHandedOver) {
  Random random{3};
  const Bytes payload = random_bytes(random, 300);
  Sender sender(cipher());
  sender.commit(chunk(1, payload));
  sender.take(1 << 20);
  for (std::size_t at = 0; at < sender.wire.size(); ++at) {
    Bytes bad = sender.wire;
    bad[at] ^= static_cast<std::byte>(1U << random.below(8));
    Receiver receiver(cipher());
    receiver.feed_all(bad, random);
    EXPECT_TRUE(receiver.damaged) << "byte " << at;
    EXPECT_TRUE(receiver.frames.empty());
    EXPECT_EQ(receiver.reader.next(), Step::damaged) << "and it stays so";
  }
}

INSTANTIATE_TEST_SUITE_P(All, FrameCodec, ::testing::Values(Protection::checksum, Protection::cipher),
                         [](const auto& test) {
                           return test.param == Protection::checksum ? "Open" : "Encrypted";
                         });

TEST(FrameReader, RefusesWhatIsLargerThanItsUserExpects) {
  Random random{4};
  const Bytes payload = random_bytes(random, 1001);
  Sender sender;
  sender.commit(chunk(1, payload));
  sender.take(1 << 20);
  Receiver receiver(std::nullopt, 1000);
  receiver.feed_all(sender.wire, random);
  EXPECT_TRUE(receiver.damaged);
  EXPECT_EQ(receiver.reader.why(), "a frame from it cannot be read: payload longer than any chunk");
}

TEST(FrameWriter, ChecksumsArePartOfEveryPayloadUnlessTheyAreSwitchedOff) {
  const Bytes payload(100, std::byte{5});
  for (const bool checksum : {true, false}) {
    FrameWriter<TestFrame> writer(checksum);
    TestFrame frame = chunk(1, payload);
    writer.seal(frame);
    EXPECT_EQ((frame.header.flags & kHasChecksum) != 0, checksum);
  }
}

}  // namespace
}  // namespace talweg::wire
