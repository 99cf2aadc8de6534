// What the network may do with the packets of a gradient: two questions that have nothing to do with each
// other. The layer says how soon a packet is needed, and so its queue; the size of its gradients says what is
// lost with it, and so which are dropped first where a queue is full.
//
//   classes.priority = queue_priority(layer, layers, 4, LayerOrder::front_first);
//   ImportantPackets packets(shape, DataType::f32, drop_fraction(layer, layers, 0.2, 0.4, LayerOrder::back_first));
//   classes.important = &packets.of(gradient);               // each iteration
//
// A datagram's class (wire/datagram.h) is the priority with kDroppable for what is unimportant. On the way
// wire::traffic_class() makes of it a DSCP, by which a switch chooses one of its strict priority queues,
// and ECT(0) or, for droppable ones, Not-ECT: a queue with RED and ECN, both of its thresholds the same,
// marks the ones where it drops the others. So any switch with ECN drops selectively and needs no program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/bounded/packet_set.h"
#include "protocol/bounded/shape.h"
#include "talweg/types.h"

namespace talweg::protocol {

// Layer 0 is the one next to the input. The next forward pass needs the front ones first; that back layers
// matter more for what a model learns is said, too. So each of the two axes is asked for its own order.
enum class LayerOrder : std::uint8_t { front_first, back_first };

// 1 .. queues, 1 the most urgent; 0 is control's. layer < layers, queues 1 .. 7.
std::uint8_t queue_priority(std::uint32_t layer, std::uint32_t layers, std::uint8_t queues, LayerOrder order);

// How large a part of a layer's packets are the first to be dropped: from `least`, of the layer that comes
// first in this order, to `most`, of the last.
double drop_fraction(std::uint32_t layer, std::uint32_t layers, double least, double most, LayerOrder order);

// The root mean square of `count` values, from eight in each 64: a seventh of the time, and packets are told
// apart as well. NaN where any of these is no number. Of f32, f16 and bf16.
float packet_magnitude(DataType type, const std::byte* data, std::size_t count);

// Which packets of a tensor are important: those whose magnitude is above a quantile of what it was in
// earlier iterations, a moving average. Of the first iteration all are. So nothing waits for all packets to
// be looked at before the first one can leave.
class ImportantPackets {
 public:
  static constexpr float kNewest = 0.5F;  // the weight of the newest iteration in the threshold

  // Throws Error{invalid_argument} for a fraction outside of [0, 1], or packets that cut elements apart. Of
  // types that have no magnitude here all packets are important.
  ImportantPackets(const BoundedShape& shape, DataType type, double droppable_fraction);

  // shape.bytes of gradients. The set stays until the next call.
  const PacketSet& of(const std::byte* gradient);
  float threshold() const { return threshold_; }  // 0 before the first iteration

 private:
  void learn();

  const BoundedShape shape_;
  const DataType type_;
  const double fraction_;
  float threshold_ = 0;
  bool known_ = false;
  PacketSet important_;
  std::vector<float> magnitudes_;
};

}  // namespace talweg::protocol
