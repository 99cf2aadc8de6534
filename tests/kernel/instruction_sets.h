// Runs a check once with every set of loops that this processor can execute, not only with the one it would
// choose.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <vector>

#include "kernel/reduce.h"

namespace talweg::kernel {

// Highway keeps the choice in one place for the whole process; it is free again when this goes.
class ChosenInstructionSet {
 public:
  explicit ChosenInstructionSet(std::int64_t target) { choose(target); }
  ~ChosenInstructionSet() { choose(0); }
  ChosenInstructionSet(const ChosenInstructionSet&) = delete;
  ChosenInstructionSet& operator=(const ChosenInstructionSet&) = delete;

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

template <typename Check>
void with_every_instruction_set(Check check) {
  std::vector<std::int64_t> targets;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1)
    targets.push_back(left & -left);
  for (const std::int64_t target : targets) {
    const ChosenInstructionSet chosen(target);
    SCOPED_TRACE(target_name());
    check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace talweg::kernel
