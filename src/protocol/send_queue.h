// What waits to be sent to one rank. More urgent frames go first. Equals take turns in the order in which
// they came; but a turn belongs to a run, not to one of its frames: of a run's data those go first that are
// least far along in their tree. The trees of a forest are to end together, each with its share of a link; in
// the order of arrival, trees whose data come early run ahead of their share, others starve, and links that
// those feed stand idle.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ring_queue.h"
#include "forest/host_costs.h"
#include "protocol/outbox.h"

namespace talweg::protocol {

// Bytes that a connection may hold which it has not sent yet: they cannot be overtaken any more. About two
// milliseconds of its rate, the congestion window by the smoothed round trip.
inline std::int64_t unsent_limit(std::int64_t window_bytes, std::int64_t round_trip_ns) {
  constexpr std::int64_t kLeast = 16 << 10;
  constexpr std::int64_t kWorth = 2'000'000;  // ns
  return round_trip_ns <= 0
             ? forest::kMostBatchBytes
             : std::clamp(window_bytes * kWorth / round_trip_ns, kLeast, forest::kMostBatchBytes);
}

// And of one that is held to a pace (bytes per second): about as much of that, but no less than the kernel
// sends at a time. Behind more, what is less far along would wait at every hop.
inline std::int64_t paced_limit(double pace) {
  constexpr std::int64_t kLeast = 4 << 10;
  constexpr double kWorth = 2e-3;  // s
  return std::max(kLeast, static_cast<std::int64_t>(pace * kWorth));
}

// A Frame has a header, a token, a priority, and `reported`: false for data, whose sending somebody waits
// for.
template <class Frame>
class SendQueue {
 public:
  void push(Frame frame) {
    const bool behind_all = (frame.header.flags & wire::kBehindAll) != 0;
    Level& level = levels_[static_cast<std::size_t>(behind_all ? 0 : std::clamp(frame.priority, 0, kUrgent))];
    ++size_;
    if (frame.reported) {
      level.turns.push({});
      level.control.push(std::move(frame));
      return;
    }
    Run& run = level.run(frame.header.group, frame.token.run);
    level.turns.push({true, run.group, run.number});
    const float progress = frame.token.progress;
    run.data.push_back({progress, run.arrivals++, std::move(frame)});
    std::push_heap(run.data.begin(), run.data.end(), later);
  }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // What pop() takes out.
  Frame& front() {
    Level& level = first();
    const Turn& turn = level.turns.front();
    return turn.data ? level.run(turn.group, turn.run).data.front().frame : level.control.front();
  }
  Frame pop() {
    Level& level = first();
    const Turn turn = level.turns.pop();
    --size_;
    if (!turn.data) return level.control.pop();
    std::vector<Item>& data = level.run(turn.group, turn.run).data;
    std::pop_heap(data.begin(), data.end(), later);
    Frame frame = std::move(data.back().frame);
    data.pop_back();
    return frame;
  }
  // Removes the data of a run; calls `dropped` for each frame.
  template <class Function>
  void cancel(std::uint32_t group, std::uint64_t number, Function&& dropped) {
    for (Level& level : levels_) {
      const std::vector<Item> data = std::exchange(level.run(group, number).data, {});
      if (data.empty()) continue;
      for (std::size_t left = level.turns.size(); left > 0; --left) {
        const Turn turn = level.turns.pop();
        if (!turn.data || turn.group != group || turn.run != number) level.turns.push(turn);
      }
      size_ -= data.size();
      for (const Item& item : data) dropped(item.frame);
    }
  }

 private:
  struct Turn {
    bool data = false;  // else of a control frame
    std::uint32_t group = 0;
    std::uint64_t run = 0;
  };
  struct Item {
    float progress = 0;
    std::uint64_t arrival = 0;
    Frame frame;
  };
  struct Run {
    std::uint32_t group = 0;
    std::uint64_t number = 0;
    std::uint64_t arrivals = 0;
    std::vector<Item> data;  // a heap; empty: free for another run
  };
  struct Level {
    RingQueue<Turn> turns;
    RingQueue<Frame> control;
    std::vector<Run> runs;  // as many as ever had data here at the same time: few

    Run& run(std::uint32_t group, std::uint64_t number) {
      Run* unused = nullptr;
      for (Run& r : runs) {
        if (r.group == group && r.number == number) return r;
        if (r.data.empty()) unused = &r;
      }
      if (unused == nullptr) unused = &runs.emplace_back();
      unused->group = group;
      unused->number = number;
      return *unused;
    }
  };

  static bool later(const Item& a, const Item& b) {
    return a.progress != b.progress ? a.progress > b.progress : a.arrival > b.arrival;
  }
  Level& first() {
    std::size_t i = kUrgent;
    while (levels_[i].turns.empty()) --i;
    return levels_[i];
  }

  std::array<Level, kPriorities> levels_;
  std::size_t size_ = 0;
};

}  // namespace talweg::protocol
