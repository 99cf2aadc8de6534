#include "wire/frame_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace talweg::wire {

FrameReader::FrameReader(std::optional<Cipher> cipher, std::size_t max_payload)
    : cipher_(cipher),
      max_payload_(std::min<std::size_t>(max_payload, kMaxPayload)),
      size_(2 * (max_payload_ + sizeof(Header) + 2 * kTagBytes) + kReadAhead),
      staging_(std::make_unique_for_overwrite<std::byte[]>(size_)) {}

std::size_t FrameReader::space(std::array<iovec, kParts>& parts, std::size_t& n) {
  n = 0;
  std::size_t wanted = 0;
  const auto want = [&](std::byte* at, std::size_t bytes) {
    if (bytes > 0) parts[n++] = {at, bytes};
    wanted += bytes;
  };
  std::size_t stage = kReadAhead;
  if (phase_ == Phase::placed) {
    const std::size_t length = header_.length;
    const std::size_t in_place = std::min(received_, length);
    const std::size_t in_tag = received_ - in_place;
    want(place_.data + in_place, length - in_place);
    want(tag_.data() + in_tag, body_bytes() - length - in_tag);
  } else if (phase_ == Phase::body) {
    stage += body_bytes() - (end_ - begin_);
  }
  want(staging_.get() + end_, std::min(stage, size_ - end_));
  return wanted;
}

void FrameReader::wrote(std::size_t got) {
  if (phase_ == Phase::placed) {
    const std::size_t direct = std::min(got, body_bytes() - received_);
    received_ += direct;
    got -= direct;
  }
  end_ += got;
  asked_ = false;
}

FrameReader::Step FrameReader::next() {
  while (why_.empty()) {
    if (phase_ == Phase::placed) {
      if (received_ < body_bytes()) return Step::more;
      phase_ = Phase::head;
      if (place_.data != discard_.data()) return finish(place_.data, tag_.data());
      if (cipher_) cipher_->skip();  // its first part is not here
      continue;
    }
    if (phase_ == Phase::head) {
      if (end_ - begin_ < head_bytes()) break;
      if (const char* why = open_header(); why != nullptr) {
        why_ = fmt::format("a frame from it cannot be read: {}", why);
        break;
      }
      begin_ += head_bytes();
      phase_ = Phase::body;
    }
    if (end_ - begin_ >= body_bytes()) {
      std::byte* const payload = staging_.get() + begin_;
      begin_ += body_bytes();
      phase_ = Phase::head;
      return finish(payload, payload + header_.length);
    }
    if (asked_) break;
    asked_ = true;
    return Step::place;
  }
  make_room();
  return why_.empty() ? Step::more : Step::damaged;
}

void FrameReader::put(const Place& place) {
  if (place.data == nullptr) return;
  const std::size_t staged = end_ - begin_;
  const std::size_t of_payload = std::min<std::size_t>(staged, header_.length);
  std::memcpy(place.data, staging_.get() + begin_, of_payload);
  std::memcpy(tag_.data(), staging_.get() + begin_ + of_payload, staged - of_payload);
  begin_ = end_ = 0;
  place_ = place;
  received_ = staged;
  phase_ = Phase::placed;
}

// Null, or why the frame must not be acted upon.
const char* FrameReader::open_header() {
  std::byte* const at = staging_.get() + begin_;
  if (cipher_ && !cipher_->open(at, sizeof(Header), at + sizeof(Header), at))
    return "it is forged or damaged";
  const char* why = decode(std::span<const std::byte, sizeof(Header)>(at, sizeof(Header)), header_);
  if (why == nullptr && header_.length > max_payload_) why = "payload longer than any chunk";
  return why;
}

FrameReader::Step FrameReader::finish(std::byte* payload, const std::byte* tag) {
  payload_ = payload;
  const std::size_t n = header_.length;
  if (n == 0) return Step::frame;
  if (cipher_) {
    if (cipher_->open(payload, n, tag, payload)) return Step::frame;
    why_ = fmt::format("a payload of {} bytes from it is forged or damaged", n);
  } else {
    if ((header_.flags & kHasChecksum) == 0 || header_.payload_checksum == crc32c(payload, n))
      return Step::frame;
    why_ = fmt::format("a payload of {} bytes from it does not match its checksum", n);
  }
  return Step::damaged;
}

// Behind what is staged there is room for a whole frame and more.
void FrameReader::make_room() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0 && size_ - begin_ < max_payload_ + sizeof(Header) + 2 * kTagBytes + kReadAhead) {
    std::memmove(staging_.get(), staging_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
}

bool FrameReader::forget_place(std::uint32_t group, std::uint64_t run) {
  if (phase_ != Phase::placed || place_.group != group || place_.run != run || place_.data == discard_.data())
    return false;
  discard_.resize(header_.length);
  place_ = {discard_.data(), 0, 0};
  return true;
}

}  // namespace talweg::wire
