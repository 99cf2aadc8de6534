// TransportChoice: whether frames to a rank are quicker over TCP or in datagrams, from what both have
// carried.
//
//   TransportChoice choice;
//   way = choice.look(tcp, datagrams, datagrams_pass, now_ns);   // now and then
//
// TCP costs a processor less, so it is left alone as long as next to nothing of what it carries has to be
// sent again. Where more has, both are tried in turn, window by window, and compared by the time for which
// they were busy with a byte. Datagrams must be quicker by a tenth to be taken. They are left again when TCP
// is hardly slower, which is tried when next to nothing is lost any more, or they have become slower. After
// each trial there is a pause, a longer one after each that has changed nothing.
//
// Or datagrams are preferred: then they are taken wherever they pass, and TCP only elsewhere.
//
// What one direction takes says nothing of the other one. Pure: no clock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "live/link.h"

namespace talweg::live {

enum class Way : std::uint8_t { tcp, datagrams };
enum class Preference : std::uint8_t { the_quicker, datagrams };

class TransportChoice {
 public:
  // Of a window: so much of it that it says something.
  static constexpr double kBusySeconds = 0.25, kMostBusySeconds = 2;
  static constexpr std::uint64_t kBytes = 256 << 10;
  static constexpr double kSuspicious = 1e-3;  // of the bytes, sent again
  static constexpr double kGain = 0.9;         // of TCP's time that datagrams may take to be taken
  static constexpr double kKeep = 0.97;        // and to be kept
  static constexpr double kSlower = 1.5;       // than when datagrams were taken
  static constexpr int kWindows = 4;           // of a trial, both in turn
  static constexpr std::int64_t kLeastPauseNs = 30'000'000'000, kMostPauseNs = 1'800'000'000'000;

  explicit TransportChoice(Preference preference = Preference::the_quicker)
      : always_(preference == Preference::datagrams) {}

  // What each has carried since it was made; `datagrams_pass`: some have been answered.
  Way look(const PeerStatistics& tcp, const PeerStatistics& datagrams, bool datagrams_pass,
           std::int64_t now_ns) {
    const PeerStatistics* const of[] = {&tcp, &datagrams};
    if (always_) return turn(datagrams_pass ? Way::datagrams : Way::tcp, of);
    Window window = since(*of[index(way_)]);
    if (!datagrams_pass && way_ == Way::datagrams) {  // what is still brought goes over TCP as well
      windows_ = 0;
      return turn(Way::tcp, of);
    }
    if (window.busy_seconds < kBusySeconds ||
        (window.bytes < kBytes && window.busy_seconds < kMostBusySeconds))
      return way_;
    window.bytes = std::max<std::uint64_t>(window.bytes, 1);
    if (windows_ == 0) {
      if (!datagrams_pass || now_ns < next_trial_ns_ || !worth_a_trial(window)) return turn(way_, of);
      home_ = way_;
      ++trials_;
      tried_[0] = tried_[1] = {};
    }
    tried_[index(way_)].add(window);
    if (++windows_ < kWindows) return turn(other(way_), of);
    return decide(now_ns, of);
  }
  // It goes over TCP, and datagrams are preferred; or of the window so far more was sent again than TCP is
  // left alone with.
  bool wants_datagrams(const PeerStatistics& tcp) const {
    if (way_ != Way::tcp || always_) return always_ && way_ == Way::tcp;
    const Window window = since(tcp);
    return window.bytes >= kBytes && window.sent_again() > kSuspicious;
  }
  // It stays `way`: the change that look() has asked for could not be made. As after a trial in vain.
  void stay(Way way, const PeerStatistics& tcp, const PeerStatistics& datagrams, std::int64_t now_ns) {
    const PeerStatistics* const of[] = {&tcp, &datagrams};
    windows_ = 0;
    home_ = way;
    pause(false, now_ns);
    turn(way, of);
  }
  bool always() const { return always_; }
  Way way() const { return way_; }
  std::uint64_t trials() const { return trials_; }

 private:
  struct Window {
    std::uint64_t bytes = 0, again = 0;
    double busy_seconds = 0;
    void add(const Window& more) {
      bytes += more.bytes;
      again += more.again;
      busy_seconds += more.busy_seconds;
    }
    double seconds_per_byte() const { return busy_seconds / static_cast<double>(bytes); }
    double sent_again() const { return static_cast<double>(again) / static_cast<double>(bytes); }
  };
  using Both = const PeerStatistics* const[2];

  static std::size_t index(Way way) { return static_cast<std::size_t>(way); }
  static Way other(Way way) { return way == Way::tcp ? Way::datagrams : Way::tcp; }
  Window since(const PeerStatistics& now) const {
    return {now.acked_bytes - begin_.acked_bytes, now.resent_bytes - begin_.resent_bytes,
            now.busy_seconds - begin_.busy_seconds};
  }
  // A new window begins.
  Way turn(Way way, const Both& of) {
    if (way != way_ && windows_ == 0) home_ = way;
    way_ = way;
    begin_ = *of[index(way)];
    return way_;
  }
  void pause(bool changed, std::int64_t now_ns) {
    pause_ns_ = changed ? kLeastPauseNs : std::min(2 * pause_ns_, kMostPauseNs);
    next_trial_ns_ = now_ns + pause_ns_;
  }
  bool worth_a_trial(const Window& window) const {
    if (way_ == Way::tcp) return window.sent_again() > kSuspicious;
    return window.sent_again() < kSuspicious || window.seconds_per_byte() > kSlower * taken_at_;
  }
  Way decide(std::int64_t now_ns, const Both& of) {
    const double tcp = tried_[index(Way::tcp)].seconds_per_byte();
    const double datagrams = tried_[index(Way::datagrams)].seconds_per_byte();
    const double limit = (home_ == Way::tcp ? kGain : kKeep) * tcp;
    const Way better = datagrams < limit ? Way::datagrams : Way::tcp;
    taken_at_ = datagrams;
    pause(better != home_, now_ns);
    windows_ = 0;
    home_ = better;
    return turn(better, of);
  }

  const bool always_;
  Way way_ = Way::tcp;
  Way home_ = Way::tcp;   // what is taken beside trials
  PeerStatistics begin_;  // of the window
  int windows_ = 0;       // of the trial that is on; 0: none is
  Window tried_[2];       // by way
  double taken_at_ = 0;   // seconds that a byte took in datagrams when they were last tried
  std::int64_t pause_ns_ = kLeastPauseNs / 2;
  std::int64_t next_trial_ns_ = 0;
  std::uint64_t trials_ = 0;
};

}  // namespace talweg::live
