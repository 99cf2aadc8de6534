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
