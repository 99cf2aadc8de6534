// A switch of streaming aggregation that is handed datagrams made by hand, and what it says to each.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernel/half.h"
#include "protocol/aggregation/switch.h"
#include "protocol/unpacked_message.h"

namespace talweg::protocol {

struct Said : UnpackedMessage {
  explicit Said(const SwitchAction& action)
      : UnpackedMessage(action.header, action.payload),
        to(action.to),
        peers(action.peers.begin(), action.peers.end()) {}
  SwitchAction::To to;
  std::vector<Peer> peers;
};

inline std::vector<Said> unpacked(std::span<const SwitchAction> actions) {
  std::vector<Said> all;
  for (const SwitchAction& action : actions) all.emplace_back(action);
  return all;
}

// One part of a contribution: some values of a block, or none.
struct Part {
  std::uint64_t block = 0;
  std::uint64_t next = kNeverNext;
  std::vector<std::int32_t> values = {};
  std::uint8_t column = 0;
  bool version = false;
  std::int16_t exponent = wire::kZeroExponent;
  std::uint16_t allowance = 0;
};

inline JobTerms terms_of(std::uint16_t workers, std::uint32_t job = 1, std::uint32_t epoch = 1) {
  JobTerms terms;
  terms.job = job;
  terms.epoch = epoch;
  terms.self = 900;
  terms.workers = workers;
  terms.slots = 4;
  terms.columns = 4;
  terms.block = 8;
  terms.bytes_per_second = 1e9;
  terms.burst_bytes = 1e9;
  return terms;
}

struct OneSwitch {
  explicit OneSwitch(const JobTerms& terms) : box({64 << 20, 8, 1e11}) { EXPECT_FALSE(box.open(terms)); }

  wire::DatagramHeader header(std::uint16_t worker, std::uint32_t operation, std::uint16_t slot = 0) const {
    wire::DatagramHeader h;
    h.type = static_cast<std::uint8_t>(AggregationType::contribution);
    h.job = job;
    h.epoch = epoch;
    h.sender = worker;
    h.own16 = slot;
    h.own32 = operation;
    return h;
  }
  static std::vector<std::byte> payload(const std::vector<Part>& parts,
                                        AggregationFormat format = AggregationFormat::i32,
                                        std::uint16_t number = 0) {
    std::vector<std::byte> buffer(8192);
    wire::AggregationWriter writer(buffer);
    writer.begin(format, number);
    for (const Part& part : parts) {
      AggregationEntry entry{part.block,    part.next,
                             part.exponent, static_cast<std::uint16_t>(part.values.size()),
                             part.column,   part.version};
      entry.absent = part.allowance;
      entry.data = !part.values.empty();
      std::byte* const at = writer.add(entry);
      for (std::size_t i = 0; i < part.values.size(); ++i) {
        const std::uint16_t half = kernel::f32_to_f16(static_cast<float>(part.values[i]));
        const auto real = static_cast<float>(part.values[i]);
        if (format == AggregationFormat::f16)
          std::memcpy(at + i * 2, &half, 2);
        else if (format == AggregationFormat::f32)
          std::memcpy(at + i * 4, &real, 4);
        else
          std::memcpy(at + i * 4, &part.values[i], 4);
      }
    }
    return {writer.payload().begin(), writer.payload().end()};
  }
  std::vector<Said> hand(const wire::DatagramHeader& h, const std::vector<std::byte>& bytes) {
    return unpacked(box.on(h, bytes, {100U + h.sender, port}, now_ns));
  }
  std::vector<Said> send(std::uint16_t worker, std::uint32_t operation, const Part& part) {
    return hand(header(worker, operation), payload({part}));
  }
  std::vector<Said> ask(std::uint16_t worker, std::uint32_t operation, const Part& part) {
    wire::DatagramHeader h = header(worker, operation);
    h.type = static_cast<std::uint8_t>(AggregationType::query);
    return hand(h, payload({{part.block, kNeverNext, {}, part.column, part.version}}));
  }
  // Says that results have not come.
  std::vector<Said> miss(std::uint16_t worker, const std::vector<std::uint16_t>& results) {
    std::vector<std::byte> buffer(100);
    wire::AggregationWriter writer(buffer);
    writer.begin(AggregationFormat::i32);
    for (const std::uint16_t result : results) writer.add_name(result);
    wire::DatagramHeader h = header(worker, 1);
    h.type = static_cast<std::uint8_t>(AggregationType::gap);
    return hand(h, {writer.payload().begin(), writer.payload().end()});
  }
  const SwitchCounters& counters() { return *box.counters(job); }

  AggregationSwitch box;
  std::uint32_t job = 1, epoch = 1;
  std::uint16_t port = 7000;
  std::int64_t now_ns = 0;
};

using To = SwitchAction::To;

inline void expect_sum(const std::vector<Said>& said, To to, std::int32_t value) {
  ASSERT_THAT(said, ::testing::SizeIs(1));
  EXPECT_EQ(said[0].to, to);
  EXPECT_EQ(said[0].type(), AggregationType::result);
  EXPECT_THAT(said[0].values<std::int32_t>(), ::testing::Each(value));
}

}  // namespace talweg::protocol
