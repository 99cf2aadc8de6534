// Acknowledgements of a flow: what is let through holds together, and is the same when it is written again.
#include <algorithm>
#include <vector>

#include "fuzz/fuzz.h"
#include "wire/flow_packets.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = fuzz::bytes_of(data, size);
  wire::Acknowledgement ack;
  if (const char* why = decode(bytes, ack); why != nullptr) {
    fuzz::require(*why != '\0');
    return 0;
  }
  fuzz::require(ack.n_ranges > 0 && ack.n_ranges <= wire::kAckRanges && ack.n_limits <= wire::kFlowChannels);
  std::uint64_t above = ack.highest() + 2;
  for (std::size_t i = 0; i < ack.n_ranges; ++i) {
    fuzz::require(ack.ranges[i].begin < ack.ranges[i].end && ack.ranges[i].end < above);
    above = ack.ranges[i].begin;
  }
  std::vector<std::byte> again(wire::kMostAckBytes);
  again.resize(encode(ack, again.data()));
  fuzz::require(std::ranges::equal(again, bytes));
  return 0;
}
