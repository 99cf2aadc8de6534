// Messages of streaming aggregation and packets of SwitchML's: what is let through encodes to the same bytes,
// and a switch and a worker that are handed it keep within what is theirs. The first byte is the datagram's
// type.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.h"
#include "protocol/aggregation/switch.h"
#include "protocol/aggregation/worker.h"

using namespace talweg;

namespace {

void require_round_trip(const wire::DatagramHeader& header, std::span<const std::byte> payload) {
  wire::AggregationMessage message;
  if (wire::decode(header, payload, message) != nullptr) return;
  std::vector<std::byte> again(payload.size());
  wire::AggregationWriter writer(again);
  writer.begin(message.format, message.number);
  wire::for_each_entry(message, [&](const wire::AggregationEntry& entry, std::span<const std::byte> data) {
    std::byte* const at = writer.add(entry);
    if (!data.empty()) std::memcpy(at, data.data(), data.size());
    for (std::size_t i = 0; message.type == wire::AggregationType::result && i < entry.absent; ++i)
      writer.add_absent(wire::absent_at(data, i));
  });
  for (std::size_t i = 0; i < wire::names_in(message); ++i) writer.add_name(wire::name_at(message, i));
  fuzz::require(std::ranges::equal(writer.payload(), payload));
}

void require_switchml_round_trip(std::span<const std::byte> packet) {
  wire::SwitchmlHeader header;
  if (wire::decode(packet, header) != nullptr) return;
  std::vector<std::byte> again(packet.begin(), packet.end());
  wire::encode(header, again.data());
  again[0] |= packet[0] & std::byte{8};  // the bit that nobody uses
  fuzz::require(std::ranges::equal(again, packet));
}

struct Nowhere : protocol::DatagramSink {
  void send(const wire::DatagramHeader&, std::span<const std::byte>) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  wire::DatagramHeader header;
  header.type = data[0];
  header.job = 1;
  header.epoch = 1;
  header.own32 = 1;
  const auto payload = fuzz::bytes_of(data, size).subspan(1);
  require_round_trip(header, payload);
  require_switchml_round_trip(payload);

  protocol::AggregationSwitch box({1 << 20, 4, 1e12});
  protocol::JobTerms terms;
  terms.job = terms.epoch = 1;
  terms.workers = 2;
  terms.slots = 1;
  terms.columns = 4;
  terms.block = 8;
  terms.ordered = true;
  terms.bytes_per_second = 1e11;
  fuzz::require(!box.open(terms));
  terms.job = 2;
  terms.above = protocol::SwitchAbove{};
  fuzz::require(!box.open(terms));
  fuzz::require(!box.open(protocol::SwitchmlTerms{3, {10, 11}, 4, 64, 1e11}));
  for (std::uint32_t job = 1; job <= 2; ++job) {
    header.job = job;
    for (std::uint16_t worker = 0; worker < 2; ++worker) {
      header.sender = worker;
      for (const protocol::SwitchAction& action : box.on(header, payload, {worker, 1}, 1))
        fuzz::require(action.payload.size() <= packet_bytes(terms));
      (void)box.on_above(header, payload, 1);
      (void)box.on_switchml(payload, {10U + worker, 1}, 1);
    }
  }

  // Rounds that end without workers, of a job in which they may.
  terms.job = header.job = 4;
  terms.above.reset();
  terms.tolerant = true;
  terms.linger_ns = 1;
  fuzz::require(!box.open(terms));
  for (std::int64_t now = 1; now < 8; ++now) {
    header.sender = now % 3 == 0 ? 1 : 0;
    for (const protocol::SwitchAction& action : box.on(header, payload, {header.sender, 1}, now))
      fuzz::require(action.payload.size() <= packet_bytes(terms));
    for (int i = 0; i < 6 && box.next_time_ns() <= now; ++i)
      for (const protocol::SwitchAction& action : box.on_time(now))
        fuzz::require(action.payload.size() <= packet_bytes(terms));
    fuzz::require(box.next_time_ns() > now);
  }

  // Whatever has been summed by now is sent again to who names it.
  std::vector<std::byte> name(wire::aggregation_payload(0, 0, 0) + 2);
  wire::AggregationWriter gap(name);
  gap.begin(wire::AggregationFormat::f32);
  gap.add_name(1);
  header.job = 1;
  header.type = static_cast<std::uint8_t>(wire::AggregationType::gap);
  for (const protocol::SwitchAction& action : box.on(header, gap.payload(), {0, 1}, 2))
    fuzz::require(action.payload.size() <= packet_bytes(terms));
  header.type = data[0];

  // In place, with not a byte to spare behind it.
  std::vector<float> tensor(61, 1.0F);
  Nowhere sink;
  protocol::AggregationWorker worker({1, 1, 0, 2, 0, 1, 4, 8, {}}, sink);
  auto* const bytes = reinterpret_cast<std::byte*>(tensor.data());
  worker.start({bytes, bytes, tensor.size(), wire::AggregationFormat::scaled, 8, false}, 1, 1000, 0);
  header.job = 1;
  for (int i = 0; i < 3; ++i) worker.on(header, payload, i);

  // By key: each column has a granule, the last one a part of it.
  std::vector<float> keyed(3 * 64 + 16, 1.0F);
  protocol::AggregationWorker by_key({1, 1, 0, 2, 0, 1, 4, 8, {}}, sink);
  auto* const in_place = reinterpret_cast<std::byte*>(keyed.data());
  by_key.start({in_place, in_place, keyed.size(), wire::AggregationFormat::pairs, 8, false}, 1, 1000, 0);
  for (int i = 0; i < 3; ++i) by_key.on(header, payload, i);

  // Results that name workers which are missing, of blocks whose half may be.
  std::vector<float> residual(128), lossy(residual.size(), 1.0F);
  protocol::AggregationWorker may_lose({1, 1, 0, 2, 0, 1, 4, 8, {}}, sink);
  auto* const sums = reinterpret_cast<std::byte*>(lossy.data());
  protocol::Sum sum{sums, sums, lossy.size(), wire::AggregationFormat::f32, 8};
  sum.tolerance = {500'000, reinterpret_cast<std::byte*>(residual.data()), true};
  may_lose.start(sum, 1, 1000, 0);
  for (int i = 0; i < 3; ++i) may_lose.on(header, payload, i);

  // As codes, with what these lose, the last block of one element.
  std::vector<float> coded(4 * 8 + 1, 0.3F), lost(coded.size());
  protocol::AggregationWorker in_codes({1, 1, 0, 2, 0, 1, 4, 8, {}}, sink);
  auto* const codes = reinterpret_cast<std::byte*>(coded.data());
  protocol::Sum of_codes{codes, codes, coded.size(), wire::AggregationFormat::block4, 8};
  of_codes.tolerance.residual = reinterpret_cast<std::byte*>(lost.data());
  in_codes.start(of_codes, 1, 1000, 0);
  for (int i = 0; i < 3; ++i) in_codes.on(header, payload, i);
  return 0;
}
