// SwitchGroups: the multicast groups that a switch has for its jobs, one each: an address and a port of its
// own, so that hosts whose workers are of another job do not get its results. What becomes of each is decided
// in protocol/aggregation/result_group.h.
//
//   SwitchGroups groups(first_group(options, listen, jobs), jobs, hooks);
//   if (const auto offer = groups.open(job, now_ns)) tell its workers;      // it has opened
//   groups.says(job, worker, word, now_ns);
//   if (now_ns >= groups.next_time_ns()) groups.on_time(now_ns);
//   groups.close(number);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "live/aggregation/switch_jobs.h"
#include "live/aggregation/switch_thread.h"
#include "live/system.h"
#include "live/udp/udp_socket.h"
#include "protocol/aggregation/result_group.h"
#include "wire/switch_message.h"

namespace talweg::live {

struct SwitchMulticastOptions {
  std::string group;  // of the first job, an IPv4 address; those of the others are behind it
  int hops = 1;       // 1: this network alone
};

// Ports of groups: beyond those that systems give to whoever asks for any.
inline constexpr std::uint16_t kFirstGroupPort = 61'000;
inline constexpr std::size_t kMostGroups = 4096;

// The first of so many. Throws Error{invalid_argument} where they are no groups, or a switch that listens at
// this address cannot send there.
UdpAddress first_group(const SwitchMulticastOptions& options, const Endpoint& listen, std::size_t jobs);

class SwitchGroups {
 public:
  struct Hooks {
    // The threads of the job with this number: where its group is, and what the way there takes; send probes
    // there; send results there, or to each worker.
    std::function<SwitchThread::GroupPath(std::uint32_t job, const UdpAddress& group)> set_group;
    std::function<void(std::uint32_t job, std::uint32_t attempt)> probe;
    std::function<void(std::uint32_t job, bool by_group)> send_by_group;
    // For people, a line for each time that results go another way than before or for another reason, and
    // why; empty: nobody.
    std::function<void(const std::string&)> say;
  };
  // `most`: kMostGroups at most.
  SwitchGroups(const UdpAddress& first, std::size_t most, Hooks hooks);

  // Of a job that has opened, if there is one for it: not where some of its workers cannot be sent to by one,
  // as they are racks' switches or of an earlier version, nor where there is one worker alone, nor where its
  // largest result is longer than the way to the group takes.
  std::optional<wire::SwitchGroup> open(const SwitchJobs::Job& job, std::int64_t now_ns);
  void says(const SwitchJobs::Job& job, std::uint16_t worker, const wire::SwitchHears& word,
            std::int64_t now_ns);
  void close(std::uint32_t job);
  void on_time(std::int64_t now_ns);
  std::int64_t next_time_ns() const;
  bool by_group(std::uint32_t job) const;

  // "239.1.2.0 to 239.1.2.15, UDP ports 61000 to 61015"
  std::string describe() const;

 private:
  struct Group {
    std::size_t place;  // among all
    std::string job;
    protocol::ResultGroup results;
    bool used = false;                                    // the threads have been told to
    std::optional<protocol::ResultGroup::Why> said = {};  // people: why it is not
  };
  UdpAddress at(std::size_t place) const;
  void look(std::uint32_t job, Group& group);
  void say_narrow(const std::string& job, const SwitchThread::GroupPath& path, std::size_t place);
  std::string why_off(const Group& group) const;

  const UdpAddress first_;
  const std::size_t most_;
  const Hooks hooks_;
  std::map<std::uint32_t, Group> groups_;  // by the job's number
  // By jobs' names: of which it was said that the way is too narrow, and for which packets. A job may be
  // joined again and again.
  std::map<std::string, std::pair<std::size_t, std::size_t>> narrow_;
};

}  // namespace talweg::live
