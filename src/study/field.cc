#include "study/field.h"

#include "text/yaml_reader.h"

namespace talweg::study {

std::string whole_number_complaint(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool plain = error == std::errc{} && stop == end && (text[0] != '0' || text.size() == 1);
  if (plain && value >= least && value <= most) return {};
  return fmt::format("expected a whole number from {} to {}, got \"{}\"", least, most, text);
}

std::string real_number_complaint(std::string_view text, double least, double most) {
  const auto value = text::read_number(std::string(text));
  if (value && *value >= least && *value <= most) return {};
  return fmt::format("expected a number from {} to {}, got \"{}\"", least, most, text);
}

std::string word_complaint(std::string_view text, std::string_view words) {
  const std::string list = fmt::format(",{},", words);
  if (text.find(',') == text.npos && list.find(fmt::format(",{},", text)) != list.npos) return {};
  return fmt::format("expected one of {}, got \"{}\"", words, text);
}

}  // namespace talweg::study
