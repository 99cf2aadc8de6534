// The same runs everywhere; digests_main.cc holds other compilers to the same.
#include <gtest/gtest.h>

#include "sim/digests.h"

namespace talweg::sim {
namespace {

class Determinism : public testing::TestWithParam<DigestRun> {};

TEST_P(Determinism, ARunHasTheStoredDigest) {
  EXPECT_EQ(GetParam().digest(), GetParam().stored);
}

TEST_P(Determinism, ASecondRunInTheSameProcessIsTheSame) {
  EXPECT_EQ(GetParam().digest(), GetParam().digest());
}

INSTANTIATE_TEST_SUITE_P(Runs, Determinism, testing::ValuesIn(digest_runs()),
                         [](const auto& run) { return std::string(run.param.name); });

}  // namespace
}  // namespace talweg::sim
