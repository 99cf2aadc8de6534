// SilentRanks: ranks to which frames go over TCP because datagrams bring no answer, told to the log once. The
// links of a process find it out one by one, and share this: ranks that are found together are one line.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace talweg::live {

class SilentRanks {
 public:
  // Since the first, until the line is written. Each link has timeouts of its own.
  static constexpr std::int64_t kGatherNs = 1'000'000'000;

  // `setting`: what the links were told to do, in the user's words. Of a process whose seat is `own`.
  SilentRanks(int own, std::string setting) : log_(own), setting_(std::move(setting)) {}
  ~SilentRanks() { say(); }
  SilentRanks(const SilentRanks&) = delete;
  SilentRanks& operator=(const SilentRanks&) = delete;

  void add(int rank, std::int64_t now_ns) {
    if (ranks_.empty()) since_ns_ = now_ns;
    ranks_.push_back(rank);
  }
  // Now and then.
  void look(std::int64_t now_ns) {
    if (!ranks_.empty() && now_ns - since_ns_ >= kGatherNs) say();
  }

 private:
  void say() {
    if (ranks_.empty()) return;
    std::ranges::sort(ranks_);
    log_.log(LogLevel::warn, "net",
             "{}: datagrams to {} {} bring no answer: is UDP blocked on the way? calls go on over TCP",
             setting_, ranks_.size() == 1 ? "rank" : "ranks", fmt::join(ranks_, ", "));
    ranks_.clear();
  }

  const Logger log_;
  const std::string setting_;
  std::vector<int> ranks_;  // that have not been told of
  std::int64_t since_ns_ = 0;
};

}  // namespace talweg::live
