// A worker of streaming aggregation, its datagrams caught one by one.
#pragma once

#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "protocol/aggregation/worker.h"
#include "protocol/unpacked_message.h"

namespace talweg::protocol {

using wire::AggregationEntry;
using wire::AggregationFormat;
using wire::AggregationType;
using wire::kNeverNext;
using wire::kNoBlock;

inline constexpr std::int64_t kOneMs = 1'000'000;
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

using Caught = UnpackedMessage;

struct Catcher : DatagramSink {
  std::vector<Caught> sent;
  void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override {
    sent.emplace_back(header, payload);
  }
  std::vector<Caught> take() { return std::exchange(sent, {}); }
};

// Blocks of 2 elements; 2 workers, this one is the first.
struct Bench {
  explicit Bench(std::uint16_t slots = 2, std::uint8_t columns = 1, std::uint32_t workers = 2)
      : worker({1, 1, 0, workers, 0, slots, columns, 2, {10 * kOneMs, kOneMs, 100 * kOneMs}}, sink) {}

  void start(std::vector<float> in, bool sparse = false, AggregationFormat format = AggregationFormat::f32,
             std::uint32_t operation = 1) {
    input = std::move(in);
    output.assign(input.size(), -99.0F);
    operation_ = operation;
    worker.start({reinterpret_cast<const std::byte*>(input.data()),
                  reinterpret_cast<std::byte*>(output.data()), input.size(), format, 2, sparse},
                 operation, now_ns + longest_ns, now_ns);
  }
  // A result of one entry; without values nobody had data.
  void result(std::uint16_t slot, std::uint64_t block, std::uint64_t next, std::vector<float> values,
              bool version = false, std::int16_t exponent = wire::kZeroExponent, std::uint8_t column = 0) {
    AggregationEntry entry{block, next, exponent, static_cast<std::uint16_t>(values.size()), column, version};
    entry.data = !values.empty();
    say(AggregationType::result, slot, entry, values.data(), {});
  }
  void say(AggregationType type, std::uint16_t slot, const AggregationEntry& entry, const void* data,
           const std::vector<std::uint16_t>& workers) {
    std::vector<std::byte> buffer(1000);
    wire::AggregationWriter writer(buffer);
    writer.begin(format(), type == AggregationType::result ? number : std::uint16_t{0});
    std::byte* const at = writer.add(entry);
    if (entry.data) std::memcpy(at, data, std::size_t{entry.count} * 4);
    for (const std::uint16_t w : workers) writer.add_name(w);
    worker.on(header(type, slot), writer.payload(), now_ns);
  }
  void gap(std::uint16_t slot, const std::vector<std::uint16_t>& names) {
    std::vector<std::byte> buffer(1000);
    wire::AggregationWriter writer(buffer);
    writer.begin(format());
    for (const std::uint16_t name : names) writer.add_name(name);
    worker.on(header(AggregationType::gap, slot), writer.payload(), now_ns);
  }
  void refusal(const wire::AggregationRefusal& refusal, std::uint16_t slot = 0) {
    std::byte bytes[wire::kRefusalBytes];
    wire::encode(refusal, bytes);
    worker.on(header(AggregationType::refusal, slot), bytes, now_ns);
  }
  wire::DatagramHeader header(AggregationType type, std::uint16_t slot) const {
    wire::DatagramHeader h;
    h.type = static_cast<std::uint8_t>(type);
    h.job = h.epoch = 1;
    h.flags = type == AggregationType::result && to_all ? wire::kDatagramToAll : std::uint8_t{0};
    h.own16 = slot;
    h.own32 = operation_;
    return h;
  }
  AggregationFormat format() const { return format_; }

  Catcher sink;
  AggregationWorker worker;
  std::vector<float> input, output;
  AggregationFormat format_ = AggregationFormat::f32;
  std::uint32_t operation_ = 1;
  std::uint16_t number = 0;  // of the results
  bool to_all = true;
  std::int64_t now_ns = 0, longest_ns = 1000 * kOneMs;
};

}  // namespace talweg::protocol
