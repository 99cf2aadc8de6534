#include "live/aggregation/switch_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "wire/aggregation.h"

namespace talweg::live {

namespace {

template <class... Args>
wire::SwitchRefused refused(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...)};
}

// A worker waits for the others in each sum, but in empty ones: no more changes than these are between two.
constexpr std::size_t kMostSums = 8;

bool alike(const wire::SwitchSum& a, const wire::SwitchSum& b) {
  return a.count == b.count && a.format == b.format && a.sparse == b.sparse;
}

// As people say it: "2048 elements of f32, dense".
std::string words(const wire::SwitchSum& sum) {
  return fmt::format("{} elements of {}, {}", sum.count,
                     wire::name(static_cast<wire::AggregationFormat>(sum.format)),
                     sum.sparse ? "sparse" : "dense");
}

// The first sum that both have spoken of, or gone beyond, and that is not the same for both; 0: none.
std::uint32_t first_unlike(const SwitchJobs::Worker& a, const SwitchJobs::Worker& b) {
  std::uint32_t first = 0;
  for (const auto* const sums : {&a.sums, &b.sums})
    for (const wire::SwitchSum& spoken : *sums) {
      const wire::SwitchSum* const one = a.sum(spoken.sum);
      const wire::SwitchSum* const other = b.sum(spoken.sum);
      if (one == nullptr || other == nullptr || alike(*one, *other)) continue;
      if (first == 0 || spoken.sum < first) first = spoken.sum;
    }
  return first;
}

}  // namespace

const wire::SwitchSum* SwitchJobs::Worker::sum(std::uint32_t number) const {
  if (sums.empty() || sums.back().sum < number) return nullptr;
  const wire::SwitchSum* found = nullptr;
  for (const wire::SwitchSum& s : sums)
    if (s.sum <= number) found = &s;
  return found;
}

std::size_t SwitchJobs::Job::here() const {
  return static_cast<std::size_t>(
      std::count_if(workers.begin(), workers.end(), [](const Worker& w) { return w.seat.has_value(); }));
}

SwitchJobs::SwitchJobs(const SwitchQuotas& quotas, Hooks hooks) : quotas_(quotas), hooks_(std::move(hooks)) {}

std::size_t SwitchJobs::workers_promised() const {
  std::size_t n = 0;
  for (const auto& [name, job] : jobs_) n += job.workers.size();
  return n;
}

std::optional<wire::SwitchRefused> SwitchJobs::complaint(const wire::SwitchJoin& r) const {
  using enum ErrorCode;
  if (r.workers == 0 || r.worker >= r.workers)
    return refused(invalid_argument, "a job of {} workers has none of number {}: they count from 0",
                   r.workers, r.worker);
  if (r.racks == 0 || r.rack >= r.racks)
    return refused(invalid_argument, "a job at {} switches has none of number {}: they count from 0", r.racks,
                   r.rack);
  if (r.racks == 1 ? !r.is_rack() && r.in_all() != r.workers : r.in_all() <= r.workers)
    return refused(invalid_argument, "a job at {} switch{} has {} workers at this one and {} in all", r.racks,
                   r.racks == 1 ? "" : "es", r.workers, r.in_all());
  if (r.is_rack() && r.racks > 1)
    return refused(invalid_argument,
                   "rack {} of job {} says that this is one of {} switches below another one: there are two "
                   "levels and no more",
                   r.worker, r.job, r.racks);
  if (r.is_rack() && r.slots == 0)
    return refused(invalid_argument, "rack {} of job {} has no slots for it", r.worker, r.job);
  if (r.tolerant && (r.is_rack() || r.racks > 1))
    return refused(unsupported,
                   "job {}: nothing may be missing of sums that racks' switches make, below another", r.job);
  if (r.encrypted && !(hooks_.has_key && hooks_.has_key()))
    return refused(unsupported,
                   "job {}: its datagrams are to be encrypted, and this switch has no key: start it with one",
                   r.job);
  if (r.racks > 1 && !hooks_.climb)
    return refused(
        unsupported,
        "the workers of job {} are at {} switches, and this one has none above it, which would sum "
        "what they have summed: start it with --above",
        r.job, r.racks);
  const auto found = jobs_.find(r.job);
  if (found == jobs_.end()) {
    if (draining_) return refused(unsupported, "the switch is being drained: it takes no new job");
    if (jobs_.size() >= quotas_.jobs)
      return refused(unsupported, "the switch is busy: all {} jobs that it takes are there", quotas_.jobs);
    if (workers_promised() + r.workers > quotas_.workers)
      return refused(unsupported, "the switch is busy: it takes {} workers of all jobs, and has promised {}",
                     quotas_.workers, workers_promised());
    return std::nullopt;
  }
  const Job& job = found->second;
  if (r.is_rack() != job.first.is_rack())
    return refused(mismatch,
                   "job {} has both workers and other switches at this one: expected only one of them{}",
                   r.job, hooks_.climb ? "; is it, which has a switch above it, also above that one?" : "");
  if (r.workers != job.first.workers)
    return refused(mismatch, "job {} was announced with {} {}s, this one says {}", r.job, job.first.workers,
                   job.each(), r.workers);
  if (r.rack != job.first.rack || r.racks != job.first.racks || r.in_all() != job.first.in_all())
    return refused(
        mismatch,
        "{} {} of job {} says that this is switch {} of {} for {} workers, {} {} that it is switch {} "
        "of {} for {}",
        job.each(), r.worker, r.job, r.rack, r.racks, r.in_all(), job.each(), job.first.worker,
        job.first.rack, job.first.racks, job.first.in_all());
  if (job.opened)
    return refused(unsupported, "job {} is in use: its {} {}s are here", r.job, r.workers, job.each());
  if (job.workers[r.worker].seat)
    return refused(mismatch, "{} {} of job {} is here already", job.each(), r.worker, r.job);
  if (r.block != job.first.block)
    return refused(mismatch, "{} {} of job {} asks for blocks of {} elements, {} {} for {}", job.each(),
                   r.worker, r.job, r.block, job.each(), job.first.worker, job.first.block);
  if (r.ordered != job.first.ordered)
    return refused(mismatch, "{}s {} and {} of job {} disagree whether sums have an order", job.each(),
                   r.worker, job.first.worker, r.job);
  if (r.tolerant != job.first.tolerant)
    return refused(mismatch, "{}s {} and {} of job {} disagree whether a part of sums may be missing",
                   job.each(), r.worker, job.first.worker, r.job);
  if (r.encrypted != job.first.encrypted)
    return refused(mismatch, "{}s {} and {} of job {} disagree whether datagrams are encrypted", job.each(),
                   r.worker, job.first.worker, r.job);
  return std::nullopt;
}

void SwitchJobs::join(Seat seat, const wire::SwitchJoin& request) {
  if (seats_.contains(seat))
    return hooks_.say(seat, refused(ErrorCode::invalid_argument, "this connection has joined a job already"));
  if (const auto why = complaint(request)) return hooks_.say(seat, *why);
  Job& job = jobs_[request.job];
  if (job.workers.empty()) {
    job.name = request.job;
    job.first = request;
    job.workers.resize(request.workers);
  }
  job.workers[request.worker] = {seat, request, {}};
  seats_[seat] = {request.job, request.worker};
  if (job.here() == job.workers.size())
    complete(job);
  else
    say_waiting(job);
}

void SwitchJobs::complete(Job& job) {
  if (job.first.racks == 1) return open(job);
  if (const auto why = hooks_.climb(job)) end(job, *why);
}

void SwitchJobs::open(Job& job) {
  wire::SwitchOpened opened;
  if (const auto why = hooks_.open(job, opened)) return end(job, *why);
  job.opened = opened;
  ++opened_;
  say_all(job, opened);
  if (const auto group = hooks_.group ? hooks_.group(job) : std::nullopt) say_all(job, *group);
}

void SwitchJobs::hears(Seat seat, const wire::SwitchHears& how) {
  const auto place = seats_.find(seat);
  if (place == seats_.end() || !hooks_.hears) return;
  hooks_.hears(jobs_.at(place->second.job), place->second.worker, how);
}

void SwitchJobs::sum(Seat seat, const wire::SwitchSum& sum) {
  const auto place = seats_.find(seat);
  if (place == seats_.end()) return;
  Job& job = jobs_.at(place->second.job);
  const std::uint16_t number = place->second.worker;
  Worker& worker = job.workers[number];
  if (!worker.sums.empty() && sum.sum <= worker.sums.back().sum) return;  // said already
  if (worker.sums.size() == kMostSums) worker.sums.erase(worker.sums.begin());
  worker.sums.push_back(sum);
  for (std::size_t w = 0; w < job.workers.size(); ++w)
    if (const std::uint32_t unlike = first_unlike(worker, job.workers[w]); unlike != 0)
      return end(
          job, refused(ErrorCode::mismatch, "sum {}: {} {} has {}, {} {} has {}", unlike, job.each(), number,
                       words(*worker.sum(unlike)), job.each(), w, words(*job.workers[w].sum(unlike))));
  if (job.above) hooks_.say_above(job, sum);
}

void SwitchJobs::give_up(Seat seat, const wire::SwitchGiveUp& how) {
  const auto place = seats_.find(seat);
  if (place == seats_.end()) return;
  Job& job = jobs_.at(place->second.job);
  const std::uint16_t worker = place->second.worker;
  job.workers[worker].seat.reset();
  seats_.erase(place);
  const bool by_choice = how.code == ErrorCode::mismatch || how.code == ErrorCode::aborted;
  end(job, refused(by_choice ? how.code : ErrorCode::peer_failed, "{} {} of job {} has given up: {}",
                   job.each(), worker, job.name, printable(how.why)));
}

void SwitchJobs::leave(Seat seat, const wire::SwitchLeave& how) {
  const auto place = seats_.find(seat);
  if (place == seats_.end()) return;
  Job& job = jobs_.at(place->second.job);
  const std::uint16_t worker = place->second.worker;
  if (!job.opened) return gone(seat, "it has left");
  job.workers[worker].seat.reset();
  seats_.erase(place);
  if (job.above) {
    hooks_.say_above(job, how);
    hooks_.descend(job);
  }
  if (job.here() > 0) return say_all(job, wire::SwitchLeft{worker, how.sums, job.first.is_rack()});
  hooks_.close(*job.opened);
  jobs_.erase(std::string(job.name));
}

void SwitchJobs::gone(Seat seat, const std::string& why) {
  const auto place = seats_.find(seat);
  if (place == seats_.end()) return;
  Job& job = jobs_.at(place->second.job);
  const std::uint16_t worker = place->second.worker;
  job.workers[worker].seat.reset();
  seats_.erase(place);
  if (job.opened)
    return end(job, refused(ErrorCode::peer_failed, "{} {} of job {} is gone: {}", job.each(), worker,
                            job.name, why));
  if (job.first.racks > 1) hooks_.descend(job);
  if (job.here() > 0) return say_waiting(job);
  jobs_.erase(std::string(job.name));
}

void SwitchJobs::above(const std::string& name, const wire::SwitchMessage& message, const std::string& whom) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (const auto* const opened = std::get_if<wire::SwitchOpened>(&message); opened != nullptr && !job.above) {
    job.above = *opened;
    open(job);
  } else if (const auto* const why = std::get_if<wire::SwitchRefused>(&message)) {
    hooks_.descend(job);  // it knows
    end(job, refused(why->code, "{}: {}", whom, printable(why->reason)));
  } else if (std::holds_alternative<wire::SwitchWaiting>(message) ||
             std::holds_alternative<wire::SwitchLeft>(message)) {
    say_all(job, message);
  }
}

void SwitchJobs::drain() {
  draining_ = true;
  std::vector<Job*> incomplete;
  for (auto& [name, job] : jobs_)
    if (!job.opened) incomplete.push_back(&job);
  for (Job* job : incomplete)
    end(*job, refused(ErrorCode::unsupported, "the switch is being drained: it takes no new job"));
}

void SwitchJobs::stop() {
  draining_ = true;
  while (!jobs_.empty())
    end(jobs_.begin()->second, refused(ErrorCode::peer_failed, "the switch has been stopped"));
}

void SwitchJobs::end(Job& job, const wire::SwitchRefused& why) {
  say_all(job, why);
  if (job.above) hooks_.say_above(job, wire::SwitchGiveUp{why.code, why.reason});
  if (job.first.racks > 1) hooks_.descend(job);
  for (const Worker& worker : job.workers)
    if (worker.seat) seats_.erase(*worker.seat);
  if (job.opened) {
    ++failed_;
    hooks_.close(*job.opened);
  }
  jobs_.erase(std::string(job.name));
}

void SwitchJobs::say_all(const Job& job, const wire::SwitchMessage& message) const {
  for (const Worker& worker : job.workers)
    if (worker.seat) hooks_.say(*worker.seat, message);
}

void SwitchJobs::say_waiting(const Job& job) const {
  wire::SwitchWaiting waiting;
  waiting.racks = job.first.is_rack();
  for (std::size_t w = 0; w < job.workers.size(); ++w) {
    if (job.workers[w].seat) continue;
    ++waiting.missing;
    if (waiting.workers.size() < wire::kMaxNamedWorkers)
      waiting.workers.push_back(static_cast<std::uint16_t>(w));
  }
  say_all(job, waiting);
}

}  // namespace talweg::live
