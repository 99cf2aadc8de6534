// What the network may do with the packets of a gradient: two questions that have nothing to do with each
// other. The layer says how soon a packet is needed, and so its queue; the size of its gradients says what is
// lost with it, and so which are dropped first where a queue is full.
//
//   classes.priority = queue_priority(depth, 4, LayerOrder::front_first);
//   ImportantPackets packets(shape, DataType::f32);
//   classes.important = &packets.of(gradient, drop_fraction(depth, 0.4, 0.2));       // each iteration
//
// A datagram's class (wire/datagram.h) is the priority with kDroppable for what is unimportant. On the way
// wire::traffic_class() makes of it a DSCP, by which a switch chooses one of its strict priority queues,
// and ECT(0) or, for droppable ones, Not-ECT: a queue with RED and ECN, both of its thresholds the same,
// marks the ones where it drops the others. So any switch with ECN drops selectively and needs no program.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol/bounded/packet_set.h"
#include "protocol/bounded/shape.h"
#include "talweg/types.h"

namespace talweg::protocol {

// The next forward pass needs the front layers first; that back layers matter more for what a model learns is
// said, too. So each of the two axes has an order of its own.
enum class LayerOrder : std::uint8_t { front_first, back_first };

// 1 .. queues, 1 the most urgent; 0 is control's. `depth`: where in the model it is: 0 next to its input .. 1
// next to its output. queues 1 .. 7; of one all are kOrdinary.
std::uint8_t queue_priority(double depth, int queues, LayerOrder order);

// How large a part of a layer's packets are the first to be dropped, between that of the first layer and that
// of the last.
constexpr double drop_fraction(double depth, double front, double back) {
  return front + (back - front) * depth;
}

// The root mean square of `count` values, from eight in each 64: a seventh of the time, and packets are told
// apart as well. NaN where any of these is no number. Of f64, f32, f16 and bf16.
double packet_magnitude(DataType type, const std::byte* data, std::size_t count);

// Which packets of a tensor are important: all but a part of them, those whose magnitudes are the smallest.
class ImportantPackets {
 public:
  // Throws Error{invalid_argument} for packets that cut elements apart. Of types that have no magnitude here
  // all packets are important.
  ImportantPackets(const BoundedShape& shape, DataType type);

  // shape.bytes of gradients, of which at most the part `droppable` (0 .. 1) is not important. The set stays
  // until the next call.
  const PacketSet& of(const std::byte* gradient, double droppable);

 private:
  struct Magnitude {
    double value = 0;
    std::uint32_t turn = 0;  // so that of equal ones not always the same are dropped
    std::uint32_t packet = 0;
    auto operator<=>(const Magnitude&) const = default;
  };
  const BoundedShape shape_;
  const DataType type_;
  PacketSet important_;
  std::uint32_t calls_ = 0;
  std::vector<Magnitude> magnitudes_;
};

}  // namespace talweg::protocol
