// TurnTimes: when a link of two ways (either_link.h) looks for a better one, how long it waits for what has
// to come before it turns, and when it gives that up. Pure: no clock.
//
//   if (times.looks_for_better(now)) choose a way;           // and at once: looked(now)
//   times.begin(now);                                        // to turn: it waits until all was taken
//   for a look at that after next_look_ns(now), if nothing else wakes it
//   times.turned(now);                                       // it goes the other way
//   if (times.out_of_patience(now)) times.put_off(now);      // it stays as it is; may_turn() not for a while
//   if (times.asks(now)) ask for a datagram;                 // before it turns to them
//   if (times.no_answer(now)) they do not pass;              // answered(): they may
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::live {

class TurnTimes {
 public:
  static constexpr std::int64_t kChooseEveryNs = 50'000'000;
  static constexpr std::int64_t kPatienceNs = 500'000'000;
  static constexpr std::int64_t kPutOffNs = 2 * kPatienceNs;
  static constexpr std::int64_t kAnswerNs = 1'000'000'000;  // until datagrams count as not passing
  // Whether everything was taken. Over TCP its answer wakes the link; of datagrams nobody tells it. The other
  // process may have been stopped, for how long nobody knows: a look is late by a part of what was waited.
  static constexpr std::int64_t kLeastLookNs = 1'000'000, kMostLookNs = 50'000'000, kLookPart = 8;

  bool looks_for_better(std::int64_t now_ns) const { return now_ns - looked_ns_ >= kChooseEveryNs; }
  void looked(std::int64_t now_ns) { looked_ns_ = now_ns; }

  bool may_turn(std::int64_t now_ns) const { return now_ns >= put_off_until_ns_; }
  void begin(std::int64_t now_ns) { since_ns_ = now_ns; }
  std::int64_t next_look_ns(std::int64_t now_ns) const {
    return std::clamp((now_ns - since_ns_) / kLookPart, kLeastLookNs, kMostLookNs);
  }
  void turned(std::int64_t now_ns) { turned_ns_ = now_ns; }
  // Long enough for an answer to what goes the other way.
  bool goes_long_this_way(std::int64_t now_ns) const { return now_ns - turned_ns_ > kAnswerNs; }
  bool out_of_patience(std::int64_t now_ns) const { return now_ns - since_ns_ > kPatienceNs; }
  void put_off(std::int64_t now_ns) { put_off_until_ns_ = now_ns + kPutOffNs; }

  // The first time, until answered() or no_answer().
  bool asks(std::int64_t now_ns) {
    if (asked_ns_ != kNever) return false;
    asked_ns_ = now_ns;
    return true;
  }
  bool no_answer(std::int64_t now_ns) {
    if (asked_ns_ == kNever || now_ns - asked_ns_ <= kAnswerNs) return false;
    answered();
    return true;
  }
  void answered() { asked_ns_ = kNever; }

 private:
  static constexpr std::int64_t kNever = -1;
  std::int64_t looked_ns_ = 0;
  std::int64_t since_ns_ = 0;
  std::int64_t turned_ns_ = 0;
  std::int64_t put_off_until_ns_ = 0;
  std::int64_t asked_ns_ = kNever;
};

}  // namespace talweg::live
