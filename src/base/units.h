// Quantities with their unit in the type: bytes, bit rates, times. Plain values, ordered and comparable.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace talweg {

struct Bytes {
  std::int64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
};

struct Nanoseconds {
  std::int64_t value = 0;
  auto operator<=>(const Nanoseconds&) const = default;
};

struct Bandwidth {
  double bits_per_second = 0;
  auto operator<=>(const Bandwidth&) const = default;
  double bytes_per_second() const { return bits_per_second / 8; }
};

// "64K", "64KiB", "1 MiB", "4096": K, M, G are binary, as in nccl-tests; "kB", "MB", "GB" are decimal.
// All parsers throw Error{invalid_argument} whose text names what was read and what was expected.
Bytes parse_bytes(std::string_view text);
// "1Gbit/s", "200 Mbit/s", "10G", "1gbit", "25GB/s" (bytes with a capital B). Must be finite and > 0.
Bandwidth parse_bandwidth(std::string_view text);
// "30us", "1.5 ms", "2s", "100ns". Must be >= 0.
Nanoseconds parse_nanoseconds(std::string_view text);
// The same where people say how long to wait: a bare number is seconds. `what` names the option in the error.
Nanoseconds parse_wait(std::string_view what, std::string_view text);

// Short, with a unit, such as "64 KiB", "200 Mbit/s", "30 us"; exact values survive a round trip.
std::string to_string(Bytes bytes);
std::string to_string(Bandwidth bandwidth);
std::string to_string(Nanoseconds time);

}  // namespace talweg
