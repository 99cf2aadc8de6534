// A signal by which a user asks a process to write down what it is doing.
#pragma once

#include <string_view>

namespace talweg::observe {

// "USR1", "USR2" -> the number; "none" -> 0. Throws Error{invalid_argument}.
int parse_dump_signal(std::string_view text);

// Catches the signal unless the program has a handler of its own, or ignores it.
void catch_dump_signal(int signal);

// How often it has come.
unsigned dump_signals();

}  // namespace talweg::observe
