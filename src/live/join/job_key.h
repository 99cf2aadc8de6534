// The job's key as the user gives it: a secret that all ranks of a job share and nobody else knows.
#pragma once

#include <optional>
#include <string>

namespace talweg::live {

struct JobKey {
  std::string text;
  std::string origin;  // "TALWEG_KEY_FILE /home/u/key", "TALWEG_KEY"
};

// From TALWEG_KEY_FILE or, without one, TALWEG_KEY; empty when neither is set. Blanks around it do not count.
// Throws Error{invalid_argument} for a key of fewer than wire::kShortestKey characters, for a file that
// others than its owner may touch, that belongs to somebody else, or that cannot be read.
std::optional<JobKey> find_job_key();
// From this file, under the same conditions; `option` is what named it, for errors.
JobKey read_job_key(const std::string& option, const std::string& path);

}  // namespace talweg::live
