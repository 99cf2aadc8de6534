// Two ends of a link of any kind, in one thread.
#pragma once

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "live/either/either_link.h"
#include "live/link.h"
#include "live/shared/shared_link.h"
#include "live/tcp/tcp_link.h"
#include "live/udp/udp_link.h"

namespace talweg::live {

class Log : public FrameHandler {
 public:
  Place place(int, const wire::Header&) override { return {}; }
  void on_frame(int, const wire::Header& header, const std::byte* payload) override {
    frames.emplace_back(header.type, header.chunk);
    for (std::uint32_t i = 0; i < header.length; i += 997)
      EXPECT_EQ(payload[i], static_cast<std::byte>(header.chunk));
  }
  void on_sent(std::uint32_t, const protocol::Token& token) override { sent.push_back(token.piece); }
  void on_peer_gone(int, std::optional<ErrorCode> code, const std::string& reason) override {
    ++ends;
    failure = code;
    why = reason;
  }

  std::vector<std::pair<wire::FrameType, std::uint32_t>> frames;
  std::vector<std::uint32_t> sent;
  int ends = 0;
  std::optional<ErrorCode> failure;
  std::string why;
};

enum class Kind {
  one_stream,
  three_streams,
  shared,
  datagrams,
  either,
  turning,
  turning_encrypted,
  blocked,
  preferred,
  preferred_blocked,
  closing,
  narrow
};

inline void connect_over_tcp(int (&fds)[2]) {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), raw, length) + ::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), raw, &length), 0);
  fds[0] = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(fds[0], raw, length), 0);
  fds[1] = ::accept(listener.get(), nullptr, nullptr);
}

inline void stranger_sends_to_all() {
  const FileDescriptor stranger(::socket(AF_INET, SOCK_DGRAM, 0));
  for (int fd = 3; fd < 64; ++fd) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && address.sin_port != 0)
      ::sendto(stranger.get(), "?", 1, 0, reinterpret_cast<sockaddr*>(&address), length);
  }
}

// A firewall's way with datagrams.
inline int lost_on_the_way(int, mmsghdr* messages, unsigned n) {
  for (unsigned i = 0; i < n; ++i)
    for (std::size_t p = 0; p < messages[i].msg_hdr.msg_iovlen; ++p)
      messages[i].msg_len += static_cast<unsigned>(messages[i].msg_hdr.msg_iov[p].iov_len);
  return static_cast<int>(n);
}

// One that closes when so many messages have passed.
inline UdpSender::SendCall passes_at_first(int messages) {
  return [left = messages](int fd, mmsghdr* m, unsigned n) mutable {
    if (left <= 0) return lost_on_the_way(fd, m, n);
    const int sent = ::sendmmsg(fd, m, n, MSG_DONTWAIT);
    left -= std::max(sent, 0);
    return sent;
  };
}

class Links : public ::testing::TestWithParam<Kind> {
 protected:
  static constexpr std::int64_t kHostTimeoutNs = 200'000'000;
  static bool turning() { return GetParam() == Kind::turning || GetParam() == Kind::turning_encrypted; }
  static bool preferred() { return GetParam() >= Kind::preferred; }
  Links() {
    Connection to[2];
    const bool either = GetParam() >= Kind::either;
    const int streams = GetParam() == Kind::three_streams || either ? 3 : 1;
    for (int s = 0; s < streams; ++s) {
      int fds[2];
      // What TCP says of what has arrived is not what a socket within a machine says.
      if (either)
        connect_over_tcp(fds);
      else
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
      for (int side = 0; side < 2; ++side) to[side].streams.emplace_back(fds[side]);
      last_stream_ = fds[0];
      if (GetParam() != Kind::turning_encrypted) continue;
      wire::SessionSecrets secrets{wire::CipherKind::chacha20_poly1305, {}, {}};
      wire::fill_random(secrets.send);
      wire::fill_random(secrets.receive);
      to[0].secrets.push_back(secrets);
      std::swap(secrets.send, secrets.receive);
      to[1].secrets.push_back(secrets);
    }
    FileDescriptor files[2];
    for (int side = 0; side < 2; ++side) files[side] = Segment::create(2);
    for (int side = 0; side < 2; ++side) {
      Connection& c = to[side];
      c.rank = 1 - side;
      if (GetParam() == Kind::datagrams) {
        ends_[side] =
            std::make_unique<UdpLink>(std::move(c), side, UdpLinkOptions{}, loops_[side], logs_[side]);
        continue;
      }
      if (either) {
        UdpLinkOptions datagrams;
        datagrams.end.send = [this, side](int fd, mmsghdr* m, unsigned n) {
          return on_its_way_[side] ? on_its_way_[side](fd, m, n) : ::sendmmsg(fd, m, n, MSG_DONTWAIT);
        };
        if (GetParam() == Kind::blocked || GetParam() == Kind::preferred_blocked)
          datagrams.end.send = lost_on_the_way;
        if (GetParam() == Kind::turning_encrypted) datagrams.end.flow.paths = 4;
        if (GetParam() == Kind::closing) datagrams.end.send = passes_at_first(25);
        if (GetParam() == Kind::narrow) datagrams.end.most_payload = 500;  // fewer than a flow needs
        TcpOptions tcp;
        tcp.host_timeout_ns = kHostTimeoutNs;
        const EitherLinkOptions options{preferred() ? Preference::datagrams : Preference::the_quicker, {}};
        ends_[side] = std::make_unique<EitherLink>(std::move(c), side, options, tcp, datagrams, loops_[side],
                                                   logs_[side]);
        continue;
      }
      if (GetParam() != Kind::shared) {
        ends_[side] = std::make_unique<TcpLink>(std::move(c), TcpOptions{}, loops_[side], logs_[side]);
        continue;
      }
      c.local = true;
      c.local_index = 1 - side;
      c.segment.emplace(files[1 - side], 2);
      ends_[side] =
          std::make_unique<SharedLink>(std::move(c), std::make_shared<SharedSender>(Segment(files[side], 2)),
                                       side, loops_[side], logs_[side]);
    }
  }

  Link& from() { return *ends_[0]; }
  Link& to() { return *ends_[1]; }
  Log& sender() { return logs_[0]; }
  Log& receiver() { return logs_[1]; }

  void send(std::uint32_t chunk, std::uint32_t tree, std::size_t bytes, int priority = 0, int by = 0) {
    payloads_.emplace_back(bytes, static_cast<std::byte>(chunk));
    OutFrame frame;
    frame.header = encode(wire::CallId{}, wire::Chunk{true, tree, chunk, static_cast<std::uint32_t>(bytes)});
    frame.payload = payloads_.back().data();
    frame.token.piece = chunk;
    frame.priority = priority;
    frame.reported = false;
    if (ends_[by]->send(std::move(frame))) logs_[by].sent.push_back(chunk);
  }
  void announce(std::uint32_t chunk, std::uint32_t tree, int priority) {
    OutFrame frame;
    frame.header = encode(wire::CallId{}, wire::Announce{});
    frame.header.chunk = chunk;  // by which it is known here
    frame.header.tree = tree;
    frame.priority = priority;
    from().send(std::move(frame));
  }
  void leave(std::uint32_t group, int priority) {
    OutFrame frame;
    frame.header = encode(wire::Leave{group});
    frame.header.chunk = group;
    frame.priority = priority;
    from().send(std::move(frame));
  }
  // One end has a look at what is there. Now and then frames go another way, where there are two.
  void look(int side) {
    if (turning() && ends_[0] && ++looks_ % 32 == 0)
      dynamic_cast<EitherLink&>(*ends_[0]).keep_to(looks_ % 64 == 0 ? Way::tcp : Way::datagrams);
    ends_[side]->poll();
    loops_[side].poll();
    if (!ends_[side]->gone()) ends_[side]->flush();
  }
  void run() {
    for (int i = 0; i < 2000 || (from().unsent() && i < 200'000'000); ++i) look(i % 2);
    look(1);
    // What a kernel has taken is not unsent, and may wait for an acknowledgement.
    for (const std::int64_t until = now_ns() + 500'000'000;
         now_ns() < until && to().statistics().bytes_received < from().statistics().bytes_sent;)
      look(1);
  }

  unsigned looks_ = 0;
  EventLoop loops_[2];
  Log logs_[2];
  std::vector<std::vector<std::byte>> payloads_;
  std::unique_ptr<Link> ends_[2];
  int last_stream_ = -1;
  UdpSender::SendCall on_its_way_[2];  // of datagrams, by who sends; null: they pass
};

}  // namespace talweg::live
