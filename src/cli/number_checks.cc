#include "cli/number_checks.h"

#include <fmt/format.h>

#include "study/field.h"

namespace talweg::cli {

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return {[=](const std::string& text) { return study::whole_number_complaint(text, least, most); },
          fmt::format("INT in [{} - {}]", least, most)};
}

CLI::Validator real_number(double least, double most) {
  return {[=](const std::string& text) { return study::real_number_complaint(text, least, most); },
          fmt::format("FLOAT in [{} - {}]", least, most)};
}

}  // namespace talweg::cli
