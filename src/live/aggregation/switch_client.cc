#include "live/aggregation/switch_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "live/join/interface.h"
#include "protocol/aggregation/switch_terms.h"

namespace talweg::live {

namespace {

// A sum that takes longer is spoken of to the switch, as all that differ from the one before them are: it
// says so should workers not mean the same one.
constexpr std::int64_t kSlowNs = 20 * kMillisecondNs;
// And so is one now and then: dense and sparse ones, say, may go together for long.
constexpr std::int64_t kSpeakEveryNs = 100 * kMillisecondNs;
constexpr std::int64_t kGoodbyeNs = 200 * kMillisecondNs;
// Workers that do not mean the same sum find that out in datagrams, too; what each has is known to the
// switch.
constexpr std::int64_t kWordsNs = 500 * kMillisecondNs;
// So a switch ends what it says of a worker whose messages it cannot read.
constexpr const char* kStrange = "does not keep to the protocol";
constexpr int kWaitForRoomMs = 10;
// That are taken at once, of each socket.
constexpr int kBatches = 4;
// Contributions that the switch answers not to have, one after the other and no result between them.
constexpr std::uint64_t kAskedForSize = 3;
// How long it joins, or sums in all_reduce(), without calling `idle`.
constexpr std::int64_t kAskEveryNs = 100 * kMillisecondNs;

wire::DatagramSuite suite_of(const wire::SwitchOpened& terms) {
  return {terms.protection, terms.cipher};
}
std::uint16_t self_of(const SwitchClientOptions& options, std::size_t lane) {
  return static_cast<std::uint16_t>(options.workers + lane);
}
protocol::WorkerTerms worker_terms(const SwitchClientOptions& options, const wire::SwitchOpened& terms) {
  protocol::WorkerTerms t;
  t.job = terms.job;
  t.epoch = terms.epoch;
  t.worker = options.worker;
  t.workers = options.all_workers == 0 ? options.workers : options.all_workers;
  t.slots = terms.slots;
  t.columns = terms.columns;
  t.block = terms.block;
  t.rack = options.rack;
  return t;
}

UdpAddress local_toward(const Endpoint& address) {
  return UdpAddress(fmt::format("{}:0", address_toward(address.host)));
}
SwitchClientOptions resolved(SwitchClientOptions options) {
  options.address.host = resolve_host(options.address.host);
  return options;
}

}  // namespace

std::string wrong_block(std::size_t elements) {
  constexpr std::size_t kMost = wire::kMaxDatagramPayload / 4 / 8 * 8;
  if (elements % 8 == 0 && elements <= kMost) return {};
  return fmt::format("a block has a multiple of 8 elements, and no more than {}: not {}", kMost, elements);
}

std::uint64_t switch_number(const Endpoint& address, const std::string& host) {
  const std::string at = resolve_host(address.host);
  std::uint64_t hash = 14'695'981'039'346'656'037U;  // FNV-1a
  for (const char c : fmt::format("{}:{} {}", at, address.port, is_loopback(at) ? host : ""))
    hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  return hash;
}

void sit_down(SwitchClientOptions& o, std::size_t rank, std::span<const std::uint64_t> switches) {
  std::vector<std::uint64_t> racks;  // in the order of their first ranks
  o.worker = o.workers = 0;
  for (std::size_t r = 0; r < switches.size(); ++r) {
    if (std::ranges::find(racks, switches[r]) == racks.end()) racks.push_back(switches[r]);
    if (switches[r] != switches[rank]) continue;
    if (r < rank) ++o.worker;
    ++o.workers;
  }
  o.rack = static_cast<std::uint16_t>(std::ranges::find(racks, switches[rank]) - racks.begin());
  o.racks = static_cast<std::uint16_t>(racks.size());
  o.all_workers = static_cast<std::uint16_t>(switches.size());
}

std::string slots_missed(const wire::SwitchOpened& terms, bool tolerant, std::size_t window,
                         std::size_t wanted) {
  const std::size_t datagram = wire::aggregation_payload(terms.columns, terms.block, 4) +
                               (tolerant ? terms.columns * wire::kMaxAbsent * 2 : 0) +
                               bytes_around(terms.protection);
  const auto fit = [&](std::size_t bytes) {
    return protocol::slots_that_fit(bytes, std::numeric_limits<std::size_t>::max(), 1, terms.threads,
                                    datagram, 0xffff);
  };
  if (fit(window) > terms.slots || fit(wanted) <= terms.slots) return {};
  return fmt::format("; it costs slots: {} of each of the switch's threads, and not up to {}", terms.slots,
                     fit(wanted));
}

SwitchClient::Lane::Lane(SwitchClient& c, std::size_t number)
    : client(c),
      to(0),
      sealer(c.terms_.secret, {c.terms_.job, c.terms_.epoch, c.options_.worker, self_of(c.options_, number)},
             suite_of(c.terms_)),
      opener(c.terms_.secret, {c.terms_.job, c.terms_.epoch, self_of(c.options_, number), c.options_.worker},
             suite_of(c.terms_)),
      from_all(c.terms_.secret, {c.terms_.job, c.terms_.epoch, self_of(c.options_, number), wire::kEverybody},
               suite_of(c.terms_)),
      worker(worker_terms(c.options_, c.terms_), *this) {
  const UdpAddress address(fmt::format("{}:{}", c.options_.address.host, c.terms_.port + number));
  to = c.sender_.add(address);
}

// What the kernel does not take now is as good as lost on the way: it is sent again in its time.
void SwitchClient::Lane::send(const wire::DatagramHeader& header, std::span<const std::byte> payload) {
  const std::size_t bytes =
      wire::kDatagramHeaderBytes + payload.size() + wire::trailer_bytes(client.terms_.protection);
  const bool query = header.type == static_cast<std::uint8_t>(wire::AggregationType::query);
  std::size_t& most = query ? client.asked_bytes_ : client.sent_bytes_;
  most = std::max(most, payload.size() + bytes_around(client.terms_.protection));
  std::byte* at = client.sender_.place(to, wire::kOrdinary, bytes);
  if (at == nullptr && !client.sender_.flush()) {
    pollfd polled{client.socket_.fd(), POLLOUT, 0};
    ::poll(&polled, 1, kWaitForRoomMs);
    client.sender_.flush();
  }
  if (at == nullptr) at = client.sender_.place(to, wire::kOrdinary, bytes);
  if (at == nullptr) return;
  wire::DatagramHeader h = header;
  client.sender_.placed(sealer.seal(h, payload.data(), at));
}

SwitchClient::SwitchClient(const SwitchClientOptions& options)
    : options_(resolved(options)),
      where_(fmt::format("job {} at the switch {}", options.job, to_string(options_.address))),
      socket_(local_toward(options_.address), options.socket),
      sender_(socket_, options.sender, options.send),
      receiver_(socket_, options.receive) {
  if (!wire::is_job_name(options.job))
    refuse("a job's name has 1 to {} printable characters without blanks", wire::kMaxJobName);
  if (const std::string wrong = wrong_block(options.block); !wrong.empty()) refuse("{}: {}", where_, wrong);
  if (!options.key && !is_loopback(options_.address.host))
    refuse("{}: a switch that is not on loopback has a key, and its workers hold the same one: give it in {}",
           where_, options_.key_from);
  if (options.encrypted && !options.key)
    refuse("{}: datagrams are encrypted under the key of the switch: give it in {}", where_,
           options_.key_from);
  join();
  for (std::size_t lane = 0; lane < terms_.threads; ++lane)
    lanes_.push_back(std::make_unique<Lane>(*this, lane));
}

SwitchClient::~SwitchClient() {
  if (failure_ || !line_ || !line_->socket()) return;
  // Only a sum that is done counts: one that others wait for is given up, which they are to hear at once.
  if (!running_) {
    speak();
    line_->say(wire::SwitchLeave{current_.sum});
  }
  part();
}

void SwitchClient::part() {
  const std::int64_t deadline_ns = now_ns() + kGoodbyeNs;
  while (line_->flush() && line_->unsent() > 0 && wait_ready(line_->socket(), true, deadline_ns)) {
  }
  // Unread notices must not turn the end of the connection into a reset, which would overtake the farewell.
  ::shutdown(line_->socket().get(), SHUT_WR);
  line_->receive();
  line_->close();
}

FileDescriptor SwitchClient::connect() const {
  if (!options_.idle) return connect_tcp(options_.address, options_.join_deadline_ns);
  for (;;) {
    const std::int64_t until_ns = std::min(options_.join_deadline_ns, now_ns() + kAskEveryNs);
    try {
      return connect_tcp(options_.address, until_ns);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::timeout || until_ns == options_.join_deadline_ns) throw;
    }
    options_.idle();
  }
}

// False: none has come before the deadline.
bool SwitchClient::wait_for_answer() const {
  for (;;) {
    const std::int64_t until_ns = options_.idle ? std::min(options_.join_deadline_ns, now_ns() + kAskEveryNs)
                                                : options_.join_deadline_ns;
    if (wait_ready(line_->socket(), false, until_ns)) return true;
    if (until_ns == options_.join_deadline_ns) return false;
    options_.idle();
  }
}

void SwitchClient::join() {
  wire::Introduction introduction;
  introduction.purpose = wire::Purpose::aggregation;
  introduction.encrypt = true;
  try {
    Visitor visitor = knock([&] { return connect(); }, options_.key.value_or(wire::Secret{}), introduction,
                            options_.join_deadline_ns, options_.idle,
                            ((options_.key ? "expected the switch's secret, or none where it has none, in "
                                           : "give the switch's secret in ") +
                             options_.key_from)
                                .c_str());
    tune_tcp(visitor.socket);
    line_.emplace(std::move(visitor), wire::kMaxSwitchReason + 64);
  } catch (const Error& e) {
    throw_error(e.code(), "joining {}: {}", where_, e.what());
  }
  const UdpAddress there(to_string(options_.address));
  const std::size_t mtu = socket_.path_mtu(there);
  // As with a tag, whatever the switch will have: it is the larger of the two.
  const std::size_t payload = wire::datagram_payload(mtu, false, wire::DatagramProtection::authenticated);
  wire::SwitchJoin request{options_.job,
                           options_.worker,
                           options_.workers,
                           options_.block,
                           options_.ordered,
                           static_cast<std::uint16_t>(std::min(payload, options_.most_payload)),
                           static_cast<std::uint32_t>(socket_.window()),
                           options_.rack,
                           options_.racks,
                           options_.all_workers};
  request.tolerant = options_.tolerant;
  request.encrypted = options_.encrypted;
  request.by_group = options_.by_group;
  line_->say(request);
  wire::SwitchWaiting waiting;
  for (bool open = line_->flush();;) {
    while (const auto message = line_->next()) {
      if (const auto* const opened = std::get_if<wire::SwitchOpened>(&*message)) {
        terms_ = *opened;
        if (terms_.threads == 0 || terms_.slots == 0 || terms_.columns == 0 || terms_.block == 0 ||
            terms_.port + terms_.threads > 0x10000 || options_.workers + terms_.threads > 0xffff ||
            (terms_.protection == wire::DatagramProtection::encrypted) != options_.encrypted)
          throw_error(ErrorCode::corrupted, "joining {}: it offers what cannot be", where_);
        return;
      }
      if (const auto* const refused = std::get_if<wire::SwitchRefused>(&*message))
        throw_error(refused->code, "joining {}: {}", where_, refused->reason);
      if (const auto* const who = std::get_if<wire::SwitchWaiting>(&*message)) waiting = *who;
    }
    if (!open || line_->broken())
      throw_error(ErrorCode::peer_failed, "joining {}: the switch has ended the connection{}", where_,
                  options_.tolerant    ? ": does its version know sums of which a part may be missing?"
                  : options_.encrypted ? ": does its version know encrypted datagrams?"
                                       : "");
    if (!wait_for_answer())
      throw_error(
          ErrorCode::timeout, "joining {}: {}", where_,
          waiting.missing == 0
              ? "the switch has not answered"
              : fmt::format("{} of {} {} have not joined: {}{}", waiting.missing,
                            waiting.racks ? options_.racks : options_.workers,
                            waiting.racks ? "racks' switches" : "workers", fmt::join(waiting.workers, ", "),
                            waiting.missing > waiting.workers.size() ? ", ..." : ""));
    open = line_->receive();
  }
}

std::string SwitchClient::shortage() const {
  return socket_.shortage() + slots_missed(terms_, options_.tolerant, socket_.window(),
                                           static_cast<std::size_t>(options_.socket.receive_bytes));
}

void SwitchClient::rethrow() const {
  throw Error(failure_->code, failure_->text);
}

void SwitchClient::fail(ErrorCode code, const std::string& why) {
  give_up(code, why);
  rethrow();
}

void SwitchClient::fail_for_left() {
  fail(ErrorCode::peer_failed, fmt::format("{} {} has left after sum {}", left_->rack ? "rack" : "worker",
                                           left_->worker, left_->sums));
}

void SwitchClient::give_up(ErrorCode code, const std::string& why) {
  if (failure_) return;
  failure_ = protocol::SumFailure{
      code, fmt::format("sum {} of {}, worker {}: {}", current_.sum, where_, options_.worker, why), why};
  running_ = false;
  // Should workers not mean the same sum the switch knows better why.
  speak();
  line_->say(wire::SwitchGiveUp{code, why});
  part();
}

void SwitchClient::start(const SwitchVector& v, std::int64_t deadline_ns) {
  if (failure_) rethrow();
  if (running_) refuse("sum {} of {} has not ended: one at a time", current_.sum, where_);
  const std::size_t element = wire::bytes_in_memory(v.format);
  if (v.in_bytes % element != 0)
    refuse("{}: {} bytes are no whole number of elements of {}", where_, v.in_bytes, wire::name(v.format));
  if (v.out_bytes < v.in_bytes)
    refuse("{}: the buffer for the result is too small: it has {} bytes, the vector has {}", where_,
           v.out_bytes, v.in_bytes);
  protocol::Sum sum{v.in,
                    v.out,
                    v.rows != nullptr ? v.rows->elements() : v.in_bytes / element,
                    v.format,
                    terms_.block,
                    v.sparse || v.rows != nullptr,
                    0,
                    static_cast<std::uint16_t>(lanes_.size()),
                    v.tolerance,
                    v.rows,
                    v.kept};
  for (const std::string& wrong : {protocol::wrong_tolerance(sum), protocol::wrong_rows(sum)})
    if (!wrong.empty()) refuse("{}: {}", where_, wrong);
  if (v.tolerance.ppm > 0 && !options_.tolerant)
    refuse("{}: a part of this sum may be missing, and that was not said when it was joined", where_);
  hear();
  const wire::SwitchSum before = current_;
  current_ = {current_.sum + 1, sum.count, static_cast<std::uint8_t>(v.format),
              sum.sparse || v.format == wire::AggregationFormat::pairs};
  if (left_ && left_->sums < current_.sum) fail_for_left();
  const std::int64_t now = now_ns();
  running_ = true;
  started_ns_ = now;
  counted_ = counters();
  announce_ns_ = now + kSlowNs;
  if (v.rows != nullptr)
    v.rows->sums->reset(v.format, protocol::units_of(v.rows->width, v.format, sum.block), v.rows->width);
  for (const auto& lane : lanes_) {
    lane->worker.start(sum, current_.sum, deadline_ns, now);
    ++sum.lane;
  }
  sender_.flush();
  // After its datagrams, and without waiting for it to leave.
  const bool alike = before.sum != 0 && before.count == current_.count && before.format == current_.format &&
                     before.sparse == current_.sparse;
  if (!alike || now - spoken_ns_ > kSpeakEveryNs) announce();
}

// Of what is smaller than a contribution and is answered, queries are what is known.
std::string SwitchClient::why_silent(std::int64_t since_ns) const {
  std::vector<UdpSender::Destination> all;
  for (const auto& lane : lanes_) all.push_back(lane->to);
  if (const std::size_t mtu = sender_.least_mtu(all); mtu > 0 && mtu < sent_bytes_)
    return fmt::format("packets of {} bytes do not pass on the way to it, and none of more than {} do",
                       sent_bytes_, mtu);
  if (heard_ns_ <= since_ns)
    return fmt::format(
        "no datagram has come from its UDP ports {} to {}: is UDP blocked on the way, or the MTU smaller "
        "than packets of {} bytes? its TCP connection stands",
        terms_.port, terms_.port + terms_.threads - 1, sent_bytes_);
  const protocol::WorkerCounters now = counters();
  if (now.results > counted_.results || now.asked_for < counted_.asked_for + kAskedForSize) return {};
  return fmt::format(
      "packets of {} bytes to it are lost, and nobody says so; those of {} pass: is the MTU smaller on the "
      "way?",
      sent_bytes_, asked_bytes_);
}

std::int64_t SwitchClient::busy_until_ns() const {
  std::int64_t until_ns = std::numeric_limits<std::int64_t>::min();
  for (const auto& lane : lanes_) until_ns = std::max(until_ns, lane->worker.busy_until_ns());
  return until_ns;
}

bool SwitchClient::all_done() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->worker.done(); });
}

bool SwitchClient::step(std::int64_t now) {
  if (failure_) rethrow();
  receive(now);
  if (!running_) {
    hear();
    return true;
  }
  for (const auto& lane : lanes_)
    if (lane->worker.next_time_ns() <= now) lane->worker.on_time(now);
  sender_.flush();
  for (const auto& lane : lanes_)
    if (const auto& failure = lane->worker.failure()) {
      if (failure->code == ErrorCode::mismatch && words_ns_ == 0) {
        words_ns_ = now + kWordsNs;
        announce();
      }
      hear();  // the switch may know better why
      if (now < words_ns_) return false;
      const std::string silent = failure->code == ErrorCode::timeout ? why_silent(started_ns_) : "";
      fail(failure->code, silent.empty() ? failure->why : fmt::format("{} ({})", failure->why, silent));
    }
  if (all_done()) {
    running_ = false;
    knows_codes_ = knows_codes_ || wire::is_coded(static_cast<wire::AggregationFormat>(current_.format));
    return true;
  }
  hear();
  if (left_ && left_->sums < current_.sum) fail_for_left();
  if (now >= announce_ns_) announce();
  if (line_->unsent() > 0) line_->flush();
  return false;
}

void SwitchClient::announce() {
  announce_ns_ = std::numeric_limits<std::int64_t>::max();
  speak();
  line_->flush();
}

void SwitchClient::speak() {
  if (spoken_ == current_.sum) return;
  spoken_ = current_.sum;
  spoken_ns_ = now_ns();
  line_->say(current_);
}

std::int64_t SwitchClient::next_time_ns() const {
  std::int64_t next = words_ns_ != 0 ? std::min(announce_ns_, words_ns_) : announce_ns_;
  for (const auto& lane : lanes_) next = std::min(next, lane->worker.next_time_ns());
  return next;
}

bool SwitchClient::receive(std::int64_t now) {
  bool any = false;
  bool more = true;
  const auto use = [&](bool by_group) {
    return [&, by_group](UdpReceiver::Datagram& datagram) {
      take(datagram, by_group, now);
      any = true;
    };
  };
  // A few batches at most: what is to be sent in answer must leave. Of the group first: what is sent to this
  // worker alone is about what went there before.
  for (int batch = 0; ear_ && more && batch < kBatches; ++batch) more = ear_->receive(use(true));
  more = true;
  for (int batch = 0; more && batch < kBatches; ++batch) more = receiver_.receive(use(false));
  return any;
}

void SwitchClient::take(UdpReceiver::Datagram& datagram, bool by_group, std::int64_t now) {
  wire::DatagramHeader header;
  if (const auto why = wire::decode(datagram.bytes, terms_.protection, header);
      why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  const std::size_t number = std::size_t{header.sender} - options_.workers;
  if (header.sender < options_.workers || number >= lanes_.size())
    return refusals_.count(wire::DatagramRefusal::sender);
  Lane& lane = *lanes_[number];
  const bool probe = header.type == static_cast<std::uint8_t>(wire::AggregationType::probe);
  // Sent to the group, it was brought here by somebody else: it says nothing of what the group brings, and
  // its number is free for the one that does.
  if (probe && !by_group) return refusals_.count(wire::DatagramRefusal::sender);
  wire::DatagramOpener& opener = (header.flags & wire::kDatagramToAll) != 0 ? lane.from_all : lane.opener;
  if (const auto why = opener.open(datagram.bytes, header); why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  heard_ns_ = now;
  if (ear_) {
    std::optional<wire::SwitchHears> word;
    if (probe) word = ear_->probed(number, header.own32);
    if (header.type == static_cast<std::uint8_t>(wire::AggregationType::result))
      word = ear_->result(number, wire::number_of_result(datagram.bytes.subspan(wire::kDatagramHeaderBytes)),
                          (header.flags & wire::kDatagramToAll) != 0, by_group);
    if (word) say(*word);
  }
  if (probe) return;
  lane.worker.on(header, datagram.bytes.subspan(wire::kDatagramHeaderBytes, header.length), now);
}

// A host that cannot, or a group that is none: the others do without it, too.
void SwitchClient::join_group(const wire::SwitchGroup& group) {
  if (ear_ || !options_.by_group) return;
  try {
    ear_ = std::make_unique<GroupEar>(group, socket_.address(), lanes_.size(), options_.socket,
                                      options_.receive_group);
  } catch (const Error& e) {
    if (options_.say)
      options_.say(fmt::format("{}: results come to worker {} by its own address: {}", where_,
                               options_.worker, e.what()));
    return say({wire::GroupWord::cannot, 0, 0, 0, e.what()});
  }
  say({wire::GroupWord::joined});
}

void SwitchClient::say(const wire::SwitchHears& word) {
  line_->say(word);
  line_->flush();
}

// What a switch of an earlier version may make of the sum that runs: codes are not in its messages.
std::string SwitchClient::perhaps_its_version() const {
  const auto format = static_cast<wire::AggregationFormat>(current_.format);
  if (!wire::is_coded(format) || knows_codes_ || counters().results != counted_.results) return {};
  return fmt::format(": does its version know sums of {}?", wire::name(format));
}

void SwitchClient::hear() {
  const bool open = line_->receive();
  while (const auto message = line_->next()) {
    if (const auto* const refused = std::get_if<wire::SwitchRefused>(&*message))
      fail(refused->code,
           refused->reason + (refused->reason.ends_with(kStrange) ? perhaps_its_version() : ""));
    if (const auto* const left = std::get_if<wire::SwitchLeft>(&*message))
      if (!left_ || left->sums < left_->sums) left_ = *left;
    if (const auto* const group = std::get_if<wire::SwitchGroup>(&*message)) join_group(*group);
  }
  if (!open || line_->broken())
    fail(ErrorCode::peer_failed, "the switch has ended the connection" + perhaps_its_version());
}

void SwitchClient::wait(std::int64_t until) const {
  const auto [data, line, group] = sockets();
  pollfd polled[] = {{data, POLLIN, 0}, {line, POLLIN, 0}, {group, POLLIN, 0}};
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t left = std::clamp<std::int64_t>(until - now_ns(), 0, kSecond);
  const timespec time{left / kSecond, left % kSecond};
  ::ppoll(polled, 3, &time, nullptr);
}

void SwitchClient::all_reduce(const SwitchVector& vector, std::int64_t deadline_ns) {
  start(vector, deadline_ns);
  while (!step(now_ns())) {
    wait(options_.idle ? std::min(next_time_ns(), now_ns() + kAskEveryNs) : next_time_ns());
    if (options_.idle) try {
        options_.idle();
      } catch (const std::exception& e) {
        give_up(ErrorCode::aborted, e.what());
        throw;
      }
  }
}

protocol::AggregationWorker::Missing SwitchClient::missing() const {
  protocol::AggregationWorker::Missing sum;
  for (const auto& lane : lanes_) {
    const auto& its = lane->worker.missing();
    sum.blocks += its.blocks;
    sum.allowance += its.allowance;
    sum.own += its.own;
    sum.all += its.all;
  }
  return sum;
}

protocol::WorkerCounters SwitchClient::counters() const {
  protocol::WorkerCounters sum;
  for (const auto& lane : lanes_) sum += lane->worker.counters();
  return sum;
}

}  // namespace talweg::live
