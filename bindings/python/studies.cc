#include "studies.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>

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

// A list is what the command line says with commas; paths may be path-like.
std::string text_of(const py::handle& value) {
  if (py::hasattr(value, "__fspath__")) return py::str(value.attr("__fspath__")());
  if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value)) return py::str(value);
  std::string text;
  for (const py::handle item : value) text += (text.empty() ? "" : ",") + std::string(py::str(item));
  return text;
}

template <class Request>
void set_from(Request& request, const Field<Request>& field, const py::handle& value) {
  if (value.is_none()) return;
  if (field.template is<std::vector<std::string>>() && !py::isinstance<py::str>(value)) {
    if (py::hasattr(value, "__fspath__")) return set(request, field, text_of(value));
    for (const py::handle item : value) set(request, field, text_of(item));
    return;
  }
  if (field.template is<bool>()) return set(request, field, value.cast<bool>() ? "true" : "false");
  set(request, field, text_of(value));
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
  if (positional.size() == 1) set_from(request, fields.front(), positional[0]);
  for (const auto& [key, value] : named) {
    const std::string name = py::str(key);
    const auto field = std::ranges::find_if(
        fields, [&](const auto& f) { return name == argument_name(f.name) || name == f.name; });
    if (field == fields.end())
      throw py::type_error(fmt::format("{}: no argument is called {}", function, name));
    of_arguments([&] { set_from(request, *field, value); });
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
    const study::StepQuestion question = checked(request);
    Interruption interruption;
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
    const std::string value = value_of(Request{}, field);
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
