# How everything is compiled. The baseline is the processor family's own: kernels choose their instructions at run
# time, so one build serves every machine of a cluster.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Without -DNDEBUG: assertions guard against programmer errors in production too.
set(CMAKE_CXX_FLAGS_RELEASE "-O3")

# What was compiled before, here or for a wheel or a sanitizer's stage, need not be compiled again.
find_program(TALWEG_CCACHE ccache)
if(TALWEG_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What a precompiled header defines is known to be the same wherever the header is.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TALWEG_CCACHE})
endif()

add_library(talweg_warnings INTERFACE)
target_compile_options(talweg_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                                 -Wno-sign-conversion)
# GCC 12 at -O3 sees overflows in fmt's header and overlaps in std::string's that cannot happen (GCC PR 105329).
target_compile_options(talweg_warnings INTERFACE
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow;-Wno-restrict>")
if(TALWEG_SANITIZE)
  # Instrumented code draws false warnings from GCC's flow analysis.
  add_compile_options(-w -fsanitize=${TALWEG_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TALWEG_SANITIZE})
else()
  target_compile_options(talweg_warnings INTERFACE -Werror)
endif()
