// Datagrams against someone who does not hold the key, and with a checksum against somebody who can make one.
// The first byte: 0 .. 2 the protection; with its fourth bit the bytes are laid over a datagram that a member
// sent; with its fifth they are given a checksum that holds.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "fuzz/fuzz.h"
#include "wire/datagram_cipher.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const unsigned how = data[0];
  const auto bytes = fuzz::bytes_of(data + 1, std::min<std::size_t>(size - 1, 4096));
  const wire::DatagramSuite suite{static_cast<wire::DatagramProtection>(how % 4 % 3),
                                  wire::CipherKind::chacha20_poly1305};
  const wire::DatagramScope scope{0x1234567800000001, 1, 2, 3};
  const wire::Secret key = wire::secret_from_text("a key that no fuzzer knows");
  wire::DatagramSealer sealer(key, scope, suite);
  wire::DatagramOpener opener(key, scope, suite);

  std::vector<std::byte> sent(100);
  wire::DatagramHeader header{.type = 1, .length = 40};
  const std::byte payload[40]{};
  sent.resize(sealer.seal(header, payload, sent.data()));
  std::vector<std::byte> packet(bytes.begin(), bytes.end());
  const bool laid_over = (how & 8) != 0;
  if (laid_over) {
    packet = sent;
    for (std::size_t i = 0; i < std::min(packet.size(), bytes.size()); ++i) packet[i] ^= bytes[i];
  }
  bool repaired = false;
  if ((how & 16) != 0 && suite.protection == wire::DatagramProtection::checksum && packet.size() >= 4) {
    const std::uint32_t sum = crc32c(packet.data(), packet.size() - 4);
    std::memcpy(packet.data() + packet.size() - 4, &sum, sizeof sum);
    repaired = true;
  }
  const bool same = packet == sent;
  wire::DatagramHeader got;
  const auto why = opener.open(packet, got);
  fuzz::require(*wire::to_string(why) != '\0');
  if (why != wire::DatagramRefusal::none) {
    fuzz::require(!same && opener.window().next() == 0);
    return 0;
  }
  // With a tag only what a member sent; with a checksum what is damaged by chance is found but for one in
  // 2^32.
  fuzz::require(same || (suite.protection == wire::DatagramProtection::checksum && (repaired || !laid_over)));
  fuzz::require(wire::kDatagramHeaderBytes + got.length + trailer_bytes(suite.protection) == packet.size());
  fuzz::require(got.job == 1 && got.epoch == 1 && got.sender == 2 && !to_string(got).empty());
  std::vector<std::byte> again = packet;
  fuzz::require(opener.open(again, got) == wire::DatagramRefusal::replayed);
  return 0;
}
