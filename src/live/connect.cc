#include "live/connect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "talweg/error.h"
#include "wire/hello.h"

namespace talweg::live {

namespace {

// What a rank publishes about itself, one word each.
struct Card {
  unsigned version = wire::kProtocolVersion;
  Endpoint endpoint;
  std::string host_id = "-";
  std::string unix_name = "-";
  std::string host_name = "-";
  long pid = 0;
  int streams = 1;
  std::uint64_t job = 0;  // rank 0's counts
};

std::string to_text(const Card& c) {
  return fmt::format("talweg {} {} {} {} {} {} {} {} {}", c.version, c.endpoint.host, c.endpoint.port,
                     c.host_id, c.unix_name, c.host_name, c.pid, c.streams, c.job);
}

Card parse_card(const std::string& text, int rank) {
  Card c;
  std::string magic;
  std::istringstream in(text);
  in >> magic >> c.version;
  if (magic != "talweg")
    throw Error(ErrorCode::version, fmt::format("rank {} published something that is not Talweg's: another "
                                                "program uses the same store and prefix",
                                                rank));
  if (c.version != wire::kProtocolVersion)
    throw Error(
        ErrorCode::version,
        fmt::format(
            "rank {} speaks protocol version {}, this rank speaks {}: install the same version everywhere",
            rank, c.version, wire::kProtocolVersion));
  if (!(in >> c.endpoint.host >> c.endpoint.port >> c.host_id >> c.unix_name >> c.host_name >> c.pid >>
        c.streams >> c.job))
    throw Error(ErrorCode::version,
                fmt::format("rank {} published a card that this version cannot read", rank));
  return c;
}

std::uint64_t random_number() {
  std::uint64_t value = 0;
  check(static_cast<int>(::getrandom(&value, sizeof value, 0)), "drawing a random number");
  return value;
}

class Connector {
 public:
  Connector(Store& store, const ConnectOptions& options) : store_(store), options_(options) {}

  Mesh run() {
    mesh_.connections.resize(static_cast<std::size_t>(options_.size));
    publish();
    collect();
    prepare_segment();
    for (int r = 0; r < options_.rank; ++r) connect_to(r);
    accept_rest();
    return std::move(mesh_);
  }

 private:
  void publish() {
    // Cards of other groups that share the store and use the same name must not be mistaken for ours: the
    // random part makes the Unix name unique.
    const std::uint64_t token = random_number();
    if (options_.size > 1) tcp_ = listen_tcp({options_.address, 0});
    own_.endpoint = options_.size > 1 ? local_endpoint(tcp_) : Endpoint{options_.address, 0};
    own_.host_id = host_id();
    if (options_.shared_memory && options_.size > 1) {
      own_.unix_name = fmt::format("talweg-{}-{:016x}", ::getpid(), token);
      unix_ = listen_unix(own_.unix_name);
    }
    own_.host_name = host_name();
    if (own_.host_name.empty()) own_.host_name = "-";
    own_.pid = ::getpid();
    own_.streams = options_.streams;
    own_.job = options_.rank == 0 ? token : 0;
    if (options_.size > 1) store_.set(key(options_.rank), to_text(own_));
  }

  std::string key(int rank) const { return fmt::format("{}rank{}", options_.prefix, rank); }

  void collect() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point deadline{std::chrono::nanoseconds(options_.deadline_ns)};
    cards_.resize(static_cast<std::size_t>(options_.size));
    std::vector<int> missing;
    for (int r = 0; r < options_.size; ++r) {
      if (r == options_.rank) {
        cards_[static_cast<std::size_t>(r)] = own_;
        continue;
      }
      try {
        cards_[static_cast<std::size_t>(r)] = parse_card(store_.get(key(r), deadline), r);
      } catch (const Error& e) {
        if (e.code() != ErrorCode::timeout) throw;
        missing.push_back(r);
      }
    }
    if (!missing.empty())
      throw Error(
          ErrorCode::timeout,
          fmt::format("rank {} of {} waited for the others to join: {} {} never came", options_.rank,
                      options_.size, missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")));
    job_ = cards_[0].job;
    std::vector<std::string> hosts;
    for (int r = 0; r < options_.size; ++r) {
      Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
      const Card& card = cards_[static_cast<std::size_t>(r)];
      c.rank = r;
      c.host = fmt::format("{} pid {}", card.host_name, card.pid);
      c.local = card.host_id == own_.host_id && card.unix_name != "-" && own_.unix_name != "-";
      // A rank that does not share memory is a host of its own to the planner.
      const std::string id = card.unix_name == "-" ? fmt::format("rank {}", r) : card.host_id;
      const auto known = std::find(hosts.begin(), hosts.end(), id);
      c.host_number = static_cast<int>(known - hosts.begin());
      if (known == hosts.end()) hosts.push_back(id);
      if (!c.local) continue;
      c.local_index = local_ranks_++;
    }
    mesh_.local_index = mesh_.connections[static_cast<std::size_t>(options_.rank)].local_index;
    mesh_.local_ranks = local_ranks_;
  }

  void prepare_segment() {
    if (local_ranks_ < 2) return;
    segment_file_ = Segment::create(local_ranks_);
    mesh_.segment.emplace(segment_file_, local_ranks_);
  }

  wire::Hello hello(int stream) const {
    wire::Hello h;
    h.rank = static_cast<std::uint32_t>(options_.rank);
    h.stream = static_cast<std::uint16_t>(stream);
    h.job = job_;
    return h;
  }

  void connect_to(int r) {
    Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
    const Card& card = cards_[static_cast<std::size_t>(r)];
    try {
      if (c.local) {
        FileDescriptor fd = connect_unix(card.unix_name);
        const auto greeting = wire::encode(hello(0));
        send_with_descriptor(fd, greeting.data(), greeting.size(), segment_file_);
        std::array<std::byte, wire::kHelloBytes> answer;
        const FileDescriptor file =
            receive_with_descriptor(fd, answer.data(), answer.size(), options_.deadline_ns);
        c.segment.emplace(file, local_ranks_);
        c.streams.push_back(std::move(fd));
        return;
      }
      for (int s = 0; s < std::min(own_.streams, card.streams); ++s) {
        FileDescriptor fd = connect_tcp(card.endpoint, options_.deadline_ns);
        tune_tcp(fd);
        const auto greeting = wire::encode(hello(s));
        send_all(fd, greeting.data(), greeting.size(), options_.deadline_ns);
        c.streams.push_back(std::move(fd));
      }
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("rank {} connecting to rank {} ({}, {}): {}", options_.rank, r,
                                        c.host, to_string(card.endpoint), e.what()));
    }
  }

  int expected_streams(int r) const {
    if (mesh_.connections[static_cast<std::size_t>(r)].local) return 1;
    return std::min(own_.streams, cards_[static_cast<std::size_t>(r)].streams);
  }

  bool complete(int r) const {
    const auto& streams = mesh_.connections[static_cast<std::size_t>(r)].streams;
    return static_cast<int>(streams.size()) == expected_streams(r) &&
           std::all_of(streams.begin(), streams.end(),
                       [](const FileDescriptor& fd) { return static_cast<bool>(fd); });
  }

  void accept_rest() {
    for (;;) {
      std::vector<int> missing;
      bool tcp_wanted = false;
      for (int r = options_.rank + 1; r < options_.size; ++r) {
        if (complete(r)) continue;
        missing.push_back(r);
        tcp_wanted = tcp_wanted || !mesh_.connections[static_cast<std::size_t>(r)].local;
      }
      if (missing.empty()) return;
      // Both listeners are polled in turn; the short wait only matters when both kinds of peers are missing.
      const FileDescriptor& listener = tcp_wanted && (turn_ = !turn_) ? tcp_ : (unix_ ? unix_ : tcp_);
      const bool both = tcp_wanted && unix_;
      const std::int64_t until =
          both ? std::min(options_.deadline_ns, now_ns() + 2'000'000) : options_.deadline_ns;
      if (!wait_ready(listener, false, until)) {
        if (now_ns() < options_.deadline_ns) continue;
        throw Error(
            ErrorCode::timeout,
            fmt::format("rank {}: {} {} joined but did not connect before the deadline", options_.rank,
                        missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")));
      }
      FileDescriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd) greet(std::move(fd), &listener == &unix_);
    }
  }

  // A connection that does not greet as one of the missing ranks is dropped: somebody else's, or a
  // stranger's.
  void greet(FileDescriptor fd, bool local) {
    constexpr std::int64_t kPatience = 5'000'000'000;
    std::array<std::byte, wire::kHelloBytes> bytes;
    FileDescriptor file;
    wire::Hello h;
    try {
      const std::int64_t until = std::min(options_.deadline_ns, now_ns() + kPatience);
      if (local) {
        file = receive_with_descriptor(fd, bytes.data(), bytes.size(), until);
      } else {
        receive_all(fd, bytes.data(), bytes.size(), until);
      }
      if (!wire::decode(bytes, h).empty()) return;
    } catch (const Error&) {
      return;
    }
    const int r = static_cast<int>(h.rank);
    if (h.job != job_ || r <= options_.rank || r >= options_.size) return;
    Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
    if (c.local != local || h.stream >= expected_streams(r) || (local && !file)) return;
    c.streams.resize(static_cast<std::size_t>(expected_streams(r)));
    if (c.streams[h.stream]) return;
    if (local) {
      const auto answer = wire::encode(hello(0));
      send_with_descriptor(fd, answer.data(), answer.size(), segment_file_);
      c.segment.emplace(file, local_ranks_);
    } else {
      tune_tcp(fd);
    }
    c.streams[h.stream] = std::move(fd);
  }

  Store& store_;
  const ConnectOptions& options_;
  Mesh mesh_;
  Card own_;
  std::vector<Card> cards_;
  FileDescriptor tcp_;
  FileDescriptor unix_;
  FileDescriptor segment_file_;
  std::uint64_t job_ = 0;
  int local_ranks_ = 0;
  bool turn_ = false;
};

}  // namespace

Mesh connect_all(Store& store, const ConnectOptions& options) {
  return Connector(store, options).run();
}

}  // namespace talweg::live
