// What the numbers of options may be, for ->check(). CLI11's own checks let NaN through, read 010 as 8, and a
// number too large for its type as the largest there is. Whoever is refused hears the option, the bounds and
// what it said.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace talweg::cli {

// Decimal, from `least` to `most`.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);
// The same with a fraction or an exponent, as in 0.001 and 1e-3.
CLI::Validator real_number(double least, double most);

}  // namespace talweg::cli
