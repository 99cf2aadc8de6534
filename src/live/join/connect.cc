#include "live/join/connect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "base/fail.h"
#include "live/join/card.h"
#include "live/join/gate.h"
#include "live/join/interface.h"

namespace talweg::live {

namespace {

// Host ids are machine.namespace.
std::string machine_of(const std::string& host) {
  return host.substr(0, host.find('.'));
}

constexpr std::int64_t kSweepEveryNs = 200'000'000;
constexpr std::int64_t kLookEveryNs = 250'000'000;  // whether one of those that are connected has gone again
// Who has all its connections may leave in order while others still connect; they do so within this time.
constexpr std::int64_t kGoneNs = 3'000'000'000;
constexpr std::int64_t kReachNs = 5'000'000'000;  // longer than the first packet may need
constexpr std::byte kSegmentFollows{'S'};         // what a descriptor travels along with
// Between its card and its connections, an aggregator has only to read that it is in.
constexpr std::int64_t kAggregatorConnectsNs = 2'000'000'000;

// Drops strangers while this thread waits for ranks that are late; nobody else may use the gate meanwhile.
class Sweeper {
 public:
  explicit Sweeper(Gate& gate)
      : thread_([this, &gate](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          while (!over_.wait_for(lock, stop, std::chrono::nanoseconds(kSweepEveryNs), [] { return false; }) &&
                 !stop.stop_requested())
            gate.sweep(now_ns());
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any over_;
  std::jthread thread_;
};

class Connector {
 public:
  Connector(Store& store, const ConnectOptions& options)
      : store_(store),
        options_(options),
        gate_(
            key_, [this](const wire::Introduction& i) { return wanted(i); },
            Logger(options.aggregator.empty() ? options.rank : -1)) {}

  Mesh run() {
    find_key();
    listen();
    collect();
    try {
      prepare_segment();
      for (int r = 0; r < mesh_.seat; ++r) connect_to(r);
      accept_rest();
    } catch (const Error& e) {
      if (!aggregates()) leave(e);
      throw;
    }
    if (const std::uint64_t n = gate_.counts().strangers(); n > 0)
      mesh_.security += fmt::format(", {} strange connections dropped while joining", n);
    mesh_.address = options_.address;
    mesh_.encrypted = options_.encrypt;
    return std::move(mesh_);
  }

 private:
  void find_key() {
    if (options_.key) {
      key_ = *options_.key;
      own_.key_origin = "job";
    } else if (store_.confidential()) {
      own_.key_origin = "store";
      if (options_.rank == 0 && !aggregates()) own_.secret = wire::random_key_text();
    } else if (!is_loopback(options_.address)) {
      refuse(
          "{} will not listen on {}, which others can reach, without a job key: give every "
          "rank the same secret in TALWEG_KEY or in a file of mode 600 named by TALWEG_KEY_FILE "
          "(talweg run does so by itself)",
          aggregates() ? "aggregator " + options_.aggregator : who(options_.rank), options_.address);
    }
    if (options_.encrypt && own_.key_origin == "open")
      refuse("TALWEG_ENCRYPT needs a job key: set TALWEG_KEY or TALWEG_KEY_FILE on every rank");
    own_.encrypt = options_.encrypt ? 1 : 0;
  }

  void listen() {
    // Cards of other groups that share the store and use the same name must not be mistaken for ours: the
    // random part makes the Unix name unique.
    const std::uint64_t token = random_number();
    own_.endpoint = {options_.address, 0};
    const bool alone = options_.size == 1 && !aggregates();
    if (!alone) {
      FileDescriptor tcp = listen_tcp(own_.endpoint);
      own_.endpoint = local_endpoint(tcp);
      gate_.listen(std::move(tcp));
    }
    own_.host_id = host_id();
    if (options_.shared_memory && !alone) {
      own_.unix_name = fmt::format("talweg-{}-{:016x}", ::getpid(), token);
      gate_.listen(listen_unix(own_.unix_name), true);
    }
    own_.host_name = host_name();
    if (own_.host_name.empty()) own_.host_name = "-";
    own_.pid = ::getpid();
    if (aggregates()) own_.node = options_.aggregator;
    own_.size = options_.size;
    own_.streams = options_.streams;
    own_.transport = options_.transport;
    for (const auto& [setting, digest] : options_.alike) own_.alike.push_back(digest);
  }

  void collect() {
    if (options_.size > 1 || aggregates()) {
      const Sweeper sweeper(gate_);
      Meeting meeting = exchange_cards(store_, options_, own_);
      cards_ = std::move(meeting.cards);
      mesh_.seat = meeting.seat;
      mesh_.absent = std::move(meeting.absent);
    } else {
      cards_ = {own_};
    }
    mesh_.connections.resize(cards_.size());
    mesh_.ranks = cards_[0].size;
    job_ = cards_[0].job;
    mesh_.job = job_;
    settle_security();
    number_hosts();
  }

  void number_hosts() {
    std::vector<std::string> hosts;
    mesh_.one_machine = true;
    mesh_.cores = cores_online();
    for (int r = 0; r < seats(); ++r) {
      Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
      const Card& card = cards_[static_cast<std::size_t>(r)];
      c.rank = r;
      if (r >= mesh_.ranks) c.name = card.node;
      c.host = fmt::format("{} pid {}", card.host_name, card.pid);
      mesh_.one_machine = mesh_.one_machine && machine_of(card.host_id) == machine_of(own_.host_id);
      c.local = card.host_id == own_.host_id && card.unix_name != "-" && own_.unix_name != "-";
      // A rank that does not share memory is a host of its own to the planner.
      const std::string id = card.unix_name == "-" ? fmt::format("rank {}", r) : card.host_id;
      const auto known = std::ranges::find(hosts, id);
      c.host_number = static_cast<int>(known - hosts.begin());
      if (known == hosts.end()) hosts.push_back(id);
      if (!c.local) continue;
      c.local_index = local_ranks_++;
    }
    mesh_.local_index = mesh_.connections[static_cast<std::size_t>(mesh_.seat)].local_index;
    mesh_.local_ranks = local_ranks_;
  }

  void prepare_segment() {
    if (local_ranks_ < 2) return;
    segment_file_ = Segment::create(local_ranks_);
    mesh_.segment.emplace(segment_file_, local_ranks_);
  }

  void settle_security() {
    if (own_.key_origin == "store") key_ = wire::secret_from_text(cards_[0].secret);
    mesh_.security = own_.key_origin == "job" ? "both ends of every connection proved the job's key"
                     : own_.key_origin == "store"
                         ? "both ends of every connection proved a key from the store"
                         : "no key: all on loopback";
    mesh_.security +=
        own_.encrypt != 0 ? ", frames to other hosts are encrypted" : ", frames are not encrypted";
  }

  wire::Introduction introduction(int r, int stream) const {
    wire::Introduction i;
    i.purpose = wire::Purpose::data;
    i.encrypt = encrypted(r);
    i.stream = static_cast<std::uint16_t>(stream);
    i.from = static_cast<std::uint32_t>(mesh_.seat);
    i.to = static_cast<std::uint32_t>(r);
    i.job = job_;
    return i;
  }

  bool aggregates() const { return !options_.aggregator.empty(); }
  int seats() const { return static_cast<int>(cards_.size()); }
  std::string who(int seat) const {
    return seat >= 0 && seat < seats() && cards_[static_cast<std::size_t>(seat)].node != "-"
               ? "aggregator " + cards_[static_cast<std::size_t>(seat)].node
               : fmt::format("rank {}", seat);
  }

  // Memory that is shared on one host is not for others to read anyway.
  bool encrypted(int r) const {
    return options_.encrypt && !mesh_.connections[static_cast<std::size_t>(r)].local;
  }

  bool wanted(const wire::Introduction& i) const {
    const int r = static_cast<int>(i.from);
    if (r <= mesh_.seat || r >= seats()) return false;
    wire::Introduction expected = introduction(r, i.stream);
    std::swap(expected.from, expected.to);
    return i == expected && i.stream < expected_streams(r);
  }

  // Whose card is read has listened; but a host may not answer.
  FileDescriptor reach(const Endpoint& endpoint) {
    for (;;) {
      try {
        return connect_tcp(endpoint, std::min(options_.deadline_ns, now_ns() + kReachNs), true);
      } catch (const Error& e) {
        if (e.code() != ErrorCode::timeout || now_ns() + kLookEveryNs > options_.deadline_ns) throw;
      }
      heed_others();
      admit();
    }
  }

  Visitor visit(int r, int stream) {
    const Card& card = cards_[static_cast<std::size_t>(r)];
    const bool local = mesh_.connections[static_cast<std::size_t>(r)].local;
    return knock([&] { return local ? connect_unix(card.unix_name) : reach(card.endpoint); }, key_,
                 introduction(r, stream), options_.deadline_ns, [this] { admit(); });
  }

  void connect_to(int r) {
    Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
    try {
      for (int s = 0; s < expected_streams(r); ++s) {
        Visitor visitor = visit(r, s);
        if (c.local) {
          send_with_descriptor(visitor.socket, &kSegmentFollows, 1, segment_file_);
          receive_segment(visitor.socket, c);
        } else {
          tune_tcp(visitor.socket);
        }
        c.streams.push_back(std::move(visitor.socket));
        if (encrypted(r)) c.secrets.push_back(visitor.secrets);
      }
    } catch (const Error& e) {
      c.streams.clear();
      if (r >= mesh_.ranks) return;  // one aggregator less
      throw_error(e.code(), "{} connecting to {} ({}, {}): {}", who(mesh_.seat), who(r), c.host,
                  to_string(cards_[static_cast<std::size_t>(r)].endpoint), e.what());
    }
  }

  void receive_segment(const FileDescriptor& socket, Connection& c) const {
    std::byte byte{};
    const FileDescriptor file = receive_with_descriptor(socket, &byte, 1, options_.deadline_ns);
    if (!file) throw Error(ErrorCode::peer_failed, "it did not share its memory");
    c.segment.emplace(file, local_ranks_);
  }

  int expected_streams(int r) const {
    if (mesh_.connections[static_cast<std::size_t>(r)].local) return 1;
    return std::min(own_.streams, cards_[static_cast<std::size_t>(r)].streams);
  }

  bool complete(int r) const {
    const auto& streams = mesh_.connections[static_cast<std::size_t>(r)].streams;
    return static_cast<int>(streams.size()) == expected_streams(r) &&
           std::ranges::all_of(streams, [](const FileDescriptor& fd) { return static_cast<bool>(fd); });
  }

  void accept_rest() {
    wait_for(mesh_.seat + 1, std::max(mesh_.seat + 1, mesh_.ranks), options_.deadline_ns);
    // An aggregator that has died since it published its card is lost, not the group.
    const int first = std::max(mesh_.seat + 1, mesh_.ranks);
    const std::int64_t until = std::min(options_.deadline_ns, now_ns() + kAggregatorConnectsNs);
    if (wait_for(first, seats(), until)) return;
    for (int r = first; r < seats(); ++r)
      if (!complete(r)) mesh_.connections[static_cast<std::size_t>(r)].streams.clear();
  }

  // Whoever gives up because another has gone says so in the store before it goes too: those that it leaves
  // would take it for the one that failed first. Whom its own system refused has a reason of its own.
  [[noreturn]] void leave(const Error& e) {
    if (e.code() != ErrorCode::system) heed_others();
    const std::string self = who(mesh_.seat);
    const std::string said = std::string(e.what()).starts_with(self) ? e.what() : self + ": " + e.what();
    try {
      store_.set(failure_key(), fmt::format("{} {}", static_cast<int>(e.code()), said));
      // The store may go with this rank.
      if (mesh_.seat == 0) std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kLookEveryNs));
    } catch (const Error&) {  // without a store there is nobody to tell
    }
    throw Error(e);
  }

  // Throws what another has left with.
  void heed_others() {
    std::optional<std::string> told;
    try {
      told = store_.find(failure_key());
    } catch (const Error&) {
      return;  // it went with rank 0, which had all connections
    }
    if (!told) return;
    const std::size_t blank = told->find(' ');
    const bool timeout = std::atoi(told->c_str()) == static_cast<int>(ErrorCode::timeout);
    throw Error(timeout ? ErrorCode::timeout : ErrorCode::peer_failed,
                told->substr(std::min(blank, told->size() - 1) + 1));
  }

  std::string failure_key() const { return fmt::format("{}failed{:016x}", options_.prefix, job_); }

  // Of those that are connected already, while others are waited for.
  void find_gone() {
    for (int r = 0; r < mesh_.ranks; ++r) {
      if (r == mesh_.seat || !complete(r)) continue;
      const Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
      pollfd ended{c.streams.front().get(), POLLRDHUP, 0};
      std::byte word{};
      const bool closed = ::poll(&ended, 1, 0) > 0;
      // What it has sent may be its farewell.
      if (!closed || ::recv(ended.fd, &word, 1, MSG_PEEK | MSG_DONTWAIT) > 0) continue;
      heed_others();
      throw_error(ErrorCode::peer_failed, "{}: {} ({}) has gone while others were still connecting",
                  who(mesh_.seat), who(r), c.host);
    }
  }

  // Until those with seats from `first` to before `last` are connected. At the time limit: false for
  // aggregators; throws for ranks.
  bool wait_for(int first, int last, std::int64_t until) {
    const std::int64_t begin_ns = now_ns();
    std::int64_t next_look = begin_ns + kLookEveryNs;
    for (;;) {
      std::vector<int> missing;
      for (int r = first; r < last; ++r)
        if (!complete(r)) missing.push_back(r);
      if (missing.empty()) return true;
      if (now_ns() >= until) {
        if (first >= mesh_.ranks) return false;
        const std::string whose =
            fmt::format("{}: {} {} joined but", who(mesh_.seat), missing.size() == 1 ? "rank" : "ranks",
                        fmt::join(missing, ", "));
        if (!gate_.trouble().empty())
          throw_error(ErrorCode::system, "{} could not be let in: {}", whose, gate_.trouble());
        throw Error(ErrorCode::timeout, whose + " did not connect before the deadline");
      }
      wait_ready(gate_.fd(), false, std::min({until, gate_.next_ns(), now_ns() + kLookEveryNs}));
      admit();
      if (first >= mesh_.ranks || now_ns() < next_look) continue;
      // Others may give up for want of this rank; what keeps them out is here, and is said at the deadline.
      if (!gate_.trouble().empty()) continue;
      next_look = now_ns() + kLookEveryNs;
      heed_others();
      if (next_look - begin_ns > kGoneNs) find_gone();
    }
  }

  void admit() {
    for (Visitor& visitor : gate_.step(now_ns())) seat(std::move(visitor));
  }

  // Everyone who comes here has proved to be a member, and is expected.
  void seat(Visitor visitor) {
    const int r = static_cast<int>(visitor.introduction.from);
    const std::size_t stream = visitor.introduction.stream;
    Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
    if (c.local != visitor.local) return;
    c.streams.resize(static_cast<std::size_t>(expected_streams(r)));
    if (encrypted(r)) c.secrets.resize(c.streams.size());
    if (c.local) {
      try {
        receive_segment(visitor.socket, c);
        send_with_descriptor(visitor.socket, &kSegmentFollows, 1, segment_file_);
      } catch (const Error&) {
        return;  // it has died meanwhile
      }
    } else {
      tune_tcp(visitor.socket);
    }
    c.streams[stream] = std::move(visitor.socket);
    if (encrypted(r)) c.secrets[stream] = visitor.secrets;
  }

  Store& store_;
  const ConnectOptions& options_;
  Mesh mesh_;
  Card own_;
  std::vector<Card> cards_;
  wire::Secret key_{};
  FileDescriptor segment_file_;
  std::uint64_t job_ = 0;
  int local_ranks_ = 0;
  Gate gate_;  // after what it refers to
};

}  // namespace

Mesh connect_all(Store& store, const ConnectOptions& options) {
  return Connector(store, options).run();
}

}  // namespace talweg::live
