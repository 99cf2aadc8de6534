#include "wire/switch_message.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "wire/aggregation.h"

namespace talweg::wire {

namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;  // clang 14 does not find it by itself

constexpr std::uint64_t kMost16 = 0xffff;
constexpr std::uint64_t kMost32 = 0xffffffff;
// Of a SwitchJoin.
constexpr std::uint64_t kOrdered = 1, kTolerant = 2, kEncrypted = 4;
// Where a switch says its slots, a worker says this. 1 is of versions that said less of groups: they and this
// one do without. Whatever else stands there is for later versions.
constexpr std::uint64_t kByGroup = 2;

struct Decoder {
  ByteReader in;

  std::uint16_t u16() { return static_cast<std::uint16_t>(in.number(kMost16)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(in.number(kMost32)); }
  std::uint8_t upto(std::uint64_t most) { return static_cast<std::uint8_t>(in.number(most)); }
  bool flag() { return in.number(1) != 0; }

  void read(SwitchJoin& m) {
    m.job = in.text(kMaxJobName);
    m.worker = u16();
    m.workers = u16();
    m.block = u16();
    const std::uint64_t flags = in.number(kOrdered | kTolerant | kEncrypted);
    m.ordered = (flags & kOrdered) != 0;
    m.tolerant = (flags & kTolerant) != 0;
    m.encrypted = (flags & kEncrypted) != 0;
    m.payload = u16();
    m.window = u32();
    m.rack = u16();
    m.racks = u16();
    m.all = u16();
    m.threads = u16();
    const std::uint16_t slots = u16();
    m.slots = m.is_rack() ? slots : std::uint16_t{0};
    m.by_group = !m.is_rack() && (slots & kByGroup) != 0;
    if (!is_job_name(m.job)) throw Error(ErrorCode::corrupted, "a name that no job has");
  }
  void read(SwitchLeave& m) { m.sums = u32(); }
  void read(SwitchSum& m) {
    m.sum = u32();
    m.count = in.number();
    m.format = upto(kAggregationFormats - 1);
    m.sparse = flag();
  }
  void read(SwitchOrder& m) {
    m.what = static_cast<SwitchDo>(upto(static_cast<std::uint64_t>(SwitchDo::reload)));
  }
  void read(SwitchWaiting& m) {
    m.missing = u16();
    m.workers.resize(in.number(kMaxNamedWorkers));
    for (std::uint16_t& worker : m.workers) worker = u16();
    m.racks = flag();
  }
  void read(SwitchOpened& m) {
    m.job = u32();
    m.epoch = u32();
    m.port = u16();
    m.threads = u16();
    m.slots = u16();
    m.columns = upto(kMaxColumns);
    m.block = u16();
    m.protection =
        static_cast<DatagramProtection>(upto(static_cast<std::uint64_t>(DatagramProtection::encrypted)));
    m.cipher = static_cast<CipherKind>(upto(static_cast<std::uint64_t>(CipherKind::aes256_gcm)));
    for (std::byte& b : m.secret) b = static_cast<std::byte>(upto(0xff));
    m.life = u32();
  }
  void read(SwitchLeft& m) {
    m.worker = u16();
    m.sums = u32();
    m.rack = flag();
  }
  void read(SwitchRefused& m) {
    m.code = static_cast<ErrorCode>(upto(static_cast<std::uint64_t>(ErrorCode::corrupted)));
    m.reason = in.text(kMaxSwitchReason);
  }
  void read(SwitchText& m) { m.text = in.text(kMaxSwitchText); }
  void read(SwitchGiveUp& m) {
    m.code = static_cast<ErrorCode>(upto(static_cast<std::uint64_t>(ErrorCode::corrupted)));
    m.why = in.text(kMaxGiveUp);
  }
  void read(SwitchGroup& m) { m.at = in.text(kMaxGroupAddress); }
  void read(SwitchHears& m) {
    m.what = static_cast<GroupWord>(upto(static_cast<std::uint64_t>(GroupWord::cannot)));
    m.attempt = u32();
    m.missing = u32();
    m.of = u32();
    m.why = in.text(kMaxGroupReason);
  }
};

template <std::size_t I = 0>
SwitchMessage read_alternative(std::size_t kind, Decoder& decoder) {
  if constexpr (I < std::variant_size_v<SwitchMessage>) {
    if (kind != I) return read_alternative<I + 1>(kind, decoder);
    std::variant_alternative_t<I, SwitchMessage> message;
    decoder.read(message);
    return message;
  }
  throw Error(ErrorCode::corrupted, "no such message");
}

}  // namespace

bool is_job_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxJobName &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~' && c != '"'; });
}

std::string encode(const SwitchMessage& message) {
  ByteWriter out;
  out.number(message.index());
  std::visit(
      Overloaded{[&](const SwitchJoin& m) {
                   out.text(m.job);
                   const std::uint64_t flags = (m.ordered ? kOrdered : 0) | (m.tolerant ? kTolerant : 0) |
                                               (m.encrypted ? kEncrypted : 0);
                   for (const std::uint64_t n :
                        {std::uint64_t{m.worker}, std::uint64_t{m.workers}, std::uint64_t{m.block}, flags,
                         std::uint64_t{m.payload}, std::uint64_t{m.window}, std::uint64_t{m.rack},
                         std::uint64_t{m.racks}, std::uint64_t{m.all}, std::uint64_t{m.threads},
                         m.is_rack() ? m.slots : std::uint64_t{m.by_group ? kByGroup : 0}})
                     out.number(n);
                 },
                 [&](const SwitchLeave& m) { out.number(m.sums); },
                 [&](const SwitchSum& m) {
                   out.number(m.sum);
                   out.number(m.count);
                   out.number(m.format);
                   out.number(m.sparse ? 1 : 0);
                 },
                 [&](const SwitchOrder& m) { out.number(static_cast<std::uint64_t>(m.what)); },
                 [&](const SwitchWaiting& m) {
                   const std::size_t named = std::min(m.workers.size(), kMaxNamedWorkers);
                   out.number(m.missing);
                   out.number(named);
                   for (std::size_t i = 0; i < named; ++i) out.number(m.workers[i]);
                   out.number(m.racks ? 1 : 0);
                 },
                 [&](const SwitchOpened& m) {
                   for (const std::uint64_t n :
                        {std::uint64_t{m.job}, std::uint64_t{m.epoch}, std::uint64_t{m.port},
                         std::uint64_t{m.threads}, std::uint64_t{m.slots}, std::uint64_t{m.columns},
                         std::uint64_t{m.block}, static_cast<std::uint64_t>(m.protection),
                         static_cast<std::uint64_t>(m.cipher)})
                     out.number(n);
                   for (const std::byte b : m.secret) out.number(std::to_integer<std::uint64_t>(b));
                   out.number(m.life);
                 },
                 [&](const SwitchLeft& m) {
                   out.number(m.worker);
                   out.number(m.sums);
                   out.number(m.rack ? 1 : 0);
                 },
                 [&](const SwitchRefused& m) {
                   out.number(static_cast<std::uint64_t>(m.code));
                   out.text(m.reason.substr(0, kMaxSwitchReason));
                 },
                 [&](const SwitchText& m) { out.text(m.text.substr(0, kMaxSwitchText)); },
                 [&](const SwitchGiveUp& m) {
                   out.number(static_cast<std::uint64_t>(m.code));
                   out.text(m.why.substr(0, kMaxGiveUp));
                 },
                 [&](const SwitchGroup& m) { out.text(m.at.substr(0, kMaxGroupAddress)); },
                 [&](const SwitchHears& m) {
                   for (const std::uint64_t n : {static_cast<std::uint64_t>(m.what), std::uint64_t{m.attempt},
                                                 std::uint64_t{m.missing}, std::uint64_t{m.of}})
                     out.number(n);
                   out.text(m.why.substr(0, kMaxGroupReason));
                 }},
      message);
  const std::vector<std::byte> bytes = out.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<SwitchMessage> decode_switch_message(std::span<const std::byte> bytes) {
  try {
    Decoder decoder{ByteReader(bytes, "a message at a switch")};
    const std::size_t kind = decoder.in.number(std::variant_size_v<SwitchMessage> - 1);
    SwitchMessage message = read_alternative(kind, decoder);
    decoder.in.expect_end();
    return message;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace talweg::wire
