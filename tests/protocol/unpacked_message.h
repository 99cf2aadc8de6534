// A datagram of streaming aggregation, taken apart.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "wire/aggregation.h"
#include "wire/datagram.h"

namespace talweg::protocol {

using wire::AggregationEntry;
using wire::AggregationFormat;
using wire::AggregationType;
using wire::kNeverNext;

struct UnpackedMessage {
  wire::DatagramHeader header;
  std::vector<AggregationEntry> entries;
  std::vector<std::vector<std::byte>> data;
  std::vector<std::vector<std::uint16_t>> absent;  // of a result's entries
  std::uint16_t number = 0;
  std::vector<std::uint16_t> names;
  wire::AggregationRefusal refusal;

  UnpackedMessage(const wire::DatagramHeader& its_header, std::span<const std::byte> payload)
      : header(its_header) {
    EXPECT_EQ(header.length, payload.size());
    if (type() == AggregationType::refusal) {
      EXPECT_EQ(wire::decode(payload, refusal), nullptr);
      return;
    }
    wire::AggregationMessage message;
    EXPECT_EQ(wire::decode(header, payload, message), nullptr);
    wire::for_each_entry(message, [&](const AggregationEntry& entry, std::span<const std::byte> bytes) {
      entries.push_back(entry);
      data.emplace_back(bytes.begin(), bytes.end());
      absent.emplace_back();
      for (std::size_t i = 0; type() == AggregationType::result && i < entry.absent; ++i)
        absent.back().push_back(wire::absent_at(bytes, i));
    });
    number = message.number;
    for (std::size_t i = 0; i < wire::names_in(message); ++i) names.push_back(wire::name_at(message, i));
  }
  AggregationType type() const { return static_cast<AggregationType>(header.type); }
  template <typename T>
  std::vector<T> values(std::size_t entry = 0) const {
    std::vector<T> all(data.at(entry).size() / sizeof(T));
    if (!all.empty()) std::memcpy(all.data(), data[entry].data(), data[entry].size());
    return all;
  }
};

}  // namespace talweg::protocol
