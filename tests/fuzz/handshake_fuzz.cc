// Both sides of the handshake against someone who does not hold the key: nobody gets in. The first byte says
// which side; with its second bit what comes is laid over what a member would have sent.
#include <algorithm>
#include <vector>

#include "fuzz/fuzz.h"
#include "wire/handshake.h"

using namespace talweg;

namespace {

using State = wire::HandshakeStep::State;

const wire::Secret kKey = wire::secret_from_text("a key that no fuzzer knows");
const wire::EphemeralKey kEphemeral = wire::draw_ephemeral_key();
const wire::Introduction kIntroduction{wire::Purpose::data, true, 0, 1, 0, 42};

std::vector<std::byte> next(std::span<const std::byte>& input, std::size_t n,
                            std::span<const std::byte> laid_over) {
  std::vector<std::byte> bytes(n);
  std::copy_n(laid_over.begin(), std::min(n, laid_over.size()), bytes.begin());
  for (std::size_t i = 0; i < std::min(n, input.size()); ++i) bytes[i] ^= input[i];
  input = input.subspan(std::min(n, input.size()));
  return bytes;
}

void attack_acceptor(std::span<const std::byte> input, bool close_to_truth) {
  wire::Acceptor acceptor(kKey, kEphemeral);
  const wire::Initiator member(wire::Secret{}, kIntroduction, kEphemeral);
  const auto truth = close_to_truth ? member.hello() : std::span<const std::byte>{};
  const auto wanted = [](const wire::Introduction& i) { return i.stream < 64; };
  if (acceptor.take(next(input, acceptor.wants(), truth), wanted).state != State::more) return;
  fuzz::require(acceptor.take(next(input, acceptor.wants(), {}), wanted).state == State::refused);
  fuzz::require(acceptor.secrets().send == wire::Secret{});
}

void attack_initiator(std::span<const std::byte> input, bool close_to_truth) {
  wire::Initiator initiator(kKey, kIntroduction, kEphemeral);
  wire::Acceptor member(wire::Secret{}, kEphemeral);
  const auto challenge = member.take(initiator.hello(), [](const wire::Introduction&) { return true; }).reply;
  const auto truth = close_to_truth ? challenge : std::span<const std::byte>{};
  if (initiator.take(next(input, initiator.wants(), truth)).state != State::more) return;
  fuzz::require(initiator.take(next(input, initiator.wants(), {})).state == State::refused);
  fuzz::require(initiator.secrets().send == wire::Secret{});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto input = fuzz::bytes_of(data + 1, size - 1);
  const bool close_to_truth = (data[0] & 2) != 0;
  if ((data[0] & 1) != 0)
    attack_acceptor(input, close_to_truth);
  else
    attack_initiator(input, close_to_truth);
  return 0;
}
