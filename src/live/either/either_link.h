// EitherLink: to a rank of another host, over TCP or in datagrams, whichever is quicker (transport_choice.h).
// Each end chooses for what it sends.
//
// A change of ways keeps the order of frames. The sender holds back what is new until all that went the old
// way has arrived on the other machine, and only then goes the new one; and the receiver, before it hands
// over the first frame of another way, hands over all that has come on the one before. If the old way has not
// brought everything in kPatienceNs, the change is put off.
//
// Where datagrams do not pass, because a firewall drops them, frames stay with TCP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "live/either/transport_choice.h"
#include "live/join/connect.h"
#include "live/link.h"
#include "live/loop/event_loop.h"
#include "live/tcp/tcp_link.h"
#include "live/udp/udp_link.h"

namespace talweg::live {

class EitherLink : public Link, private Watcher {
 public:
  static constexpr std::int64_t kPatienceNs = 2'000'000'000;

  // The last of the connection's streams, of which there are two at least, is the lifeline of the datagrams.
  // `own`: this one's seat. Throws Error{system}.
  EitherLink(Connection connection, int own, const TcpOptions& tcp, const UdpLinkOptions& datagrams,
             EventLoop& loop, FrameHandler& handler);
  ~EitherLink() override;

  bool send(OutFrame frame) override;
  void flush() override;
  void check_host() override;
  void pace(double bytes_per_second) override;
  void cancel(std::uint32_t group, std::uint64_t run) override;
  bool unsent() const override;
  bool part() override;
  LinkStatistics statistics() const override;
  PeerStatistics measured() const override;

  // Frames that are sent from now on go this way; after send() or flush() the choice may say otherwise.
  Way way() const { return way_; }
  // How often it has changed.
  std::uint64_t turns() const { return turns_; }
  // For tests: `way` from now on, and no other.
  void keep_to(Way way);

 private:
  // What one of the ways brings, and what becomes of it.
  struct Side : FrameHandler {
    Side(EitherLink& link, Way own) : either(link), way(own) {}
    Place place(int peer, const wire::Header& header) override;
    void on_frame(int peer, const wire::Header& header, const std::byte* payload) override;
    void on_sent(std::uint32_t group, const protocol::Token& token) override;
    void on_peer_gone(int peer, std::optional<ErrorCode> failure, const std::string& why) override;
    EitherLink& either;
    const Way way;
  };

  bool on_ready(std::size_t which, bool readable, bool writable) override;
  Link& link(Way way);
  void comes_by(Way way);
  void drain(Link& link);
  void choose(std::int64_t now_ns);
  void turn(Way way, std::int64_t now_ns);
  bool arrived(Way way) const;
  void try_turn(std::int64_t now_ns);
  void release(Way way);
  void arm(bool on);

  EventLoop& loop_;
  Side sides_[2];
  UdpLink datagrams_;
  TcpLink tcp_;
  FileDescriptor timer_;
  EventLoop::Handle handle_ = 0;

  TransportChoice choice_;
  bool kept_ = false;
  std::int64_t chosen_ns_ = 0;  // when it was last looked at
  Way way_ = Way::tcp;
  std::uint64_t turns_ = 0;
  std::optional<Way> next_;  // all that went by way_ is to arrive first
  std::int64_t next_since_ns_ = 0;
  SendQueue held_;  // until then
  Way came_by_ = Way::tcp;
  bool catching_up_ = false;
  bool closing_ = false;
};

}  // namespace talweg::live
