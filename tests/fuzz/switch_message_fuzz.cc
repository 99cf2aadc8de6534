// What is said when a switch is joined: what is let through must mean the same once it is said again.
#include "fuzz/fuzz.h"
#include "wire/switch_message.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = wire::decode_switch_message(fuzz::bytes_of(data, size));
  if (!message) return 0;
  if (const auto* const join = std::get_if<wire::SwitchJoin>(&*message))
    fuzz::require(wire::is_job_name(join->job));
  const std::string text = wire::encode(*message);
  const auto again = wire::decode_switch_message(std::as_bytes(std::span(text)));
  fuzz::require(again && *again == *message);
  return 0;
}
