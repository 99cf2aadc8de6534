// What both ends of a transfer that may lose a bounded part say to each other (protocol/bounded): payloads of
// datagrams (datagram.h) of the types below. A transfer is one tensor of one iteration, from one node to
// another; it is cut into packets of `stride` bytes, the last of which has `tail` bytes. The datagram's
// header says who speaks, its own32 is the iteration, its own16 is 0, its class is what the network may do.
// Before all transfers each way is tried, with datagrams of several sizes: trials.
//
//   data     0  tensor u32, packet u32          16  stride u16, tail u16
//            8  packets u32, must u32           20  flags u8, spare u8 x 3        24  the packet's bytes
//   probe    0  tensor u32, probe u32            8  packets u32, must u32
//   holes,   0  tensor u32, round u32           16  first u32, missing u32
//   stop     8  probe u32, packets u32          24  end u8, spare u8 x 3          28  a bit for each packet
//   trial    0  bytes of no meaning; own16: 1 if its sender tries no larger ones, own32: 0
//
// A packet says its number and never an offset: it lies in number x stride, which cannot be outside of what
// the receiver expects when `packets`, `stride` and `tail` are what it expects.
//
// Holes are told in windows of kHoleWindow packets, so that each datagram stands by itself: `first` is a
// multiple of it, there is a bit for every packet of the window, the lowest bit of a byte first, and a set
// bit is a packet that has not come. A stop without a loss has no bits, nor has one that is not `delivered`.
//
//   BoundedData data;
//   if (const char* why = decode(header, payload, data)) ...          // a reason: refuse it
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "wire/datagram.h"

namespace talweg::wire {

enum class BoundedType : std::uint8_t {
  data = kBoundedTypes,  // sender: bytes of a tensor
  probe,                 // sender: "all has been sent; what do you miss?" Answered by holes or a stop
  holes,                 // receiver: these have not come and are needed
  stop,                  // receiver: nothing more is needed; these were never received
  trial,                 // everybody, before any transfer: so many bytes pass
};
inline constexpr std::uint8_t kBoundedTypeEnd = static_cast<std::uint8_t>(BoundedType::trial) + 1;

// Control travels in front of all data and is never dropped for data.
inline constexpr std::uint8_t kControlClass = 0;

struct BoundedData {
  std::uint32_t tensor = 0;
  std::uint32_t packet = 0;   // its number in the tensor, < packets
  std::uint32_t packets = 1;  // of the transfer
  std::uint32_t must = 0;     // packets of the transfer that may not be missing
  std::uint16_t stride = 1;   // bytes of each packet but the last
  std::uint16_t tail = 1;     // and of the last: 1 .. stride
  bool last = false;          // hardly anything follows before the receiver has spoken
  bool again = false;         // it has been sent before
  bool is_must = false;       // it is one of `must`
  bool operator==(const BoundedData&) const = default;

  std::uint64_t offset() const { return std::uint64_t{packet} * stride; }
  std::size_t length() const { return packet + 1 == packets ? tail : stride; }
};
inline constexpr std::size_t kBoundedHeadBytes = 24;

struct BoundedProbe {
  std::uint32_t tensor = 0;
  std::uint32_t probe = 1;  // counts the probes of a transfer, from 1
  std::uint32_t packets = 1;
  std::uint32_t must = 0;
  bool operator==(const BoundedProbe&) const = default;
};
inline constexpr std::size_t kProbeBytes = 16;

// How a transfer ended, in a stop.
enum class BoundedEnd : std::uint8_t {
  delivered,  // with no more missing than may be
  given_up,   // the receiver's deadline has passed, or it has failed
  forgotten,  // so long ago that what was missing is not known any more
};
inline constexpr std::uint8_t kBoundedEnds = 3;

inline constexpr std::uint32_t kHoleWindow = 4096;
constexpr std::uint32_t hole_windows(std::uint32_t packets) {
  return packets / kHoleWindow + (packets % kHoleWindow != 0 ? 1 : 0);
}

// Holes or a stop; the datagram's type says which.
struct BoundedReport {
  BoundedType type = BoundedType::holes;
  std::uint32_t tensor = 0;
  std::uint32_t round = 0;  // counts how often the receiver has named holes, from 1
  std::uint32_t probe = 0;  // the newest one that has come; 0: none has
  std::uint32_t packets = 1;
  std::uint32_t first = 0;    // of the window
  std::uint32_t missing = 0;  // of the transfer
  BoundedEnd end = BoundedEnd::delivered;
  std::span<const std::byte> bits;

  // Packets that `bits` are about.
  std::uint32_t window() const { return packets - first < kHoleWindow ? packets - first : kHoleWindow; }
  // packet first + i.
  bool is_missing(std::uint32_t i) const { return (bits[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0}; }
};
inline constexpr std::size_t kReportHeadBytes = 28;
inline constexpr std::size_t kMostReportBytes = kReportHeadBytes + kHoleWindow / 8;

struct BoundedTrial {
  std::uint16_t bytes = 0;  // of its payload
  bool largest = false;     // that its sender tries on this way
  bool operator==(const BoundedTrial&) const = default;
};

// Each writes the payload, or of data its first kBoundedHeadBytes, and fills in the header's type, iteration
// and length; how many bytes the payload has. Control gets its class.
std::size_t encode(const BoundedData& data, std::uint32_t iteration, DatagramHeader& header,
                   std::byte* payload);
std::size_t encode(const BoundedProbe& probe, std::uint32_t iteration, DatagramHeader& header,
                   std::byte* payload);
std::size_t encode(const BoundedReport& report, std::uint32_t iteration, DatagramHeader& header,
                   std::byte* payload);
std::size_t encode(const BoundedTrial& trial, DatagramHeader& header, std::byte* payload);  // zeros

// Null, or the reason (a static string) why it must not be acted upon. The header is one that decode()
// (datagram.h) has accepted, of the type that is asked for. A report's bits point into the payload.
[[nodiscard]] const char* decode(const DatagramHeader& header, std::span<const std::byte> payload,
                                 BoundedData& data);
[[nodiscard]] const char* decode(const DatagramHeader& header, std::span<const std::byte> payload,
                                 BoundedProbe& probe);
[[nodiscard]] const char* decode(const DatagramHeader& header, std::span<const std::byte> payload,
                                 BoundedReport& report);
[[nodiscard]] const char* decode(const DatagramHeader& header, std::span<const std::byte> payload,
                                 BoundedTrial& trial);

// "data of tensor 3, iteration 7: packet 4 of 9, 1400 bytes, last": for people.
std::string to_string(const BoundedData& data, std::uint32_t iteration);
const char* to_string(BoundedEnd end);

}  // namespace talweg::wire
