#include "wire/cipher.h"

#include <sodium.h>

#include <cstring>

#include "wire/sodium_bytes.h"

namespace talweg::wire {

namespace {
static_assert(sizeof(crypto_aead_aes256gcm_state) == 512);
static_assert(crypto_aead_aes256gcm_ABYTES == kTagBytes &&
              crypto_aead_chacha20poly1305_ietf_ABYTES == kTagBytes);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == 12 && crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12);

using Nonce = std::array<unsigned char, 12>;
Nonce nonce_of(std::uint64_t number) {
  Nonce nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

}  // namespace

const char* name(CipherKind kind) {
  return kind == CipherKind::aes256_gcm ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

bool has_aes() {
  return sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() != 0;
}

Aead::Aead(CipherKind kind, const Secret& key) : kind_(kind), key_(key) {
  if (kind_ == CipherKind::aes256_gcm)
    crypto_aead_aes256gcm_beforenm(reinterpret_cast<crypto_aead_aes256gcm_state*>(expanded_.data()),
                                   raw(key_.data()));
}

void Aead::seal(std::uint64_t number, std::span<const std::byte> said, const std::byte* plain,
                std::size_t bytes, std::byte* sealed, std::byte* tag) const {
  const Nonce nonce = nonce_of(number);
  std::byte nothing{};  // the library wants an address even where there is nothing to write
  if (sealed == nullptr) sealed = &nothing;
  if (kind_ == CipherKind::aes256_gcm)
    crypto_aead_aes256gcm_encrypt_detached_afternm(
        raw(sealed), raw(tag), nullptr, raw(plain), bytes, raw(said.data()), said.size(), nullptr,
        nonce.data(), reinterpret_cast<const crypto_aead_aes256gcm_state*>(expanded_.data()));
  else
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(raw(sealed), raw(tag), nullptr, raw(plain), bytes,
                                                       raw(said.data()), said.size(), nullptr, nonce.data(),
                                                       raw(key_.data()));
}

bool Aead::open(std::uint64_t number, std::span<const std::byte> said, const std::byte* sealed,
                std::size_t bytes, const std::byte* tag, std::byte* plain) const {
  const Nonce nonce = nonce_of(number);
  std::byte nothing{};
  if (sealed == nullptr) sealed = &nothing;
  if (plain == nullptr) plain = &nothing;
  if (kind_ == CipherKind::aes256_gcm)
    return crypto_aead_aes256gcm_decrypt_detached_afternm(
               raw(plain), nullptr, raw(sealed), bytes, raw(tag), raw(said.data()), said.size(), nonce.data(),
               reinterpret_cast<const crypto_aead_aes256gcm_state*>(expanded_.data())) == 0;
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(raw(plain), nullptr, raw(sealed), bytes, raw(tag),
                                                            raw(said.data()), said.size(), nonce.data(),
                                                            raw(key_.data())) == 0;
}

}  // namespace talweg::wire
