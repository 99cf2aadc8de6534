// Owners of kernel objects, and the one place where a failing system call becomes an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/file_descriptor.h"

namespace talweg::live {

// Throws Error{system} "<what>: <reason of errno>" when result is negative; otherwise returns it.
int check(int result, const std::string& what);

using talweg::FileDescriptor;

// Memory shared with other processes, mapped for reading and writing.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const FileDescriptor& file, std::size_t bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// An IPv4 endpoint.
struct Endpoint {
  std::string host;  // dotted
  int port = 0;
};
std::string to_string(const Endpoint& endpoint);

// A name or a dotted address -> dotted IPv4 address. Throws Error{system} naming the host.
std::string resolve_host(const std::string& host);

// A TCP socket listening on host:port (0: any free one), close-on-exec, non-blocking.
FileDescriptor listen_tcp(const Endpoint& endpoint);
Endpoint local_endpoint(const FileDescriptor& socket);
// A connected, blocking TCP socket. Retries while the other side refuses, until the deadline (steady
// nanoseconds); unless it is known to have `listened`: then it is gone, Error{peer_failed}.
FileDescriptor connect_tcp(const Endpoint& endpoint, std::int64_t deadline_ns, bool listened = false);
// The same in the abstract Unix name space, which is private to a network namespace.
FileDescriptor listen_unix(const std::string& name);
FileDescriptor connect_unix(const std::string& name);

// Whose process is at the other end of a Unix socket; empty where that cannot be seen.
std::optional<std::uint32_t> user_at(const FileDescriptor& unix_socket);

// A descriptor that is readable once the process at the other end of a Unix socket has ended, whoever else
// holds that end. Empty where it is this process, or cannot be seen from here.
FileDescriptor watch_process(const FileDescriptor& unix_socket);

void set_non_blocking(const FileDescriptor& fd);
// For frames: no Nagle delay, and a silent other side is asked now and then.
void tune_tcp(const FileDescriptor& socket);
// The kernel asks the other side for an answer after so many seconds of silence, and again after as many; it
// ends the connection by itself only after 120 questions in vain (live/tcp/pulse.h decides sooner).
void keep_alive(const FileDescriptor& socket, int every_s);

// Sends or receives exactly `bytes` on a blocking or non-blocking socket before the deadline. Throws
// Error{timeout}, Error{peer_failed} at end of stream, Error{system}.
void send_all(const FileDescriptor& socket, const void* data, std::size_t bytes, std::int64_t deadline_ns);
void receive_all(const FileDescriptor& socket, void* data, std::size_t bytes, std::int64_t deadline_ns);
// The same for a Unix socket, with one file descriptor travelling along.
void send_with_descriptor(const FileDescriptor& socket, const void* data, std::size_t bytes,
                          const FileDescriptor& fd);
FileDescriptor receive_with_descriptor(const FileDescriptor& socket, void* data, std::size_t bytes,
                                       std::int64_t deadline_ns);

// Waits until `fd` is readable (or writable) or the deadline has passed (false).
bool wait_ready(const FileDescriptor& fd, bool writable, std::int64_t deadline_ns);

std::int64_t now_ns();   // steady
std::int64_t wall_ns();  // since 1970; may be set while it runs
inline constexpr std::int64_t kMillisecondNs = 1'000'000;

// One machine and one network namespace: ranks with the same id reach each other's memory and Unix sockets.
std::string host_id();
// Cores that this machine has, whatever of them this process may use: the same for all its processes.
int cores_online();
std::string host_name();

}  // namespace talweg::live
