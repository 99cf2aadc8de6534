// What has failed in a simulation and was not repaired, for messages: the cause, where what it kept from
// ending is the symptom.
#pragma once

#include <string>
#include <vector>

#include "sim/simulation.h"

namespace talweg::sim {

// How outages keep one of these nodes, which need each other, from another: "h2 failed at 1 ms and was not
// repaired: ", or "leaf1 failed at 1 ms and was not repaired, which cuts h2, h3 off from h0, h1: ". Empty if
// they do not.
std::string outage_text(const Simulation& simulation, std::vector<int> nodes);

// "h0, h1, h2": the first eight, and how many there are besides.
std::string abridged(const std::vector<std::string>& names);

}  // namespace talweg::sim
