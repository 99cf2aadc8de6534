// A name that Python sees, with what the module's stub (.pyi) says of it: the stub is the one place for
// docstrings. A name that has none there does not compile.
//
//   constexpr Documented split = "Group.split";
//   type.def(split.name, function, split.text);
#pragma once

#include <string_view>

#include "documents.h"  // of the module's stub: documents.py makes it

namespace talweg::python {

struct Documented {
  consteval Documented(const char* qualified)  // NOLINT(google-explicit-constructor): it stands for its name
      : name(qualified + (std::string_view(qualified).rfind('.') + 1)) {
    for (const Document& document : kDocuments)
      if (document.name == qualified) text = document.text;
    if (text == nullptr) throw "the stub has no docstring of this name";
  }

  const char* name;  // without its class
  const char* text = nullptr;
};

}  // namespace talweg::python
