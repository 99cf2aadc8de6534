// Marks: proof that the seeds of a run took the paths that they are there for. Everything is counted from the
// outside (frames seen on the way, outcomes, the transport's counters), so production carries none of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace talweg::chaos {

// Name, and what was seen.
#define TALWEG_CHAOS_MARKS(X)                                                             \
  X(retransmission, "a segment was sent again")                                           \
  X(transport_timeout, "the retransmission timer ended")                                  \
  X(queue_overflow, "a switch had no room for a packet")                                  \
  X(cut_both_ways, "two sides of the network were cut off from each other")               \
  X(cut_one_way, "one side was heard and heard nothing")                                  \
  X(pause, "a process stood still")                                                       \
  X(late_start, "a rank began when others waited for it")                                 \
  X(early_frame, "a frame came for a collective that its receiver had not started")       \
  X(eager_chunk, "a chunk came for a collective that its receiver had not started")       \
  X(credit, "a window was moved")                                                         \
  X(overtaking, "an urgent frame left before one that had waited longer")                 \
  X(placed, "a payload was received straight into its place")                             \
  X(discarded, "a collective ended while a payload was being received into its output")   \
  X(rescued, "a collective ended while the wire had a frame of it half taken")            \
  X(unsent, "a collective ended with frames that had not left")                           \
  X(several_in_flight, "a rank had several operations of a group in flight")              \
  X(barrier, "a barrier ended after what was in flight when it was called")               \
  X(same_bits, "a sum that rounds was compared with other ranks'")                        \
  X(message, "a message was received")                                                    \
  X(message_any_source, "a message was received from any source")                         \
  X(regrouped, "a group was left and its members formed another one")                     \
  X(unknown_group, "a frame came for a group that its receiver had left")                 \
  X(stale_connection, "bytes of an earlier epoch came in a later one")                    \
  X(question, "a rank asked who had started what")                                        \
  X(answer, "it was answered")                                                            \
  X(timeout, "a deadline passed")                                                         \
  X(timeout_told, "a rank heard of another one's deadline")                               \
  X(doomed, "a rank started what had failed elsewhere before")                            \
  X(mismatch, "ranks disagreed and all of them were told")                                \
  X(usable_after_mismatch, "a group worked on after a disagreement")                      \
  X(process_crash, "a process died")                                                      \
  X(host_crash, "a host died")                                                            \
  X(reset, "a connection was reset")                                                      \
  X(end_of_stream, "a connection ended after everything had been read")                   \
  X(pulse, "a host that no longer answered was found")                                    \
  X(noticed_by_another, "a rank was told of a failure that another one had noticed")      \
  X(left, "a rank left")                                                                  \
  X(left_failed, "an operation failed because a rank had left")                           \
  X(left_ended, "an operation ended well after a rank had left")                          \
  X(aborted, "a rank aborted its group")                                                  \
  X(given_up, "a receiver was told that the sender had given up")                         \
  X(damaged_header, "a damaged header was found")                                         \
  X(damaged_payload, "a damaged payload was found")                                       \
  X(plan_held, "a rank that had started waited for rank 0's word")                        \
  X(plan_changed, "a rank took another plan for what it had called before")               \
  X(helped, "an operation ended well through an aggregator")                              \
  X(kept_for_plan, "an aggregator was sent data of a plan that it did not know yet")      \
  X(helper_lost, "an operation failed because an aggregator was lost")                    \
  X(helper_spared, "an operation ended well after an aggregator was lost")                \
  X(helper_left_over, "an aggregator heard that an operation had failed elsewhere")       \
  X(half_ended, "an operation had ended well on some ranks when it failed on the others") \
  X(healed, "after everything that had happened, a new group worked")

enum class Mark {
#define TALWEG_CHAOS_ENUMERATOR(mark, text) mark,
  TALWEG_CHAOS_MARKS(TALWEG_CHAOS_ENUMERATOR)
#undef TALWEG_CHAOS_ENUMERATOR
      count
};

struct MarkText {
  const char* name;
  const char* text;
};
inline constexpr MarkText kMarkTexts[] = {
#define TALWEG_CHAOS_TEXT(mark, text) {#mark, text},
    TALWEG_CHAOS_MARKS(TALWEG_CHAOS_TEXT)
#undef TALWEG_CHAOS_TEXT
};

class Marks {
 public:
  void hit(Mark mark, std::uint64_t times = 1) { counts_[static_cast<std::size_t>(mark)] += times; }
  std::uint64_t operator[](Mark mark) const { return counts_[static_cast<std::size_t>(mark)]; }
  void add(const Marks& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  }

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(Mark::count)> counts_{};
};

}  // namespace talweg::chaos
