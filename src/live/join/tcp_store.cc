// A key-value store that rank 0 serves over TCP, for as long as it takes ranks to find each other.
//
// Clients pass the gate first (gate.h); then both sides speak in encrypted records (wire/store_message.h). A
// connection that breaks the form is dropped.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/fail.h"
#include "live/fork_mark.h"
#include "live/join/gate.h"
#include "live/join/interface.h"
#include "live/system.h"
#include "talweg/store.h"
#include "wire/store_message.h"

namespace talweg {

namespace {

using live::FileDescriptor;

constexpr std::size_t kMaxClients = 16384;
constexpr std::int64_t kStorePatienceNs = 10'000'000'000;  // with a store that takes nothing

// Serves from one thread; every client is a small buffer and at most one pending get.
class Server {
 public:
  Server(FileDescriptor listener, const wire::Secret& key)
      : key_(key),
        gate_(
            key_, [](const wire::Introduction& i) { return i.purpose == wire::Purpose::store && i.encrypt; },
            Logger(0)),
        stop_(live::check(::eventfd(0, EFD_CLOEXEC), "creating an eventfd")) {
    gate_.listen(std::move(listener));
    thread_ = std::thread([this] { loop(); });
  }
  ~Server() {
    if (mark_.inherited()) {  // the thread is not here, and the eventfd is the other process's as well
      thread_.detach();
      return;
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

  const live::GateCounts& counts() const { return gate_.counts(); }

 private:
  struct Client {
    FileDescriptor socket;
    wire::Cipher from;
    wire::Cipher to;
    std::vector<std::byte> input;
    std::vector<std::byte> output;
    std::optional<std::string> wants;
    std::int64_t until_ns = 0;
  };

  void loop() {
    std::vector<pollfd> polled;
    for (;;) {
      polled.clear();
      polled.push_back({stop_.get(), POLLIN, 0});
      polled.push_back({gate_.fd().get(), POLLIN, 0});
      std::int64_t next = gate_.next_ns();
      for (const Client& c : clients_) {
        polled.push_back({c.socket.get(), static_cast<short>(POLLIN | (c.output.empty() ? 0 : POLLOUT)), 0});
        if (c.wants) next = std::min(next, c.until_ns);
      }
      const std::int64_t left = std::min(next, live::now_ns() + 1000 * live::kMillisecondNs) - live::now_ns();
      ::poll(polled.data(), polled.size(),
             static_cast<int>(std::max<std::int64_t>(left / live::kMillisecondNs + 1, 0)));
      if (polled[0].revents != 0) return say_closing();
      for (std::size_t i = 0; i < clients_.size(); ++i)
        if (polled[i + 2].revents != 0 && !serve(clients_[i])) clients_[i].socket.reset();
      const std::int64_t now = live::now_ns();
      for (Client& c : clients_)
        if (c.wants && c.until_ns <= now) answer(c, nullptr);
      for (Client& c : clients_) flush(c);
      std::erase_if(clients_, [](const Client& c) { return !c.socket; });
      let_in(now);
    }
  }

  // To who is here: who comes now may be early for the store of another group at the same address.
  void say_closing() {
    for (Client& c : clients_) {
      if (!c.socket) continue;
      wire::append_record(encode(wire::StoreAnswer{false, {}, true}), c.to, c.output);
      flush(c);
    }
  }

  void let_in(std::int64_t now) {
    for (live::Visitor& v : gate_.step(now)) {
      if (clients_.size() >= kMaxClients) continue;
      const wire::CipherKind kind = v.secrets.cipher;
      clients_.push_back({std::move(v.socket),
                          wire::Cipher(kind, v.secrets.receive),
                          wire::Cipher(kind, v.secrets.send),
                          {},
                          {},
                          {},
                          0});
    }
  }

  bool serve(Client& c) {
    std::array<std::byte, 16384> chunk;
    const ssize_t n = ::recv(c.socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c.input.insert(c.input.end(), chunk.begin(), chunk.begin() + n);
    for (;;) {
      const wire::StoreRecord record = wire::first_record(c.input, c.from);
      if (record.state == wire::StoreRecord::State::incomplete) return true;
      if (record.state == wire::StoreRecord::State::broken) return false;
      c.input.erase(c.input.begin(), c.input.begin() + static_cast<std::ptrdiff_t>(record.bytes));
      const auto request = wire::decode_store_request(record.text);
      if (!request || c.wants) return false;
      obey(*request, c);
    }
  }

  void obey(const wire::StoreRequest& request, Client& c) {
    if (!request.get) {
      values_[request.key] = request.value;
      for (Client& other : clients_)
        if (other.wants == request.key) answer(other, &request.value);
      return;
    }
    c.wants = request.key;
    c.until_ns = live::now_ns() + static_cast<std::int64_t>(request.wait_ms) * live::kMillisecondNs;
    if (const auto it = values_.find(request.key); it != values_.end()) answer(c, &it->second);
  }

  static void answer(Client& c, const std::string* value) {
    c.wants.reset();
    wire::append_record(
        encode(wire::StoreAnswer{value != nullptr, value != nullptr ? *value : std::string()}), c.to,
        c.output);
  }

  static void flush(Client& c) {
    if (!c.socket || c.output.empty()) return;
    const ssize_t n = ::send(c.socket.get(), c.output.data(), c.output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) c.output.erase(c.output.begin(), c.output.begin() + n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) c.socket.reset();
  }

  const wire::Secret key_;
  live::Gate gate_;
  FileDescriptor stop_;
  std::map<std::string, std::string> values_;
  std::vector<Client> clients_;
  live::ForkMark mark_;
  std::thread thread_;
};

class TcpStore : public Store {
 public:
  TcpStore(const std::string& host, int port, bool serve, std::int64_t deadline_ns, const std::string& key)
      : secret_(key.empty() ? wire::Secret{} : wire::secret_from_text(key)),
        endpoint_{live::resolve_host(host), port},
        deadline_ns_(deadline_ns) {
    if (serve) {
      if (key.empty() && !live::is_loopback(endpoint_.host))
        refuse(
            "store at {}: will not listen where others can reach it without a job key: give "
            "every rank the same secret in TALWEG_KEY or in a file of mode 600 named by "
            "TALWEG_KEY_FILE (talweg run does so by itself)",
            to_string(endpoint_));
      FileDescriptor listener = live::listen_tcp(endpoint_);
      endpoint_.port = live::local_endpoint(listener).port;
      server_.emplace(std::move(listener), secret_);
    }
    attempt("joining", "", [&] { connect(deadline_ns); });
  }

  void set(const std::string& key, const std::string& value) override {
    if (key.size() > wire::kMaxStoreKey || value.size() > wire::kMaxStoreValue)
      refuse("store: key \"{}\" or its value is too long", key);
    const std::lock_guard lock(mutex_);
    said_[key] = value;
    const std::int64_t until = live::now_ns() + kStorePatienceNs;
    attempt("setting", key, [&] { persist(until, [&] { say({false, key, value, 0}, until); }); });
  }

  std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
    const std::lock_guard lock(mutex_);
    const std::int64_t until =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    const std::int64_t ms =
        std::clamp<std::int64_t>((until - live::now_ns()) / live::kMillisecondNs, 0, 1'000'000'000);
    // The server answers at the deadline; a server that does not is gone.
    const std::int64_t patience = std::max(until, live::now_ns()) + 5'000 * live::kMillisecondNs;
    wire::StoreAnswer answer;
    attempt("asking for", key, [&] {
      persist(until, [&] {
        say({true, key, {}, static_cast<std::uint32_t>(ms)}, patience);
        answer = hear(patience);
        if (answer.closing) throw Closed();
      });
    });
    if (!answer.found)
      throw_error(ErrorCode::timeout, "store at {}: nobody has set \"{}\"", to_string(endpoint_), key);
    return answer.value;
  }

  std::uint64_t refused_connections() const override { return server_ ? server_->counts().strangers() : 0; }

 private:
  template <class Function>
  void attempt(const char* what, const std::string& key, Function&& function) {
    try {
      function();
    } catch (const Error& e) {
      const std::string subject = key.empty() ? "" : fmt::format(" \"{}\"", key);
      throw_error(e.code(), "store at {}: {}{}: {}", to_string(endpoint_), what, subject, e.what());
    }
  }

  // The store has ended in order.
  struct Closed {};

  void connect(std::int64_t deadline_ns) {
    wire::Introduction introduction;
    introduction.purpose = wire::Purpose::store;
    introduction.encrypt = true;
    live::Visitor visitor = live::knock([&] { return live::connect_tcp(endpoint_, deadline_ns); }, secret_,
                                        introduction, deadline_ns);
    socket_ = std::move(visitor.socket);
    to_.emplace(visitor.secrets.cipher, visitor.secrets.send);
    from_.emplace(visitor.secrets.cipher, visitor.secrets.receive);
    live::tune_tcp(socket_);
  }

  // What is done with a store that ends in order was meant for the one that comes in its place: at the same
  // address, the store of the group before may just be closing. That one is told what this rank has set.
  template <class Function>
  void persist(std::int64_t until_ns, Function&& function) {
    bool closed = false;
    for (;;) {
      try {
        if (closed) {
          connect(std::min(until_ns, deadline_ns_));
          for (const auto& [key, value] : said_)
            say({false, key, value, 0}, live::now_ns() + kStorePatienceNs);
        }
        return function();
      } catch (const Closed&) {
        closed = true;
      } catch (const Error& e) {
        if (closed && e.code() == ErrorCode::timeout)
          throw Error(ErrorCode::peer_failed, "it was closed, and no other one has come in its place");
        if (e.code() != ErrorCode::peer_failed || !said_closing()) throw;
        closed = true;
      }
    }
  }

  // Its last word, when nothing can be sent to it any more.
  bool said_closing() {
    try {
      return hear(live::now_ns() + live::kMillisecondNs).closing;
    } catch (const Error&) {
      return false;
    }
  }

  void say(const wire::StoreRequest& request, std::int64_t deadline_ns) {
    std::vector<std::byte> record;
    wire::append_record(encode(request), *to_, record);
    live::send_all(socket_, record.data(), record.size(), deadline_ns);
  }

  wire::StoreAnswer hear(std::int64_t deadline_ns) {
    std::vector<std::byte> input;
    for (std::size_t more = wire::kMinStoreRecord;;) {
      input.resize(input.size() + more);
      live::receive_all(socket_, input.data() + input.size() - more, more, deadline_ns);
      const wire::StoreRecord record = wire::first_record(input, *from_);
      if (record.state == wire::StoreRecord::State::incomplete) {
        more = record.bytes - input.size();
        continue;
      }
      const auto answer = wire::decode_store_answer(record.text);
      if (record.state == wire::StoreRecord::State::broken || !answer)
        throw Error(ErrorCode::corrupted, "the answer is forged or damaged");
      return *answer;
    }
  }

  const wire::Secret secret_;
  std::optional<Server> server_;
  live::Endpoint endpoint_;
  const std::int64_t deadline_ns_;           // of joining: until then another store is waited for
  std::map<std::string, std::string> said_;  // what was set here
  FileDescriptor socket_;
  std::optional<wire::Cipher> to_;
  std::optional<wire::Cipher> from_;
  std::mutex mutex_;
};

}  // namespace

std::shared_ptr<Store> tcp_store(const std::string& host, int port, bool serve,
                                 std::chrono::steady_clock::time_point deadline, const std::string& key) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  return std::make_shared<TcpStore>(host, port, serve, ns, key);
}

}  // namespace talweg
