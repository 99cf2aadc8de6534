#include "live/connect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>

#include "live/gate.h"
#include "live/interface.h"
#include "talweg/error.h"

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
  std::uint64_t job = 0;            // rank 0's own number, or the one that this rank has seen of it
  std::string key_origin = "open";  // "job", "store", "open"
  int encrypt = 0;
  std::string secret = "-";  // rank 0's, when the origin is the store
  int size = 0;              // how many ranks it was told that there are
  std::vector<std::uint64_t> alike;
};

// Host ids are machine.namespace.
std::string machine_of(const std::string& host) {
  return host.substr(0, host.find('.'));
}

std::string to_text(const Card& c) {
  return fmt::format("talweg {} {} {} {} {} {} {} {} {} {} {} {} {} {:x}", c.version, c.endpoint.host,
                     c.endpoint.port, c.host_id, c.unix_name, c.host_name, c.pid, c.streams, c.job,
                     c.key_origin, c.encrypt, c.secret, c.size, fmt::join(c.alike, " "));
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
        c.streams >> c.job >> c.key_origin >> c.encrypt >> c.secret >> c.size))
    throw Error(ErrorCode::version,
                fmt::format("rank {} published a card that this version cannot read", rank));
  for (std::uint64_t digest = 0; in >> std::hex >> digest;) c.alike.push_back(digest);
  return c;
}

std::string key_in_words(const Card& card) {
  return card.key_origin == "job"     ? "a job key"
         : card.key_origin == "store" ? "a key from the store"
                                      : "no key";
}

std::uint64_t random_number() {
  std::uint64_t value = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

constexpr std::int64_t kSweepEveryNs = 200'000'000;
constexpr std::chrono::microseconds kShortestRest{500};  // between two looks into the store
constexpr std::chrono::microseconds kLongestRest{20'000};
constexpr const char* kGivenUp = "given up: ";
constexpr std::int64_t kOldNs = 1'000'000'000;  // after so long it was not a rank 0 of the past that gave up
constexpr std::byte kSegmentFollows{'S'};       // what a descriptor travels along with

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
            key_, [this](const wire::Introduction& i) { return wanted(i); }, Logger(options.rank)) {}

  Mesh run() {
    mesh_.connections.resize(static_cast<std::size_t>(options_.size));
    find_key();
    publish();
    collect();
    prepare_segment();
    for (int r = 0; r < options_.rank; ++r) connect_to(r);
    accept_rest();
    if (const std::uint64_t n = gate_.counts().strangers(); n > 0)
      mesh_.security += fmt::format(", {} strange connections dropped while joining", n);
    return std::move(mesh_);
  }

 private:
  void find_key() {
    if (options_.key) {
      key_ = *options_.key;
      own_.key_origin = "job";
    } else if (store_.confidential()) {
      own_.key_origin = "store";
      if (options_.rank == 0) own_.secret = wire::random_key_text();
    } else if (!is_loopback(options_.address)) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("rank {} will not listen on {}, which others can reach, without a job key: give every "
                      "rank the same secret in TALWEG_KEY or in a file of mode 600 named by TALWEG_KEY_FILE "
                      "(talweg run does so by itself)",
                      options_.rank, options_.address));
    }
    if (options_.encrypt && own_.key_origin == "open")
      throw Error(ErrorCode::invalid_argument,
                  "TALWEG_ENCRYPT needs a job key: set TALWEG_KEY or TALWEG_KEY_FILE on every rank");
    own_.encrypt = options_.encrypt ? 1 : 0;
  }

  void publish() {
    // Cards of other groups that share the store and use the same name must not be mistaken for ours: the
    // random part makes the Unix name unique.
    const std::uint64_t token = random_number();
    own_.endpoint = {options_.address, 0};
    if (options_.size > 1) {
      FileDescriptor tcp = listen_tcp(own_.endpoint);
      own_.endpoint = local_endpoint(tcp);
      gate_.listen(std::move(tcp));
    }
    own_.host_id = host_id();
    if (options_.shared_memory && options_.size > 1) {
      own_.unix_name = fmt::format("talweg-{}-{:016x}", ::getpid(), token);
      gate_.listen(listen_unix(own_.unix_name), true);
    }
    own_.host_name = host_name();
    if (own_.host_name.empty()) own_.host_name = "-";
    own_.pid = ::getpid();
    own_.size = options_.size;
    own_.streams = options_.streams;
    for (const auto& [setting, digest] : options_.alike) own_.alike.push_back(digest);
    own_.job = options_.rank == 0 ? token : 0;
    if (options_.size > 1) store_.set(key(options_.rank), to_text(own_));
  }

  // A store may outlive a group that used the same prefix (torchrun keeps one through its restarts), so what
  // is found there may be what the dead have left. Rank 0 draws a number; the others put into their cards
  // which number they have seen; when all have seen this one, rank 0 publishes the cards under it. A table
  // that lacks a rank's own card is an old one, and the rank looks again.
  void collect() {
    cards_.resize(static_cast<std::size_t>(options_.size));
    cards_[static_cast<std::size_t>(options_.rank)] = own_;
    {
      const Sweeper sweeper(gate_);
      if (options_.rank > 0) {
        read_table();
      } else if (options_.size > 1) {
        try {
          gather_cards();
        } catch (const Error& e) {
          store_.set(table_key(own_.job), std::string(kGivenUp) + e.what());
          throw;
        }
      }
    }
    job_ = cards_[0].job;
    mesh_.job = job_;
    agree_on_security();
    agree_on_settings();
    number_hosts();
  }

  void gather_cards() {
    std::vector<int> missing;
    std::string table = to_text(own_);
    for (int r = 1; r < options_.size; ++r) {
      Card& card = cards_[static_cast<std::size_t>(r)];
      for (;;) {
        const auto text = look_up(key(r), options_.deadline_ns);
        if (!text) {
          missing.push_back(r);
          break;
        }
        card = parse_card(*text, r);
        if (card.job == own_.job) {
          agree_on_size(r, card, 0, own_);
          table += "\n" + *text;
          break;
        }
        if (now_ns() >= options_.deadline_ns) {
          missing.push_back(r);
          break;
        }
        std::this_thread::sleep_for(kLongestRest);
      }
    }
    never_came(missing);
    store_.set(table_key(own_.job), table);
  }

  void read_table() {
    const std::string mine = key(options_.rank);
    std::int64_t given_up_ns = 0;
    auto rest = kShortestRest;
    for (;;) {
      const auto root = look_up(key(0), options_.deadline_ns);
      if (!root) break;
      if (const Card first = parse_card(*root, 0); first.job != own_.job) {
        own_.job = first.job;
        given_up_ns = 0;
        store_.set(mine, to_text(own_));
      }
      const auto table = store_.find(table_key(own_.job));
      if (table && table->starts_with(kGivenUp)) {
        // Perhaps another rank 0 is on its way.
        if (given_up_ns == 0) given_up_ns = now_ns();
        if (now_ns() - given_up_ns > kOldNs)
          throw Error(ErrorCode::peer_failed, table->substr(std::strlen(kGivenUp)));
      } else if (table && accept_table(*table)) {
        return;
      }
      if (now_ns() >= options_.deadline_ns) break;
      std::this_thread::sleep_for(rest);
      rest = std::min(2 * rest, kLongestRest);
    }
    std::vector<int> missing;
    for (int r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      const auto card = store_.find(key(r));
      if (!card || parse_card(*card, r).job != own_.job)
        missing.push_back(r);  // a card of the dead does not count
    }
    never_came(missing);
    if (const auto root = store_.find(key(0))) agree_on_size(0, parse_card(*root, 0), options_.rank, own_);
    throw Error(ErrorCode::timeout,
                fmt::format("rank {} of {}: rank 0 did not say before the deadline that all "
                            "have joined",
                            options_.rank, options_.size));
  }

  bool accept_table(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    for (int r = 0; r < options_.size; ++r) {
      if (!std::getline(lines, line)) return false;
      if (r == options_.rank && line != to_text(own_)) return false;
      cards_[static_cast<std::size_t>(r)] = parse_card(line, r);
    }
    return true;
  }

  // Empty at the deadline.
  std::optional<std::string> look_up(const std::string& name, std::int64_t deadline_ns) {
    try {
      return store_.get(name, std::chrono::steady_clock::time_point{std::chrono::nanoseconds(deadline_ns)});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::timeout) throw;
      return std::nullopt;
    }
  }

  void never_came(const std::vector<int>& missing) const {
    if (missing.empty()) return;
    throw Error(ErrorCode::timeout,
                fmt::format("rank {} of {} waited for the others to join: {} {} never came", options_.rank,
                            options_.size, missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")));
  }

  std::string table_key(std::uint64_t job) const { return fmt::format("{}all{:016x}", options_.prefix, job); }

  std::string key(int rank) const { return fmt::format("{}rank{}", options_.prefix, rank); }

  void number_hosts() {
    std::vector<std::string> hosts;
    mesh_.one_machine = true;
    mesh_.cores = cores_online();
    for (int r = 0; r < options_.size; ++r) {
      Connection& c = mesh_.connections[static_cast<std::size_t>(r)];
      const Card& card = cards_[static_cast<std::size_t>(r)];
      c.rank = r;
      c.host = fmt::format("{} pid {}", card.host_name, card.pid);
      mesh_.one_machine = mesh_.one_machine && machine_of(card.host_id) == machine_of(own_.host_id);
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

  void agree_on_security() {
    for (int r = 0; r < options_.size; ++r) {
      const Card& card = cards_[static_cast<std::size_t>(r)];
      if (card.key_origin != own_.key_origin)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("rank {} has {}, rank {} has {}: give TALWEG_KEY or TALWEG_KEY_FILE to all",
                                r, key_in_words(card), options_.rank, key_in_words(own_)));
      if (card.encrypt != own_.encrypt)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("rank {} {}, rank {} {}: set TALWEG_ENCRYPT alike on all", r,
                                card.encrypt != 0 ? "encrypts" : "does not encrypt", options_.rank,
                                own_.encrypt != 0 ? "does" : "does not"));
    }
    if (own_.key_origin == "store") key_ = wire::secret_from_text(cards_[0].secret);
    mesh_.security = own_.key_origin == "job" ? "both ends of every connection proved the job's key"
                     : own_.key_origin == "store"
                         ? "both ends of every connection proved a key from the store"
                         : "no key: all on loopback";
    mesh_.security +=
        own_.encrypt != 0 ? ", frames to other hosts are encrypted" : ", frames are not encrypted";
  }

  static void agree_on_size(int r, const Card& card, int other, const Card& others) {
    if (card.size != others.size)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {} was told that there are {} ranks, rank {} that there are {}: give all "
                              "the same WORLD_SIZE",
                              r, card.size, other, others.size));
  }

  void agree_on_settings() const {
    for (int r = 0; r < options_.size; ++r) {
      const Card& card = cards_[static_cast<std::size_t>(r)];
      if (card.alike.size() != own_.alike.size())
        throw Error(ErrorCode::version, fmt::format("rank {} published a card of another version", r));
      for (std::size_t i = 0; i < own_.alike.size(); ++i)
        if (card.alike[i] != own_.alike[i])
          throw Error(ErrorCode::invalid_argument,
                      fmt::format("rank {} and rank {} have different values of {}: set it alike on all", r,
                                  options_.rank, options_.alike[i].first));
    }
  }

  wire::Introduction introduction(int r, int stream) const {
    wire::Introduction i;
    i.purpose = wire::Purpose::data;
    i.encrypt = encrypted(r);
    i.stream = static_cast<std::uint16_t>(stream);
    i.from = static_cast<std::uint32_t>(options_.rank);
    i.to = static_cast<std::uint32_t>(r);
    i.job = job_;
    return i;
  }

  // Memory that is shared on one host is not for others to read anyway.
  bool encrypted(int r) const {
    return options_.encrypt && !mesh_.connections[static_cast<std::size_t>(r)].local;
  }

  bool wanted(const wire::Introduction& i) const {
    const int r = static_cast<int>(i.from);
    if (r <= options_.rank || r >= options_.size) return false;
    wire::Introduction expected = introduction(r, i.stream);
    std::swap(expected.from, expected.to);
    return i == expected && i.stream < expected_streams(r);
  }

  Visitor visit(int r, int stream) {
    const Card& card = cards_[static_cast<std::size_t>(r)];
    const bool local = mesh_.connections[static_cast<std::size_t>(r)].local;
    return knock(
        [&] {
          return local ? connect_unix(card.unix_name) : connect_tcp(card.endpoint, options_.deadline_ns);
        },
        key_, introduction(r, stream), options_.deadline_ns, [this] { admit(); });
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
      throw Error(e.code(),
                  fmt::format("rank {} connecting to rank {} ({}, {}): {}", options_.rank, r, c.host,
                              to_string(cards_[static_cast<std::size_t>(r)].endpoint), e.what()));
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
           std::all_of(streams.begin(), streams.end(),
                       [](const FileDescriptor& fd) { return static_cast<bool>(fd); });
  }

  void accept_rest() {
    for (;;) {
      std::vector<int> missing;
      for (int r = options_.rank + 1; r < options_.size; ++r)
        if (!complete(r)) missing.push_back(r);
      if (missing.empty()) return;
      if (now_ns() >= options_.deadline_ns) {
        const std::string who = fmt::format("rank {}: {} {} joined but", options_.rank,
                                            missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "));
        if (!gate_.trouble().empty())
          throw Error(ErrorCode::system, fmt::format("{} could not be let in: {}", who, gate_.trouble()));
        throw Error(ErrorCode::timeout, who + " did not connect before the deadline");
      }
      wait_ready(gate_.fd(), false, std::min(options_.deadline_ns, gate_.next_ns()));
      admit();
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
