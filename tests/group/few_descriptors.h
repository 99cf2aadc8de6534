// A process that has hardly any file descriptors left.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "live/system.h"

namespace talweg {

// Of the process, which all ranks are in: as many as can be opened while it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t n) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = 400;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (live::FileDescriptor next(::dup(0)); next; next = live::FileDescriptor(::dup(0)))
      taken_.push_back(std::move(next));
    EXPECT_GT(taken_.size(), n);
    taken_.resize(taken_.size() - n);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<live::FileDescriptor> taken_;
};

}  // namespace talweg
