#include "protocol/aggregation/switchml_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fail.h"
#include "kernel/blocks.h"

namespace talweg::protocol {

namespace {

constexpr std::int64_t kNoTimer = std::numeric_limits<std::int64_t>::max();
constexpr std::int8_t kZeroByte = std::numeric_limits<std::int8_t>::min();
constexpr std::int8_t kNotFiniteByte = std::numeric_limits<std::int8_t>::max();

std::int8_t exponent_byte(std::uint32_t magnitude_bits) {
  const std::int16_t exponent = exponent_of(magnitude_bits);
  if (exponent == wire::kZeroExponent) return kZeroByte;
  return static_cast<std::int8_t>(std::min<std::int16_t>(exponent, kNotFiniteByte));
}

}  // namespace

SwitchmlWorker::SwitchmlWorker(const SwitchmlWorkerTerms& terms, PacketSink& sink)
    : terms_(terms), sink_(sink), timer_(terms.times) {
  if (terms.workers == 0 || terms.workers > kMaxSwitchmlWorkers)
    refuse("SwitchML's protocol has 1 to {} workers, not {}", kMaxSwitchmlWorkers, terms.workers);
  if (terms.slots == 0 || terms.first_slot + terms.slots > wire::kSwitchmlSlots)
    refuse("SwitchML's protocol has {} slots: a worker uses 1 or more of them, not {} from {} on",
           wire::kSwitchmlSlots, terms.slots, terms.first_slot);
  if (terms.elements != 64 && terms.elements != 256)
    refuse("SwitchML's packets have 64 or 256 elements, not {}", terms.elements);
  flights_.resize(terms.slots);
  packet_.resize(wire::switchml_bytes(terms.elements));
  integers_.resize(std::size_t{terms.elements} * 4);
}

void SwitchmlWorker::start(const SwitchmlSum& sum, std::int64_t deadline_ns, std::int64_t now_ns) {
  if (failure_) refuse("a sum by SwitchML's protocol: an earlier one has failed: {}", failure_->text);
  if (!done()) refuse("a sum by SwitchML's protocol: the one before it has not ended");
  const std::size_t blocks = (sum.count + terms_.elements - 1) / terms_.elements;
  if (blocks > (1U << 30)) refuse("a sum by SwitchML's protocol: {} elements are too many", sum.count);
  shift_ = (shift_ + packets_) % (2U * terms_.slots);
  if (packets_ > 0) ++job_;
  sum_ = sum;
  blocks_ = static_cast<std::uint32_t>(blocks);
  window_ = std::min<std::uint32_t>(terms_.slots, blocks_);
  lead_ = is_float() ? window_ : 0;
  packets_ = blocks_ + lead_;
  accepted_ = 0;
  sent_.assign(packets_, false);
  here_.assign(packets_, false);
  exponents_.assign(is_float() ? blocks_ : 0, kZeroByte);
  deadline_ns_ = deadline_ns;
  next_ns_ = packets_ > 0 ? deadline_ns : kNoTimer;
  for (std::uint32_t k = 0; k < window_; ++k) send_if_ready(k, now_ns);
}

std::size_t SwitchmlWorker::block_count(std::uint32_t block) const {
  return std::min<std::size_t>(terms_.elements, sum_.count - std::size_t{block} * terms_.elements);
}

wire::SwitchmlHeader SwitchmlWorker::header_of(std::uint32_t packet) const {
  const std::uint32_t place = (shift_ + packet) % (2U * terms_.slots);
  wire::SwitchmlHeader header;
  header.job = job_;
  header.packet = packet;
  header.slot = static_cast<std::uint16_t>(terms_.first_slot + place % terms_.slots);
  header.version = place >= terms_.slots;
  header.elements = terms_.elements;
  return header;
}

// Its slot is free, and what it is to carry is known.
void SwitchmlWorker::send_if_ready(std::uint32_t packet, std::int64_t now_ns) {
  const auto here = [&](std::uint32_t before) { return packet < before || here_[packet - before]; };
  if (packet >= packets_ || sent_[packet] || !here(terms_.slots) || !here(window_)) return;
  sent_[packet] = true;
  flight_of(packet) = {packet, now_ns, 0, 0, true};
  send(packet, now_ns);
}

void SwitchmlWorker::send(std::uint32_t packet, std::int64_t now_ns) {
  wire::SwitchmlHeader header = header_of(packet);
  std::fill(integers_.begin(), integers_.end(), std::byte{0});
  if (is_float() && packet < blocks_) {
    const std::byte* const in = sum_.in + std::size_t{packet} * terms_.elements * 4;
    header.exponents[0] = header.exponents[1] = exponent_byte(kernel::max_magnitude(in, block_count(packet)));
  } else if (is_float()) {
    header.exponents[0] = header.exponents[1] = kZeroByte;
  }
  if (packet >= lead_) {
    const std::uint32_t block = packet - lead_;
    const std::byte* const in = sum_.in + std::size_t{block} * terms_.elements * 4;
    if (!is_float())
      std::memcpy(integers_.data(), in, block_count(block) * 4);
    else if (const float scale = scale_of_block(exponents_[block]); scale > 0)
      kernel::quantise(integers_.data(), in, block_count(block), scale,
                       std::numeric_limits<std::int32_t>::max() / terms_.workers);
  }
  wire::encode(header, packet_.data());
  kernel::swap_words(packet_.data() + wire::kSwitchmlHeaderBytes, integers_.data(), terms_.elements);
  Flight& flight = flight_of(packet);
  flight.due_ns = now_ns + timer_.wait_ns(flight.in_vain);
  next_ns_ = std::min(next_ns_, flight.due_ns);
  sink_.send(packet_);
}

float SwitchmlWorker::scale_of_block(std::int8_t exponent) const {
  if (exponent == kZeroByte || exponent == kNotFiniteByte) return 0;
  const double scale = static_cast<double>(std::numeric_limits<std::int32_t>::max()) /
                       std::ldexp(static_cast<double>(terms_.workers), exponent);
  return scale < 0x1p126 ? static_cast<float>(scale) : 0;
}

void SwitchmlWorker::on(std::span<const std::byte> packet, std::int64_t now_ns) {
  wire::SwitchmlHeader header;
  if (failure_ || wire::decode(packet, header) != nullptr || header.elements != terms_.elements ||
      header.job != job_ || header.packet >= packets_ || here_[header.packet] || !sent_[header.packet])
    return;
  const wire::SwitchmlHeader expected = header_of(header.packet);
  if (header.slot != expected.slot || header.version != expected.version) return;
  Flight& flight = flight_of(header.packet);
  if (flight.in_vain == 0) timer_.measured(now_ns - flight.sent_ns);
  flight.open = false;  // before the block is overwritten: it cannot be sent again from here on
  here_[header.packet] = true;
  ++accepted_;
  if (header.packet < exponents_.size()) exponents_[header.packet] = header.exponents[0];
  if (header.packet >= lead_) take(header.packet - lead_, packet.data() + wire::kSwitchmlHeaderBytes);
  send_if_ready(header.packet + window_, now_ns);
  send_if_ready(header.packet + terms_.slots, now_ns);
  if (done()) next_ns_ = kNoTimer;
}

void SwitchmlWorker::take(std::uint32_t block, const std::byte* integers) {
  std::byte* const out = sum_.out + std::size_t{block} * terms_.elements * 4;
  const std::size_t count = block_count(block);
  kernel::swap_words(out, integers, count);
  if (!is_float()) return;
  const float scale = scale_of_block(exponents_[block]);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (exponents_[block] == kNotFiniteByte)
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + i * 4, &kNan, 4);
  else
    kernel::dequantise(out, out, count, scale > 0 ? 1 / scale : 0);
}

void SwitchmlWorker::on_time(std::int64_t now_ns) {
  if (now_ns < next_ns_) return;
  if (done() || failure_) {
    next_ns_ = kNoTimer;
    return;
  }
  if (now_ns >= deadline_ns_) {
    failure_ = SumFailure{
        ErrorCode::timeout,
        fmt::format("a sum by SwitchML's protocol: {} of {} packets have no result by the deadline; "
                    "its wire does not say which of the {} workers are missing",
                    packets_ - accepted_, packets_, terms_.workers)};
    next_ns_ = kNoTimer;
    return;
  }
  next_ns_ = deadline_ns_;
  for (Flight& flight : flights_) {
    if (!flight.open) continue;
    if (flight.due_ns > now_ns) {
      next_ns_ = std::min(next_ns_, flight.due_ns);
      continue;
    }
    if (flight.in_vain < 0xff) ++flight.in_vain;
    ++sent_again_;
    send(flight.packet, now_ns);
  }
}

}  // namespace talweg::protocol
