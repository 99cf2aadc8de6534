// TransferTimes: how long one collective takes by its size. A plain value, whatever it comes from: a start-up
// and a rate (alpha-beta), measured samples, a fit to them, the cost model's predictions or the simulator's.
//
//   const TransferTimes ethernet = linear_times(523e-6, 0.857e-9);   // 523 us + 0.857 ns a byte
//   ethernet.seconds(25 << 20);
//
// And NetworkTimes: those of the three collectives that a training step needs, for a number of ranks.
// Where they come from a cluster, see cluster_times.h; from samples, fit_times.h.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "talweg/types.h"

namespace talweg::train {

// One size and what it took.
struct Sample {
  double bytes = 0;
  double seconds = 0;
  bool operator==(const Sample&) const = default;
};

class TransferTimes {
 public:
  // From `from` bytes on, up to where the next piece begins: startup + bytes * per_byte.
  struct Piece {
    double from = 0;
    double startup = 0;   // seconds; of pieces behind the first it may be below 0 (a steeper line's)
    double per_byte = 0;  // seconds
    bool operator==(const Piece&) const = default;
  };

  TransferTimes() = default;  // all takes no time
  // Throws Error{invalid_argument} unless the first begins at 0, the others ascend, all numbers are finite,
  // no rate is below 0 and no piece gives a time below 0.
  explicit TransferTimes(std::vector<Piece> pieces);

  // 0 for nothing: an empty collective is not called.
  double seconds(double bytes) const;
  // What the smallest call takes, and what is gained where two calls become one.
  double startup() const { return pieces_.front().startup; }
  // Of seconds(bytes), what passes while others of the calls that are under way together are served; the rest
  // of each is served in turn. startup(), or less, where nothing else is known.
  double startup_of(double bytes) const;
  // Of the piece for the largest sizes.
  double per_byte() const { return pieces_.back().per_byte; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Whether any size takes longer than another.
  bool has_rate() const;
  // Start-ups and rates times these: scaled(1, 0.5) is a network of twice the bandwidth.
  TransferTimes scaled(double startup, double per_byte) const;
  // The longer of both, size by size.
  TransferTimes at_least(const TransferTimes& least) const;
  TransferTimes at_most(const TransferTimes& most) const;
  // The same times, of which calls take so much in turn, whatever its own such parts are.
  TransferTimes in_turn(const TransferTimes& part) const;
  // The same times, of which calls take so many seconds more in turn, as what a call costs the hosts. Nothing
  // changes where it is not known what they take in turn.
  TransferTimes with_call(double seconds) const;
  bool operator==(const TransferTimes&) const = default;

 private:
  TransferTimes merged(const TransferTimes& other, bool longer) const;

  std::vector<Piece> pieces_{Piece{}};
  std::vector<Piece> in_turn_{};  // none: all but a start-up
};

TransferTimes linear_times(double startup, double per_byte);
// Through the samples, straight from one to the next; of one size the median counts. Before the first size it
// is the first's time, behind the last it goes on as between the last two. Throws Error{invalid_argument}
// where there is none, or one whose numbers are negative or not finite.
TransferTimes table_times(std::span<const Sample> samples);

// "523 us + 0.857 ns/B", or of several pieces the first and the last.
std::string to_string(const TransferTimes& times);

struct NetworkTimes {
  std::string name;  // "10 GbE"
  int ranks = 1;
  TransferTimes all_reduce{}, reduce_scatter{}, all_gather{};  // by the bytes of the whole vector
  const TransferTimes& of(Collective op) const;                // Throws Error{unsupported} for others
  struct Each {
    TransferTimes all_reduce{}, reduce_scatter{}, all_gather{};
    bool operator==(const Each&) const = default;
  };
  // What links of endless rate leave, such as what hosts' processors take: more bandwidth gets nowhere below
  // it.
  Each least{};
  // What links would take were processors without end: where less than the times above, less bandwidth is not
  // felt until links take longer. Nothing: the times above are those of links.
  std::optional<Each> links{};
  // Of a cluster, where some plans take long to make: by name, planners whose plans these are the times of,
  // which serve a group until it has those of `missing`, which may be quicker. Empty: groups end with these.
  struct Interim {
    std::set<std::string> taken{}, missing{};
    bool operator==(const Interim&) const = default;
  };
  Interim interim{};
  // Seconds: so much of what follows idleness is carried at once, as far as it was idle so long (token
  // buckets).
  double burst = 0;
  // Each rate of links times `by`; start-ups stay, and nothing takes less than `least`.
  NetworkTimes with_bandwidth(double by) const;
  // TransferTimes::with_call() of all of them.
  NetworkTimes with_call(double seconds) const;
  bool operator==(const NetworkTimes&) const = default;
};

// A network on which an all-reduce takes `all_reduce`. Its halves take half of that each, as they do in rings
// and in recursive halving and doubling.
NetworkTimes network_of(const std::string& name, int ranks, const TransferTimes& all_reduce);
// Nothing takes time: one rank, or an ideal network.
NetworkTimes no_network(int ranks);
// The same network with other ranks, as the textbook has it. Rings: start-ups grow with ranks - 1, rates with
// (ranks - 1) / ranks. Trees: start-ups with log2 of the ranks, rates as before.
enum class Growth { ring, tree };
NetworkTimes at_ranks(const NetworkTimes& network, int ranks, Growth growth = Growth::ring);

}  // namespace talweg::train
