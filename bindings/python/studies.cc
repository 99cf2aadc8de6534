#include "studies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/arguments.h"
#include "python/documented.h"
#include "study/plan_report.h"
#include "study/plan_request.h"
#include "study/predict_report.h"
#include "study/predict_request.h"
#include "study/predict_study.h"
#include "study/simulate_request.h"
#include "study/simulate_run.h"
#include "study/simulate_text.h"
#include "talweg/error.h"

namespace py = pybind11;

namespace talweg::python {
namespace {

using study::Field;

// What Python calls an option: `from` is a word of its own there.
std::string argument_name(std::string option) {
  if (option == "from") return "format";
  std::ranges::replace(option, '-', '_');
  return option;
}

// Of a str, a path or a number.
std::optional<std::string> one_text(const py::handle& value) {
  auto object = py::reinterpret_borrow<py::object>(value);
  if (py::hasattr(object, "__fspath__")) object = object.attr("__fspath__")();
  const bool text = py::isinstance<py::str>(object) || py::isinstance<py::float_>(object);
  if (!text && PyIndex_Check(object.ptr()) == 0) return std::nullopt;
  return py::str(object);
}

// One text for each where `value` has several, and nothing where one of them is none.
std::optional<std::vector<std::string>> texts_of(const py::handle& value) {
  if (auto text = one_text(value)) return std::vector{std::move(*text)};
  const bool bytes = py::isinstance<py::bytes>(value) || py::isinstance<py::bytearray>(value);
  if (bytes || py::isinstance<py::dict>(value) || !py::isinstance<py::iterable>(value)) return std::nullopt;
  std::vector<std::string> texts;
  for (const py::handle item : value) {
    auto text = one_text(item);
    if (!text) return std::nullopt;
    texts.push_back(std::move(*text));
  }
  return texts;
}

// Of several values, what the command line says with commas.
template <class Request>
void set_from(const char* function, Request& request, const Field<Request>& field, const py::handle& value) {
  if (value.is_none()) return;
  const auto misfit = [&](const char* expected) {
    throw py::type_error(fmt::format("{}: {}: expected {}, got {}", function, argument_name(field.name),
                                     expected, given(value)));
  };
  if (field.template is<bool>()) {
    if (!py::isinstance<py::bool_>(value)) misfit("True or False");
    return set(request, field, value.cast<bool>() ? "true" : "false");
  }
  const auto texts = texts_of(value);
  if (field.template is<std::vector<std::string>>()) {
    if (!texts || PyNumber_Check(value.ptr()) != 0) misfit("a str or a path, or several");
    for (const std::string& text : *texts) set(request, field, text);
    return;
  }
  if (!texts) misfit("a str, a path or a number, or several");
  set(request, field, fmt::format("{}", fmt::join(*texts, ",")));
}

// What `function` does; errors name what the user wrote: here arguments, not options.
template <class Function>
auto of_arguments(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (!text.starts_with("--")) throw;
    const std::size_t end = std::min(text.find_first_of(" :="), text.size());
    throw Error(error.code(), argument_name(text.substr(2, end - 2)) + text.substr(end));
  }
}

// The only argument without a name is the file of the network or job, and may have one.
template <class Request>
Request request_of(const char* function, std::span<const Field<Request>> fields, const py::args& positional,
                   const py::kwargs& named) {
  if (positional.size() > 1)
    throw py::type_error(
        fmt::format("{}: one argument is taken without a name, {} were given", function, positional.size()));
  Request request;
  if (positional.size() == 1) set_from(function, request, fields.front(), positional[0]);
  for (const auto& [key, value] : named) {
    const std::string name = py::str(key);
    const auto field = std::ranges::find_if(
        fields, [&](const auto& f) { return name == argument_name(f.name) || name == f.name; });
    if (field == fields.end())
      throw py::type_error(fmt::format("{}: no argument is called {}", function, name));
    of_arguments([&] { set_from(function, request, *field, value); });
  }
  return request;
}

// The document that `compute` makes meanwhile.
template <class Compute>
py::object computed(Compute&& compute) {
  const std::string document = of_arguments([&] {
    const py::gil_scoped_release no_gil;
    return std::forward<Compute>(compute)().dump();
  });
  return py::module_::import("json").attr("loads")(document);
}

py::object plan(const py::args& positional, const py::kwargs& named) {
  const auto request = request_of("plan", study::plan_fields(), positional, named);
  return computed([&] {
    const study::PlanQuestion question = checked(request);
    return to_json(question.network, question.source, study_plans(question.network, question.request));
  });
}

// Whether the user has pressed Ctrl-C, looked at now and then.
class Interruption {
 public:
  void look() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

py::object predict(const py::args& positional, const py::kwargs& named) {
  const auto request = request_of("predict", study::predict_fields(), positional, named);
  return computed([&] {
    Interruption interruption;
    const study::StepQuestion question =
        checked(request, [&](std::uint64_t, std::uint64_t) { interruption.look(); });
    return to_json(question, study_step(question, [&](std::size_t, std::size_t) { interruption.look(); }));
  });
}

py::object simulate(const py::args& positional, const py::kwargs& named) {
  const auto request = request_of("simulate", study::simulate_fields(), positional, named);
  return computed([&] {
    const study::SimulateOptions options = checked(request);
    Interruption interruption;
    study::Watchers watchers;
    watchers.look = [&] { interruption.look(); };
    return simulate_json(options, simulate_all(options, watchers, [](const study::PerfRow&) {}));
  });
}

template <class Request>
std::string document(const char* about, std::span<const Field<Request>> fields) {
  std::string text = std::string(about) + "\n\nArguments:";
  for (const auto& field : fields) {
    const std::string value = default_of(Request{}, field);
    text += fmt::format("\n    {}{}: {}{}", argument_name(field.name), value.empty() ? "" : "=" + value,
                        field.help, *field.words == '\0' ? "" : fmt::format(": {}", field.words));
  }
  return text;
}

}  // namespace

void add_studies(py::module_& module) {
  const auto add = [&](Documented function, auto called, auto fields) {
    module.def(function.name, called, document(function.text, fields).c_str());
  };
  add("plan", &plan, study::plan_fields());
  add("predict", &predict, study::predict_fields());
  add("simulate", &simulate, study::simulate_fields());
}

}  // namespace talweg::python
