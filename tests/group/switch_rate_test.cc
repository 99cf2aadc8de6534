// All_reduces of a group through a switch whose results have a rate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "live/aggregation/result_rates.h"
#include "live/aggregation/switch_line.h"
#include "switched.h"

namespace talweg {
namespace {

// Of each result to all ranks about 50 kB: two are a burst, and another one is due every two and a half
// seconds, while a switch that says nothing is given up in one.
TEST(SwitchedRate, ASwitchThatIsBusyForLongIsNotSilent) {
  constexpr double kSlow = 20e3;
  constexpr std::size_t kFourDatagrams = std::size_t{4} * 16 * 256;
  std::atomic<double> rate{0};
  live::SwitchServiceOptions options;
  options.result_rates = [&] {
    live::ResultRates rates;
    rates.others = rate.load();
    return rates;
  };
  const live::Served served(options);
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        group.barrier();
        if (group.rank() == 0) {
          rate = kSlow;
          live::give_order(served.service().address(), {}, wire::SwitchDo::reload, live::soon());
        }
        group.barrier();
        const int before = sums(group);
        check_floats(group, kFourDatagrams, false);
        EXPECT_EQ(sums(group), before + 1) << switch_line(group);
        group.barrier();
      },
      through(at(served)));
}

}  // namespace
}  // namespace talweg
