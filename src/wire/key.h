// Keys: the secret that the ranks of a job share, and the pair that a connection's own secret comes from.
// Everything cryptographic is libsodium's: BLAKE2b, X25519, AES-256-GCM, ChaCha20-Poly1305.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace talweg::wire {

using Secret = std::array<std::byte, 32>;

// Shorter ones could be guessed: whoever watches one handshake can try words against it at leisure.
inline constexpr std::size_t kShortestKey = 16;

// The job's key from its text, of any length from kShortestKey on. All zero stands for "no key".
Secret secret_from_text(std::string_view text);
// One of two: who does not know both does not know it.
Secret mixed(const Secret& one, const Secret& other);
// 64 hexadecimal digits, drawn at random: a text for `secret_from_text`.
std::string random_key_text();

void fill_random(std::span<std::byte> bytes);

// For the exchange of one group, or of one store; never kept beyond it, so that who learns the job's key
// later cannot read what was recorded before.
struct EphemeralKey {
  std::array<std::byte, 32> open;
  Secret hidden;
};
EphemeralKey draw_ephemeral_key();

}  // namespace talweg::wire
