#include "live/aggregation/switch_line.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/fail.h"
#include "wire/store_message.h"

namespace talweg::live {

SwitchLine::SwitchLine(Visitor visitor, std::size_t most)
    : socket_(std::move(visitor.socket)),
      from_(visitor.secrets.cipher, visitor.secrets.receive),
      to_(visitor.secrets.cipher, visitor.secrets.send),
      most_(most) {
  set_non_blocking(socket_);
}

bool SwitchLine::receive() {
  std::array<std::byte, 4096> chunk;
  // Never more than one message and what came with it: the rest stays with the kernel.
  while (input_.size() <= most_ + wire::kMinStoreRecord) {
    const ssize_t n = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    input_.insert(input_.end(), chunk.begin(), chunk.begin() + n);
  }
  return true;
}

std::optional<wire::SwitchMessage> SwitchLine::next() {
  if (broken_) return std::nullopt;
  const wire::StoreRecord record = wire::first_record(input_, from_);
  broken_ = record.state == wire::StoreRecord::State::broken || record.bytes > most_ + wire::kMinStoreRecord;
  if (broken_ || record.state == wire::StoreRecord::State::incomplete) return std::nullopt;
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(record.bytes));
  auto message = wire::decode_switch_message(record.text);
  broken_ = !message;
  return message;
}

void SwitchLine::say(const wire::SwitchMessage& message) {
  wire::append_record(encode(message), to_, output_);
}

bool SwitchLine::flush() {
  while (!output_.empty()) {
    const ssize_t n = ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    output_.erase(output_.begin(), output_.begin() + n);
  }
  return true;
}

std::string switch_control_name(const Endpoint& address) {
  return "talweg-switch-" + to_string(address);
}

namespace {

// Anybody may listen under any such name. Who is root has to be able to reach everybody's.
FileDescriptor connect_control(const std::string& name) {
  FileDescriptor socket = connect_unix(name);
  const auto user = user_at(socket);
  if (!user || (*user != 0 && *user != ::geteuid() && ::geteuid() != 0))
    refuse("the process that listens there is another user's");
  return socket;
}

}  // namespace

std::string give_order(const Endpoint& address, const wire::Secret& key, wire::SwitchDo order,
                       std::int64_t deadline_ns) {
  wire::Introduction introduction;
  introduction.purpose = wire::Purpose::aggregation;
  introduction.encrypt = true;
  const std::string name = switch_control_name({resolve_host(address.host), address.port});
  const std::string where = to_string(address);
  Visitor visitor;
  try {
    visitor = knock([&] { return connect_control(name); }, key, introduction, deadline_ns, {},
                    "give the switch's secret in --key-file, TALWEG_KEY_FILE or TALWEG_KEY");
  } catch (const Error& e) {
    throw_error(e.code(), "no order to a switch at {} of this host: {}", where, e.what());
  }
  SwitchLine line(std::move(visitor), wire::kMaxSwitchText + 16);
  line.say(wire::SwitchOrder{order});
  for (bool open = line.flush();;) {
    while (const auto message = line.next()) {
      if (const auto* const text = std::get_if<wire::SwitchText>(&*message)) return text->text;
      if (const auto* const refused = std::get_if<wire::SwitchRefused>(&*message))
        throw_error(refused->code, "the switch at {}: {}", where, refused->reason);
    }
    if (!open || line.broken())
      throw_error(ErrorCode::peer_failed, "the switch at {} has ended before it had answered", where);
    if (!wait_ready(line.socket(), false, deadline_ns))
      throw_error(ErrorCode::timeout, "the switch at {} has not answered", where);
    open = line.receive();
  }
}

}  // namespace talweg::live
