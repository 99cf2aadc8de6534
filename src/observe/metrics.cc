#include "observe/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/collectives.h"
#include "text/escape.h"
#include "text/prometheus.h"

namespace talweg::observe {

namespace {

struct SizeClass {
  std::int64_t up_to;
  const char* label;
};
// The classes in which an algorithm is likely to stay the same.
constexpr std::array<SizeClass, Metrics::kSizes - 1> kSizeClasses{
    {{4 << 10, "4KiB"}, {64 << 10, "64KiB"}, {1 << 20, "1MiB"}, {16 << 20, "16MiB"}, {256 << 20, "256MiB"}}};
constexpr std::array<double, Metrics::kTimes> kTimeClasses{3e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 60};

const char* size_label(std::size_t i) {
  return i < kSizeClasses.size() ? kSizeClasses[i].label : "larger";
}

// Of "name pid 123".
std::string host_label(const std::string& host) {
  return text::backslashed(host.substr(0, host.rfind(" pid ")));
}

}  // namespace

void BoundedTotals::add(const LossReport& report, const std::vector<int>& members) {
  ++calls;
  sent_bytes += report.sent_bytes;
  lost_bytes += report.lost_bytes;
  packets_again += report.packets_again;
  for (std::size_t r = 0; r < report.lost_of_sender.size(); ++r) {
    const auto sender = static_cast<std::size_t>(members[r]);
    if (sender >= lost_of_sender.size()) lost_of_sender.resize(sender + 1);
    lost_of_sender[sender] += report.lost_of_sender[r];
  }
}

const char* Metrics::row_name(std::size_t row) {
  if (row < kCollectives) return name(static_cast<Collective>(row));
  const auto bounded = static_cast<std::size_t>(CallNote::Kind::bounded);
  return call_name(static_cast<CallNote::Kind>(row - kCollectives + bounded), Collective::all_reduce);
}

void Metrics::add(CallNote::Kind kind, Collective op, std::int64_t bytes, int ranks, std::int64_t ns) {
  std::size_t size = 0;
  while (size < kSizeClasses.size() && bytes > kSizeClasses[size].up_to) ++size;
  Cell& cell = cells_[row(kind, op)][size];
  const double seconds = static_cast<double>(ns) * 1e-9;
  ++cell.calls;
  cell.bytes += static_cast<double>(bytes);
  cell.bus_bytes += static_cast<double>(bytes) * busbw_factor(op, ranks);
  cell.seconds += seconds;
  cell.longest = std::max(cell.longest, seconds);
  std::size_t time = 0;
  while (time < kTimes && seconds > kTimeClasses[time]) ++time;
  if (time < kTimes) ++cell.within[time];
}

std::string Metrics::text(const Sight& sight) const {
  text::PrometheusPage page;
  const std::string rank = fmt::format("rank=\"{}\"", sight.rank);
  const auto each = [&](auto&& function) {
    for (std::size_t op = 0; op < cells_.size(); ++op)
      for (std::size_t size = 0; size < kSizes; ++size)
        if (const Cell& cell = cells_[op][size]; cell.calls > 0)
          function(cell,
                   fmt::format("{},collective=\"{}\",size=\"{}\"", rank, row_name(op), size_label(size)));
  };

  page.family("talweg_info", "gauge", "What this process is: always 1.");
  page.sample("talweg_info",
              fmt::format("{},ranks=\"{}\",host=\"{}\",job=\"{:016x}\"", rank, sight.size,
                          host_label(sight.host), sight.job),
              1);
  page.family(
      "talweg_call_seconds", "histogram",
      "Time from the start of a call to its end, by collective and by the vector's size up to `size`.");
  each([&](const Cell& cell, const std::string& labels) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kTimes; ++i)
      page.sample("talweg_call_seconds_bucket", fmt::format("{},le=\"{}\"", labels, kTimeClasses[i]),
                  sum += cell.within[i]);
    page.sample("talweg_call_seconds_bucket", labels + ",le=\"+Inf\"", cell.calls);
    page.sample("talweg_call_seconds_sum", labels, cell.seconds);
    page.sample("talweg_call_seconds_count", labels, cell.calls);
  });
  page.family("talweg_call_seconds_max", "gauge", "The longest call so far.");
  each([&](const Cell& cell, const std::string& labels) {
    page.sample("talweg_call_seconds_max", labels, cell.longest);
  });
  page.family("talweg_call_bytes_total", "counter", "Bytes of the vectors of completed calls.");
  each([&](const Cell& cell, const std::string& labels) {
    page.sample("talweg_call_bytes_total", labels, cell.bytes);
  });
  page.family("talweg_bus_bytes_total", "counter",
              "The same times the collective's bus factor: divided by talweg_call_seconds_sum it is busbw.");
  each([&](const Cell& cell, const std::string& labels) {
    page.sample("talweg_bus_bytes_total", labels, cell.bus_bytes);
  });
  page.family("talweg_busbw_bytes_per_second", "gauge", "Bus bandwidth over all completed calls so far.");
  each([&](const Cell& cell, const std::string& labels) {
    page.sample("talweg_busbw_bytes_per_second", labels,
                cell.seconds > 0 ? cell.bus_bytes / cell.seconds : 0.0);
  });
  page.family("talweg_failed_calls_total", "counter", "Calls that ended in an error, by its code.");
  for (std::size_t op = 0; op < failed_.size(); ++op)
    for (std::size_t code = 0; code < failed_[op].size(); ++code)
      if (failed_[op][code] > 0)
        page.sample("talweg_failed_calls_total",
                    fmt::format("{},collective=\"{}\",code=\"{}\"", rank, row_name(op),
                                name(static_cast<ErrorCode>(code))),
                    failed_[op][code]);
  page.family("talweg_stalls_total", "counter", "Calls that waited longer than TALWEG_STALL_WARNING.");
  page.sample("talweg_stalls_total", rank, stalls_);
  page.family("talweg_calls_in_flight", "gauge", "Calls that have begun and not ended.");
  page.sample("talweg_calls_in_flight", rank, sight.in_flight);
  page.family("talweg_sent_bytes_total", "counter", "Frames sent, through sockets and shared memory.");
  page.sample("talweg_sent_bytes_total", rank, sight.bytes_sent);
  page.family("talweg_received_bytes_total", "counter", "Frames received.");
  page.sample("talweg_received_bytes_total", rank, sight.bytes_received);
  page.family("talweg_buffer_peak_bytes", "gauge", "Chunk buffers held at once, at most.");
  page.sample("talweg_buffer_peak_bytes", rank, sight.peak_buffer_bytes);
  const auto each_peer = [&](auto&& function) {
    for (const PeerSight& peer : sight.peers)
      function(peer, fmt::format("{},peer=\"{}\",peer_host=\"{}\"", rank, peer.rank, host_label(peer.host)));
  };
  page.family("talweg_rank_lag_seconds", "gauge",
              "How long a call in flight here has waited for this peer to start it.");
  each_peer([&](const PeerSight& p, const std::string& labels) {
    page.sample("talweg_rank_lag_seconds", labels, p.lag_seconds);
  });
  page.family("talweg_tcp_retransmits_total", "counter",
              "TCP segments sent again to this peer, and datagrams that were lost.");
  each_peer([&](const PeerSight& p, const std::string& labels) {
    if (p.round_trip_seconds > 0) page.sample("talweg_tcp_retransmits_total", labels, p.retransmits);
  });
  page.family("talweg_tcp_round_trip_seconds", "gauge",
              "Smoothed round trip to this peer, as TCP sees it, or datagrams.");
  each_peer([&](const PeerSight& p, const std::string& labels) {
    if (p.round_trip_seconds > 0) page.sample("talweg_tcp_round_trip_seconds", labels, p.round_trip_seconds);
  });
  page.family("talweg_datagrams", "gauge",
              "1: what is sent to this peer now goes in datagrams; 0: over TCP.");
  each_peer([&](const PeerSight& p, const std::string& labels) {
    if (p.round_trip_seconds > 0) page.sample("talweg_datagrams", labels, p.datagrams ? 1 : 0);
  });
  page.family("talweg_paths_left_total", "counter",
              "Times that one of several paths to this peer answered nothing and was left.");
  each_peer([&](const PeerSight& p, const std::string& labels) {
    if (p.round_trip_seconds > 0) page.sample("talweg_paths_left_total", labels, p.paths_left);
  });
  // A job without a switch has no lines about it.
  if (sight.switched.any) {
    const auto each_way = [&](auto&& function) {
      for (std::size_t way = 1; way < sums_.size(); ++way)
        function(sums_[way],
                 fmt::format("{},way=\"{}\"", rank, protocol::name(static_cast<protocol::SumWay>(way))));
    };
    page.family("talweg_switched_calls_total", "counter",
                "all_reduces that a switch could sum: in which form it has, or by trees, and why.");
    each_way([&](const Sums& sums, const std::string& labels) {
      page.sample("talweg_switched_calls_total", labels, sums.calls);
    });
    page.family("talweg_switched_call_bytes_total", "counter", "Bytes of their vectors.");
    each_way([&](const Sums& sums, const std::string& labels) {
      page.sample("talweg_switched_call_bytes_total", labels, sums.bytes);
    });
    page.family("talweg_switched_sent_bytes_total", "counter", "Datagrams sent to switches.");
    page.sample("talweg_switched_sent_bytes_total", rank, sight.switched.sent_bytes);
    page.family("talweg_switched_received_bytes_total", "counter", "Datagrams received from switches.");
    page.sample("talweg_switched_received_bytes_total", rank, sight.switched.received_bytes);
  }
  // A job without such sums has no lines about them.
  const BoundedTotals& bounded = sight.bounded;
  if (bounded.calls == 0) return page.text();
  page.family("talweg_bounded_sent_bytes_total", "counter",
              "Data of this rank sent to the others in bounded sums.");
  page.sample("talweg_bounded_sent_bytes_total", rank, bounded.sent_bytes);
  page.family("talweg_bounded_lost_bytes_total", "counter", "Of these, what never arrived.");
  page.sample("talweg_bounded_lost_bytes_total", rank, bounded.lost_bytes);
  page.family("talweg_bounded_retransmits_total", "counter", "Packets of bounded sums sent again.");
  page.sample("talweg_bounded_retransmits_total", rank, bounded.packets_again);
  page.family("talweg_bounded_missing_bytes_total", "counter",
              "Data of this peer that this rank has summed without.");
  each_peer([&](const PeerSight& p, const std::string& labels) {
    if (const auto peer = static_cast<std::size_t>(p.rank); peer < bounded.lost_of_sender.size())
      page.sample("talweg_bounded_missing_bytes_total", labels, bounded.lost_of_sender[peer]);
  });
  return page.text();
}

}  // namespace talweg::observe
