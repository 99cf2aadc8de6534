#include "protocol/learning/examples.h"

#include <fstream>
#include <string>
#include <utility>

#include "base/fail.h"

namespace talweg::learning {

namespace {

constexpr std::size_t kPrototypes = 4;  // of a class
constexpr float kNoise = 1.9F;
constexpr std::size_t kTrain = 16'000, kTest = 4'000;

constexpr std::size_t kTried = 5;  // one in so many digits

// 0 to 16: one of 0-9 and a-g.
int pixel(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'g' ? c - 'a' + 10 : -1;
}

}  // namespace

Examples mixture(std::uint64_t seed) {
  Gaussian gaussian(seed);
  Random random(seed, 1);
  std::vector<Example> prototypes(kClasses * kPrototypes);
  for (Example& p : prototypes)
    for (float& x : p.inputs) x = gaussian.next();
  const float deviation = std::sqrt(1 + kNoise * kNoise);
  Examples made;
  for (std::size_t n = 0; n < kTrain + kTest; ++n) {
    const std::size_t which = random.below(prototypes.size());
    Example e = prototypes[which];
    e.label = static_cast<std::uint8_t>(which / kPrototypes);
    for (float& x : e.inputs) x = (x + kNoise * gaussian.next()) / deviation;
    (n < kTrain ? made.train : made.test).push_back(e);
  }
  return made;
}

Examples digits(const std::filesystem::path& file, std::uint64_t seed) {
  std::ifstream in(file);
  if (!in) refuse("cannot open {}", file.string());
  std::vector<Example> all;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with('#')) continue;
    Example e;
    bool right =
        line.size() == kInputs + 2 && line[kInputs] == ' ' && line.back() >= '0' && line.back() <= '9';
    for (std::size_t i = 0; right && i < kInputs; ++i) {
      right = pixel(line[i]) >= 0;
      e.inputs[i] = static_cast<float>(pixel(line[i])) / 16;
    }
    if (!right) refuse("{}:{}: expected {} pixels, a space and a digit", file.string(), number, kInputs);
    e.label = static_cast<std::uint8_t>(line.back() - '0');
    all.push_back(e);
  }
  Random random(seed, 2);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  Examples made;
  const std::size_t tried = all.size() / kTried;
  made.test.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(tried));
  made.train.assign(all.begin() + static_cast<std::ptrdiff_t>(tried), all.end());
  return made;
}

}  // namespace talweg::learning
