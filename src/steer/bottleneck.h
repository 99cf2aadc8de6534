// Bottlenecks: what flows share, and which set of hosts explains that flows are held up.
#pragma once

#include <optional>
#include <vector>

namespace talweg::steer {

struct Flow {
  int from = 0;
  int to = 0;
  bool operator==(const Flow&) const = default;
};

// A value that was measured several times.
struct Estimate {
  double value = 0;
  double half_width = 1;  // as a part of the value
  int agreeing = 0;       // measurements that say so
};
// The middle of the closest majority of the values (a short half, Andrews et al. 1972): a minority that is
// far off has no say. One value is as unsure as can be.
Estimate estimate(std::vector<double> values);
// The same of the greatest value and those close to it: where the others were held up by something else.
Estimate fastest(std::vector<double> values);

// Carries at most `capacity` of the flows that pass it, in bit/s.
struct Bottleneck {
  std::vector<bool> senders, receivers;  // by host
  bool either = false;                   // one end in its set is enough: both directions of a port
  double capacity = 0;
  bool carries(const Flow& flow) const;
};

// Flows that ran at once.
struct Observation {
  std::vector<Flow> flows;
  std::vector<double> rates;
  double through(const Bottleneck& bottleneck) const;
};

// A bottleneck whose load is at least this part of its capacity is full; flows through it are explained.
// Rates within 5 % of the truth, on both sides, can be 10 % apart.
inline constexpr double kFull = 0.88;
// From this part on acknowledgements may wait behind the data: messages come in lumps.
inline constexpr double kMayWait = 0.8;

// What the acknowledgements of a flow take of the other way, at most: 66 bytes for every two segments of
// 1514.
inline constexpr double kAcknowledgements = 66.0 / (2 * 1514);

// Sets of hosts.
std::vector<bool> only(int hosts, int host);
std::vector<bool> all(int hosts);
std::vector<bool> rest_of(std::vector<bool> set);

// Why a flow was no faster, by what is known. The acknowledgements of a flow take room on their way back, and
// where that is full they wait behind the data there: the flow is then slower than what carries it would let
// it be, the more so the longer that queue takes to drain, which says nothing of what it shares.
enum class Reason {
  unknown,           // nothing of this is full
  acknowledgements,  // they may wait in what carries them
  full               // what carries the flow is
};
std::vector<Reason> explain(const Observation& seen, const std::vector<Bottleneck>& known);
// Indices of flows that are slow for a reason that is not known.
std::vector<std::size_t> unexplained(const Observation& seen, const std::vector<Bottleneck>& known);

// The rates of flows at once if nothing but this held them up, and `most` for each: max-min fair. Every flow
// has a bottleneck, or a finite `most`.
std::vector<double> fair_rates(const std::vector<Flow>& flows, const std::vector<Bottleneck>& known,
                               const std::vector<double>& most);

// The hosts whose flows to all others explain best why flows were held up, if any do: in every observation
// where such a flow is held up, those flows together reach the same rate, the most that they ever reach.
// At least two hosts, and at least two others. `not_these` are left out. All sets are tried for up to 16
// hosts; beyond, those near the hosts that never held each other up. Some set always explains a few
// disturbed flows: what comes out is a supposition (evidence.h).
std::optional<std::vector<bool>> find_shared_exit(const std::vector<Observation>& seen,
                                                  const std::vector<Bottleneck>& known, int hosts,
                                                  const std::vector<std::vector<bool>>& not_these);

}  // namespace talweg::steer
