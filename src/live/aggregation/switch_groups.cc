#include "live/aggregation/switch_groups.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "live/join/interface.h"
#include "live/udp/multicast.h"

namespace talweg::live {

namespace {

constexpr std::size_t kMostNamed = 8;  // workers

UdpAddress behind(const UdpAddress& first, std::size_t place) {
  UdpAddress address = first;
  address.set_ipv4(htonl(ntohl(first.ipv4()) + static_cast<std::uint32_t>(place)));
  address.set_port(static_cast<std::uint16_t>(first.port() + static_cast<int>(place)));
  return address;
}

std::string host_part(const UdpAddress& address) {
  const std::string text = to_string(address);
  return text.substr(0, text.rfind(':'));
}

// What cannot be one is refused below, as any other that is no group.
UdpAddress parsed(const std::string& group) {
  try {
    const bool ipv6 = group.find(':') != std::string::npos;
    return UdpAddress(fmt::format(fmt::runtime(ipv6 ? "[{}]:{}" : "{}:{}"), group, kFirstGroupPort));
  } catch (const Error&) {
    return UdpAddress("0.0.0.0:0");
  }
}

}  // namespace

UdpAddress first_group(const SwitchMulticastOptions& options, const Endpoint& listen, std::size_t jobs) {
  const UdpAddress first = parsed(options.group);
  if (first.ipv6())
    refuse(
        "--multicast: {} is a group of IPv6, and the switch and its workers speak IPv4: expected one such "
        "as 239.1.2.0",
        printable(options.group));
  if (!is_group(first))
    refuse("--multicast: expected a multicast address, 224.0.1.0 to 239.255.255.255, got \"{}\"",
           printable(options.group));
  const std::size_t groups = std::min(jobs, kMostGroups);
  if (!is_group(behind(first, groups - 1)))
    refuse("--multicast: {} jobs have as many groups from {} on, and there are none behind 239.255.255.255",
           groups, options.group);
  if (listen.host == kAnyAddress)
    refuse(
        "--multicast: a switch at {} has no interface of its own to send to a group by: give --listen the "
        "address of one",
        listen.host);
  if (options.hops < 1 || options.hops > 255)
    refuse("--multicast-hops: expected 1 to 255, got {}", options.hops);
  return first;
}

SwitchGroups::SwitchGroups(const UdpAddress& first, std::size_t most, Hooks hooks)
    : first_(first), most_(std::min(most, kMostGroups)), hooks_(std::move(hooks)) {}

UdpAddress SwitchGroups::at(std::size_t place) const {
  return behind(first_, place);
}

std::string SwitchGroups::describe() const {
  const UdpAddress last = at(most_ - 1);
  return fmt::format("{} to {}, UDP ports {} to {}", host_part(first_), host_part(last), first_.port(),
                     last.port());
}

std::optional<wire::SwitchGroup> SwitchGroups::open(const SwitchJobs::Job& job, std::int64_t now_ns) {
  const auto takes = [](const SwitchJobs::Worker& worker) { return worker.asked.by_group; };
  if (!job.opened || job.workers.size() < 2 || !std::ranges::all_of(job.workers, takes)) return std::nullopt;
  std::size_t place = 0;
  const auto taken = [&](const auto& entry) { return entry.second.place == place; };
  while (place < most_ && std::ranges::any_of(groups_, taken)) ++place;
  if (place == most_) return std::nullopt;
  const std::uint32_t number = job.opened->job;
  const SwitchThread::GroupPath path = hooks_.set_group(number, at(place));
  if (path.mtu > 0 && path.mtu < path.needed) {
    say_narrow(job.name, path, place);
    return std::nullopt;
  }
  groups_.insert_or_assign(number, Group{place, job.name, protocol::ResultGroup(job.workers.size(), now_ns)});
  return wire::SwitchGroup{to_string(at(place))};
}

void SwitchGroups::say_narrow(const std::string& job, const SwitchThread::GroupPath& path,
                              std::size_t place) {
  if (narrow_.size() >= kMostGroups) narrow_.clear();
  const std::pair now{path.needed, path.mtu};
  if (std::exchange(narrow_[job], now) == now || !hooks_.say) return;
  hooks_.say(
      fmt::format("job {}: results go to each worker by itself: they are packets of up to {} bytes, and the "
                  "way to the multicast group {} takes {}",
                  job, path.needed, to_string(at(place)), path.mtu));
}

void SwitchGroups::says(const SwitchJobs::Job& job, std::uint16_t worker, const wire::SwitchHears& word,
                        std::int64_t now_ns) {
  if (!job.opened) return;
  const auto found = groups_.find(job.opened->job);
  if (found == groups_.end()) return;
  found->second.results.says(worker, word, now_ns);
  look(found->first, found->second);
}

void SwitchGroups::close(std::uint32_t job) {
  groups_.erase(job);
}

void SwitchGroups::on_time(std::int64_t now_ns) {
  for (auto& [job, group] : groups_) {
    if (group.results.next_time_ns() > now_ns) continue;
    if (group.results.probe(now_ns))
      hooks_.probe(job, group.results.attempt());
    else
      look(job, group);
  }
}

std::int64_t SwitchGroups::next_time_ns() const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (const auto& [job, group] : groups_) next = std::min(next, group.results.next_time_ns());
  return next;
}

bool SwitchGroups::by_group(std::uint32_t job) const {
  const auto found = groups_.find(job);
  return found != groups_.end() && found->second.results.by_group();
}

void SwitchGroups::look(std::uint32_t job, Group& group) {
  using State = protocol::ResultGroup::State;
  const State state = group.results.state();
  if (group.used != group.results.by_group()) {
    group.used = group.results.by_group();
    hooks_.send_by_group(job, group.used);
    if (group.used && std::exchange(group.said, std::nullopt) && hooks_.say)
      hooks_.say(fmt::format("job {}: results go once to the multicast group {}: all of its workers hear it",
                             group.job, to_string(at(group.place))));
  }
  if (state != State::off) return;
  const auto why = group.results.why();
  if (std::exchange(group.said, why) != why && hooks_.say) hooks_.say(why_off(group));
}

std::string SwitchGroups::why_off(const Group& group) const {
  using Why = protocol::ResultGroup::Why;
  const std::span<const std::uint16_t> deaf = group.results.deaf();
  const std::span<const std::uint16_t> named = deaf.first(std::min(deaf.size(), kMostNamed));
  const std::string who =
      fmt::format("worker{} {}{}", deaf.size() == 1 ? "" : "s", fmt::join(named, ", "),
                  deaf.size() > named.size() ? fmt::format(" and {} more", deaf.size() - named.size()) : "");
  const std::string at = to_string(this->at(group.place));
  const wire::SwitchHears& word = group.results.word();
  switch (group.results.why()) {
    case Why::lost:
      return fmt::format(
          "job {}: results go to each worker by itself again: {} of {} to the multicast group {} did not "
          "come "
          "to {}",
          group.job, word.missing, word.of, at, who);
    case Why::cannot:
      return fmt::format(
          "job {}: results go to each worker by itself: {} cannot join the multicast group {}: {}", group.job,
          who, at, printable(word.why));
    case Why::not_joined:
      return fmt::format(
          "job {}: results go to each worker by itself: {} did not say so far that the multicast group {} is "
          "joined",
          group.job, who, at);
    case Why::not_heard:
      break;
  }
  return fmt::format(
      "job {}: results go to each worker by itself: of {} probes to the multicast group {} from each of the "
      "switch's threads, {} did not say that one of each has come",
      group.job, protocol::ResultGroup::kProbes, at, who);
}

}  // namespace talweg::live
