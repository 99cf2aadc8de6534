// SwitchService: a switch of streaming aggregation in software. Workers join it over TCP, where they prove
// that they hold its key; what they sum goes in datagrams, through threads that share nothing.
//
//   SwitchService service(options);        // listens from here on
//   print(service.memory());               // the most that it will ever take, with its formula
//   service.serve();                       // until it has been stopped, or drained and all jobs are over
//
// Without a key it listens on loopback alone. Orders (wire::SwitchOrder) are taken from processes of its own
// host that hold the key and belong to its user or to root.
//
// With a switch above it, jobs whose workers are at several switches are summed in two steps: it joins that
// one as one worker of the job (switch_uplink.h) and sends one stream there. Other jobs are its own alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "live/aggregation/result_rates.h"
#include "live/aggregation/switch_groups.h"
#include "live/aggregation/switch_jobs.h"
#include "live/aggregation/switch_line.h"
#include "live/aggregation/switch_thread.h"
#include "live/aggregation/switch_uplink.h"
#include "live/aggregation/switchml_port.h"
#include "live/join/gate.h"
#include "live/tcp/pulse.h"

namespace talweg::live {

struct SwitchStatus {
  struct Job {
    std::string name;
    std::size_t workers = 0;
    std::size_t here = 0;
    std::size_t slots = 0;   // of all threads; 0: it waits for its workers
    std::size_t racks = 1;   // switches that have a part of its workers
    bool above = false;      // the switch above has opened it, and counts this one
    double result_rate = 0;  // bytes per second; 0: none
    bool by_group = false;   // results go to all of its workers at once, by multicast
    protocol::SwitchCounters counters;
  };
  std::vector<Job> jobs;
  std::size_t memory_bytes = 0;          // of slots that are lent
  std::size_t memory_most = 0;           // that can be
  std::uint64_t opened = 0, failed = 0;  // jobs so far
  bool draining = false;
  std::string above;  // the switch's address; empty: there is none
  std::uint64_t refused_connections = 0;
  std::vector<SwitchThreadStatus> threads;
  std::optional<SwitchmlPortStatus> switchml;  // its job is one of `jobs`, its memory is part of the above
};

struct SwitchAboveOptions {
  Endpoint address;
  // As SwitchServiceOptions::key, and called as often. Empty: it has the same key as this one.
  std::function<std::optional<wire::Secret>()> key = {};
};

struct SwitchServiceOptions {
  Endpoint listen;  // port 0: any free one. Threads have UDP ports from it on
  int threads = 1;
  SwitchQuotas quotas;
  std::size_t memory_bytes = std::size_t{256} << 20;  // of slots, all threads together
  // Empty: no key. Called at the start, and again for each order to reload; what it throws then is the
  // order's answer, and the key that was there stays.
  std::function<std::optional<wire::Secret>()> key;
  // Rates by the names of jobs. Called as `key` is; either is taken whatever is wrong with the other.
  std::function<ResultRates()> result_rates;
  // Is told what is wrong with them when a signal is the order to reload, and of jobs that multicast does not
  // reach. Empty: nobody is.
  std::function<void(const std::string&)> say;
  // What a status is as a text. Also called every `publish_every_ns`, and given to `publish`, if that is set.
  std::function<std::string(const SwitchStatus&)> describe;
  std::function<void(const std::string&)> publish;
  std::int64_t publish_every_ns = 5'000'000'000;
  std::optional<SwitchAboveOptions> above;
  std::optional<SwitchMulticastOptions> multicast;
  UdpOptions socket;
  std::optional<SwitchmlPortOptions> switchml;    // a job of SwitchML's workers beside the others
  std::int64_t host_timeout_ns = 15'000'000'000;  // of a host that does not answer any more
  UdpSender::SendCall send;                       // these two for tests; called from several threads
  UdpReceiver::ReceiveCall receive;
};

class SwitchService {
 public:
  // Throws Error{invalid_argument} for what cannot be served, Error{system}.
  explicit SwitchService(const SwitchServiceOptions& options);
  ~SwitchService();
  SwitchService(const SwitchService&) = delete;
  SwitchService& operator=(const SwitchService&) = delete;

  const Endpoint& address() const { return address_; }
  // What the switch above is called in texts; empty: there is none.
  const std::string& above() const { return above_name_; }
  // Of SwitchML's workers; null: none are served.
  const SwitchmlPort* switchml() const { return switchml_.get(); }
  // Of results by multicast, a line; empty: there are none.
  std::string groups() const;
  // One line: the most memory that it takes, and what that is made of.
  std::string memory() const;
  // What the kernel does not give that was asked for, a line; empty: nothing.
  const std::string& shortage() const { return threads_.front()->socket().shortage(); }

  // `signals`: a signalfd, if any: SIGTERM drains, and stops when it comes again; SIGHUP reloads; others
  // stop.
  void serve(const FileDescriptor& signals = {});
  void stop();  // from any thread

 private:
  using Seat = SwitchJobs::Seat;
  struct Guest {
    SwitchLine line;
    std::int64_t since_ns = 0;
    std::int64_t leaving_ns = 0;  // since when, about; 0: it is not, or not for long
    bool may_order = false;       // came over this host's own socket, as a process of the same user
    bool leaving = false;         // is to be told what waits, and then it is over
    bool reads_text = false;      // has asked for one
    bool tcp = false;
    wire::CipherKind cipher = wire::CipherKind::chacha20_poly1305;
    Pulse pulse;
  };

  void set_above();
  void set_groups();
  void listen();
  wire::DatagramProtection protection() const;  // of jobs that are not encrypted
  void let_in(std::int64_t now_ns);
  void hear(Seat seat, Guest& guest);
  void obey(Guest& guest, wire::SwitchDo order);
  void tick(std::int64_t now_ns);
  void sweep();
  bool on_signals(const FileDescriptor& signals);
  void say(Seat seat, const wire::SwitchMessage& message);
  std::optional<wire::SwitchRefused> open(const SwitchJobs::Job& job, wire::SwitchOpened& opened);
  void close(const wire::SwitchOpened& opened);
  // The least that all of a job's workers take.
  struct Offer {
    std::size_t payload = wire::kMaxDatagramPayload;
    std::size_t window = SIZE_MAX, slots = 0, threads = 0;
    wire::CipherKind cipher = wire::CipherKind::aes256_gcm;
  };
  Offer offer_to(const SwitchJobs::Job& job) const;
  // How it is cut into blocks and how many slots it is lent; or why not.
  struct Cut {
    protocol::BlockShape shape;
    std::size_t slots = 0, threads = 0;
  };
  std::optional<wire::SwitchRefused> cut(const SwitchJobs::Job& job, const Offer& offer, Cut& cut) const;
  std::optional<wire::SwitchRefused> climb(const SwitchJobs::Job& job);
  void say_above(const SwitchJobs::Job& job, const wire::SwitchMessage& message);
  void descend(const SwitchJobs::Job& job);
  void hear_above();
  std::size_t uplinks_left();
  SwitchJobs::Hooks hooks();
  // In switch_reading.cc.
  SwitchStatus status();
  bool reads_key() const { return has_key_ || (options_.above && options_.above->key); }
  std::string reload();
  void reload_key();
  void reload_rates();
  std::string what_is_read() const;
  double result_rate(const SwitchJobs::Job& job) const;  // of all threads, in bytes per second; 0: none

  const SwitchServiceOptions options_;
  wire::Secret key_{}, key_above_{};
  bool has_key_ = false;
  ResultRates result_rates_;
  Endpoint address_, address_above_;
  std::string above_name_;
  FileDescriptor wake_, wake_above_;
  std::unique_ptr<Gate> gate_;
  std::vector<std::unique_ptr<SwitchThread>> threads_;
  std::unique_ptr<SwitchmlPort> switchml_;
  std::optional<SwitchGroups> groups_;
  SwitchJobs jobs_;
  std::map<Seat, Guest> guests_;
  std::map<std::string, std::unique_ptr<SwitchUplink>> uplinks_;  // by job
  std::vector<std::unique_ptr<SwitchUplink>>
      parted_;  // as many as jobs at most, whose threads have not ended
  Seat next_seat_ = 1;
  std::uint32_t next_job_ = 0;
  std::int64_t tick_ns_ = 0, publish_ns_ = 0;
  bool stop_ = false;
};

}  // namespace talweg::live
