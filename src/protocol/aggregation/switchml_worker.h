// A worker of SwitchML's, for a switch that speaks its wire (wire/switchml.h): the published one, or ours.
//
//   SwitchmlWorker worker(terms, sink);
//   worker.start({in, out, count, SwitchmlElements::f32}, deadline_ns, now_ns);
//   worker.on(packet, now_ns);  worker.on_time(now_ns);  worker.done()  worker.failure()
//
// All packets of all tensors stand in one line, P (the slots) apart from the next use of the same slot, and
// the versions of a slot take turns along it: a new tensor goes on where the last one ended. A packet is sent
// once the result of the one P before it is here, which is what makes it safe to use the slot again. The
// published worker waits only for the one L before it, L = min(P, blocks of the tensor): with tensors shorter
// than P it overwrites slots whose results have been lost.
//
// float32 takes two passes: packet k brings the exponent of block k and the integers of block k - L, whose
// largest exponent the result of packet k - L has told. So each tensor takes L packets more. The scale is the
// published one, (2^31 - 1) / (workers * 2^E); integers are held below (2^31 - 1) / workers, which its
// rounding alone does not promise. An exponent has 8 bits: blocks with values of 2^126 or more, infinities or
// NaN come out as NaN; blocks so small that the scale would be infinite come out as zero.
//
// Pure: no socket, no clock, no thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "protocol/aggregation/round_timer.h"
#include "protocol/aggregation/switch_terms.h"
#include "protocol/aggregation/worker.h"
#include "wire/switchml.h"

namespace talweg::protocol {

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  virtual void send(std::span<const std::byte> packet) = 0;  // valid during the call
};

struct SwitchmlWorkerTerms {
  std::uint8_t workers = 1;  // 1 to 32
  std::uint16_t first_slot = 0;
  std::uint16_t slots = 256;
  std::uint16_t elements = 256;  // 64 or 256
  RoundTimes times;
};

enum class SwitchmlElements : std::uint8_t { i32, f32 };

struct SwitchmlSum {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  // may be `in`
  std::size_t count = 0;
  SwitchmlElements elements = SwitchmlElements::i32;
};

class SwitchmlWorker {
 public:
  // Throws Error{invalid_argument}. `sink` must outlive it.
  SwitchmlWorker(const SwitchmlWorkerTerms& terms, PacketSink& sink);

  void start(const SwitchmlSum& sum, std::int64_t deadline_ns, std::int64_t now_ns);
  void on(std::span<const std::byte> packet, std::int64_t now_ns);
  void on_time(std::int64_t now_ns);
  std::int64_t next_time_ns() const { return next_ns_; }

  bool done() const { return !failure_ && accepted_ == packets_; }
  const std::optional<SumFailure>& failure() const { return failure_; }
  std::uint64_t sent_again() const { return sent_again_; }

 private:
  struct Flight {  // by slot
    std::uint32_t packet = 0;
    std::int64_t sent_ns = 0;
    std::int64_t due_ns = 0;
    std::uint8_t in_vain = 0;
    bool open = false;
  };
  bool is_float() const { return sum_.elements == SwitchmlElements::f32; }
  std::size_t block_count(std::uint32_t block) const;
  wire::SwitchmlHeader header_of(std::uint32_t packet) const;
  Flight& flight_of(std::uint32_t packet) { return flights_[(shift_ + packet) % terms_.slots]; }
  void send_if_ready(std::uint32_t packet, std::int64_t now_ns);
  void send(std::uint32_t packet, std::int64_t now_ns);
  void take(std::uint32_t block, const std::byte* integers);
  float scale_of_block(std::int8_t exponent) const;  // 0: nothing of it travels

  const SwitchmlWorkerTerms terms_;
  PacketSink& sink_;
  RoundTimer timer_;
  SwitchmlSum sum_;
  std::uint8_t job_ = 0;     // of this tensor
  std::uint32_t shift_ = 0;  // where its first packet stands in the line, modulo twice the slots
  std::uint32_t blocks_ = 0;
  std::uint32_t lead_ = 0;    // packets between a block's exponent and its integers
  std::uint32_t window_ = 0;  // packets that are sent at once
  std::uint32_t packets_ = 0;
  std::uint32_t accepted_ = 0;
  std::vector<bool> sent_, here_;       // by packet
  std::vector<std::int8_t> exponents_;  // of all workers, by block
  std::vector<Flight> flights_;
  std::vector<std::byte> packet_, integers_;
  std::int64_t deadline_ns_ = 0;
  std::int64_t next_ns_ = std::numeric_limits<std::int64_t>::max();
  std::uint64_t sent_again_ = 0;
  std::optional<SumFailure> failure_;
};

}  // namespace talweg::protocol
