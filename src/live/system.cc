#include "live/system.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "base/fail.h"

namespace talweg::live {

namespace {

constexpr int kBacklog = 4096;

[[noreturn]] void throw_errno(const std::string& what) {
  throw_error(ErrorCode::system, "{}: {}", what, std::strerror(errno));
}

sockaddr_in address_of(const Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(endpoint.port));
  if (inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr) != 1)
    refuse("\"{}\" is not an IPv4 address", endpoint.host);
  return address;
}

// Abstract name: the first byte of sun_path is 0 and the length says where it ends.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t n = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), n);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n)};
}

}  // namespace

int check(int result, const std::string& what) {
  if (result < 0) throw_errno(what);
  return result;
}

Mapping::Mapping(const FileDescriptor& file, std::size_t bytes) : bytes_(bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (p == MAP_FAILED) throw_errno(fmt::format("mapping {} bytes of shared memory", bytes));
  data_ = static_cast<std::byte*>(p);
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::string to_string(const Endpoint& endpoint) {
  return fmt::format("{}:{}", endpoint.host, endpoint.port);
}

std::string resolve_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int rc = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (rc != 0) throw_error(ErrorCode::system, "looking up host \"{}\": {}", host, ::gai_strerror(rc));
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(list->ai_addr)->sin_addr, text.data(), text.size());
  ::freeaddrinfo(list);
  return text.data();
}

FileDescriptor listen_tcp(const Endpoint& endpoint) {
  FileDescriptor fd(
      check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "creating a TCP socket"));
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const sockaddr_in address = address_of(endpoint);
  check(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
        fmt::format("binding to {}", to_string(endpoint)));
  check(::listen(fd.get(), kBacklog), fmt::format("listening on {}", to_string(endpoint)));
  return fd;
}

Endpoint local_endpoint(const FileDescriptor& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  check(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length),
        "reading a socket's address");
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return {text.data(), ntohs(address.sin_port)};
}

FileDescriptor connect_tcp(const Endpoint& endpoint, std::int64_t deadline_ns, bool listened) {
  const sockaddr_in address = address_of(endpoint);
  std::int64_t pause = kMillisecondNs;
  for (;;) {
    FileDescriptor fd(
        check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "creating a TCP socket"));
    int error = 0;
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) error = errno;
    if (error == EINPROGRESS) {
      if (!wait_ready(fd, true, deadline_ns)) {
        throw_error(ErrorCode::timeout, "connecting to {}: no answer before the deadline",
                    to_string(endpoint));
      }
      socklen_t length = sizeof error;
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) return fd;
    if (listened && (error == ECONNREFUSED || error == ECONNRESET))
      throw_error(ErrorCode::peer_failed, "connecting to {}: nobody listens any more", to_string(endpoint));
    // Refused and unreachable may only mean that the other side is not up yet; reset, that the listener of
    // one that was there before has just closed.
    const bool may_pass = error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
                          error == ETIMEDOUT || error == ECONNRESET;
    if (!may_pass || now_ns() + pause > deadline_ns)
      throw_error(may_pass ? ErrorCode::timeout : ErrorCode::system, "connecting to {}: {}",
                  to_string(endpoint), std::strerror(error));
    ::usleep(static_cast<useconds_t>(pause / 1000));
    pause = std::min(pause * 2, 100 * kMillisecondNs);
  }
}

FileDescriptor listen_unix(const std::string& name) {
  FileDescriptor fd(
      check(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "creating a Unix socket"));
  const auto [address, length] = abstract_address(name);
  check(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length),
        "binding the Unix socket " + name);
  check(::listen(fd.get(), kBacklog), "listening on the Unix socket " + name);
  return fd;
}

FileDescriptor connect_unix(const std::string& name) {
  FileDescriptor fd(check(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "creating a Unix socket"));
  const auto [address, length] = abstract_address(name);
  const int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length);
  if (rc < 0 && errno == ECONNREFUSED)
    throw_error(ErrorCode::peer_failed, "connecting to the Unix socket {}: nobody listens any more", name);
  check(rc, "connecting to the Unix socket " + name);
  return fd;
}

std::optional<std::uint32_t> user_at(const FileDescriptor& unix_socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(unix_socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer.uid;
}

FileDescriptor watch_process(const FileDescriptor& unix_socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(unix_socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0 ||
      peer.pid == ::getpid())
    return {};
  // By number, because glibc 2.36 declares it without extern "C".
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

void set_non_blocking(const FileDescriptor& fd) {
  const int flags = check(::fcntl(fd.get(), F_GETFL), "reading descriptor flags");
  check(::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK), "making a descriptor non-blocking");
}

void tune_tcp(const FileDescriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  keep_alive(socket, 2);
}

void keep_alive(const FileDescriptor& socket, int every_s) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, every_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, every_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, 120);
}

bool wait_ready(const FileDescriptor& fd, bool writable, std::int64_t deadline_ns) {
  for (;;) {
    const std::int64_t left = std::max<std::int64_t>(deadline_ns - now_ns(), 0);
    pollfd p{fd.get(), static_cast<short>(writable ? POLLOUT : POLLIN), 0};
    const auto ms = static_cast<int>(std::min<std::int64_t>(left / kMillisecondNs + 1, 1000));
    const int rc = ::poll(&p, 1, left == 0 ? 0 : ms);
    if (rc > 0) return true;
    if (rc < 0 && errno != EINTR) throw_errno("waiting for a socket");
    if (left == 0) return false;
  }
}

void send_all(const FileDescriptor& socket, const void* data, std::size_t bytes, std::int64_t deadline_ns) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(socket.get(), p, bytes, MSG_NOSIGNAL);
    if (n >= 0) {
      p += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      if (!wait_ready(socket, true, deadline_ns))
        throw Error(ErrorCode::timeout, "sending: the deadline has passed");
    } else if (errno == EPIPE || errno == ECONNRESET) {
      throw Error(ErrorCode::peer_failed, "sending: the connection was closed");
    } else if (errno != EINTR) {
      throw_errno("sending");
    }
  }
}

void receive_all(const FileDescriptor& socket, void* data, std::size_t bytes, std::int64_t deadline_ns) {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_ready(socket, false, deadline_ns))
      throw Error(ErrorCode::timeout, "receiving: the deadline has passed");
    const ssize_t n = ::recv(socket.get(), p, bytes, 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
      throw Error(ErrorCode::peer_failed, "receiving: the connection was closed");
    if (n < 0 && errno != EINTR && errno != EAGAIN) throw_errno("receiving");
    if (n < 0) continue;
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void send_with_descriptor(const FileDescriptor& socket, const void* data, std::size_t bytes,
                          const FileDescriptor& fd) {
  iovec iov{const_cast<void*>(data), bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  const int raw = fd.get();
  std::memcpy(CMSG_DATA(c), &raw, sizeof raw);
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes))
    throw_errno("passing a descriptor to another rank");
}

FileDescriptor receive_with_descriptor(const FileDescriptor& socket, void* data, std::size_t bytes,
                                       std::int64_t deadline_ns) {
  FileDescriptor received;
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_ready(socket, false, deadline_ns))
      throw Error(ErrorCode::timeout, "receiving: the deadline has passed");
    iovec iov{p, bytes};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n == 0) throw Error(ErrorCode::peer_failed, "receiving: the connection was closed");
    if (n < 0 && errno != EINTR && errno != EAGAIN) throw_errno("receiving a descriptor from another rank");
    if (n < 0) continue;
    p += n;
    bytes -= static_cast<std::size_t>(n);
    const cmsghdr* c = CMSG_FIRSTHDR(&message);
    if (c == nullptr || c->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    received = FileDescriptor(fd);
  }
  return received;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string host_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat ns {};
  check(::stat("/proc/self/ns/net", &ns), "reading this process's network namespace");
  return fmt::format("{}.{}", boot, ns.st_ino);
}

int cores_online() {
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string host_name() {
  std::array<char, 256> text{};
  ::gethostname(text.data(), text.size() - 1);
  return text.data();
}

}  // namespace talweg::live
