#include "protocol/bounded/flight.h"

#include <algorithm>
#include <utility>

#include "wire/bounded.h"

namespace talweg::protocol {

namespace {

// Timeouts in a row after which nothing is known of the way any more.
constexpr unsigned kSilentTimeouts = 3;
// The weight of one packet in the average of losses.
constexpr double kOnePacket = 1.0 / 512;

}  // namespace

Flight::Flight(const FlightOptions& options)
    : options_(options),
      sent_(options.packets),
      paths_(options.paths),
      rtt_(options.rate.wall_ns),
      rate_(options.rate, static_cast<double>(options.datagram)),
      other_credit_(options.other_credit) {}

// One datagram may always be on its way, however small a window is; and no second one until the way has been
// seen, before all the others' queues are in it.
Flight::Window Flight::window(std::size_t more) const {
  const std::uint64_t bytes = sent_.bytes_on_their_way() + more;
  if (bytes == 0) return Window::open;
  if (options_.rate.enabled && !rtt_.known() && missed_ == 0) return Window::rate_full;
  if (bytes + options_.datagram > other_credit_) return Window::no_credit;
  return static_cast<double>(bytes + options_.datagram) <= rate_.window() ? Window::open : Window::rate_full;
}

bool Flight::allowed(std::int64_t now_ns) {
  if (const Window is = window(); is != Window::open || sent_.full()) {
    if (is == Window::no_credit) ++counters_.credit_waits;
    if (is == Window::rate_full) {
      ++counters_.rate_waits;
      window_was_full_ = true;
    }
    return false;
  }
  const double pace = rate_.pace(rtt_.smooth_delay_ns(), rtt_.base_ns());
  if (pace != pacer_.rate()) pacer_.set_rate(pace, now_ns);
  if (!pacer_.allowed(now_ns)) return false;
  path_ = paths_.next(sent_, now_ns);
  return true;
}

bool Flight::trial(std::int64_t now_ns) {
  if (!paths_.several() || sent_.full()) return false;
  const auto path = paths_.trial(sent_, now_ns);
  if (!path) return false;
  path_ = *path;
  trial_ = true;
  ++counters_.trials;
  return true;
}

void Flight::sent(std::uint64_t number, std::size_t bytes, std::int64_t now_ns) {
  if (!sent_.any_awaited()) awaited_ns_ = now_ns;
  sent_.sent({.number = number,
              .sent_ns = now_ns,
              .bytes = static_cast<std::uint32_t>(bytes),
              .path = static_cast<std::uint8_t>(path_),
              .trial = trial_});
  if (!std::exchange(trial_, false)) paths_.took(bytes);
  pacer_.spent(bytes);
  ++counters_.sent;
}

void Flight::on_fate(bool lost, std::size_t path, std::int64_t now_ns) {
  loss_ += ((lost ? 1.0 : 0.0) - loss_) * kOnePacket;
  ++(lost ? counters_.lost : counters_.arrived);
  if (!lost || loss_ <= kHeavyLoss) return;
  ++counters_.heavy_losses;
  rate_.on_lost(rtt_.smoothed_ns(), now_ns, paths_.share(path));
}

void Flight::find_lost(std::int64_t now_ns) {
  sent_.find_lost([this](std::size_t path) -> const RoundTrip& { return trip(path); }, Arrivals::kHoldNs,
                  now_ns,
                  [&](const SentPacket& packet) {
                    on_fate(true, packet.path, now_ns);
                    // Nothing by others of late either: the other node may be busy.
                    const bool others = 2 * (now_ns - heard_ns_) <= now_ns - packet.sent_ns;
                    if (others || sent_.overtaken(packet))
                      paths_.lost(packet.path, now_ns);
                    else
                      paths_.missed(packet.path);
                  });
}

void Flight::on_acknowledgement(std::span<const std::byte> payload, std::int64_t came_ns,
                                std::int64_t now_ns) {
  wire::Acknowledgement ack;
  if (decode(payload, ack) != nullptr || ack.highest() >= sent_.next_number() || ack.n_limits != 0) {
    ++counters_.malformed;
    return;
  }
  double bytes = 0;
  std::int64_t sample_ns = 0;
  std::size_t sampled = kMostPaths;  // by which path
  sent_.acknowledge(ack, [&](const SentPacket& packet, bool was_lost) {
    bytes += packet.bytes;
    if (!was_lost) on_fate(false, packet.path, now_ns);
    if (was_lost) ++counters_.arrived_after_all;
    const std::int64_t trip_ns = std::max<std::int64_t>(1, came_ns - packet.sent_ns);
    paths_.arrived(packet.path, packet.bytes, trip_ns, now_ns);
    if (packet.number == ack.highest()) {
      sample_ns = trip_ns;
      sampled = packet.path;
    }
  });
  const std::int64_t held_ns = std::int64_t{ack.held_us} * 1000;
  paths_.heard(sampled, held_ns, now_ns);
  if (sample_ns > 0) rtt_.sample(sample_ns - paths_.detour_ns(sampled), held_ns, now_ns);
  // One that was overtaken says nothing new of these.
  if (ack.highest() >= newest_credit_) {
    newest_credit_ = ack.highest();
    other_credit_ = ack.window;
    if (ack.marked > other_marked_) {
      counters_.marks += ack.marked - other_marked_;
      other_marked_ = ack.marked;
      rate_.on_marked(rtt_.smoothed_ns(), now_ns);
    }
  }
  if (bytes > 0) {
    if (first_window_ == 0)
      first_window_ = std::min(rate_.window(), options_.rate.first_window);
    else
      arrived_bytes_ += bytes;
    missed_ = 0;
    heard_ns_ = now_ns;
    rate_.on_acknowledged(bytes, rtt_, rtt_.latest_ns() + now_ns - came_ns,
                          std::exchange(window_was_full_, false), now_ns);
  }
  news_ = true;
}

void Flight::received(std::uint64_t number, bool asks, bool marked, std::int64_t came_ns,
                      std::int64_t now_ns) {
  if (marked) arrivals_.marked();
  arrivals_.came(number, asks, came_ns, now_ns);
}

void Flight::acknowledge(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload) {
  wire::Acknowledgement ack;
  arrivals_.tell(now_ns, ack);
  ack.window = options_.credit;
  header = {};
  header.type = static_cast<std::uint8_t>(wire::FlowType::acknowledgement);
  header.service = wire::kControlClass;
  header.length = static_cast<std::uint16_t>(encode(ack, payload));
}

std::int64_t Flight::timeout_at() const {
  if (!sent_.any_awaited()) return SentPackets::kNever;
  const RoundTrip& asked = trip(sent_.oldest()->path);
  std::int64_t wait_ns = (asked.known() ? asked : rtt_).timeout_ns(missed_, Arrivals::kHoldNs);
  // Datagrams that left alone had no queue before them, which all nodes' first windows together are.
  if (arrived_bytes_ < first_window_) wait_ns = std::max(wait_ns, RoundTrip::kFirstTimeoutNs);
  return std::max(heard_ns_, awaited_ns_) + wait_ns;
}

// Nobody sends anything again for it, so nothing would ever be heard of the last ones of a pass.
void Flight::on_time(std::int64_t now_ns) {
  // After all acknowledgements that have come: where this node had a pause, one says what another does not.
  if (std::exchange(news_, false) || now_ns >= sent_.lost_at_ns()) find_lost(now_ns);
  if (now_ns < timeout_at()) return;
  ++counters_.timeouts;
  heard_ns_ = now_ns;
  // The other node may be busy: it says nothing of one path.
  paths_.silence();
  while (sent_.on_their_way() > 0)
    sent_.give_up_oldest([this](const SentPacket& packet) { paths_.missed(packet.path); });
  if (++missed_ % kSilentTimeouts == 0) rate_.on_silence();
}

std::int64_t Flight::next_time_ns(std::int64_t now_ns, bool wants_to_send) const {
  if (news_ || acknowledgement_due(now_ns)) return now_ns;
  std::int64_t at = std::min({timeout_at(), sent_.lost_at_ns(), arrivals_.due_ns()});
  if (wants_to_send && window() == Window::open && !sent_.full())
    at = std::min(at, std::max(now_ns, pacer_.next(now_ns)));
  return at;
}

}  // namespace talweg::protocol
