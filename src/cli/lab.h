// talweg lab: the network that a cluster file describes, built on this machine.
#pragma once

#include "cli/command.h"

namespace talweg::cli {

// Registers "talweg lab up|run|down|list"; what the user chose is left in *action and run by main.
void add_lab(CLI::App& app, Action* action);

}  // namespace talweg::cli
