// A bounded-loss transfer between honest ends, and somebody who holds the key and says what comes. Whatever
// that is, nothing is written beside the output, nothing loops; and as long as nobody has said anything
// false, what is delivered is what was sent, with no more missing than may be, and both ends agree on that.
// The bytes are a list of what happens: how (1), length (1), and so many bytes.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.h"
#include "protocol/bounded/receiver.h"
#include "protocol/bounded/sender.h"

using namespace talweg;

namespace {

constexpr std::uint32_t kPackets = 37;
const protocol::BoundedShape kShape{5, kPackets * 8 - 3, 8};
constexpr std::uint16_t kFrom = 1, kTo = 2;
constexpr std::size_t kMostAtOnce = 10 * kPackets;
constexpr std::byte kGuard{0x5c};

struct Message {
  wire::DatagramHeader header;
  std::vector<std::byte> payload;
};

std::vector<Message> leaving(protocol::BoundedSender& sender, std::int64_t now) {
  std::vector<Message> all;
  Message m;
  m.payload.resize(100);
  while (sender.next(now, m.header, m.payload.data())) {
    fuzz::require(all.size() < kMostAtOnce);
    all.push_back(m);
    all.back().payload.resize(m.header.length);
    all.back().header.sender = kFrom;
  }
  return all;
}

std::vector<Message> leaving(protocol::BoundedReceiver& receiver, std::int64_t now) {
  std::vector<Message> all;
  Message m;
  std::uint16_t to = 0;
  m.payload.resize(wire::kMostReportBytes);
  while (receiver.next(now, to, m.header, m.payload.data())) {
    fuzz::require(all.size() < kMostAtOnce && to == kFrom);
    all.push_back(m);
    all.back().payload.resize(m.header.length);
    all.back().header.sender = kTo;
  }
  return all;
}

// Well-formed, with numbers near those that mean something.
Message plausible(std::span<const std::byte> b, std::uint32_t iteration) {
  const auto at = [&](std::size_t i) { return i < b.size() ? std::to_integer<std::uint32_t>(b[i]) : 0U; };
  Message m;
  m.payload.resize(600, std::byte{0xdd});
  iteration += at(1) % 5 - 2;
  switch (at(0) % 4) {
    case 0: {
      wire::BoundedData d{5, at(2) % kPackets, kPackets,         at(3) % (kPackets + 1), 8,
                          5, (at(4) & 1) != 0, (at(4) & 2) != 0, (at(4) & 4) != 0};
      encode(d, iteration, m.header, m.payload.data());
      break;
    }
    case 1:
      encode(wire::BoundedProbe{5, at(2), kPackets, at(3)}, iteration, m.header, m.payload.data());
      break;
    default: {
      const std::span<const std::byte> bits = b.size() > 10 ? b.subspan(5, 5) : std::span<const std::byte>{};
      encode(
          wire::BoundedReport{at(0) % 4 == 2 ? wire::BoundedType::holes : wire::BoundedType::stop, 5, at(2),
                              at(3), kPackets, 0, at(4), static_cast<wire::BoundedEnd>(at(10) % 3), bits},
          iteration, m.header, m.payload.data());
    }
  }
  m.payload.resize(m.header.length);
  return m;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const protocol::LossBounds bounds{150'000, 100'000, 150'000, 2};
  const protocol::BoundedTimes times{100'000, 300'000, {1'000'000, 200'000, 8'000'000}};
  protocol::BoundedSender sender(kFrom, kTo, times);
  protocol::BoundedReceiver receiver(bounds, times);
  sender.add(kShape);
  receiver.add(kFrom, kShape);
  std::vector<std::byte> in(kShape.bytes), out(kShape.bytes + 32, kGuard);
  protocol::PacketSet important(kPackets);
  std::uint32_t sending = 0, receiving = 0;
  bool honest = true;
  std::int64_t now = 1'000'000;

  auto rest = fuzz::bytes_of(data, std::min<std::size_t>(size, 4096));
  while (rest.size() >= 2) {
    const auto how = std::to_integer<unsigned>(rest[0]);
    const std::size_t n = std::min<std::size_t>(std::to_integer<unsigned>(rest[1]), rest.size() - 2);
    const auto bytes = rest.subspan(2, n);
    rest = rest.subspan(2 + n);
    now += 1 + static_cast<std::int64_t>(how >> 4) * 400'000;
    switch (how % 8) {
      case 0:
        if (sender.stream(0).open()) break;
        ++sending;
        std::ranges::fill(in, static_cast<std::byte>(sending));
        important.reset(kPackets);
        for (std::size_t i = 0; i < n; ++i)
          important.add(std::to_integer<std::uint32_t>(bytes[i]) % kPackets);
        sender.begin(0, sending, in.data(), {3, &important, n % 2 == 1}, now + 1'000'000'000, now);
        break;
      case 1:
        if (receiver.stream(0).open()) break;
        receiver.begin(++receiving);
        receiver.expect(0, out.data() + 16, now + 1'000'000'000, now);
        break;
      case 2:  // all but some arrive
        for (const Message& m : leaving(sender, now))
          if (n == 0 || std::to_integer<unsigned>(bytes[(m.payload[4] == std::byte{} ? 0 : 1) % n]) % 3 > 0)
            receiver.on(m.header, m.payload, now);
        break;
      case 3:
        for (Message& m : leaving(sender, now))
          if (n > 0 &&
              std::to_integer<unsigned>(bytes[std::to_integer<std::size_t>(m.payload[4]) % n]) % 2 > 0)
            receiver.on(m.header, m.payload, now);
        break;
      case 4:
        for (const Message& m : leaving(receiver, now))
          if (n != 1) sender.on(m.header, m.payload, now);
        break;
      case 5: {
        honest = false;
        Message m = plausible(bytes, how >= 128 ? sending : receiving);
        m.header.sender = kFrom;
        receiver.on(m.header, m.payload, now);
        m.header.sender = kTo;
        sender.on(m.header, m.payload, now);
        break;
      }
      case 6: {  // anything at all
        honest = false;
        const wire::DatagramHeader header{.type = static_cast<std::uint8_t>(64 + how / 8 % 4),
                                          .length = static_cast<std::uint16_t>(n),
                                          .sender = how >= 128 ? kFrom : kTo,
                                          .own32 = receiving};
        receiver.on(header, bytes, now);
        sender.on(header, bytes, now);
        break;
      }
      default:
        now += static_cast<std::int64_t>(n) * 100'000;
    }
    receiver.on_time(now);
    sender.on_time(now);
    for (std::size_t i = 0; i < 16; ++i) fuzz::require(out[i] == kGuard && out[out.size() - 1 - i] == kGuard);
    while (receiver.take_ended()) {
      const protocol::BoundedInflow& in_end = receiver.stream(0);
      if (in_end.failure()) {
        fuzz::require(!in_end.failure()->text.empty());
        continue;
      }
      fuzz::require(in_end.missing_bytes() * protocol::kMillion <= kShape.bytes * bounds.tensor_ppm);
      for (std::size_t i = 0; honest && i < kShape.bytes; ++i) {
        const bool missing = in_end.missing().has(static_cast<std::uint32_t>(i / 8));
        fuzz::require(out[16 + i] == (missing ? std::byte{0} : static_cast<std::byte>(receiving)));
      }
    }
    while (sender.take_ended()) {
      const protocol::BoundedOutflow& end = sender.stream(0);
      fuzz::require(end.failure() || end.lost().count() < kPackets || !honest);
      if (honest && !end.failure() && receiving == sending)
        fuzz::require(end.lost() == receiver.stream(0).missing());
    }
  }
  return 0;
}
