// SwitchThread: one socket, the slots that are summed in behind it, and the thread that serves both. A switch
// has several, each with a port of its own, which share nothing: no datagram waits for a lock.
//
//   SwitchThread thread(address, options);
//   if (const auto refused = thread.open(terms, secret, cipher)) ...;   // from the thread that made it
//   thread.close(job);
//
// What comes is opened with the key of who it says it is from, before anything else is done with it; each
// number is taken once. Results for all workers are sealed once, and wait until the batch of what has come is
// through: then each worker gets its own in as few system calls as the kernel can do.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "live/aggregation/orders.h"
#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/aggregation/switch.h"
#include "wire/datagram_cipher.h"

namespace talweg::live {

struct SwitchThreadOptions {
  protocol::SwitchLimits limits;
  wire::DatagramProtection protection = wire::DatagramProtection::authenticated;
  UdpOptions socket;
  UdpSenderOptions sender;
  UdpSender::SendCall send;          // for tests
  UdpReceiver::ReceiveCall receive;  // for tests
};

struct SwitchThreadStatus {
  std::map<std::uint32_t, protocol::SwitchCounters> jobs;  // by number, of those that are open
  std::size_t memory_bytes = 0;                            // of their slots
  protocol::SwitchCounters strays;
  wire::DatagramRefusals refusals;
  UdpSendStatistics sent;
  UdpReceiveStatistics received;
  std::uint64_t dropped = 0;  // by the kernel, whose buffer was full
};

class SwitchThread {
 public:
  // Throws Error{system}.
  SwitchThread(const UdpAddress& local, const SwitchThreadOptions& options);
  ~SwitchThread();
  SwitchThread(const SwitchThread&) = delete;
  SwitchThread& operator=(const SwitchThread&) = delete;

  const UdpSocket& socket() const { return socket_; }

  // These wait until the thread has done it, which takes no longer than a batch of datagrams. For one other
  // thread to call. `secret` must be new: no two jobs may ever have the same. `cipher`: one that all of the
  // job's workers have.
  std::optional<protocol::OpenRefusal> open(const protocol::JobTerms& terms, const wire::Secret& secret,
                                            wire::CipherKind cipher);
  void close(std::uint32_t job);
  SwitchThreadStatus status();

  // Memory of a thread beside that of slots, and of each worker in it, in bytes.
  static std::size_t fixed_bytes(const UdpOptions& options);
  static std::size_t bytes_per_worker();

 private:
  struct Member {
    wire::DatagramOpener opener;
    wire::DatagramSealer sealer;
    UdpSender::Destination to = 0;
    UdpAddress address;
    bool known = false;  // has spoken, so that there is an address
  };
  struct Job {
    wire::DatagramSealer to_all;
    std::vector<Member> members;
  };
  // A result that waits in the batch.
  struct Waiting {
    std::uint32_t job;
    std::size_t offset, bytes;
  };

  void loop();
  void take(UdpReceiver::Datagram& datagram, std::int64_t now_ns);
  void learn(Member& member, const UdpAddress& from);
  void send_to(Member& member, const protocol::SwitchAction& action);
  void send_to_all(Job& job, const protocol::SwitchAction& action);
  void flush_results();
  void flush();
  std::byte* place(UdpSender::Destination to, std::size_t bytes);

  const SwitchThreadOptions options_;
  UdpSocket socket_;
  UdpSender sender_;
  UdpReceiver receiver_;
  protocol::AggregationSwitch sums_;
  std::unordered_map<std::uint32_t, Job> jobs_;
  std::vector<std::byte> batch_;
  std::size_t batch_used_ = 0;
  std::vector<Waiting> waiting_;
  wire::DatagramRefusals refusals_;

  Orders orders_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace talweg::live
