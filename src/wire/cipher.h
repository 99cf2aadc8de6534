// Encryption by number. Aead: one key, and what is sealed with it under numbers that the caller gives.
// Cipher: one direction of one encrypted connection: records are sealed and opened in the same order, each
// with the next number as its nonce, so that one that is repeated, left out, exchanged or changed does not
// open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/key.h"

namespace talweg::wire {

enum class CipherKind : std::uint8_t { chacha20_poly1305, aes256_gcm };
const char* name(CipherKind kind);
// AES is the faster one, and only there where the processor has it.
bool has_aes();

inline constexpr std::size_t kTagBytes = 16;

// One key, and what is sealed with it by number: the number is the nonce, so none may be used twice. What is
// `said` is not encrypted, but stands under the tag. Pointers may be null where there are no bytes.
class Aead {
 public:
  Aead(CipherKind kind, const Secret& key);

  // Writes `bytes` encrypted bytes to `sealed` (which may be `plain`) and kTagBytes to `tag`.
  void seal(std::uint64_t number, std::span<const std::byte> said, const std::byte* plain, std::size_t bytes,
            std::byte* sealed, std::byte* tag) const;
  // The way back; `plain` may be `sealed`. False when any of it has been changed.
  [[nodiscard]] bool open(std::uint64_t number, std::span<const std::byte> said, const std::byte* sealed,
                          std::size_t bytes, const std::byte* tag, std::byte* plain) const;

 private:
  CipherKind kind_;
  Secret key_;
  alignas(16) std::array<std::byte, 512> expanded_{};  // AES only: its round keys
};

class Cipher {
 public:
  // The key must be new: the first record has number 0.
  Cipher(CipherKind kind, const Secret& key) : aead_(kind, key) {}

  // Writes `bytes` encrypted bytes to `sealed` (which may be `plain`) and kTagBytes to `tag`.
  void seal(const std::byte* plain, std::size_t bytes, std::byte* sealed, std::byte* tag) {
    aead_.seal(number_++, {}, plain, bytes, sealed, tag);
  }
  // The way back; `plain` may be `sealed`. False when the record is not the next one of the other side: then
  // nothing that follows can be trusted either.
  [[nodiscard]] bool open(const std::byte* sealed, std::size_t bytes, const std::byte* tag,
                          std::byte* plain) {
    return aead_.open(number_++, {}, sealed, bytes, tag, plain);
  }
  // Passes over a record that is thrown away unopened.
  void skip() { ++number_; }

 private:
  Aead aead_;
  std::uint64_t number_ = 0;
};

}  // namespace talweg::wire
