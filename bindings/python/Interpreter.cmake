# The Python that the faces are built for (the project's virtual environment unless told otherwise), and where in
# the build tree the package `talweg` is put together: PYTHONPATH=<build>/python imports it.
if(SKBUILD)
  set(default_python ${Python3_EXECUTABLE})  # of the environment that asked for a wheel
else()
  set(default_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
set(TALWEG_PYTHON_EXECUTABLE ${default_python} CACHE FILEPATH "Python to build the faces for")
set(Python3_EXECUTABLE ${TALWEG_PYTHON_EXECUTABLE})
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
set(TALWEG_PYTHON_PACKAGE ${PROJECT_BINARY_DIR}/python/talweg)

# talweg_documents(TARGET STUB): what the stub says of each name, for python/documented.h.
function(talweg_documents target stub)
  set(script ${PROJECT_SOURCE_DIR}/bindings/python/documents.py)
  set(made ${PROJECT_BINARY_DIR}/generated/${target}/documents.h)
  add_custom_command(OUTPUT ${made} DEPENDS ${script} ${stub}
                     COMMAND ${Python3_EXECUTABLE} -I ${script} ${stub} ${made} VERBATIM)
  target_sources(${target} PRIVATE ${made})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/bindings ${PROJECT_BINARY_DIR}/generated/${target})
endfunction()
