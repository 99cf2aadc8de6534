#include "wire/store_message.h"

#include <cstring>

namespace talweg::wire {

namespace {

enum : std::uint32_t { set_request = 1, get_request = 2 };

struct StoreRequestLayout {
  std::uint32_t kind;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t wait_ms;
};
constexpr std::uint32_t kClosing = 2;
struct StoreAnswerLayout {
  std::uint32_t found;  // 0, 1 or kClosing
  std::uint32_t value_bytes;
};

template <class Layout>
std::string with_head(const Layout& layout, const std::string& a, const std::string& b = {}) {
  return std::string(reinterpret_cast<const char*>(&layout), sizeof layout) + a + b;
}

std::string text_at(std::span<const std::byte> bytes, std::size_t at, std::size_t n) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, n};
}

}  // namespace

std::string encode(const StoreRequest& r) {
  const StoreRequestLayout head{r.get ? get_request : set_request, static_cast<std::uint32_t>(r.key.size()),
                                static_cast<std::uint32_t>(r.value.size()), r.wait_ms};
  return with_head(head, r.key, r.value);
}

std::string encode(const StoreAnswer& a) {
  return with_head(StoreAnswerLayout{a.closing ? kClosing
                                     : a.found ? 1U
                                               : 0U,
                                     static_cast<std::uint32_t>(a.value.size())},
                   a.value);
}

std::optional<StoreRequest> decode_store_request(std::span<const std::byte> bytes) {
  StoreRequestLayout head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const bool get = head.kind == get_request;
  if ((!get && head.kind != set_request) || head.key_bytes > kMaxStoreKey ||
      head.value_bytes > kMaxStoreValue || (get && head.value_bytes != 0) ||
      bytes.size() != sizeof head + head.key_bytes + head.value_bytes)
    return std::nullopt;
  return StoreRequest{get, text_at(bytes, sizeof head, head.key_bytes),
                      text_at(bytes, sizeof head + head.key_bytes, head.value_bytes), head.wait_ms};
}

std::optional<StoreAnswer> decode_store_answer(std::span<const std::byte> bytes) {
  StoreAnswerLayout head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.found > kClosing || head.value_bytes > kMaxStoreValue ||
      bytes.size() != sizeof head + head.value_bytes)
    return std::nullopt;
  return StoreAnswer{head.found == 1, text_at(bytes, sizeof head, head.value_bytes), head.found == kClosing};
}

void append_record(const std::string& message, Cipher& cipher, std::vector<std::byte>& out) {
  const auto n = static_cast<std::uint32_t>(message.size());
  const std::size_t at = out.size();
  out.resize(at + sizeof n + n + kTagBytes);
  std::memcpy(out.data() + at, &n, sizeof n);
  std::byte* const sealed = out.data() + at + sizeof n;
  cipher.seal(reinterpret_cast<const std::byte*>(message.data()), n, sealed, sealed + n);
}

StoreRecord first_record(std::span<const std::byte> arrived, Cipher& cipher) {
  StoreRecord record;
  std::uint32_t n = 0;
  if (arrived.size() < sizeof n) return record;
  std::memcpy(&n, arrived.data(), sizeof n);
  if (n > kMaxStoreRecord) {
    record.state = StoreRecord::State::broken;
    return record;
  }
  record.bytes = sizeof n + n + kTagBytes;
  if (arrived.size() < record.bytes) return record;
  record.text.resize(n);
  const std::byte* const sealed = arrived.data() + sizeof n;
  record.state = cipher.open(sealed, n, sealed + n, record.text.data()) ? StoreRecord::State::complete
                                                                        : StoreRecord::State::broken;
  return record;
}

}  // namespace talweg::wire
