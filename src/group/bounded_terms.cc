#include "group/bounded_terms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>

#include "base/fail.h"
#include "group/bounded_checks.h"
#include "wire/signature.h"

namespace talweg::group {

namespace {

constexpr std::size_t kMostNamed = 16;  // of one line

enum class Part : std::uint8_t { none, sums, sums_alone };

std::string text(std::span<const Part> parts) {
  std::vector<std::size_t> servers;
  bool dedicated = false;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (parts[r] != Part::none) servers.push_back(r);
    dedicated = dedicated || parts[r] == Part::sums_alone;
  }
  if (servers.size() == parts.size()) return "all ranks as servers";
  const auto named = std::span(servers).first(std::min(servers.size(), kMostNamed));
  return fmt::format("{}servers {}{}", dedicated ? "dedicated " : "", fmt::join(named, ", "),
                     named.size() < servers.size() ? ", ..." : "");
}

}  // namespace

Introduction introduction_of(const BoundedLossOptions& options, std::size_t ranks) {
  const protocol::LossBounds bounds = protocol::bounds_of(parts_of(options));
  Introduction mine;
  mine.ppm = bounds.tensor_ppm;
  mine.sender_ppm = bounds.sender_ppm;
  mine.call_ppm = bounds.iteration_ppm;
  mine.packet_bytes = static_cast<std::uint32_t>(options.packet_bytes);
  mine.policy = static_cast<std::uint8_t>(options.policy);
  mine.servers = digest_of_servers(options, ranks);
  return mine;
}

live::UdpAddress address_of(const Introduction& of) {
  live::UdpAddress address("0.0.0.0:0");
  address.set_ipv4(of.address);
  address.set_port(of.port);
  return address;
}

void check_alike(const std::vector<Introduction>& all) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].port == 0)
      throw_error(ErrorCode::system, "bounded loss: rank {}: {}", r, text_of(all[r].failure));
    const auto said = [](const Introduction& i) {
      return fmt::format("p = {}, policy {}, packet_bytes {}, p_sender = {}, p_call = {}", i.ppm / 1e6,
                         name(static_cast<LossPolicy>(i.policy)), i.packet_bytes, i.sender_ppm / 1e6,
                         i.call_ppm / 1e6);
    };
    if (said(all[r]) == said(all[0])) continue;
    throw_error(ErrorCode::mismatch, "bounded loss: ranks disagree: rank 0 has {}, rank {} has {}",
                said(all[0]), r, said(all[r]));
  }
}

std::uint64_t digest_of_servers(const BoundedLossOptions& options, std::size_t ranks) {
  std::vector<std::int64_t> named(options.servers.begin(), options.servers.end());
  if (named.size() == ranks) named.clear();  // which says the same
  std::ranges::sort(named);
  named.push_back(options.dedicated ? 1 : 0);
  return wire::layout_digest(named.data(), named.size());
}

void check_servers_alike(Group& group, const BoundedLossOptions& options,
                         const std::vector<Introduction>& all) {
  if (std::ranges::all_of(all, [&](const Introduction& i) { return i.servers == all[0].servers; })) return;
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<Part> mine(ranks, options.servers.empty() ? Part::sums : Part::none), told(ranks * ranks);
  for (const int server : options.servers)
    mine[static_cast<std::size_t>(server)] = options.dedicated ? Part::sums_alone : Part::sums;
  group.all_gather(mine.data(), told.data(), std::vector<std::size_t>(ranks, ranks), DataType::u8);
  const auto of = [&](std::size_t rank) {
    return text(std::span<const Part>(told).subspan(rank * ranks, ranks));
  };
  for (std::size_t r = 1; r < ranks; ++r)
    if (all[r].servers != all[0].servers)
      throw_error(ErrorCode::mismatch, "bounded loss: ranks disagree: rank 0 has {}, rank {} has {}", of(0),
                  r, of(r));
}

void check_same(const Group& group, observe::CallNote::Kind kind, std::span<const CallWords> all) {
  using Kind = observe::CallNote::Kind;
  const auto who = [&](std::size_t r) {
    return fmt::format("rank {} ({})", r, group.host_of(static_cast<int>(r)));
  };
  const auto said = [](const CallWords& w) {
    const auto its = static_cast<Kind>(w.kind);
    const std::string data = fmt::format("of {} {}", w.count, talweg::name(static_cast<DataType>(w.type)));
    if (its == Kind::bounded_pull) return "pull " + data;
    return fmt::format("{}{} {}", its == Kind::bounded_push ? "push: " : "",
                       talweg::name(static_cast<ReduceOp>(w.reduction)), data);
  };
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].refused != 0)
      throw_error(ErrorCode::mismatch, "{}: the call of {} was refused there", name(kind), who(r));
  const auto terms = [](const CallWords& w) { return std::tie(w.kind, w.count, w.type, w.reduction); };
  for (std::size_t r = 1; r < all.size(); ++r)
    if (terms(all[r]) != terms(all[0]))
      throw_error(ErrorCode::mismatch, "{}: ranks disagree: {} calls {}, {} calls {}", name(kind), who(0),
                  said(all[0]), who(r), said(all[r]));
}

}  // namespace talweg::group
