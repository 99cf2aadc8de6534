#include "live/udp/udp_sender.h"

#include <fmt/format.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/traffic_class.h"

namespace talweg::live {

namespace {

template <class T>
std::size_t append_control(msghdr& header, int level, int type, const T& value) {
  const std::size_t at = header.msg_controllen;
  auto* c = reinterpret_cast<cmsghdr*>(static_cast<std::byte*>(header.msg_control) + at);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(c), &value, sizeof value);
  return at + CMSG_SPACE(sizeof value);
}

// Errors by which kernels and cards say that they cannot cut a message into datagrams.
bool means_no_offload(int error) {
  return error == EIO || error == EINVAL || error == ENOPROTOOPT || error == EOPNOTSUPP;
}

}  // namespace

std::string classes_refused(const UdpSendStatistics& statistics) {
  return fmt::format(
      "this host refuses DSCP and ECN of datagrams ({}): they travel in one class, without either, so that "
      "switches drop what they could mark and nothing overtakes; let the program set IP_TOS: a policy of "
      "this "
      "host, such as a firewall, refuses it",
      std::strerror(statistics.class_error));
}

UdpSender::UdpSender(const UdpSocket& socket, UdpSenderOptions options, SendCall send,
                     std::vector<UdpSocket> more)
    : socket_(socket),
      options_(std::move(options)),
      send_(send ? std::move(send)
                 : [](int fd, mmsghdr* messages,
                      unsigned n) { return ::sendmmsg(fd, messages, n, MSG_DONTWAIT); }),
      more_(more.empty() ? more_paths(socket, options_.paths) : std::move(more)),
      arena_(std::make_unique_for_overwrite<std::byte[]>(kArenaBytes)) {}

UdpSender::Destination UdpSender::add(const UdpAddress& address, std::size_t path) {
  if (!removed_.empty()) {
    const Destination to = removed_.back();
    removed_.pop_back();
    destinations_[to].path = path;
    change(to, address);
    return to;
  }
  destinations_.push_back({address, socket_.path_mtu(address), options_.offload, true, path});
  return destinations_.size() - 1;
}

void UdpSender::remove(Destination to) {
  flush();
  removed_.push_back(to);
}

void UdpSender::change(Destination to, const UdpAddress& address) {
  destinations_[to] = {address, socket_.path_mtu(address), options_.offload, true, destinations_[to].path};
}

std::size_t UdpSender::least_mtu(std::span<const Destination> of) const {
  std::size_t least = 0;
  for (const Destination to : of)
    if (const std::size_t known = mtu(to); known > 0 && (least == 0 || known < least)) least = known;
  return least;
}

std::byte* UdpSender::place(Destination to, std::uint8_t service, std::size_t most) {
  if (arena_end_ + most > kArenaBytes || first_ + groups_ == kGroups) return nullptr;
  place_to_ = to;
  place_service_ = service;
  return arena_.get() + arena_end_;
}

void UdpSender::placed(std::size_t bytes) {
  if (bytes == 0) return;
  Group* last = groups_ > 0 ? &group_[first_ + groups_ - 1] : nullptr;
  const bool joins = last != nullptr && !last->closed && last->to == place_to_ &&
                     last->service == place_service_ && bytes <= last->segment && last->count < kSegments &&
                     last->bytes + bytes <= kMessageBytes && destinations_[place_to_].offload;
  if (!joins) {
    open_group(place_to_, place_service_, bytes);
    return;
  }
  last->bytes += bytes;
  ++last->count;
  last->closed = bytes < last->segment;
  arena_end_ += bytes;
}

void UdpSender::open_group(Destination to, std::uint8_t service, std::size_t bytes) {
  group_[first_ + groups_++] = {to, service, false, arena_end_, bytes, bytes, 1};
  arena_end_ += bytes;
}

void UdpSender::message(std::size_t i, const Group& group, std::size_t begin, std::size_t bytes,
                        bool offload) {
  Peer& peer = destinations_[group.to];
  parts_[i] = {arena_.get() + begin, bytes};
  msghdr& header = messages_[i].msg_hdr;
  header = {};
  header.msg_name = peer.address.raw();
  header.msg_namelen = peer.address.bytes();
  header.msg_iov = &parts_[i];
  header.msg_iovlen = 1;
  header.msg_control = control_[i].bytes.data();
  // A message of one datagram is sent as it always was: some cards refuse offload of one.
  if (offload)
    header.msg_controllen =
        append_control(header, IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(group.segment));
  if (peer.classes && (i > 0 || class_error_ == 0)) {
    const int value = wire::traffic_class(group.service, options_.mark_priority);
    header.msg_controllen = peer.address.ipv6() ? append_control(header, IPPROTO_IPV6, IPV6_TCLASS, value)
                                                : append_control(header, IPPROTO_IP, IP_TOS, value);
  }
  if (header.msg_controllen == 0) header.msg_control = nullptr;
  message_datagrams_[i] = (bytes + group.segment - 1) / group.segment;
}

// The next messages from what waits, of one socket; how many.
std::size_t UdpSender::build() {
  std::size_t n = 0;
  for (std::size_t g = first_; g < first_ + groups_ && n < kMessages; ++g) {
    const Group& group = group_[g];
    if (&socket_of(group) != &socket_of(group_[first_])) break;
    if (group.count > 1 && destinations_[group.to].offload) {
      message(n++, group, group.begin, group.bytes, true);
      continue;
    }
    for (std::size_t at = 0; at < group.bytes && n < kMessages; at += group.segment)
      message(n++, group, group.begin + at, std::min(group.segment, group.bytes - at), false);
  }
  return n;
}

// So many of the messages that were built have left.
void UdpSender::took(std::size_t messages) {
  for (std::size_t i = 0; i < messages; ++i) {
    statistics_.datagrams += message_datagrams_[i];
    statistics_.bytes += parts_[i].iov_len;
    Group& group = group_[first_];
    Peer& peer = destinations_[group.to];
    const int refused = std::exchange(class_error_, 0);
    peer.class_refusals = refused != 0 ? peer.class_refusals + 1 : 0;
    if (peer.class_refusals == kClassRefusals) {
      peer.classes = false;
      statistics_.class_error = refused;
      ++statistics_.class_refused;
    }
    group.begin += parts_[i].iov_len;
    group.bytes -= parts_[i].iov_len;
    group.count -= message_datagrams_[i];
    if (group.bytes > 0) continue;
    ++first_;
    --groups_;
  }
}

void UdpSender::drop_first() {
  class_error_ = 0;  // it was not the class
  const std::size_t n = message_datagrams_[0];
  took(1);
  statistics_.datagrams -= n;
  statistics_.bytes -= parts_[0].iov_len;
}

// The first message could not be sent. False: the kernel has no room, everything stays as it is.
bool UdpSender::on_error(int error) {
  if (error == EINTR) return true;
  if (error == EAGAIN || error == EWOULDBLOCK) {
    ++statistics_.blocked;
    return false;
  }
  const Group& group = group_[first_];
  Peer& peer = destinations_[group.to];
  const bool offloaded = group.count > 1 && peer.offload;
  if (error == EMSGSIZE || (offloaded && error == EINVAL && peer.mtu > 0)) {
    // Some kernels say EINVAL where datagrams of an offloaded message are larger than the path takes.
    const std::size_t around = peer.address.ipv6() ? 48 : 28;
    const std::size_t mtu = socket_.path_mtu(peer.address);
    if (error == EMSGSIZE || (mtu > 0 && group.segment + around > mtu)) {
      // Where the kernel does not know it either, a quarter less is tried, down to what every path has to
      // carry.
      const std::size_t known = mtu > 0 && mtu < group.segment + around ? mtu : group.segment * 3 / 4;
      peer.mtu = std::max<std::size_t>(known, peer.address.ipv6() ? 1280 : 576);
      statistics_.too_large += message_datagrams_[0];
      drop_first();
      return true;
    }
  }
  if (offloaded && means_no_offload(error)) {
    peer.offload = false;
    ++statistics_.offload_refused;
    return true;
  }
  if (peer.classes && class_error_ == 0 && (error == EINVAL || error == ENOPROTOOPT || error == EPERM)) {
    class_error_ = error;
    return true;
  }
  // Nobody listens there yet, no route, a filter, a full queue: what a network does to datagrams.
  statistics_.dropped += message_datagrams_[0];
  drop_first();
  return true;
}

bool UdpSender::flush() {
  while (groups_ > 0) {
    const std::size_t n = build();
    ++statistics_.calls;
    const int sent = send_(socket_of(group_[first_]).fd(), messages_.data(), static_cast<unsigned>(n));
    if (sent > 0)
      took(static_cast<std::size_t>(sent));
    else if (!on_error(sent < 0 ? errno : EAGAIN))
      return false;
  }
  first_ = 0;
  arena_end_ = 0;
  return true;
}

}  // namespace talweg::live
