# The runs of digests.h as a program without GoogleTest. Not built unless asked for.
add_executable(sim_digests EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/digests.cc ${CMAKE_CURRENT_LIST_DIR}/digests_main.cc)
target_include_directories(sim_digests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(sim_digests PRIVATE talweg_sim talweg_warnings)
set_target_properties(sim_digests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
