# One function per kind of target, so that a room's CMakeLists.txt only lists its files and what it stands on.

# talweg_room(NAME SOURCES a.cc b.cc DEPS talweg_base fmt::fmt): the static library talweg_NAME.
function(talweg_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(talweg_${name} STATIC ${ARG_SOURCES})
  set_target_properties(talweg_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(talweg_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(talweg_${name} PUBLIC ${ARG_DEPS} PRIVATE talweg_warnings)
endfunction()

# talweg_test(NAME SOURCES a_test.cc DEPS talweg_kernel): one GoogleTest program, one ctest entry per test case.
function(talweg_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main talweg_warnings)
  gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
