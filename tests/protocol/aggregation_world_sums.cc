// What a seed decides of jobs and their sums, and what comes of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "protocol/aggregation_world_parts.h"

namespace talweg::protocol {

namespace {

int top_of(AggregationFormat format) {
  return format == AggregationFormat::block8 ? 127 : 7;
}

}  // namespace

void AggregationWorld::plan_job(std::size_t number) {
  auto job = std::make_unique<Job>();
  job->id = static_cast<std::uint32_t>(7 + number);
  const bool many = random_.below(40) == 0;
  const std::size_t workers = many ? 65 + random_.below(8) : 1 + random_.below(6);
  job->racks =
      workers >= 2 && random_.below(3) == 0 ? 2 + random_.below(std::min<std::size_t>(2, workers - 1)) : 1;
  JobTerms& t = job->terms;
  t.job = job->id;
  t.epoch = job->epoch;
  t.self = 999;
  t.slots = static_cast<std::uint16_t>(1 + random_.below(4));
  t.columns = static_cast<std::uint8_t>(1 + random_.below(4));
  t.block = static_cast<std::uint16_t>(1 + random_.below(32));
  t.ordered = random_.below(4) == 0;
  const bool tight = random_.below(5) == 0;
  t.bytes_per_second = tight ? 1e6 * static_cast<double>(1 + workers) : 1e9;
  t.burst_bytes = tight ? static_cast<double>(packet_bytes(t) * 4) : 1e6;
  // Drawn apart: all else is what it was before results had rates.
  Random of_rates(seed_, 1000 + job->id);
  if (of_rates.below(4) == 0) t.result_bytes_per_second = 1e6 * static_cast<double>(1 + of_rates.below(20));
  job->in_rack.assign(job->racks, 0);
  for (std::size_t m = 0; m < workers; ++m) {
    auto member = std::make_unique<Member>();
    member->world = this;
    member->job = job.get();
    member->number = m;
    member->rack = m < job->racks ? m : random_.below(job->racks);
    member->local = job->in_rack[member->rack]++;
    job->members.push_back(std::move(member));
  }
  t.workers = static_cast<std::uint16_t>(job->racks > 1 ? job->racks : workers);
  if (many) hit(AggregationMark::many_workers);
  if (workers == 1) hit(AggregationMark::alone);
  if (job->racks > 1) hit(AggregationMark::tree);
  if (random_.below(4) == 0) job->crash_ns = 20'000 + static_cast<std::int64_t>(random_.below(1'000'000));
  plan_sums(*job);
  plan_rows(*job);
  jobs_.push_back(std::move(job));
}

void AggregationWorld::plan_sums(Job& job) {
  const std::size_t sums = 1 + random_.below(4);
  for (std::size_t s = 0; s < sums; ++s) {
    Tensor t;
    t.sum.format =
        static_cast<AggregationFormat>(random_.below(static_cast<std::uint64_t>(AggregationFormat::pairs)));
    t.sum.block = static_cast<std::uint16_t>(1 + random_.below(job.terms.block));
    // Drawn apart: sums of the other formats are what they were before there were pairs. Of very many workers
    // their rounds, which are more, would take more events than a seed may.
    Random of_pairs(seed_, 100 * job.id + s);
    if (t.sum.format == AggregationFormat::f32 && job.terms.block > 1 && job.members.size() < 10 &&
        of_pairs.below(2) == 0) {
      t.sum.format = AggregationFormat::pairs;
      t.sum.block = std::max<std::uint16_t>(t.sum.block, 2);
    }
    // Apart, too.
    Random of_codes(seed_, 100 * job.id + s + 50);
    if (t.sum.format == AggregationFormat::f32 && job.terms.block > 1 && of_codes.below(2) == 0) {
      t.sum.format = of_codes.below(2) == 0 ? AggregationFormat::block8 : AggregationFormat::block4;
      t.sum.block = std::max<std::uint16_t>(t.sum.block, 2);
      // Whole numbers have no error but what racks add; of two of these the order is nothing.
      t.by_order = job.racks > 2 && !job.terms.ordered;
    }
    const std::size_t width = std::size_t{job.terms.slots} * job.terms.columns * t.sum.block;
    t.sum.count = random_.below(12) == 0 ? 0 : random_.below(width * 5) + 1;
    t.sum.sparse = random_.below(2) == 0;
    // Apart as well: of the same shape as the one before.
    Random of_shapes(seed_, 100 * job.id + s + 75);
    if (s > 0 && of_shapes.below(2) == 0) {
      t.sum = job.sums.back().sum;
      t.by_order = job.sums.back().by_order;
    }
    t.in_place = random_.below(2) == 0;
    const double density = random_.below(2) == 0 ? 0.1 : random_.uniform();
    const bool same_blocks = random_.below(3) == 0;
    const std::uint64_t special = random_.below(6);  // 0: some blocks with no number, 1: with tiny ones
    const std::size_t blocks = (t.sum.count + t.sum.block - 1) / t.sum.block;
    std::vector<bool> shared(blocks);
    for (std::size_t b = 0; b < blocks; ++b) shared[b] = random_.uniform() < density;
    const std::size_t bytes = wire::bytes_in_memory(t.sum.format);
    const double of_elements = of_pairs.below(2) == 0 ? 1 : of_pairs.uniform();
    for (std::size_t m = 0; m < job.members.size(); ++m) {
      std::vector<std::byte> in(t.sum.count * bytes);
      for (std::size_t b = 0; b < blocks; ++b) {
        const bool holds = !t.sum.sparse || (same_blocks ? shared[b] : random_.uniform() < density);
        const float scale = std::ldexp(1.0F, static_cast<int>(random_.below(40)) - 20);
        for (std::size_t i = b * t.sum.block;
             holds && i < std::min<std::size_t>(t.sum.count, (b + 1) * t.sum.block); ++i) {
          const auto small = static_cast<float>(static_cast<int>(random_.below(7)) - 3);
          float real = static_cast<float>(random_.uniform() * 2 - 1) * scale;
          if (t.sum.format == AggregationFormat::scaled && special == 0 && random_.below(60) == 0)
            real = random_.below(2) == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
          if (t.sum.format == AggregationFormat::scaled && special == 1 && b % 2 == 0)
            real = std::ldexp(real, -120);
          if (t.sum.format == AggregationFormat::pairs && of_pairs.uniform() >= of_elements) {
            put(in, i, -0.0F);
            continue;
          }
          switch (t.sum.format) {
            case AggregationFormat::i32:
              put(in, i, static_cast<std::uint32_t>(random_.next()));
              break;
            case AggregationFormat::f16:
              put(in, i, kernel::f32_to_f16(small));
              break;
            case AggregationFormat::bf16:
              put(in, i, kernel::f32_to_bf16(small));
              break;
            case AggregationFormat::pairs:
              if (special == 0 && of_pairs.below(60) == 0) {
                put(in, i, of_pairs.below(2) == 0 ? std::numeric_limits<float>::infinity() : std::nanf(""));
                break;
              }
              [[fallthrough]];
            case AggregationFormat::f32:
              put(in, i, job.terms.ordered ? real : small);
              break;
            case AggregationFormat::scaled:
              put(in, i, real);
              break;
            case AggregationFormat::block8:
            case AggregationFormat::block4: {
              // A scale of 1, by which whole numbers are coded as they are.
              const int top = top_of(t.sum.format);
              const int whole =
                  i == b * t.sum.block
                      ? top
                      : static_cast<int>(of_codes.below(2 * static_cast<std::uint64_t>(top) + 1)) - top;
              put(in, i, job.terms.ordered ? real : static_cast<float>(whole));
              break;
            }
          }
        }
      }
      t.inputs.push_back(std::move(in));
    }
    if (t.sum.format == AggregationFormat::pairs && t.sum.count > 0) hit(AggregationMark::pairs);
    if (wire::is_coded(t.sum.format) && t.sum.count > 0) hit(AggregationMark::coded);
    if (t.sum.count == 0) hit(AggregationMark::empty);
    if (blocks > 0 && blocks < std::size_t{job.terms.slots} * job.terms.columns)
      hit(AggregationMark::short_tensor);
    if (t.in_place && t.sum.count > 0) hit(AggregationMark::in_place);
    if (job.terms.ordered &&
        (t.sum.format == AggregationFormat::f32 || t.sum.format == AggregationFormat::pairs))
      hit(AggregationMark::ordered);
    job.sums.push_back(std::move(t));
    expect(job, s);
  }
}

// The block that begins with this element. Whoever rounds is off by less than one unit of what it rounds:
// each worker, each rack, and the switch at the root.
void AggregationWorld::expect_coded(const Job& job, Tensor& t, std::size_t first) {
  const std::size_t end = std::min<std::size_t>(t.sum.count, first + t.sum.block);
  const double top = top_of(t.sum.format);
  double error = 0, of_racks = 0, most = 0;
  for (const auto& in : t.inputs) {
    double its = 0;
    for (std::size_t i = first; i < end; ++i)
      its = std::max(its, std::abs(number_at(t.sum.format, in.data(), i)));
    if (job.terms.ordered) error += its / top;
    of_racks += its * (1 + 1 / top) / top;
  }
  if (job.racks > 1) error += of_racks;
  for (std::size_t i = first; i < end; ++i) {
    double sum = 0;
    for (const auto& in : t.inputs) sum += number_at(t.sum.format, in.data(), i);
    t.expected.push_back(sum);
    most = std::max(most, std::abs(sum));
  }
  t.bound.resize(end, (error + (most + error) / top) * 1.00001);
}

// One worker after the other, in the order of ranks at each switch.
void AggregationWorld::expect(Job& job, std::size_t number) {
  Tensor& t = job.sums[number];
  const auto workers = static_cast<int>(job.members.size());
  const int carry = static_cast<int>(std::ceil(std::log2(workers)));
  for (std::size_t i = 0; i < t.sum.count; ++i) {
    if (t.sum.format == AggregationFormat::i32) {
      std::uint32_t sum = 0;
      for (const auto& in : t.inputs) sum += get<std::uint32_t>(in.data(), i);
      t.expected.push_back(static_cast<std::int32_t>(sum));
    } else if (wire::is_coded(t.sum.format)) {
      if (i % t.sum.block == 0) expect_coded(job, t, i);
    } else if (t.sum.format == AggregationFormat::scaled) {
      const auto [first, end] = t.block_of(i);
      bool finite = true;
      int most = -1000;  // 2^most is above all
      for (const auto& in : t.inputs)
        for (std::size_t k = first; k < end; ++k) {
          const double x = static_cast<double>(get<float>(in.data(), k));
          finite = finite && std::isfinite(x);
          int exponent = -1000;
          if (std::isfinite(x) && x != 0) std::frexp(x, &exponent);
          most = std::max(most, exponent);
        }
      const int shift = 31 - carry - most;
      if (!finite) {
        if (i == first) hit(AggregationMark::not_finite);
        t.expected.push_back(std::nan(""));
      } else if (shift > 126) {
        if (i == first && most > -1000) hit(AggregationMark::flushed);
        t.expected.push_back(0);
      } else {
        std::int64_t sum = 0;
        for (const auto& in : t.inputs)
          sum += static_cast<std::int64_t>(
              std::nearbyint(std::ldexp(static_cast<double>(get<float>(in.data(), i)), shift)));
        if (std::abs(sum) > std::numeric_limits<std::int32_t>::max()) problem("the reference itself wraps");
        const auto rounded = static_cast<float>(sum);
        t.expected.push_back(static_cast<double>(std::ldexp(rounded, -shift)));
      }
    } else {
      std::vector<float> racks(job.racks, 0.0F);
      for (std::size_t m = 0; m < t.inputs.size(); ++m)
        racks[job.members[m]->rack] += static_cast<float>(number_at(t.sum.format, t.inputs[m].data(), i));
      float sum = 0;
      for (const float part : racks) sum += part;
      t.expected.push_back(static_cast<double>(sum));
    }
  }
}

void AggregationWorld::check(Job& job, Member& member, std::size_t number) {
  Tensor& t = job.sums[number];
  if (t.width > 0) end_rows(t, member);
  const std::byte* const out = member.out.data() + kGuard;
  const std::string where =
      fmt::format("job {} sum {} ({}) worker {}", job.id, number, wire::name(t.sum.format), member.number);
  for (std::size_t i = 0; i < t.sum.count; ++i) {
    const double is = number_at(t.sum.format, out, i);
    const double expected = t.expected[i];
    const double bound = t.bound.empty() ? 0 : t.bound[i];
    if (is != expected && !(std::abs(is - expected) <= bound) && !(std::isnan(is) && std::isnan(expected))) {
      problem(fmt::format("{}: element {} of {} is {}, expected {}", where, i, t.sum.count, is, expected));
      break;
    }
  }
  const std::vector<std::byte> bits(out, out + t.inputs[member.number].size());
  if (t.first_out.empty() || (t.by_order && t.first_epoch != job.epoch)) {
    t.first_out = bits;
    t.first_epoch = job.epoch;
  }
  if (t.first_out != bits) problem(where + ": not the bits that another worker, or an earlier epoch, has");
  if (!t.in_place && member.in != t.inputs[member.number]) problem(where + ": the input was written to");
  for (std::size_t i = 0; i < kGuard; ++i)
    if (member.out[i] != kGuardByte || member.out[member.out.size() - 1 - i] != kGuardByte)
      problem(where + ": memory beside the output was written to");
  take_back(job, member, number);
}

// Of a sum in place, wherever it has ended: what it was made of is there again.
void AggregationWorld::take_back(const Job& job, Member& member, std::size_t number) {
  const Tensor& t = job.sums[number];
  if (!t.in_place || t.width > 0) return;
  member.kept.give_back();
  if (!std::ranges::equal(t.inputs[member.number],
                          std::span(member.out).subspan(kGuard, t.inputs[member.number].size())))
    problem(fmt::format("job {} sum {} ({}) worker {}: its input did not come back", job.id, number,
                        wire::name(t.sum.format), member.number));
}

}  // namespace talweg::protocol
