// What a user may set from outside a program: one table, and where each value comes from.
//
// A value is looked for in this order: an explicit option of the program > the environment > a file > the
// default. The file is $TALWEG_CONF_FILE, or else ~/.talweg.conf and then /etc/talweg.conf. It has one
// NAME=value a line;
// `#` begins a comment. Nothing is kept between calls: what the environment says now is what counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

namespace talweg {

enum class SettingKind { text, on_off, whole_number, wait };

struct Setting {
  std::string_view name;           // of the environment variable and of the line in the file
  std::string_view description;    // one line: meaning, unit, grammar
  std::string_view default_value;  // empty: decided at run time, as the description says
  bool secret = false;             // never shown, and refused in a file that anybody may read
  bool alike = false;              // ranks with different values do not form a group
  SettingKind kind = SettingKind::text;
  std::int64_t least = 0, most = 0;  // of a whole number; of a wait the least alone, in nanoseconds
};

// All there are, in the order in which tables list them.
const std::vector<Setting>& settings();

enum class SettingOrigin { flag, environment, file, default_value };
const char* name(SettingOrigin origin);  // "flag", "environment", "file", "default"

struct ResolvedSetting {
  std::string value;
  SettingOrigin origin = SettingOrigin::default_value;
  std::string place;  // of a file: "/etc/talweg.conf:3"; otherwise empty
};

// `flag` is what an explicit option said; empty when it was not given. An empty environment variable counts
// as not set. Throws Error{invalid_argument} for a name that is not in the table, Error{bad_file} for a file
// with a line that is no NAME=value or names no setting, or when $TALWEG_CONF_FILE cannot be read.
ResolvedSetting resolve(std::string_view name, std::string_view flag = {});

// Variables of the environment that look like settings and are none: typing mistakes, which do nothing.
std::vector<std::string> mistyped_settings();

// Each setting that ranks must have alike, with its value as ranks compare it: what says the same is the
// same.
std::vector<std::pair<std::string, std::string>> alike_settings();

std::optional<bool> switch_in(std::string_view text);  // 1, on, true; 0, off, false; empty: none of these

// The value in force, read as what the setting is, within its bounds. They throw as resolve does, and
// Error{invalid_argument} that names the setting and what was expected.
std::int64_t whole_number_of(std::string_view setting);
bool switch_of(std::string_view setting);       // 1, on, true; 0, off, false
Nanoseconds wait_of(std::string_view setting);  // "1500ms"; a bare number is seconds
void check(const Setting& setting);             // reads it as its kind

}  // namespace talweg
