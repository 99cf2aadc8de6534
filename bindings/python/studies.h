// talweg.plan(), talweg.predict() and talweg.simulate(): what the commands of the same names compute, as
// Python's dicts.
#pragma once

#include <pybind11/pybind11.h>

namespace talweg::python {

void add_studies(pybind11::module_& module);

}  // namespace talweg::python
