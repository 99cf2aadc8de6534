// PathChooser: by which of several paths a node's datagrams leave for another one. A network that hashes
// flows over equal ways (ECMP) puts one path's datagrams, which have a source port of their own, on one way:
// that may be full, lossy or dead, and only round trips and losses tell.
//
//   path = chooser.next(sent, now_ns);               // for the next datagram that is acknowledged; then took()
//   path = chooser.unanswered(now_ns);               // for one that is not: an acknowledgement, control
//   path = chooser.beside(path, now_ns);             // for a question after what this one has brought no answer to
//   path = chooser.again(now_ns);                    // for another such question; answering_again() answers it
//   path = chooser.trial(sent, now_ns);              // this one wants a single datagram
//   chooser.arrived(path, bytes, trip_ns, now_ns), ...; chooser.heard(path of the highest, held_ns, now_ns);
//   chooser.lost(path, now_ns);
//
// A burst goes one way (one send with segmentation offload has one source port): up to kBurst datagrams at
// one time. The next one takes the path that has the fewest bytes on their way, each weighed by how much
// longer it takes than the best one, losses included. So equal paths get equal shares, a full one drains at
// its own speed, and a slow one has little of what everybody waits for.
//
// kLeftAfter losses in a row and a path is left. It gets a single datagram now and then, and is back once one
// has arrived. So do paths of which nothing is known yet, and those of which nothing was heard for long: each
// but the first is tried before anything depends on it. A trial is no load: after it a path has two datagrams
// on their way at most, and twice as many after each round trip, so that its delay shows before much waits
// for it. One path is always in use.
//
// Pure: no clock. Its memory is taken when it is made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "protocol/datagram/round_trip.h"
#include "protocol/datagram/sent_packets.h"

namespace talweg::protocol {

class PathChooser {
 public:
  static constexpr unsigned kLeftAfter = 8;  // losses in a row: fewer happen by chance where much is lost
  static constexpr std::size_t kBurst = 16;  // datagrams
  static constexpr std::size_t kBurstBytes = 64U << 10;
  // Round trips of so much more than the best one's are as good: they vary.
  static constexpr double kAlike = 1.25;
  // Round trips that a lost datagram counts for: what it delays has to be missed, asked for and sent again.
  static constexpr double kLossTrips = 64;
  static constexpr double kOneDatagram = 1.0 / 128;  // its weight in the average of losses
  // Until a path is tried again: one that was left, twice as long after each trial in vain; one in use of
  // which nothing is heard.
  static constexpr std::int64_t kFirstTrialNs = 10'000'000, kMostTrialNs = 1'000'000'000;
  // Trials in vain, until it is called dead: a queue that is full for a moment loses some in a row, too.
  static constexpr unsigned kDeadAfter = 4;
  static constexpr std::int64_t kQuietNs = 100'000'000;
  static constexpr double kFirstRoom = 3000;  // bytes
  static constexpr std::int64_t kNoTrip = std::numeric_limits<std::int64_t>::max();

  // Throws Error{invalid_argument} for other than 1 .. kMostPaths.
  explicit PathChooser(std::size_t paths);

  std::size_t paths() const { return paths_.size(); }
  bool several() const { return paths_.size() > 1; }

  std::size_t next(const SentPackets& sent, std::int64_t now_ns) {
    return several() ? choose(sent, now_ns) : 0;
  }
  // A datagram of so many bytes has left by the path that next() has said.
  void took(std::size_t bytes) {
    ++burst_;
    burst_bytes_ += bytes;
  }
  // Any of those on which nothing has been missed since something arrived. If there is none, or nothing has
  // arrived for long, of all: who sends nothing else does not hear which are dead.
  std::size_t unanswered(std::int64_t now_ns) { return beside(paths_.size(), now_ns); }
  // The same but for this one: what has left there may be lost.
  std::size_t beside(std::size_t path, std::int64_t now_ns);
  // The same of all, but each in its turn, for one of several questions in a row that brought no answer, or
  // an answer to such: any path may be dead, and few are to be in vain.
  std::size_t again(std::int64_t now_ns) { return in_turn(questions_, now_ns); }
  std::size_t answering_again(std::int64_t now_ns) { return in_turn(answers_, now_ns); }
  // It is tried now.
  std::optional<std::size_t> trial(const SentPackets& sent, std::int64_t now_ns);

  // An acknowledgement says so of so many bytes; `trip_ns`: since they were sent, kNoTrip where that says
  // nothing of the path. And after all that the same
  // one says, once: `highest`: the path of the datagram whose answer was held for `held_ns`, or any other
  // number.
  void arrived(std::size_t path, std::size_t bytes, std::int64_t trip_ns, std::int64_t now_ns);
  void heard(std::size_t highest, std::int64_t held_ns, std::int64_t now_ns);
  void lost(std::size_t path, std::int64_t now_ns);
  // It has not come, but nothing has by others since it should have: the other node may be busy. Once
  // something does and it still has not, it is lost.
  void missed(std::size_t path) { paths_[path].missed = true; }
  // Nothing has come for long of what was sent, by whichever path: any may be the one that does, until
  // something arrives.
  void silence() { silent_ = true; }

  const RoundTrip& trip(std::size_t path) const { return paths_[path].trip; }
  bool in_use(std::size_t path) const { return paths_[path].in_use; }
  std::size_t left() const;  // paths that were in use and are not
  std::size_t dead() const;  // of these, those of which kDeadAfter trials in a row were in vain: for people
  std::uint64_t times_left() const { return times_left_; }
  std::uint64_t times_back() const { return times_back_; }
  // About which part of all that leaves goes there.
  double share(std::size_t path) const;
  // How much longer its way is than the shortest, without queues: that is no sign of one.
  std::int64_t detour_ns(std::size_t path) const;

 private:
  struct Path {
    RoundTrip trip;
    double delay_ns = 0;  // of late; 0: not known
    double loss = 0;      // of late
    unsigned in_row = 0;  // losses
    unsigned vain = 0;    // trials in a row, while it was not in use
    bool in_use = false, known = false, trying = false, missed = false;
    std::int64_t pending_ns = kNoTrip;  // the shortest trip that the present acknowledgement tells
    std::int64_t trial_ns = 0;          // when it is to be tried
    std::int64_t wait_ns = kFirstTrialNs;
    std::int64_t since_ns = 0;  // in use
    double room = kFirstRoom;   // bytes that may be on their way
    std::uint64_t used = 0;     // the burst that took it last
  };

  struct Turn {
    std::uint64_t at = 0, first = 0;
  };
  std::size_t choose(const SentPackets& sent, std::int64_t now_ns);
  std::uint64_t random(std::int64_t now_ns);
  std::size_t first_well(std::uint64_t from, std::size_t but, std::int64_t now_ns) const;
  std::size_t in_turn(Turn& turn, std::int64_t now_ns);
  static double cost(const Path& path) { return path.delay_ns * (1 + kLossTrips * path.loss); }
  double best() const;
  static double weight(const Path& path, double best);
  bool another_in_use(std::size_t path) const;

  std::vector<Path> paths_;
  std::size_t current_ = 0;
  std::int64_t burst_ns_ = std::numeric_limits<std::int64_t>::min();
  std::size_t burst_ = 0, burst_bytes_ = 0;
  std::uint64_t bursts_ = 0;
  std::uint64_t random_ = 0;
  Turn answers_, questions_;
  std::int64_t heard_until_ns_ = std::numeric_limits<std::int64_t>::min();
  bool silent_ = false, answered_ = false;
  std::uint64_t times_left_ = 0, times_back_ = 0;
};

}  // namespace talweg::protocol
