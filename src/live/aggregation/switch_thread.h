// SwitchThread: one socket, the slots that are summed in behind it, and the thread that serves both. A switch
// has several, each with a port of its own, which share nothing: no datagram waits for a lock.
//
//   SwitchThread thread(address, options);
//   if (const auto refused = thread.open(terms, secret, suite)) ...;   // from the thread that made it
//   thread.close(job);
//
// What comes is opened with the key of who it says it is from, before anything else is done with it; each
// number is taken once. Results for all workers are sealed once, and wait until the batch of what has come is
// through: then each worker gets its own in as few system calls as the kernel can do; or all of them one, by
// multicast (protocol/aggregation/result_group.h).
//
// While rounds linger for workers that are late (protocol/aggregation/tolerance.h), or results wait as they
// have a rate, the thread sleeps until the first of these is to end, or to be sent; else until something
// comes.
//
// Where there is a switch above, a second socket is for what goes there and comes from there: its way may be
// through another network than that of workers. There the job has another number, epoch and keys.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "live/aggregation/orders.h"
#include "live/aggregation/slot_memory.h"
#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/aggregation/switch.h"
#include "wire/datagram_cipher.h"
#include "wire/switch_message.h"

namespace talweg::live {

struct SwitchThreadOptions {
  protocol::SwitchLimits limits;
  bool has_key = true;      // its jobs have tags, and some are encrypted
  std::string local_above;  // address from which to speak to the switch above; empty: there is none
  int multicast_hops = 0;   // of results to groups; 0: it has none
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
  std::uint64_t dropped = 0;     // by the kernel, whose buffer was full
  UdpSendStatistics sent_above;  // these two of the way to the switch above
  UdpReceiveStatistics received_above;
};

// A job's part at the thread of the switch above that has the same number as this one.
struct SwitchThreadAbove {
  UdpAddress address;
  wire::SwitchOpened terms;
  std::uint16_t rack = 0;  // as what it is a part
  std::uint16_t self = 0;  // the number of that thread, as the sender of what it says
};

class SwitchThread {
 public:
  // Throws Error{system}.
  SwitchThread(const UdpAddress& local, const SwitchThreadOptions& options);
  ~SwitchThread();
  SwitchThread(const SwitchThread&) = delete;
  SwitchThread& operator=(const SwitchThread&) = delete;

  const UdpSocket& socket() const { return socket_; }
  // To the switch above; null: there is none.
  const UdpSocket* socket_above() const { return above_ ? &above_->socket : nullptr; }

  // These wait until the thread has done it, which takes no longer than a batch of datagrams. For one other
  // thread to call. `secret` must be new: no two jobs may ever have the same. `suite`: with a cipher that all
  // of the job's workers have. `above`: of a job with a switch above, whose terms.above is set.
  std::optional<protocol::OpenRefusal> open(const protocol::JobTerms& terms, const wire::Secret& secret,
                                            wire::DatagramSuite suite,
                                            const SwitchThreadAbove* above = nullptr);
  void close(std::uint32_t job);
  // Of a job that is open, from now on: protocol::JobTerms::result_bytes_per_second.
  void pace_results(std::uint32_t job, double bytes_per_second);
  // These three of a job that is open. Where its group is; a datagram to it that is as long as the largest
  // result, of this attempt; and whether results for all go there, or to each worker by itself.
  struct GroupPath {
    std::size_t mtu = 0;     // of packets on the way to the group, as far as it is known here; 0: it is not
    std::size_t needed = 0;  // bytes of the largest one that a result is, IP's header included; 0: as mtu
  };
  GroupPath set_group(std::uint32_t job, const UdpAddress& group);
  void probe(std::uint32_t job, std::uint32_t attempt);
  void send_by_group(std::uint32_t job, bool by_group);
  SwitchThreadStatus status();

  // Memory of a thread beside that of slots, and of each worker in it, in bytes.
  static std::size_t fixed_bytes(const UdpOptions& options, bool has_above);
  static std::size_t bytes_per_worker();

 private:
  struct Member {
    wire::DatagramOpener opener;
    wire::DatagramSealer sealer;
    UdpSender::Destination to = 0;
    UdpAddress address;
    bool known = false;  // has spoken, so that there is an address
  };
  // What a job is to the switch above.
  struct Part {
    std::uint32_t job;
    std::uint32_t epoch, own_epoch;  // there, and here
    std::uint16_t self;              // of the switch there
    wire::DatagramSealer sealer;
    wire::DatagramOpener opener, from_all;
    UdpSender::Destination to;
  };
  struct Job {
    wire::DatagramSealer to_all;
    std::vector<Member> members;
    std::optional<Part> part;
    std::size_t largest = 0;  // payload of a result
    std::optional<UdpSender::Destination> group;
    bool by_group = false;
  };
  struct Above {
    UdpSocket socket;
    UdpSender sender;
    UdpReceiver receiver;
    std::unordered_map<std::uint32_t, std::uint32_t> jobs = {};  // there, and here
    bool has_key = false;                                        // of the last one
    Above(const UdpAddress& local, const SwitchThreadOptions& options);
  };
  // A result that waits in the batch.
  struct Waiting {
    std::uint32_t job;
    std::size_t offset, bytes;
  };

  void loop();
  void take(UdpReceiver::Datagram& datagram, std::int64_t now_ns);
  void on_time(std::int64_t now_ns);
  void take_above(UdpReceiver::Datagram& datagram, std::int64_t now_ns);
  void send_above(Part& part, const protocol::SwitchAction& action);
  bool flush_all();
  void learn(Member& member, const UdpAddress& from);
  void send_to(Member& member, const protocol::SwitchAction& action);
  void send_to_all(Job& job, const protocol::SwitchAction& action);
  void flush_results(UdpSender::Destination to, std::size_t first, std::size_t end);
  void flush_results();
  void flush();
  std::byte* place(UdpSender& sender, UdpSender::Destination to, std::size_t bytes);

  const SwitchThreadOptions options_;
  UdpSocket socket_;
  UdpSender sender_;
  UdpReceiver receiver_;
  std::unique_ptr<Above> above_;
  SlotMemory slots_;
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
