// Sums of tensors parts of which have been lost on the way, and what a sender does about its losses.
//
//   LossySum sum(shape, DataType::f32);
//   sum.begin(out);
//   sum.add(data, missing);                    // each worker's, its own with an empty set; in the order of ranks
//   sum.finish(LossScale::by_all, workers);    // `out` is the mean
//
// A lost packet adds nothing. Without a loss the bits are those of kernel::reduce_function one after the
// other.
//
//   ErrorFeedback feedback(shape, DataType::f32);
//   feedback.add_to(gradient);                 // what was lost last time comes with this one
//   ... send it; then feedback.remember(gradient, outflow.lost());
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/reduce.h"
#include "protocol/bounded/packet_set.h"
#include "protocol/bounded/shape.h"

namespace talweg::protocol {

// What a sum is divided by. By all workers, a lost packet counts as zero and the mean is a little short: the
// better one up to a tenth of losses. By as many as have come, the mean is right on average and varies more,
// which a high learning rate does not bear at high loss.
enum class LossScale : std::uint8_t { by_all, by_received, none };

class LossySum {
 public:
  // Throws Error{invalid_argument} for packets that cut elements apart, or types that have no sum.
  LossySum(const BoundedShape& shape, DataType type);

  // `out` has shape.bytes. It may be what is added first, in place.
  void begin(std::byte* out);
  void add(const std::byte* data, const PacketSet& missing);
  // Packets that have come from nobody are zero.
  void finish(LossScale scale, int workers);
  // Of one packet, from how many it has come.
  std::uint16_t received(std::uint32_t packet) const { return received_[packet]; }

 private:
  std::size_t elements(std::uint32_t packet) const;

  const BoundedShape shape_;
  const DataType type_;
  const kernel::ReduceFunction add_;
  std::byte* out_ = nullptr;
  std::vector<std::uint16_t> received_;
};

class ErrorFeedback {
 public:
  // Throws as LossySum does.
  ErrorFeedback(const BoundedShape& shape, DataType type);
  void add_to(std::byte* gradient);
  void remember(const std::byte* gradient, const PacketSet& lost);

 private:
  const BoundedShape shape_;
  const DataType type_;
  const kernel::ReduceFunction add_;
  PacketSet held_;
  std::vector<std::byte> bytes_;  // of the packets that are held, each in its place
};

}  // namespace talweg::protocol
