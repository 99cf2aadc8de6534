#include "live/aggregation/switch_thread.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>

#include "live/aggregation/switch_line.h"
#include "live/udp/multicast.h"
#include "protocol/aggregation/job_slots.h"
#include "wire/aggregation.h"

namespace talweg::live {

namespace {

// Results that wait to be sent: no more than the sender takes at once, and well more than one datagram.
constexpr std::size_t kBatchBytes = std::size_t{256} << 10;
constexpr std::int64_t kWaitForKernelNs = 100 * kMillisecondNs;
// What waits in the socket is not late: it is taken before rounds end without it, unless more and more comes.
constexpr std::int64_t kTakeFirstNs = kMillisecondNs;
constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();

void wait_for(int fd, int other, short events, int wake, std::int64_t until_ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  pollfd polled[] = {{fd, events, 0}, {other, events, 0}, {wake, POLLIN, 0}};
  if (until_ns == kForEver) {
    ::poll(polled, 3, -1);
    return;
  }
  const std::int64_t left = std::max<std::int64_t>(until_ns - now_ns(), 0);
  const timespec time{left / kSecond, left % kSecond};
  ::ppoll(polled, 3, &time, nullptr);
}

// Of a switch that has a key, some jobs are encrypted: which, is looked at when it is opened.
wire::DatagramRefusal decode(std::span<const std::byte> datagram, bool has_key,
                             wire::DatagramHeader& header) {
  using enum wire::DatagramProtection;
  const auto why = wire::decode(datagram, has_key ? authenticated : checksum, header);
  return has_key && why == wire::DatagramRefusal::mode ? wire::decode(datagram, encrypted, header) : why;
}

}  // namespace

SwitchThread::Above::Above(const UdpAddress& local, const SwitchThreadOptions& options)
    : socket(local, options.socket),
      sender(socket, options.sender, options.send),
      receiver(socket, options.receive) {}

SwitchThread::SwitchThread(const UdpAddress& local, const SwitchThreadOptions& options)
    : options_(options),
      socket_(local, options.socket),
      sender_(socket_, options.sender, options.send),
      receiver_(socket_, options.receive),
      above_(options.local_above.empty() ? nullptr
                                         : std::make_unique<Above>(UdpAddress(options.local_above), options)),
      sums_(options.limits, &slots_),
      batch_(kBatchBytes) {
  if (options_.multicast_hops > 0) send_to_groups(socket_, options_.multicast_hops);
  thread_ = std::thread([this] { loop(); });
}

SwitchThread::~SwitchThread() {
  orders_.give([this] { stop_ = true; });
  thread_.join();
}

std::size_t SwitchThread::fixed_bytes(const UdpOptions& options, bool has_above) {
  // A receiver's buffers and a sender's arena are as large as a batch of the largest datagrams.
  constexpr std::size_t kReceiver = std::size_t{2} << 20;
  constexpr std::size_t kSender = std::size_t{512} << 10;
  const std::size_t socket = kReceiver + kSender + 2 * static_cast<std::size_t>(options.receive_bytes) +
                             2 * static_cast<std::size_t>(options.send_bytes);
  return kBatchBytes + socket * (has_above ? 2 : 1);
}

std::size_t SwitchThread::bytes_per_worker() {
  constexpr std::size_t kDestination = 64;  // its address and what is known of the way there
  return sizeof(Member) + kDestination + sizeof(UdpSender::Destination);
}

std::optional<protocol::OpenRefusal> SwitchThread::open(const protocol::JobTerms& terms,
                                                        const wire::Secret& secret, wire::DatagramSuite suite,
                                                        const SwitchThreadAbove* above) {
  std::optional<protocol::OpenRefusal> refused;
  orders_.give([&] {
    refused = sums_.open(terms);
    if (refused) return;
    Job job{wire::DatagramSealer(secret, {terms.job, terms.epoch, terms.self, wire::kEverybody}, suite),
            {},
            std::nullopt,
            protocol::result_bytes(terms),
            std::nullopt};
    job.members.reserve(terms.workers);
    for (std::uint16_t w = 0; w < terms.workers; ++w)
      job.members.push_back({wire::DatagramOpener(secret, {terms.job, terms.epoch, w, terms.self}, suite),
                             wire::DatagramSealer(secret, {terms.job, terms.epoch, terms.self, w}, suite),
                             0,
                             {}});
    if (above != nullptr) {
      const wire::SwitchOpened& t = above->terms;
      const wire::DatagramSuite there{t.protection, t.cipher};
      above_->has_key = t.protection != wire::DatagramProtection::checksum;
      above_->jobs[t.job] = terms.job;
      job.part.emplace(
          Part{t.job, t.epoch, terms.epoch, above->self,
               wire::DatagramSealer(t.secret, {t.job, t.epoch, above->rack, above->self}, there),
               wire::DatagramOpener(t.secret, {t.job, t.epoch, above->self, above->rack}, there),
               wire::DatagramOpener(t.secret, {t.job, t.epoch, above->self, wire::kEverybody}, there),
               above_->sender.add(above->address)});
    }
    jobs_.insert_or_assign(terms.job, std::move(job));
  });
  return refused;
}

void SwitchThread::close(std::uint32_t job) {
  orders_.give([&] {
    flush_results();
    sums_.close(job);
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) return;
    for (const Member& member : found->second.members)
      if (member.known) sender_.remove(member.to);
    if (const auto& group = found->second.group) sender_.remove(*group);
    if (const auto& part = found->second.part) {
      above_->sender.remove(part->to);
      above_->jobs.erase(part->job);
    }
    jobs_.erase(found);
  });
}

void SwitchThread::pace_results(std::uint32_t job, double bytes_per_second) {
  orders_.give([&] { sums_.pace_results(job, bytes_per_second); });
}

SwitchThread::GroupPath SwitchThread::set_group(std::uint32_t job, const UdpAddress& group) {
  GroupPath path;
  orders_.give([&] {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) return;
    found->second.group = sender_.add(group);
    path.mtu = sender_.mtu(*found->second.group);
    path.needed = found->second.largest + bytes_around(found->second.to_all.suite().protection);
  });
  return path;
}

void SwitchThread::probe(std::uint32_t job, std::uint32_t attempt) {
  orders_.give([&] {
    const auto found = jobs_.find(job);
    if (found == jobs_.end() || !found->second.group) return;
    Job& its = found->second;
    const std::size_t trailer = wire::trailer_bytes(its.to_all.suite().protection);
    const std::size_t bytes = wire::kDatagramHeaderBytes + its.largest + trailer;
    std::byte* const at = sender_.place(*its.group, wire::kOrdinary, bytes);
    if (at == nullptr) return;  // there will be another one
    std::byte* const payload = at + wire::kDatagramHeaderBytes;
    std::memset(payload, 0, its.largest);
    wire::DatagramHeader header;
    header.type = static_cast<std::uint8_t>(wire::AggregationType::probe);
    header.own32 = attempt;
    header.length = static_cast<std::uint16_t>(its.largest);
    sender_.placed(its.to_all.seal(header, payload, at));
  });
}

void SwitchThread::send_by_group(std::uint32_t job, bool by_group) {
  orders_.give([&] {
    const auto found = jobs_.find(job);
    if (found == jobs_.end() || !found->second.group) return;
    found->second.by_group = by_group;
    sums_.send_once(job, by_group);
  });
}

SwitchThreadStatus SwitchThread::status() {
  SwitchThreadStatus status;
  orders_.give([&] {
    for (const auto& [number, job] : jobs_)
      if (const protocol::SwitchCounters* counters = sums_.counters(number)) status.jobs[number] = *counters;
    status.memory_bytes = sums_.memory_bytes();
    status.strays = sums_.strays();
    status.refusals = refusals_;
    status.sent = sender_.statistics();
    status.received = receiver_.statistics();
    status.dropped = socket_.dropped();
    if (above_ == nullptr) return;
    status.sent_above = above_->sender.statistics();
    status.received_above = above_->receiver.statistics();
    status.dropped += above_->socket.dropped();
  });
  return status;
}

void SwitchThread::loop() {
  while (!stop_) {
    const std::int64_t now = now_ns();
    bool more = receiver_.receive([&](UdpReceiver::Datagram& datagram) { take(datagram, now); });
    if (above_)
      more |= above_->receiver.receive([&](UdpReceiver::Datagram& datagram) { take_above(datagram, now); });
    if (!more || now - kTakeFirstNs >= sums_.next_time_ns()) on_time(now);
    flush_results();
    flush();
    if (orders_.given())
      orders_.obey();
    else if (!more)
      wait_for(socket_.fd(), above_ ? above_->socket.fd() : -1, POLLIN, orders_.fd(), sums_.next_time_ns());
  }
}

// Results that have waited, rounds that have lingered for long enough, and those that the switch above was
// too busy for.
void SwitchThread::on_time(std::int64_t now_ns) {
  while (sums_.next_time_ns() <= now_ns)
    for (const protocol::SwitchAction& action : sums_.on_time(now_ns)) {
      Job& job = jobs_.at(action.header.job);
      if (action.to == protocol::SwitchAction::To::all)
        send_to_all(job, action);
      else
        send_above(*job.part, action);
    }
}

void SwitchThread::take(UdpReceiver::Datagram& datagram, std::int64_t now_ns) {
  wire::DatagramHeader header;
  if (const auto why = decode(datagram.bytes, options_.has_key, header); why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  const auto found = jobs_.find(header.job);
  // Nobody is answered whose word cannot be checked. Who belongs to a job that has ended has been told so
  // over its connection.
  if (found == jobs_.end()) return refusals_.count(wire::DatagramRefusal::job);
  Job& job = found->second;
  if (header.sender >= job.members.size()) return refusals_.count(wire::DatagramRefusal::sender);
  Member& member = job.members[header.sender];
  if (const auto why = member.opener.open(datagram.bytes, header); why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  learn(member, datagram.from);
  const auto payload = datagram.bytes.subspan(wire::kDatagramHeaderBytes, header.length);
  for (const protocol::SwitchAction& action : sums_.on(header, payload, {member.to, 1}, now_ns)) {
    if (action.to == protocol::SwitchAction::To::all)
      send_to_all(job, action);
    else if (action.to == protocol::SwitchAction::To::above)
      send_above(*job.part, action);
    else
      send_to(member, action);
  }
}

void SwitchThread::take_above(UdpReceiver::Datagram& datagram, std::int64_t now_ns) {
  wire::DatagramHeader header;
  if (const auto why = decode(datagram.bytes, above_->has_key, header); why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  const auto found = above_->jobs.find(header.job);
  if (found == above_->jobs.end()) return refusals_.count(wire::DatagramRefusal::job);
  Job& job = jobs_.at(found->second);
  Part& part = *job.part;
  if (header.sender != part.self) return refusals_.count(wire::DatagramRefusal::sender);
  wire::DatagramOpener& opener = (header.flags & wire::kDatagramToAll) != 0 ? part.from_all : part.opener;
  if (const auto why = opener.open(datagram.bytes, header); why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  const auto payload = datagram.bytes.subspan(wire::kDatagramHeaderBytes, header.length);
  header.job = found->second;
  header.epoch = part.own_epoch;
  for (const protocol::SwitchAction& action : sums_.on_above(header, payload, now_ns)) {
    if (action.to == protocol::SwitchAction::To::all)
      send_to_all(job, action);
    else
      send_above(part, action);
  }
}

// Where a worker last spoke from is where it is answered.
void SwitchThread::learn(Member& member, const UdpAddress& from) {
  if (member.known && member.address == from) return;
  if (member.known)
    sender_.change(member.to, from);
  else
    member.to = sender_.add(from);
  member.address = from;
  member.known = true;
}

std::byte* SwitchThread::place(UdpSender& sender, UdpSender::Destination to, std::size_t bytes) {
  std::byte* at = sender.place(to, wire::kOrdinary, bytes);
  if (at != nullptr) return at;
  flush();
  return sender.place(to, wire::kOrdinary, bytes);
}

// The kernel takes more when what it has is on its way; meanwhile what comes waits in its other buffer.
void SwitchThread::flush() {
  while (!flush_all() && !orders_.given()) {
    const bool above = above_ && !above_->sender.empty();
    wait_for(sender_.empty() ? -1 : socket_.fd(), above ? above_->socket.fd() : -1, POLLOUT, orders_.fd(),
             now_ns() + kWaitForKernelNs);
  }
}

bool SwitchThread::flush_all() {
  const bool below = sender_.flush();
  return (!above_ || above_->sender.flush()) && below;
}

// Here the number is this switch's own, and there another one.
void SwitchThread::send_above(Part& part, const protocol::SwitchAction& action) {
  const std::size_t bytes = wire::kDatagramHeaderBytes + action.payload.size() +
                            wire::trailer_bytes(part.sealer.suite().protection);
  std::byte* const at = place(above_->sender, part.to, bytes);
  if (at == nullptr) return;  // a worker asks, and it is said again
  wire::DatagramHeader header = action.header;
  header.job = part.job;
  header.epoch = part.epoch;
  header.length = static_cast<std::uint16_t>(action.payload.size());
  above_->sender.placed(part.sealer.seal(header, action.payload.data(), at));
}

void SwitchThread::send_to(Member& member, const protocol::SwitchAction& action) {
  const std::size_t bytes = wire::kDatagramHeaderBytes + action.payload.size() +
                            wire::trailer_bytes(member.sealer.suite().protection);
  std::byte* const at = place(sender_, member.to, bytes);
  if (at == nullptr) return;  // it was asked to do something else: the worker says it again
  wire::DatagramHeader header = action.header;
  header.length = static_cast<std::uint16_t>(action.payload.size());
  sender_.placed(member.sealer.seal(header, action.payload.data(), at));
}

void SwitchThread::send_to_all(Job& job, const protocol::SwitchAction& action) {
  const std::size_t bytes =
      wire::kDatagramHeaderBytes + action.payload.size() + wire::trailer_bytes(job.to_all.suite().protection);
  if (batch_used_ + bytes > batch_.size()) flush_results();
  wire::DatagramHeader header = action.header;
  header.length = static_cast<std::uint16_t>(action.payload.size());
  const std::size_t sealed = job.to_all.seal(header, action.payload.data(), batch_.data() + batch_used_);
  waiting_.push_back({action.header.job, batch_used_, sealed});
  batch_used_ += sealed;
}

void SwitchThread::flush_results(UdpSender::Destination to, std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    std::byte* const at = place(sender_, to, waiting_[i].bytes);
    if (at == nullptr) break;
    std::memcpy(at, batch_.data() + waiting_[i].offset, waiting_[i].bytes);
    sender_.placed(waiting_[i].bytes);
  }
}

// Worker by worker: what goes to one of them, one behind the other, leaves in one piece. Or once for all.
void SwitchThread::flush_results() {
  for (std::size_t first = 0; first < waiting_.size();) {
    std::size_t end = first;
    while (end < waiting_.size() && waiting_[end].job == waiting_[first].job) ++end;
    const auto found = jobs_.find(waiting_[first].job);
    if (found != jobs_.end() && found->second.by_group) {
      flush_results(*found->second.group, first, end);
    } else if (found != jobs_.end()) {
      for (const Member& member : found->second.members)
        if (member.known) flush_results(member.to, first, end);
    }
    first = end;
  }
  waiting_.clear();
  batch_used_ = 0;
}

}  // namespace talweg::live
