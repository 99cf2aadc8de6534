// Pacer: how fast a node sends to each other one, while calls are in flight whose plans say so
// (forest/paces.h).
//
//   Pacer pacer([&](NodeId to, double bytes_per_second) { link(to).pace(bytes_per_second); });
//   pacer.begin(paces, now_ns);              // such a call starts here
//   pacer.end(seconds_needed, now_ns);       // and has ended
//
// All calls share the connections. One that starts says anew how fast those are that it sends over; when none
// is in flight any more, all are let go: short calls and messages are never held up. With several in flight
// the one that started last counts.
//
// Plans know of the network what they are told, and that may be too little. Calls that end in less time than
// their data need on the links that plans know show that the links carry more, and then it was the paces that
// held them up. From the next call on all paces are twice as high, and so on, until plans are made for
// another network.
//
// Pure: no clock, no thread, no network.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "forest/paces.h"

namespace talweg::protocol {

class Pacer {
 public:
  // So many bytes per second from now on; 0: as many as can be.
  using Set = std::function<void(forest::NodeId to, double bytes_per_second)>;
  explicit Pacer(Set set) : set_(std::move(set)) {}

  // Of each node that the call sends data to.
  void begin(std::span<const forest::Pace> paces, std::int64_t now_ns);
  // `seconds_needed`: by the call, as forest::seconds_needed() says it; 0 where it has failed.
  void end(double seconds_needed, std::int64_t now_ns);
  // Plans are made for another network from now on.
  void renew() { factor_ = 1; }

 private:
  void restart(std::int64_t now_ns);

  Set set_;
  int in_flight_ = 0;
  std::vector<forest::NodeId> held_;  // who has a pace
  double factor_ = 1;                 // of all paces
  std::int64_t since_ns_ = 0;         // paced calls are in flight
  double needed_ = 0;                 // seconds, by those that have ended since
};

}  // namespace talweg::protocol
