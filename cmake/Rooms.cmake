# One function per kind of target, so that a room's CMakeLists.txt only lists its files and what it stands on.

# Most of the time that a compiler takes for a file goes into the headers it includes and into the templates that it
# makes of them, so presets that build everything take sixteen files of a room, or eight of its tests, at once. Names without
# linkage are therefore unique there. That each file stands alone is for the linter to say, and for the preset dev.
option(TALWEG_UNITY "Compile several files of a room at once" OFF)
if(TALWEG_UNITY)
  # What one file says of another is no news: a file among others counts as a header for GCC, where a type with linkage
  # may have no member without, and a local name may be one that another file has to itself.
  target_compile_options(talweg_warnings INTERFACE "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-shadow>")
endif()

# Rooms whose tests `make check` also runs with AddressSanitizer. The programs for that are built by the target core.
set(TALWEG_CORE wire live protocol group)
add_custom_target(core)
# Rooms of one thread have nothing for ThreadSanitizer; that they have one is a rule of the house.
file(STRINGS ${PROJECT_SOURCE_DIR}/tests/house/one_thread.txt TALWEG_ONE_THREAD)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/house/one_thread.txt)

# talweg_room(NAME SOURCES a.cc b.cc DEPS talweg_base fmt::fmt): the static library talweg_NAME.
function(talweg_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(talweg_${name} STATIC ${ARG_SOURCES})
  set_target_properties(talweg_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(talweg_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(talweg_${name} PUBLIC ${ARG_DEPS} PRIVATE talweg_warnings)
  if(TALWEG_UNITY)
    set_target_properties(talweg_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
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

# talweg_labels(TEST LABEL ... [TARGET program]): labels a test in place of the room it is in. `long` keeps it for `make check-long`;
# `core` has it run with AddressSanitizer in `make check` too, and `program` built for that.
function(talweg_labels test)
  cmake_parse_arguments(ARG "" "TARGET" "" ${ARGN})
  set_tests_properties(${test} PROPERTIES LABELS "${ARG_UNPARSED_ARGUMENTS}")
  if(ARG_TARGET AND core IN_LIST ARG_UNPARSED_ARGUMENTS)
    add_dependencies(core ${ARG_TARGET})
  endif()
endfunction()

# talweg_test(NAME SOURCES a_test.cc DEPS talweg_kernel [TIMEOUT seconds] [LABELS label ...] [LONG Suite.Case:...] [SERIAL]):
# one GoogleTest program. The label no_sanitizers keeps it out of the runs with sanitizers; LONG is a filter for the
# cases that are left to `make check-long`; SERIAL gives the program the machine to itself.
# There is one ctest entry per case; with sanitizers, where a start is dear, one per program, and NAME_long for the cases
# of LONG, which no other label keeps out of `make check-long`: which cases ran is then in cases/NAME.xml of the build folder.
function(talweg_test name)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT;LONG" "SOURCES;DEPS;LABELS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "talweg_test(${name}): not understood: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(properties)
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL ON)
  endif()
  file(RELATIVE_PATH room ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" room ${room})
  if(room IN_LIST TALWEG_CORE)
    list(APPEND ARG_LABELS core)
    add_dependencies(core ${name}_test)
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
  if(TALWEG_SANITIZE)
    set(filter)
    if(ARG_LONG)
      add_test(NAME ${name}_long COMMAND ${name}_test --gtest_filter=${ARG_LONG} --gtest_output=xml:${PROJECT_BINARY_DIR}/cases/${name}_long.xml)
      set_tests_properties(${name}_long PROPERTIES TIMEOUT 1200 LABELS long ${properties})
      set(filter --gtest_filter=-${ARG_LONG})
    endif()
    add_test(NAME ${name} COMMAND ${name}_test ${filter} --gtest_output=xml:${PROJECT_BINARY_DIR}/cases/${name}.xml)
    set_tests_properties(${name} PROPERTIES TIMEOUT 1200 LABELS "${ARG_LABELS}" ${properties})
    return()
  endif()
  # Discovered when ctest starts, not while building: a test program that cannot start fails its tests, not the
  # build. The prefix keeps equal names of two programs apart: ctest would give both the properties of the last.
  # One label at most: a list would come apart on its way through gtest_discover_tests.
  set(how TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  if(ARG_LONG)
    gtest_discover_tests(${name}_test ${how} TEST_FILTER "${ARG_LONG}"
      PROPERTIES TIMEOUT 1200 LABELS long ${properties})
    list(APPEND how TEST_FILTER "-${ARG_LONG}")
  endif()
  if(ARG_LABELS)
    list(GET ARG_LABELS 0 label)
    list(APPEND properties LABELS ${label})
  endif()
  gtest_discover_tests(${name}_test ${how} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${properties})
endfunction()

# talweg_subdirectory(PATH): adds the folder if it has a CMakeLists.txt. Rooms are created when they have work.
macro(talweg_subdirectory path)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${path}/CMakeLists.txt)
    add_subdirectory(${path})
  endif()
endmacro()
