#include "study/perf_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace talweg::study {

namespace {

// The same numbers on every rank, by the rule that -a names.
void agree(Group& group, Average average, std::vector<double>& values) {
  if (average == Average::rank0) {
    group.broadcast(values.data(), values.size(), DataType::f64, 0);
    return;
  }
  const ReduceOp op = average == Average::min   ? ReduceOp::min
                      : average == Average::max ? ReduceOp::max
                                                : ReduceOp::avg;
  group.all_reduce(values.data(), values.data(), values.size(), DataType::f64, op);
}

double percentile(std::vector<double> values, double share) {
  const auto index = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

}  // namespace

Timing timing_of(Group& group, const PerfOptions& options, std::vector<double> values, double total) {
  values.push_back(total / options.iterations);
  for (double& value : values) value /= options.aggregate;
  agree(group, options.average, values);

  Timing timing;
  timing.time_us = values.back();
  values.pop_back();
  values.erase(values.begin(), values.begin() + options.skip);
  timing.p50_us = percentile(values, 0.5);
  timing.p99_us = percentile(values, 0.99);
  return timing;
}

}  // namespace talweg::study
