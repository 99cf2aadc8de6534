// Arguments from Python: what does not fit is a TypeError of one line that says which argument, what was
// expected and what was given; an int that is too large is a talweg.Error. pybind11's own message lists all
// signatures and prints every array in full.
//
//   py::object broadcast(PyGroup& self, const py::object& array, Argument<"root", int> root);
//   define(group, "Group.broadcast", &broadcast, py::arg("array"), py::arg("root") = 0);
//
// Docstrings are the stub's alone: pybind11's signatures are switched off, which would show Misfit, too.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "python/documented.h"
#include "talweg/error.h"
#include "talweg/types.h"

namespace talweg::python {

template <std::size_t kSize>
struct Name {
  char text[kSize] = {};
  consteval Name(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }
};

// A value called `kName` in messages.
template <Name kName, class T>
struct Argument {
  T value{};
  operator const T&() const { return value; }  // NOLINT(google-explicit-constructor): it stands for its value
};

using Counts = std::vector<std::size_t>;
using Op = Argument<"op", ReduceOp>;
template <Name kName>
using Text = Argument<kName, std::string>;
template <Name kName>
using OptionalCounts = Argument<kName, std::optional<Counts>>;

template <class T>
constexpr const char* expected() {
  if constexpr (std::is_same_v<T, bool>) return "True or False";
  if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? "an int" : "an int of at least 0";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a str";
  if constexpr (std::is_same_v<T, ReduceOp>) return "a talweg.ReduceOp such as talweg.SUM";
  return std::is_same_v<T, std::vector<int>> ? "a list of ints" : "a list of ints of at least 0";
}

// "'two' (str)", or only the type where the value is long.
inline std::string given(pybind11::handle object) {
  constexpr std::size_t kShort = 40;
  const std::string type = Py_TYPE(object.ptr())->tp_name;
  const pybind11::object text = pybind11::reinterpret_steal<pybind11::object>(PyObject_Repr(object.ptr()));
  if (!text) PyErr_Clear();
  const std::string shown = text ? std::string(pybind11::str(text)) : "";
  if (shown.empty() || shown.size() > kShort || shown.find('\n') != std::string::npos)
    return (std::string_view("aeiou").find(type.front()) == std::string_view::npos ? "a " : "an ") + type;
  return object.is_none() ? shown : fmt::format("{} ({})", shown, type);
}

[[noreturn]] inline void no_timeout(const pybind11::object& what) {
  throw pybind11::type_error("timeout: expected seconds (int or float) or a timedelta, got " + given(what));
}

// Seconds (int, float) or a datetime.timedelta; None is 0, "the default". Never rounds a wish down to 0.
inline std::chrono::milliseconds milliseconds_of(const pybind11::object& timeout) {
  using std::chrono::milliseconds;
  if (timeout.is_none()) return milliseconds(0);
  const bool is_delta = pybind11::hasattr(timeout, "total_seconds");
  const pybind11::object number = is_delta ? timeout.attr("total_seconds")() : timeout;
  const double seconds = PyFloat_AsDouble(number.ptr());
  bool too_many = !(seconds > 0 && seconds <= 1e9);  // some 30 years
  if (PyErr_Occurred() != nullptr) {
    too_many = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (!too_many) no_timeout(timeout);
  }
  if (too_many) refuse("timeout: expected more than 0 and up to 1e9 seconds, got {}", given(timeout));
  return std::max(milliseconds(1), milliseconds(static_cast<std::int64_t>(seconds * 1e3)));
}

// Whether `object` is an int that T is too small for; one below 0 is no int at all where T has no such.
template <class T>
bool too_far([[maybe_unused]] pybind11::handle object) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const auto number = pybind11::reinterpret_steal<pybind11::object>(PyNumber_Index(object.ptr()));
    if (number) return std::is_signed_v<T> || !(number < pybind11::int_(0));
    PyErr_Clear();
  }
  return false;
}

// The overload that takes what the function itself does not: a wrong number of arguments, or unknown names.
class Misfit {
 public:
  template <class... Extra>
  Misfit(std::string function, bool is_method, const Extra&... extra)
      : function_(std::move(function)), is_method_(is_method) {
    (add(extra), ...);
  }

  [[noreturn]] pybind11::object operator()(const pybind11::args& positional,
                                           const pybind11::kwargs& named) const {
    throw pybind11::type_error(
        fmt::format("{}({}): {}", function_, fmt::join(names_, ", "), complaint(positional.size(), named)));
  }

 private:
  void add(const pybind11::arg& argument) { names_.emplace_back(argument.name), ++required_; }
  void add(const pybind11::arg_v& argument) { names_.emplace_back(argument.name); }

  // `positional` counts a method's self.
  std::string complaint(std::size_t positional, const pybind11::kwargs& named) const {
    const std::size_t given = positional - (is_method_ ? 1 : 0);
    if (given > names_.size())
      return fmt::format("at most {} arguments are taken, {} were given", names_.size(), given);
    for (const auto& [key, value] : named) {
      const auto found = std::ranges::find(names_, std::string(pybind11::str(key)));
      if (found == names_.end())
        return fmt::format("no argument is called {}", std::string(pybind11::str(key)));
      if (found - names_.begin() < static_cast<std::ptrdiff_t>(given)) return *found + " is given twice";
    }
    for (std::size_t i = given; i < required_; ++i)
      if (!named.contains(names_[i].c_str())) return names_[i] + " is missing";
    return "self is no object of this class";
  }

  const std::string function_;
  std::vector<std::string> names_;
  std::size_t required_ = 0;  // the first so many
  const bool is_method_;
};

template <class... Options, class Function, class... Extra>
void define(pybind11::class_<Options...>& type, Documented method, Function function, const Extra&... extra) {
  type.def(method.name, function, extra..., method.text);
  type.def(method.name, Misfit(method.name, true, extra...));
}
template <class Function, class... Extra>
void define(pybind11::module_& module, Documented function, Function called, const Extra&... extra) {
  module.def(function.name, called, extra..., function.text);
  module.def(function.name, Misfit(function.name, false, extra...));
}
template <class... Options, class Getter>
void define_property(pybind11::class_<Options...>& type, Documented property, Getter getter) {
  type.def_property_readonly(property.name, getter, property.text);
}

}  // namespace talweg::python

namespace pybind11::detail {

template <talweg::python::Name kName, class T>
struct type_caster<talweg::python::Argument<kName, T>> {
  using Value = talweg::python::Argument<kName, T>;
  PYBIND11_TYPE_CASTER(Value, make_caster<T>::name);

  // Conversions are as pybind11 makes them where there is no other overload: NumPy's integers are ints.
  bool load(handle source, bool) {
    make_caster<T> inner;
    // pybind11 takes None for any class of C++, enumerations too.
    if (!inner.load(source, true) || (std::is_enum_v<T> && source.is_none())) {
      if (talweg::python::too_far<T>(source))
        throw talweg::Error(
            talweg::ErrorCode::invalid_argument,
            fmt::format("{}: out of range, got {}", kName.text, talweg::python::given(source)));
      throw type_error(fmt::format("{}: expected {}, got {}", kName.text, talweg::python::expected<T>(),
                                   talweg::python::given(source)));
    }
    value.value = cast_op<T>(inner);
    return true;
  }
};

}  // namespace pybind11::detail
