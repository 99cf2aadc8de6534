#include "fabric/shaping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace talweg::fabric {

namespace {

constexpr int kFirstTotal = 0x8000;  // class numbers of totals: above those of destinations
// Deficit round-robin among borrowers; a value of its own, because the default grows with the rate until the
// kernel complains.
constexpr int kQuantumBytes = 64 * 1024;
constexpr int kPacketBytes = 1514;

std::int64_t burst_bytes(const Shape& shape) {
  const auto needed = static_cast<std::int64_t>(shape.rate.bytes_per_second() * kBurstSeconds);
  return std::max({kMinBurstBytes, needed, shape.burst.value});
}

std::string bits(Bandwidth rate) {
  return fmt::format("{:.0f}bit", std::max(8.0, std::round(rate.bits_per_second)));
}

// netem counts packets: those in flight and those that wait.
std::string delay(const Shape& shape) {
  const double in_flight = shape.rate.bytes_per_second() * static_cast<double>(shape.latency.value) * 1e-9;
  const double bytes = in_flight + static_cast<double>(kLimitPerBurst * burst_bytes(shape));
  return fmt::format("netem delay {}ns limit {:.0f}", shape.latency.value, std::ceil(bytes / kPacketBytes));
}

std::string htb_class(const std::string& device, int parent, int number, Bandwidth rate,
                      const Shape& ceiling) {
  const std::int64_t burst = burst_bytes(ceiling);
  return fmt::format(
      "class add dev {} parent 1:{} classid 1:{:x} htb rate {} ceil {} burst {}b cburst {}b quantum {}",
      device, parent == 0 ? "" : fmt::format("{:x}", parent), number, bits(rate), bits(ceiling.rate), burst,
      burst, kQuantumBytes);
}

}  // namespace

std::vector<std::string> shape_device(const std::string& device, const Shape& shape) {
  const std::int64_t burst = burst_bytes(shape);
  std::vector<std::string> lines = {
      fmt::format("qdisc replace dev {} root handle 1: tbf rate {} burst {}b limit {}b", device,
                  bits(shape.rate), burst, kLimitPerBurst * burst)};
  if (shape.latency.value > 0)
    lines.push_back(fmt::format("qdisc add dev {} parent 1:1 {}", device, delay(shape)));
  return lines;
}

std::vector<std::string> shape_destinations(const std::string& device,
                                            const std::vector<DestinationShape>& destinations,
                                            const std::vector<Bandwidth>& totals) {
  std::vector<std::string> lines = {fmt::format("qdisc replace dev {} root handle 1: htb default 0", device)};
  std::vector<double> asked(totals.size(), 0);
  std::set<int> counted;
  for (const DestinationShape& d : destinations)
    if (d.total && counted.insert(d.number).second) asked[*d.total] += d.shape.rate.bits_per_second;
  for (std::size_t i = 0; i < totals.size(); ++i)
    lines.push_back(
        htb_class(device, 0, kFirstTotal + static_cast<int>(i), totals[i], Shape{totals[i], {}, {}}));

  std::set<int> made;
  for (const DestinationShape& d : destinations) {
    if (made.insert(d.number).second) {
      // htb never holds a class below its guaranteed rate, so the guarantees must fit into the total.
      Bandwidth guaranteed = d.shape.rate;
      if (d.total)
        guaranteed.bits_per_second *= std::min(1.0, totals[*d.total].bits_per_second / asked[*d.total]);
      lines.push_back(htb_class(device, d.total ? kFirstTotal + *d.total : 0, d.number, guaranteed, d.shape));
      const std::string queue = d.shape.latency.value > 0
                                    ? delay(d.shape)
                                    : fmt::format("bfifo limit {}b", kLimitPerBurst * burst_bytes(d.shape));
      lines.push_back(fmt::format("qdisc add dev {} parent 1:{:x} {}", device, d.number, queue));
    }
    lines.push_back(
        fmt::format("filter add dev {} parent 1: protocol ip prio 1 u32 match ip dst {}/32 flowid 1:{:x}",
                    device, d.address, d.number));
  }
  return lines;
}

}  // namespace talweg::fabric
