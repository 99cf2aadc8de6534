#include "wire/datagram.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>

namespace talweg::wire {

namespace {

struct RefusalText {
  const char* said;     // of one
  const char* counted;  // behind a number of them
};
constexpr RefusalText kRefusalTexts[] = {
    {"nothing is wrong", "accepted"},
    {"it is shorter than a header", "too short"},
    {"it is no datagram of Talweg's", "foreign"},
    {"it has another version of the datagram layout", "of another version"},
    {"it has a type or a flag that nobody has", "of unknown type"},
    {"it has not as many bytes as its header says", "of wrong length"},
    {"it is encrypted on one side only", "encrypted on one side only"},
    {"it belongs to another job", "of another job"},
    {"it belongs to another epoch of this group", "of another epoch"},
    {"its sender is nobody of this group", "from unknown senders"},
    {"it has come before", "repeated"},
    {"it is too old to say whether it has come before", "too old"},
    {"its tag or checksum does not match", "damaged"},
};
static_assert(std::size(kRefusalTexts) == static_cast<std::size_t>(DatagramRefusal::count_));

constexpr std::size_t kIpv4AndUdp = 20 + 8;
constexpr std::size_t kIpv6AndUdp = 40 + 8;

}  // namespace

const char* to_string(DatagramProtection protection) {
  static constexpr const char* kNames[] = {"checksum", "authenticated", "encrypted"};
  return kNames[static_cast<std::size_t>(protection)];
}

std::size_t datagram_payload(std::size_t mtu, bool ipv6, DatagramProtection protection) {
  const std::size_t around =
      (ipv6 ? kIpv6AndUdp : kIpv4AndUdp) + kDatagramHeaderBytes + trailer_bytes(protection);
  if (mtu <= around) return 0;
  const std::size_t payload = mtu - around;
  return payload < kMaxDatagramPayload ? payload : kMaxDatagramPayload;
}

const char* to_string(DatagramRefusal refusal) {
  const auto i = static_cast<std::size_t>(refusal);
  return i < std::size(kRefusalTexts) ? kRefusalTexts[i].said : "an unknown reason";
}

std::uint64_t DatagramRefusals::total() const {
  std::uint64_t all = 0;
  for (std::size_t i = 1; i < counts_.size(); ++i) all += counts_[i];
  return all;
}

std::string DatagramRefusals::to_string() const {
  std::string text;
  for (std::size_t i = 1; i < counts_.size(); ++i)
    if (counts_[i] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts_[i], kRefusalTexts[i].counted);
  return text;
}

void encode(const DatagramHeader& header, std::byte* datagram) {
  std::memcpy(datagram, &header, sizeof header);
}

DatagramRefusal decode(std::span<const std::byte> datagram, DatagramProtection protection,
                       DatagramHeader& header) {
  using enum DatagramRefusal;
  if (datagram.size() < kDatagramHeaderBytes + trailer_bytes(protection)) return too_short;
  DatagramHeader h;
  std::memcpy(&h, datagram.data(), sizeof h);
  if (h.magic != kDatagramMagic) return foreign;
  if (h.version != kDatagramVersion) return version;
  if (h.type == 0 || h.type >= kDatagramTypes) return type;
  if ((h.flags & ~(kDatagramToAll | kDatagramEncrypted | kDatagramAsks)) != 0) return type;
  if ((h.service & ~(kPriorityMask | kDroppable)) != 0) return type;
  if (datagram.size() != kDatagramHeaderBytes + h.length + trailer_bytes(protection)) return length;
  if (((h.flags & kDatagramEncrypted) != 0) != (protection == DatagramProtection::encrypted)) return mode;
  header = h;
  return none;
}

std::string to_string(const DatagramHeader& h) {
  return fmt::format(
      "type {} #{} from {} job {:08x} epoch {} priority {}{} own {}/{} length {}{}{}{}", h.type, h.number,
      h.sender, h.job, h.epoch, h.service & kPriorityMask, (h.service & kDroppable) != 0 ? " droppable" : "",
      h.own16, h.own32, h.length, (h.flags & kDatagramToAll) != 0 ? " to all" : "",
      (h.flags & kDatagramEncrypted) != 0 ? " encrypted" : "", (h.flags & kDatagramAsks) != 0 ? " asks" : "");
}

}  // namespace talweg::wire
