// Options of a command for the fields of a request (see study/field.h), and what the numbers of other options
// may be: CLI11's own checks let NaN through, read 010 as 8, and a number too large for its type as the
// largest there is. Whoever is refused hears the option, the bounds and what it said.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>

#include "study/field.h"

namespace talweg::cli {

// For ->check(): decimal, from `least` to `most`.
inline CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return {[=](const std::string& text) { return study::whole_number_complaint(text, least, most); },
          fmt::format("INT in [{} - {}]", least, most)};
}
// The same with a fraction or an exponent.
inline CLI::Validator real_number(double least, double most) {
  return {[=](const std::string& text) { return study::real_number_complaint(text, least, most); },
          fmt::format("FLOAT in [{} - {}]", least, most)};
}

// Of commands that print tables.
inline CLI::Option* add_wide(CLI::App& app, bool& wide) {
  return app.add_flag("--wide", wide, "tables with all columns and whole names, however wide");
}

// What the user says goes into `request`; what it cannot be is a usage error that names the option.
template <class Request>
void add_fields(CLI::App& app, std::span<const study::Field<Request>> fields,
                std::shared_ptr<Request> request) {
  for (const study::Field<Request>& field : fields) {
    const std::string letters = field.letters;
    const bool positional = letters == ".";
    const std::string names =
        positional ? field.name : (letters.empty() ? "" : letters + ",") + "--" + field.name;
    CLI::Option* option = nullptr;
    if (field.template is<bool>()) {
      option = app.add_flag_callback(
          names, [=, &field] { set(*request, field, "true"); }, field.help);
    } else if (field.template is<std::vector<std::string>>()) {
      option = app.add_option_function<std::vector<std::string>>(
                      names,
                      [=, &field](const std::vector<std::string>& texts) {
                        for (const std::string& text : texts) set(*request, field, text);
                      },
                      field.help)
                   ->allow_extra_args(positional);  // of arguments without a name there may be several
    } else {
      option = app.add_option_function<std::string>(
          names, [=, &field](const std::string& text) { set(*request, field, text); }, field.help);
      option->check(CLI::Validator([&field](const std::string& text) { return field.complaint(text); }, ""));
      option->default_str(default_of(*request, field));
      if (field.template is<int>() || field.template is<std::uint64_t>()) option->type_name("INT");
      if (field.template is<double>()) option->type_name("FLOAT");
    }
    if (*field.group != '\0') option->group(field.group);
  }
}

}  // namespace talweg::cli
