#include "live/aggregation/result_rates.h"

#include <cctype>

#include "base/fail.h"
#include "base/printable.h"
#include "base/trim.h"
#include "base/units.h"
#include "wire/switch_message.h"

namespace talweg::live {

double ResultRates::of_job(std::string_view name, double otherwise) const {
  const auto found = of.find(name);
  return found != of.end() ? found->second : others.value_or(otherwise);
}

double parse_result_rate(std::string_view text) {
  const std::string_view rate = trimmed(text);
  if (rate == "none") return 0;
  double bytes_per_second = 0;
  try {
    const bool has_unit = !rate.empty() && std::isalpha(static_cast<unsigned char>(rate.back())) != 0;
    if (has_unit) bytes_per_second = parse_bandwidth(rate).bytes_per_second();
  } catch (const Error&) {  // as one without a unit
  }
  if (!(bytes_per_second >= kLeastRate && bytes_per_second <= kMostRate))
    refuse(
        "a rate of results \"{}\": expected at least {:.0f} kbit/s and at most {:.0f} Tbit/s with a unit, "
        "such "
        "as \"2 Gbit/s\", or none",
        printable(rate), kLeastRate * 8 / 1000, kMostRate * 8 / 1e12);
  return bytes_per_second;
}

ResultRates parse_result_rates(std::string_view text, const std::string& file) {
  ResultRates rates;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty() || line.front() == '#') continue;
    const std::size_t blank = line.find_first_of(" \t");
    const std::string name(line.substr(0, blank));
    if (!wire::is_job_name(name))
      throw_error(ErrorCode::bad_file,
                  "{}:{}: expected the name of a job, of 1 to {} printable ASCII characters, got \"{}\"",
                  file, number, wire::kMaxJobName, printable(name));
    if (blank == std::string_view::npos)
      throw_error(ErrorCode::bad_file,
                  "{}:{}: expected the name of a job and a rate, such as \"{} 2 Gbit/s\"", file, number,
                  printable(name));
    double rate = 0;
    try {
      rate = parse_result_rate(line.substr(blank));
    } catch (const Error& e) {
      throw_error(ErrorCode::bad_file, "{}:{}: {}", file, number, e.what());
    }
    const bool again = name == "*" ? rates.others.has_value() : !rates.of.emplace(name, rate).second;
    if (again)
      throw_error(ErrorCode::bad_file, "{}:{}: {} has a rate already", file, number, printable(name));
    if (name == "*") rates.others = rate;
  }
  return rates;
}

}  // namespace talweg::live
