// What was asked of a network, and what the answer is: a line of `talweg fabric`.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace talweg::steer {

enum class Verdict { pass, fail, cannot_tell };

constexpr const char* to_string(Verdict verdict) {
  return verdict == Verdict::pass ? "PASS" : verdict == Verdict::fail ? "FAIL" : "cannot tell";
}

struct FabricCheck {
  std::string what;  // one of kFabricChecks
  Verdict verdict = Verdict::cannot_tell;
  std::string seen;   // for people
  std::string to_do;  // a sentence or more; empty: nothing
  int from = -1;      // a host, where it is about a direction
  int to = -1;        // the other one, or the host that it is about
};

// In the order in which they are told.
inline constexpr std::array<std::string_view, 7> kFabricChecks = {"host",  "dscp",      "ecn",       "mtu",
                                                                  "marks", "selective", "priorities"};

}  // namespace talweg::steer
