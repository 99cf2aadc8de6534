#include "wire/datagram_cipher.h"

#include <sodium.h>

#include <array>
#include <cstring>
#include <string_view>

#include "base/crc32c.h"
#include "wire/sodium_bytes.h"

namespace talweg::wire {

namespace {

constexpr std::string_view kDatagramLabel = "talweg datagram v1";
// Long before the numbers end: what is sent once a nanosecond comes here after a century.
constexpr std::uint64_t kLastNumber = 1ULL << 62;

Secret key_of(const Secret& key, const DatagramScope& scope, DatagramSuite suite) {
  struct Context {
    std::uint64_t job;
    std::uint32_t epoch;
    std::uint16_t from, to;
    DatagramProtection protection;
    CipherKind cipher;
    std::array<std::uint8_t, 6> reserved;
  };
  static_assert(std::has_unique_object_representations_v<Context>);
  const Context context{scope.job, scope.epoch, scope.from, scope.to, suite.protection, suite.cipher, {}};
  std::array<unsigned char, kDatagramLabel.size() + sizeof context> said;
  std::memcpy(said.data(), kDatagramLabel.data(), kDatagramLabel.size());
  std::memcpy(said.data() + kDatagramLabel.size(), &context, sizeof context);
  Secret derived;
  crypto_generichash(raw(derived.data()), derived.size(), said.data(), said.size(), raw(key.data()),
                     key.size());
  return derived;
}

}  // namespace

DatagramSealer::DatagramSealer(const Secret& key, const DatagramScope& scope, DatagramSuite suite)
    : scope_(scope), suite_(suite), aead_(suite.cipher, key_of(key, scope, suite)) {}

std::size_t DatagramSealer::seal(DatagramHeader& header, const std::byte* payload, std::byte* datagram) {
  if (header.length > kMaxDatagramPayload || number_ >= kLastNumber) return 0;
  header.job = static_cast<std::uint32_t>(scope_.job);
  header.epoch = scope_.epoch;
  header.sender = scope_.from;
  header.number = number_++;
  header.flags = static_cast<std::uint8_t>(
      (header.flags & kDatagramAsks) | (scope_.to == kEverybody ? kDatagramToAll : 0) |
      (suite_.protection == DatagramProtection::encrypted ? kDatagramEncrypted : 0));
  encode(header, datagram);
  std::byte* const body = datagram + kDatagramHeaderBytes;
  std::byte* const trailer = body + header.length;
  if (suite_.protection == DatagramProtection::encrypted) {
    aead_.seal(header.number, {datagram, kDatagramHeaderBytes}, payload, header.length, body, trailer);
  } else {
    if (payload != body && header.length > 0) std::memcpy(body, payload, header.length);
    const std::span<const std::byte> said(datagram, kDatagramHeaderBytes + header.length);
    if (suite_.protection == DatagramProtection::authenticated) {
      aead_.seal(header.number, said, nullptr, 0, nullptr, trailer);
    } else {
      const std::uint32_t sum = crc32c(said.data(), said.size());
      std::memcpy(trailer, &sum, sizeof sum);
    }
  }
  return kDatagramHeaderBytes + header.length + trailer_bytes(suite_.protection);
}

DatagramOpener::DatagramOpener(const Secret& key, const DatagramScope& scope, DatagramSuite suite)
    : scope_(scope), suite_(suite), aead_(suite.cipher, key_of(key, scope, suite)) {}

DatagramRefusal DatagramOpener::open(std::span<std::byte> datagram, DatagramHeader& header) {
  using enum DatagramRefusal;
  DatagramHeader h;
  if (const auto why = decode(datagram, suite_.protection, h); why != none) return why;
  if (h.job != static_cast<std::uint32_t>(scope_.job)) return job;
  if (h.epoch != scope_.epoch) return epoch;
  if (h.sender != scope_.from || ((h.flags & kDatagramToAll) != 0) != (scope_.to == kEverybody))
    return sender;
  if (h.number >= kLastNumber) return damaged;
  if (const auto why = window_.look(h.number); why != none) return why;
  std::byte* const body = datagram.data() + kDatagramHeaderBytes;
  const std::byte* const trailer = body + h.length;
  const std::span<const std::byte> said(datagram.data(), kDatagramHeaderBytes + h.length);
  switch (suite_.protection) {
    case DatagramProtection::encrypted:
      if (!aead_.open(h.number, said.first(kDatagramHeaderBytes), body, h.length, trailer, body))
        return damaged;
      break;
    case DatagramProtection::authenticated:
      if (!aead_.open(h.number, said, nullptr, 0, trailer, nullptr)) return damaged;
      break;
    case DatagramProtection::checksum: {
      std::uint32_t sum = 0;
      std::memcpy(&sum, trailer, sizeof sum);
      if (sum != crc32c(said.data(), said.size())) return damaged;
      break;
    }
  }
  window_.accept(h.number);
  header = h;
  return none;
}

}  // namespace talweg::wire
