// A key-value store that rank 0 serves over TCP, for as long as it takes ranks to find each other.
//
// A request is {magic, kind, key length, value length or timeout in ms} and the bytes; an answer to get is
// {found, length} and the bytes. Lengths are bounded; a connection that breaks the form is dropped.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "live/system.h"
#include "talweg/error.h"
#include "talweg/store.h"

namespace talweg {

namespace {

using live::FileDescriptor;

constexpr std::uint32_t kMagic = 0x53574c54;  // "TLWS"
constexpr std::uint32_t kMaxKey = 4096;
constexpr std::uint32_t kMaxValue = 64 << 10;
constexpr std::size_t kMaxClients = 16384;
constexpr std::int64_t kMillisecond = 1'000'000;
enum : std::uint32_t { set_request = 1, get_request = 2 };

struct RequestHead {
  std::uint32_t magic, kind, key_bytes, value_bytes_or_ms;
};
struct AnswerHead {
  std::uint32_t found, bytes;
};

// Serves from one thread; every client is a small buffer and at most one pending get.
class Server {
 public:
  explicit Server(FileDescriptor listener)
      : listener_(std::move(listener)), stop_(live::check(::eventfd(0, EFD_CLOEXEC), "creating an eventfd")) {
    thread_ = std::thread([this] { loop(); });
  }
  ~Server() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  struct Client {
    FileDescriptor socket;
    std::vector<char> input;
    std::vector<char> output;
    std::optional<std::string> wants;
    std::int64_t until_ns = 0;
  };

  void loop() {
    std::vector<pollfd> polled;
    for (;;) {
      polled.clear();
      polled.push_back({stop_.get(), POLLIN, 0});
      polled.push_back({listener_.get(), static_cast<short>(clients_.size() < kMaxClients ? POLLIN : 0), 0});
      int wait_ms = -1;
      for (const Client& c : clients_) {
        polled.push_back({c.socket.get(), static_cast<short>(POLLIN | (c.output.empty() ? 0 : POLLOUT)), 0});
        if (!c.wants) continue;
        const auto left = static_cast<int>(
            std::clamp<std::int64_t>((c.until_ns - live::now_ns()) / kMillisecond + 1, 0, 1000));
        wait_ms = wait_ms < 0 ? left : std::min(wait_ms, left);
      }
      ::poll(polled.data(), polled.size(), wait_ms);
      if (polled[0].revents != 0) return;
      for (std::size_t i = 0; i < clients_.size(); ++i)
        if (polled[i + 2].revents != 0 && !serve(clients_[i])) clients_[i].socket.reset();
      const std::int64_t now = live::now_ns();
      for (Client& c : clients_)
        if (c.wants && c.until_ns <= now) answer(c, nullptr);
      for (Client& c : clients_) flush(c);
      std::erase_if(clients_, [](const Client& c) { return !c.socket; });
      if (polled[1].revents != 0) accept_all();
    }
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      clients_.push_back({FileDescriptor(fd), {}, {}, {}, 0});
    }
  }

  bool serve(Client& c) {
    char chunk[16384];
    const ssize_t n = ::recv(c.socket.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c.input.insert(c.input.end(), chunk, chunk + n);
    RequestHead head;
    while (c.input.size() >= sizeof head) {
      std::memcpy(&head, c.input.data(), sizeof head);
      const bool sound = head.magic == kMagic && (head.kind == set_request || head.kind == get_request) &&
                         head.key_bytes <= kMaxKey &&
                         (head.kind == get_request || head.value_bytes_or_ms <= kMaxValue);
      if (!sound || c.wants) return false;
      const std::size_t total =
          sizeof head + head.key_bytes + (head.kind == set_request ? head.value_bytes_or_ms : 0);
      if (c.input.size() < total) return true;
      const std::string key(c.input.data() + sizeof head, head.key_bytes);
      if (head.kind == set_request) {
        values_[key] = std::string(c.input.data() + sizeof head + head.key_bytes, head.value_bytes_or_ms);
        for (Client& other : clients_)
          if (other.wants == key) answer(other, &values_[key]);
      } else {
        c.wants = key;
        c.until_ns = live::now_ns() + static_cast<std::int64_t>(head.value_bytes_or_ms) * kMillisecond;
        if (const auto it = values_.find(key); it != values_.end()) answer(c, &it->second);
      }
      c.input.erase(c.input.begin(), c.input.begin() + static_cast<std::ptrdiff_t>(total));
    }
    return true;
  }

  static void answer(Client& c, const std::string* value) {
    c.wants.reset();
    const AnswerHead head{value != nullptr ? 1U : 0U,
                          value != nullptr ? static_cast<std::uint32_t>(value->size()) : 0U};
    const auto* raw = reinterpret_cast<const char*>(&head);
    c.output.insert(c.output.end(), raw, raw + sizeof head);
    if (value != nullptr) c.output.insert(c.output.end(), value->begin(), value->end());
  }

  static void flush(Client& c) {
    if (!c.socket || c.output.empty()) return;
    const ssize_t n = ::send(c.socket.get(), c.output.data(), c.output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) c.output.erase(c.output.begin(), c.output.begin() + n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) c.socket.reset();
  }

  FileDescriptor listener_;
  FileDescriptor stop_;
  std::map<std::string, std::string> values_;
  std::vector<Client> clients_;
  std::thread thread_;
};

class TcpStore : public Store {
 public:
  TcpStore(const std::string& host, int port, bool serve, std::int64_t deadline_ns) {
    std::string address = live::resolve_host(host);
    if (serve) {
      FileDescriptor listener = live::listen_tcp({address, port});
      port = live::local_endpoint(listener).port;
      server_.emplace(std::move(listener));
    }
    endpoint_ = {address, port};
    socket_ = live::connect_tcp(endpoint_, deadline_ns);
    live::tune_tcp(socket_);
  }

  void set(const std::string& key, const std::string& value) override {
    if (key.size() > kMaxKey || value.size() > kMaxValue)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("store: key \"{}\" or its value is too long", key));
    const std::lock_guard lock(mutex_);
    const RequestHead head{kMagic, set_request, static_cast<std::uint32_t>(key.size()),
                           static_cast<std::uint32_t>(value.size())};
    std::string message(reinterpret_cast<const char*>(&head), sizeof head);
    message += key + value;
    attempt("setting", key, [&] {
      live::send_all(socket_, message.data(), message.size(), live::now_ns() + 10'000 * kMillisecond);
    });
  }

  std::string get(const std::string& key, std::chrono::steady_clock::time_point deadline) override {
    const std::lock_guard lock(mutex_);
    const std::int64_t until =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    const std::int64_t ms =
        std::clamp<std::int64_t>((until - live::now_ns()) / kMillisecond, 0, 1'000'000'000);
    const RequestHead head{kMagic, get_request, static_cast<std::uint32_t>(key.size()),
                           static_cast<std::uint32_t>(ms)};
    std::string message(reinterpret_cast<const char*>(&head), sizeof head);
    message += key;
    std::string value;
    AnswerHead answer{};
    // The server answers at the deadline; a server that does not is gone.
    const std::int64_t patience = std::max(until, live::now_ns()) + 5'000 * kMillisecond;
    attempt("asking for", key, [&] {
      live::send_all(socket_, message.data(), message.size(), patience);
      live::receive_all(socket_, &answer, sizeof answer, patience);
      if (answer.bytes > kMaxValue) throw Error(ErrorCode::corrupted, "the answer is too long");
      value.resize(answer.bytes);
      live::receive_all(socket_, value.data(), value.size(), patience);
    });
    if (answer.found == 0)
      throw Error(ErrorCode::timeout,
                  fmt::format("store at {}: nobody has set \"{}\"", to_string(endpoint_), key));
    return value;
  }

 private:
  template <class Function>
  void attempt(const char* what, const std::string& key, Function&& function) {
    try {
      function();
    } catch (const Error& e) {
      throw Error(e.code(),
                  fmt::format("store at {}: {} \"{}\": {}", to_string(endpoint_), what, key, e.what()));
    }
  }

  std::optional<Server> server_;
  live::Endpoint endpoint_;
  FileDescriptor socket_;
  std::mutex mutex_;
};

}  // namespace

std::shared_ptr<Store> tcp_store(const std::string& host, int port, bool serve,
                                 std::chrono::steady_clock::time_point deadline) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  return std::make_shared<TcpStore>(host, port, serve, ns);
}

}  // namespace talweg
