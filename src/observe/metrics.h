// Counters of one process's calls, and their form for Prometheus' textfile collector. docs/seeing.md lists
// the names. One allocation when made, none after.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "observe/recorder.h"
#include "talweg/bounded_loss.h"
#include "talweg/error.h"
#include "talweg/types.h"

namespace talweg::observe {

// What is known of the connection to one rank.
struct PeerSight {
  int rank = 0;
  std::string host;
  std::uint64_t retransmits = 0;  // segments sent again, or datagrams that were lost
  double round_trip_seconds = 0;  // smoothed; 0: shared memory
  double lag_seconds = 0;         // how long a call in flight here has waited for this rank to start it
  bool datagrams = false;         // what is sent now goes in datagrams
  std::uint64_t paths_left = 0;   // times that one of several answered nothing and was left
};

// Of all sums of which a part may be lost (talweg/bounded_loss.h) that have completed.
struct BoundedTotals {
  std::uint64_t calls = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t lost_bytes = 0;
  std::uint64_t packets_again = 0;
  std::vector<std::uint64_t> lost_of_sender;  // by rank of the joined group

  // `members`: the rank in the joined group of each rank that `report` counts.
  void add(const LossReport& report, const std::vector<int>& members);
};

// Datagrams to and from the switches that sum for a group, with all that these are measured by.
struct SwitchTraffic {
  bool any = false;  // there are such switches
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

// What else goes into the file, gathered when it is written.
struct Sight {
  int rank = 0;
  int size = 1;
  std::string host;
  std::uint64_t job = 0;
  std::uint64_t in_flight = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t peak_buffer_bytes = 0;
  std::vector<PeerSight> peers;
  BoundedTotals bounded;
  SwitchTraffic switched;
};

class Metrics {
 public:
  // `bytes` as `talweg perf` counts a collective's size; send_recv: of the message.
  void add(CallNote::Kind kind, Collective op, std::int64_t bytes, int ranks, std::int64_t ns);
  void fail(CallNote::Kind kind, Collective op, ErrorCode code) {
    ++failed_[row(kind, op)][static_cast<std::size_t>(code)];
  }
  void stall() { ++stalls_; }
  // Of an all_reduce that a switch could have summed.
  void sum(protocol::SumWay way, std::int64_t bytes) {
    Sums& sums = sums_[static_cast<std::size_t>(way)];
    ++sums.calls;
    sums.bytes += static_cast<std::uint64_t>(bytes);
  }

  std::string text(const Sight& sight) const;

  static constexpr std::size_t kSizes = 6;
  static constexpr std::size_t kTimes = 8;

 private:
  // One for each collective, and the last three for bounded calls and their halves.
  static constexpr std::size_t kRows = kCollectives + 3;
  static std::size_t row(CallNote::Kind kind, Collective op) {
    if (!is_bounded(kind)) return static_cast<std::size_t>(op);
    return kCollectives + static_cast<std::size_t>(kind) - static_cast<std::size_t>(CallNote::Kind::bounded);
  }
  static const char* row_name(std::size_t row);
  struct Cell {
    std::uint64_t calls = 0;
    double bytes = 0;
    double bus_bytes = 0;
    double seconds = 0;
    double longest = 0;
    std::array<std::uint64_t, kTimes> within{};  // calls that took no longer than the class, not summed up
  };
  std::array<std::array<Cell, kSizes>, kRows> cells_{};
  std::array<std::array<std::uint64_t, 10>, kRows> failed_{};
  struct Sums {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
  };
  std::array<Sums, protocol::kSumWays> sums_{};
  std::uint64_t stalls_ = 0;
};

}  // namespace talweg::observe
