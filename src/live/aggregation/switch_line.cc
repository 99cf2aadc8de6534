#include "live/aggregation/switch_line.h"

#include <fmt/format.h>
#include <sys/socket.h>

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

std::string switch_control_name(int port) {
  return fmt::format("talweg-switch-{}", port);
}

std::string give_order(int port, const wire::Secret& key, wire::SwitchDo order, std::int64_t deadline_ns) {
  wire::Introduction introduction;
  introduction.purpose = wire::Purpose::aggregation;
  introduction.encrypt = true;
  Visitor visitor;
  try {
    visitor = knock([&] { return connect_unix(switch_control_name(port)); }, key, introduction, deadline_ns);
  } catch (const Error& e) {
    throw_error(e.code(), "no order to a switch at port {} of this host: {}", port, e.what());
  }
  SwitchLine line(std::move(visitor), wire::kMaxSwitchText + 16);
  line.say(wire::SwitchOrder{order});
  for (bool open = line.flush();;) {
    while (const auto message = line.next()) {
      if (const auto* const text = std::get_if<wire::SwitchText>(&*message)) return text->text;
      if (const auto* const refused = std::get_if<wire::SwitchRefused>(&*message))
        throw_error(refused->code, "the switch at port {}: {}", port, refused->reason);
    }
    if (!open || line.broken())
      throw_error(ErrorCode::peer_failed, "the switch at port {} has ended before it had answered", port);
    if (!wait_ready(line.socket(), false, deadline_ns))
      throw_error(ErrorCode::timeout, "the switch at port {} has not answered", port);
    open = line.receive();
  }
}

}  // namespace talweg::live
