// Senders and a receiver of bounded-loss transfers in virtual time, over a way that loses (singly and in
// bursts), repeats, damages, delays, overtakes and brings packets of old iterations; everything from a seed.
// After each iteration what was delivered is held against what was sent and what the bounds are.
//
//   BoundedWorld world(seed, BoundedMutation::none);
//   world.run();
//   world.problems()          // empty: every promise was kept
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "protocol/bounded/receiver.h"
#include "protocol/bounded/sender.h"
#include "wire/datagram_cipher.h"

namespace talweg::protocol {

// Ways to break the protocol on purpose, on the way between senders and receiver: the checks must find each.
enum class BoundedMutation : std::uint8_t {
  none,
  forget_iterations,  // what comes of an old iteration counts as of the present one
  swap_senders,       // some data count as another sender's
  move_packets,       // some data count as another packet
  damage_data,        // a bit of some data
  false_must,         // some packets that must arrive are lost, and the count of those says that none must
  early_stops,        // some holes arrive as a stop
  wrong_holes,        // some holes are told of other packets
  hidden_losses,      // stops say that nothing was lost
  deaf_senders,       // no control reaches a sender
  count_
};

// What must be seen at least once in the short run.
#define TALWEG_BOUNDED_MARKS(X)                                                           \
  X(lost, "a datagram was lost")                                                          \
  X(in_burst, "several in a row were")                                                    \
  X(control_lost, "holes, a stop or a probe was lost")                                    \
  X(repeated, "a datagram came twice")                                                    \
  X(overtaken, "a datagram came after one that was sent later")                           \
  X(damaged, "a damaged datagram was refused")                                            \
  X(old_packet, "data of an old iteration came again")                                    \
  X(stale, "and were dealt with as such")                                                 \
  X(early, "data came before they were expected")                                         \
  X(again, "a hole was filled")                                                           \
  X(must_again, "a packet that must arrive was sent again")                               \
  X(known_packet, "a packet came that had come before")                                   \
  X(rounds_in_vain, "holes were named again because nothing had come of it")              \
  X(probe, "a sender asked")                                                              \
  X(probe_in_vain, "and asked again")                                                     \
  X(stop_again, "a stop was said again")                                                  \
  X(stop_unasked, "a stop was said again before anybody asked")                           \
  X(complete, "a transfer lost nothing")                                                  \
  X(at_gap, "one was delivered with losses after a gap")                                  \
  X(at_linger, "one was delivered with losses after the linger")                          \
  X(at_probe, "one was delivered with losses when its sender asked")                      \
  X(spared, "a stop left packets unsent")                                                 \
  X(early_holes, "packets were named as holes that had not left yet")                     \
  X(old_report, "a report came that was known")                                           \
  X(window, "holes of a later window were named")                                         \
  X(part_of_stop, "a part of a stop came first")                                          \
  X(sender_bound, "the bound of a sender held back a delivery that the tensor's allowed") \
  X(iteration_bound, "the bound of an iteration did")                                     \
  X(dropped_class, "a packet was droppable")                                              \
  X(must_deliver, "a tensor had packets that must arrive")                                \
  X(exact, "a world had bounds of 0 and losses on its way")                               \
  X(kept, "what was there stayed where nothing came")                                     \
  X(empty, "an empty tensor was sent")                                                    \
  X(one_packet, "a tensor of one packet was sent")                                        \
  X(sender_died, "a sender died and the receiver said which")                             \
  X(receiver_died, "the receiver died and all senders said so")                           \
  X(gave_up, "a sender was told that the receiver had given up")                          \
  X(wrapped, "iterations were numbered beyond 2^32")

enum class BoundedMark {
#define TALWEG_BOUNDED_ENUMERATOR(mark, text) mark,
  TALWEG_BOUNDED_MARKS(TALWEG_BOUNDED_ENUMERATOR)
#undef TALWEG_BOUNDED_ENUMERATOR
      count
};
inline constexpr const char* kBoundedMarkTexts[] = {
#define TALWEG_BOUNDED_TEXT(mark, text) #mark ": " text,
    TALWEG_BOUNDED_MARKS(TALWEG_BOUNDED_TEXT)
#undef TALWEG_BOUNDED_TEXT
};
using BoundedMarks = std::array<std::uint64_t, static_cast<std::size_t>(BoundedMark::count)>;

class BoundedWorld {
 public:
  BoundedWorld(std::uint64_t seed, BoundedMutation mutation);
  ~BoundedWorld();

  void run();
  const std::vector<std::string>& problems() const { return problems_; }
  const BoundedMarks& marks() const { return marks_; }
  std::string describe() const;

 private:
  struct Stream;
  struct Node;
  struct Message {
    wire::DatagramHeader header;
    std::vector<std::byte> payload;  // or, sealed, all of the datagram
    std::uint64_t order = 0;         // of its sending
  };

  void plan();
  void plan_stream(Node& node, std::size_t number);
  void begin_stream(std::size_t stream);
  void begin_iteration();
  bool pump();
  void send_from(Node& node, BoundedSender::What what);
  void carry(Node& node, bool up, Message message, bool data);
  void arrive(Node& node, bool up, Message message);
  bool mutate(Node& node, bool up, Message& message);
  void remember_holes(Node& node, const Message& message);
  void check_sent(Node& node, const Message& message);
  void check_delivered(Stream& stream);
  void check_iteration();
  void check_end();
  void on_ended_at_receiver(std::size_t stream);
  void on_ended_at_sender(Node& node, std::size_t stream);
  std::uint32_t iteration(std::uint32_t i) const { return first_iteration_ + i; }
  void after(std::int64_t delay_ns, std::function<void()> event);
  void hit(BoundedMark mark, std::uint64_t times = 1) { marks_[static_cast<std::size_t>(mark)] += times; }
  void problem(std::string text);
  void count();

  const std::uint64_t seed_;
  const BoundedMutation mutation_;
  Random random_;
  std::int64_t now_ns_ = 1'000'000;
  std::uint64_t events_made_ = 0;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> events_;

  double loss_ = 0, control_loss_ = 0, repeat_ = 0, damage_ = 0, old_ = 0, into_burst_ = 0;
  unsigned burst_left_ = 0;
  std::int64_t delay_ns_ = 0, jitter_ns_ = 0;
  bool sealed_ = false, keep_ = false, alike_ = false;
  std::int64_t deadline_ns_ = 0;
  LossBounds bounds_;
  BoundedTimes times_;
  std::uint32_t first_iteration_ = 0, iterations_ = 0;
  std::uint32_t at_ = 0;             // the iteration that the receiver is in
  std::size_t open_ = 0;             // streams of it that have not ended there
  std::optional<std::size_t> dies_;  // this sender; or, their number, the receiver
  std::uint32_t dies_in_ = 0;
  bool late_ = false;  // it begins too late instead
  bool receiver_dead_ = false;
  bool over_ = false;  // something has failed: this iteration is the last one
  std::uint64_t sent_ = 0;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unique_ptr<BoundedReceiver> receiver_;
  std::vector<std::pair<std::size_t, Message>> old_packets_;  // of which sender
  BoundedMarks marks_{};
  std::vector<std::string> problems_;
};

}  // namespace talweg::protocol
