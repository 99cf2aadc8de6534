// SwitchJobs: who has joined which job of a switch, and what each is to be told. A pure object: what opens
// and closes slots, and what says things, is given to it.
//
//   jobs.join(seat, request);        // seats are numbers that the driver gives to connections
//   jobs.sum(seat, which); jobs.leave(seat, how); jobs.give_up(seat, why);
//   jobs.gone(seat);                 // its connection has ended, with or without leave() before
//
// A job opens when all of its workers are here. It ends when the last one has left, or when one goes without
// having said so: then the others are told who, and the name is free for whoever comes next. It also ends
// when two workers turn out not to mean the same sums, one of which may have gone on or left meanwhile.
//
// A job whose workers are at several switches has one above this one, which is joined when all workers of
// this one are here; what that one says is passed on to them: jobs.above(name, message). It is left when a
// worker leaves: who does has the results of all its sums, so this switch has them too, and no further one
// can end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/switch_message.h"

namespace talweg::live {

struct SwitchQuotas {
  std::size_t jobs = 16;
  std::size_t workers = 1024;        // of all jobs
  std::size_t slots = 256;           // that a job gets of each thread, at most
  double bytes_per_second = 12.5e9;  // of datagrams from workers: of each job, in the long run
  // Of results to the workers of each job together, beyond which they wait; 0: as they come.
  double result_bytes_per_second = 0;
};

class SwitchJobs {
 public:
  using Seat = std::uint64_t;
  struct Worker {
    std::optional<Seat> seat;
    wire::SwitchJoin asked = {};
    std::vector<wire::SwitchSum> sums;  // that it has spoken of, the last few
    // What its sum of this number is: that which it has spoken of last before. Null: it has not come so far,
    // or it is too long ago.
    const wire::SwitchSum* sum(std::uint32_t number) const;
  };
  struct Job {
    std::string name;
    wire::SwitchJoin first;  // what the first worker has asked for
    std::vector<Worker> workers;
    std::optional<wire::SwitchOpened> opened;
    std::optional<wire::SwitchOpened> above = {};  // by the switch above, of which this is a part there
    std::size_t here() const;
    const char* each() const { return first.is_rack() ? "rack" : "worker"; }  // what its workers are
  };
  struct Hooks {
    std::function<void(Seat, const wire::SwitchMessage&)> say;
    // Opens it on all threads and fills in what its workers are told; or why not.
    std::function<std::optional<wire::SwitchRefused>(const Job&, wire::SwitchOpened&)> open;
    std::function<void(const wire::SwitchOpened&)> close;
    std::function<bool()> has_key = {};  // without one nothing is encrypted; empty: there is none
    // These are empty where there is no switch above. Begins to join that one, for a job whose workers are
    // all here; or why not.
    std::function<std::optional<wire::SwitchRefused>(const Job&)> climb = {};
    std::function<void(const Job&, const wire::SwitchMessage&)> say_above = {};
    std::function<void(const Job&)> descend = {};  // ends that connection, if there is one
    // Empty where there is no multicast. Of a job that has opened: its group, if it has one; and what a
    // worker says of it.
    std::function<std::optional<wire::SwitchGroup>(const Job&)> group = {};
    std::function<void(const Job&, std::uint16_t worker, const wire::SwitchHears&)> hears = {};
  };

  SwitchJobs(const SwitchQuotas& quotas, Hooks hooks);

  void join(Seat seat, const wire::SwitchJoin& request);
  void sum(Seat seat, const wire::SwitchSum& sum);
  void hears(Seat seat, const wire::SwitchHears& how);
  void leave(Seat seat, const wire::SwitchLeave& how);
  void give_up(Seat seat, const wire::SwitchGiveUp& how);
  void gone(Seat seat, const std::string& why);
  // From the switch above, of which `whom` is what it is called in texts.
  void above(const std::string& job, const wire::SwitchMessage& message, const std::string& whom);
  // No new jobs from now on; those that are not complete end.
  void drain();
  bool draining() const { return draining_; }
  // All jobs end, and their workers are told that.
  void stop();

  const std::map<std::string, Job>& jobs() const { return jobs_; }
  bool is_seated(Seat seat) const { return seats_.contains(seat); }
  std::uint64_t opened() const { return opened_; }  // so far
  std::uint64_t failed() const { return failed_; }  // of these, ended by other than leaving

 private:
  struct Place {
    std::string job;
    std::uint16_t worker = 0;
  };
  std::optional<wire::SwitchRefused> complaint(const wire::SwitchJoin& request) const;
  void complete(Job& job);
  void open(Job& job);
  void end(Job& job, const wire::SwitchRefused& why);
  void say_all(const Job& job, const wire::SwitchMessage& message) const;
  void say_waiting(const Job& job) const;
  std::size_t workers_promised() const;

  const SwitchQuotas quotas_;
  const Hooks hooks_;
  std::map<std::string, Job> jobs_;
  std::map<Seat, Place> seats_;
  bool draining_ = false;
  std::uint64_t opened_ = 0, failed_ = 0;
};

}  // namespace talweg::live
