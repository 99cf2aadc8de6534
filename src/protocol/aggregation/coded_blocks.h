// Blocks of floats as codes of 8 or 4 bits with scales: wire::AggregationFormat's coded formats, by the
// kernel's gradient_code.h.
//
// A sum has an error from each coding: of a worker's part, and of the sum at each switch. With
// `unit` = largest magnitude of the values that have a scale in common / 127, or / 7, one
// coding is off by half a unit where it rounds to nearest, by less than one where it rounds at random.
//
//   - A worker with a residual rounds to nearest: what a sum lacks of its part comes with a later one.
//   - Whoever cannot make good what rounding takes, a worker without a residual or a switch, rounds at random:
//     up with the probability that makes the expected value right. So values that are small beside the largest
//     of their block are not lost in every sum. The random numbers are those of the operation, the element
//     and the coder: what is sent again has the same bytes, and a sum that is made again from the same values
//     the same bits. Those of two coders have nothing to do with each other, so that their errors do not add
//     up: neither of workers that have the same values, nor of neighbours in a vector.
//
// A NaN makes all that it has a scale with NaN, an infinity keeps its sign and makes the others zero; a sum
// beyond the largest float is one. Values below 2^-118, where all of one scale are, are zero. -0.0 comes back
// as +0.0.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "kernel/gradient_code.h"
#include "wire/aggregation.h"

namespace talweg::protocol {

// `format` is coded.
constexpr kernel::GradientFormat gradient_format(wire::AggregationFormat format) {
  return {format == wire::AggregationFormat::block8 ? kernel::Code::int8 : kernel::Code::int4,
          static_cast<std::uint32_t>(wire::coded_elements(format))};
}
static_assert(kernel::is_block(wire::coded_elements(wire::AggregationFormat::block8)) &&
              kernel::is_block(wire::coded_elements(wire::AggregationFormat::block4)));

// Who codes: a thread of the switch that all sums are made at, or of one below it, or a worker.
enum class Coder : std::uint8_t { top, rack, worker };

// Of all that this coder codes in the operation. `rack`: of the switch below another or of the worker's; 0
// where there is none. `number`: of the worker at its switch, or JobTerms::self, which tells threads apart:
// each of them has block numbers of its own.
constexpr std::uint64_t coding_seed(std::uint32_t operation, Coder coder, std::uint16_t rack,
                                    std::uint16_t number) {
  const std::uint64_t who = std::uint64_t{static_cast<std::uint8_t>(coder)} << 32 |
                            std::uint32_t{rack} << 16 | std::uint32_t{number};
  return Random(operation, who).next();
}
constexpr kernel::Rounding at_random(std::uint64_t seed, std::uint64_t first_element) {
  return {true, seed, first_element};
}

}  // namespace talweg::protocol
