#include "study/simulate_transport.h"

#include <algorithm>

#include "base/fail.h"

namespace talweg::study {

std::span<const TransportPreset> transport_presets() {
  using Kind = sim::TransportKind;
  static constexpr TransportPreset kPresets[] = {
      // clang-format off
      {.name = "dctcp", .kind = Kind::dctcp, .priorities = 1, .data_below = false, .trim = false, .queue_packets = 0,
       .marks = true, .window = 10, .spray = false, .ack_every = 2, .least_rto = Nanoseconds{10'000'000}},
      {.name = "ndp", .kind = Kind::pulled, .priorities = 2, .data_below = true, .trim = true, .queue_packets = 8,
       .marks = false, .window = 30, .spray = true, .ack_every = 1, .least_rto = Nanoseconds{1'000'000}},
      {.name = "eqds", .kind = Kind::pulled, .priorities = 2, .data_below = true, .trim = true, .queue_packets = 8,
       .marks = false, .window = 0, .spray = true, .ack_every = 1, .least_rto = Nanoseconds{1'000'000}},
      {.name = "pfabric", .kind = Kind::pfabric, .priorities = 1, .data_below = false, .trim = false, .queue_packets = 8,
       .marks = false, .window = 0, .spray = true, .ack_every = 1, .least_rto = Nanoseconds{0}, .round_trips = 2, .least_left_first = true},
      {.name = "pias", .kind = Kind::dctcp, .priorities = sim::kPriorities, .data_below = false, .trim = false,
       .queue_packets = 0, .marks = true, .window = 10, .spray = false, .ack_every = 1, .least_rto = Nanoseconds{10'000'000}, .demotes = true},
      // clang-format on
  };
  return kPresets;
}

const TransportPreset& transport_preset(std::string_view name) {
  const auto presets = transport_presets();
  const auto found = std::ranges::find_if(presets, [&](const TransportPreset& p) { return p.name == name; });
  if (found == presets.end())
    refuse("--transport: expected dctcp, ndp, eqds, pfabric or pias, got \"{}\"", name);
  return *found;
}

void apply(const TransportPreset& preset, sim::SimulationOptions& options) {
  sim::TransportOptions& transport = options.transport;
  transport.kind = preset.kind;
  transport.turns = true;
  transport.data_priority = preset.data_below ? 1 : 0;
  transport.first_window = preset.window;
  transport.spray = preset.spray;
  transport.ack_every = preset.ack_every;
  transport.least_rto = preset.least_rto;
  if (preset.demotes) transport.demote_bytes = kDemoteBytes;
  sim::QueuePolicy& queue = options.network.switch_queue;
  queue.priorities = options.network.host_queue.priorities = preset.priorities;
  queue.limit_bytes = preset.queue_packets > 0 ? static_cast<std::int64_t>(preset.queue_packets) *
                                                     (transport.payload_bytes + transport.header_bytes)
                                               : kQueueBytes;
  queue.limit_round_trips = preset.round_trips;
  queue.least_left_first = preset.least_left_first;
  queue.mark_by_delay = preset.marks;
  queue.mark_bytes = preset.marks ? kMarkBytes : 0;
  queue.trim = preset.trim;
  settle_trimming(queue);
}

void settle_trimming(sim::QueuePolicy& queue) {
  queue.trim = queue.trim && queue.priorities > 1 && queue.limit_bytes > 0;
  queue.urgent_limit_bytes = queue.trim ? std::max(queue.limit_bytes, kQueueBytes) : 0;
}

}  // namespace talweg::study
