#include "wire/handshake.h"

#include <sodium.h>

#include <cstring>
#include <string_view>

#include "wire/sodium_bytes.h"

namespace talweg::wire {

namespace {

constexpr std::uint64_t kHelloMagic = 0x6f6c6c6548574c54ULL;  // "TLWHello"
constexpr std::uint8_t kEncrypt = 1;                          // flags
constexpr std::uint8_t kAes = 2;  // of a hello: could be used; of a challenge: will be

// Labels keep the uses of one key apart.
constexpr std::string_view kInitiatorLabel = "talweg v2 initiator";
constexpr std::string_view kAcceptorLabel = "talweg v2 acceptor";
constexpr std::string_view kSessionLabel = "talweg v2 session";

struct HelloLayout {
  std::uint64_t magic;  // this and the version stay where they are in all versions
  std::uint16_t version;
  Purpose purpose;
  std::uint8_t flags;
  std::uint16_t stream;
  std::uint16_t reserved;
  std::uint32_t from;
  std::uint32_t to;
  std::uint64_t job;
  std::array<std::byte, 32> nonce;
  std::array<std::byte, 32> open;
};
static_assert(sizeof(HelloLayout) == kHelloBytes);

struct ChallengeLayout {
  Refusal refusal;  // this and the version as well; the rest only without a refusal
  std::uint8_t flags;
  std::uint16_t version;
  std::uint32_t reserved;
  std::array<std::byte, 32> nonce;
  std::array<std::byte, 32> open;
};
static_assert(sizeof(ChallengeLayout) == kChallengeBytes);

struct AnswerLayout {
  Refusal refusal;
  std::array<std::byte, 7> reserved;
  std::array<std::byte, kProofBytes> proof;
};
static_assert(sizeof(AnswerLayout) == kAnswerBytes);

using Bytes = std::span<const std::byte>;

class Mac {
 public:
  Mac(const Secret& key, std::string_view label, std::size_t out_bytes) {
    crypto_generichash_init(&state_, raw(key.data()), key.size(), out_bytes);
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(label.data()), label.size());
  }
  void add(Bytes bytes) { crypto_generichash_update(&state_, raw(bytes.data()), bytes.size()); }
  void finish(std::byte* out, std::size_t n) { crypto_generichash_final(&state_, raw(out), n); }

 private:
  crypto_generichash_state state_;
};

std::array<std::byte, kProofBytes> proof_of(const Secret& key, std::string_view label, Bytes said) {
  std::array<std::byte, kProofBytes> proof;
  Mac mac(key, label, proof.size());
  mac.add(said);
  mac.finish(proof.data(), proof.size());
  return proof;
}

bool equal(const std::array<std::byte, kProofBytes>& a, const std::byte* b) {
  return sodium_memcmp(a.data(), b, a.size()) == 0;  // in a time that does not tell where they differ
}

// `said` is the whole transcript. False for a public key that makes every exchange end alike.
bool derive(const Secret& key, const Secret& hidden, const std::array<std::byte, 32>& open, Bytes said,
            bool initiator, SessionSecrets& secrets) {
  Secret shared;
  if (crypto_scalarmult(raw(shared.data()), raw(hidden.data()), raw(open.data())) != 0) return false;
  std::array<Secret, 2> both;  // from the initiator, to the initiator
  Mac mac(key, kSessionLabel, sizeof both);
  mac.add(shared);
  mac.add(said);
  mac.finish(both[0].data(), sizeof both);
  secrets.send = both[initiator ? 0 : 1];
  secrets.receive = both[initiator ? 1 : 0];
  sodium_memzero(shared.data(), shared.size());
  return true;
}

HandshakeStep refused(Refusal why, Bytes reply = {}) {
  return {HandshakeStep::State::refused, why, reply};
}

}  // namespace

const char* to_string(Refusal refusal) {
  static constexpr const char* kReasons[] = {
      "no reason", "it does not speak Talweg", "it speaks another version of Talweg's protocol",
      "no such connection is expected: another job, another rank, or encryption on one side only",
      "the two sides do not hold the same job key"};
  const auto i = static_cast<std::size_t>(refusal);
  return i < std::size(kReasons) ? kReasons[i] : "an unknown reason";
}

Initiator::Initiator(const Secret& key, const Introduction& introduction, const EphemeralKey& ephemeral)
    : key_(key), ephemeral_(ephemeral) {
  HelloLayout hello{};
  hello.magic = kHelloMagic;
  hello.version = kProtocolVersion;
  hello.purpose = introduction.purpose;
  hello.flags = static_cast<std::uint8_t>((introduction.encrypt ? kEncrypt : 0) | (has_aes() ? kAes : 0));
  hello.stream = introduction.stream;
  hello.from = introduction.from;
  hello.to = introduction.to;
  hello.job = introduction.job;
  fill_random(hello.nonce);
  hello.open = ephemeral.open;
  std::memcpy(said_.data(), &hello, sizeof hello);
}

HandshakeStep Initiator::take(Bytes bytes) {
  if (bytes.size() != wants()) return refused(Refusal::not_talweg);
  std::byte* const proof = said_.data() + kHelloBytes + kChallengeBytes;
  if (!proved_) {
    ChallengeLayout challenge;
    std::memcpy(&challenge, bytes.data(), sizeof challenge);
    other_version_ = challenge.version;
    if (challenge.refusal > Refusal::wrong_key) return refused(Refusal::not_talweg);
    if (challenge.refusal != Refusal::none) return refused(challenge.refusal);
    if (challenge.version != kProtocolVersion) return refused(Refusal::version);
    const bool aes = (challenge.flags & kAes) != 0;
    if ((challenge.flags & ~kAes) != 0 || challenge.reserved != 0 || (aes && !has_aes()))
      return refused(Refusal::not_talweg);
    secrets_.cipher = aes ? CipherKind::aes256_gcm : CipherKind::chacha20_poly1305;
    std::memcpy(said_.data() + kHelloBytes, bytes.data(), kChallengeBytes);
    const auto mac = proof_of(key_, kInitiatorLabel, Bytes(said_).first(kHelloBytes + kChallengeBytes));
    std::memcpy(proof, mac.data(), mac.size());
    proved_ = true;
    return {HandshakeStep::State::more, Refusal::none, {proof, kProofBytes}};
  }
  AnswerLayout answer;
  std::memcpy(&answer, bytes.data(), sizeof answer);
  if (answer.refusal != Refusal::none) return refused(answer.refusal);
  if (!equal(proof_of(key_, kAcceptorLabel, said_), answer.proof.data())) return refused(Refusal::wrong_key);
  ChallengeLayout challenge;
  std::memcpy(&challenge, said_.data() + kHelloBytes, sizeof challenge);
  if (!derive(key_, ephemeral_.hidden, challenge.open, said_, true, secrets_))
    return refused(Refusal::wrong_key);
  return {HandshakeStep::State::done, Refusal::none, {}};
}

Refusal Acceptor::read_hello(Bytes bytes) {
  greeted_ = true;
  HelloLayout hello;
  if (bytes.size() != sizeof hello) return Refusal::not_talweg;
  std::memcpy(&hello, bytes.data(), sizeof hello);
  std::memcpy(said_.data(), bytes.data(), bytes.size());
  if (hello.magic != kHelloMagic) return Refusal::not_talweg;
  if (hello.version != kProtocolVersion) return Refusal::version;
  if ((hello.flags & ~(kEncrypt | kAes)) != 0 || hello.reserved != 0) return Refusal::not_talweg;
  introduction_ = {hello.purpose, (hello.flags & kEncrypt) != 0, hello.stream, hello.from, hello.to,
                   hello.job};
  secrets_.cipher =
      (hello.flags & kAes) != 0 && has_aes() ? CipherKind::aes256_gcm : CipherKind::chacha20_poly1305;
  return Refusal::none;
}

HandshakeStep Acceptor::challenge(Refusal why) {
  ChallengeLayout challenge{};
  challenge.refusal = why;
  challenge.version = kProtocolVersion;
  if (why == Refusal::none) {
    challenge.flags = secrets_.cipher == CipherKind::aes256_gcm ? kAes : 0;
    fill_random(challenge.nonce);
    challenge.open = ephemeral_.open;
  }
  std::byte* const at = said_.data() + kHelloBytes;
  std::memcpy(at, &challenge, sizeof challenge);
  // To those who do not speak Talweg there is nothing to say.
  if (why == Refusal::not_talweg) return refused(why);
  if (why != Refusal::none) return refused(why, {at, kChallengeBytes});
  return {HandshakeStep::State::more, Refusal::none, {at, kChallengeBytes}};
}

HandshakeStep Acceptor::take_proof(Bytes bytes) {
  AnswerLayout answer{};
  const auto expected = proof_of(key_, kInitiatorLabel, Bytes(said_).first(kHelloBytes + kChallengeBytes));
  HelloLayout hello;
  std::memcpy(&hello, said_.data(), sizeof hello);
  if (bytes.size() != kProofBytes || !equal(expected, bytes.data())) answer.refusal = Refusal::wrong_key;
  if (answer.refusal == Refusal::none) {
    std::memcpy(said_.data() + kHelloBytes + kChallengeBytes, bytes.data(), kProofBytes);
    if (!derive(key_, ephemeral_.hidden, hello.open, said_, false, secrets_))
      answer.refusal = Refusal::wrong_key;
    else
      answer.proof = proof_of(key_, kAcceptorLabel, said_);
  }
  std::memcpy(answer_.data(), &answer, sizeof answer);
  if (answer.refusal != Refusal::none) return refused(answer.refusal, answer_);
  return {HandshakeStep::State::done, Refusal::none, answer_};
}

}  // namespace talweg::wire
