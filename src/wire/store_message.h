// What clients and server of the TCP store say to each other: a request or an answer, sealed as one record.
//
// On the wire a record is four bytes of length, that many encrypted bytes, and a tag; see cipher.h. The
// length is bounded before anything is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wire/cipher.h"

namespace talweg::wire {

inline constexpr std::size_t kMaxStoreKey = 4096;
inline constexpr std::size_t kMaxStoreValue = 1U << 20;  // the cards of some thousand ranks
inline constexpr std::size_t kMaxStoreRecord = kMaxStoreKey + kMaxStoreValue + 64;
inline constexpr std::size_t kMinStoreRecord = 4 + kTagBytes;

struct StoreRequest {
  bool get = false;
  std::string key;
  std::string value;          // set
  std::uint32_t wait_ms = 0;  // get: how long the answer may take
};
struct StoreAnswer {
  bool found = false;
  std::string value;
  bool closing = false;  // whatever was asked: the store ends in order, and another may come in its place
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreAnswer& answer);
// Empty when the bytes are not exactly one request, or answer, within the bounds.
std::optional<StoreRequest> decode_store_request(std::span<const std::byte> bytes);
std::optional<StoreAnswer> decode_store_answer(std::span<const std::byte> bytes);

// Appends `message` as a record.
void append_record(const std::string& message, Cipher& cipher, std::vector<std::byte>& out);

// What `first_record` found at the front of what has arrived.
struct StoreRecord {
  enum class State : std::uint8_t { incomplete, complete, broken } state = State::incomplete;
  std::size_t bytes = 0;        // of the record, to be removed from the front; 0 while its length is not here
  std::vector<std::byte> text;  // decrypted
};
StoreRecord first_record(std::span<const std::byte> arrived, Cipher& cipher);

}  // namespace talweg::wire
