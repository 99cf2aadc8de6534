// The mean of the workers' gradients by the objects of protocol/bounded, in virtual time: each worker sends
// its gradient to a server, over a network that loses packets as it is told to; the server's receiver decides
// which of them may be missing; and what all get back is exact.
//
//   LossyMean mean(loss, seed, {gradients[0].size(), 360});
//   mean.step(gradients);            // by worker; each has the mean in place of its own afterwards
//   mean.lost()                      // the part of what was sent that no sum has
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "protocol/bounded/lossy_sum.h"
#include "protocol/bounded/packet_class.h"
#include "protocol/bounded/receiver.h"
#include "protocol/bounded/sender.h"
#include "wire/datagram_cipher.h"

namespace talweg::learning {

inline constexpr std::size_t kWorkers = 8;
// How long a gradient is, and how much of it a packet takes: 1440 bytes, as an Ethernet frame does.
struct GradientSize {
  std::size_t values = 0;
  std::uint16_t packet_floats = 360;
  std::uint32_t packets() const {
    return static_cast<std::uint32_t>((values + packet_floats - 1) / packet_floats);
  }
};

// Which packets of gradients the network loses. Of what comes back it loses kPullLoss, which are sent again.
inline constexpr double kPullLoss = 0.02;
enum class Drops : std::uint8_t {
  none,
  evenly,          // each with the same probability, also when it is sent again; the server's bound is `part`
  smallest,        // those that their sender has marked as droppable: `packets` of each gradient
  largest,         // the `packets` of each gradient with the largest norms
  last_to_leave,   // the `packets` that leave last: what a receiver that stops early cuts off
  last_of_tensor,  // the last `packets` of the gradient: what that would be if they left in their order
};

struct Loss {
  Drops drops = Drops::none;
  double part = 0;
  std::uint32_t packets = 0;
  protocol::LossScale scale = protocol::LossScale::by_all;
  bool residual = false;  // what was lost is added to the next gradient
  double flipped = 0;     // of the packets of gradients, that arrive with one bit turned over
  bool checked = true;    // who receives a datagram looks at its checksum; else the bit is one of a value
};

class LossyMean {
 public:
  LossyMean(const Loss& loss, std::uint64_t seed, GradientSize size);
  ~LossyMean();
  LossyMean(const LossyMean&) = delete;
  LossyMean& operator=(const LossyMean&) = delete;

  // Throws Error where a transfer fails.
  void step(std::vector<std::vector<float>>& gradients);
  double lost() const;                  // 0 .. 1
  std::uint64_t packets_again() const;  // of gradients, that the receiver would not do without

 private:
  struct Worker;
  // From a sender to a receiver, each of one gradient or mean.
  struct Way {
    protocol::BoundedSender& sender;
    protocol::BoundedReceiver& receiver;
    std::uint16_t from = 0, to = 0;
  };

  void push(std::vector<std::vector<float>>& gradients);
  void pull(std::vector<std::vector<float>>& gradients);
  template <class Loses>
  void carry(std::vector<Way>& ways, const Loses& loses);
  template <class Loses>
  bool move(std::vector<Way>& ways, const Loses& loses);
  bool loses(std::uint16_t from, const wire::DatagramHeader& header, std::span<const std::byte> payload);
  bool flip(const wire::DatagramHeader& header, std::span<std::byte> payload);

  const Loss loss_;
  const GradientSize size_;
  const protocol::BoundedShape shape_;
  Random random_, flips_;
  std::int64_t now_ns_ = 0;
  std::uint32_t iteration_ = 0;
  protocol::BoundedReceiver receiver_;  // the server's
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Way> up_, down_;
  protocol::LossySum sum_;
  std::vector<float> mean_;
  std::vector<std::byte> payload_;
  // Of a datagram, as the wire has it.
  wire::DatagramSealer sealer_;
  wire::DatagramOpener opener_;
  std::vector<std::byte> datagram_;
  std::uint64_t lost_bytes_ = 0;
};

}  // namespace talweg::learning
