// SwitchClient: a worker of a job that a switch sums for (switch_service.h).
//
//   SwitchClient client({.address = {"10.0.0.9", 4711}, .job = "bert", .worker = 2, .workers = 4, ...});
//   client.all_reduce(sum, deadline_ns);            // sum.out is what all workers' sum.in add up to
//
//   client.start(sum, deadline_ns);                 // or, beside other work:
//   while (!client.step(now_ns())) ...;             // takes what is there; poll sockets() until next_time_ns()
//
// Making one waits until all workers of the job have joined. Every call ends: in a result, or in an Error
// that names the sum, the job, the switch and who is missing. After an error the client is of no use any
// more, and the job ends for all of its workers: whoever goes on joins again.
//
// Of one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/aggregation/group_ear.h"
#include "live/aggregation/switch_line.h"
#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/aggregation/worker.h"
#include "wire/datagram_cipher.h"

namespace talweg::live {

struct SwitchClientOptions {
  Endpoint address;  // of the switch
  std::string job = "default";
  std::uint16_t worker = 0;   // 0 .. workers - 1
  std::uint16_t workers = 1;  // of the job at this switch
  // Where the job has several switches with one above them: which of these this is, how many they are, and
  // how many workers all of them have; the same for all workers of this one.
  std::uint16_t rack = 0, racks = 1;
  std::uint16_t all_workers = 0;  // 0: `workers`
  std::uint16_t block = 0;        // elements, see wrong_block(); the same for all workers
  bool ordered = false;           // floats are summed in the order of workers: the same bits in every run
  // A part of sums may be missing, as SwitchVector::tolerance says of each; the same for all workers. Not
  // where there are several racks.
  bool tolerant = false;
  bool encrypted = false;  // nobody else can read its datagrams, which takes a key; the same for all workers
  std::optional<wire::Secret> key;
  std::string key_from = "SwitchClientOptions::key";  // what the user gives it in, for errors
  std::int64_t join_deadline_ns = 0;
  std::function<void()> idle =
      {};  // called now and then while it joins and in all_reduce(); what it throws ends that
  std::size_t most_payload = 16384;  // of a datagram, where the path takes it
  bool by_group = true;              // results may come by multicast, where the switch has that
  std::function<void(const std::string&)> say =
      {};  // for people, once: why this host does not join its group; empty: nobody
  UdpOptions socket;
  UdpSenderOptions sender;
  UdpSender::SendCall send;  // these three for tests
  UdpReceiver::ReceiveCall receive;
  UdpReceiver::ReceiveCall receive_group;
};

// Why blocks cannot have so many elements; empty: they can, where datagrams hold them, or it is 0, which
// stands for as many as the switch finds best.
std::string wrong_block(std::size_t elements);

// Of a switch, for sit_down(): its own for each address, and at loopback for each host.
std::uint64_t switch_number(const Endpoint& address, const std::string& host);
// Which worker of which rack this rank is, where `switches` are the numbers of those that all ranks are at.
// Racks are in the order of their first ranks.
void sit_down(SwitchClientOptions& options, std::size_t rank, std::span<const std::uint64_t> switches);

// What a window of so many bytes costs a worker that has `terms`, beside one of `wanted`: "; it costs slots:
// 13 of each of the switch's threads, and not up to 267". Empty: something else sets how many there are.
std::string slots_missed(const wire::SwitchOpened& terms, bool tolerant, std::size_t window,
                         std::size_t wanted);

// One worker's part. `out` has room for as many bytes as `in` and may be the same.
struct SwitchVector {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t in_bytes = 0, out_bytes = 0;
  // pairs: float32 whose zeros do not travel; coded ones: of float32, rounded (protocol/aggregation's
  // coded_blocks.h), to nearest where `tolerance` has a residual, which is then what the code has lost.
  wire::AggregationFormat format = wire::AggregationFormat::f32;
  bool sparse = false;  // blocks that are zero here do not travel
  // What may be missing, where SwitchClientOptions::tolerant is set; the same part for all workers. The first
  // protocol::LingerTime::kWarmUp sums of a job lose nothing.
  protocol::Tolerance tolerance = {};
  // Of a sparse tensor by rows: nothing is said of memory then, and the result is in rows->sums, to be
  // finished. All workers have the same `in_all`, or the sum does not end. Else null.
  const protocol::Rows* rows = nullptr;
  protocol::KeptInput* kept = nullptr;  // of `in`, where that is `out`, for whoever may need it; or null
};

class SwitchClient {
 public:
  // Throws Error: peer_failed or timeout (no switch there; who has not joined), invalid_argument (another
  // key, more workers than there are), version, mismatch (of what workers of the job say), unsupported (in
  // use, busy).
  explicit SwitchClient(const SwitchClientOptions& options);
  ~SwitchClient();  // leaves: what is done stays right for the others
  SwitchClient(const SwitchClient&) = delete;
  SwitchClient& operator=(const SwitchClient&) = delete;

  const wire::SwitchOpened& terms() const { return terms_; }
  // One line for people, as UdpSocket::shortage(), and which slots it costs here. Empty: no buffer is short.
  std::string shortage() const;

  // One sum at a time. The vector's memory stays as it is until the sum is done. Throws Error.
  void start(const SwitchVector& vector, std::int64_t deadline_ns);
  // Takes what has come and sends what is due. True: the sum is done, or there is none. Throws Error when it
  // has failed, or the job has ended.
  bool step(std::int64_t now_ns);
  // Which become readable when step() has something to do, and until when it has not. The last one is -1
  // where no results come by multicast.
  std::array<int, 3> sockets() const { return {socket_.fd(), line_->socket().get(), ear_ ? ear_->fd() : -1}; }
  std::int64_t next_time_ns() const;
  // What the switch has said of the job, without a look at datagrams. Throws Error as step() does.
  void hear();
  // start(), and step() until it is done.
  void all_reduce(const SwitchVector& vector, std::int64_t deadline_ns);

  // Where nothing has come of the sum that runs since `since_ns`, what that looks like: "no datagram has come
  // from its UDP ports 4711 to 4712, ...", or which sizes of packets pass and which do not. Empty: neither.
  std::string why_silent(std::int64_t since_ns) const;
  // Until when the switch has said that it is busy, in the sum that has run last; before it began: it has
  // not.
  std::int64_t busy_until_ns() const;

  // Ends the job for all of its workers, who are told why, whether or not a sum is running here: its memory
  // is not touched any more.
  void give_up(ErrorCode code, const std::string& why);

  // Of the sum that has run last: blocks of each worker, those that may be missing of each, and those that
  // are. All workers have the same of all of these but of their own.
  protocol::AggregationWorker::Missing missing() const;
  std::uint32_t sums() const { return current_.sum; }  // started so far
  protocol::WorkerCounters counters() const;           // of all threads of the switch together
  const wire::DatagramRefusals& refusals() const { return refusals_; }
  const UdpSendStatistics& sent() const { return sender_.statistics(); }
  // By its own address, and by multicast.
  const UdpReceiveStatistics& received() const { return receiver_.statistics(); }
  UdpReceiveStatistics received_by_group() const { return ear_ ? ear_->received() : UdpReceiveStatistics{}; }

 private:
  // What belongs to one thread of the switch: its slots, its port, its keys.
  struct Lane : protocol::DatagramSink {
    Lane(SwitchClient& client, std::size_t number);
    void send(const wire::DatagramHeader& header, std::span<const std::byte> payload) override;
    SwitchClient& client;
    UdpSender::Destination to;
    wire::DatagramSealer sealer;
    wire::DatagramOpener opener, from_all;
    protocol::AggregationWorker worker;
  };

  void join();
  FileDescriptor connect() const;
  bool wait_for_answer() const;
  bool receive(std::int64_t now_ns);
  void take(UdpReceiver::Datagram& datagram, bool by_group, std::int64_t now_ns);
  void join_group(const wire::SwitchGroup& group);
  void say(const wire::SwitchHears& word);
  std::string perhaps_its_version() const;
  bool all_done() const;
  void announce();
  void speak();  // of the sum, once
  void part();   // says what is to be said, and ends the connection
  void wait(std::int64_t until_ns) const;
  [[noreturn]] void fail(ErrorCode code, const std::string& why);
  [[noreturn]] void fail_for_left();
  [[noreturn]] void rethrow() const;

  const SwitchClientOptions options_;
  std::string where_;  // "job bert at the switch 10.0.0.9:4711"
  UdpSocket socket_;
  UdpSender sender_;
  UdpReceiver receiver_;
  std::unique_ptr<GroupEar> ear_;
  std::optional<SwitchLine> line_;
  wire::SwitchOpened terms_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  wire::DatagramRefusals refusals_;
  std::int64_t heard_ns_ = std::numeric_limits<std::int64_t>::min();  // the last sound datagram of the switch
  std::size_t sent_bytes_ = 0;   // of the largest packet with a contribution
  std::size_t asked_bytes_ = 0;  // and with a query, each with IP's header
  std::int64_t started_ns_ = 0;  // the sum that has run last, as these are:
  protocol::WorkerCounters counted_;
  wire::SwitchSum current_;
  std::uint32_t spoken_ = 0;    // the sum that the switch was told of last
  std::int64_t spoken_ns_ = 0;  // and when
  bool running_ = false;
  bool knows_codes_ = false;  // the switch: a sum of a coded format has ended
  std::int64_t announce_ns_ = 0;
  std::int64_t words_ns_ = 0;  // until when the switch may say what the workers have that do not agree
  std::optional<wire::SwitchLeft> left_;  // the first of those that have
  std::optional<protocol::SumFailure> failure_;
};

}  // namespace talweg::live
