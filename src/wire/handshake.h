// How every connection opens: both ends prove that they hold the job's key before either believes anything.
//
//   the side that connects                        the side that accepts
//   hello: who, to whom, which job,
//          a nonce, a public key         ->
//                                        <-       challenge: a nonce, a public key, the cipher
//   proof: MAC of both                   ->
//                                        <-       proof: MAC of all three
//
// The MACs are keyed BLAKE2b under the job's key. Each side's nonce is new, so nothing recorded earlier is of
// use; each side's MAC has a label of its own, so nothing can be sent back to where it came from; ranks, job,
// purpose and version are under the MAC, so a proof is good for one connection only. The accepting side does
// no expensive work and says nothing that depends on the key before the other has proved itself. Both then
// derive a secret per direction from the X25519 exchange, the key and all that was said: it encrypts the
// store's messages, and frames where that was asked for. In place of its turn the accepting side may refuse
// and say why.
//
// Without a job key (all on loopback) the key is zero and the same is said: one way to connect, not two. Then
// only the job's random number keeps strangers apart.
//
// Both sides are pure: bytes in, bytes out. Feed `take` exactly `wants()` bytes; send what it replies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/cipher.h"
#include "wire/key.h"

namespace talweg::wire {

inline constexpr std::uint16_t kProtocolVersion = 17;

inline constexpr std::size_t kHelloBytes = 96;
inline constexpr std::size_t kChallengeBytes = 72;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kAnswerBytes = 40;  // the accepting side's proof

enum class Purpose : std::uint8_t { data = 1, store = 2, aggregation = 3 };
inline constexpr std::uint32_t kUnknownRank = ~0U;

// What a hello says about the connection that it opens.
struct Introduction {
  Purpose purpose = Purpose::data;
  bool encrypt = false;
  std::uint16_t stream = 0;  // 0 .. streams-1 of this pair of ranks
  std::uint32_t from = kUnknownRank;
  std::uint32_t to = kUnknownRank;
  std::uint64_t job = 0;  // the number that rank 0 drew for this group
  bool operator==(const Introduction&) const = default;
};

enum class Refusal : std::uint8_t {
  none = 0,
  not_talweg,  // what came is no hello
  version,     // another version of this protocol
  unwanted,    // sound, but for another job, rank or purpose, or disagreeing about encryption
  wrong_key,   // the other side does not hold this side's key
};
// "it does not hold this job's key"; for the logs and errors of the side that was refused or that refuses.
const char* to_string(Refusal refusal);

struct SessionSecrets {
  CipherKind cipher = CipherKind::chacha20_poly1305;
  Secret send{};
  Secret receive{};
};

// What came of the bytes that were fed in.
struct HandshakeStep {
  enum class State : std::uint8_t { more, done, refused } state = State::more;
  Refusal why = Refusal::none;
  std::span<const std::byte> reply;  // send it first, also after a refusal; valid until the next call
};

class Initiator {
 public:
  Initiator(const Secret& key, const Introduction& introduction, const EphemeralKey& ephemeral);
  std::span<const std::byte> hello() const { return {said_.data(), kHelloBytes}; }
  std::size_t wants() const { return proved_ ? kAnswerBytes : kChallengeBytes; }
  HandshakeStep take(std::span<const std::byte> bytes);
  const SessionSecrets& secrets() const { return secrets_; }      // when done
  std::uint16_t other_version() const { return other_version_; }  // after a refusal for it

 private:
  const Secret key_;
  const EphemeralKey& ephemeral_;
  std::array<std::byte, kHelloBytes + kChallengeBytes + kProofBytes> said_{};  // the transcript
  SessionSecrets secrets_;
  std::uint16_t other_version_ = 0;
  bool proved_ = false;
};

// Keeps under half a KiB; `ephemeral` must outlive it and may serve any number of connections.
class Acceptor {
 public:
  Acceptor(const Secret& key, const EphemeralKey& ephemeral) : key_(key), ephemeral_(ephemeral) {}
  std::size_t wants() const { return greeted_ ? kProofBytes : kHelloBytes; }
  // After the hello and before anything else `wanted` is asked whether such a connection is expected.
  template <class Wanted>
  HandshakeStep take(std::span<const std::byte> bytes, Wanted&& wanted) {
    if (greeted_) return take_proof(bytes);
    const Refusal why = read_hello(bytes);
    return challenge(why == Refusal::none && !wanted(introduction_) ? Refusal::unwanted : why);
  }
  // Known after the hello, true when done.
  const Introduction& introduction() const { return introduction_; }
  const SessionSecrets& secrets() const { return secrets_; }

 private:
  Refusal read_hello(std::span<const std::byte> bytes);
  HandshakeStep challenge(Refusal why);
  HandshakeStep take_proof(std::span<const std::byte> bytes);

  const Secret& key_;
  const EphemeralKey& ephemeral_;
  std::array<std::byte, kHelloBytes + kChallengeBytes + kProofBytes> said_{};
  std::array<std::byte, kAnswerBytes> answer_{};
  Introduction introduction_;
  SessionSecrets secrets_;
  bool greeted_ = false;
};

}  // namespace talweg::wire
