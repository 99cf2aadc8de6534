// What a flow of messages says about its rate: how large they are, and how fast they came.
#pragma once

#include <cstddef>
#include <vector>

namespace talweg::steer {

// Messages grow with what a flow has sent, so that both ends know their sizes though nobody knows its rate:
// little is in flight where it is slow, and messages are large where it is fast.
class MessageSizes {
 public:
  static constexpr std::size_t kLeast = 4 << 10;
  static constexpr std::size_t kMost = 256 << 10;
  static constexpr std::size_t kOfASize =
      64;  // as many before they are larger: those in flight are a small part

  explicit MessageSizes(std::size_t first) : bytes_(first) {}
  std::size_t next();  // bytes; never less than the one before

 private:
  std::size_t bytes_;
  std::size_t sent_ = 0;
};

struct Arrival {
  double seconds = 0;  // since the flow began
  double bytes = 0;
};

// The rate, in bit/s, at which bytes came up to `seconds` once they came steadily: not while congestion
// windows open, nor while a token bucket that is full passes them at any rate. 0 where too little came.
double steady_rate(std::vector<Arrival> arrivals, double seconds);

}  // namespace talweg::steer
