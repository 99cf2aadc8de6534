// Ranks and aggregators as threads that connect to each other through a store in memory.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "live/join/connect.h"
#include "live/system.h"
#include "talweg/error.h"

namespace talweg::live {

inline constexpr std::int64_t kSecond = 1'000'000'000;

class MemoryStore : public Store {
 public:
  explicit MemoryStore(bool confidential = false) : confidential_(confidential) {}
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(key); }))
      throw Error(ErrorCode::timeout, "nobody has set " + key);
    return values_[key];
  }
  bool confidential() const override { return confidential_; }

 private:
  const bool confidential_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct Outcome {
  Mesh mesh;
  std::string error;
  ErrorCode code = ErrorCode::system;
};

// The outcomes of all ranks, then those of the aggregators that are started.
inline std::vector<Outcome> connect(Store& store, int size,
                                    const std::function<void(ConnectOptions&)>& change = {},
                                    const std::vector<std::string>& aggregators = {}) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size) + aggregators.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < static_cast<int>(outcomes.size()); ++r)
    threads.emplace_back([&, r] {
      ConnectOptions options;
      if (r < size) {
        options.rank = r;
        options.size = size;
      } else {
        options.aggregator = aggregators[static_cast<std::size_t>(r - size)];
      }
      options.address = "127.0.0.1";
      options.deadline_ns = now_ns() + 20 * kSecond;
      Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
      try {
        if (change) change(options);
        outcome.mesh = connect_all(store, options);
      } catch (const Error& e) {
        outcome.error = e.what();
        outcome.code = e.code();
      }
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

}  // namespace talweg::live
