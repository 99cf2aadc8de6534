// Requests, answers and records of the TCP store: what is let through must encode to the same bytes again.
#include "fuzz/fuzz.h"
#include "wire/store_message.h"

using namespace talweg;

namespace {
bool same(const std::string& text, std::span<const std::byte> bytes) {
  return text == std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = fuzz::bytes_of(data, size);
  if (const auto request = wire::decode_store_request(bytes)) {
    fuzz::require(request->key.size() <= wire::kMaxStoreKey && request->value.size() <= wire::kMaxStoreValue);
    fuzz::require(same(wire::encode(*request), bytes) || !request->get);
  }
  if (const auto answer = wire::decode_store_answer(bytes)) fuzz::require(same(wire::encode(*answer), bytes));

  const wire::Secret key = wire::secret_from_text("a key that no fuzzer knows");
  wire::Cipher from(wire::CipherKind::chacha20_poly1305, key);
  const auto record = wire::first_record(bytes, from);
  fuzz::require(record.state != wire::StoreRecord::State::complete);
  fuzz::require(record.text.size() <= wire::kMaxStoreRecord);

  // And what a member sends, whole, however it continues.
  wire::Cipher to(wire::CipherKind::chacha20_poly1305, key);
  wire::Cipher other(wire::CipherKind::chacha20_poly1305, key);
  std::vector<std::byte> sent;
  const std::string message(reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 1000));
  wire::append_record(message, to, sent);
  sent.insert(sent.end(), bytes.begin(), bytes.end());
  const auto whole = wire::first_record(sent, other);
  fuzz::require(whole.state == wire::StoreRecord::State::complete && same(message, whole.text));
  return 0;
}
