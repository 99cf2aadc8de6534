#include "cli/number_checks.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "text/yaml_reader.h"

namespace talweg::cli {

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const auto complaint = [least, most](const std::string& text) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const bool plain = error == std::errc{} && stop == end && (text[0] != '0' || text.size() == 1);
    if (plain && value >= least && value <= most) return std::string();
    return fmt::format("expected a whole number from {} to {}, got \"{}\"", least, most, text);
  };
  return {complaint, fmt::format("INT in [{} - {}]", least, most)};
}

CLI::Validator real_number(double least, double most) {
  const auto complaint = [least, most](const std::string& text) {
    const auto value = text::read_number(text);
    if (value && *value >= least && *value <= most) return std::string();
    return fmt::format("expected a number from {} to {}, got \"{}\"", least, most, text);
  };
  return {complaint, fmt::format("FLOAT in [{} - {}]", least, most)};
}

}  // namespace talweg::cli
