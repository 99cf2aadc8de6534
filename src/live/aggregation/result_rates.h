// How fast results of a switch may leave, by the names of its jobs: those of a job beyond its rate wait
// (protocol/aggregation/switch_terms.h). Read from a file such as
//
//   # job       rate
//   resnet      2 Gbit/s
//   llama-3     none
//   *           500Mbit/s
//
// where * is all jobs that are not named.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace talweg::live {

// Of one job, in bytes per second: below, a single datagram would take seconds.
inline constexpr double kLeastRate = 1000;
// Beyond any port, and far from overflowing where bytes become nanoseconds.
inline constexpr double kMostRate = 1e15 / 8;

struct ResultRates {
  std::map<std::string, double, std::less<>> of;  // bytes per second; 0: none
  std::optional<double> others;
  // `otherwise`: of those that have none here.
  double of_job(std::string_view name, double otherwise) const;
};

// "2 Gbit/s" or "none", in bytes per second. Throws Error{invalid_argument}.
double parse_result_rate(std::string_view text);
// `file` is what the text is called in errors. Throws Error{bad_file} that names the line.
ResultRates parse_result_rates(std::string_view text, const std::string& file);

}  // namespace talweg::live
