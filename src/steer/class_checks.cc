#include "steer/class_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/units.h"

namespace talweg::steer {
namespace {

using ClassTexts = std::vector<std::string>;

constexpr std::array<const char*, kProbedEcn.size()> kProbedNames = {"Not-ECT", "ECT(0)", "CE"};
constexpr std::array<const char*, 4> kEcnNames = {"Not-ECT", "ECT(1)", "ECT(0)", "CE"};

std::string dscp_name(int dscp) {
  const auto* const known = std::ranges::find(wire::kDscp, dscp);
  if (known == wire::kDscp.end()) return fmt::format("DSCP {}", dscp);
  return wire::kDscpNames[static_cast<std::size_t>(known - wire::kDscp.begin())];
}

// All that has one DSCP.
ClassCount sum_of(const std::array<ClassCount, kProbedEcn.size()>& counts) {
  ClassCount sum;
  for (const ClassCount& count : counts) {
    sum.sent = static_cast<std::uint16_t>(sum.sent + count.sent);
    sum.refused = static_cast<std::uint16_t>(sum.refused + count.refused);
    sum.received = static_cast<std::uint16_t>(sum.received + count.received);
    sum.same_dscp = static_cast<std::uint16_t>(sum.same_dscp + count.same_dscp);
    if (count.same_dscp < count.received) sum.other_dscp = count.other_dscp;
  }
  return sum;
}

bool nothing_came(const ClassesSeen& seen) {
  return std::ranges::all_of(seen.of, [](const auto& counts) { return sum_of(counts).received == 0; });
}

FabricCheck nothing(const char* what, Verdict verdict) {
  return {what, verdict, "no datagram arrives",
          "Let UDP pass between all hosts, on all ports above 1023: a firewall drops it."};
}

}  // namespace

FabricCheck check_dscp(const ClassesSeen& seen) {
  if (nothing_came(seen)) return nothing("dscp", Verdict::fail);
  ClassTexts absent, refused, changed;
  for (std::size_t p = 0; p < seen.of.size(); ++p) {
    const ClassCount count = sum_of(seen.of[p]);
    const char* const name = wire::kDscpNames[p];
    if (count.sent == 0)
      refused.emplace_back(name);
    else if (count.received == 0)
      absent.emplace_back(name);
    else if (2 * count.same_dscp < count.received)
      changed.push_back(fmt::format("{} as {}", name, dscp_name(count.other_dscp)));
  }
  if (absent.empty() && refused.empty() && changed.empty())
    return {"dscp", Verdict::pass, "all eight arrive as they left", ""};
  ClassTexts problems, to_do;
  if (!refused.empty()) {
    problems.push_back(fmt::format("not sent: {}", fmt::join(refused, ", ")));
    to_do.emplace_back("Let these leave: a firewall of the sender's own host, or a policy, refuses them.");
  }
  if (!absent.empty()) {
    problems.push_back(fmt::format("dropped: {}", fmt::join(absent, ", ")));
    to_do.emplace_back("Let these DSCPs pass: a firewall or a switch's policer drops them.");
  }
  if (!changed.empty()) {
    problems.push_back(fmt::format("arrive changed: {}", fmt::join(changed, ", ")));
    to_do.emplace_back(
        "Have the switches trust the DSCP of what comes from hosts; a port that does not rewrites it.");
  }
  return {"dscp", Verdict::fail, fmt::format("{}", fmt::join(problems, "; ")),
          fmt::format("{}", fmt::join(to_do, " "))};
}

FabricCheck check_ecn(const ClassesSeen& seen) {
  if (nothing_came(seen)) return nothing("ecn", Verdict::cannot_tell);
  ClassTexts problems;
  for (std::size_t e = 0; e < kProbedEcn.size(); ++e) {
    std::array<ClassTexts, kEcnNames.size()> changed;  // by what they came as: of which DSCPs
    std::size_t came = 0;
    for (std::size_t p = 0; p < seen.of.size(); ++p) {
      const ClassCount& count = seen.of[p][e];
      if (count.received == 0) continue;
      ++came;
      for (std::size_t as = 0; as < changed.size(); ++as)
        if (as != kProbedEcn[e] && 2 * count.by_ecn[as] > count.received)
          changed[as].emplace_back(wire::kDscpNames[p]);
    }
    if (came == 0) problems.push_back(fmt::format("{} is dropped", kProbedNames[e]));
    for (std::size_t as = 0; as < changed.size(); ++as)
      if (!changed[as].empty())
        problems.push_back(fmt::format(
            "{} arrives as {}{}", kProbedNames[e], kEcnNames[as],
            changed[as].size() == came ? "" : fmt::format(" ({})", fmt::join(changed[as], ", "))));
  }
  if (problems.empty()) return {"ecn", Verdict::pass, "Not-ECT, ECT(0) and CE arrive as they left", ""};
  return {"ecn", Verdict::fail, fmt::format("{}", fmt::join(problems, "; ")),
          "Find the device that rewrites the two bits of ECN (old middleboxes, tunnels, a port that sets the "
          "whole "
          "octet): without them no mark reaches a receiver."};
}

FabricCheck check_mtu(const ClassesSeen& seen) {
  if (seen.largest_bytes == 0)
    return nothing("mtu", nothing_came(seen) ? Verdict::cannot_tell : Verdict::fail);
  const std::string room =
      fmt::format("{} bytes pass: packet_bytes up to {}", seen.largest_bytes, seen.packet_bytes);
  const std::uint32_t most =
      seen.known_bytes > 0 ? std::min(seen.known_bytes, seen.tried_bytes) : seen.tried_bytes;
  if (seen.largest_bytes >= most) return {"mtu", Verdict::pass, room, ""};
  return {"mtu", Verdict::fail, fmt::format("{}; {} are lost, and nobody says so", room, most),
          fmt::format(
              "Give all ports of the switches the hosts' MTU, or the hosts {} (ip link set dev PORT mtu {}).",
              seen.largest_bytes, seen.largest_bytes)};
}

FabricCheck check_host(const HostSeen& seen) {
  ClassTexts facts, to_do;
  facts.emplace_back(seen.sets_classes ? "sets DSCP and ECN" : "may not set DSCP and ECN");
  facts.push_back(
      fmt::format("receives {}", to_string(Bytes{static_cast<std::int64_t>(seen.receive_bytes)})));
  facts.push_back(fmt::format("GSO {}, GRO {}", seen.offloads ? "on" : "off", seen.merges ? "on" : "off"));
  if (!seen.sets_classes) to_do.emplace_back("Let the program set IP_TOS: a policy of this host refuses it.");
  if (!seen.shortage.empty()) to_do.push_back(seen.shortage + ".");
  if (!seen.offloads || !seen.merges)
    to_do.emplace_back(
        "Without GSO and GRO (Linux 5.0 or later) datagrams cost several times the processor.");
  return {"host", to_do.empty() ? Verdict::pass : Verdict::fail, fmt::format("{}", fmt::join(facts, ", ")),
          fmt::format("{}", fmt::join(to_do, " "))};
}

}  // namespace talweg::steer
