// What tests do less of where sanitizers look on: everything is ten times slower there.
#pragma once

namespace talweg {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Of so many seeds of one property, how many to try: all, or a quarter with sanitizers. A few seeds run
// through all that sanitizers look at; that the property holds for every one is for the release build to say.
template <typename Number>
constexpr Number fewer(Number all) {
  return kSanitized ? (all + 3) / 4 : all;
}

}  // namespace talweg
