// One direction of one encrypted connection: records are sealed and opened in the same order, each with the
// next number as its nonce, so that one that is repeated, left out, exchanged or changed does not open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/key.h"

namespace talweg::wire {

enum class CipherKind : std::uint8_t { chacha20_poly1305, aes256_gcm };
const char* name(CipherKind kind);
// AES is the faster one, and only there where the processor has it.
bool has_aes();

inline constexpr std::size_t kTagBytes = 16;

class Cipher {
 public:
  // The key must be new: the first record has number 0.
  Cipher(CipherKind kind, const Secret& key);

  // Writes `bytes` encrypted bytes to `sealed` (which may be `plain`) and kTagBytes to `tag`.
  void seal(const std::byte* plain, std::size_t bytes, std::byte* sealed, std::byte* tag);
  // The way back; `plain` may be `sealed`. False when the record is not the next one of the other side: then
  // nothing that follows can be trusted either.
  [[nodiscard]] bool open(const std::byte* sealed, std::size_t bytes, const std::byte* tag, std::byte* plain);
  // Passes over a record that is thrown away unopened.
  void skip() { ++number_; }

 private:
  std::array<unsigned char, 12> next_nonce();

  CipherKind kind_;
  Secret key_;
  alignas(16) std::array<std::byte, 512> expanded_{};  // AES only: its round keys
  std::uint64_t number_ = 0;
};

}  // namespace talweg::wire
