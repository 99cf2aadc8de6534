// What makes a datagram trustworthy: one object seals what a sender sends to a receiver, another one opens it
// there.
//
//   DatagramSealer sealer(key, {job, epoch, from, to}, suite);
//   n = sealer.seal(header, payload, datagram);              // header.length bytes; `datagram` has room for all
//   DatagramOpener opener(key, {job, epoch, from, to}, suite);
//   why = opener.open({datagram, n}, header);                // the payload lies behind the header, in the clear
//
// Each (job, epoch, sender, receiver, protection) has a key of its own, derived from the job's key with
// BLAKE2b, and each datagram's number is its nonce. So no nonce is used twice as long as no two sealers are
// made for the same scope: a group's number is drawn at random by rank 0 for each group, and who comes back
// into a group that goes on comes into a new epoch. What is sent again is sealed again, with a new number.
//
// What is sealed for everybody (kEverybody, for multicast) any member could have sealed; members trust each
// other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/cipher.h"
#include "wire/datagram.h"
#include "wire/key.h"
#include "wire/replay_window.h"

namespace talweg::wire {

struct DatagramScope {
  std::uint64_t job = 0;
  std::uint32_t epoch = 0;
  std::uint16_t from = 0;
  std::uint16_t to = kEverybody;
};

// `cipher` must be one that all members have (has_aes()).
struct DatagramSuite {
  DatagramProtection protection = DatagramProtection::authenticated;
  CipherKind cipher = CipherKind::chacha20_poly1305;
};

class DatagramSealer {
 public:
  DatagramSealer(const Secret& key, const DatagramScope& scope, DatagramSuite suite);

  // Fills in job, epoch, sender, number and those flags that are its own, and writes a whole datagram of
  // kDatagramHeaderBytes + header.length + trailer_bytes(): that many bytes. `payload` may be
  // datagram + kDatagramHeaderBytes, or not overlap with it. 0, and nothing is written, when header.length is
  // over kMaxDatagramPayload or the numbers have come to their end.
  std::size_t seal(DatagramHeader& header, const std::byte* payload, std::byte* datagram);
  // Of the next one.
  std::uint64_t number() const { return number_; }
  DatagramSuite suite() const { return suite_; }

 private:
  DatagramScope scope_;
  DatagramSuite suite_;
  Aead aead_;
  std::uint64_t number_ = 0;
};

class DatagramOpener {
 public:
  DatagramOpener(const Secret& key, const DatagramScope& scope, DatagramSuite suite);

  // Decrypts in place. Unless it returns DatagramRefusal::none the datagram's bytes are not to be used, and
  // nothing has changed here.
  [[nodiscard]] DatagramRefusal open(std::span<std::byte> datagram, DatagramHeader& header);
  const ReplayWindow& window() const { return window_; }

 private:
  DatagramScope scope_;
  DatagramSuite suite_;
  Aead aead_;
  ReplayWindow window_;
};

}  // namespace talweg::wire
