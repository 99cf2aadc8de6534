// The whole command line of `talweg`, for the program itself and for what is written about it.
#pragma once

#include <memory>

#include "cli/command.h"

namespace talweg::cli {

std::unique_ptr<CLI::App> make_app(Action* action);

}  // namespace talweg::cli
