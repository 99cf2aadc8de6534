// Mailbox: which message belongs to which receive. Messages of one sender match receives in the order in
// which they were announced; a receive names a sender or takes any, and always names a tag.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "wire/signature.h"

namespace talweg::protocol {

inline constexpr int kAnySource = -1;

// A message that its sender has announced.
struct Envelope {
  int source = 0;
  std::uint32_t tag = 0;
  std::uint64_t number = 0;  // the sender's number for it
  wire::Signature signature;
};

class Mailbox {
 public:
  // Announced messages that nobody receives are kept; this many at most from all senders together, so that a
  // sender gone wild cannot fill our memory.
  static constexpr std::size_t kMaxWaiting = 1U << 16;

  // Posts a receive; returns the oldest announced message that it takes, if there is one.
  std::optional<Envelope> post(std::uint64_t run, int source, std::uint32_t tag);
  // A message was announced; returns the receive that takes it, else keeps it. `full` is set when it could
  // not be.
  std::optional<std::uint64_t> announce(const Envelope& envelope, bool& full);
  void withdraw(std::uint64_t run);
  // The sender has given up on a message, or (without a number) has gone.
  void retract(int source, std::optional<std::uint64_t> number);

 private:
  struct Posted {
    std::uint64_t run;
    int source;
    std::uint32_t tag;
  };
  std::deque<Posted> posted_;
  std::deque<Envelope> waiting_;
};

}  // namespace talweg::protocol
