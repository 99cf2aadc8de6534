// Where connections wait until they have proved that they belong to the job (wire/handshake.h).
//
//   Gate gate(key, wanted, log);
//   gate.listen(listen_tcp(...));
//   while (...) {
//     wait_ready(gate.fd(), until gate.next_ns());
//     for (Visitor& v : gate.step(now_ns())) ...;   // authenticated
//   }
//
// Nobody can hold it up: every read takes what is there. A stranger costs a descriptor and less than a KiB,
// for at most kPatienceNs, and there are never more than kMaxHalfOpen of them: a newcomer pushes out the
// oldest, so that those who answer at once, as ranks do, get in however many others say nothing. Those who
// are dropped are counted and, now and then, logged.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "live/system.h"
#include "wire/handshake.h"

namespace talweg::live {

inline constexpr std::int64_t kPatienceNs = 5'000'000'000;
inline constexpr std::size_t kMaxHalfOpen = 256;

struct Visitor {
  FileDescriptor socket;
  wire::Introduction introduction;
  wire::SessionSecrets secrets;
  bool local = false;  // came through a listener that is
};

struct GateCounts {
  std::atomic<std::uint64_t> admitted{0};
  std::atomic<std::uint64_t> refused{0};  // said something wrong, or left before they had said it
  std::atomic<std::uint64_t> silent{0};   // had not proved themselves in time
  std::atomic<std::uint64_t> pushed_out{0};
  std::uint64_t strangers() const { return refused + silent + pushed_out; }
};

class Gate {
 public:
  using Wanted = std::function<bool(const wire::Introduction&)>;
  // `key` must outlive the gate and may change until the first step.
  Gate(const wire::Secret& key, Wanted wanted, Logger log);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void listen(FileDescriptor listener, bool local = false);
  // Readable when there is something for `step` to do.
  const FileDescriptor& fd() const { return epoll_; }
  // When `step` has something to do in any case; the far future when nobody waits.
  std::int64_t next_ns() const;
  std::vector<Visitor> step(std::int64_t now);
  // Accepts and drops as `step` does, but hears nobody: while it is not known yet who may come.
  void sweep(std::int64_t now);

  std::size_t half_open() const { return guests_.size(); }
  const GateCounts& counts() const { return counts_; }
  // Why a connection could not be accepted, such as "Too many open files"; empty once somebody was let in.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Guest {
    FileDescriptor socket;
    std::int64_t until;
    wire::Acceptor acceptor;
    std::array<std::byte, wire::kHelloBytes> input;
    std::size_t got = 0;
    std::uint32_t address = 0;  // IPv4, as the kernel says it
    bool local = false;
  };
  static_assert(sizeof(Guest) < 1024, "what a stranger may cost");
  struct Listener {
    FileDescriptor socket;
    bool local;
  };
  using Guests = std::map<std::uint64_t, Guest>;  // by number: the oldest first

  void accept_from(Listener& listener, std::int64_t now, int most);
  void pause(std::int64_t now);
  void resume(std::int64_t now);
  void watch_listeners(std::uint32_t events);
  void expire(std::int64_t now);
  void hear(Guests::iterator guest, std::vector<Visitor>& admitted);
  void drop(Guests::iterator guest, std::atomic<std::uint64_t>& count, const char* why);
  void report(const char* why, const Guest& guest);

  const wire::Secret& key_;
  const Wanted wanted_;
  const Logger log_;
  const wire::EphemeralKey ephemeral_;
  FileDescriptor epoll_;
  std::list<Listener> listeners_;
  Guests guests_;
  std::uint64_t next_number_ = 0;
  std::int64_t paused_until_ = 0;  // 0: not; the process is out of descriptors
  std::string trouble_;
  GateCounts counts_;
  std::uint64_t reported_ = 0;
  std::int64_t last_report_ns_ = 0;
};

// The connecting side. Connects by `connect`, says hello and proves itself; calls `idle` now and then while
// it waits. When the connection is cut without a word, as under a flood of strangers, it tries again until
// the deadline. Throws Error: timeout; invalid_argument or version when the other side, or this one, refuses.
Visitor knock(const std::function<FileDescriptor()>& connect, const wire::Secret& key,
              const wire::Introduction& introduction, std::int64_t deadline_ns,
              const std::function<void()>& idle = {},
              const char* key_advice = "give TALWEG_KEY or TALWEG_KEY_FILE the same secret everywhere");

}  // namespace talweg::live
