#include "base/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "base/fail.h"
#include "base/trim.h"

namespace talweg {
namespace {

struct Unit {
  std::string_view text;
  double scale;
};

constexpr double kKi = 1024, kMi = kKi * 1024, kGi = kMi * 1024, kTi = kGi * 1024;

constexpr Unit kByteUnits[] = {
    {"", 1},      {"B", 1},    {"k", kKi},  {"K", kKi},   {"KiB", kKi}, {"m", kMi}, {"M", kMi},
    {"MiB", kMi}, {"g", kGi},  {"G", kGi},  {"GiB", kGi}, {"t", kTi},   {"T", kTi}, {"TiB", kTi},
    {"kB", 1e3},  {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},  {"TB", 1e12},
};
constexpr Unit kTimeUnits[] = {{"ns", 1},        {"us", 1e3}, {"\u00b5s", 1e3},
                               {"\u03bcs", 1e3}, {"ms", 1e6}, {"s", 1e9}};

// The prefixes in front of "bit/s" (any of its spellings) or "B/s"; lower case as in tc.
constexpr Unit kRatePrefixes[] = {{"", 1},     {"k", 1e3},  {"K", 1e3},  {"m", 1e6},  {"M", 1e6},
                                  {"g", 1e9},  {"G", 1e9},  {"t", 1e12}, {"T", 1e12}, {"Ki", kKi},
                                  {"Mi", kMi}, {"Gi", kGi}, {"Ti", kTi}};
constexpr Unit kRateUnits[] = {{"", 1},    {"bit/s", 1}, {"bit", 1}, {"bps", 1},
                               {"b/s", 1}, {"B/s", 8},   {"Bps", 8}};

std::optional<double> scale_of(std::string_view unit, std::span<const Unit> units) {
  for (const auto& known : units) {
    if (unit == known.text) return known.scale;
  }
  return std::nullopt;
}

std::optional<double> rate_scale_of(std::string_view unit) {
  for (const auto& prefix : kRatePrefixes) {
    if (!unit.starts_with(prefix.text)) continue;
    if (const auto scale = scale_of(unit.substr(prefix.text.size()), kRateUnits))
      return prefix.scale * *scale;
  }
  return std::nullopt;
}

struct Quantity {
  double number;
  std::optional<std::int64_t> whole;  // the number, when it was written as an integer: exact beyond 2^53
  std::string_view unit;
};

std::optional<Quantity> split(std::string_view text) {
  const std::string_view body = trimmed(text, " \t");
  const char* const end = body.data() + body.size();
  Quantity quantity{};
  const auto number = std::from_chars(body.data(), end, quantity.number);
  if (number.ec != std::errc{} || !std::isfinite(quantity.number) || std::signbit(quantity.number))
    return std::nullopt;
  std::int64_t whole = 0;
  const auto integer = std::from_chars(body.data(), end, whole);
  if (integer.ec == std::errc{} && integer.ptr == number.ptr) quantity.whole = whole;
  quantity.unit = trimmed(std::string_view(number.ptr, static_cast<std::size_t>(end - number.ptr)));
  return quantity;
}

// A whole, non-negative count of the smallest unit, or nothing when it is fractional or does not fit. "0.1us"
// is 100 ns although 0.1 is not a binary number, so a relative error of some ulps is taken for exact.
std::optional<std::int64_t> whole_count(const Quantity& quantity, double scale) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  if (quantity.whole) {
    const auto factor = static_cast<std::int64_t>(scale);
    if (*quantity.whole > kMax / factor) return std::nullopt;
    return *quantity.whole * factor;
  }
  const double exact = quantity.number * scale;
  const double rounded = std::round(exact);
  if (rounded >= static_cast<double>(kMax) || std::abs(exact - rounded) > 1e-15 * rounded)
    return std::nullopt;
  return static_cast<std::int64_t>(rounded);
}

// Up to here a number with decimals, read as a double and scaled, rounds back to the very count it was
// printed from.
constexpr std::int64_t kExactWithDecimals = 1'000'000'000'000'000;

// `value` in the largest of `units` (largest first, the last is 1) in which it is whole or has at most three
// decimals.
struct PrintUnit {
  std::int64_t scale;
  const char* text;
};

std::string print(std::int64_t value, std::span<const PrintUnit> units) {
  for (const auto& unit : units) {
    const std::int64_t whole = value / unit.scale;
    const std::int64_t rest = value % unit.scale;
    if (whole == 0 && unit.scale != 1) continue;
    // rest < scale <= 2^40, so the product stays below 2^50.
    if (rest == 0) return fmt::format("{} {}", whole, unit.text);
    if (rest * 1000 % unit.scale != 0 || std::abs(whole) >= kExactWithDecimals / unit.scale) continue;
    std::string decimals = fmt::format("{:03}", std::abs(rest * 1000 / unit.scale));
    decimals.erase(decimals.find_last_not_of('0') + 1);
    return fmt::format("{}.{} {}", whole, decimals, unit.text);
  }
  return {};
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  if (const auto quantity = split(text)) {
    if (const auto scale = scale_of(quantity->unit, kByteUnits)) {
      if (const auto count = whole_count(*quantity, *scale)) return {*count};
    }
  }
  refuse(
      "size \"{}\": expected a whole number of bytes, such as \"4096\", \"64K\", \"1 MiB\" (binary) "
      "or \"10 MB\" (decimal)",
      text);
}

Bandwidth parse_bandwidth(std::string_view text) {
  if (const auto quantity = split(text)) {
    if (const auto scale = rate_scale_of(quantity->unit)) {
      const double rate = quantity->number * *scale;
      if (std::isfinite(rate) && rate > 0) return {rate};
    }
  }
  refuse(
      "bandwidth \"{}\": expected a number above 0 with a unit, such as \"1 Gbit/s\", \"200Mbit/s\" "
      "or \"25GB/s\"",
      text);
}

Nanoseconds parse_nanoseconds(std::string_view text) {
  if (const auto quantity = split(text)) {
    const bool bare_zero = quantity->unit.empty() && quantity->number == 0;
    if (bare_zero) return {0};
    if (const auto scale = scale_of(quantity->unit, kTimeUnits)) {
      if (const auto count = whole_count(*quantity, *scale)) return {*count};
    }
  }
  refuse(
      "time \"{}\": expected a whole number of nanoseconds, with a unit, such as \"100ns\", \"30us\", "
      "\"1.5 ms\" or \"2s\"",
      text);
}

Nanoseconds parse_wait(std::string_view what, std::string_view text) {
  const bool bare = text.empty() || text.back() == '.' || (text.back() >= '0' && text.back() <= '9');
  try {
    return parse_nanoseconds(bare ? std::string(text) + "s" : std::string(text));
  } catch (const Error& e) {
    refuse(
        "{}: expected a time such as \"500ms\" or \"30s\", or a number of seconds, got "
        "\"{}\"",
        what, text);
  }
}

std::string to_string(Bytes bytes) {
  constexpr PrintUnit kUnits[] = {
      {1LL << 40, "TiB"}, {1LL << 30, "GiB"}, {1LL << 20, "MiB"}, {1LL << 10, "KiB"}, {1, "B"}};
  return print(bytes.value, kUnits);
}

std::string to_string(Nanoseconds time) {
  constexpr PrintUnit kUnits[] = {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}, {1, "ns"}};
  return print(time.value, kUnits);
}

std::string to_string(Bandwidth bandwidth) {
  constexpr Unit kUnits[] = {{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}};
  const double rate = bandwidth.bits_per_second;
  for (const auto& unit : kUnits) {
    const double scaled = rate / unit.scale;
    // A division that rounded would read back as a neighbour: then a smaller unit says it exactly.
    if (std::abs(scaled) >= 1 && scaled * unit.scale == rate) return fmt::format("{} {}", scaled, unit.text);
  }
  return fmt::format("{} bit/s", rate);
}

}  // namespace talweg
