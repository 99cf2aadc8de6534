#include "protocol/datagram/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstring>
#include <utility>

#include "talweg/error.h"

namespace talweg::protocol {

namespace {

using wire::FlowType;

// Timeouts in a row after which nothing is known of the way any more.
constexpr unsigned kSilence = 3;
// How long a few last bytes go unanswered before they are sent again: twice as long as the way takes without
// queues, and no less than this. Where there are queues that is too soon, which costs no more than those few
// bytes; what it saves is a timeout, which has to be longer than queues last. Of more bytes, where nothing
// else may leave, is asked what has come of them after twice as long as the last answer took.
constexpr std::int64_t kLeastEarlyNs = 500'000;
constexpr std::uint64_t kFewBytes = 512;  // of all datagrams that are on their way
// Payloads that are tried where large datagrams bring no answer: of Ethernet, of IPv6's least MTU, and the
// least that a flow has.
constexpr std::array<std::size_t, 3> kSizesTried{1404, 1184, wire::kMostAckBytes};
constexpr std::size_t kFullTries = 2;  // before: one may just have been lost
// While answers come and nothing more of the data arrives, until that is tried; and so many round trips.
constexpr std::int64_t kDoubtNs = 1'000'000'000;
constexpr std::int64_t kDoubtTrips = 8;
// A channel's new credit is told when it is so large a part of all.
constexpr std::uint64_t kCreditPart = 4;

void require(bool holds, const char* what, std::size_t value) {
  if (!holds)
    throw Error(ErrorCode::invalid_argument, fmt::format("a flow of datagrams with {} {}", value, what));
}

}  // namespace

DatagramFlow::DatagramFlow(const FlowOptions& options)
    : options_(options),
      payload_(options.payload),
      sent_(options.packets),
      paths_(options.paths),
      rtt_(options.rate.wall_ns),
      rate_(options.rate, static_cast<double>(options.payload + options.around)),
      share_(options.share),
      queue_bytes_(options.rate.queue_bytes),
      other_window_(options.window) {
  require(options.channels >= 1 && options.channels <= wire::kFlowChannels, "channels", options.channels);
  require(options.payload >= wire::kMostAckBytes && options.payload <= wire::kMaxDatagramPayload,
          "bytes in a datagram", options.payload);
  require(std::has_single_bit(options.packets), "datagrams on their way", options.packets);
  out_.reserve(options.channels);
  in_.reserve(options.channels);
  for (std::size_t c = 0; c < options.channels; ++c) {
    in_.emplace_back(options.receive_bytes);
    out_.emplace_back(options.send_bytes, in_.back().limit());  // the other end's is the same
    told_limit_.push_back(in_.back().limit());
  }
}

std::size_t DatagramFlow::write(std::size_t channel, std::span<const std::byte> bytes) {
  const std::size_t taken = out_[channel].write(bytes);
  share_queue();
  return taken;
}

void DatagramFlow::share_queue() {
  share_.busy(!all_arrived());
  const double bytes = share_.of(options_.rate.queue_bytes);
  if (std::exchange(queue_bytes_, bytes) != bytes) rate_.set_queue(bytes);
}

bool DatagramFlow::all_arrived() const {
  return std::ranges::all_of(out_, [](const SendBuffer& b) { return b.arrived() == b.written(); });
}

std::uint64_t DatagramFlow::bytes_arrived() const {
  std::uint64_t sum = 0;
  for (const SendBuffer& b : out_) sum += b.arrived();
  return sum;
}

void DatagramFlow::consumed(std::size_t channel, std::size_t bytes) {
  in_[channel].consumed(bytes);
  if (in_[channel].limit() - told_limit_[channel] >= options_.receive_bytes / kCreditPart && arrivals_.any())
    arrivals_.tell_now();
}

void DatagramFlow::set_payload(std::size_t bytes) {
  payload_ = std::clamp(bytes, wire::kMostAckBytes, wire::kMaxDatagramPayload);
  payload_ = std::min(payload_, options_.payload);
}

// --- what leaves ---

std::size_t DatagramFlow::channel_with_data() const {
  for (std::size_t i = 0; i < out_.size(); ++i) {
    const std::size_t c = (turn_ + i) % out_.size();
    if (out_[c].next(1).length > 0) return c;
  }
  return out_.size();
}

// One datagram may always be on its way, however small a window is.
DatagramFlow::Window DatagramFlow::window() const {
  const std::uint64_t bytes = sent_.bytes_on_their_way();
  const std::uint64_t more = bytes + payload_ + options_.around;
  if (bytes == 0) return Window::open;
  if (more > other_window_) return Window::full;
  return static_cast<double>(more) <= rate_.window() ? Window::open : Window::rate_full;
}

bool DatagramFlow::window_is_small() const {
  const double window = std::min(rate_.window(), static_cast<double>(other_window_));
  return window < Arrivals::kSmallWindow * static_cast<double>(payload_ + options_.around);
}

bool DatagramFlow::few_on_their_way() const {
  return sent_.bytes_on_their_way() <= kFewBytes;
}

bool DatagramFlow::waits_for_credit() const {
  return !sent_.any_awaited() &&
         std::ranges::any_of(out_, [](const SendBuffer& b) { return b.out_of_credit(); }) &&
         channel_with_data() == out_.size();
}

bool DatagramFlow::next(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header,
                        std::byte* payload) {
  header = {.service = wire::kOrdinary};
  if (acknowledgement_due(now_ns) && arrivals_.any()) {
    path_ = std::exchange(asked_again_, false) ? paths_.answering_again(now_ns) : paths_.unanswered(now_ns);
    make_acknowledgement(now_ns, header, payload);
  } else if (probe_due_) {
    make_probe(number, now_ns, header, payload);
  } else if (!make_trial(number, now_ns, header) && !make_data(number, now_ns, header, payload)) {
    return false;
  }
  ++statistics_.datagrams_sent;
  stirred_ = true;
  return true;
}

bool DatagramFlow::make_data(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header,
                             std::byte* payload) {
  const std::size_t channel = channel_with_data();
  if (channel == out_.size()) return false;
  if (const Window is = window(); is != Window::open || sent_.full()) {
    if (is == Window::full) ++statistics_.window_waits;
    if (is == Window::rate_full) window_was_full_ = true;
    return false;
  }
  const double pace = rate_.pace(rtt_.smooth_delay_ns(), rtt_.base_ns());
  const double rate = pace_ > 0 && (pace <= 0 || pace_ < pace) ? pace_ : pace;
  if (rate != pacer_.rate()) pacer_.set_rate(rate, now_ns);
  if (!pacer_.allowed(now_ns)) return false;
  const SendBuffer::Piece piece = out_[channel].next(payload_ - wire::kFlowOffsetBytes);
  path_ = paths_.next(sent_, now_ns);
  if (!data_in_doubt()) doubt_since_ns_ = now_ns;
  send_piece(number, now_ns, channel, piece, header, payload);
  out_[channel].sent(piece);
  // Nothing more leaves before something has come; or hardly anything would be answered if this one were
  // lost.
  if (!may_send() || channel_with_data() == out_.size() || window_is_small())
    header.flags = wire::kDatagramAsks;
  paths_.took(header.length + options_.around);
  pacer_.spent(header.length + options_.around);
  turn_ = (channel + 1) % out_.size();
  return true;
}

void DatagramFlow::send_piece(std::uint64_t number, std::int64_t now_ns, std::size_t channel,
                              const SendBuffer::Piece& piece, wire::DatagramHeader& header,
                              std::byte* payload) {
  header.type = static_cast<std::uint8_t>(FlowType::data);
  header.own16 = static_cast<std::uint16_t>(channel);
  header.length = static_cast<std::uint16_t>(wire::kFlowOffsetBytes + piece.length);
  std::memcpy(payload, &piece.offset, sizeof piece.offset);
  static_assert(sizeof piece.offset == wire::kFlowOffsetBytes);
  out_[channel].get(piece, payload + wire::kFlowOffsetBytes);
  statistics_.bytes_sent += piece.length;
  if (piece.again) statistics_.bytes_sent_again += piece.length;
  sent_.sent({.number = number,
              .sent_ns = now_ns,
              .offset = piece.offset,
              .length = static_cast<std::uint32_t>(piece.length),
              .bytes = static_cast<std::uint32_t>(header.length + options_.around),
              .channel = static_cast<std::uint16_t>(channel),
              .path = static_cast<std::uint8_t>(path_)});
}

// The oldest bytes that nobody has heard of, if there are any: they are what is missing most likely. By
// another path, if there is one.
void DatagramFlow::make_probe(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header,
                              std::byte* payload) {
  probe_due_ = false;
  probed_ = number;
  header.flags = wire::kDatagramAsks;
  if (sent_.full()) {
    ++statistics_.given_up;
    sent_.give_up_oldest([this](const SentPacket& packet) { on_lost(packet); });
  }
  const SentPacket* const oldest = sent_.oldest();
  // What has left last may have met a dead path; or its answer has, and the others are dead.
  const auto path = [&] {
    if (missed_ > 1) return paths_.again(now_ns);
    return paths_.beside(oldest != nullptr ? oldest->path : kMostPaths, now_ns);
  };
  if (size_once_ > 0 || size_tries_ > 0) {
    only_asks_ = false;
    path_ = path();
    header.length = static_cast<std::uint16_t>(size_once_ > 0 ? std::exchange(size_once_, 0) : size_to_try());
    std::memset(payload, 0, header.length);  // what fills it says nothing
    return make_empty(number, now_ns, header, false);
  }
  if (std::exchange(only_asks_, false) && oldest != nullptr) {
    path_ = oldest->path;
    return make_empty(number, now_ns, header, false);
  }
  path_ = path();
  if (oldest != nullptr && oldest->length > 0) {
    const std::size_t most = payload_ - wire::kFlowOffsetBytes;
    const SendBuffer& buffer = out_[oldest->channel];
    const std::uint64_t skip = buffer.arrived() > oldest->offset ? buffer.arrived() - oldest->offset : 0;
    if (skip < oldest->length) {
      send_piece(number, now_ns, oldest->channel,
                 {oldest->offset + skip, std::min<std::size_t>(most, oldest->length - skip), true}, header,
                 payload);
      return;
    }
  }
  make_empty(number, now_ns, header, false);
}

std::size_t DatagramFlow::size_to_try() {
  const std::size_t n = size_tries_++;
  if (n <= kFullTries) return payload_;
  if (size_answered_ > 0) return std::min(payload_, size_answered_);
  return std::min(payload_, kSizesTried[std::min(n - kFullTries, kSizesTried.size()) - 1]);
}

void DatagramFlow::ask_with_size(std::size_t n) {
  static_assert(kSizes == kSizesTried.size() + 1);
  ask();
  if (n == 0) {
    size_from_ = sent_.next_number();
    size_seen_ = 0;
  }
  size_once_ = n == 0 ? payload_ : std::min(payload_, kSizesTried[n - 1]);
}

void DatagramFlow::make_empty(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header,
                              bool trial) {
  header.type = static_cast<std::uint8_t>(FlowType::probe);
  sent_.sent({.number = number,
              .sent_ns = now_ns,
              .bytes = static_cast<std::uint32_t>(header.length + options_.around),
              .path = static_cast<std::uint8_t>(path_),
              .trial = trial});
}

// Beside what is said anyway: a flow that has nothing to say looks for no paths.
bool DatagramFlow::make_trial(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header) {
  if (!stirred_ || !paths_.several()) return false;
  const auto path = sent_.full() ? std::nullopt : paths_.trial(sent_, now_ns);
  stirred_ = path.has_value();
  if (!path) return false;
  path_ = *path;
  ++statistics_.trials;
  header.flags = wire::kDatagramAsks;
  make_empty(number, now_ns, header, true);
  return true;
}

void DatagramFlow::make_acknowledgement(std::int64_t now_ns, wire::DatagramHeader& header,
                                        std::byte* payload) {
  wire::Acknowledgement ack;
  arrivals_.tell(now_ns, ack);
  ack.window = options_.window;
  ack.n_limits = in_.size();
  for (std::size_t c = 0; c < in_.size(); ++c) ack.limits[c] = told_limit_[c] = in_[c].limit();
  header.type = static_cast<std::uint8_t>(FlowType::acknowledgement);
  header.length = static_cast<std::uint16_t>(encode(ack, payload));
  ++statistics_.acknowledgements_sent;
}

void DatagramFlow::not_sent(std::uint64_t number) {
  sent_.refused(number, [this](const SentPacket& packet) {
    ++statistics_.refused;
    on_lost(packet);
  });
}

void DatagramFlow::on_lost(const SentPacket& packet) {
  if (packet.length > 0) out_[packet.channel].on_lost(packet.offset, packet.length);
}

// --- what comes ---

void DatagramFlow::on_datagram(const wire::DatagramHeader& header, std::span<const std::byte> payload,
                               bool marked, std::int64_t now_ns, std::int64_t waited_ns) {
  if (marked) arrivals_.marked();
  switch (static_cast<FlowType>(header.type)) {
    case FlowType::data: {
      const std::uint64_t before = statistics_.no_room + statistics_.too_scattered + statistics_.malformed;
      on_data(header, payload);
      // What was not kept has not come.
      if (statistics_.no_room + statistics_.too_scattered + statistics_.malformed == before)
        arrivals_.came(header.number, (header.flags & wire::kDatagramAsks) != 0, now_ns - waited_ns, now_ns);
      return;
    }
    case FlowType::probe:
      arrivals_.came(header.number, true, now_ns - waited_ns, now_ns);
      arrivals_.tell_now();
      asked_again_ = true;
      return;
    case FlowType::acknowledgement: {
      wire::Acknowledgement ack;
      if (decode(payload, ack) != nullptr || ack.highest() >= sent_.next_number() ||
          ack.n_limits != out_.size())
        ++statistics_.malformed;
      else
        on_acknowledgement(header, ack, now_ns, now_ns - waited_ns);
      arrivals_.passed(header.number);
      return;
    }
  }
  ++statistics_.malformed;
}

void DatagramFlow::on_data(const wire::DatagramHeader& header, std::span<const std::byte> payload) {
  if (header.own16 >= in_.size() || payload.size() <= wire::kFlowOffsetBytes) {
    ++statistics_.malformed;
    return;
  }
  ReceiveBuffer& buffer = in_[header.own16];
  std::uint64_t offset = 0;
  std::memcpy(&offset, payload.data(), sizeof offset);
  switch (buffer.take(offset, payload.subspan(wire::kFlowOffsetBytes))) {
    case ReceiveBuffer::Result::kept:
      if (buffer.readable().empty()) ++statistics_.early;
      break;
    case ReceiveBuffer::Result::known:
      ++statistics_.known;
      arrivals_.tell_now();  // its sender does not know
      asked_again_ = true;
      break;
    case ReceiveBuffer::Result::no_room:
      ++statistics_.no_room;
      break;
    case ReceiveBuffer::Result::too_scattered:
      ++statistics_.too_scattered;
      break;
  }
}

void DatagramFlow::on_acknowledgement(const wire::DatagramHeader& header, const wire::Acknowledgement& ack,
                                      std::int64_t now_ns, std::int64_t came_ns) {
  double bytes = 0;
  bool awaited = false;
  std::int64_t sample_ns = 0;
  std::size_t sampled = kMostPaths;  // by which path
  std::size_t size = 0;              // of the largest that was to find it out
  sent_.acknowledge(ack, [&](const SentPacket& packet, bool was_lost) {
    bytes += packet.bytes;
    awaited = awaited || !packet.trial;
    if (packet.length == 0 && packet.number >= size_from_)
      size = std::max(size, packet.bytes - options_.around);
    if (was_lost) ++statistics_.arrived_after_all;
    const std::int64_t trip_ns = std::max<std::int64_t>(1, came_ns - packet.sent_ns);
    // Of what has left before a probe an answer may have come before the probe's, and been lost.
    const bool first_answer = ack.highest() < probed_ || packet.number >= probed_;
    paths_.arrived(packet.path, packet.bytes, first_answer ? trip_ns : PathChooser::kNoTrip, now_ns);
    if (packet.number == ack.highest()) {
      sample_ns = trip_ns;
      sampled = packet.path;
    }
    if (packet.length > 0) out_[packet.channel].on_arrived(packet.offset, packet.length);
  });
  // Trials of paths are smaller.
  if (size_tries_ == 0 && size >= wire::kMostAckBytes) size_seen_ = std::max(size_seen_, size);
  const std::int64_t held_ns = std::int64_t{ack.held_us} * 1000;
  paths_.heard(sampled, held_ns, now_ns);
  if (sample_ns > 0) rtt_.sample(sample_ns - paths_.detour_ns(sampled), held_ns, now_ns);
  for (std::size_t c = 0; c < out_.size(); ++c) out_[c].on_limit(ack.limits[c]);
  if (header.number >= newest_ack_) {
    newest_ack_ = header.number + 1;
    other_window_ = ack.window;
    if (ack.marked != other_marked_) {
      statistics_.marks += ack.marked - other_marked_;
      other_marked_ = ack.marked;
      rate_.on_marked(rtt_.smoothed_ns(), now_ns);
    }
  }
  only_trials_ = bytes > 0 && !awaited;
  if (awaited) {
    missed_ = 0;
    probe_due_ = probed_early_ = only_asks_ = false;
    waiting_since_ns_ = now_ns;
  }
  if (bytes > 0) {
    look_at_size(size, now_ns);
    share_queue();
    const bool limited = std::exchange(window_was_full_, false);
    cause_.arrived(bytes / static_cast<double>(payload_ + options_.around), rtt_.queue_ns(), rtt_.more_ns());
    rate_.on_acknowledged(bytes, rtt_, rtt_.latest_ns() + now_ns - came_ns, limited, now_ns);
  }
  find_lost(now_ns);
}

void DatagramFlow::look_at_size(std::size_t arrived, std::int64_t now_ns) {
  if (size_tries_ > 0 && arrived > 0) {
    const bool sure = arrived >= payload_ || size_answered_ > 0;
    ask_for_size();
    if (sure) {
      size_tries_ = 0;
      probe_due_ = false;
      if (arrived < payload_) set_payload(arrived);
    } else {
      size_answered_ = arrived;  // nothing at all may have passed while larger ones were tried
    }
  }
  const std::uint64_t before = std::exchange(arrived_bytes_, bytes_arrived());
  if (arrived_bytes_ != before || !data_in_doubt()) {
    doubt_since_ns_ = now_ns;
  } else if (now_ns - doubt_since_ns_ > std::max(kDoubtNs, kDoubtTrips * rtt_.smoothed_ns())) {
    doubt_since_ns_ = now_ns;
    ask_for_size();
  }
}

// Some have left and not arrived.
bool DatagramFlow::data_in_doubt() const {
  return std::ranges::any_of(out_,
                             [](const SendBuffer& b) { return b.written() - b.never_sent() > b.arrived(); });
}

void DatagramFlow::find_lost(std::int64_t now_ns) {
  double part = 0;
  unsigned n = 0;
  std::bitset<kMostPaths> seen;
  const auto lost = [&](const SentPacket& packet) {
    ++(sent_.overtaken(packet) ? statistics_.lost_by_gap : statistics_.lost_by_silence);
    if (!seen.test(packet.path)) part += paths_.share(packet.path);
    seen.set(packet.path);
    ++n;
    // Nothing by others of late either: the other end may be busy.
    const bool others = missed_ == 0 && 2 * (now_ns - waiting_since_ns_) <= now_ns - packet.sent_ns;
    if (others || sent_.overtaken(packet))
      paths_.lost(packet.path, now_ns);
    else
      paths_.missed(packet.path);
    on_lost(packet);
  };
  sent_.find_lost([this](std::size_t path) -> const RoundTrip& { return trip(path); }, Arrivals::kHoldNs,
                  now_ns, lost);
  if (n == 0) return;
  const bool first = cause_.lost(n, rtt_.queue_ns(), rtt_.smoothed_ns(), now_ns);
  // Of several paths one may lose while another's queue is full.
  if (cause_.full() || paths_.several()) {
    rate_.on_lost(rtt_.smoothed_ns(), now_ns, part);
  } else if (first) {
    ++statistics_.lost_alike;
    rate_.on_lost_alike();
  }
}

// --- time ---

std::int64_t DatagramFlow::timeout_at() const {
  // Trials of paths may have been answered, and what asks for the size be lost.
  const bool waits = waits_for_credit() || (size_tries_ > 0 && !sent_.any_awaited());
  if (!sent_.any_awaited() && !waits) return SentPackets::kNever;
  // From when something was heard last, or sent first since: a long stream of sendings puts nothing off.
  const std::int64_t since = waits || missed_ > 0 ? std::max(waiting_since_ns_, sent_.last_sent_ns())
                                                  : std::max(waiting_since_ns_, sent_.oldest()->sent_ns);
  const RoundTrip& asked = sent_.on_their_way() > 0 ? trip(sent_.oldest()->path) : rtt_;
  return since + (asked.known() ? asked : rtt_).timeout_ns(missed_, Arrivals::kHoldNs);
}

std::int64_t DatagramFlow::early_probe_at() const {
  if (probed_early_ || missed_ > 0 || !rtt_.known() || !sent_.any_awaited()) return SentPackets::kNever;
  if (channel_with_data() < out_.size() && may_send()) return SentPackets::kNever;
  const std::int64_t way_ns =
      few_on_their_way() ? rtt_.base_ns() : std::max(rtt_.base_ns(), trip(sent_.oldest()->path).latest_ns());
  return std::max(sent_.last_sent_ns(), waiting_since_ns_) + std::max(2 * way_ns, kLeastEarlyNs);
}

void DatagramFlow::on_time(std::int64_t now_ns) {
  if (now_ns >= sent_.lost_at_ns()) find_lost(now_ns);
  if (!probe_due_ && now_ns >= early_probe_at()) {
    ++statistics_.early_probes;
    probe_due_ = probed_early_ = true;
    only_asks_ = !few_on_their_way();
  }
  if (probe_due_ || now_ns < timeout_at()) return;
  ++statistics_.timeouts;
  if (waits_for_credit()) ++statistics_.credit_waits;
  probe_due_ = true;
  waiting_since_ns_ = now_ns;
  if (++missed_ % kSilence == 0) {
    ++statistics_.silences;
    rate_.on_silence();
  }
}

std::int64_t DatagramFlow::next_time(std::int64_t now_ns) const {
  if (probe_due_ || (acknowledgement_due(now_ns) && arrivals_.any())) return now_ns;
  std::int64_t at = std::min({timeout_at(), early_probe_at(), sent_.lost_at_ns(), arrivals_.due_ns()});
  if (may_send() && channel_with_data() < out_.size())
    at = std::min(at, std::max(now_ns, pacer_.next(now_ns)));
  return at;
}

}  // namespace talweg::protocol
