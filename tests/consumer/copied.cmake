# A program as a reader takes it: copied alone into an empty folder, with a project of its own, against the installed
# package; it must build, and run with two simulated GPUs.
#   cmake -DBUILD=<build folder> -DSOURCE=<project folder> -DCOMPILER=... -DPROGRAM=<its name> -P copied.cmake
# Without a PROGRAM it installs the build, for all of them.
set(work "${BUILD}/copied")
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
if(NOT PROGRAM)
  file(REMOVE_RECURSE "${work}")
  run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${work}/prefix")
  return()
endif()
set(folder "${work}/${PROGRAM}")
file(REMOVE_RECURSE "${folder}")
file(COPY "${SOURCE}/examples/${PROGRAM}.cpp" DESTINATION "${folder}")
file(WRITE "${folder}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(copied LANGUAGES CXX)
find_package(use_gpu REQUIRED)
add_executable(copied ${PROGRAM}.cpp)
target_link_libraries(copied PRIVATE use_gpu::use_gpu)
")
run(${CMAKE_COMMAND} -G Ninja -S "${folder}" -B "${folder}/build" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DCMAKE_CXX_FLAGS=${FLAGS}")
run(${CMAKE_COMMAND} --build "${folder}/build")
if(EXISTS "${SOURCE}/examples/${PROGRAM}.safetensors")  # what it reads lies beside the program
  file(COPY "${SOURCE}/examples/${PROGRAM}.safetensors" DESTINATION "${folder}/build")
endif()
unset(ENV{LD_LIBRARY_PATH})
unset(ENV{CUDA_VISIBLE_DEVICES})
run("${work}/prefix/bin/simulate_gpus" 2 "${folder}/build/copied")
message("${output}")
