// Torch's rendezvous store as a talweg::Store. Torch has put the process group's own prefix in front of every
// key already, so groups that share one server do not meet.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "talweg/error.h"
#include "talweg/store.h"

namespace talweg::torch_face {

class TorchStore : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    try {
      store_->set(key, value);
    } catch (const c10::Error& e) {
      throw Error(ErrorCode::peer_failed, "torch's store did not take key " + key + ": " + first_line(e));
    }
  }

  std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    // Zero would mean "for ever" to torch.
    const auto limit = std::max(left, std::chrono::milliseconds(1));
    try {
      store_->wait({key}, limit);
      return store_->get_to_str(key);
    } catch (const c10::DistNetworkError& e) {
      throw Error(ErrorCode::peer_failed,
                  "torch's store is gone while waiting for key " + key + ": " + first_line(e));
    } catch (const c10::Error&) {
      throw Error(ErrorCode::timeout,
                  "torch's store had no key " + key + " within " + std::to_string(limit.count()) + " ms");
    }
  }

  // Not by a wait that ends at once: torch would log each as a failure.
  std::optional<std::string> find(const std::string& key) override {
    try {
      if (!store_->check({key})) return std::nullopt;
      return store_->get_to_str(key);
    } catch (const c10::Error& e) {
      throw Error(ErrorCode::peer_failed,
                  "torch's store is gone while looking for key " + key + ": " + first_line(e));
    }
  }

  // A group's own key is as safe here as all else that torch's ranks tell each other.
  bool confidential() const override { return true; }
  bool seen_by_aggregators() const override { return false; }

 private:
  static std::string first_line(const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace talweg::torch_face
