// talweg.BoundedSums and talweg.LossReport: talweg/bounded_loss.h as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "talweg/bounded_loss.h"
#include "talweg/group.h"

namespace talweg::python {

void add_bounded(pybind11::module_& module);

// A talweg.BoundedSums of `group`: every rank calls it. With Python's lock held, which is released meanwhile.
// Throws Error as BoundedSums::make does, and for a policy that is none, which stands in `policy` alone.
pybind11::object make_bounded_sums(const std::shared_ptr<Group>& group, BoundedLossOptions options,
                                   const std::string& policy);

}  // namespace talweg::python
