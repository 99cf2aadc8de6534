// SendingChooser: in which form a bucket of gradients is sent, where nothing is to be lost: all of it, its
// elements that are not zero, or its blocks that are not. Made for one bucket; what it is told is the same on
// all ranks, and so is what it says.
//
//   SendingChooser chooser(elements, costs);
//   switch (chooser.now()) { ... }            // how the next step's gradients go
//   chooser.observe({union_elements, union_blocks, own_elements, own_blocks});
//
// What a form costs, in seconds, of n elements of 4 bytes on N hosts that send and receive B bytes a second
// (d: the part of its elements, or blocks of b elements, that a rank has; u: that any rank has):
//
//   dense      2 (N-1)/N 4n/B + 2 latency                                   a forest at its bound
//   entries    (N-1) 8dn/B + 3 latency                                      everybody's lists to everybody
//   blocks     (N-1) (4 + 4/b) dn/B + 3 latency
//   through an aggregator, which adds up what it is sent:    4n/B,  8 max(d, u) n/B,  (4 + 4/b) max(d, u) n/B
//                                                  (Fei et al., OmniReduce, SIGCOMM 2021, section 3)
//
// The third latency is for the ranks to tell each other how much they will send. u is always known: it is
// that of the sum. d is known where lists were sent; else it is guessed from u and from what d was of u when
// both were known, or as if the ranks' elements lay anywhere: u = 1 - (1-d)^N.
//
// Hysteresis: another form must have been cheaper, lists by a tenth or more, in kSteps steps in a row. Each
// time that a form of lists is left, it must be cheaper for twice as many steps before it is taken again:
// what made it look cheap was a guess.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace talweg::steer {

enum class Sending : std::uint8_t { dense, elements, blocks };
inline constexpr std::size_t kSendings = 3;

struct SendingCosts {
  int ranks = 2;
  double bytes_per_second = 125e6;  // 1 Gbit/s; forms are compared, so it matters to short buckets alone
  double latency_s = 100e-6;        // of a collective of a few bytes
  std::uint32_t block = 64;
  bool aggregator = false;
};

// What one step's bucket was, in elements and in blocks that are not all zero. What a rank has: the mean over
// all ranks, where they told each other.
struct SendingSeen {
  std::size_t union_elements = 0;
  std::size_t union_blocks = 0;
  std::optional<double> own_elements;
  std::optional<double> own_blocks;
};

class SendingChooser {
 public:
  static constexpr double kGain = 0.9;  // of the time that the present form takes
  static constexpr int kSteps = 3;

  // Throws Error{invalid_argument} for costs that are none: no ranks, no rate, no block.
  SendingChooser(std::size_t elements, const SendingCosts& costs);

  Sending now() const { return now_; }
  void observe(const SendingSeen& seen);

  // As above, of parts in [0, 1].
  double seconds(Sending sending, double own, double of_all) const;
  // What the ranks have told each other of a step is more than twice what `dense` costs: it goes densely,
  // once.
  bool is_dear(std::size_t words_of_all) const;

 private:
  struct Density {
    double overlap = 0;  // own / union where both were known last; 0: never
    double of_all = 0;
    double own = 0;
  };
  void update(Density& density, double of_all, std::optional<double> own) const;

  std::size_t elements_;
  SendingCosts costs_;
  Sending now_ = Sending::dense;
  Sending challenger_ = Sending::dense;
  int won_in_a_row_ = 0;
  std::array<int, kSendings> needed_{kSteps, kSteps, kSteps};
  Density of_elements_, of_blocks_;
};

}  // namespace talweg::steer
