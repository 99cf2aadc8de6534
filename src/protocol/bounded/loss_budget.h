// LossBudget: how many bytes may be missing of a tensor, seen together: of each transfer, of what one sender
// sends, of an iteration. In whole bytes, so that a bound is a bound and not about one.
//
//   LossBudget budget(bounds);
//   budget.add(sender, bytes);                       // each stream, before the first iteration
//   budget.begin();                                  // of an iteration
//   if (missing <= budget.allowance(sender, bytes)) budget.spend(sender, missing);     // deliver
//
// A bound per tensor alone lets one slow worker lose its p in every iteration and in every tensor. What a
// sender may lose accrues by iteration, and what it has not lost is kept for `burst` iterations at most:
// over any K of them it is at most sender_ppm of what it sent in K + burst - 1.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "protocol/bounded/shape.h"

namespace talweg::protocol {

inline constexpr std::uint32_t kMillion = 1'000'000;
// Of a part of 1, rounded down but for what has been lost of it on the way.
constexpr std::uint32_t millionths(double part) {
  return static_cast<std::uint32_t>(part * kMillion + 1e-6);
}
inline constexpr std::uint32_t kMostBurst = 16;  // iterations

// Millionths of the bytes: 10'000 is 1 %. Without a loss of any kind unless somebody says so.
struct LossBounds {
  std::uint32_t tensor_ppm = 0;     // of one transfer
  std::uint32_t sender_ppm = 0;     // of one sender, on average
  std::uint32_t iteration_ppm = 0;  // of all that is received in an iteration
  std::uint32_t burst = 1;          // iterations, 1 .. kMostBurst
};

// As users say it, in parts of the bytes: of one transfer, and where somebody says so of one sender on
// average and of all senders together. More than p of these is never missing.
struct LossParts {
  double p = 0;
  std::optional<double> sender{}, call{};
};

// Of parts that are none, but for p: a line for people, by the names that `sender` and `call` have for them.
inline std::string complaint_about(const LossParts& parts, const char* sender, const char* call) {
  for (const auto& [name, part] : {std::pair{sender, parts.sender}, std::pair{call, parts.call}})
    if (part && !(*part >= 0 && *part <= parts.p))
      return fmt::format("{} = {:g}: expected 0 to {:g}, the part of any data that may be missing", name,
                         *part, parts.p);
  return {};
}

// Never more than is said. Where one of them is 0 nothing can be missing.
inline LossBounds bounds_of(const LossParts& parts) {
  const LossBounds bounds{millionths(parts.p), millionths(parts.sender.value_or(parts.p)),
                          millionths(parts.call.value_or(parts.p)), kMostBurst};
  const bool any = std::min({bounds.tensor_ppm, bounds.sender_ppm, bounds.iteration_ppm}) > 0;
  return any ? bounds : LossBounds{};
}

class LossBudget {
 public:
  // Throws Error{invalid_argument}.
  explicit LossBudget(const LossBounds& bounds) : bounds_(bounds) {
    if (std::max({bounds.tensor_ppm, bounds.sender_ppm, bounds.iteration_ppm}) >= kMillion)
      refuse(
          "a bound of {} millionths of a tensor, {} of a sender and {} of an iteration: expected less than "
          "{}",
          bounds.tensor_ppm, bounds.sender_ppm, bounds.iteration_ppm, kMillion);
    if (bounds.burst < 1 || bounds.burst > kMostBurst)
      refuse("a loss that may gather over {} iterations: expected 1 to {}", bounds.burst, kMostBurst);
  }

  // Throws Error{invalid_argument} where all are more than kMostBoundedBytes.
  void add(std::uint16_t sender, std::uint64_t bytes) {
    if (bytes > kMostBoundedBytes - bytes_)
      refuse("{} bytes in an iteration: expected at most {}", bytes_ + bytes, kMostBoundedBytes);
    bytes_ += bytes;
    const auto known = find(sender);
    if (known == senders_.end())
      senders_.push_back({sender, bytes, 0});
    else
      known->bytes += bytes;
  }

  // `exact`: nothing may be missing of this one.
  void begin(bool exact = false) {
    left_ = exact ? 0 : bytes_ * bounds_.iteration_ppm / kMillion;
    for (Sender& s : senders_) {
      const std::uint64_t each = s.bytes * bounds_.sender_ppm;
      s.credit = std::min(s.credit + each, each * bounds_.burst);
    }
  }
  // Bytes that may be missing of a transfer of so many: the least of what the three bounds leave.
  std::uint64_t allowance(std::uint16_t sender, std::uint64_t bytes) const {
    return std::min({of_tensor(bytes), of_sender(sender), of_iteration()});
  }
  std::uint64_t of_tensor(std::uint64_t bytes) const { return bytes * bounds_.tensor_ppm / kMillion; }
  std::uint64_t of_sender(std::uint16_t sender) const {
    for (const Sender& s : senders_)
      if (s.number == sender) return s.credit / kMillion;
    return 0;
  }
  std::uint64_t of_iteration() const { return left_; }
  // Not more than the allowance.
  void spend(std::uint16_t sender, std::uint64_t missing) {
    left_ -= missing;
    find(sender)->credit -= missing * kMillion;
  }
  const LossBounds& bounds() const { return bounds_; }

 private:
  struct Sender {
    std::uint16_t number = 0;
    std::uint64_t bytes = 0;   // in an iteration
    std::uint64_t credit = 0;  // millionths of bytes
  };
  std::vector<Sender>::iterator find(std::uint16_t sender) {
    return std::find_if(senders_.begin(), senders_.end(),
                        [sender](const Sender& s) { return s.number == sender; });
  }

  const LossBounds bounds_;
  std::uint64_t bytes_ = 0;
  std::uint64_t left_ = 0;  // of the iteration
  std::vector<Sender> senders_;
};

}  // namespace talweg::protocol
