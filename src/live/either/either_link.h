// EitherLink: to a rank of another host, over TCP or in datagrams: whichever is quicker, or in datagrams
// wherever these pass (transport_choice.h). Each end chooses for what it sends.
//
// A change of ways keeps the order of frames. The sender holds back what is new until the other process has
// taken all that went the old way, and only then goes the new one: of datagrams it acknowledges that, over
// TCP it is asked. What is on the other machine alone does not do: a process that was stopped may find there
// what went over TCP, then in datagrams and then over TCP again, and nothing says where one ends. The
// receiver hands over what has come before it acknowledges it: nothing is left on the old way when the first
// frame comes on the new one. If the old way has not brought everything in TurnTimes::kPatienceNs, the change
// is put off; but not where datagrams do not pass any more.
//
// Where datagrams do not pass, because a firewall drops them, frames stay with TCP: before a change to them
// an answer must have come. If they stop passing while they carry frames, the link of datagrams brings what
// was on its way over its lifeline, and what follows goes over TCP. The log is told once (silent_ranks.h).
//
// The end of one way is not yet the end: the other one may have brought what was sent before, and is handed
// over first. Whoever has said goodbye over TCP, and was sending that way, has left in order. Where the
// connection of the datagrams alone is lost while frames go that way, nobody brings these: the link fails if
// TCP has not said more within the host timeout.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/either/silent_ranks.h"
#include "live/either/transport_choice.h"
#include "live/either/turn_times.h"
#include "live/join/connect.h"
#include "live/link.h"
#include "live/loop/event_loop.h"
#include "live/tcp/tcp_link.h"
#include "live/tcp/tcp_traffic.h"
#include "live/udp/udp_link.h"

namespace talweg::live {

struct EitherLinkOptions {
  Preference preference = Preference::the_quicker;
  std::shared_ptr<SilentRanks> silent;  // of all links of the process; null: none is told of
};

class EitherLink : public Link, private Watcher {
 public:
  // The last of the connection's streams, of which there are two at least, is the lifeline of the datagrams.
  // `own`: this one's seat. Throws Error{system}.
  EitherLink(Connection connection, int own, const EitherLinkOptions& options, const TcpOptions& tcp,
             const UdpLinkOptions& datagrams, EventLoop& loop, FrameHandler& handler);
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

  struct End {
    std::optional<ErrorCode> failure;
    std::string why;
  };
  static std::size_t index(Way way) { return static_cast<std::size_t>(way); }

  bool on_ready(std::size_t which, bool readable, bool writable) override;
  Link& link(Way way);
  void comes_by(Way way);
  void drain(Way way);
  void settle();
  void finish(const End& as);
  PeerStatistics carried_over_tcp();
  void found_silent(std::int64_t now_ns);
  void choose(std::int64_t now_ns);
  void turn(Way way, std::int64_t now_ns);
  bool taken(Way way) const;
  void on_turn_frame(const wire::Header& header);
  void answer();
  void on_answered();
  void try_turn(std::int64_t now_ns);
  void release(Way way);
  void look_again(std::int64_t in_ns);

  bool closing_ = true;  // being made, or destroyed
  const int own_;
  EventLoop& loop_;
  Side sides_[2];
  UdpLink datagrams_;
  TcpLink tcp_;
  FileDescriptor timer_;
  EventLoop::Handle handle_ = 0;
  const std::int64_t host_timeout_ns_;
  std::int64_t lost_ns_ = 0;  // since when datagrams have ended without TCP, though frames go that way

  TransportChoice choice_;
  std::shared_ptr<SilentRanks> silent_;
  PeerStatistics carried_;                // over TCP
  std::vector<TcpTraffic> carried_each_;  // by stream, when that was last looked at
  bool kept_ = false;
  bool found_silent_ = false;
  Way way_ = Way::tcp;
  std::uint64_t turns_ = 0;
  std::optional<Way> next_;                        // all that went by way_ is to be taken first
  std::uint64_t asked_turn_ = 0, taken_turn_ = 0;  // whether that is so over TCP, and what was answered
  std::optional<std::uint64_t> to_answer_;         // the newest question, while an answer waits to leave
  bool answering_ = false;                         // one does
  TurnTimes times_;
  SendQueue held_;  // until then
  Way came_by_ = Way::tcp;
  bool draining_ = false;
  std::optional<End> ends_[2];  // by way
};

}  // namespace talweg::live
