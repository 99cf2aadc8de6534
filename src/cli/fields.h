// Options of a command for the fields of a request (see study/field.h).
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>

#include "study/field.h"

namespace talweg::cli {

// What the user says goes into `request`; what it cannot be is a usage error that names the option.
template <class Request>
void add_fields(CLI::App& app, std::span<const study::Field<Request>> fields,
                std::shared_ptr<Request> request) {
  for (const study::Field<Request>& field : fields) {
    const bool positional = *field.letters == '.';
    const std::string letters = *field.letters == '-' ? std::string(field.letters) + "," : "";
    const std::string names = positional ? field.name : letters + "--" + field.name;
    const std::string group = *field.group == '\0' ? "Options" : field.group;
    if (const auto* flag = std::get_if<bool Request::*>(&field.member)) {
      app.add_flag(names, (*request).*(*flag), field.help)->group(group);
      continue;
    }
    const auto several = std::get_if<std::vector<std::string> Request::*>(&field.member);
    CLI::Option* option =
        several ? app.add_option(names, (*request).*(*several), field.help)->allow_extra_args(false)
                : app.add_option_function<std::string>(
                      names, [request, &field](const std::string& text) { set(*request, field, text); },
                      field.help);
    option->check(CLI::Validator([&field](const std::string& text) { return complaint(field, text); }, ""))
        ->group(positional ? "Positionals" : group);
    if (const std::string value = value_of(*request, field); !several && !value.empty())
      option->default_str(value);
  }
}

}  // namespace talweg::cli
