// FrameReader: the bytes of a stream in, frames out. Pure: it owns no socket and asks for nothing by itself.
//
//   const std::size_t wanted = reader.space(parts, n);  // where the next bytes belong: readv() or memcpy()
//   reader.wrote(got);
//   for (;;) switch (reader.next()) {
//     case Step::place: reader.put(place for the payload of reader.header(), if there is one); continue;
//     case Step::frame: use(reader.header(), reader.payload()); continue;
//     case Step::damaged: give up, because of reader.why();
//     case Step::more: more bytes are needed;
//   }
//
// However the bytes are cut, the frames are the same. A payload that is complete where it was staged is
// handed over from there; one that is not may go straight into a place that the caller knows, and be taken
// away from there again. With a cipher, a header and a payload are a record each, followed by its tag; a
// payload is decrypted where it lies.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire/cipher.h"
#include "wire/frame.h"

namespace talweg::wire {

// Where a payload may be received to, and whose memory that is, so that it can be taken away again.
struct Place {
  std::byte* data = nullptr;  // null: nowhere; it is staged
  std::uint32_t group = 0;
  std::uint64_t run = 0;
};

class FrameReader {
 public:
  static constexpr std::size_t kParts = 3;
  // What is read ahead while the next header is not known: enough for small frames in bulk, little enough
  // that most of a large payload can still go straight to its place.
  static constexpr std::size_t kReadAhead = 16U << 10;

  // A frame with more than `max_payload` bytes counts as damaged.
  explicit FrameReader(std::optional<Cipher> cipher = std::nullopt, std::size_t max_payload = kMaxPayload);

  // Fills in where the next bytes belong; returns how many bytes that is, at least one.
  std::size_t space(std::array<iovec, kParts>& parts, std::size_t& n);
  // The first `got` of those bytes are there.
  void wrote(std::size_t got);

  enum class Step : std::uint8_t { more, place, frame, damaged };
  Step next();
  // After Step::place; a place without data is none, and asked for again when more of the payload has come.
  void put(const Place& place);
  const Header& header() const { return header_; }
  // After Step::frame, until the next call of next(): null or not, it has header().length bytes.
  std::byte* payload() const { return payload_; }
  // After Step::damaged, which all further steps are: what is wrong.
  const std::string& why() const { return why_; }

  // What is being received into memory of this run goes nowhere instead, and its frame is dropped. True if
  // there is such a frame.
  bool forget_place(std::uint32_t group, std::uint64_t run);

 private:
  enum class Phase : std::uint8_t { head, body, placed };
  std::size_t head_bytes() const { return sizeof(Header) + (cipher_ ? kTagBytes : 0); }
  std::size_t body_bytes() const { return header_.length + (cipher_ && header_.length > 0 ? kTagBytes : 0); }
  const char* open_header();
  Step finish(std::byte* payload, const std::byte* tag);
  void make_room();

  std::optional<Cipher> cipher_;
  const std::size_t max_payload_;
  const std::size_t size_;                // of the staging buffer
  std::unique_ptr<std::byte[]> staging_;  // pages that nothing comes to stay untouched
  std::size_t begin_ = 0;                 // of what is staged and not yet handed over
  std::size_t end_ = 0;

  Phase phase_ = Phase::head;
  bool asked_ = false;                      // body: for a place, since bytes came last
  Header header_;                           // body, placed: of the frame that is coming
  Place place_;                             // placed
  std::size_t received_ = 0;                // placed: of its body
  std::array<std::byte, kTagBytes> tag_{};  // placed, encrypted
  std::vector<std::byte> discard_;          // a place for payloads that nobody wants any more
  std::byte* payload_ = nullptr;
  std::string why_;
};

}  // namespace talweg::wire
