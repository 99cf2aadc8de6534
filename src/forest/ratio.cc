#include "forest/ratio.h"

#include <fmt/format.h>

namespace talweg::forest {

std::string to_string(const Ratio& ratio) {
  if (ratio.denominator == 0) return "infinite";
  return ratio.denominator == 1 ? fmt::format("{}", ratio.numerator)
                                : fmt::format("{}/{}", ratio.numerator, ratio.denominator);
}

}  // namespace talweg::forest
