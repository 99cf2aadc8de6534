// WayTrial: whether datagrams pass from each other rank to this one, and of which size, before sums depend on
// it. A firewall may drop all of them, and a tunnel on the way silently those that are larger than it takes.
//
//   WayTrial trial(self, largest, least, around, now_ns);
//   while (trial.next(now_ns, to, message)) seal and send it to `to`, by trial.path();
//   trial.on(from, message);                                  // each that was opened
//   if (all have begun) trial.all_have_begun(now_ns);         // for a reliable channel to say
//   if (trial.ended(now_ns)) ... trial.came(r)                // and goes on for others, until they have ended
//
// First the largest datagram leaves for each rank. As it may be lost, it leaves again, with smaller ones
// beside it and by all paths, after a pause that doubles. A size passes that comes by any path: of those by
// which it does not, sums take none. Who has the largest ones of all others has ended, a round trip after
// the beginning. Who has not waits until some time after all have begun: a busy host is no blocked way.
//
// Sizes are those of IP packets. Pure: no clock, no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/bounded.h"

namespace talweg::protocol {

class WayTrial {
 public:
  static constexpr std::int64_t kFirstPauseNs = 5'000'000, kMostPauseNs = 100'000'000;
  // After all have begun. So each size leaves nine times at least: where a tenth of all datagrams is lost,
  // all nine are once in 10^9 trials.
  static constexpr std::int64_t kPatienceNs = 1'000'000'000;

  // `largest`: by rank, the largest packet that may leave for it; less than `least`: none does. `least`: of
  // what is of use at all. `around`: bytes of a packet beside the datagram's payload. `paths`: by which this
  // rank sends.
  WayTrial(int self, std::span<const std::size_t> largest, std::size_t least, std::size_t around,
           std::int64_t now_ns, std::size_t paths = 1);

  void all_have_begun(std::int64_t now_ns);
  void on(int from, const wire::BoundedTrial& trial);
  // False: nothing more leaves now.
  bool next(std::int64_t now_ns, int& to, wire::BoundedTrial& trial);
  // By which it is to leave.
  std::size_t path() const { return path_; }
  std::int64_t next_time_ns(std::int64_t now_ns) const;

  bool ended(std::int64_t now_ns) const { return to_come_ == 0 || now_ns >= deadline_ns_; }
  // The largest packet that has come from this rank; 0: none has.
  std::size_t came(int rank) const { return ways_[static_cast<std::size_t>(rank)].came; }

 private:
  struct Way {
    std::vector<std::size_t> sizes;  // of packets to this rank, descending
    std::size_t came = 0;
    bool all = false;  // the largest one has come
  };

  const int self_;
  const std::size_t around_, paths_;
  std::vector<Way> ways_;  // by rank
  std::size_t to_come_;    // ranks of which the largest one has not
  std::size_t most_sizes_ = 0;
  std::int64_t deadline_ns_;
  // The round, the time when it begins, and what is next in it: the nth of the sizes, by that path, to the
  // nth rank behind this one.
  std::uint32_t round_ = 0;
  std::int64_t round_ns_;
  std::size_t size_ = 0;
  std::size_t path_ = 0;
  int behind_ = 1;
};

}  // namespace talweg::protocol
