#include "wire/store_message.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace talweg::wire {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(StoreMessage, RequestsAndAnswersSurviveTheWire) {
  const auto set =
      decode_store_request(bytes_of(encode(StoreRequest{false, "key", std::string("a\0b", 3), 0})));
  ASSERT_TRUE(set);
  EXPECT_FALSE(set->get);
  EXPECT_EQ(set->key, "key");
  EXPECT_EQ(set->value, std::string("a\0b", 3));
  const auto get = decode_store_request(bytes_of(encode(StoreRequest{true, "key", "", 250})));
  ASSERT_TRUE(get);
  EXPECT_TRUE(get->get);
  EXPECT_EQ(get->wait_ms, 250U);
  const auto last = decode_store_answer(bytes_of(encode(StoreAnswer{false, {}, true})));
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->closing && !last->found);
  const auto answer = decode_store_answer(bytes_of(encode(StoreAnswer{true, "value"})));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->value, "value");
}

TEST(StoreMessage, WhatIsTooLongTooShortOrUnknownIsRefused) {
  const std::string good = encode(StoreRequest{false, "key", "value", 0});
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_FALSE(decode_store_request(bytes_of(good.substr(0, n)))) << n;
  EXPECT_FALSE(decode_store_request(bytes_of(good + "x")));
  EXPECT_FALSE(decode_store_request(bytes_of("\x09" + good.substr(1))));
  EXPECT_FALSE(
      decode_store_request(bytes_of(encode(StoreRequest{true, std::string(kMaxStoreKey + 1, 'k'), "", 0}))));
  EXPECT_FALSE(decode_store_request(
      bytes_of(encode(StoreRequest{false, "k", std::string(kMaxStoreValue + 1, 'v'), 0}))));
  EXPECT_FALSE(decode_store_request(bytes_of(encode(StoreRequest{true, "get has", "no value", 0}))));
  EXPECT_FALSE(
      decode_store_answer(bytes_of(encode(StoreAnswer{true, std::string(kMaxStoreValue + 1, 'v')}))));
  EXPECT_FALSE(decode_store_answer(bytes_of(encode(StoreAnswer{true, "value"}) + "x")));
}

TEST(StoreRecord, ComesOutWholeHoweverItArrives) {
  const Secret key = secret_from_text("a key for one direction");
  Cipher to(CipherKind::chacha20_poly1305, key);
  Cipher from(CipherKind::chacha20_poly1305, key);
  std::vector<std::byte> sent;
  append_record("one", to, sent);
  append_record("", to, sent);
  std::vector<std::byte> arrived;
  std::vector<std::string> heard;
  for (const std::byte b : sent) {
    arrived.push_back(b);
    const StoreRecord r = first_record(arrived, from);
    ASSERT_NE(r.state, StoreRecord::State::broken);
    if (r.state == StoreRecord::State::incomplete) continue;
    heard.emplace_back(reinterpret_cast<const char*>(r.text.data()), r.text.size());
    arrived.erase(arrived.begin(), arrived.begin() + static_cast<std::ptrdiff_t>(r.bytes));
  }
  EXPECT_EQ(heard, (std::vector<std::string>{"one", ""}));
  EXPECT_TRUE(arrived.empty());
}

TEST(StoreRecord, WhatIsForgedOrTooLongIsBroken) {
  const Secret key = secret_from_text("a key for one direction");
  Cipher to(CipherKind::chacha20_poly1305, key);
  std::vector<std::byte> sent;
  append_record("a message", to, sent);
  for (std::size_t i = 4; i < sent.size(); ++i) {
    Cipher from(CipherKind::chacha20_poly1305, key);
    auto changed = sent;
    changed[i] ^= std::byte{1};
    EXPECT_EQ(first_record(changed, from).state, StoreRecord::State::broken) << i;
  }
  Cipher from(CipherKind::chacha20_poly1305, key);
  sent[3] = std::byte{1};  // a length of 16 MiB: refused before anything is waited for
  EXPECT_EQ(first_record(sent, from).state, StoreRecord::State::broken);
}

}  // namespace
}  // namespace talweg::wire
