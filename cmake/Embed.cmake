# talweg_embed(TARGET FOLDER a.css b.js ...): each file becomes a string of the room, without any tool but CMake. Its
# name is that of the file: a.css is `a_css` of the header <room>/FOLDER/embedded.h, which is generated.
function(talweg_embed target folder)
  set(strings "")
  foreach(file ${ARGN})
    file(READ ${folder}/${file} content)
    string(MAKE_C_IDENTIFIER ${file} name)
    string(APPEND strings "inline constexpr std::string_view ${name} = R\"embedded(${content})embedded\";\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${file})
  endforeach()
  get_filename_component(room ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${room}/${folder}/embedded.h @ONLY CONTENT
"#pragma once
#include <string_view>
namespace talweg::@room@ {
@strings@}  // namespace talweg::@room@
")
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/generated)
endfunction()
