// Evidence: whether flows share something, from measurements that are noisy, and now and then much too low.
//
// Flows that reach less together than they would apart may share something. Or hosts were busy, or what they
// reach apart is not what was thought. So a supposition is put to tests that it can fail, one trial after the
// other; judge() says whether one has failed, whether there were enough, or which trial comes next:
//   - together they reach what they would reach apart, if only once;
//   - what they are supposed to share has carried more in some other trial; or no trial of any hosts has
//     carried more, so that the hosts may be the limit;
//   - parts of them, one after the other, add up to no more than all together: each has a limit of its own;
//   - in other company (other flows that would share the same) they add up to something else.
// A busy host makes measurements too low, never too high. Of flows that share nothing all of k measurements
// are too low with the chance p^k, where p is that of one: k is so large that among all suppositions that are
// tried not one in a hundred surveys is wrong.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "steer/bottleneck.h"

namespace talweg::steer {

// How measurements of the same thing differ.
struct Noise {
  double spread = 0.05;  // standard deviation of those that were not disturbed, as a part of the value
  double low = 0.5;      // the chance that one was disturbed and is much too low
};
// `repeats`: by what was measured, its values. Those with a single one say nothing. The chance by Laplace's
// rule of succession: the greatest value of each was not disturbed, the others are the trials.
Noise noise_of(const std::vector<std::vector<double>>& repeats);

// Flows that would share what is supposed. Rates in bit/s, of all of them together.
struct Company {
  double apart = 0;             // what they would reach if they shared nothing but what is known
  std::vector<double> reached;  // what they reached, each time
};

struct Supposition {
  std::vector<Company> companies;  // at least one; the first has parts
  double in_parts = 0;             // the best that each of the parts reached, added up
  std::size_t times_in_parts = 0;  // that each was measured
  double carried = 0;              // the most that passed what is supposed to be shared, in any trial
  double elsewhere = std::numeric_limits<double>::infinity();  // the most that all flows of any trial reached
};

// What is asked of evidence.
struct Standard {
  double least = 0.07;   // flows that lose less than this part of what they reach apart share nothing
  int suppositions = 1;  // that may be tried
  int most_trials = 10;  // of one, parts apart; where more are needed, nothing is believed
};

struct Judgement {
  enum class Verdict { unsure, apart, shared };
  Verdict verdict = Verdict::unsure;
  std::optional<std::size_t> company;  // where unsure, which one is to be measured; none: the parts
  Estimate capacity;                   // where shared
  double doubt = 1;                    // where shared: the chance, at most, that they are apart
};
Judgement judge(const Supposition& supposed, const Noise& noise, const Standard& asked);

}  // namespace talweg::steer
