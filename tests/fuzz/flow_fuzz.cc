// A flow of datagrams between an honest other end and somebody who holds the key and says what comes:
// whatever that is, what the honest one sent arrives as it was sent or not at all, memory stays bounded, and
// nothing loops. The bytes are a list of what happens: how (1), length (1), and so many bytes.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.h"
#include "protocol/datagram/flow.h"

using namespace talweg;

namespace {

constexpr std::size_t kMost = 4096;

protocol::FlowOptions options() {
  protocol::FlowOptions o;
  o.channels = 2;
  o.send_bytes = o.receive_bytes = kMost;
  o.payload = 700;
  o.packets = 16;
  return o;
}

std::byte byte_of(std::size_t channel, std::uint64_t i) {
  return static_cast<std::byte>(i * 7 + i / 256 + channel * 100);
}

struct Packet {
  wire::DatagramHeader header;
  std::vector<std::byte> payload;
};

// Everything that leaves now; no more than so much can.
std::vector<Packet> leaving(protocol::DatagramFlow& flow, std::uint64_t& number, std::int64_t now) {
  std::vector<Packet> out;
  for (;;) {
    Packet p;
    p.payload.resize(700);
    if (!flow.next(number, now, p.header, p.payload.data())) return out;
    fuzz::require(p.header.length <= 700 && out.size() < 1000);
    p.header.number = number++;
    p.payload.resize(p.header.length);
    out.push_back(std::move(p));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  protocol::DatagramFlow honest(options()), other(options());
  std::uint64_t honest_number = 0, other_number = 1000;
  std::int64_t now = 1'000'000;
  std::uint64_t written[2] = {0, 0}, read[2] = {0, 0};
  bool foreign_bytes = false;

  auto rest = fuzz::bytes_of(data, std::min<std::size_t>(size, 4096));
  while (rest.size() >= 2) {
    const auto how = std::to_integer<unsigned>(rest[0]);
    const std::size_t n = std::min<std::size_t>(std::to_integer<unsigned>(rest[1]), rest.size() - 2);
    const auto bytes = rest.subspan(2, n);
    rest = rest.subspan(2 + n);
    now += 1 + static_cast<std::int64_t>(how >> 4) * 3'000'000;
    switch (how % 8) {
      case 0: {
        const std::size_t c = how / 8 % 2;
        std::vector<std::byte> some(n);
        for (std::size_t i = 0; i < n; ++i) some[i] = byte_of(c, written[c] + i);
        written[c] += honest.write(c, some);
        break;
      }
      case 1:  // the honest one's datagrams arrive
        for (const Packet& p : leaving(honest, honest_number, now))
          other.on_datagram(p.header, p.payload, n == 1, now);
        break;
      case 2:
        leaving(honest, honest_number, now);
        break;  // or are lost
      case 3:   // and what the other one has to say
        for (const Packet& p : leaving(other, other_number, now))
          honest.on_datagram(p.header, p.payload, false, now);
        break;
      case 4: {  // or anything in its place
        wire::DatagramHeader header{.type = static_cast<std::uint8_t>(how / 8 % 4),
                                    .length = static_cast<std::uint16_t>(n),
                                    .own16 = static_cast<std::uint16_t>(how / 64),
                                    .number = other_number++};
        honest.on_datagram(header, bytes, false, now);
        break;
      }
      case 5:  // the same towards the other one: with bytes of nobody's
        foreign_bytes = true;
        other.on_datagram(
            {.type = 1, .length = static_cast<std::uint16_t>(n), .number = 1'000'000 + honest_number}, bytes,
            false, now);
        break;
      case 6:
        honest.set_payload(n * 8);
        if (honest_number > 0) honest.not_sent(honest_number - 1 - n % honest_number);
        break;
      default:
        break;
    }
    honest.on_time(now);
    other.on_time(now);
    honest.end_of_batch();
    for (std::size_t c = 0; c < 2; ++c) {
      const auto ready = other.readable(c);
      fuzz::require(ready.size() <= kMost);
      if (!foreign_bytes) {
        fuzz::require(read[c] + ready.size() <= written[c]);
        for (std::size_t i = 0; i < ready.size(); ++i) fuzz::require(ready[i] == byte_of(c, read[c] + i));
      }
      read[c] += ready.size();
      if (!ready.empty()) other.consumed(c, ready.size());
      const auto nonsense = honest.readable(c);
      if (!nonsense.empty()) honest.consumed(c, nonsense.size());
    }
    fuzz::require(honest.room(0) <= kMost && honest.bytes_on_their_way() <= 16U * 1000);
  }
  for (int i = 0; i < 200 && honest.next_time(now) != protocol::SentPackets::kNever; ++i) {
    now = std::max(now + 1, honest.next_time(now));
    honest.on_time(now);
    leaving(honest, honest_number, now);
  }
  return 0;
}
