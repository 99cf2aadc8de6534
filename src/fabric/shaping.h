// Lines for `tc -batch` that give a device the rate and latency of a link.
//
// A token bucket may pass `burst` bytes at once and then holds the rate; what exceeds it waits in a queue of
// `limit` bytes and is dropped beyond that, as in a switch with a shallow buffer. 128 KiB let the largest
// packet that segmentation offload makes (64 KiB) pass whole; a smaller burst would have the kernel cut it up
// again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace talweg::fabric {

inline constexpr std::int64_t kMinBurstBytes = 128 * 1024;
// Above about 4 Gbit/s the burst must cover the time until the kernel looks again, or the rate is not
// reached.
inline constexpr double kBurstSeconds = 250e-6;
inline constexpr int kLimitPerBurst = 4;

// What one link does to packets; no latency when it is not emulated.
struct Shape {
  Bandwidth rate;
  Nanoseconds latency;
  Bytes burst{};  // at least; 0: what the rate needs
  bool operator==(const Shape&) const = default;
};

// All that leaves through `device`.
std::vector<std::string> shape_device(const std::string& device, const Shape& shape);

// Traffic to one address or, as `share_of` a total, to one of several.
struct DestinationShape {
  std::string address;
  int number = 0;  // of the class, unique within the device, 1 .. 0x7fff; several addresses can share one
  Shape shape;
  std::optional<int> total;  // index into `totals`
};

// What leaves through `device`, by destination; other packets (ARP) pass freely. Several destinations
// together carry no more than their entry in `totals`: the token buckets below it are guaranteed their fair
// part of it and may borrow up to their own rate.
std::vector<std::string> shape_destinations(const std::string& device,
                                            const std::vector<DestinationShape>& destinations,
                                            const std::vector<Bandwidth>& totals);

}  // namespace talweg::fabric
