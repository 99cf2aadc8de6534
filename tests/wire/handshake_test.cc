// Both sides of the handshake in memory: who gets in, who does not, and why.
#include "wire/handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace talweg::wire {
namespace {

using Bytes = std::vector<std::byte>;
using State = HandshakeStep::State;

Bytes copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

Introduction introduction() {
  return {Purpose::data, true, 2, 7, 3, 0x123456789abcdefULL};
}

// What was said, in order: hello, challenge, proof, answer.
struct Conversation {
  Bytes hello, challenge, proof, answer;
  Refusal at_acceptor = Refusal::none;
  Refusal at_initiator = Refusal::none;
  SessionSecrets initiator, acceptor;
  bool done = false;
};

class Handshake : public ::testing::Test {
 protected:
  static bool anyone(const Introduction&) { return true; }

  // `damage` may change each message on its way.
  template <class Damage>
  Conversation talk(const Secret& left, const Secret& right, Damage&& damage) {
    Initiator a(left, introduction(), ephemeral_a);
    Acceptor b(right, ephemeral_b);
    Conversation c;
    c.hello = copy(a.hello());
    damage(0, c.hello);
    HandshakeStep step = b.take(c.hello, anyone);
    c.at_acceptor = step.why;
    c.challenge = copy(step.reply);
    if (c.challenge.size() != kChallengeBytes) return c;
    damage(1, c.challenge);
    step = a.take(c.challenge);
    c.at_initiator = step.why;
    if (step.state != State::more) return c;
    c.proof = copy(step.reply);
    damage(2, c.proof);
    step = b.take(c.proof, anyone);
    c.at_acceptor = step.why;
    const bool let_in = step.state == State::done;
    c.answer = copy(step.reply);
    damage(3, c.answer);
    step = a.take(c.answer);
    c.at_initiator = step.why;
    c.initiator = a.secrets();
    c.acceptor = b.secrets();
    c.done = let_in && step.state == State::done;
    return c;
  }
  Conversation talk(const Secret& left, const Secret& right) {
    return talk(left, right, [](int, Bytes&) {});
  }

  const Secret key = secret_from_text("a key that both sides hold");
  const Secret other = secret_from_text("a key that only one side has");
  const EphemeralKey ephemeral_a = draw_ephemeral_key();
  const EphemeralKey ephemeral_b = draw_ephemeral_key();
};

TEST_F(Handshake, TwoWithTheSameKeyAgreeOnSecretsThatNobodyElseHas) {
  const Conversation c = talk(key, key);
  ASSERT_TRUE(c.done);
  EXPECT_EQ(c.initiator.send, c.acceptor.receive);
  EXPECT_EQ(c.initiator.receive, c.acceptor.send);
  EXPECT_EQ(c.initiator.cipher, c.acceptor.cipher);
  EXPECT_NE(c.initiator.send, c.initiator.receive);
  EXPECT_NE(talk(key, key).initiator.send, c.initiator.send) << "new ones for every connection";
}

TEST_F(Handshake, TheAcceptingSideLearnsWhoCame) {
  Initiator a(key, introduction(), ephemeral_a);
  Acceptor b(key, ephemeral_b);
  Introduction seen;
  b.take(a.hello(), [&](const Introduction& i) {
    seen = i;
    return true;
  });
  EXPECT_EQ(seen, introduction());
}

TEST_F(Handshake, AnotherKeyIsRefusedByBothSides) {
  const Conversation c = talk(key, other);
  EXPECT_FALSE(c.done);
  EXPECT_EQ(c.at_acceptor, Refusal::wrong_key);
  EXPECT_EQ(c.at_initiator, Refusal::wrong_key);
  EXPECT_EQ(c.acceptor.send, Secret{}) << "nothing is derived for a stranger";
}

TEST_F(Handshake, AnAcceptorWithoutTheKeyCannotPretendToHaveAccepted) {
  Initiator a(key, introduction(), ephemeral_a);
  Acceptor stranger(other, ephemeral_b);
  a.take(stranger.take(a.hello(), anyone).reply);
  Bytes forged(kAnswerBytes, std::byte{0});  // "no refusal", and a proof made of nothing
  EXPECT_EQ(a.take(forged).why, Refusal::wrong_key);
}

TEST_F(Handshake, AnyChangedByteOfAnyMessageIsNoticed) {
  const std::size_t sizes[] = {kHelloBytes, kChallengeBytes, kProofBytes, kAnswerBytes};
  constexpr std::size_t kReserved = 7;  // of the answer, behind its first byte: they mean nothing
  for (int message = 0; message < 4; ++message)
    for (std::size_t at = 0; at < sizes[message]; ++at) {
      if (message == 3 && at > 0 && at <= kReserved) continue;
      const Conversation c = talk(key, key, [&](int m, Bytes& bytes) {
        if (m == message) bytes[at] ^= std::byte{1};
      });
      EXPECT_FALSE(c.done) << "message " << message << " byte " << at;
    }
}

TEST_F(Handshake, NothingThatWasRecordedOpensAnotherConnection) {
  const Conversation c = talk(key, key);
  Acceptor later(key, ephemeral_b);
  ASSERT_EQ(later.take(c.hello, anyone).state, State::more);
  EXPECT_EQ(later.take(c.proof, anyone).why, Refusal::wrong_key);

  Initiator again(key, introduction(), ephemeral_a);
  ASSERT_EQ(again.take(c.challenge).state, State::more);
  EXPECT_EQ(again.take(c.answer).why, Refusal::wrong_key);
}

TEST_F(Handshake, NothingCanBeSentBackToWhereItCameFrom) {
  // A stranger between two members returns to each what it said itself.
  Initiator a(key, introduction(), ephemeral_a);
  Acceptor b(key, ephemeral_b);
  const Bytes challenge = copy(b.take(a.hello(), anyone).reply);
  const Bytes proof = copy(a.take(challenge).reply);
  Bytes reflected(kAnswerBytes, std::byte{0});
  std::copy(proof.begin(), proof.end(), reflected.end() - kProofBytes);
  EXPECT_EQ(a.take(reflected).why, Refusal::wrong_key);

  // Or uses one member's answer as its own proof to another.
  const Bytes answer = copy(b.take(proof, anyone).reply);
  Acceptor third(key, ephemeral_b);
  third.take(a.hello(), anyone);
  EXPECT_EQ(third.take(std::span(answer).last(kProofBytes), anyone).why, Refusal::wrong_key);
}

TEST_F(Handshake, ASoundHelloThatIsNotExpectedIsRefusedBeforeTheKeyIsUsed) {
  Initiator a(key, introduction(), ephemeral_a);
  Acceptor b(key, ephemeral_b);
  const HandshakeStep step = b.take(a.hello(), [](const Introduction&) { return false; });
  EXPECT_EQ(step.why, Refusal::unwanted);
  EXPECT_EQ(a.take(step.reply).why, Refusal::unwanted) << "the other side is told";
}

TEST_F(Handshake, AnotherVersionIsCalledByItsNumber) {
  Conversation c = talk(key, key, [](int m, Bytes& bytes) {
    if (m == 0) bytes[8] = std::byte{77};
  });
  EXPECT_EQ(c.at_acceptor, Refusal::version);
  EXPECT_EQ(c.at_initiator, Refusal::version);
  Initiator a(key, introduction(), ephemeral_a);
  c.challenge[2] = std::byte{77};
  a.take(c.challenge);
  EXPECT_EQ(a.other_version(), 77);
}

TEST_F(Handshake, WhoDoesNotSpeakTalwegGetsNoAnswer) {
  Random random{3};
  for (int i = 0; i < 2000; ++i) {
    Bytes noise(kHelloBytes);
    for (auto& b : noise) b = static_cast<std::byte>(random.below(256));
    Acceptor b(key, ephemeral_b);
    const HandshakeStep step = b.take(noise, anyone);
    EXPECT_EQ(step.why, Refusal::not_talweg);
    EXPECT_TRUE(step.reply.empty());
  }
}

TEST_F(Handshake, WhatAnswersSomethingElseIsNotTakenForARefusal) {
  Bytes answer(kChallengeBytes, std::byte{' '});
  const std::string_view text = "HTTP/1.1 400 Bad Request";
  std::memcpy(answer.data(), text.data(), text.size());
  Initiator a(key, introduction(), ephemeral_a);
  EXPECT_EQ(a.take(answer).why, Refusal::not_talweg);
}

class Ciphers : public ::testing::TestWithParam<CipherKind> {
 protected:
  void SetUp() override {
    if (GetParam() == CipherKind::aes256_gcm && !has_aes()) GTEST_SKIP() << "this processor has no AES";
  }
  static Bytes pattern(std::size_t n) {
    Bytes b(n);
    for (std::size_t i = 0; i < n; ++i) b[i] = static_cast<std::byte>(i * 31);
    return b;
  }
  const Secret key = secret_from_text("a key for one direction");
};

TEST_P(Ciphers, OpenWhatTheySealAlsoInPlace) {
  Cipher to(GetParam(), key);
  Cipher from(GetParam(), key);
  for (const std::size_t n : {0UL, 1UL, 64UL, 5000UL}) {
    Bytes sealed = pattern(n);
    Bytes tag(kTagBytes);
    to.seal(sealed.data(), n, sealed.data(), tag.data());
    if (n > 8) {
      EXPECT_NE(sealed, pattern(n));
    }
    ASSERT_TRUE(from.open(sealed.data(), n, tag.data(), sealed.data()));
    EXPECT_EQ(sealed, pattern(n));
  }
}

TEST_P(Ciphers, DoNotOpenWhatIsChangedRepeatedOrOutOfTurn) {
  const Bytes plain = pattern(100);
  Cipher to(GetParam(), key);
  std::vector<Bytes> records(3, Bytes(100));
  std::vector<Bytes> tags(3, Bytes(kTagBytes));
  for (std::size_t i = 0; i < 3; ++i) to.seal(plain.data(), 100, records[i].data(), tags[i].data());
  EXPECT_NE(records[0], records[1]) << "equal texts do not look equal";
  Bytes out(100);
  const auto opens = [&](Cipher& c, std::size_t i) {
    return c.open(records[i].data(), 100, tags[i].data(), out.data());
  };
  Cipher repeated(GetParam(), key);
  EXPECT_TRUE(opens(repeated, 0));
  EXPECT_FALSE(opens(repeated, 0));
  Cipher swapped(GetParam(), key);
  EXPECT_FALSE(opens(swapped, 1));
  Cipher skipping(GetParam(), key);
  skipping.skip();
  EXPECT_TRUE(opens(skipping, 1));
  Cipher damaged(GetParam(), key);
  records[0][50] ^= std::byte{4};
  EXPECT_FALSE(opens(damaged, 0));
}

INSTANTIATE_TEST_SUITE_P(Both, Ciphers,
                         ::testing::Values(CipherKind::chacha20_poly1305, CipherKind::aes256_gcm),
                         [](const auto& kind) {
                           return kind.param == CipherKind::aes256_gcm ? "Aes" : "ChaCha";
                         });

}  // namespace
}  // namespace talweg::wire
