#include "wire/key.h"

#include <sodium.h>

#include "talweg/error.h"
#include "wire/sodium_bytes.h"

namespace talweg::wire {

namespace {

void start_sodium() {
  if (sodium_init() < 0) throw Error(ErrorCode::system, "libsodium cannot be started on this machine");
}

}  // namespace

Secret secret_from_text(std::string_view text) {
  start_sodium();
  constexpr std::string_view kLabel = "talweg job key";
  Secret secret;
  crypto_generichash(raw(secret.data()), secret.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), reinterpret_cast<const unsigned char*>(kLabel.data()), kLabel.size());
  return secret;
}

Secret mixed(const Secret& one, const Secret& other) {
  Secret both;
  crypto_generichash(raw(both.data()), both.size(), raw(one.data()), one.size(), raw(other.data()),
                     other.size());
  return both;
}

std::string random_key_text() {
  std::array<std::byte, 32> bytes;
  fill_random(bytes);
  std::array<char, 2 * 32 + 1> text;
  sodium_bin2hex(text.data(), text.size(), raw(bytes.data()), bytes.size());
  return text.data();
}

void fill_random(std::span<std::byte> bytes) {
  start_sodium();
  randombytes_buf(bytes.data(), bytes.size());
}

EphemeralKey draw_ephemeral_key() {
  start_sodium();
  EphemeralKey key;
  crypto_box_keypair(raw(key.open.data()), raw(key.hidden.data()));
  return key;
}

}  // namespace talweg::wire
