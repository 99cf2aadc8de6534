// UdpLink: to a rank of another host, with frames in datagrams (udp_end.h) beside the TCP connection that
// joining has left.
//
// The connection is the lifeline. Over it both ends say their ports and addresses and the secrets by which
// they seal, which are mixed with the handshake's where the group encrypts; its end is the end of the link;
// and whether the other machine answers is asked over it, as for TcpLink. Everything else goes in datagrams,
// all of it in the order in which it was sent.
//
// Where datagrams bring no answer, kMissed times in a row, they go over the lifeline as they are, behind
// their length in two bytes. So what was on its way when a firewall closed still arrives; passes() says that
// a better way should be taken for all else. Whoever gets one over the lifeline answers there, and sends
// nothing else so. An answer that comes as a datagram ends that: the other process was merely stopped, or the
// firewall has opened again. So one of each size that is tried at the beginning is sent as a datagram now and
// then, ever more rarely (try_times.h), and who gets one answers with one.
//
// The kernel does not go on sending for a process that has ended: part() is over only when the other side has
// taken everything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/join/connect.h"
#include "live/link.h"
#include "live/loop/event_loop.h"
#include "live/tcp/pulse.h"
#include "live/udp/try_times.h"
#include "live/udp/udp_end.h"
#include "wire/frame_reader.h"
#include "wire/frame_writer.h"

namespace talweg::live {

struct UdpLinkOptions {
  UdpOptions socket;
  UdpEndOptions end;
  std::int64_t host_timeout_ns = 15'000'000'000;
  // The log has been told that classes are refused: of all links that share it.
  std::shared_ptr<bool> told_of_classes = std::make_shared<bool>(false);
};

class UdpLink : public Link, private Watcher {
 public:
  // Of the lifeline so many bytes are read before others get their turn.
  static constexpr std::size_t kLifelineBudget = 64U << 10;

  // `own`: this one's seat. Uses the first of the connection's streams. Throws Error{system}.
  UdpLink(Connection connection, int own, const UdpLinkOptions& options, EventLoop& loop,
          FrameHandler& handler);
  ~UdpLink() override;

  bool send(OutFrame frame) override;
  void flush() override;
  void check_host() override;
  void pace(double bytes_per_second) override;
  void cancel(std::uint32_t group, std::uint64_t run) override;
  bool unsent() const override;
  bool part() override;
  LinkStatistics statistics() const override { return statistics_; }
  PeerStatistics measured() const override;

  // Datagrams have been answered by datagrams, and of late not many in a row have not.
  bool passes() const { return end_ && end_->answered_ns() != 0 && !carries(); }
  // They have had so long since the other side was there, or since they were answered last.
  bool unanswered_for(std::int64_t ns, std::int64_t now_ns) const {
    return confirmed_ns_ != 0 && now_ns - std::max(confirmed_ns_, answered_ns()) > ns;
  }
  // Asks the other side for a datagram, at the next flush().
  void ask() {
    if (end_) end_->flow().ask();
  }
  // When they last were; 0: never.
  std::int64_t answered_ns() const { return end_ ? end_->answered_ns() : 0; }
  // Hands over all that is there.
  void drain();
  // Ends it; the handler is told as of a goodbye.
  void abandon() {
    if (!gone()) lose(std::nullopt, {});
  }

 private:
  bool on_ready(std::size_t which, bool readable, bool writable) override;
  bool read_lifeline();
  void meet();
  bool take_carried();
  bool carry(std::int64_t now_ns);
  bool carries() const { return unanswered_ || asked_here_; }
  void try_datagrams(std::int64_t now_ns);
  bool receive(std::int64_t now_ns);
  void note_size(std::size_t before);
  bool work();
  bool hand_over();
  void fill();
  void arm(std::int64_t now_ns);
  void want_room(bool wanted);
  void note_paths();
  void note_classes() const;
  void lose(std::optional<ErrorCode> failure, const std::string& why);
  void taken(const OutFrame& frame);
  bool idle() const { return queue_.empty() && writer_.empty(); }

  // What both ends say first over the lifeline.
  struct Introduction {
    std::uint32_t magic = 0;
    std::uint16_t port = 0;
    std::uint8_t version = 0;
    std::uint8_t has_aes = 0;
    wire::Secret secret{};
    PathAddresses addresses{};  // of paths, beside that of its lifeline
  };
  static_assert(sizeof(Introduction) == 72);

  UdpLinkOptions options_;
  const int own_;
  EventLoop& loop_;
  FileDescriptor lifeline_;
  UdpAddress other_;  // of the lifeline
  std::optional<wire::SessionSecrets> session_;
  FileDescriptor timer_;
  std::vector<EventLoop::Handle> handles_;
  Introduction mine_, theirs_;
  std::size_t introduced_ = 0;       // bytes of theirs_ that have come
  std::optional<UdpSocket> socket_;  // until both have met
  std::optional<UdpEnd> end_;        // from then on
  std::int64_t confirmed_ns_ = 0;    // since when the other side is known to have met us, too; 0: it is not
  bool unanswered_ = false;          // datagrams from here, too often
  TryTimes tries_;                   // when one is to leave as a datagram nevertheless
  bool asked_for_size_ = false;      // since an answer came
  bool asked_here_ = false;          // what came last, and wants an answer, came over the lifeline
  std::vector<std::byte> to_carry_;  // over the lifeline: what is left of a datagram that has begun to leave
  std::vector<std::byte> carried_;   // and of what came there, what is not yet a whole one
  bool lifeline_ended_ = false;
  std::int64_t armed_ns_ = 0;  // for when the timer is set; 0: it is not
  bool told_of_paths_ = false;

  SendQueue queue_;
  wire::FrameWriter<OutFrame> writer_;
  wire::FrameReader reader_;
  double pace_ = 0;
  bool parting_ = false;
  bool said_goodbye_ = false;
  Pulse pulse_;
  LinkStatistics statistics_;
  double busy_seconds_ = 0;
  std::int64_t busy_since_ns_ = 0;
};

}  // namespace talweg::live
