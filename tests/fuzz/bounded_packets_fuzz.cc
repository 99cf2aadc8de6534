// Packets of bounded-loss transfers: what is let through holds together, and is the same when it is written
// again. The first byte is the datagram's type, the second its class, the third the low half of its own16.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.h"
#include "wire/bounded.h"

using namespace talweg;

namespace {

template <class Message>
bool accepted(const wire::DatagramHeader& header, std::span<const std::byte> payload, Message& message) {
  const char* const why = decode(header, payload, message);
  fuzz::require(why == nullptr || *why != '\0');
  return why == nullptr;
}

template <class Message>
void require_same(const Message& message, const wire::DatagramHeader& header,
                  std::span<const std::byte> payload, std::size_t head) {
  std::vector<std::byte> again(payload.begin(), payload.end());
  std::fill_n(again.begin(), std::min(head, again.size()), std::byte{0xee});
  wire::DatagramHeader written;
  written.service = header.service;
  fuzz::require(encode(message, header.own32, written, again.data()) == payload.size());
  fuzz::require(std::ranges::equal(again, payload) && written.type == header.type &&
                written.service == header.service && written.own16 == header.own16);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  wire::DatagramHeader header;
  header.type = data[0];
  header.service = data[1] & (wire::kPriorityMask | wire::kDroppable);
  header.own16 = data[2];
  const auto payload = fuzz::bytes_of(data, size).subspan(3);
  header.length = static_cast<std::uint16_t>(payload.size());

  wire::BoundedData packet;
  if (accepted(header, payload, packet)) {
    fuzz::require(packet.packet < packet.packets && packet.must <= packet.packets);
    fuzz::require(packet.length() >= 1 && packet.length() <= packet.stride);
    fuzz::require(packet.offset() + packet.length() <=
                  std::uint64_t{packet.packets - 1} * packet.stride + packet.tail);
    require_same(packet, header, payload, wire::kBoundedHeadBytes);
    fuzz::require(!to_string(packet, 1).empty());
  }
  wire::BoundedProbe probe;
  if (accepted(header, payload, probe)) require_same(probe, header, payload, wire::kProbeBytes);
  wire::BoundedReport report;
  if (accepted(header, payload, report)) {
    std::uint32_t holes = 0;
    if (!report.bits.empty())
      for (std::uint32_t i = 0; i < report.window(); ++i) holes += report.is_missing(i) ? 1 : 0;
    fuzz::require(holes <= report.missing && report.missing <= report.packets);
    fuzz::require((holes > 0) == !report.bits.empty());
    require_same(report, header, payload, payload.size());
  }
  wire::BoundedTrial trial;
  if (accepted(header, payload, trial)) fuzz::require(trial.bytes == payload.size());
  return 0;
}
