#include "live/engine.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "live/tcp_traffic.h"

namespace talweg::live {

namespace {
constexpr std::uint64_t kWakeKey = ~0ULL;
constexpr std::uint64_t kProcessKey = 0xffff;  // in place of a stream's number
constexpr int kEventsAtOnce = 64;
// With all peers on this host, sockets only carry doorbells and deaths: looking at them every time would cost
// a system call for each look at the rings.
constexpr unsigned kSocketEvery = 64;
constexpr std::int64_t kGoodbyePatienceNs = 200'000'000;
}  // namespace

Engine::Engine(int rank, Mesh mesh, const EngineOptions& options, FrameHandler& handler)
    : rank_(rank),
      host_timeout_ns_(options.host_timeout_ns),
      handler_(handler),
      segment_(std::move(mesh.segment)),
      peers_(mesh.connections.size()),
      local_ranks_(mesh.local_ranks),
      epoll_(check(::epoll_create1(EPOLL_CLOEXEC), "creating an epoll instance")),
      wake_(check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "creating an eventfd")) {
  if (segment_) sender_ = std::make_unique<SharedSender>(*segment_);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event), "watching an eventfd");
  for (Connection& c : mesh.connections) {
    if (c.rank == rank_) continue;
    Peer& peer = peers_[static_cast<std::size_t>(c.rank)];
    peer.gone = false;
    if (c.local) {
      peer.shared = std::make_unique<SharedLink>(c.rank, *sender_, std::move(*c.segment), mesh.local_index,
                                                 c.local_index);
      shared_.push_back(c.rank);
    } else {
      ++remote_;
      peer.pulses.resize(c.streams.size());
    }
    // A child that a rank has forked holds its sockets open when it is dead.
    if (c.local && (peer.process = watch_process(c.streams[0]))) {
      event.events = EPOLLIN;
      event.data.u64 = static_cast<std::uint64_t>(c.rank) << 16 | kProcessKey;
      check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peer.process.get(), &event), "watching a process");
    }
    for (std::size_t s = 0; s < c.streams.size(); ++s) {
      peer.streams.push_back(std::make_unique<Stream>(std::move(c.streams[s]), c.rank, options.stream,
                                                      handler_, c.secrets.empty() ? nullptr : &c.secrets[s]));
      peer.polled_for_write.push_back(false);
      event.events = EPOLLIN;
      event.data.u64 = static_cast<std::uint64_t>(c.rank) << 16 | s;
      check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peer.streams.back()->fd(), &event),
            "watching a connection");
    }
  }
}

Engine::~Engine() = default;

bool Engine::send(int to, OutFrame frame) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  if (peer.gone) return true;
  if (!peer.dirty) {
    peer.dirty = true;
    dirty_.push_back(to);
  }
  const bool owned = frame.reported;
  if (peer.shared) return peer.shared->push(std::move(frame)) || owned;
  // Frames of one tree must stay in order: a tree has a stream.
  const std::size_t stream = frame.header.tree % peer.streams.size();
  peer.streams[stream]->push(std::move(frame));
  return owned;
}

void Engine::ring(Peer& peer) {
  OutFrame bell;
  bell.header = encode(wire::Wake{});
  peer.streams[0]->push(std::move(bell));
}

void Engine::watch(int p, std::size_t s) {
  Peer& peer = peers_[static_cast<std::size_t>(p)];
  Stream& stream = *peer.streams[s];
  if (!stream.open() || stream.wants_write() == peer.polled_for_write[s]) return;
  peer.polled_for_write[s] = stream.wants_write();
  epoll_event event{};
  event.events = EPOLLIN | (stream.wants_write() ? EPOLLOUT : 0U);
  event.data.u64 = static_cast<std::uint64_t>(p) << 16 | s;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream.fd(), &event);
}

void Engine::flush() {
  if (dirty_.empty()) return;
  // Orders our entries in the rings before the look at who sleeps, as prepare_sleep does the other way round.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // on_sent may lead to further sends, which make peers dirty again.
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    const int p = dirty_[i];
    Peer& peer = peers_[static_cast<std::size_t>(p)];
    peer.dirty = false;
    if (peer.gone) continue;
    if (peer.shared && peer.shared->must_wake()) ring(peer);
    for (std::size_t s = 0; s < peer.streams.size() && !peer.gone; ++s) {
      if (peer.streams[s]->idle()) continue;
      peer.streams[s]->flush();
      watch(p, s);
      check_gone(p);
    }
  }
  dirty_.clear();
  if (sender_) sender_->forget_last();
}

void Engine::check_gone(int p) {
  Peer& peer = peers_[static_cast<std::size_t>(p)];
  if (peer.gone) return;
  const bool open =
      std::any_of(peer.streams.begin(), peer.streams.end(), [](const auto& s) { return s->open(); });
  const bool failed = std::any_of(peer.streams.begin(), peer.streams.end(),
                                  [](const auto& s) { return !s->open() && !s->ended_orderly(); });
  // After a goodbye on one stream there may still be data on the others.
  if (!failed && open) return;
  peer.gone = true;
  for (auto& stream : peer.streams) stream->close();
  if (failed) return;
  handler_.on_peer_gone(p, std::nullopt, {});
  // What waits for it counts as sent, as what is sent to it from now on does: an operation that is not told
  // to fail would else wait for its deadline.
  if (peer.shared) peer.shared->forget(handler_);
  for (auto& stream : peer.streams) stream->forget();
}

void Engine::lose(int p, const std::string& why) {
  Peer& peer = peers_[static_cast<std::size_t>(p)];
  peer.gone = true;
  for (auto& stream : peer.streams) stream->close();
  handler_.on_peer_gone(p, ErrorCode::peer_failed, why);
}

// It may have said goodbye before; what it wrote is here already. A child that it forked may still hold its
// sockets, so that they do not end.
void Engine::on_process_end(int p) {
  Peer& peer = peers_[static_cast<std::size_t>(p)];
  peer.process.reset();
  while (!peer.shared->broken() && peer.shared->receive(handler_)) {
  }
  for (auto& stream : peer.streams) {
    while (stream->receive()) {
    }
    if (stream->said_goodbye()) stream->close();
  }
  check_gone(p);
  if (!peer.gone) lose(p, "its process has ended");
  // Groups without it go on, and need the blocks that it has not read.
  peer.shared->forget(handler_);
}

void Engine::check_hosts() {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    for (std::size_t s = 0; s < peer.pulses.size() && !peer.gone; ++s)
      if (peer.pulses[s].lost(peer.streams[s]->fd(), host_timeout_ns_))
        lose(static_cast<int>(p),
             fmt::format("its host has not answered for {} s", host_timeout_ns_ / 1'000'000'000));
  }
  flush();
}

bool Engine::poll_sockets() {
  std::array<epoll_event, kEventsAtOnce> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, 0);
  bool any = false;
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeKey) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto r = ::read(wake_.get(), &count, sizeof count);
      continue;
    }
    const int p = static_cast<int>(event.data.u64 >> 16);
    const auto s = static_cast<std::size_t>(event.data.u64 & 0xffff);
    Peer& peer = peers_[static_cast<std::size_t>(p)];
    if (s == kProcessKey) {
      if (peer.gone) {
        // While only its connection was broken it might still have read.
        peer.process.reset();
        peer.shared->forget(handler_);
      } else {
        on_process_end(p);
      }
      any = true;
      continue;
    }
    if (peer.gone) continue;
    if ((event.events & EPOLLOUT) != 0) {
      peer.streams[s]->on_writable();
      any = peer.streams[s]->flush() || any;
      watch(p, s);
    }
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 && peer.streams[s]->open()) {
      // What a rank of this host wrote into its ring before it died must be seen before its death is.
      if (peer.shared)
        while (!peer.shared->broken() && peer.shared->receive(handler_)) {
        }
      any = peer.streams[s]->receive() || any;
    }
    check_gone(p);
  }
  return any;
}

bool Engine::poll() {
  bool any = false;
  for (const int p : shared_) {
    Peer& peer = peers_[static_cast<std::size_t>(p)];
    if (peer.gone) continue;
    any = peer.shared->receive(handler_) || any;
    if (peer.shared->broken()) {
      peer.gone = true;
      for (auto& stream : peer.streams) stream->close();
      continue;
    }
    if (peer.shared->backlog() && peer.shared->flush(handler_)) {
      any = true;
      if (!peer.dirty) {
        peer.dirty = true;
        dirty_.push_back(p);
      }
    }
  }
  if (remote_ > 0 || (!any && ++idle_polls_ >= kSocketEvery)) {
    idle_polls_ = 0;
    any = poll_sockets() || any;
  }
  flush();
  return any;
}

bool Engine::prepare_sleep() {
  if (!segment_) return true;
  segment_->doorbell().sleeping.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int p : shared_) {
    const Peer& peer = peers_[static_cast<std::size_t>(p)];
    // Nobody rings when a ring or a block becomes free.
    if (peer.gone || (!peer.shared->something_arrived() && !peer.shared->backlog())) continue;
    segment_->doorbell().sleeping.store(0, std::memory_order_relaxed);
    return false;
  }
  idle_polls_ = kSocketEvery;  // whatever wakes us is on a socket
  return true;
}

void Engine::sleep(int ms) {
  epoll_event event;
  ::epoll_wait(epoll_.get(), &event, 1, ms);
  if (segment_) segment_->doorbell().sleeping.store(0, std::memory_order_relaxed);
}

void Engine::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

void Engine::cancel(std::uint32_t group, std::uint64_t run) {
  for (Peer& peer : peers_) {
    if (peer.shared) peer.shared->cancel(group, run, handler_);
    for (auto& stream : peer.streams) stream->cancel(group, run);
  }
}

bool Engine::unsent() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    if (peer.gone) return false;
    return (peer.shared && peer.shared->backlog()) ||
           std::any_of(peer.streams.begin(), peer.streams.end(), [](const auto& s) { return !s->idle(); });
  });
}

bool Engine::whole() const {
  for (std::size_t p = 0; p < peers_.size(); ++p)
    if (static_cast<int>(p) != rank_ && peers_[p].gone) return false;
  return true;
}

std::size_t Engine::lanes_to(int p) const {
  const Peer& peer = peers_[static_cast<std::size_t>(p)];
  return peer.shared ? 1 : peer.streams.size();
}

void Engine::say_goodbye() {
  const std::int64_t until = now_ns() + kGoodbyePatienceNs;
  for (const int p : shared_) {
    Peer& peer = peers_[static_cast<std::size_t>(p)];
    while (!peer.gone && peer.shared->backlog() && now_ns() < until) {
      if (!peer.shared->flush(handler_)) ::usleep(100);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (peer.shared->must_wake()) ring(peer);
    }
  }
  for (Peer& peer : peers_) {
    if (peer.gone) continue;
    for (auto& stream : peer.streams) {
      OutFrame frame;
      frame.header = encode(wire::Goodbye{});
      stream->push(std::move(frame));
    }
  }
  for (Peer& peer : peers_) {
    for (auto& stream : peer.streams) {
      while (!stream->deaf() && !stream->idle() && now_ns() < until) {
        stream->on_writable();
        if (!stream->flush()) ::usleep(1000);
      }
    }
  }
  linger(until);
}

// Closing a TCP socket that has something unread resets the connection, and what the other side has not yet
// been sent is lost: our last words. So what comes is thrown away until they have arrived.
void Engine::linger(std::int64_t until_ns) {
  std::array<std::byte, 4096> ignored;
  for (Peer& peer : peers_) {
    if (peer.shared) continue;
    for (auto& stream : peer.streams)
      if (stream->open()) ::shutdown(stream->fd(), SHUT_WR);
  }
  for (Peer& peer : peers_) {
    if (peer.shared) continue;
    for (auto& stream : peer.streams) {
      while (!stream->deaf()) {
        while (::recv(stream->fd(), ignored.data(), ignored.size(), MSG_DONTWAIT) > 0) {
        }
        int unacknowledged = 0;
        if (::ioctl(stream->fd(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0) break;
        if (now_ns() >= until_ns) return;
        ::usleep(1000);
      }
    }
  }
}

EngineStatistics Engine::statistics() const {
  EngineStatistics s;
  for (const Peer& peer : peers_) {
    for (const auto& stream : peer.streams) {
      s.bytes_sent += stream->bytes_sent();
      s.bytes_received += stream->bytes_received();
    }
    if (!peer.shared) continue;
    s.bytes_sent += peer.shared->bytes_sent();
    s.bytes_received += peer.shared->bytes_received();
  }
  if (segment_) s.shared_bytes = Segment::bytes_for(local_ranks_);
  return s;
}

std::vector<PeerStatistics> Engine::peer_statistics() const {
  std::vector<PeerStatistics> list;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Peer& peer = peers_[p];
    if (peer.gone) continue;
    PeerStatistics s;
    s.rank = static_cast<int>(p);
    for (const auto& stream : peer.streams) {
      tcp_info info{};
      socklen_t length = sizeof info;
      if (::getsockopt(stream->fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;  // a Unix socket
      s.retransmits += info.tcpi_total_retrans;
      s.round_trip_us = std::max(s.round_trip_us, info.tcpi_rtt);
      const TcpTraffic traffic = tcp_traffic(stream->fd());
      s.acked_bytes += traffic.acked_bytes;
      s.busy_seconds = std::max(s.busy_seconds, traffic.busy_seconds);
    }
    list.push_back(s);
  }
  return list;
}

}  // namespace talweg::live
