# One function per kind of target, so that a room's CMakeLists.txt only lists its files and what it stands on.

# Most of the time that sanitizers and the linter take for a file goes into the headers it includes, so they take eight
# files of a room, or of its tests, at once. Names without linkage are therefore unique there. Whether each file stands alone, and
# without warnings, is for the release build to say.
option(TALWEG_UNITY "Compile several files of a room at once" OFF)
if(TALWEG_UNITY)
  add_compile_options(-w)
endif()

# talweg_room(NAME SOURCES a.cc b.cc DEPS talweg_base fmt::fmt): the static library talweg_NAME.
function(talweg_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(talweg_${name} STATIC ${ARG_SOURCES})
  set_target_properties(talweg_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(talweg_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(talweg_${name} PUBLIC ${ARG_DEPS} PRIVATE talweg_warnings)
  if(TALWEG_UNITY)
    set_target_properties(talweg_${name} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()

# Sanitizers make optimising take twice as long as all the rest of compiling. What they are there to check is
# optimised all the same; tests and the commands' options and tables, which run briefly, are not.
if(TALWEG_SANITIZE)
  set(TALWEG_UNOPTIMISED_WHERE_CHECKED -O0)
endif()

# Tests are built often and run briefly; what they test is optimised in full.
# For ccache: -fpch-preprocess. In precompiled headers GCC 12 warns of what is in the system's (see Compile.cmake).
set(TALWEG_TEST_OPTIONS $<$<CONFIG:Release>:-O1> ${TALWEG_UNOPTIMISED_WHERE_CHECKED}
                        "$<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-Wno-array-bounds>")

# GoogleTest's headers, compiled once for the tests of all rooms.
function(talweg_test_headers)
  add_library(talweg_test_headers OBJECT ${PROJECT_SOURCE_DIR}/tests/headers.cc)
  target_link_libraries(talweg_test_headers PRIVATE GTest::gmock talweg_warnings)
  target_precompile_headers(talweg_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  target_compile_options(talweg_test_headers PRIVATE ${TALWEG_TEST_OPTIONS})
endfunction()

# talweg_test(NAME SOURCES a_test.cc DEPS talweg_kernel [TIMEOUT seconds] [LABELS label] [SERIAL]): one GoogleTest
# program, one ctest entry per test case. The label no_asan, no_tsan or no_sanitizers keeps a test out of those runs
# of `make check`; SERIAL gives it the machine to itself.
function(talweg_test name)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT;LABELS" "SOURCES;DEPS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "talweg_test(${name}): not understood: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS)
    list(APPEND properties LABELS ${ARG_LABELS})
  endif()
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL ON)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main talweg_warnings)
  if(TALWEG_UNITY)
    set_target_properties(${name}_test PROPERTIES UNITY_BUILD ON)
  endif()
  if(NOT TARGET talweg_test_headers)
    talweg_test_headers()
  endif()
  target_precompile_headers(${name}_test REUSE_FROM talweg_test_headers)
  target_compile_options(${name}_test PRIVATE ${TALWEG_TEST_OPTIONS})
  # Discovered when ctest starts, not while building: a test program that cannot start fails its tests, not the
  # build. The prefix keeps equal names of two programs apart: ctest would give both the properties of the last.
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES ${properties})
endfunction()

# talweg_subdirectory(PATH): adds the folder if it has a CMakeLists.txt. Rooms are created when they have work.
macro(talweg_subdirectory path)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${path}/CMakeLists.txt)
    add_subdirectory(${path})
  endif()
endmacro()
