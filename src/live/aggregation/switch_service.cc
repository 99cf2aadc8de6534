#include "live/aggregation/switch_service.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "live/join/interface.h"
#include "wire/aggregation.h"

namespace talweg::live {

namespace {

constexpr int kMostThreads = 64;
// A worker's number and a thread's are both senders in datagrams, of 16 bits.
constexpr std::size_t kMostWorkers = 65'000;
constexpr std::int64_t kTickNs = 500 * kMillisecondNs;
// Who has proved itself and then says nothing.
constexpr std::int64_t kSpeechlessNs = 10'000 * kMillisecondNs;
// Of what is said to one that does not read it: a job's worth of notices, many times over.
constexpr std::size_t kMostUnread = std::size_t{64} << 10;
// Of those who have asked for a text, which may be as long as texts can be; so many at a time.
constexpr std::size_t kMostTexts = 16;
constexpr std::size_t kSpareGuests = 64;  // besides workers: operators, and those that are on their way out

bool same_user(const FileDescriptor& socket) {
  const auto user = user_at(socket);
  return user && (*user == 0 || *user == ::geteuid());
}

// Slots know a job by a number that only this switch knows.
std::string named(const std::string& text, std::uint32_t number, const std::string& name) {
  const std::string prefix = fmt::format("job {}", number);
  return text.starts_with(prefix) ? "job " + name + text.substr(prefix.size()) : text;
}

// No more than so many bytes, and whole lines; that some are missing is said in the last one.
std::string whole_lines(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  constexpr std::string_view kCut = "# The rest does not fit into an answer.\n";
  const std::size_t end = text.rfind('\n', most - kCut.size() - 1);
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text.append(kCut);
}

const SwitchServiceOptions& checked(const SwitchServiceOptions& o) {
  if (o.threads < 1 || o.threads > kMostThreads)
    refuse("a switch has 1 to {} threads, not {}", kMostThreads, o.threads);
  if (o.listen.port != 0 && o.listen.port + o.threads - 1 > 0xffff)
    refuse("{} threads have as many UDP ports from {} on, and there are none behind 65535", o.threads,
           o.listen.port);
  if (o.quotas.jobs < 1 || o.quotas.workers < 1 || o.quotas.workers > kMostWorkers || o.quotas.slots < 1 ||
      o.quotas.slots > 0xffff)
    refuse("a switch takes at least 1 job, 1 to {} workers and 1 to 65535 slots, not {}, {} and {}",
           kMostWorkers, o.quotas.jobs, o.quotas.workers, o.quotas.slots);
  if (o.quotas.result_bytes_per_second != 0 && !(o.quotas.result_bytes_per_second >= kLeastRate))
    refuse("a switch gives results a rate of at least {:.0f} kbit/s, or none", kLeastRate * 8 / 1000);
  if (!(o.quotas.bytes_per_second >= kLeastRate))
    refuse("a switch gives its jobs a rate of at least {:.0f} kbit/s", kLeastRate * 8 / 1000);
  protocol::JobTerms least;
  least.workers = least.slots = 1;
  least.block = protocol::kUsualBlock;
  const std::size_t needed = protocol::memory_of(least).total * static_cast<std::size_t>(o.threads);
  if (o.memory_bytes < needed)
    refuse(
        "a switch of {} thread{} lends at least {} bytes to slots, which is one of one column for one job: "
        "not {}",
        o.threads, o.threads == 1 ? "" : "s", needed, o.memory_bytes);
  return o;
}

}  // namespace

SwitchService::SwitchService(const SwitchServiceOptions& options)
    : options_(checked(options)),
      address_(options.listen),
      wake_(check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "creating an eventfd")),
      wake_above_(check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "creating an eventfd")),
      jobs_(options.quotas, hooks()) {
  if (options_.key)
    if (const auto key = options_.key()) {
      key_ = *key;
      has_key_ = true;
    }
  if (options_.result_rates) result_rates_ = options_.result_rates();
  address_.host = resolve_host(address_.host);
  if (options_.above) set_above();
  if (options_.multicast) set_groups();
  if (!has_key_ && !is_loopback(address_.host))
    refuse(
        "switch at {}: will not listen where others can reach it without a job key: give it one in "
        "TALWEG_KEY, "
        "or in a file of mode 600 named by TALWEG_KEY_FILE or --key-file, and its workers the same one",
        to_string(address_));
  gate_ = std::make_unique<Gate>(
      key_, [](const wire::Introduction& i) { return i.purpose == wire::Purpose::aggregation && i.encrypt; },
      Logger(-1));
  wire::fill_random(std::as_writable_bytes(std::span(&next_job_, 1)));
  listen();
  if (options_.switchml) switchml_ = std::make_unique<SwitchmlPort>(*options_.switchml);
}

SwitchService::~SwitchService() = default;

// The port is the same for TCP and for the first thread's datagrams; where any will do, one is looked for
// that is free for both.
void SwitchService::listen() {
  SwitchThreadOptions o;
  const auto threads = static_cast<std::size_t>(options_.threads);
  o.limits.memory_bytes = options_.memory_bytes / threads;
  o.limits.jobs = options_.quotas.jobs;
  o.limits.bytes_per_second =
      options_.quotas.bytes_per_second * static_cast<double>(options_.quotas.jobs + 1);
  o.has_key = has_key_;
  o.socket = options_.socket;
  if (options_.above) o.local_above = address_toward(address_above_.host) + ":0";
  if (options_.multicast) o.multicast_hops = options_.multicast->hops;
  o.send = options_.send;
  o.receive = options_.receive;
  constexpr int kTries = 32;
  for (int tries = 1;; ++tries) {
    FileDescriptor tcp = listen_tcp(address_);
    const Endpoint bound = local_endpoint(tcp);
    try {
      if (bound.port + options_.threads - 1 > 0xffff) refuse("no ports behind {}", bound.port);
      for (int t = 0; t < options_.threads; ++t)
        threads_.push_back(
            std::make_unique<SwitchThread>(UdpAddress(fmt::format("{}:{}", bound.host, bound.port + t)), o));
    } catch (const Error&) {
      threads_.clear();
      if (options_.listen.port != 0 || tries == kTries) throw;
      continue;
    }
    address_.port = bound.port;
    gate_->listen(std::move(tcp));
    gate_->listen(listen_unix(switch_control_name(bound)), true);
    return;
  }
}

std::string SwitchService::memory() const {
  const std::size_t fixed = SwitchThread::fixed_bytes(options_.socket, options_.above.has_value()) +
                            options_.quotas.jobs * SlotMemory::page();
  const std::size_t each = SwitchThread::bytes_per_worker();
  const auto threads = static_cast<std::size_t>(options_.threads);
  const std::size_t workers = options_.quotas.workers;
  constexpr std::size_t kGuest = sizeof(Guest) + kMostUnread + wire::kMaxSwitchRequest + 4096;
  constexpr std::size_t kGate = 1024 * kMaxHalfOpen;
  const std::size_t switchml =
      options_.switchml ? SwitchmlPort::fixed_bytes(*options_.switchml) + options_.switchml->memory_bytes : 0;
  const std::size_t above = options_.above ? 2 * options_.quotas.jobs * SwitchUplink::kBytes : 0;
  const std::size_t all = above + switchml + threads * (fixed + workers * each) + options_.memory_bytes +
                          (workers + kSpareGuests) * kGuest + kMostTexts * wire::kMaxSwitchText + kGate;
  return fmt::format(
      "at most {:.1f} MiB: {} threads x ({:.1f} MiB of buffers + {} workers x {} bytes) + {:.1f} MiB of "
      "slots + {} connections x {:.1f} KiB + {} KiB of answers to orders + {} KiB for those that prove "
      "themselves{}{}",
      static_cast<double>(all) / (1 << 20), threads, static_cast<double>(fixed) / (1 << 20), workers, each,
      static_cast<double>(options_.memory_bytes) / (1 << 20), workers + kSpareGuests,
      static_cast<double>(kGuest) / 1024, kMostTexts * wire::kMaxSwitchText / 1024, kGate / 1024,
      above > 0 ? fmt::format(" + 2 x {} jobs x {} KiB for the switch above", options_.quotas.jobs,
                              SwitchUplink::kBytes / 1024)
                : "",
      switchml > 0
          ? fmt::format(" + {:.1f} MiB for SwitchML's workers", static_cast<double>(switchml) / (1 << 20))
          : "");
}

void SwitchService::set_above() {
  const SwitchAboveOptions& above = *options_.above;
  address_above_ = {resolve_host(above.address.host), above.address.port};
  above_name_ = "the switch above, " + to_string(address_above_);
  if (address_above_.port == address_.port &&
      (address_above_.host == address_.host || (address_.host == kAnyAddress && is_own(address_above_.host))))
    refuse("--above: a switch is not above itself: {}", to_string(address_above_));
  const auto key = above.key ? above.key() : has_key_ ? std::optional(key_) : std::nullopt;
  if (!key && !is_loopback(address_above_.host))
    refuse(
        "--above: a switch that is not on loopback has a key: give that of {} in --above-key-file, or both "
        "the "
        "same one",
        to_string(address_above_));
  key_above_ = key.value_or(wire::Secret{});
}

void SwitchService::set_groups() {
  const auto all = [this](const auto& what) {
    for (const auto& thread : threads_) what(*thread);
  };
  SwitchGroups::Hooks hooks;
  hooks.set_group = [all](std::uint32_t job, const UdpAddress& group) {
    SwitchThread::GroupPath path;  // the same for all of them
    all([&](SwitchThread& thread) { path = thread.set_group(job, group); });
    return path;
  };
  hooks.probe = [all](std::uint32_t job, std::uint32_t attempt) {
    all([&](SwitchThread& thread) { thread.probe(job, attempt); });
  };
  hooks.send_by_group = [all](std::uint32_t job, bool by_group) {
    all([&](SwitchThread& thread) { thread.send_by_group(job, by_group); });
  };
  hooks.say = options_.say;
  groups_.emplace(first_group(*options_.multicast, address_, options_.quotas.jobs), options_.quotas.jobs,
                  std::move(hooks));
}

SwitchJobs::Hooks SwitchService::hooks() {
  using Job = SwitchJobs::Job;
  SwitchJobs::Hooks hooks{[this](Seat seat, const wire::SwitchMessage& m) { say(seat, m); },
                          [this](const Job& job, wire::SwitchOpened& opened) { return open(job, opened); },
                          [this](const wire::SwitchOpened& opened) { close(opened); }};
  hooks.has_key = [this] { return has_key_; };
  if (options_.multicast) {
    hooks.group = [this](const Job& job) { return groups_->open(job, now_ns()); };
    hooks.hears = [this](const Job& job, std::uint16_t worker, const wire::SwitchHears& word) {
      groups_->says(job, worker, word, now_ns());
    };
  }
  if (!options_.above) return hooks;
  hooks.climb = [this](const Job& job) { return climb(job); };
  hooks.say_above = [this](const Job& job, const wire::SwitchMessage& m) { say_above(job, m); };
  hooks.descend = [this](const Job& job) { descend(job); };
  return hooks;
}

// Those whose threads have not ended yet.
std::size_t SwitchService::uplinks_left() {
  std::erase_if(parted_, [](const auto& uplink) { return uplink->may_end(); });
  return parted_.size();
}

// The switch above lends no more than this one has for the job, so that what it opens can be opened here.
std::optional<wire::SwitchRefused> SwitchService::climb(const SwitchJobs::Job& job) {
  if (uplinks_left() >= options_.quotas.jobs)
    return wire::SwitchRefused{ErrorCode::unsupported,
                               "the switch is busy: it still ends connections to the switch above"};
  const UdpSocket& socket = *threads_.front()->socket_above();
  const std::size_t mtu = socket.path_mtu(UdpAddress(to_string(address_above_)));
  Offer offer = offer_to(job);
  offer.payload =
      std::min(offer.payload, wire::datagram_payload(mtu, false, wire::DatagramProtection::authenticated));
  Cut cut;
  if (auto refused = this->cut(job, offer, cut)) return refused;
  wire::SwitchJoin request = job.first;
  request.worker = job.first.rack;
  request.workers = job.first.racks;
  request.rack = 0;
  request.racks = 1;
  request.payload = static_cast<std::uint16_t>(offer.payload);
  request.window = static_cast<std::uint32_t>(socket.window());
  request.all = job.first.in_all();
  request.threads = static_cast<std::uint16_t>(cut.threads);
  request.slots = static_cast<std::uint16_t>(cut.slots);
  try {
    uplinks_[job.name] = std::make_unique<SwitchUplink>(address_above_, key_above_, request, wake_above_);
  } catch (const std::system_error& e) {
    return wire::SwitchRefused{ErrorCode::system,
                               std::string("no thread to join the switch above: ") + e.what()};
  }
  return std::nullopt;
}

void SwitchService::say_above(const SwitchJobs::Job& job, const wire::SwitchMessage& message) {
  if (const auto found = uplinks_.find(job.name); found != uplinks_.end()) found->second->say(message);
}

void SwitchService::descend(const SwitchJobs::Job& job) {
  const auto found = uplinks_.find(job.name);
  if (found == uplinks_.end()) return;
  found->second->part();
  parted_.push_back(std::move(found->second));
  uplinks_.erase(found);
}

void SwitchService::hear_above() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto n = ::read(wake_above_.get(), &count, sizeof count);
  std::vector<std::pair<std::string, wire::SwitchMessage>> heard;
  for (const auto& [job, uplink] : uplinks_)
    for (wire::SwitchMessage& message : uplink->hear()) heard.emplace_back(job, std::move(message));
  for (auto& [job, message] : heard) {
    if (const auto* const opened = std::get_if<wire::SwitchOpened>(&message))
      if (const auto uplink = uplinks_.find(job);
          uplink != uplinks_.end() && !uplink->second->may_open(*opened))
        message = wire::SwitchRefused{ErrorCode::corrupted, "it offers what cannot be"};
    jobs_.above(job, message, above_name_);
  }
}

void SwitchService::stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

void SwitchService::serve(const FileDescriptor& signals) {
  std::vector<pollfd> polled;
  std::vector<Seat> seats;
  constexpr std::size_t kFirst = 4;
  while (!stop_ && !(jobs_.draining() && jobs_.jobs().empty())) {
    polled = {{wake_.get(), POLLIN, 0},
              {gate_->fd().get(), POLLIN, 0},
              {signals ? signals.get() : -1, POLLIN, 0},
              {wake_above_.get(), POLLIN, 0}};
    seats.clear();
    for (const auto& [seat, guest] : guests_) {
      // Who is leaving is not heard any more: what it says would be there for ever.
      const int reads = guest.leaving ? 0 : POLLIN;
      const int writes = guest.line.unsent() > 0 ? POLLOUT : 0;
      polled.push_back({guest.line.socket().get(), static_cast<short>(reads | writes), 0});
      seats.push_back(seat);
    }
    for (const auto& [job, uplink] : uplinks_)
      polled.push_back({uplink->fd(), static_cast<short>(POLLIN | (uplink->writes() ? POLLOUT : 0)), 0});
    const std::int64_t probes_ns = groups_ ? groups_->next_time_ns() : tick_ns_;
    const std::int64_t left =
        std::min({gate_->next_ns(), tick_ns_, probes_ns, now_ns() + kTickNs}) - now_ns();
    ::poll(polled.data(), polled.size(),
           static_cast<int>(std::max<std::int64_t>(left / kMillisecondNs + 1, 0)));
    if (polled[0].revents != 0 || (polled[2].revents != 0 && on_signals(signals))) stop_ = true;
    for (std::size_t i = 0; i < seats.size(); ++i)
      if (const auto guest = guests_.find(seats[i]);
          polled[i + kFirst].revents != 0 && guest != guests_.end())
        if (!guest->second.leaving) hear(guest->first, guest->second);
    hear_above();
    const std::int64_t now = now_ns();
    let_in(now);
    if (now >= tick_ns_) tick(now);
    if (groups_) groups_->on_time(now);
    sweep();
  }
  jobs_.stop();
  sweep();
  if (options_.publish) options_.publish(options_.describe(status()));
  guests_.clear();
  uplinks_.clear();
  parted_.clear();
  gate_.reset();  // nobody is to wait at a door behind which there is nobody
}

bool SwitchService::on_signals(const FileDescriptor& signals) {
  signalfd_siginfo info;
  bool stop = false;
  while (::read(signals.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGHUP) {
      if (const std::string why = reload(); !why.empty() && options_.say) options_.say(why);
    } else {
      stop = stop || jobs_.draining() || info.ssi_signo != SIGTERM;
      jobs_.drain();
    }
  }
  return stop;
}

void SwitchService::let_in(std::int64_t now_ns) {
  for (Visitor& v : gate_->step(now_ns)) {
    if (guests_.size() >= options_.quotas.workers + kSpareGuests) continue;
    const bool may_order = v.local && same_user(v.socket);
    if (!v.local) tune_tcp(v.socket);
    const wire::CipherKind cipher = v.secrets.cipher;
    const bool tcp = !v.local;
    guests_.emplace(next_seat_++, Guest{SwitchLine(std::move(v), wire::kMaxSwitchRequest),
                                        now_ns,
                                        0,
                                        may_order,
                                        false,
                                        false,
                                        tcp,
                                        cipher,
                                        {}});
  }
}

void SwitchService::hear(Seat seat, Guest& guest) {
  const bool open = guest.line.receive();
  while (!guest.leaving) {
    const auto message = guest.line.next();
    if (!message) break;
    if (const auto* const join = std::get_if<wire::SwitchJoin>(&*message))
      jobs_.join(seat, *join);
    else if (const auto* const sum = std::get_if<wire::SwitchSum>(&*message))
      jobs_.sum(seat, *sum);
    else if (const auto* const hears = std::get_if<wire::SwitchHears>(&*message))
      jobs_.hears(seat, *hears);
    else if (const auto* const leave = std::get_if<wire::SwitchLeave>(&*message))
      jobs_.leave(seat, *leave);
    else if (const auto* const failed = std::get_if<wire::SwitchGiveUp>(&*message))
      jobs_.give_up(seat, *failed);
    else if (const auto* const order = std::get_if<wire::SwitchOrder>(&*message))
      obey(guest, order->what);
    else
      guest.leaving = true;
  }
  if (guest.line.broken()) {
    jobs_.gone(seat, "it does not keep to the protocol");
    guest.leaving = true;
  }
  if (open) return;
  jobs_.gone(seat, "its connection has ended");
  guest.line.close();
}

void SwitchService::obey(Guest& guest, wire::SwitchDo order) {
  if (!guest.may_order) {
    guest.line.say(wire::SwitchRefused{ErrorCode::unsupported,
                                       "orders are taken on its own host, from its own user or root"});
  } else if (order == wire::SwitchDo::status) {
    const auto asked =
        std::count_if(guests_.begin(), guests_.end(), [](const auto& g) { return g.second.reads_text; });
    if (static_cast<std::size_t>(asked) >= kMostTexts) {
      guest.line.say(wire::SwitchRefused{ErrorCode::unsupported, "too many ask at the same time"});
    } else {
      guest.reads_text = true;
      guest.line.say(wire::SwitchText{
          whole_lines(options_.describe ? options_.describe(status()) : "", wire::kMaxSwitchText)});
    }
  } else if (order == wire::SwitchDo::drain) {
    jobs_.drain();
    guest.line.say(wire::SwitchText{fmt::format("draining: {} jobs are still there", jobs_.jobs().size())});
  } else if (const std::string why = reload(); why.empty()) {
    guest.line.say(wire::SwitchText{what_is_read()});
  } else {
    guest.line.say(wire::SwitchRefused{ErrorCode::invalid_argument, why});
  }
  guest.leaving = true;
}

void SwitchService::tick(std::int64_t now_ns) {
  tick_ns_ = now_ns + kTickNs;
  for (auto& [seat, guest] : guests_) {
    if (guest.leaving) {
      if (guest.leaving_ns == 0) guest.leaving_ns = now_ns;
      if (now_ns - guest.leaving_ns > kSpeechlessNs) guest.line.close();  // it does not read
    } else if (!jobs_.is_seated(seat)) {
      guest.leaving = guest.leaving || now_ns - guest.since_ns > kSpeechlessNs;
    } else if (guest.tcp && guest.pulse.lost(guest.line.socket().get(), 0, options_.host_timeout_ns)) {
      jobs_.gone(seat, "its host does not answer any more");
      guest.line.close();
    }
  }
  uplinks_left();
  if (!options_.publish || now_ns < publish_ns_) return;
  publish_ns_ = now_ns + options_.publish_every_ns;
  options_.publish(options_.describe(status()));
}

// Sends what waits, and lets go whom nothing more is to be said to.
void SwitchService::sweep() {
  std::vector<Seat> lost;
  for (auto& [seat, guest] : guests_) {
    if (!guest.line.socket()) continue;
    const std::size_t most = kMostUnread + (guest.reads_text ? wire::kMaxSwitchText : 0);
    if (!guest.line.flush() || guest.line.unsent() > most) lost.push_back(seat);
  }
  for (const Seat seat : lost) {
    guests_.at(seat).line.close();
    jobs_.gone(seat, "its connection has ended");
  }
  for (auto entry = guests_.begin(); entry != guests_.end();) {
    const Guest& guest = entry->second;
    const bool over = !guest.line.socket() || (guest.leaving && guest.line.unsent() == 0);
    if (over) jobs_.gone(entry->first, "its connection has ended");
    entry = over ? guests_.erase(entry) : std::next(entry);
  }
}

void SwitchService::say(Seat seat, const wire::SwitchMessage& message) {
  const auto guest = guests_.find(seat);
  if (guest == guests_.end() || !guest->second.line.socket()) return;
  guest->second.line.say(message);
  if (std::holds_alternative<wire::SwitchRefused>(message)) guest->second.leaving = true;
}

SwitchService::Offer SwitchService::offer_to(const SwitchJobs::Job& job) const {
  Offer offer;
  offer.slots = options_.quotas.slots;
  offer.threads = threads_.size();
  for (const SwitchJobs::Worker& worker : job.workers) {
    const wire::SwitchJoin& asked = worker.asked;
    offer.payload = std::min<std::size_t>(offer.payload, asked.payload);
    offer.window = std::min<std::size_t>(offer.window, asked.window);
    if (asked.is_rack()) {
      offer.slots = std::min<std::size_t>(offer.slots, asked.slots);
      offer.threads = std::min<std::size_t>(offer.threads, asked.threads);
    }
    if (guests_.at(*worker.seat).cipher != offer.cipher) offer.cipher = wire::CipherKind::chacha20_poly1305;
  }
  return offer;
}

std::optional<wire::SwitchRefused> SwitchService::cut(const SwitchJobs::Job& job, const Offer& offer,
                                                      Cut& cut) const {
  const auto shape = protocol::shape_of_blocks(offer.payload, job.first.block, job.first.tolerant);
  if (!shape)
    return wire::SwitchRefused{
        ErrorCode::invalid_argument,
        fmt::format(
            "a block of {} elements does not fit into a datagram of {} bytes, the largest on the way to "
            "all workers",
            job.first.block, offer.payload)};
  cut.shape = *shape;
  cut.threads = offer.threads;
  cut.slots =
      protocol::slots_that_fit(offer.window, threads_.front()->socket().window(), job.workers.size(),
                               offer.threads, shape->payload + bytes_around(protection()), offer.slots);
  return std::nullopt;
}

wire::DatagramProtection SwitchService::protection() const {
  return has_key_ ? wire::DatagramProtection::authenticated : wire::DatagramProtection::checksum;
}

std::optional<wire::SwitchRefused> SwitchService::open(const SwitchJobs::Job& job,
                                                       wire::SwitchOpened& opened) {
  const Offer offer = offer_to(job);
  Cut cut;
  if (job.above)  // as was asked for, or less: it was looked at when it came
    cut = {{job.above->block, job.above->columns,
            wire::aggregation_payload(job.above->columns, job.above->block, 4)},
           job.above->slots,
           job.above->threads};
  else if (auto refused = this->cut(job, offer, cut))
    return refused;

  protocol::JobTerms terms;
  terms.job = next_job_++;
  terms.epoch = 1;
  terms.workers = static_cast<std::uint16_t>(job.workers.size());
  terms.slots = static_cast<std::uint16_t>(cut.slots);
  terms.columns = cut.shape.columns;
  terms.block = cut.shape.block;
  terms.ordered = job.first.ordered;
  terms.tolerant = job.first.tolerant;
  terms.bytes_per_second = options_.quotas.bytes_per_second / static_cast<double>(cut.threads);
  terms.burst_bytes = protocol::burst_for(terms, cut.shape.payload + bytes_around(protection()));
  terms.result_bytes_per_second = result_rate(job) / static_cast<double>(cut.threads);
  if (job.above) terms.above.emplace().worker = job.first.rack;
  opened = {terms.job,
            terms.epoch,
            static_cast<std::uint16_t>(address_.port),
            static_cast<std::uint16_t>(cut.threads),
            terms.slots,
            terms.columns,
            terms.block,
            job.first.encrypted ? wire::DatagramProtection::encrypted : protection(),
            offer.cipher,
            {},
            job.above ? job.above->life : terms.job};
  wire::fill_random(opened.secret);
  for (std::size_t t = 0; t < cut.threads; ++t) {
    terms.self = static_cast<std::uint16_t>(terms.workers + t);
    std::optional<SwitchThreadAbove> above;
    if (job.above)
      above = {UdpAddress(fmt::format("{}:{}", address_above_.host, job.above->port + t)), *job.above,
               job.first.rack, static_cast<std::uint16_t>(job.first.racks + t)};
    if (const auto refused = threads_[t]->open(terms, opened.secret, {opened.protection, opened.cipher},
                                               above ? &*above : nullptr)) {
      for (std::size_t before = 0; before < t; ++before) threads_[before]->close(terms.job);
      return wire::SwitchRefused{
          refused->busy ? ErrorCode::unsupported : ErrorCode::invalid_argument,
          (refused->busy ? "the switch is busy: " : "") + named(refused->text, terms.job, job.name)};
    }
  }
  return std::nullopt;
}

void SwitchService::close(const wire::SwitchOpened& opened) {
  if (groups_) groups_->close(opened.job);
  for (const auto& thread : threads_) thread->close(opened.job);
}

}  // namespace talweg::live
